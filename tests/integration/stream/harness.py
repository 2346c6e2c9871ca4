"""Worker processes under test, a steady feed of records, and what must come out of them."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from lineside.bus.kafka import KafkaBus
from lineside.contracts import (
    DetectorState,
    MetricBatch,
    Series,
    StepBatch,
    TopicName,
    decode,
    encode,
    pack,
)
from lineside.contracts.columns import column_specs
from lineside.kit import processes

WORKER = Path(__file__).with_name("counting.py")
JOBS = tuple(f"job-{n}" for n in range(7))
HEAD = dict(
    run_id="run",
    generation=0,
    machine_id="m",
    incarnation="i",
    dropped=0,
    sent_ns=0,
    clock_offset_ns=-1,
    clock_error_ns=-1,
)


def steps(job_id: str, sequence: int, ranks: int = 2) -> StepBatch:
    """A batch that carries ``sequence * ranks`` in its tokens."""
    values: dict[str, Any] = {
        name: [0.5 if spec.dtype == "<f4" else 0] * ranks
        for name, spec in column_specs(StepBatch).items()
    }
    values |= HEAD | dict(job_id=job_id, sequence=sequence)
    values |= dict(rank=list(range(ranks)), tokens=[sequence] * ranks)
    return pack(StepBatch, values)


def metrics(job_id: str, sequence: int) -> MetricBatch:
    values: dict[str, Any] = dict(start_ns=0, interval_s=1.0, series=[Series("a")])
    values |= HEAD | dict(job_id=job_id, sequence=sequence, values=[sequence % 1000])
    return pack(MetricBatch, values)


def wait_for(condition: Callable[[], Any], timeout_s: float, what: str) -> Any:
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.1)
    raise AssertionError(f"not within {timeout_s} s: {what}")


class Feed:
    """Publishes records of all jobs on two topics, and knows what a detector must have counted."""

    def __init__(self, bus: KafkaBus, rate: int) -> None:
        self.count: Counter[tuple[str, str]] = Counter()
        self.total: Counter[tuple[str, str]] = Counter()
        self._bus, self._rate = bus, rate
        self._publisher = bus.publisher()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        while not self._stop.wait(0.05):
            for _ in range(self._rate // 40):  # twenty times a second, two topics
                self.one(JOBS[sum(self.count.values()) // 2 % len(JOBS)])
            self._publisher.poll()

    def one(self, job_id: str) -> None:
        for name, kind, make, factor in (
            (TopicName.STEPS, "StepBatch", steps, 2),
            (TopicName.MACHINE_METRICS, "MetricBatch", metrics, 1),
        ):
            sequence = self.count[job_id, kind]
            self._publisher.publish(encode(name, make(job_id, sequence), self._bus.partitions))
            self.count[job_id, kind] += 1
            self.total[job_id, kind] += sequence * 2 if factor == 2 else sequence % 1000

    def __enter__(self) -> "Feed":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        assert self._publisher.flush(30) == 0 and self._publisher.failed() == 0
        self._publisher.close()


class WorkerProcess:
    """A real worker process; ``log`` is what it says."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process, self.log = process, log

    def said(self, words: str) -> bool:
        return words in self.log.read_text()

    def end(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        return self.process.wait(30)


class Starter:
    """Starts workers whose logs are in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.workers: list[WorkerProcess] = []

    def __call__(self, bus: KafkaBus, name: str, *program: str, **env: str) -> WorkerProcess:
        """``program``: what to run; the counting worker unless given."""
        settings = {
            "LINESIDE_BOOTSTRAP": bus.bootstrap,
            "LINESIDE_TOPIC_PREFIX": bus._cluster.prefix,
            "LINESIDE_PARTITIONS": str(bus.partitions),
            "LINESIDE_SNAPSHOT_INTERVAL_S": "1",
            "LINESIDE_SESSION_TIMEOUT_S": "4",
            "LINESIDE_LAG_INTERVAL_S": "1",
            "LINESIDE_METRICS_PORT": "-1",
        }
        log = self.folder / f"{name}.log"
        command = [sys.executable, *(program or (str(WORKER),))]
        process = processes.spawn(command, env=os.environ | settings | env, log=log)
        self.workers.append(WorkerProcess(process, log))
        return self.workers[-1]


class Saved:
    """What the workers have saved so far, read from ``detector-state``."""

    def __init__(self, bus: KafkaBus) -> None:
        self._tail = bus.tail([TopicName.DETECTOR_STATE])
        self.tallies: dict[str, Any] = {}
        self.version = 0

    def read(self) -> dict[str, Any]:
        while messages := self._tail.receive(500, 0.3):
            for message in messages:
                key = (message.key or b"").decode()
                if "cursor" in key:
                    self.version += 1
                elif message.value is not None:
                    state: DetectorState = decode(message.topic, message.value)
                    # A small state stands whole behind its first byte
                    self.tallies[key.removeprefix("counting/")] = msgspec.msgpack.decode(
                        state.state[1:]
                    )
        return self.tallies

    def counts(self) -> Counter[tuple[str, str]]:
        return Counter(
            {(j, kind): n for j, tally in self.read().items() for kind, n in tally["count"].items()}
        )

    def close(self) -> None:
        self._tail.close()


@contextmanager
def saved(bus: KafkaBus) -> Iterator[Saved]:
    reader = Saved(bus)
    try:
        yield reader
    finally:
        reader.close()
