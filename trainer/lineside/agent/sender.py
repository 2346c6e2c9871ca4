"""Puts an agent's name on what it sends: job, run, generation, machine, and a number per batch.

``sequence`` counts per topic from 0 and has no gaps unless batches are lost on the way; ``dropped`` counts
the rows of that topic that never left this machine since the batch before.
"""

import time
import uuid
from collections import Counter
from collections.abc import Mapping
from typing import Any

from lineside.agent.outbox import Outbox
from lineside.agent.spec import AgentSpec
from lineside.contracts import Decoded, TopicName, encode, pack
from lineside.contracts.columns import TelemetryBatch


class Clock:
    """Turns the machine's monotonic clock into Unix time. The distance is measured anew only where it has
    moved by more than a millisecond, so that the same moment keeps the same number."""

    def __init__(self) -> None:
        self._offset = time.time_ns() - time.monotonic_ns()

    def offset_ns(self) -> int:
        now = time.time_ns() - time.monotonic_ns()
        if abs(now - self._offset) > 1_000_000:
            self._offset = now
        return self._offset


class Sender:
    """Encodes for one job's partition and hands over to the outbox."""

    def __init__(self, spec: AgentSpec, outbox: Outbox, partitions: int) -> None:
        self._outbox = outbox
        self._partitions = partitions
        self._sequence: Counter[TopicName] = Counter()
        self._identity = {
            "job_id": spec.job_id,
            "run_id": spec.run_id,
            "generation": spec.generation,
            "machine_id": spec.machine_id,
            "incarnation": uuid.uuid4().hex,
            "clock_offset_ns": -1,
            "clock_error_ns": -1,
        }

    def batch(
        self,
        topic: TopicName,
        kind: type[TelemetryBatch],
        columns: Mapping[str, Any],
        *,
        rows: int,
        lost: int = 0,
    ) -> None:
        """One telemetry batch; ``lost``: rows that were lost before they could be in it."""
        dropped = lost + self._outbox.take_dropped(topic)
        batch = pack(
            kind,
            {
                **self._identity,
                "sequence": self._sequence[topic],
                "dropped": dropped,
                "sent_ns": time.time_ns(),
                **columns,
            },
        )
        self._sequence[topic] += 1
        # A batch that is lost takes its count of the lost along.
        self._outbox.put(encode(topic, batch, self._partitions), rows + dropped)

    def record(self, topic: TopicName, record: Decoded) -> None:
        """A single record (a member's state, what became of a plan)."""
        self._outbox.put(encode(topic, record, self._partitions), 1)

    def waiting(self) -> int:
        """Records that wait on disk."""
        return self._outbox.waiting()

    def pump(self) -> None:
        self._outbox.pump()

    def finish(self, timeout_s: float) -> int:
        return self._outbox.finish(timeout_s)
