"""What comes to an agent by Kafka: plans and requests, checked for their signature and decoded.

What cannot be decoded is logged and passed over: it names nobody who could be answered. What is decoded but
not signed as it must be comes along with the reason, so that it is refused aloud.
"""

import logging
import time
from typing import NamedTuple

from lineside.agent.spec import AgentSpec
from lineside.bus import Bus, BusError, Message, Subscriber
from lineside.contracts import ContractError, Plan, Request, TopicName, decode
from lineside.contracts.signatures import Trust, Untrusted

_log = logging.getLogger("lineside.agent")

_RETRY_S = 2.0
_AT_ONCE, _MOST = 100, 10_000


class Letter(NamedTuple):
    """``refusal``: why its word does not count; None where it does."""

    record: Plan | Request
    refusal: str | None


class Inbox:
    """The agent's job's plans and requests, from the oldest that Kafka keeps. Never blocks."""

    def __init__(self, spec: AgentSpec, bus: Bus, trust: Trust) -> None:
        self._job_id = spec.job_id
        self._bus = bus
        self._trust = trust
        self._tail: Subscriber | None = None
        self._due = 0.0

    def receive(self) -> list[Letter]:
        """All that is there, plans first and the newest revision before older ones: who was away for ten
        revisions takes the tenth and calls the others late."""
        messages: list[Message] = []
        try:
            if self._tail is None:
                if time.monotonic() < self._due:
                    return []
                self._due = time.monotonic() + _RETRY_S
                self._tail = self._bus.tail([TopicName.PLANS, TopicName.REQUESTS], self._job_id)
            while len(messages) < _MOST and (fresh := self._tail.receive(_AT_ONCE, 0.0)):
                messages += fresh
        except BusError as error:
            _log.warning("plans and requests: %s", error)
        letters = [letter for message in messages if (letter := self._opened(message))]
        return sorted(letters, key=_place)

    def close(self) -> None:
        if self._tail is not None:
            self._tail.close()

    def _opened(self, message: Message) -> Letter | None:
        if message.value is None:
            return None
        try:
            record = decode(message.topic, message.value, message.headers)
        except ContractError as error:
            _log.warning("%s at offset %d: %s", message.topic, message.offset, error)
            return None
        if record.job_id != self._job_id:
            return None
        try:
            self._trust.check(message.value, message.headers)
        except Untrusted as error:
            return Letter(record, str(error))
        return Letter(record, None)


def _place(letter: Letter) -> tuple[int, int]:
    record = letter.record
    return (0, -record.revision) if isinstance(record, Plan) else (1, 0)
