"""What waits to be sent. Kafka may be away for as long as it likes; memory stays bounded.

Records wait here only while the publisher's own queue is full. Beyond the bound the oldest go first and are
counted: of a long outage the newest part is worth most. Order within a topic is kept.
"""

import logging
import time
from collections import Counter, deque
from typing import NamedTuple

from lineside.bus import BusMisuse, Publisher, QueueFull
from lineside.contracts import TopicName, WireMessage

_log = logging.getLogger("lineside.agent")


class _Waiting(NamedTuple):
    message: WireMessage
    rows: int
    size: int


class Outbox:
    """A bounded queue in front of a publisher."""

    def __init__(self, publisher: Publisher, max_bytes: int) -> None:
        self._publisher = publisher
        self._max_bytes = max_bytes
        self._waiting: deque[_Waiting] = deque()
        self._size = 0
        self._dropped: Counter[TopicName] = Counter()

    def put(self, message: WireMessage, rows: int = 0) -> None:
        """Send ``message``, now or when it is possible; ``rows`` is what is lost if it never is."""
        size = len(message.value or b"") + len(message.key)
        self._waiting.append(_Waiting(message, rows, size))
        self._size += size
        self.pump()
        while self._size > self._max_bytes:
            oldest = self._pop()
            self._dropped[oldest.message.topic] += oldest.rows

    def pump(self) -> None:
        """Hand over what the publisher takes and let deliveries complete."""
        self._publisher.poll()
        while self._waiting:
            try:
                self._publisher.publish(self._waiting[0].message)
            except QueueFull:
                return
            except BusMisuse as error:
                refused = self._pop()
                self._dropped[refused.message.topic] += refused.rows
                _log.error("not sent: %s", error)
            else:
                self._pop()

    def take_dropped(self, topic: TopicName) -> int:
        """Rows of ``topic`` lost since the last call."""
        return self._dropped.pop(topic, 0)

    def waiting(self) -> int:
        """Records that the publisher has not taken yet."""
        return len(self._waiting)

    def finish(self, timeout_s: float) -> int:
        """Send what can be sent in ``timeout_s``; returns how many records stay behind."""
        deadline = time.monotonic() + timeout_s
        while True:
            self.pump()
            left = self._publisher.flush(max(0.0, deadline - time.monotonic()))
            if left or not self._waiting:
                break
        self._publisher.close()
        return left + len(self._waiting)

    def _pop(self) -> _Waiting:
        oldest = self._waiting.popleft()
        self._size -= oldest.size
        return oldest
