"""What waits to be sent. Kafka may be away for as long as it likes; memory and disk stay bounded.

Records go to the publisher while its own short queue has room, and to the spool on disk while it has not.
Beyond the spool's bound the oldest go first and are counted: of a long outage the newest part is worth most.
Order is kept.
"""

import logging
import time
from collections import Counter

from lineside.agent.spool import Spool
from lineside.bus import BusMisuse, Publisher, QueueFull
from lineside.contracts import TopicName, WireMessage

_log = logging.getLogger("lineside.agent")


class Outbox:
    """A bounded queue in front of a publisher. A spool that another agent left is sent first."""

    def __init__(self, publisher: Publisher, spool: Spool) -> None:
        self._publisher = publisher
        self._spool = spool
        self._dropped: Counter[TopicName] = Counter()
        self._disk_error = ""

    def put(self, message: WireMessage, rows: int = 0) -> None:
        """Send ``message``, now or when it is possible; ``rows`` is what is lost if it never is."""
        self.pump()
        if not len(self._spool) and self._send(message, rows):
            return
        try:
            self._spool.put(message, rows)
        except OSError as error:
            self._dropped[message.topic] += rows
            self._tell(error)

    def pump(self) -> None:
        """Hand over what the publisher takes and let deliveries complete."""
        self._publisher.poll()
        try:
            while (oldest := self._spool.first()) is not None:
                if not self._send(oldest.message(), oldest.rows):
                    return
                self._spool.done()
        except OSError as error:
            self._tell(error)

    def take_dropped(self, topic: TopicName) -> int:
        """Rows of ``topic`` lost since the last call."""
        self._dropped += self._spool.take_dropped()
        return self._dropped.pop(topic, 0)

    def waiting(self) -> int:
        """Records that the publisher has not taken yet."""
        return len(self._spool)

    def finish(self, timeout_s: float) -> int:
        """Send what can be sent in ``timeout_s``; returns how many records stay behind."""
        deadline = time.monotonic() + timeout_s
        while True:
            self.pump()
            left = self._publisher.flush(max(0.0, deadline - time.monotonic()))
            if left or not self.waiting():
                break
        self._publisher.close()
        return left + self.waiting()

    def _send(self, message: WireMessage, rows: int) -> bool:
        """Whether the publisher has taken it, or never will; False: not now."""
        try:
            self._publisher.publish(message)
        except QueueFull:
            return False
        except BusMisuse as error:
            self._dropped[message.topic] += rows
            _log.error("not sent: %s", error)
        return True

    def _tell(self, error: OSError) -> None:
        text = str(error)
        if text != self._disk_error:
            self._disk_error = text
            _log.error("the spool cannot be used: %s", text)
