"""What the kernel says, in every form in which people have its lines."""

import os
from pathlib import Path

import msgspec
import pytest

from lineside.agent.events import MachineWatch
from lineside.agent.kernel_log import KMSG, KernelLog, event_in, merged
from lineside.agent.spec import AgentSpec
from lineside.contracts import EventSeverity, EventSource

DATA = Path(__file__).parents[2] / "data" / "kernel_logs"
BOOT_NS = 1_700_000_000 * 10**9
XID = "NVRM: Xid (PCI:0000:9b:00): 79, pid='4242', name=python, GPU has fallen off the bus."
OOM = (
    "Out of memory: Killed process 4242 (python) total-vm:9kB, anon-rss:9kB, UID:0 oom_score_adj:0"
)
MEMCG = "Memory cgroup out of memory: Killed process 77 (python3) total-vm:9kB"


def test_a_real_log_tells_of_xid_119_on_one_device() -> None:
    lines = (DATA / "xid-119.log").read_text().splitlines()
    [(event, count)] = merged(e for line in lines if (e := event_in(line, BOOT_NS)))
    assert (event.source, event.code, event.device) == (EventSource.KMSG, "119", "0000:9b:00")
    assert (event.severity, count, event.pid) == (EventSeverity.CRITICAL, 5, 2024380)
    assert event.text.startswith("NVRM: Xid") and event.at_ns > 0


def test_a_real_log_tells_of_a_crash_in_libnccl() -> None:
    lines = (DATA / "libnccl-segfault.log").read_text().splitlines()
    [(event, count)] = merged(e for line in lines if (e := event_in(line, BOOT_NS)))
    assert (event.code, event.pid, count) == ("segfault", 2536443, 2)
    assert event.at_ns == 1_737_434_504_285_060_000
    assert "libnccl.so.2" in event.text


@pytest.mark.parametrize(
    ("line", "at_ns"),
    [
        (f"4,1234,2500000,-;{XID}", BOOT_NS + 2_500_000_000),
        (f"[    2.500000] {XID}", BOOT_NS + 2_500_000_000),
        (f"kern  :err   : 2025-01-21T04:41:44,285060+00:00 {XID}", 1_737_434_504_285_060_000),
        (f"2025-01-21T04:41:44.285060+0000 {XID}", 1_737_434_504_285_060_000),
        (XID, -1),
    ],
)
def test_times_are_read_in_all_forms(line: str, at_ns: int) -> None:
    event = event_in(line, BOOT_NS)
    assert event is not None and (event.at_ns, event.code, event.pid) == (at_ns, "79", 4242)


def test_out_of_memory_kills_name_their_process() -> None:
    for text, pid in ((OOM, 4242), (MEMCG, 77)):
        event = event_in(text, BOOT_NS)
        assert event is not None
        assert (event.source, event.code, event.pid) == (EventSource.OOM, "oom_kill", pid)


@pytest.mark.parametrize(
    "line", ["", "usb 1-1: new device", "NVRM: GPU at PCI:0000:9b:00: GPU-5", "Xid 79", "\x00" * 99]
)
def test_other_lines_are_no_events(line: str) -> None:
    assert event_in(line, BOOT_NS) is None


def test_an_xid_that_programs_raise_too_accuses_nobody_loudly() -> None:
    event = event_in("NVRM: Xid (PCI:0000:9b:00): 31, pid=1, name=python, MMU Fault", BOOT_NS)
    assert event is not None and event.severity is EventSeverity.WARNING


def test_a_file_is_followed_from_its_end_in_pieces_and_over_rotation(tmp_path: Path) -> None:
    path = tmp_path / "kern.log"
    path.write_text("old\n")
    log = KernelLog(path)
    assert log.lines() == []
    with path.open("a") as file:
        file.write("one\ntw")
        file.flush()
        assert log.lines() == ["one"]
        file.write("o\n")
    assert log.lines() == ["two"]
    path.rename(tmp_path / "kern.log.1")
    path.write_text("three\n")
    assert log.lines() == ["three"]
    log.close()


@pytest.mark.skipif(not os.access(KMSG, os.R_OK), reason="/dev/kmsg cannot be read here")
def test_the_kernels_own_device_never_blocks() -> None:
    log = KernelLog(KMSG)
    assert isinstance(log.lines(), list)
    log.close()


def write(path: Path, *lines: str) -> None:
    with path.open("a") as file:
        file.write("".join(line + "\n" for line in lines))


def test_machine_events_carry_the_jobs_names_and_fold_repeats(
    spec: AgentSpec, tmp_path: Path
) -> None:
    path = tmp_path / "kern.log"
    path.touch()
    watch = MachineWatch(spec, path)
    write(path, XID, XID, OOM, MEMCG)
    xid, own, foreign = watch.kernel_events({4242}, BOOT_NS)
    assert (xid.job_id, xid.generation, xid.machine_id) == ("gpt", 2, "machine-0")
    assert (xid.device, xid.count, xid.severity) == ("0000:9b:00", 2, EventSeverity.CRITICAL)
    assert (own.source, own.severity) == (EventSource.OOM, EventSeverity.CRITICAL)
    assert foreign.severity is EventSeverity.INFO, "another job's process"
    assert watch.kernel_events({4242}, BOOT_NS) == []
    watch.close()


def test_where_agents_share_a_host_only_own_processes_count(
    spec: AgentSpec, tmp_path: Path
) -> None:
    path = tmp_path / "kern.log"
    path.touch()
    watch = MachineWatch(msgspec.structs.replace(spec, shares_host=True), path)
    write(path, MEMCG, OOM)
    [event] = watch.kernel_events({4242}, BOOT_NS)
    assert event.text == OOM
    watch.close()


def test_a_log_that_cannot_be_read_is_no_trouble(spec: AgentSpec, tmp_path: Path) -> None:
    assert MachineWatch(spec, tmp_path / "none").kernel_events(set(), BOOT_NS) == []
    assert MachineWatch(spec, None).kernel_events(set(), BOOT_NS) == []
