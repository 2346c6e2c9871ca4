"""How much of a straggler's slowdown a new micro-batch split takes away, on the real trainer.

Starts the ranks of ``python -m lineside.hybrid``, slows one down threefold from outside, then hands all a
plan as an agent would, and compares the step times. Also says how steady the healthy compute is and how much
CPU all ranks take. Run: ``python tests/benchmarks/hybrid_rebalance.py [--seconds 12]``
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec
import numpy as np
import psutil

from lineside.contracts import Plan, PlanKind
from lineside.kit.processes import free_port, spawn, stop
from lineside.probe.reader import ProbeReader

DP, PP, MICRO_BATCHES, VICTIM = 4, 2, 20, 7


def hand_over(folder: Path, revision: int, shares: list[int]) -> None:
    plan = Plan(
        job_id="bench", run_id="bench", revision=revision, base_generation=0, base_revision=0,
        generation=0, issued_ns=0, valid_until_ns=0, kind=PlanKind.REBALANCE, micro_batch_plan=shares,
    )  # fmt: skip
    draft = folder / "plan.new"
    draft.write_bytes(msgspec.json.encode(plan))
    draft.rename(folder / "plan")


class Watch:
    """All ranks' probe files, and their processes' CPU."""

    def __init__(self, folder: Path, pids: list[int]) -> None:
        self.readers = [ProbeReader(folder / f"probe.{rank}") for rank in range(DP * PP)]
        self.processes = [psutil.Process(pid) for pid in pids]

    def finished(self) -> int:
        """Steps that rank 0 has done."""
        live = self.readers[0].live()
        return live.steps if live else 0

    def cpu_s(self) -> float:
        return sum(sum(process.cpu_times()[:2]) for process in self.processes)

    def measure(self, name: str, seconds: float) -> float:
        time.sleep(1.5)  # let what changed settle
        for reader in self.readers:
            reader.steps()
        began, cpu = time.monotonic(), self.cpu_s()
        time.sleep(seconds)
        share = (self.cpu_s() - cpu) / (time.monotonic() - began)
        rows = [reader.steps()[0] for reader in self.readers]
        step_ms = [np.median(r["step_ns"]) / 1e6 for r in rows]
        units = [r["compute_ns"] / r["micro_batches"] / 1e6 for r in rows]
        print(
            f"{name:28s} {len(rows[0]):3d} steps, step {step_ms[0]:6.1f} ms "
            f"(CV {np.std(rows[0]['step_ns']) / np.mean(rows[0]['step_ns']):.3f}), "
            f"unit {' '.join(f'{np.median(u):.1f}' for u in units)} ms, "
            f"CV {statistics.mean(float(np.std(u) / np.mean(u)) for u in units):.3f}, "
            f"CPU {share:.2f} cores; other {np.median(rows[0]['other_ns']) / 1e6:.1f} "
            f"data {np.median(rows[0]['data_ns']) / 1e6:.1f} ms"
        )
        return float(step_ms[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=12.0)
    parser.add_argument("--slowdown", type=float, default=3.0)
    parser.add_argument("--period-ms", type=float, default=40.0)
    parser.add_argument("--plan", default="6,6,6,2")
    options, trainer = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        env = dict(os.environ, WORLD_SIZE=str(DP * PP), MASTER_ADDR="127.0.0.1")
        env |= {"MASTER_PORT": str(free_port()), "LINESIDE_RUN_DIR": name}
        command = [sys.executable, "-m", "lineside.hybrid", "--dp", str(DP), "--pp", str(PP)]
        command += [
            "--seconds",
            "600",
            "--log-every",
            "0",
            "--micro-batches",
            str(MICRO_BATCHES),
            "--pad-ms",
            "10",
            *trainer,
        ]
        ranks = [spawn(command, env=env | {"RANK": str(rank)}) for rank in range(DP * PP)]
        try:
            while len(list(folder.glob("probe.*"))) < len(ranks):
                if dead := [child for child in ranks if child.poll() is not None]:
                    sys.exit(f"a rank ended with {dead[0].returncode}")
                time.sleep(0.2)
            watch = Watch(folder, [child.pid for child in ranks])
            while watch.finished() < 3:
                time.sleep(0.2)
            healthy = watch.measure("healthy", options.seconds)
            throttle = [sys.executable, "-m", "lineside.faults.throttle"]
            throttle += ["--pid", str(ranks[VICTIM].pid), "--slowdown", str(options.slowdown)]
            throttle += ["--period-ms", str(options.period_ms)]
            throttler = subprocess.Popen(throttle)
            try:
                time.sleep(0.5)
                slow = watch.measure("throttled", options.seconds)
                hand_over(folder, 1, [int(share) for share in options.plan.split(",")])
                rebalanced = watch.measure(f"throttled, {options.plan}", options.seconds)
            finally:
                throttler.terminate()
                throttler.wait()
            hand_over(folder, 2, [])
            watch.measure("recovered", options.seconds / 2)
            removed = (slow - rebalanced) / (slow - healthy)
            print(
                f"slowdown {slow / healthy:.2f} to {rebalanced / healthy:.2f}: {removed:.0%} removed"
            )
        finally:
            stop(ranks)


if __name__ == "__main__":
    main()
