"""Starts a run's agents, watches them, and alone writes its Job: starting, running, then how it ended.

    launcher = launch(RunSpec(...), bus)
    while launcher.poll() is None:
        time.sleep(0.1)
    print(launcher.end.exit_code)

Agents die with the thread that started them; call everything from that thread.
"""

import logging
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from contextlib import suppress
from pathlib import Path

import msgspec
import psutil

from lineside.agent.job import RunSpec, running_job, starting_job
from lineside.agent.spec import AgentSpec, Outcome, Reason
from lineside.bus import Bus, BusError
from lineside.contracts import (
    TOPICS,
    ContractError,
    Declaration,
    Job,
    JobState,
    Member,
    MemberState,
    TopicName,
    decode,
    encode,
)
from lineside.kit import processes

_log = logging.getLogger("lineside.launcher")

_HOST = "127.0.0.1"
_DECLARE_S = 30.0
"""How long after its agents run a job may stay without a declaration before it counts as running: a script
without a probe never makes one."""
_OTHERS_S = 3.0
"""After one agent has ended badly the others may still say what they saw."""
_FLUSH_S = 10.0
STOPPED_BY_PLAN = 3


class RunEnd(msgspec.Struct, frozen=True, kw_only=True):
    """How a run ended. ``exit_code`` is what ``lineside run`` returns."""

    state: JobState
    exit_code: int
    machine_id: str = ""
    rank: int = -1
    detail: str = ""


def launch(spec: RunSpec, bus: Bus) -> "Launcher":
    """Start a run. Raises ``BusUnavailable`` without Kafka and ``BusMisuse`` where its topics are wrong."""
    launcher = Launcher(spec, bus)
    launcher.start()
    return launcher


class Launcher:
    """One run. ``job`` is the record as last written; ``end`` is None until the run is over."""

    def __init__(self, spec: RunSpec, bus: Bus) -> None:
        self.spec = spec
        self.run_id = str(uuid.uuid4())
        self.end: RunEnd | None = None
        self.job = starting_job(spec, self.run_id, socket.gethostname(), time.time_ns())
        self._bus = bus
        self._agents: dict[str, subprocess.Popen[bytes]] = {}
        self._members: dict[str, Member] = {}
        self._asked: int | None = None
        self._ended_badly_s: float | None = None
        self._all_running_s: float | None = None
        self._told: set[str] = set()

    def start(self) -> None:
        """Make sure of the topics, write the Job, start the agents."""
        admin = self._bus.admin()
        admin.ensure_topics(tuple(TOPICS.values()))
        admin.close()
        self._publisher = self._bus.publisher()
        self._tail = self._bus.tail([TopicName.MEMBERS], self.spec.job_id)
        self._write(self.job)
        port = processes.free_port(_HOST)
        try:
            for index, machine_id in enumerate(self.spec.machine_ids()):
                self._agents[machine_id] = self._spawn(index, machine_id, port)
        except BaseException:
            self.kill()
            raise

    def folder(self, machine_id: str) -> Path:
        """The run folder that a machine's agent and ranks share, with their logs."""
        return Path(self.spec.run_dir) / machine_id

    def poll(self) -> RunEnd | None:
        """Take in what has happened; how the run ended, or None. Never blocks for long."""
        if self.end is not None:
            return self.end
        self._read_members()
        self._write_if_new()
        self._publisher.poll()
        codes = {machine: agent.poll() for machine, agent in self._agents.items()}
        if None not in codes.values():
            return self._finish()
        if any(codes.values()):
            self._ended_badly_s = self._ended_badly_s or time.monotonic()
            if time.monotonic() - self._ended_badly_s > _OTHERS_S:
                self._terminate()
        return None

    def stop(self, code: int = 128 + signal.SIGINT) -> None:
        """Ask all agents to end; go on polling until the run has ended. ``code`` is then its exit code."""
        self._asked = self._asked or code
        self._terminate()

    def kill(self) -> None:
        """End every process of the run at once."""
        self._asked = self._asked or 128 + signal.SIGKILL
        victims = []
        for agent in self._agents.values():
            with suppress(psutil.Error):
                victims += psutil.Process(agent.pid).children(recursive=True)
            agent.kill()
        for victim in victims:
            with suppress(psutil.Error):
                victim.kill()
        for agent in self._agents.values():
            agent.wait()

    def _spawn(self, index: int, machine_id: str, port: int) -> subprocess.Popen[bytes]:
        folder = self.folder(machine_id).resolve()
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        _clear(folder)
        spec = AgentSpec(
            job_id=self.spec.job_id,
            run_id=self.run_id,
            generation=self.job.generation,
            machine_id=machine_id,
            ranks=self.spec.ranks(index),
            world_size=self.spec.world_size,
            master_addr=_HOST,
            master_port=port,
            command=self.spec.command,
            run_dir=str(folder),
            shares_host=self.spec.machines > 1,
        )
        path = folder / "agent.json"
        path.write_bytes(msgspec.json.encode(spec))
        environment = os.environ | self.spec.environment | {"LINESIDE_AGENT_SPEC": str(path)}
        return processes.spawn(
            [sys.executable, "-m", "lineside.agent"], env=environment, log=folder / "agent.log"
        )

    def _terminate(self) -> None:
        for agent in self._agents.values():
            if agent.poll() is None:
                agent.terminate()

    def _read_members(self) -> None:
        try:
            messages = self._tail.receive(100, 0.0)
        except BusError as error:
            _log.warning("members: %s", error)
            return
        for message in messages:
            if message.value is None:
                continue
            try:
                member = decode(TopicName.MEMBERS, message.value, message.headers)
            except ContractError as error:
                _log.warning("members: %s", error)
                continue
            if member.run_id == self.run_id:
                self._members[member.machine_id] = member

    def _write_if_new(self) -> None:
        """The Job as running, once the trainers have declared themselves or had the time to."""
        if self.job.state not in (JobState.STARTING, JobState.RUNNING):
            return
        members = [self._members.get(machine) for machine in self.spec.machine_ids()]
        present = [m for m in members if m is not None and m.state is MemberState.RUNNING]
        if len(present) < len(members):
            return
        self._all_running_s = self._all_running_s or time.monotonic()
        declared: dict[str, Declaration | None] = {m.machine_id: m.declared for m in present}
        patient = time.monotonic() - self._all_running_s < _DECLARE_S
        if self.job.state is JobState.STARTING and None in declared.values() and patient:
            return
        job, problems = running_job(self.job, declared, self.spec.world_size)
        for problem in set(problems) - self._told:
            self._told.add(problem)
            _log.warning("%s", problem)
        if job != self.job:
            self._tell(job)

    def _finish(self) -> RunEnd:
        end = self._how_it_ended()
        self._tell(msgspec.structs.replace(self.job, state=end.state))
        if left := self._publisher.flush(_FLUSH_S):
            _log.warning("the job's end could not be told: %d records are not sent", left)
        self._publisher.close()
        self._tail.close()
        self.end = end
        return end

    def _how_it_ended(self) -> RunEnd:
        outcomes = {machine: self._outcome(machine) for machine in self._agents}
        failed = {m: o for m, o in outcomes.items() if o.state is JobState.FAILED}
        if self._asked is not None and all(outcome.rank < 0 for outcome in failed.values()):
            return RunEnd(state=JobState.STOPPED, exit_code=self._asked, detail="stopped")
        if failed:  # the first failure; later ones are mostly its victims
            machine = min(failed, key=lambda m: failed[m].at_ns)
            first = failed[machine]
            return RunEnd(
                state=JobState.FAILED,
                exit_code=first.exit_code,
                machine_id=machine,
                rank=first.rank,
                detail=first.detail,
            )
        if any(outcome.reason is Reason.PLAN for outcome in outcomes.values()):
            return RunEnd(
                state=JobState.STOPPED, exit_code=STOPPED_BY_PLAN, detail="stopped by a plan"
            )
        if any(outcome.state is JobState.STOPPED for outcome in outcomes.values()):
            return RunEnd(
                state=JobState.STOPPED,
                exit_code=128 + signal.SIGTERM,
                detail="an agent was stopped",
            )
        return RunEnd(state=JobState.FINISHED, exit_code=0)

    def _outcome(self, machine_id: str) -> Outcome:
        """What an agent left; one that left nothing has died."""
        code = self._agents[machine_id].returncode
        try:
            left = (self.folder(machine_id) / "outcome.json").read_bytes()
            return msgspec.json.decode(left, type=Outcome)
        except (OSError, msgspec.MsgspecError):
            log = self.folder(machine_id) / "agent.log"
            return Outcome(
                state=JobState.FAILED,
                exit_code=1,
                at_ns=time.time_ns(),
                detail=f"the agent of {machine_id} died ({processes.ending(code)}); see {log}",
            )

    def _tell(self, job: Job) -> None:
        """As ``_write``; a Job that cannot be written (too large) does not end the run."""
        try:
            self._write(job)
        except BusError as error:
            _log.warning("the Job could not be written: %s", error)
            self.job = job

    def _write(self, job: Job) -> None:
        self._publisher.publish(encode(TopicName.JOBS, job, self._bus.partitions))
        self.job = job


def _clear(folder: Path) -> None:
    """Take away what an earlier run left in its folder: its plan must not be followed again."""
    for pattern in ("probe.*", "plan", "*.json", "rank-*", "agent.log", "spool/*.spool"):
        for path in folder.glob(pattern):
            path.unlink()
