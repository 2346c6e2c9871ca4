"""What an agent knows of one rank from its probe file: the newest believable state, and what is new.

A file that is missing, broken, torn or hostile costs this rank's rows and one line in the log, never the
agent.
"""

import logging
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lineside.contracts import Declaration, Phase
from lineside.probe.layout import LivePhase
from lineside.probe.reader import GROUP_TYPE, RECORD_TYPE, BadProbeFile, Live, ProbeReader, Status

_log = logging.getLogger("lineside.agent")

_WHOLE_STEP = {
    Phase.EVAL: "eval",
    Phase.CHECKPOINT: "checkpoint",
    Phase.COMPILE: "compile",
}
"""Kinds of steps in which slowness is no fault, whatever phase they are in."""


class RankView:
    """Follows ``probe.<rank>``. Times are the machine's monotonic clock."""

    def __init__(self, folder: Path, rank: int, generation: int) -> None:
        self.rank = rank
        self._path = folder / f"probe.{rank}"
        self._generation = generation
        self._reader: ProbeReader | None = None
        self._lost = 0
        self._told: set[str] = set()
        self.live: Live | None = None
        self.status: Status | None = None
        self.declared: Declaration | None = None

    def refresh(self) -> None:
        """Read the rank's state anew; what cannot be read stays as it was."""
        try:
            self._open()
            if self._reader is not None:
                self.live = self._reader.live() or self.live
                self.status = self._reader.status() or self.status
                self.declared = self._reader.declaration()
                if self.declared is None and self.live is not None and self.live.step >= 0:
                    self.declared = Declaration()  # it trains without a word: nothing will come
        except (BadProbeFile, OSError) as error:
            self._tell(str(error))

    def steps(self) -> tuple[NDArray[Any], int]:
        """Finished steps since the last call, and how many records were lost in between."""
        if self._reader is None:
            return np.empty(0, RECORD_TYPE), 0
        rows, dropped = self._reader.steps()
        lost = self._reader.lost()
        dropped, self._lost = dropped + max(0, lost - self._lost), lost
        return rows, dropped

    def groups(self) -> NDArray[Any]:
        return self._reader.groups() if self._reader else np.empty(0, GROUP_TYPE)

    @property
    def phase(self) -> str:
        """What the rank is doing, as ``rank_states`` tells it; empty where it has no probe."""
        if self.live is None:
            return ""
        try:
            phase, kind = LivePhase(self.live.phase), Phase(self.live.kind)
        except ValueError:
            return ""
        inside = phase >= LivePhase.STEP
        return _WHOLE_STEP[kind] if inside and kind in _WHOLE_STEP else phase.name.lower()

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def _open(self) -> None:
        """Open the file, or the one that has taken its place since."""
        try:
            inode = self._path.stat(follow_symlinks=False).st_ino
        except FileNotFoundError:
            return
        if self._reader is not None and self._reader.inode == inode:
            return
        reader = ProbeReader(self._path)
        if (reader.rank, reader.generation) != (self.rank, self._generation):
            reader.close()
            raise BadProbeFile(
                f"{self._path.name} is of rank {reader.rank}, generation {reader.generation}"
            )
        self.close()
        self._reader, self._lost = reader, 0

    def _tell(self, text: str) -> None:
        if text not in self._told and len(self._told) < 8:
            self._told.add(text)
            _log.warning("the probe of rank %d cannot be used: %s", self.rank, text)
