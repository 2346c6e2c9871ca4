"""What the stream shell costs: ``python tests/benchmarks/stream_worker.py``.

One real worker process with a detector that does nothing, on a real Kafka, reads StepBatch messages of
eight ranks over four partitions: first live (the group delivers), then as a backlog that is replayed at a
start. CPU time is the worker's own, all threads; on a shared machine it is steadier than the rate.
"""

import json
import os
import signal
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import psutil

from lineside.bus.kafka import KafkaBus
from lineside.bus.local import LocalKafka
from lineside.contracts import (
    TOPICS,
    Decoded,
    StepBatch,
    TopicName,
    encode,
    pack,
    partition_of,
)
from lineside.contracts.columns import column_specs
from lineside.kit import processes
from lineside.stream import Finding, Processor, StreamSettings
from lineside.stream.app import run

PARTITIONS = 4
MESSAGES = 16_000
RANKS = 8
BAR_US = 700.0
"""CPU per message: 1,280 machines a second must leave the detector something of a core."""


class Nothing:
    """A detector that costs nothing."""

    def observe(self, record: Decoded, now_ns: int) -> list[Finding]:
        return []

    def snapshot(self) -> bytes:
        return b""

    def restore(self, state: bytes) -> None:
        """There is no state."""


class Load:
    """Messages for one job on each partition."""

    def __init__(self, bus: KafkaBus) -> None:
        self._bus, self._publisher = bus, bus.publisher()
        names = (f"job-{n}" for n in range(10_000))
        jobs = {partition_of(name, PARTITIONS): name for name in names}
        self._wires = [
            encode(TopicName.STEPS, _batch(job_id), PARTITIONS) for job_id in jobs.values()
        ]

    def send(self, count: int) -> None:
        for n in range(count):
            self._publisher.publish(self._wires[n % len(self._wires)])
        assert self._publisher.flush(60) == 0


def _batch(job_id: str) -> StepBatch:
    values: dict[str, Any] = {name: [0] * RANKS for name in column_specs(StepBatch)}
    values |= dict(job_id=job_id, run_id="r", generation=0, machine_id="m", incarnation="i")
    values |= dict(sequence=0, dropped=0, sent_ns=0, clock_offset_ns=-1, clock_error_ns=-1)
    return pack(StepBatch, values | dict(rank=list(range(RANKS))))


class Running:
    """The worker process, asked over HTTP."""

    def __init__(self, bus: KafkaBus, log: Path) -> None:
        env = {
            "LINESIDE_BOOTSTRAP": bus.bootstrap,
            "LINESIDE_PARTITIONS": str(PARTITIONS),
            "LINESIDE_SNAPSHOT_INTERVAL_S": "1",
        }
        self.began_s = time.monotonic()
        command = [sys.executable, __file__, "worker"]
        self.process = processes.spawn(command, env=os.environ | env, log=log)
        while "http://" not in log.read_text():
            time.sleep(0.05)
        self._url = log.read_text().rsplit("http://", 1)[1].split()[0]

    def applied(self) -> int:
        try:
            with urllib.request.urlopen(f"http://{self._url}/readyz") as answer:
                return int(json.load(answer)["records_applied"])
        except urllib.error.HTTPError as error:
            with error:
                return int(json.load(error).get("records_applied", 0))

    def until(self, count: int) -> float:
        """Seconds since the start when ``count`` records are applied."""
        while self.applied() < count:
            time.sleep(0.05)
        return time.monotonic() - self.began_s

    def cpu_s(self) -> float:
        times = psutil.Process(self.process.pid).cpu_times()
        return float(times.user + times.system)


def main() -> int:
    with LocalKafka() as kafka, tempfile.TemporaryDirectory() as folder:
        bus = KafkaBus(kafka.bootstrap, partitions=PARTITIONS)
        bus.admin().ensure_topics(tuple(TOPICS.values()))
        load = Load(bus)
        load.send(PARTITIONS)
        worker = Running(bus, Path(folder) / "live.log")
        worker.until(PARTITIONS)
        time.sleep(5)  # the group has settled
        before_s, began_s = worker.cpu_s(), time.monotonic()
        load.send(MESSAGES)
        worker.until(MESSAGES + PARTITIONS)
        took_s, live_us = time.monotonic() - began_s, (worker.cpu_s() - before_s) / MESSAGES * 1e6
        print(
            f"live: {MESSAGES / took_s:,.0f} messages/s, {live_us:.0f} us CPU each (bar {BAR_US})"
        )
        for how in (signal.SIGTERM, signal.SIGKILL):
            time.sleep(2)
            worker.process.send_signal(how)
            worker.process.wait()
            load.send(200)
            worker = Running(bus, Path(folder) / f"{how.name}.log")
            print(
                f"after {how.name}: 200 records caught up {worker.until(200):.1f} s after the start"
            )
        time.sleep(2)
        processes.stop([worker.process])
        load.send(MESSAGES)
        worker = Running(bus, Path(folder) / "replay.log")
        first_s = worker.until(1)
        replay_s = worker.until(MESSAGES) - first_s
        print(f"replay: {MESSAGES / replay_s:,.0f} messages/s, first after {first_s:.1f} s")
        processes.stop([worker.process])
    return int(live_us > BAR_US)


if __name__ == "__main__":
    if sys.argv[1:] == ["worker"]:
        inputs = (TopicName.JOBS, TopicName.STEPS)
        run(Processor(name="nothing", inputs=inputs, make=lambda _: Nothing()), StreamSettings())
    sys.exit(main())
