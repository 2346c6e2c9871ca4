"""Follows every rank: change points on its excess over its peers, then onset, updates and relief of each.

A rank's relief is judged by its own unit cost against its peers, never by the job's step time: when work has
been moved away from a slow rank the steps are fine and the rank is not.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from math import ceil, log, sqrt
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from lineside.falcon.changepoint import BOCPDConfig, SlotBOCPD
from lineside.falcon.history import WINDOW, History
from lineside.falcon.robust import MEDIAN_ERROR, median, spread
from lineside.falcon.topology import Topology
from lineside.falcon.verification import (
    Verdict,
    VerificationConfig,
    verify_change,
    verify_direct,
)

_COMPARED = 64  # peers looked at in a verdict; more do not change a median
_FORGET = 1 / 500  # steps of patience per step: what happens every few minutes stays in mind
_FAR = 8.0  # standard units that a point counts as at most: a rank 3x slower under little noise would else
# look like another change on the day that winsorising lets go of it


@dataclass(frozen=True, kw_only=True, slots=True)
class TrackingConfig:
    """``settle``: steps left out after a start (warm-up). ``learn``: points that a series is standardised on.
    ``relief``: steps near the peers (within ``healed``) that end a fault, more where noise hides
    ``relief_sigmas`` standard errors. ``material``: log change of the
    severity over ``recent`` steps that is worth an update. ``longest_patience``: see ``Tracker``.
    """

    bocpd: BOCPDConfig = field(default_factory=BOCPDConfig)
    verification: VerificationConfig = field(default_factory=VerificationConfig)
    settle: int = 10
    learn: int = 10
    recent: int = 5
    relief: int = 8
    relief_sigmas: float = 2.5
    healed: float = log(1.05)
    material: float = log(1.25)
    longest_patience: int = 15


class Change(StrEnum):
    ONSET = "onset"
    UPDATE = "update"
    RELIEF = "relief"


class Slow(msgspec.Struct):
    """A rank that is slow now. ``level`` is the log of its cost over its peers', ``announced`` as last
    told."""

    series: int
    onset_ns: int
    onset_step: int
    onset_column: int
    before: float
    noise: float
    level: float
    announced: float
    score: float
    direct: bool


class Tracker:
    """Feeds on the newest column of a ``History``; ``slow`` maps a series to what is known of its slowness.

    Ranks on shared hosts are stalled for a few steps now and then. ``patience`` is how many slow steps it
    takes to be believed: two more than the longest stall that passed by itself, slowly forgotten.
    """

    def __init__(self, series: int, config: TrackingConfig | None = None) -> None:
        self.config = config or TrackingConfig()
        self.slow: dict[int, Slow] = {}
        self._bocpd = SlotBOCPD(series, self.config.bocpd)
        self._centre = np.full(series, np.nan)
        self._scale = np.full(series, np.nan)
        self._points = np.zeros(series, np.int64)
        self._streak = np.zeros(series, np.int64)
        self._patience = 0.0

    def grow(self, series: int) -> None:
        more = series - len(self._points)
        self._bocpd.grow(series)
        for name, fill in (("_centre", np.nan), ("_scale", np.nan), ("_points", 0), ("_streak", 0)):
            old = getattr(self, name)
            setattr(self, name, np.concatenate([old, np.full(more, fill, old.dtype)]))

    def advance(self, history: History, topology: Topology) -> list[tuple[Change, Slow]]:
        """Take in the newest column; what changed, ranks in order."""
        self._age()
        self._learn(history)
        self._notice_stalls(history.excess[:, -1])
        changes = [
            found for series in sorted(self.slow) if (found := self._follow(series, history))
        ]
        for series, direct in self._suspects(history, topology):
            if verdict := self._verify(series, direct, history, topology):
                changes.append((Change.ONSET, self._open(series, direct, verdict, history)))
        return sorted(changes, key=lambda change: change[1].series)

    def _age(self) -> None:
        for slow in self.slow.values():
            slow.onset_column = max(slow.onset_column - 1, 0)

    def _learn(self, history: History) -> None:
        """Standardise each series on its own past; a series that has just learned how replays that past."""
        newest = history.excess[:, -1]
        known = ~np.isnan(newest)
        self._points += known
        learned = ~np.isnan(self._scale)
        due = known & ~learned & (self._points >= self.config.settle + self.config.learn)
        if learned.any():
            self._bocpd.update(np.clip((newest - self._centre) / self._scale, -_FAR, _FAR))
        if due.any():
            fresh = np.flatnonzero(due)
            past = history.excess[fresh, -self.config.learn :]
            self._centre[fresh] = median(past)
            self._scale[fresh] = np.maximum(spread(past), self.config.verification.least_noise)
            past = (past - self._centre[fresh, None]) / self._scale[fresh, None]
            for point in np.clip(past, -_FAR, _FAR).T:
                self._bocpd.update(point, fresh)

    def _notice_stalls(self, newest: NDArray[np.float32]) -> None:
        is_slow = newest > self.config.verification.slow
        ended = ~is_slow & ~np.isnan(newest) & (self._streak > 2)
        ended[list(self.slow)] = False
        stall = int(self._streak[ended].max(initial=0))
        least, most = self.config.verification.confirm, self.config.longest_patience
        self._patience = min(max(self._patience - _FORGET, stall + 2, least), most)
        self._streak = np.where(
            is_slow, self._streak + 1, np.where(np.isnan(newest), self._streak, 0)
        )

    def _suspects(self, history: History, topology: Topology) -> list[tuple[int, bool]]:
        """Series worth a verdict, and whether without a change point; the cheap tests, all series at once."""
        rules = self.config.verification
        slow = history.excess > rules.slow
        # All of the last five but one: a single lucky step does not end a suspicion
        now = np.count_nonzero(slow[:, -rules.confirm :], axis=1) >= rules.confirm - 1
        now &= ~np.isnan(history.excess[:, -1]) & ~np.isnan(self._scale)
        now[list(self.slow)] = False
        candidates = np.flatnonzero(now)
        run = self._bocpd.run_lengths(candidates)
        changed = (run >= rules.confirm) & (run <= WINDOW - rules.enough_before)
        lasting = np.count_nonzero(slow[candidates, -rules.direct :], axis=1) >= 0.8 * rules.direct
        lasting &= ~topology.lonely[candidates]
        found = [(int(s), False) for s in candidates[changed]]
        return found + [(int(s), True) for s in candidates[lasting]]

    def _verify(
        self, series: int, direct: bool, history: History, topology: Topology
    ) -> Verdict | None:
        if series in self.slow:
            return None
        peers = topology.peers(series)
        others = history.excess[peers[:: max(1, len(peers) // _COMPARED)]]
        rules = self.config.verification
        if direct:
            return verify_direct(history.excess[series], others, rules)
        run = int(self._bocpd.run_lengths(np.array([series]))[0])
        patience = int(self._patience)
        return verify_change(
            history.excess[series], history.cost[series], others, run, patience, rules
        )

    def _open(self, series: int, direct: bool, verdict: Verdict, history: History) -> Slow:
        slow = Slow(
            series=series,
            onset_ns=int(history.start_ns[verdict.column]),
            onset_step=int(history.step[verdict.column]),
            onset_column=verdict.column,
            before=min(max(verdict.before, 0.0), self.config.verification.slow),
            noise=verdict.noise,
            level=verdict.level,
            announced=verdict.level,
            score=verdict.score,
            direct=direct,
        )
        self.slow[series] = slow
        return slow

    def _follow(self, series: int, history: History) -> tuple[Change, Slow] | None:
        slow, config = self.slow[series], self.config
        if np.isnan(history.excess[series, -1]):
            return None
        values = history.excess[series, slow.onset_column :]
        values = values[~np.isnan(values)].astype(np.float64)
        slow.level = float(median(values[-config.recent :]))
        half = (slow.announced - slow.before) / 2
        # As many steps as it takes to tell healed from half healed in this noise
        needed = ceil((MEDIAN_ERROR * config.relief_sigmas * slow.noise / half) ** 2)
        needed = min(max(needed, config.relief), WINDOW // 2)
        last = values[-needed:]
        error = MEDIAN_ERROR * slow.noise / sqrt(len(last))
        limit = min(config.healed + 2 * error, half) + slow.before
        near = np.count_nonzero(last <= limit + slow.noise)
        if len(last) == needed and median(last) <= limit and near >= 0.8 * needed:
            self._close(slow, history, needed)
            return Change.RELIEF, slow
        moved = abs(slow.level - slow.announced) >= config.material
        if moved and slow.level > limit and len(values) >= config.recent:
            slow.announced = slow.level
            return Change.UPDATE, slow
        return None

    def _close(self, slow: Slow, history: History, healthy: int) -> None:
        """A fault that healed so soon was a stall; the next one has to last longer."""
        del self.slow[slow.series]
        lasted = int(history.step[-1]) - slow.onset_step + 1 - healthy
        if lasted <= self.config.longest_patience:
            self._patience = max(self._patience, lasted + 2.0)

    def state(self) -> dict[str, Any]:
        return {
            "slow": [msgspec.to_builtins(slow) for slow in self.slow.values()],
            "bocpd": self._bocpd.snapshot(),
            "centre": self._centre,
            "scale": self._scale,
            "points": self._points,
            "streak": self._streak,
            "patience": self._patience,
        }

    def load(self, state: dict[str, Any]) -> None:
        found = [msgspec.convert(slow, Slow) for slow in state["slow"]]
        self.slow = {slow.series: slow for slow in found}
        self._bocpd.restore(state["bocpd"])
        self._centre, self._scale = state["centre"], state["scale"]
        self._points, self._streak = state["points"], state["streak"]
        self._patience = state["patience"]
