"""What a worker sends, until it is acknowledged.

Findings, dead letters and snapshots are sent without waiting, so that a record costs no round trip; before
anything that speaks of them is saved, ``settle`` makes sure that the broker has them.
"""

import logging
import threading
from collections import deque

from lineside.bus import BusMisuse, Publisher, QueueFull
from lineside.contracts import WireMessage

log = logging.getLogger("lineside.stream")

_FULL = 1000
"""Messages that may wait here, on top of the publisher's own queue, before reading pauses."""


class OutputLost(Exception):
    """The publisher gave up on records. What led to them must be read again, from the last snapshots."""


class Outbox:
    """Messages in order, on top of a ``Publisher``; usable from several threads."""

    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher
        self._waiting: deque[WireMessage] = deque()
        self._order = threading.Lock()
        self._failed = publisher.failed()

    @property
    def full(self) -> bool:
        """Whether to stop making more of them for a moment."""
        return len(self._waiting) >= _FULL

    def put(self, message: WireMessage) -> bool:
        """Send ``message`` as soon as there is room. False where it can never be sent (too large): then it
        is logged and dropped."""
        with self._order:
            if not self._waiting:
                try:
                    self._publisher.publish(message)
                    return True
                except QueueFull:
                    pass
                except BusMisuse as error:
                    _refused(message, error)
                    return False
            self._waiting.append(message)
            return True

    def poll(self) -> None:
        """Let deliveries complete and move on what waits. Never blocks."""
        self._publisher.poll()
        with self._order:
            while self._waiting:
                message = self._waiting[0]
                try:
                    self._publisher.publish(message)
                except QueueFull:
                    return
                except BusMisuse as error:
                    _refused(message, error)
                self._waiting.popleft()

    def settle(self, timeout_s: float) -> bool:
        """Wait until all that was put is acknowledged; False after ``timeout_s``.

        Raises ``OutputLost`` where records were given up since the last call.
        """
        self.poll()
        left = self._publisher.flush(timeout_s)
        failed = self._publisher.failed()
        if failed != self._failed:
            lost, self._failed = failed - self._failed, failed
            raise OutputLost(f"{lost} records were given up by the publisher")
        return left == 0 and not self._waiting

    def close(self) -> None:
        self._publisher.close()


def _refused(message: WireMessage, error: BusMisuse) -> None:
    log.error("cannot send %s of %r: %s", message.topic, message.key, error)
