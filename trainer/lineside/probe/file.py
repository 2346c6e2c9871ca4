"""The memory-mapped file that a rank writes: made whole before it gets its name, then only stored into.

Every byte is allocated on disk before the file is mapped: a store into a hole on a full disk would kill
the training process with SIGBUS, where a refused allocation is an ordinary OSError.
"""

import mmap
import os
import struct
import time
from dataclasses import astuple
from pathlib import Path

from lineside.probe.layout import COUNTERS, HEADER, MAGIC, STATUS, VERSION, Layout, layout

_LENGTH = struct.Struct("<q")


class ProbeFile:
    """Raw stores into ``probe.<rank>``. Single writer. Raises OSError where the file cannot be made."""

    def __init__(
        self, folder: Path, rank: int, generation: int, shape: Layout | None = None
    ) -> None:
        self.shape = shape or layout()
        draft = folder / f".probe.{rank}.{os.getpid()}"
        draft.unlink(missing_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(draft, flags, 0o600)
        try:
            os.posix_fallocate(fd, 0, self.shape.size)
            self.memory = mmap.mmap(fd, self.shape.size)
            self.words = memoryview(self.memory).cast("q")
            self._write_header(rank, generation)
            draft.rename(folder / f"probe.{rank}")
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
        finally:
            os.close(fd)

    def _write_header(self, rank: int, generation: int) -> None:
        HEADER.pack_into(
            self.memory,
            0,
            MAGIC,
            VERSION,
            HEADER.size,
            os.getpid(),
            rank,
            generation,
            time.monotonic_ns(),
            *astuple(self.shape),
        )

    def write_declaration(self, text: bytes) -> None:
        """Replace the declaration. Raises ValueError where it is too long."""
        at, capacity = self.shape.declaration, self.shape.declaration_bytes
        if len(text) > capacity:
            raise ValueError(f"the declaration takes {len(text)} bytes of {capacity}")
        begin, end = at // 8, (at + 16 + capacity) // 8
        version = self.words[end] + 1
        self.words[begin] = version
        _LENGTH.pack_into(self.memory, at + 8, len(text))
        self.memory[at + 16 : at + 16 + len(text)] = text
        self.words[end] = version

    def write_status(
        self, applied: tuple[int, int, int], rejected: tuple[int, int], reason: str
    ) -> None:
        """What became of plans: applied (revision, step, at_ns), rejected (revision, at_ns), why."""
        at = self.shape.status
        begin, end = at // 8, (at + 8 + STATUS.size) // 8
        text = reason.encode()[: self.shape.reason_bytes]
        version = self.words[end] + 1
        self.words[begin] = version
        STATUS.pack_into(self.memory, at + 8, *applied, *rejected, len(text), text)
        self.words[end] = version

    def count_lost(self) -> None:
        """One more record that the probe could not write."""
        self.words[COUNTERS // 8 + 2] += 1

    def close(self) -> None:
        """Unmap; the file stays for the agent."""
        self.words.release()
        self.memory.close()
