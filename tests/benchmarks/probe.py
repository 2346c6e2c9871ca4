"""What the probe costs the training loop, in CPU time: the bar is 10 us per step and per phase change.

Each number is the best of seven tries of the loop with the probe minus the same loop without it, both in this
run. Run: ``python -m tests.benchmarks.probe``
"""

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from lineside.probe import Probe

BAR_US = 10.0
STEP_MS = 50.0
TRIES, ROUNDS = 7, 10_000
MICRO_BATCHES = 4

Loop = Callable[[int], None]


def best_us(loop: Loop, rounds: int = ROUNDS) -> float:
    """CPU time of one round in microseconds."""
    times = []
    for _ in range(TRIES):
        began = time.process_time()
        loop(rounds)
        times.append(time.process_time() - began)
    return min(times) / rounds * 1e6


def bare(rounds: int) -> None:
    for _ in range(rounds):
        pass


def loops(probe: Probe) -> dict[str, tuple[Loop, int]]:
    """By what is measured: a loop, and how many such events one round of it holds."""

    def steps(rounds: int) -> None:
        for step in range(rounds):
            with probe.step(step, micro_batches=MICRO_BATCHES, tokens=4096) as s:
                s.loss = 1.0

    def phases(rounds: int) -> None:
        with probe.step(0):
            for _ in range(rounds):
                with probe.phase("compute"):
                    pass

    def collectives(rounds: int) -> None:
        for _ in range(rounds):
            with probe.collective("dp:0123456789abcdef", "all_reduce", 4096):
                pass

    def plans(rounds: int) -> None:
        for _ in range(rounds):
            probe.plan()

    return {
        "step": (steps, 1),
        "phase change": (phases, 2),
        "collective (enqueued to completed)": (collectives, 1),
        "look for a plan": (plans, 1),
    }


def work(rounds: int, probe: Probe) -> None:
    """A loop as people write it: per step 4 micro-batches of compute and wait, an all-reduce, a plan."""
    for step in range(rounds):
        with probe.step(step, micro_batches=MICRO_BATCHES) as s:
            for _ in range(MICRO_BATCHES):
                with probe.phase("wait"):
                    pass
                with probe.phase("compute"):
                    pass
            with probe.phase("comm"), probe.collective("dp:0123456789abcdef", "all_reduce", 4096):
                pass
            s.loss = 1.0
        probe.plan()


def plain_work(rounds: int) -> None:
    for _ in range(rounds):
        for _ in range(MICRO_BATCHES):
            pass


def main() -> int:
    """Prints each cost beside its bar; 1 where a bar is broken."""
    broken = 0
    with tempfile.TemporaryDirectory() as folder:
        probe = Probe.create(Path(folder), 0)
        empty = best_us(bare)
        for name, (loop, events) in loops(probe).items():
            cost = (best_us(loop) - empty) / events
            bar = f"bar {BAR_US:g} us" if name in ("step", "phase change") else "no bar"
            broken += "no bar" not in bar and cost > BAR_US
            share = cost / (STEP_MS * 1000)
            print(
                f"probe: {name:36s} {cost:6.2f} us  ({bar}; {share:.4%} of a {STEP_MS:g} ms step)"
            )
        whole = best_us(lambda rounds: work(rounds, probe), 2000)
        plain = best_us(plain_work, 2000)
        share = (whole - plain) / (STEP_MS * 1000)
        print(
            f"probe: {'a whole step, 18 phase changes':36s} {whole:6.2f} us against {plain:.2f} us "
            f"without the probe: {share:.3%} of a {STEP_MS:g} ms step"
        )
    return int(broken > 0)


if __name__ == "__main__":
    sys.exit(main())
