"""What the kernel says of this machine: NVIDIA Xid errors, out-of-memory kills, crashes in libraries.

``event_in`` is pure and reads a line in any of the forms in which people have them: ``/dev/kmsg`` records,
``dmesg`` raw, with ``-T``, with ``--time-format iso``. ``KernelLog`` follows ``/dev/kmsg`` or a file from the
moment it is opened.

Xid numbers and what they mean: NVIDIA, "Xid Errors" (docs.nvidia.com/deploy/xid-errors).
"""

import os
import re
import stat
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from lineside.contracts import EventSeverity, EventSource

KMSG = Path("/dev/kmsg")
_READ_BYTES = 8192  # the kernel gives one record a read, and none is longer
_MOST_RECORDS = 1000
_MOST_TEXT = 500

_APPLICATION_XIDS = frozenset({13, 31, 43, 45, 68, 69, 94, 137})
"""Raised by faulty programs too, or follow from another error: no word against the device by themselves."""

_XID = re.compile(r"NVRM: Xid \(PCI:([0-9A-Fa-f:.]+)\): (\d+),(?: pid=['\"]?(\d+))?")
_OOM = re.compile(r"(?:Out of memory|Memory cgroup out of memory): Kill(?:ed)? process (\d+)")
_SEGFAULT = re.compile(r"\[(\d+)\]: segfault at \S+ ip \S+ sp \S+ error \d+ in ([^\[\s]+)")

_KMSG_LINE = re.compile(r"^\d+,\d+,(\d+),[^;]*;(.*)$")
_DMESG_LINE = re.compile(r"^\[\s*(\d+)\.(\d{6})\]\s?(.*)$")
_DATED_LINE = re.compile(r"^\[([A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4})\]\s?(.*)$")
_ISO_LINE = re.compile(r"^(?:\w+\s*:\w+\s*: )?(\d{4}-\d\d-\d\dT[\d:]+[.,]\d+[+-]\d\d:?\d\d)\s(.*)$")


class KernelEvent(NamedTuple):
    """``at_ns``: Unix time, -1 where the line has none. ``pid``: the process that it names, -1: none."""

    at_ns: int
    source: EventSource
    code: str
    severity: EventSeverity
    device: str | None
    pid: int
    text: str


def event_in(line: str, boot_ns: int) -> KernelEvent | None:
    """The event that ``line`` tells of, if any. ``boot_ns`` is the Unix time of the machine's start, for
    lines that count from it.

    >>> found = event_in("[   12.500000] NVRM: Xid (PCI:0000:9b:00): 79, GPU has fallen off the bus.", 0)
    >>> found.code, found.device, found.at_ns
    ('79', '0000:9b:00', 12500000000)
    """
    at_ns, text = _dated(line, boot_ns)
    if match := _XID.search(text):
        severity = (
            EventSeverity.WARNING if int(match[2]) in _APPLICATION_XIDS else EventSeverity.CRITICAL
        )
        return KernelEvent(
            at_ns,
            EventSource.KMSG,
            match[2],
            severity,
            match[1].lower(),
            int(match[3] or -1),
            text[:_MOST_TEXT],
        )
    if match := _OOM.search(text):
        return KernelEvent(
            at_ns,
            EventSource.OOM,
            "oom_kill",
            EventSeverity.CRITICAL,
            None,
            int(match[1]),
            text[:_MOST_TEXT],
        )
    if match := _SEGFAULT.search(text):
        return KernelEvent(
            at_ns,
            EventSource.KMSG,
            "segfault",
            EventSeverity.WARNING,
            None,
            int(match[1]),
            text[:_MOST_TEXT],
        )
    return None


def merged(events: Iterable[KernelEvent]) -> list[tuple[KernelEvent, int]]:
    """Equal things once, with their number; the first one's time and words stand for all."""
    found: dict[tuple[str, str, str | None, int], tuple[KernelEvent, int]] = {}
    for event in events:
        pid = event.pid if event.device is None else -1  # a device's trouble is one, whoever met it
        key = (event.source, event.code, event.device, pid)
        first, count = found.get(key, (event, 0))
        found[key] = (first, count + 1)
    return list(found.values())


def _dated(line: str, boot_ns: int) -> tuple[int, str]:
    """(Unix time in ns, text) of a line."""
    if match := _KMSG_LINE.match(line):
        return boot_ns + int(match[1]) * 1000, match[2]
    if match := _DMESG_LINE.match(line):
        return boot_ns + int(match[1]) * 10**9 + int(match[2]) * 1000, match[3]
    with suppress(ValueError):
        if match := _DATED_LINE.match(line):  # dmesg -T: this machine's time
            moment = datetime.strptime(match[1], "%a %b %d %H:%M:%S %Y").astimezone()
            return int(moment.timestamp()) * 10**9, match[2]
        if match := _ISO_LINE.match(line):
            moment = datetime.fromisoformat(match[1].replace(",", "."))
            return round(moment.timestamp() * 1e6) * 1000, match[2]
    return -1, line


@dataclass(slots=True)
class KernelLog:
    """Follows ``path`` from its end. Raises OSError where it cannot be opened; closed by ``close``."""

    path: Path
    _file: int = -1
    _part: bytes = b""
    _is_device: bool = False

    def __post_init__(self) -> None:
        self._file = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self._is_device = stat.S_ISCHR(os.fstat(self._file).st_mode)
        os.lseek(self._file, 0, os.SEEK_END)

    def lines(self) -> list[str]:
        """What was written since the last call, at most so much at once. Never blocks."""
        content = self._records() if self._is_device else self._rest()
        *whole, self._part = (self._part + content).split(b"\n")
        return [line.decode(errors="replace") for line in whole]

    def _rest(self) -> bytes:
        """From a file, which may have been rotated away: then the new one from its start."""
        if content := os.read(self._file, _READ_BYTES * _MOST_RECORDS):
            return content
        with suppress(FileNotFoundError):
            if self.path.stat().st_ino != os.fstat(self._file).st_ino:
                self.close()
                self._file = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
                return os.read(self._file, _READ_BYTES * _MOST_RECORDS)
        return b""

    def _records(self) -> bytes:
        """From a device: one record a read, until there is none."""
        records = []
        for _ in range(_MOST_RECORDS):
            try:
                records.append(os.read(self._file, _READ_BYTES))
            except BlockingIOError:
                break
            except BrokenPipeError:
                continue  # records were overwritten before we came; the next read goes on after them
        return b"".join(records)

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
