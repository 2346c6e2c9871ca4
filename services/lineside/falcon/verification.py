"""Whether a rank that looks slow is slow: a change point alone is only a suspicion (FALCON, 4.1).

Evidence accumulates: a level is the median over all points since the change, and has to stand out of the
noise by ``sigmas`` standard errors of that median, so 2x is believed after a few steps and 1.1x under heavy
noise after many. Noise and the spread between healthy ranks are learned from the rank and its peers.
"""

from dataclasses import dataclass
from math import log, sqrt

import numpy as np
from numpy.typing import NDArray

from lineside.falcon.robust import MEDIAN_ERROR, median, spread

Floats = NDArray[np.floating]


@dataclass(frozen=True, kw_only=True, slots=True)
class VerificationConfig:
    """Numbers are on the log of a rank's unit cost over its peers' median.

    ``slow``: FALCON's 10 %, for before against after and against the peers. ``confirm``: points after a
    change (measured: with fewer than 5 false alarms begin). ``before`` and ``enough_before``: points that the
    level before is taken from, at most and at least. ``direct``: points without a change point, for ranks
    that are slow from the start or drift. ``sigmas`` is high since every rank is judged at every step.
    """

    slow: float = log(1.1)
    confirm: int = 5
    before: int = 40
    enough_before: int = 8
    direct: int = 20
    sigmas: float = 6.0
    peer_spreads: float = 3.0
    least_noise: float = 0.01


@dataclass(frozen=True, slots=True)
class Verdict:
    """A rank found slow. ``column``: first slow column of the history; levels are logs; ``score`` in
    sigmas."""

    column: int
    before: float
    level: float
    noise: float
    score: float


def verify_change(
    excess: Floats, cost: Floats, peers: Floats, run: int, patience: int, config: VerificationConfig
) -> Verdict | None:
    """Judge a change ``run`` points ago in one rank's history (W,); ``peers`` (P, W) are its peers' excesses.

    ``patience``: how many slow steps this job's ranks must show before they are believed.
    """
    known = np.flatnonzero(~np.isnan(excess))
    if len(known) - run < config.enough_before or run < config.confirm:
        return None
    earlier = known[-run - config.before : -run] if run else known
    before = float(median(excess[earlier]))
    split = onset_column(excess, known, before, float(median(excess[known[-run:]])))
    earlier, after = earlier[earlier < split], known[known >= split]
    if len(earlier) < config.enough_before or len(after) < config.confirm:
        return None
    before, level = float(median(excess[earlier])), float(median(excess[after]))
    risen = float(median(cost[after]) - median(cost[earlier]))
    # A stall of four steps and a fifth that is slow by noise are no five slow steps
    slow = np.count_nonzero(excess[after] > max(config.slow, (before + level) / 2))
    if min(level, risen) < config.slow or slow < max(patience, config.confirm):
        return None
    noise = _noise(excess[earlier], peers[:, earlier], config)
    error = MEDIAN_ERROR * noise * sqrt(1 / len(after) + 1 / len(earlier))
    score = (level - before) / error
    if score < config.sigmas or not _stands_out(level, peers[:, after], config):
        return None
    return Verdict(split, before, level, noise, score)


def verify_direct(excess: Floats, peers: Floats, config: VerificationConfig) -> Verdict | None:
    """Judge a rank without a change point, by its last ``direct`` points against at least two peers."""
    known = np.flatnonzero(~np.isnan(excess))
    after = known[-config.direct :]
    if len(after) < config.direct or len(peers) < 2:
        return None
    level = float(median(excess[after]))
    noise = _noise(excess[after], peers[:, after], config)
    score = level / (MEDIAN_ERROR * noise / sqrt(len(after)))
    if (
        level < config.slow
        or score < config.sigmas
        or not _stands_out(level, peers[:, after], config)
    ):
        return None
    return Verdict(onset_column(excess, known, 0.0, level), 0.0, level, noise, score)


def onset_column(excess: Floats, known: NDArray[np.intp], before: float, after: float) -> int:
    """The first column of the slow stretch at the end: the split that fits both levels best (least
    absolute deviations)."""
    values = excess[known].astype(np.float64)
    gain = np.abs(values - before) - np.abs(values - after)
    return int(known[np.cumsum(gain[::-1])[::-1].argmax()])


def _noise(own: Floats, peers: Floats, config: VerificationConfig) -> float:
    """Of one point: the larger of the rank's own spread and that of its peers about their own levels."""
    around = spread(peers)
    candidates = [config.least_noise, float(spread(own)), float(median(around))]
    return max(c for c in candidates if c == c)


def _stands_out(level: float, peers: Floats, config: VerificationConfig) -> bool:
    """Whether the level is outside what the peers' levels differ by among themselves."""
    if len(peers) < 3:
        return True
    levels = median(peers)
    between = float(spread(levels))
    return not level - float(median(levels)) <= config.peer_spreads * between
