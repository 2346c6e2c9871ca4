"""What a stream processor says of itself."""

from collections.abc import Callable
from dataclasses import dataclass

from lineside.contracts import TopicName
from lineside.stream.detector import JobDetector


@dataclass(frozen=True, kw_only=True, slots=True)
class Processor:
    """``name`` is the consumer group (after the tenant's prefix) and the first part of every state key, so
    it must never change; ``make`` gives a fresh detector for a job that is seen for the first time."""

    name: str
    inputs: tuple[TopicName, ...]
    make: Callable[[str], JobDetector]
