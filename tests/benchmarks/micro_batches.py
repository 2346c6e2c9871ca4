"""CPU time of the micro-batch planner against its bar: ``python tests/benchmarks/micro_batches.py``."""

import sys
from time import process_time

import numpy as np

from lineside.remediation.plans.micro_batches import plan_micro_batches

BAR_MS = 2.0
REPEATS = 15


def main() -> int:
    rng = np.random.default_rng(0)
    worst = 0.0
    print(
        f"bar: {BAR_MS} ms CPU, best of {REPEATS}; 1/32 of the replicas are 1.3 to 2.5 times slow"
    )
    for replicas, total in ((8, 64), (64, 1024), (512, 8192), (512, 16384), (512, 32768)):
        unit_s = rng.uniform(0.95, 1.05, replicas)
        slow = rng.choice(replicas, max(1, replicas // 32), replace=False)
        unit_s[slow] *= rng.uniform(1.3, 2.5, len(slow))
        current = [total // replicas] * replicas
        best = float("inf")
        for _ in range(REPEATS):
            start = process_time()
            plan = plan_micro_batches(
                unit_s=unit_s.tolist(), fixed_s=[0.0] * replicas, total=total, current=current
            )
            best = min(best, process_time() - start)
        worst = max(worst, best)
        even = float((unit_s * current).max())
        print(
            f"{replicas:4} replicas, B={total:6}: {best * 1e3:6.3f} ms (bar {BAR_MS} ms), "
            f"slowest replica {even:.2f} -> {plan.step_s:.2f} s, {plan.moved} moved"
        )
    return int(worst * 1e3 > BAR_MS)


if __name__ == "__main__":
    sys.exit(main())
