"""What an injector really did, as JSON lines: the yardstick that detection is scored against."""

import time
import uuid
from pathlib import Path

import msgspec


class Truth(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=False):
    """One injected fault. Written twice under the same ``truth_id``: at its onset with ``to_ns`` -1, so that
    an injector that is killed has told its truth as well, and at its end with ``to_ns`` and ``measured``.
    Times are of the wall clock. ``rank`` -1: not known."""

    truth_id: str
    what: str
    pid: int
    rank: int
    wanted: float
    measured: float | None = None
    from_ns: int
    to_ns: int = -1


class TruthFile:
    """Appends to ``path``; None writes nowhere."""

    def __init__(self, path: Path | None) -> None:
        self._path = path

    def onset(self, what: str, pid: int, rank: int, wanted: float) -> Truth:
        """The fault begins now. ``wanted`` is its strength in the words of its kind, e.g. the slowdown."""
        truth = Truth(
            truth_id=str(uuid.uuid4()),
            what=what,
            pid=pid,
            rank=rank,
            wanted=wanted,
            from_ns=time.time_ns(),
        )
        self._append(truth)
        return truth

    def end(self, truth: Truth, measured: float | None) -> Truth:
        """The fault is over now; ``measured`` is the strength that it really had."""
        ended = msgspec.structs.replace(truth, to_ns=time.time_ns(), measured=measured)
        self._append(ended)
        return ended

    def _append(self, truth: Truth) -> None:
        if self._path is not None:
            with open(self._path, "ab") as file:
                file.write(msgspec.json.encode(truth) + b"\n")
