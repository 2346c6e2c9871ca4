"""Attends to the partitions that this worker owns: brings them up, hands them records, saves them.

Each assigned partition has a seat. A seat is brought up from its last snapshot and the log, while records
that are delivered meanwhile wait; then it is live. Whatever is unexpected (a gap, records that were never
delivered, outputs that were given up, an error) is answered in the same way: catch up from the log, if need
be from the last snapshot. Replaying is always right, so there is nothing to repair. All calls that block
run in one thread of their own, so the event loop and with it the group's life go on.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import ParamSpec, TypeVar

from lineside.bus import BusError, Message
from lineside.contracts import TopicName
from lineside.kit import metrics
from lineside.stream.outbox import OutputLost
from lineside.stream.partition import Partition, Verdict
from lineside.stream.snapshot import Snapshot
from lineside.stream.worker import Worker

log = logging.getLogger("lineside.stream")

P = ParamSpec("P")
T = TypeVar("T")

Offsets = dict[TopicName, int]

_WAITING = 2000
"""Delivered records kept while a seat catches up; older ones are read from the log again."""
_BREATH = 50
"""Records applied before others on the event loop get their turn."""
_RETRY_S = 1.0


@dataclass(slots=True, eq=False)
class Seat:
    """One partition of ours. ``partition`` is None until its snapshot was read; ``again``: catch up (once
    more); ``left``: no longer ours."""

    number: int
    partition: Partition | None = None
    live: bool = False
    again: bool = False
    left: bool = False
    lag: int = -1
    seen: Offsets = field(default_factory=dict)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    task: asyncio.Task[None] | None = None
    waiting: deque[Message] = field(default_factory=lambda: deque(maxlen=_WAITING))


class Attendant:
    """All seats of one worker process. Its methods belong to the event loop, but for plain reads."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.seats: dict[int, Seat] = {}
        self.reachable = True
        self.failed_saves = 0
        self._saved_s: float | None = None
        self._suspended = False
        self._closed = False
        self._saving = asyncio.Lock()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="log")

    def assign(self, numbers: Iterable[int]) -> None:
        """From now on exactly these partitions are ours. What we keep catches up: it may have been ours
        without records for a while."""
        wanted = set(numbers)
        self._suspended = False
        if wanted != self.seats.keys():
            log.info("seated on partitions %s", sorted(wanted))
        for number in self.seats.keys() - wanted:
            self.seats.pop(number).left = True
            metrics.gauge("lineside_lag_records", 0, str(number))
        for number in wanted - self.seats.keys():
            self.seats[number] = Seat(number)
        for seat in self.seats.values():
            self._bring_up(seat)
        metrics.gauge("lineside_partitions_assigned", len(self.seats))

    def suspend(self) -> None:
        """The group is sharing out anew: what is delivered waits for ``assign``."""
        self._suspended = True
        for seat in self.seats.values():
            seat.live = False

    def deliver(self, message: Message) -> None:
        """A record from the group. Never raises, never blocks."""
        seat = self.seats.get(message.partition)
        if seat is None:
            return
        if not seat.live or seat.partition is None:
            seat.waiting.append(message)
            return
        try:
            behind = self.worker.offer(seat.partition, message) is Verdict.BEHIND
        except Exception:
            log.exception("partition %d is read again from its last snapshot", seat.number)
            seat.partition, behind = None, True
        if behind:
            seat.waiting.append(message)
            self._bring_up(seat)

    async def save(self, timeout_s: float) -> bool:
        """Save what changed; True when all of it is acknowledged."""
        async with self._saving:
            taken = [pair for seat in list(self.seats.values()) if (pair := await self._take(seat))]
            if not taken:
                return True
            snapshots = [snapshot for _, snapshot in taken]
            try:
                saved = await self._in_thread(self.worker.commit, snapshots, timeout_s)
            except OutputLost as error:
                log.error("%s: all partitions are read again from their last snapshots", error)
                self._start_over()
                saved = [False] * len(taken)
            for (partition, snapshot), done in zip(taken, saved, strict=True):
                (partition.saved if done else partition.not_saved)(snapshot)
                metrics.increment(
                    "lineside_snapshots_total" if done else "lineside_snapshot_failures_total"
                )
            self.failed_saves = 0 if all(saved) else self.failed_saves + 1
            if all(saved):
                self._saved_s = time.monotonic()
            return all(saved)

    def saved_age_s(self) -> float | None:
        """Seconds since everything that had changed was saved; None: never yet."""
        return None if self._saved_s is None else time.monotonic() - self._saved_s

    async def look(self) -> None:
        """See how far the log is ahead. A live seat that got nothing of what is there catches up from the
        log; one that is beyond the log's end (it was made anew) starts over."""
        for seat in list(self.seats.values()):
            at = dict(seat.partition.positions) if seat.partition else {}
            try:
                bounds = await self._in_thread(self.worker.bounds, seat.number)
                self.reachable = True
            except Exception as error:
                if self._closed:
                    return
                if self.reachable:
                    log.warning("cannot look at the log: %s", error)
                self.reachable = False
                await self._in_thread(self.worker.renew_reader)
                return
            if at and seat.live:
                self._compare(seat, at, {topic: end for topic, (_, end) in bounds.items()})
            metrics.gauge("lineside_lag_records", seat.lag, str(seat.number))
        jobs = sum(seat.partition.jobs for seat in self.seats.values() if seat.partition)
        metrics.gauge("lineside_jobs_tracked", jobs)
        metrics.gauge("lineside_last_event_age_seconds", self.worker.last_event_age_s() or 0.0)

    def _compare(self, seat: Seat, at: Offsets, ends: Offsets) -> None:
        """``at``: where ``seat`` stood before ``ends`` were asked for."""
        seat.lag = sum(max(0, end - at[topic]) for topic, end in ends.items())
        if any(end < at[topic] for topic, end in ends.items()):
            log.error("partition %d: the log ends before our position", seat.number)
            seat.partition = None
            self._bring_up(seat)
        elif seat.lag and at == seat.seen:
            log.warning("partition %d: %d records were not delivered", seat.number, seat.lag)
            self._bring_up(seat)
        seat.seen = at

    async def close(self, timeout_s: float) -> bool:
        """Stop applying and save; True when everything is saved."""
        self.suspend()
        for seat in self.seats.values():
            seat.left = True
        tasks = [seat.task for seat in self.seats.values() if seat.task]
        if tasks:
            await asyncio.wait(tasks, timeout=timeout_s / 2)
        saved = await self.save(timeout_s)
        self._closed = True
        self._thread.submit(self.worker.close)
        self._thread.shutdown(wait=False)
        return saved

    def _bring_up(self, seat: Seat) -> None:
        seat.live, seat.again = False, True
        if seat.task is None or seat.task.done():
            seat.task = asyncio.create_task(self._to_live(seat))

    async def _to_live(self, seat: Seat) -> None:
        told = False
        while seat.again and not seat.left:
            seat.again = False
            try:
                await self._catch_up(seat)
                await self._hand_over(seat)
            except BusError as error:
                if not told:
                    log.warning("partition %d waits: %s", seat.number, error)
                self.reachable, told, seat.again = False, True, True
                await self._in_thread(self.worker.renew_reader)
                await asyncio.sleep(_RETRY_S)
            except Exception:
                log.exception("partition %d is read again from its last snapshot", seat.number)
                seat.partition, seat.again = None, True
                await asyncio.sleep(_RETRY_S)

    async def _catch_up(self, seat: Seat) -> None:
        """Apply what the log holds, chunk by chunk."""
        async with seat.lock:
            if seat.partition is None:
                seat.partition = await self._in_thread(self.worker.open, seat.number)
        partition = seat.partition
        steps = self.worker.catch_up(partition)
        try:
            while not seat.left and seat.partition is partition:
                async with seat.lock:
                    if await self._in_thread(next, steps, None) is None:
                        break
                await self.drained()
        finally:
            await self._in_thread(steps.close)
        self.reachable = True

    async def _hand_over(self, seat: Seat) -> None:
        """Apply what was delivered meanwhile; then the seat is live."""
        while seat.waiting and seat.partition and not seat.again:
            for _ in range(min(len(seat.waiting), _BREATH)):
                if self.worker.offer(seat.partition, seat.waiting[0]) is Verdict.BEHIND:
                    seat.again = True
                    return
                seat.waiting.popleft()
            await asyncio.sleep(0)
        seat.live = not (seat.again or seat.left or self._suspended) and seat.partition is not None

    async def drained(self) -> None:
        """Wait while too many findings wait to be sent."""
        while self.worker.outbox.full:
            self.worker.outbox.poll()
            await asyncio.sleep(0.05)

    async def _take(self, seat: Seat) -> tuple[Partition, Snapshot] | None:
        async with seat.lock:
            if (partition := seat.partition) is None or not partition.changed:
                return None
            try:
                snapshot = partition.snapshot()
            except Exception:
                metrics.increment("lineside_snapshot_failures_total")
                log.exception("partition %d cannot be saved", seat.number)
                return None
            metrics.gauge("lineside_snapshot_bytes", snapshot.size, str(seat.number))
            return partition, snapshot

    def _start_over(self) -> None:
        for seat in self.seats.values():
            seat.partition = None
            self._bring_up(seat)

    async def _in_thread(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, lambda: call(*args, **kwargs))
