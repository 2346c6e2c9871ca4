"""FALCON over one job: Jobs and step rows in, slow ranks and the job's health out (arXiv 2410.12588).

Everything is a function of the records and their append time. Ranks mean something only within their (run,
generation), so each has memory of its own; the newest three are kept, since a generation's last rows may come
after the next one's first.
"""

from collections import Counter
from typing import Any

from lineside.contracts import ENDED, Fault, Job, JobHealth, StepBatch
from lineside.falcon import snapshot
from lineside.falcon.config import FalconConfig
from lineside.falcon.generation import Generation, Key

_KEPT = 3
_REMEMBERED = 64  # keys of generations that are over for good


class FalconDetector:
    """The detector of job ``job_id``; fed in any interleaving of its topics, each in its own order."""

    def __init__(self, config: FalconConfig, job_id: str) -> None:
        self.config, self.job_id = config, job_id
        self._counts: Counter[str] = Counter()
        self._generations: dict[Key, Generation] = {}  # oldest first
        self._over: list[Key] = []
        self._health_ns = -1

    @property
    def counters(self) -> Counter[str]:
        """Rows and batches that were not used, by reason."""
        total = Counter(self._counts)
        for generation in self._generations.values():
            total.update(generation.counters)
        return total

    def observe(self, record: Any, now_ns: int) -> list[Fault | JobHealth]:
        """Take in a ``Job`` or ``StepBatch``. ``now_ns``: the largest append time seen so far.

        Raises TypeError for any other record.
        """
        if not isinstance(record, Job | StepBatch):
            raise TypeError(f"FALCON reads jobs and steps, not {type(record).__name__}")
        found: list[Fault | JobHealth] = []
        key = (record.run_id, record.generation)
        if key not in self._generations:
            found += self._meet(key, now_ns)
        if (generation := self._generations.get(key)) is None:
            self._counts["superseded"] += 1
        elif isinstance(record, Job):
            found += generation.tell(record, now_ns)
            if record.state in ENDED:
                found += generation.end(f"the run has {record.state}", now_ns)
        else:
            found += generation.take(record, now_ns)
        for other in self._generations.values():
            found += other.pass_time(now_ns)
        return found + self._health(now_ns)

    def _meet(self, key: Key, now_ns: int) -> list[Fault | JobHealth]:
        """A generation seen for the first time ends those before it, unless it is an old one itself."""
        newest = next(reversed(self._generations), None)
        older = newest is not None and newest[0] == key[0] and newest[1] > key[1]
        if key in self._over or older:
            return []
        found: list[Fault | JobHealth] = []
        for generation in self._generations.values():
            found += generation.end(f"generation {key[1]} of run {key[0]} has begun", now_ns)
        self._generations[key] = Generation(self.job_id, key, self.config)
        while len(self._generations) > _KEPT:
            gone = next(iter(self._generations))
            self._counts.update(self._generations.pop(gone).counters)
            self._over = [*self._over, gone][-_REMEMBERED:]
        return found

    def _health(self, now_ns: int) -> list[Fault | JobHealth]:
        if self._health_ns >= 0 and now_ns - self._health_ns < self.config.health_s * 1e9:
            return []
        for generation in reversed(self._generations.values()):
            if health := generation.health(now_ns):
                self._health_ns = now_ns
                return [health]
        return []

    def snapshot(self) -> bytes:
        """All of the state; ``restore`` of it continues exactly as this object would."""
        return snapshot.dump(
            {
                "counts": dict(self._counts),
                "generations": [generation.state() for generation in self._generations.values()],
                "over": self._over,
                "health_ns": self._health_ns,
            }
        )

    def restore(self, state: bytes) -> None:
        """Take over what ``snapshot`` gave, under the same config. Raises ValueError if it does not fit."""
        loaded = snapshot.load(state)
        self._counts, self._health_ns = Counter(loaded["counts"]), loaded["health_ns"]
        self._over = [(run, generation) for run, generation in loaded["over"]]
        self._generations = {}
        for entry in loaded["generations"]:
            run, number = entry["key"]
            generation = Generation(self.job_id, (run, number), self.config)
            generation.load(entry)
            self._generations[(run, number)] = generation
