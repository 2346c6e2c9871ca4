"""Whatever is wrong around it, the loop runs on."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lineside.contracts import Phase
from lineside.probe import Probe, probe
from lineside.probe.reader import ProbeReader


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(probe, "_attached", None)
    for name in ("LINESIDE_RUN_DIR", "RANK", "SLURM_PROCID", "LINESIDE_GENERATION"):
        monkeypatch.delenv(name, raising=False)
    yield


def use_all_of_it(probe: Probe) -> None:
    probe.declare(micro_batches=4)
    with probe.step(0, micro_batches=4, phase=Phase.TRAIN) as s, probe.phase("compute"):
        s.loss = 1.0
        with probe.collective("dp:1", "all_reduce", 8):
            pass
        ticket = probe.enqueue("dp:1", "send", 8)
        probe.started(ticket)
        probe.completed(ticket)
    plan = probe.plan()
    assert probe.agreed(probe.agreement(plan), 1) is None
    assert probe.agreed((), 1) is None
    probe.applied(1, 1)
    probe.rejected(1, "no")


def test_without_an_agent_it_is_a_no_op() -> None:
    attached = Probe.attach()
    use_all_of_it(attached)
    assert not attached.enabled and attached.revision == 0


def test_with_one_it_records(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LINESIDE_RUN_DIR", str(tmp_path))
    monkeypatch.setenv("RANK", "5")
    monkeypatch.setenv("LINESIDE_GENERATION", "2")
    attached = Probe.attach()
    assert Probe.attach() is attached, "one writer per process"
    use_all_of_it(attached)
    reader = ProbeReader(tmp_path / "probe.5")
    assert (reader.rank, reader.generation, reader.pid) == (5, 2, os.getpid())
    assert len(reader.steps()[0]) == 1
    assert os.listdir(tmp_path) == ["probe.5"], "nothing half-made is left"
    reader.close()


def full_disk(fd: int, offset: int, size: int) -> None:
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("trouble", ["no folder", "disk full", "no number"])
def test_without_a_file_it_warns_once_and_records_nothing(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    trouble: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    folder = tmp_path / "missing" if trouble == "no folder" else tmp_path
    monkeypatch.setenv("LINESIDE_RUN_DIR", str(folder))
    monkeypatch.setenv("RANK", "first" if trouble == "no number" else "0")
    if trouble == "disk full":
        monkeypatch.setattr(os, "posix_fallocate", full_disk)
    attached = Probe.attach()
    use_all_of_it(attached)
    assert not attached.enabled
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert os.listdir(tmp_path) == []


def test_a_forked_child_does_not_write(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    script = """
import os
from lineside.probe import Probe
probe = Probe.attach()
with probe.step(0):
    pass
if os.fork() == 0:
    with probe.step(1):
        os._exit(0 if not probe.enabled else 1)
assert os.wait()[1] == 0
with probe.step(2):
    pass
"""
    env = os.environ | {"LINESIDE_RUN_DIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", script], env=env, check=True)
    reader = ProbeReader(tmp_path / "probe.0")
    assert list(reader.steps()[0]["step"]) == [0, 2]
    reader.close()


def test_it_imports_nothing_heavy() -> None:
    script = (
        "import sys, lineside.probe; "
        "print(*sorted({m.split('.')[0] for m in sys.modules} & "
        "{'torch', 'confluent_kafka', 'pydantic', 'faust', 'psutil', 'typer'}))"
    )
    out = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert out.stdout.strip() == b""
