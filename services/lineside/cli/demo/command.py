"""The demo's course: start everything, slow one rank from outside, watch, lift the fault, sum up."""

import importlib.util
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import psutil
import typer
from rich.console import Console

from lineside.bus import BusError
from lineside.cli.demo.measure import StepSeen, ideal_step_s, median_step_s
from lineside.cli.demo.screen import Screen, incident_table, results_table
from lineside.cli.demo.summary import culprit, step_times, time_ns, verdict
from lineside.cli.demo.watch import Watch
from lineside.cli.stack import Stack, StackConfig, StackFailed, database_in
from lineside.contracts import PlanKind
from lineside.kit.processes import spawn, stop
from lineside.remediation.policy import Mode

JOB = "demo"
MACHINES, RANKS_PER_MACHINE = 2, 4
REPLICAS, STAGES = 4, 2
WORLD = MACHINES * RANKS_PER_MACHINE
MICRO_BATCHES = 20
PAD_MS = 15
SLOWDOWN = 3.0
ENOUGH_STEPS = 50
WARM_UP_STEPS = 12

POLICY = {
    # Long enough that 50 slow steps are seen before the cure: the demo wants to measure them.
    "LINESIDE_REBALANCE_COST_S": "22",
    # Minutes in production; here nobody wants to wait for them.
    "LINESIDE_UNDO_HOLD_S": "3",
    "LINESIDE_VERIFY_STEPS": str(ENOUGH_STEPS),
}


class DemoFailed(Exception):
    """The demo did not come to its end; the text says at what and where to look."""


def demo(
    out: Annotated[
        Path, typer.Option(help="Folder for data, logs, recording and summary.json.")
    ] = Path("lineside-demo"),
    rank: Annotated[
        int | None,
        typer.Option(min=0, max=WORLD - 1, help="The rank to slow; random unless given."),
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the random choice.")] = None,
    no_fault: Annotated[
        bool, typer.Option("--no-fault", help="Break nothing; nothing must be found.")
    ] = False,
    mode: Annotated[
        Mode, typer.Option(help="auto heals the run; observe records what it would do.")
    ] = Mode.AUTO,
    bootstrap: Annotated[
        str | None, typer.Option(help="Use this Kafka (HOST:PORT) instead of starting one.")
    ] = None,
) -> None:
    """See it work: a real training run, one rank really slowed, found and healed.

    8 ranks (4 replicas x 2 pipeline stages, gloo) on two "machines" of this host. Exit code 0 only if the
    right rank was found and enough of the slowdown is gone; summary.json in --out has the numbers.

    Example: lineside demo --out /var/tmp/lineside-demo --seed 7
    """
    console = Console()
    seed = random.randrange(2**31) if seed is None else seed  # noqa: S311
    victim = random.Random(seed).randrange(WORLD) if rank is None else rank  # noqa: S311
    if importlib.util.find_spec("torch") is None:
        console.print(
            'The demo trains with PyTorch, which is not installed: pip install "lineside[torch]"'
        )
        raise typer.Exit(os.EX_UNAVAILABLE)
    out.mkdir(parents=True, exist_ok=True)
    _clear(out)
    (out / "summary.json").unlink(missing_ok=True)
    for number in (
        signal.SIGINT,
        signal.SIGTERM,
    ):  # also where SIGINT is ignored, as in background jobs
        signal.signal(number, _interrupt)
    with Screen(console) as screen:
        try:
            scene = Scene(
                out.resolve(), victim, seed, None if no_fault else SLOWDOWN, mode, bootstrap, screen
            )
            summary = scene.play()
        except (BusError, StackFailed, DemoFailed) as error:
            screen.event(str(error), "red")
            raise typer.Exit(1 if isinstance(error, DemoFailed) else os.EX_UNAVAILABLE) from error
        except KeyboardInterrupt:
            screen.event("interrupted; everything is stopped", "yellow")
            raise typer.Exit(130) from None
    (out / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    console.print(results_table(summary))
    if scene.incident is not None:
        console.print(incident_table(scene.incident))
    outcome = "[green]passed[/]" if summary["passed"] else "[red]failed[/]"
    console.print(
        f"{outcome}: {summary['verdict']} · {out / 'summary.json'} · evidence: {out / 'recording.jsonl'}",
        highlight=False,
        soft_wrap=True,
    )
    raise typer.Exit(0 if summary["passed"] else 1)


def _clear(out: Path) -> None:
    """What an earlier demo left: its records are no evidence of this one."""
    if (out / "data" / "logs").is_dir():
        shutil.rmtree(out / "data")
    for name in ("recording.jsonl", "truth.jsonl"):
        (out / name).unlink(missing_ok=True)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


class Scene:
    """One performance. ``play`` leaves no process behind, however it ends."""

    def __init__(
        self,
        out: Path,
        victim: int,
        seed: int,
        slowdown: float | None,
        mode: Mode,
        bootstrap: str | None,
        screen: Screen,
    ) -> None:
        self._out = out
        self._victim = victim
        self._seed = seed
        self._slowdown = slowdown
        self._mode = mode
        self._bootstrap = bootstrap
        self._screen = screen
        self._children: list[subprocess.Popen[bytes]] = []
        self._told: set[tuple[str, str]] = set()
        self.incident: dict[str, Any] | None = None

    def play(self) -> dict[str, Any]:
        """The whole course; returns the summary. Raises ``DemoFailed`` where it gets stuck."""
        self._screen.event(
            "starting Kafka, three detectors and remediation, each a process of its own"
        )
        data = self._out / "data"
        config = StackConfig(
            data=data,
            bootstrap=self._bootstrap,
            environment=POLICY
            | {"LINESIDE_MODE": self._mode, "LINESIDE_DATABASE_URL": database_in(data)},
        )
        with Stack(config, lambda text: self._screen.event(text, "yellow")) as self._stack:
            self._stack.wait_ready()
            self._screen.event(f"services are ready; API {self._stack.api}/docs")
            since_ns = time.time_ns()
            bus = self._stack.bus()
            self._watch = Watch(bus, self._stack.api, JOB, WORLD, since_ns)
            try:
                self._start_run()
                return self._quiet() if self._slowdown is None else self._break_and_heal()
            finally:
                stop(reversed(self._children), grace_s=15)
                self._watch.close()

    def _start_run(self) -> None:
        self._run = self._child(
            "run", "lineside.cli", "run", "--job", JOB, "--machines", str(MACHINES),
            "--ranks-per-machine", str(RANKS_PER_MACHINE), "--bootstrap", self._stack.bootstrap,
            "--run-dir", str(self._out / "run"), "--",
            sys.executable, "-m", "lineside.hybrid", "--dp", str(REPLICAS), "--pp", str(STAGES),
            "--micro-batches", str(MICRO_BATCHES), "--pad-ms", str(PAD_MS), "--seconds", "3600",
        )  # fmt: skip
        self._child(
            "record", "lineside.cli", "record", "--follow", "--job", JOB,
            "--bootstrap", self._stack.bootstrap, "-o", str(self._out / "recording.jsonl"),
        )  # fmt: skip
        self._screen.event(f"{WORLD} ranks on {MACHINES} machines are starting")
        self._until(self._watch.running, 90, "the run to start")
        self._screen.event(
            f"training: {REPLICAS} replicas x {STAGES} pipeline stages, {MICRO_BATCHES} micro-batches a "
            f"step; compute is padded: each holds an emulated accelerator for {3 * PAD_MS} ms"
        )

    def _quiet(self) -> dict[str, Any]:
        self._until(lambda: len(self._healthy()) >= 3 * ENOUGH_STEPS, 90, "150 undisturbed steps")
        self._screen.event("150 undisturbed steps; looking for anything that was raised")
        found = [fault.summary for fault in self._watch.faults] + list(self._watch.incidents())
        return {
            "seed": self._seed,
            "mode": self._mode,
            "healthy_step_s": median_step_s(self._healthy()),
            "steps": {"healthy": len(self._healthy())},
            "faults": len(self._watch.faults),
            "passed": not found,
            "verdict": "nothing was raised" if not found else f"raised without a fault: {found[0]}",
        }

    def _break_and_heal(self) -> dict[str, Any]:
        watch, victim = self._watch, self._victim
        self._until(lambda: len(self._healthy()) >= ENOUGH_STEPS, 60, "50 undisturbed steps")
        healthy = self._healthy()
        share = self._cpu_share()
        self._screen.event(
            f"healthy: {_ms(healthy)} a step; all ranks together use {share:.0%} of the CPU"
        )
        throttle = self._child(
            "throttle", "lineside.faults.throttle", "--pid", str(watch.pids[victim]), "--rank", str(victim),
            "--slowdown", str(self._slowdown), "--truth", str(self._out / "truth.jsonl"),
        )  # fmt: skip
        broken_ns = time.time_ns()
        self._screen.event(
            f"rank {victim} (seed {self._seed}) is now slowed about {self._slowdown:g}x from outside",
            "red",
        )
        self._until(lambda: bool(watch.faults), 60, "FALCON to find it")
        onset = watch.faults[0]
        self._screen.event(f"FALCON: {onset.summary}", "magenta")
        self._until(lambda: bool(watch.incidents()), 30, "an incident")
        incident_id = watch.incidents()[0]["incident_id"]
        self._screen.event(f"incident {incident_id} is open")
        if self._mode is Mode.AUTO:
            revision = self._wait_for_cure()
        else:
            revision = None
            self._until(
                lambda: self._incident(incident_id)["plans"] != [], 120, "the proposed plan"
            )
            self._until(lambda: len(self._during(broken_ns)) >= ENOUGH_STEPS, 60, "50 slow steps")
        lifted_ns = time.time_ns()
        applied = watch.applied(revision) if revision is not None else None
        applied_ns = max(status.at_ns for status in applied) if applied else -1
        faulty = [
            seen for seen in watch.steps.steps(broken_ns, lifted_ns) if seen.revision != revision
        ][2:]
        healed = (
            watch.steps.steps(broken_ns, lifted_ns, revision)[2:] if revision is not None else []
        )
        stop([throttle])
        self._screen.event("the fault is lifted", "green")
        self._until(
            lambda: self._incident(incident_id)["state"] == "resolved",
            90,
            "the incident to resolve",
        )
        self._screen.event("the incident is resolved", "green")
        if revision is not None:
            self._until(self._even_again, 30, "the even split")
            self._screen.event("the even split is back")
        incident = self._incident(incident_id)
        ideal_s = ideal_step_s(
            watch.steps,
            healthy,
            faulty,
            victim=victim,
            victim_replica=victim // STAGES,
            even=[MICRO_BATCHES // REPLICAS] * REPLICAS,
        )
        times = {
            "broken_ns": broken_ns,
            "onset_ns": onset.onset_ns,
            "detected_ns": onset.detected_ns,
            "applied_ns": applied_ns,
            "resolved_ns": time_ns(incident["resolved_at"]),
        }
        summary = {
            "seed": self._seed,
            "mode": self._mode,
            "victim": victim,
            "culprit": culprit(onset),
        }
        summary |= step_times(healthy, faulty, healed, ideal_s) | times
        summary |= {"incident_id": incident_id, "incidents": len(watch.incidents())}
        return summary | verdict(summary, self._mode, plans=len(watch.plans))

    def _wait_for_cure(self) -> int:
        """Until all ranks run the plan, 50 healed steps are measured and the incident is mitigated."""
        watch = self._watch

        def cures() -> list[int]:
            return [r for r, plan in watch.plans.items() if plan.kind is PlanKind.REBALANCE]

        self._until(lambda: bool(cures()), 120, "a plan")
        revision = cures()[0]
        plan = watch.plans[revision]
        self._screen.event(f"plan {revision}: micro-batches {plan.micro_batch_plan}", "cyan")
        self._until(lambda: watch.applied(revision) is not None, 30, "all ranks to apply the plan")
        self._screen.event("the plan is applied by every rank at one step")
        self._until(
            lambda: len(watch.steps.steps(revision=revision)) >= ENOUGH_STEPS + 2,
            60,
            "50 healed steps",
        )
        incident_id = plan.incident_id or ""
        self._until(
            lambda: self._incident(incident_id)["state"] == "mitigated",
            60,
            "the effect to be verified",
        )
        self._screen.event(
            "mitigated, with the effect measured, while the rank is still slowed", "green"
        )
        return revision

    def _child(self, name: str, module: str, *arguments: str) -> subprocess.Popen[bytes]:
        child = spawn(
            [sys.executable, "-m", module, *arguments], log=self._stack.logs / f"{name}.log"
        )
        self._children.append(child)
        return child

    def _until(self, condition: Callable[[], bool], limit_s: float, what: str) -> None:
        """Keep everything going until ``condition`` holds. Raises ``DemoFailed``."""
        deadline = time.monotonic() + limit_s
        while True:
            self._stack.supervise()
            self._watch.poll()
            self._show(what)
            if condition():
                return
            if self._run.poll() is not None:
                log = self._stack.logs / "run.log"
                said = "\n".join(log.read_text(errors="replace").splitlines()[-5:])
                raise DemoFailed(f"the run ended by itself; the end of {log}:\n{said}")
            if time.monotonic() > deadline:
                raise DemoFailed(
                    f"waited {limit_s:.0f} s for {what}; logs are in {self._stack.logs}"
                )

    def _show(self, waiting_for: str) -> None:
        times = [seen.step_s for seen in self._watch.steps.steps()]
        health = self._watch.health
        now = f"step {len(times)} · {1000 * times[-1]:.0f} ms" if times else "no step yet"
        state = f" · {health.state}" if health else ""
        self._screen.status(f"{now}{state} · waiting for {waiting_for}", times)

    def _healthy(self) -> list[StepSeen]:
        return self._watch.steps.steps()[WARM_UP_STEPS:]

    def _during(self, broken_ns: int) -> list[StepSeen]:
        return self._watch.steps.steps(broken_ns)

    def _incident(self, incident_id: str) -> dict[str, Any]:
        self.incident = (
            self._watch.incident(incident_id) or self.incident or {"state": "", "plans": []}
        )
        return self.incident

    def _even_again(self) -> bool:
        newest = max(self._watch.plans)
        plan = self._watch.plans[newest]
        return plan.kind is PlanKind.BASELINE and self._watch.applied(newest) is not None

    def _cpu_share(self) -> float:
        """What part of this machine's CPU the ranks use, over two seconds."""
        ranks = [psutil.Process(pid) for pid in self._watch.pids.values()]
        used_s = -sum(sum(process.cpu_times()[:2]) for process in ranks)
        began = time.monotonic()
        self._until(lambda: time.monotonic() - began >= 2, 30, "the ranks' CPU share")
        used_s += sum(sum(process.cpu_times()[:2]) for process in ranks)
        return float(used_s / (time.monotonic() - began) / (psutil.cpu_count() or 1))


def _ms(steps: list[StepSeen]) -> str:
    return f"{1000 * median_step_s(steps):.0f} ms"
