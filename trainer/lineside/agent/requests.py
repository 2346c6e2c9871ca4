"""Requests for evidence as the agent sees them: which ones it answers, which it refuses and why.

``Clerk`` keeps the queue and knows no kind of evidence itself: those stand in ``evidence.KINDS``. The work
is done by short child processes that are looked at from the agent's loop, so that no request ever stops the
loop, and a rank that hangs can still be looked into.
"""

from collections import OrderedDict, deque
from collections.abc import Mapping
from typing import Any, NamedTuple

from lineside.agent.evidence import KINDS, CannotAnswer, Work
from lineside.agent.ranks import RankProcess
from lineside.agent.spec import AgentSpec
from lineside.contracts import Reply, Request

_REMEMBERED = 10_000
_QUEUE = 256
"""Ranks' answers that may wait here; a machine has some eight ranks."""


class _Wanted(NamedTuple):
    request: Request
    rank: int


class Clerk:
    """Requests of one generation in, replies out. ``started_ns``: Unix time at which the agent began."""

    def __init__(self, spec: AgentSpec, started_ns: int) -> None:
        self._spec = spec
        self._started_ns = started_ns
        self._seen: OrderedDict[str, None] = OrderedDict()
        self._queue: deque[_Wanted] = deque()
        self._working: list[tuple[_Wanted, Work]] = []
        self._last_ns: dict[tuple[str, int], int] = {}

    def take(self, request: Request, refusal: str | None, now_ns: int) -> list[Reply]:
        """Put a request in the queue; what is to be said at once (a refusal), each request once."""
        if request.run_id != self._spec.run_id or request.request_id in self._seen:
            return []
        if request.expires_ns < self._started_ns:
            return []  # of the time before this agent: answered by the one before, or by nobody
        mine = [r for r in self._spec.ranks if not request.ranks or r in request.ranks]
        if not mine:
            return []
        if refusal is None:  # a forged record must not keep the real one from being answered
            self._remember(request.request_id)
        refusal = refusal or self._refusal(request, len(mine), now_ns)
        if refusal is not None:
            return [self._reply(request, -1, now_ns, refusal)]
        self._queue += [_Wanted(request, rank) for rank in mine]
        return []

    def work(self, processes: Mapping[int, RankProcess], now_ns: int) -> list[Reply]:
        """Look after what is being done, and begin what may be begun. ``processes``: by rank."""
        replies = []
        for wanted, work in list(self._working):
            try:
                if (result := work.result()) is None:
                    continue
                replies.append(self._reply(*wanted, now_ns, "", result))
            except CannotAnswer as error:
                replies.append(self._reply(*wanted, now_ns, str(error)))
            self._working.remove((wanted, work))
        while self._queue and self._may_begin(self._queue[0]):
            wanted = self._queue.popleft()
            try:
                self._begin(wanted, processes, now_ns)
            except CannotAnswer as error:
                replies.append(self._reply(*wanted, now_ns, str(error)))
        return replies

    def close(self, now_ns: int) -> list[Reply]:
        """End what is being done; those who wait are told."""
        for _, work in self._working:
            work.close()
        waiting = [*(wanted for wanted, _ in self._working), *self._queue]
        self._working, self._queue = [], deque()
        return [self._reply(*wanted, now_ns, "the agent ends") for wanted in waiting]

    @property
    def busy(self) -> bool:
        return bool(self._working or self._queue)

    def _remember(self, request_id: str) -> None:
        self._seen[request_id] = None
        while len(self._seen) > _REMEMBERED:
            self._seen.popitem(last=False)

    def _refusal(self, request: Request, answers: int, now_ns: int) -> str | None:
        if request.generation != self._spec.generation:
            return f"this is generation {self._spec.generation}, not {request.generation}"
        if request.kind not in KINDS:
            return f"this agent cannot answer {request.kind!r}; it can answer {', '.join(KINDS)}"
        if now_ns > request.expires_ns:
            return f"it expired {(now_ns - request.expires_ns) / 1e9:.1f} s ago"
        if len(self._queue) + answers > _QUEUE:
            return f"{len(self._queue)} answers are waited for already"
        return None

    def _may_begin(self, wanted: _Wanted) -> bool:
        """Those of one kind run side by side, as many as the kind allows; kinds one after the other."""
        working = [one.request.kind for one, _ in self._working]
        kind = wanted.request.kind
        return set(working) <= {kind} and len(working) < KINDS[kind].at_once

    def _begin(self, wanted: _Wanted, processes: Mapping[int, RankProcess], now_ns: int) -> None:
        request, rank = wanted
        kind, process = KINDS[request.kind], processes.get(rank)
        if now_ns > request.expires_ns:
            raise CannotAnswer("it expired while it waited")
        if process is None or process.ended:
            raise CannotAnswer(f"rank {rank} does not run")
        last_ns = self._last_ns.get((request.kind, rank))
        if last_ns is not None and now_ns - last_ns < kind.pause_s * 1e9:
            raise CannotAnswer(f"rank {rank} was asked for {request.kind} a moment ago")
        self._last_ns[request.kind, rank] = now_ns
        self._working.append((wanted, kind.begin(request, process, self._spec.folder)))

    def _reply(
        self,
        request: Request,
        rank: int,
        at_ns: int,
        detail: str,
        result: dict[str, Any] | None = None,
    ) -> Reply:
        return Reply(
            request_id=request.request_id,
            fault_id=request.fault_id,
            job_id=request.job_id,
            run_id=request.run_id,
            generation=request.generation,
            kind=request.kind,
            machine_id=self._spec.machine_id,
            rank=rank,
            at_ns=at_ns,
            ok=result is not None,
            result=result or {},
            detail=detail,
        )
