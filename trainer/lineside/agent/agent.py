"""The agent's loop: watch the ranks ten times a second, report once a second, follow plans, end in order.

One thread does everything, so that the ranks it starts (which die with the starting thread) live as long as
it does. No trouble with a probe file, a plan or Kafka ends the loop.
"""

import functools
import logging
import os
import time
from collections.abc import Callable

from lineside.agent import plans, ranks
from lineside.agent.events import MachineWatch, worker_exit
from lineside.agent.inbox import Inbox
from lineside.agent.outbox import Outbox
from lineside.agent.ranks import RankProcess
from lineside.agent.report import Reporter, declared
from lineside.agent.requests import Clerk
from lineside.agent.sender import Clock, Sender
from lineside.agent.settings import AgentSettings
from lineside.agent.spec import AgentSpec, Outcome, Reason
from lineside.agent.spool import Spool
from lineside.agent.status import AgentStatus, write_status
from lineside.agent.view import RankView
from lineside.bus import Bus
from lineside.contracts import (
    JobState,
    MemberState,
    Plan,
    PlanState,
    PlanStatus,
    Reply,
    TopicName,
)

_log = logging.getLogger("lineside.agent")

TICK_S, REPORT_S = 0.1, 1.0
_FLUSH_S = 3.0
STOPPED_CODE = 143
"""Exit code of an agent that was asked to stop (as a shell tells of SIGTERM)."""


class Agent:
    """One machine's agent. ``environment``: what its ranks inherit; ``inbox``: plans and requests."""

    def __init__(
        self,
        spec: AgentSpec,
        settings: AgentSettings,
        *,
        sending: Bus,
        inbox: Inbox,
        environment: dict[str, str],
    ) -> None:
        self._spec = spec
        self._settings = settings
        self._inbox = inbox
        self._environment = environment
        self._clock = Clock()
        spool = Spool(spec.folder / "spool", settings.spool_bytes)
        outbox = Outbox(sending.publisher(), spool)
        self._sender = Sender(spec, outbox, sending.partitions)
        self._reporter = Reporter(spec, self._sender, self._clock, settings.silent_after_s)
        self._desk = plans.Desk(spec, started_ns=time.time_ns())
        self._clerk = Clerk(spec, started_ns=time.time_ns())
        self._machine = MachineWatch(spec, settings.kernel_log)
        self._troubles: set[str] = set()
        self._watched: list[tuple[RankProcess, RankView]] = []
        self._state = MemberState.JOINING
        self._asked: Reason | None = None
        self._failed: tuple[RankProcess, float, int] | None = None
        self._ended: set[int] = set()

    def ask_to_stop(self) -> None:
        """End the ranks and the loop; safe to call from a signal handler."""
        self._asked = self._asked or Reason.ASKED

    def run(self) -> Outcome:
        """Start the ranks and watch them to their end."""
        self._report_safely(lambda: self._reporter.member([], MemberState.JOINING))
        try:
            for local_rank in range(len(self._spec.ranks)):
                self._start(local_rank)
            self._state = MemberState.RUNNING
            self._watch()
        finally:
            self._end()
        return self._outcome()

    def _start(self, local_rank: int) -> None:
        process = RankProcess(self._spec, local_rank, self._environment)
        view = RankView(self._spec.folder, process.rank, self._spec.generation)
        self._watched.append((process, view))

    def _watch(self) -> None:
        due = time.monotonic()
        while not self._is_over():
            news = self._read_mail()
            self._report_safely(self._answer_requests)
            news |= self._notice_ends()
            now = time.monotonic()
            if now >= due:
                self._report()
                due = max(due + REPORT_S, now)
            elif news or self._desk.pending:
                self._refresh()
                if news:
                    self._report_safely(lambda: self._reporter.collectives(self._watched))
            self._sender.pump()
            time.sleep(TICK_S)

    def _is_over(self) -> bool:
        if self._asked or all(process.ended for process, _ in self._watched):
            return True
        if self._failed is None:
            return False
        return time.monotonic() - self._failed[1] > self._settings.failure_grace_s

    def _end(self) -> None:
        """Stop what still runs, and say the last word."""
        self._notice_ends()
        living = [process for process, _ in self._watched if not process.ended]
        if living:
            self._state = MemberState.DRAINING
            self._report()
            self._sender.pump()
        if self._asked or self._failed or living:
            ranks.stop([process for process, _ in self._watched], self._settings.stop_grace_s)
        self._say(self._clerk.close(time.time_ns()))
        self._state = MemberState.GONE
        self._report()
        if left := self._sender.finish(_FLUSH_S):
            _log.warning("%d records could not be sent any more", left)
        for _, view in self._watched:
            view.close()
        self._inbox.close()
        self._machine.close()

    def _report(self) -> None:
        self._refresh()
        self._report_safely(lambda: self._reporter.steps(self._watched))
        self._report_safely(lambda: self._reporter.collectives(self._watched))
        self._report_safely(self._reporter.metrics)
        self._report_safely(lambda: self._reporter.member(self._watched, self._state))
        self._report_safely(self._report_machine)
        self._report_safely(lambda: write_status(self._spec.folder, self._own_status()))

    def _report_machine(self) -> None:
        boot_ns = self._clock.offset_ns()
        own = self._reporter.pids(self._watched)
        for event in self._machine.kernel_events(own, boot_ns):
            _log.warning("%s %s: %s", event.source, event.code, event.text)
            self._sender.record(TopicName.MACHINE_EVENTS, event)

    def _own_status(self) -> AgentStatus:
        return AgentStatus(
            pid=os.getpid(),
            job_id=self._spec.job_id,
            run_id=self._spec.run_id,
            generation=self._spec.generation,
            machine_id=self._spec.machine_id,
            state=self._state,
            at_ns=time.time_ns(),
            revision=self._desk.plan.revision if self._desk.plan else 0,
            waiting=self._sender.waiting(),
            ranks=self._reporter.ranks(self._watched),
        )

    def _report_safely(self, report: Callable[[], None]) -> None:
        """What cannot be reported, for whatever reason, is said once in the log; the ranks go on."""
        try:
            report()
        except Exception as error:
            trouble = f"{type(error).__name__}: {error}"
            if trouble not in self._troubles:
                self._troubles.add(trouble)
                _log.warning("a report could not be made (said once): %s", trouble)

    def _refresh(self) -> None:
        """Read the probes, and pass on what ranks have said about plans."""
        for _, view in self._watched:
            view.refresh()
        answers = {view.rank: view.status for _, view in self._watched}
        for status in self._desk.answers(answers, self._clock.offset_ns()):
            self._sender.record(TopicName.PLAN_STATUS, status)

    def _notice_ends(self) -> bool:
        """Whether a rank has ended since the last look."""
        fresh = [p for p, _ in self._watched if p.ended and p.rank not in self._ended]
        # Of those that fail together the killed one is the cause: its peers only lost a connection.
        for process in sorted(fresh, key=lambda process: process.signal < 0):
            self._ended.add(process.rank)
            _log.info("%s", process.how_it_ended())
            ended = worker_exit(self._spec, process, time.time_ns())
            self._sender.record(TopicName.MACHINE_EVENTS, ended)
            if process.failed:
                process.sweep()
                self._failed = self._failed or (process, time.monotonic(), time.time_ns())
        return bool(fresh)

    def _read_mail(self) -> bool:
        """Answer to new plans and take requests; whether there were plans."""
        news = False
        for record, refusal in self._inbox.receive():
            if isinstance(record, Plan):
                news |= self._consider(record, refusal)
            else:
                self._say(self._clerk.take(record, refusal, time.time_ns()))
        return news

    def _answer_requests(self) -> None:
        running = {process.rank: process for process, _ in self._watched}
        self._say(self._clerk.work(running, time.time_ns()))

    def _say(self, replies: list[Reply]) -> None:
        for reply in replies:
            done = "answered" if reply.ok else f"not answered: {reply.detail}"
            _log.info("request %s, rank %d: %s", reply.kind, reply.rank, done)
            self._report_safely(functools.partial(self._sender.record, TopicName.REPLIES, reply))

    def _consider(self, plan: Plan, refusal: str | None) -> bool:
        now_ns = time.time_ns()
        if refusal is not None:
            answer = self._desk.refuse(plan, refusal, now_ns)
        else:
            answer = self._desk.consider(plan, declared(self._watched), now_ns)
        if answer is None:
            return False
        if answer.state is PlanState.ACCEPTED:
            answer = self._hand_over(plan, answer)
        _log.info("plan %d: %s %s", plan.revision, answer.state, answer.detail)
        self._sender.record(TopicName.PLAN_STATUS, answer)
        return True

    def _hand_over(self, plan: Plan, answer: PlanStatus) -> PlanStatus:
        if self._desk.stop:
            self._asked = self._asked or Reason.PLAN
        try:
            plans.write_plan(self._spec.folder, plan)
        except OSError as error:
            return plans.failed(answer, str(error))
        return answer

    def _outcome(self) -> Outcome:
        if self._failed is not None:
            process, _, at_ns = self._failed
            code = process.exit_code if process.signal < 0 else 128 + process.signal
            return Outcome(
                state=JobState.FAILED,
                exit_code=code,
                at_ns=at_ns,
                rank=process.rank,
                detail=process.how_it_ended() + _quoted(process.stderr_tail()),
            )
        if self._asked and len(self._ended) < len(self._watched):
            return Outcome(
                state=JobState.STOPPED,
                exit_code=STOPPED_CODE,
                at_ns=time.time_ns(),
                reason=self._asked,
            )
        return Outcome(state=JobState.FINISHED, exit_code=0, at_ns=time.time_ns())


def _quoted(tail: str) -> str:
    return f"; its last lines:\n{tail}" if tail else ""
