"""The reader: wrapped, torn, foreign and hostile files."""

import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lineside.contracts import Capabilities, Mesh
from lineside.probe import Probe
from lineside.probe.file import ProbeFile
from lineside.probe.guard import Guard
from lineside.probe.layout import COUNTERS, HEADER, RECORD, layout
from lineside.probe.reader import BadProbeFile, ProbeReader


def run_steps(probe: Any, first: int, count: int) -> None:
    for step in range(first, first + count):
        with probe.step(step):
            pass


@settings(deadline=None)
@given(reads=st.lists(st.integers(0, 40), min_size=1, max_size=12), slots=st.integers(2, 16))
def test_every_record_is_delivered_once_or_counted(
    tmp_path_factory: pytest.TempPathFactory, reads: list[int], slots: int
) -> None:
    folder = tmp_path_factory.mktemp("ring")
    file = ProbeFile(folder, 0, 0, layout(ring_slots=slots, group_slots=1, declaration=64))
    reader = ProbeReader(folder / "probe.0")
    probe, written, delivered, lost = Probe(Guard(file, folder)), 0, [], 0
    for count in reads:
        run_steps(probe, written, count)
        written += count
        rows, dropped = reader.steps()
        delivered += list(rows["step"])
        lost += dropped
        assert dropped == max(0, count - (slots - 1)), (
            "one slot is being written, for all one knows"
        )
    assert len(delivered) + lost == written
    assert delivered == sorted(delivered)
    reader.close()
    file.close()


def test_a_record_overwritten_while_it_is_read_is_dropped(
    opened: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    probe, reader = opened(ring_slots=4)
    run_steps(probe, 0, 3)
    real, calls = os.pread, []

    def pread(fd: int, size: int, at: int) -> bytes:
        data = real(fd, size, at)
        calls.append(at)
        if len(calls) == 2:  # head and ring are read; the writer goes on before the second look
            run_steps(probe, 3, 2)
        return data

    monkeypatch.setattr(os, "pread", pread)
    rows, dropped = reader.steps()
    assert list(rows["step"]) == [2] and dropped == 2
    assert list(reader.steps()[0]["step"]) == [3, 4]


def test_a_torn_live_state_is_not_believed(tmp_path: Path) -> None:
    shape = layout()
    file = ProbeFile(tmp_path, 0, 0)
    probe = Probe(Guard(file, tmp_path))
    run_steps(probe, 0, 1)
    reader = ProbeReader(tmp_path / "probe.0")
    assert reader.live() is not None
    file.words[shape.live // 8] += 1  # a write has begun
    assert reader.live() is None
    reader.close()
    file.close()


def test_a_torn_group_is_left_out_and_the_others_stay(tmp_path: Path) -> None:
    file = ProbeFile(tmp_path, 0, 0)
    probe = Probe(Guard(file, tmp_path))
    for name in ("dp:1", "pp:1"):
        with probe.collective(name, "all_reduce", 8):
            pass
    reader = ProbeReader(tmp_path / "probe.0")
    assert [row["name"] for row in reader.groups()] == [b"dp:1", b"pp:1"]
    file.words[(file.shape.groups + 48) // 8] += 1
    assert [row["name"] for row in reader.groups()] == [b"pp:1"]
    reader.close()
    file.close()


def test_the_declaration_travels_and_may_change(opened: Callable[..., Any]) -> None:
    probe, reader = opened()
    assert reader.declaration() is None
    for size in (4, 2):
        probe.declare(
            mesh=Mesh(["dp"], [size]), micro_batches=20, capabilities=Capabilities(rebalance=True)
        )
        said = reader.declaration()
        assert said.mesh == Mesh(["dp"], [size]) and said.micro_batches == 20
        assert said.capabilities.rebalance and not said.capabilities.restart


def test_a_broken_declaration_is_told_once(tmp_path: Path) -> None:
    file = ProbeFile(tmp_path, 0, 0)
    file.write_declaration(b'{"micro_batches": "many"}')
    reader = ProbeReader(tmp_path / "probe.0")
    with pytest.raises(BadProbeFile, match="micro_batches"):
        reader.declaration()
    assert reader.declaration() is None
    reader.close()
    file.close()


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def good_bytes(tmp_path: Path) -> bytearray:
    folder = tmp_path / "good"
    folder.mkdir()
    ProbeFile(folder, 0, 0, layout(ring_slots=8)).close()
    return bytearray((folder / "probe.0").read_bytes())


@pytest.mark.parametrize("field", range(7, 19))
@pytest.mark.parametrize("value", [1, 4095, 2**31, 2**32 - 1])
def test_no_layout_leads_out_of_the_file(tmp_path: Path, field: int, value: int) -> None:
    data = good_bytes(tmp_path)
    numbers = list(HEADER.unpack_from(data))
    numbers[field] = value
    HEADER.pack_into(data, 0, *numbers)
    path = write(tmp_path / "probe.0", bytes(data))
    try:
        reader = ProbeReader(path)
    except BadProbeFile:
        return
    reader.live(), reader.status(), reader.declaration(), reader.steps(), reader.groups()
    reader.close()


@settings(deadline=None)
@given(st.binary(max_size=4096))
def test_foreign_bytes_are_refused(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    with pytest.raises(BadProbeFile):
        ProbeReader(write(tmp_path_factory.mktemp("foreign") / "probe.0", content))


@pytest.mark.parametrize("head", [-1, 2**62, -(2**63), 2**63 - 1])
def test_an_impossible_head_delivers_nothing_false(tmp_path: Path, head: int) -> None:
    data = good_bytes(tmp_path)
    struct.pack_into("<qq", data, COUNTERS, head, head)
    reader = ProbeReader(write(tmp_path / "probe.0", bytes(data)))
    assert len(reader.steps()[0]) == 0
    assert len(reader.groups()) in (0, 256)
    reader.close()


def test_a_file_cut_short_while_it_is_read_does_no_harm(tmp_path: Path) -> None:
    path = write(tmp_path / "probe.0", bytes(good_bytes(tmp_path)))
    reader = ProbeReader(path)
    os.truncate(path, HEADER.size + RECORD.size)
    assert reader.live() is None and reader.status() is None and reader.lost() == 0
    assert len(reader.steps()[0]) == 0 and len(reader.groups()) == 0
    reader.close()


def test_links_pipes_and_files_of_others_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "real", bytes(good_bytes(tmp_path)))
    (tmp_path / "probe.0").symlink_to(path)
    os.mkfifo(tmp_path / "probe.1")
    for name in ("probe.0", "probe.1"):
        with pytest.raises(BadProbeFile):
            ProbeReader(tmp_path / name)
    with pytest.raises(BadProbeFile, match="belongs to"):
        ProbeReader(path, owner=os.getuid() + 1)
    with pytest.raises(FileNotFoundError):
        ProbeReader(tmp_path / "probe.2")
