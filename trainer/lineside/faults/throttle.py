"""Make a running process slower from outside: stop it for a part of the time (SIGSTOP, SIGCONT).

It needs no privilege and no cgroup, and the process cannot tell: its compute takes longer, as behind a
throttled accelerator. The stops are paid back in arrears: each one is as long as the run before it really
was, times ``slowdown - 1``, plus what earlier stops owe, so the share holds on a machine whose sleeps are
late. Run it as ``python -m lineside.faults.throttle --pid PID --slowdown 3 --seconds 20``.
"""

import argparse
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from lineside.faults.guard import resumed_at_the_end
from lineside.faults.target import NoTarget, Target
from lineside.faults.truth import Truth, TruthFile

PERIOD_MS = 40.0
"""Long against the milliseconds by which a sleep is late, short against a step: peers wait out a stop at each
collective. Threefold is asked for; the reference trainer's compute really takes 2.7 times as long."""


def duty_cycle(
    target: Target, slowdown: float, period_s: float, over: Callable[[], bool]
) -> float | None:
    """Stop and resume ``target`` until ``over()``. Returns the slowdown reached: all time by running time."""
    run_s = period_s / slowdown
    running = stopped = owed = 0.0
    mark = time.perf_counter()
    while target.alive and not over():
        time.sleep(run_s)
        target.stop()
        now = time.perf_counter()
        running += now - mark
        owed += (now - mark) * (slowdown - 1.0)
        mark = now
        # However late this process is itself: a stop of seconds would be another fault, a hang.
        time.sleep(min(max(owed, 0.0), 2 * period_s))
        target.resume()
        now = time.perf_counter()
        stopped += now - mark
        owed -= now - mark
        mark = now
    return 1.0 + stopped / running if running else None


def throttle(
    pid: int,
    slowdown: float,
    *,
    seconds: float | None = None,
    period_ms: float = PERIOD_MS,
    rank: int = -1,
    truth: Path | None = None,
) -> Truth:
    """Slow ``pid`` down by ``slowdown`` for ``seconds`` (None: until SIGTERM, SIGINT or its own end).

    Always leaves the process running. Raises NoTarget for a process that is not ours, ValueError for a
    slowdown that is none. For a main thread: it takes SIGTERM and SIGINT for the time.
    """
    if slowdown <= 1.0:
        raise ValueError(f"a slowdown of {slowdown} is none")
    target = Target(pid)
    asked: list[int] = []
    until = None if seconds is None else time.monotonic() + seconds

    def over() -> bool:
        return bool(asked) or (until is not None and time.monotonic() >= until)

    before = {
        number: signal.signal(number, lambda number, frame: asked.append(number))
        for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        file = TruthFile(truth)
        with resumed_at_the_end(target):
            onset = file.onset("slow_compute", pid, rank, slowdown)
            measured = duty_cycle(target, slowdown, period_ms / 1e3, over)
        return file.end(onset, measured)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m lineside.faults.throttle", description="Slow a process down from outside."
    )
    add = parser.add_argument
    add("--pid", type=int, required=True)
    add("--slowdown", type=float, default=3.0, help="3: a third of its speed")
    add("--period-ms", type=float, default=PERIOD_MS, help="one stop and one run together")
    add("--seconds", type=float, help="how long; without it until SIGTERM or Ctrl-C")
    add("--rank", type=int, default=-1, help="only written into the truth")
    add("--truth", type=Path, help="file that JSON lines are appended to")
    options = parser.parse_args()
    try:
        throttle(
            options.pid,
            options.slowdown,
            seconds=options.seconds,
            period_ms=options.period_ms,
            rank=options.rank,
            truth=options.truth,
        )
    except (NoTarget, ValueError) as reason:
        sys.exit(f"lineside.faults.throttle: {reason}")


if __name__ == "__main__":
    main()
