"""Files from strangers: nothing in them runs, and none takes the machine down."""

import json
import os
import pickle
import struct
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest

from lineside.diagnose.safe_load import UnreadableFileError, load


class Runs:
    """Pickles to a call of a shell command."""

    def __init__(self, command: str) -> None:
        self.command = command

    def __reduce__(self) -> Any:
        return os.system, (self.command,)


def saved(folder: Path, content: bytes) -> Path:
    file = folder / "file"
    file.write_bytes(content)
    return file


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_containers_and_scalars_come_back(tmp_path: Path, protocol: int) -> None:
    value = {"a": [1, -(2**70), 1.5, None, True, "ü", (1, 2)], "b": {"c": ()}}
    assert load(saved(tmp_path, pickle.dumps(value, protocol))) == value


def test_json(tmp_path: Path) -> None:
    assert load(saved(tmp_path, json.dumps({"a": [1, None]}).encode())) == {"a": [1, None]}


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_a_malicious_pickle_is_refused_and_does_not_run(tmp_path: Path, protocol: int) -> None:
    mark = tmp_path / "ran"
    bomb = pickle.dumps({"entries": [Runs(f"touch {mark}")], "version": "2.10"}, protocol)
    with pytest.raises(UnreadableFileError, match=r"asks for \w+\.system"):
        load(saved(tmp_path, bomb))
    assert not mark.exists()


def test_even_harmless_classes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFileError, match=r"collections\.OrderedDict"):
        load(saved(tmp_path, pickle.dumps(OrderedDict(a=1))))


def test_a_persistent_reference_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFileError, match="outside itself"):
        load(saved(tmp_path, b"\x80\x04K\x01Q."))


MEMO_OF_64_GIB = b"\x80\x02]r" + struct.pack("<I", 2**32 - 2) + b"."
BYTES_OF_1_TIB = b"\x80\x04\x8e" + struct.pack("<Q", 1 << 40) + b"x."


@pytest.mark.parametrize("content", [MEMO_OF_64_GIB, BYTES_OF_1_TIB], ids=["memo", "bytes"])
def test_a_few_bytes_that_ask_for_gigabytes_are_refused(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(UnreadableFileError):
        load(saved(tmp_path, content))


@pytest.mark.parametrize(
    "content",
    [b"", b"\x80", b"\x80\x04", b"\x80\x63.", pickle.dumps([1, 2, 3])[:-4], b'{"a": ', b"[" * 100_000,
     b"\x00\xff", b"plain text", b"\x80\x04."],
)  # fmt: skip
def test_broken_files_are_refused(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(UnreadableFileError):
        load(saved(tmp_path, content))


def test_huge_files_are_not_read(tmp_path: Path) -> None:
    file = saved(tmp_path, b"")
    os.truncate(file, 1 << 30)  # sparse: takes no room
    with pytest.raises(UnreadableFileError, match="larger than 256 MiB"):
        load(file)


def test_only_regular_files_are_opened(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, tmp_path, tmp_path / "is not there"):
        with pytest.raises(UnreadableFileError, match="not a regular file"):
            load(path)
