"""Whether a worker really does its work: what ``/readyz`` says, and why not."""

import time
from typing import Any

from lineside.stream.attendant import Attendant

_STALL_S = 30.0
"""With records in the log and none applied for so long, something is wrong."""
_FAILED_SAVES = 3


class Readiness:
    """Answers from the metrics server's threads, by plain reads of the attendant."""

    def __init__(self) -> None:
        self.attendant: Attendant | None = None
        self.phase = "starting"

    def __call__(self) -> tuple[bool, dict[str, Any]]:
        if self.attendant is None:
            return False, {"reasons": [self.phase]}
        reasons = self._reasons(self.attendant)
        return not reasons, {"reasons": reasons, **self._numbers(self.attendant)}

    def _reasons(self, attendant: Attendant) -> list[str]:
        seats = list(attendant.seats.values())
        reasons = []
        if not seats:
            reasons.append("no partitions assigned yet")
        if not attendant.reachable:
            reasons.append("Kafka is away")
        if behind := sorted(seat.number for seat in seats if not seat.live):
            reasons.append(f"catching up on partitions {behind}")
        idle_s = time.monotonic() - attendant.worker.last_applied_s
        if any(seat.lag > 0 for seat in seats) and idle_s > _STALL_S:
            reasons.append(f"records wait, but none was applied for {idle_s:.0f} s")
        if attendant.failed_saves >= _FAILED_SAVES:
            reasons.append(f"the last {attendant.failed_saves} snapshots could not be saved")
        return reasons

    def _numbers(self, attendant: Attendant) -> dict[str, Any]:
        seats, worker = list(attendant.seats.values()), attendant.worker
        return {
            "partitions": sorted(seat.number for seat in seats),
            "jobs": sum(seat.partition.jobs for seat in seats if seat.partition),
            "lag_records": sum(seat.lag for seat in seats if seat.lag > 0),
            "last_event_age_s": worker.last_event_age_s(),
            "record_s": worker.busy_s / worker.applied if worker.applied else None,
            "records_applied": worker.applied,
            "dead_letters": worker.dead_letters,
            "last_saved_age_s": attendant.saved_age_s(),
        }
