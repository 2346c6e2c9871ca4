"""What happens to this machine, as records: kernel events that concern the job, and how workers ended."""

import logging
import signal
import time
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from lineside.agent.kernel_log import KernelEvent, KernelLog, event_in, merged
from lineside.agent.ranks import RankProcess
from lineside.agent.spec import AgentSpec, device_id
from lineside.contracts import EventSeverity, EventSource, MachineEvent

_log = logging.getLogger("lineside.agent")


class MachineWatch:
    """Follows the kernel's log for one job. Without one that can be read it says so once and is silent."""

    def __init__(self, spec: AgentSpec, kernel_log: Path | None) -> None:
        self._spec = spec
        self._kernel: KernelLog | None = None
        if kernel_log is not None:
            try:
                self._kernel = KernelLog(kernel_log)
            except OSError as error:
                _log.info("no kernel events: %s cannot be read (%s)", kernel_log, error.strerror)

    def kernel_events(self, own_pids: Collection[int], boot_ns: int) -> list[MachineEvent]:
        """What the kernel said since the last call. ``own_pids``: the job's processes, also past ones.

        Other jobs' processes that were killed or crashed are a remark at most; where several agents share
        a host (``spec.shares_host``) only what names an own process is told, or every "machine" would have
        the same trouble.
        """
        if self._kernel is None:
            return []
        try:
            lines = self._kernel.lines()
        except OSError as error:
            _log.warning("the kernel's log cannot be read any more: %s", error.strerror)
            self.close()
            return []
        found = [event for line in lines if (event := event_in(line, boot_ns))]
        return [
            self._record(event, count, event.pid in own_pids)
            for event, count in merged(found)
            if event.pid in own_pids or not self._spec.shares_host
        ]

    def close(self) -> None:
        if self._kernel is not None:
            self._kernel.close()
            self._kernel = None

    def _record(self, event: KernelEvent, count: int, own: bool) -> MachineEvent:
        foreign = event.device is None and not own
        return MachineEvent(
            job_id=self._spec.job_id,
            run_id=self._spec.run_id,
            generation=self._spec.generation,
            machine_id=self._spec.machine_id,
            device=event.device,
            at_ns=event.at_ns if event.at_ns >= 0 else time.time_ns(),
            source=event.source,
            code=event.code,
            severity=EventSeverity.INFO if foreign else event.severity,
            count=count,
            text=event.text,
        )


def worker_exit(spec: AgentSpec, process: RankProcess, at_ns: int) -> MachineEvent:
    """How a rank's process ended by itself or by somebody else's hand."""
    code = f"exit {process.exit_code}"
    if process.signal > 0:
        code = f"signal {process.signal}"
        with suppress(ValueError):
            code = signal.Signals(process.signal).name
    return MachineEvent(
        job_id=spec.job_id,
        run_id=spec.run_id,
        generation=spec.generation,
        machine_id=spec.machine_id,
        device=device_id(spec.machine_id, process.local_rank),
        at_ns=at_ns,
        source=EventSource.WORKER_EXIT,
        code=code,
        severity=EventSeverity.CRITICAL if process.failed else EventSeverity.INFO,
        text=process.how_it_ended(),
    )
