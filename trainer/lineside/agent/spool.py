"""Records on disk in the order in which they came: what waits while Kafka is away.

Segments ``00000001.spool``, ``00000002.spool``, ... of a folder. A segment begins with eight bytes, how far
it has been read; each record is its length, its CRC-32 and a MessagePack array. Only the newest segment is
written, only the oldest is read; beyond the bound the oldest goes, and its unread rows are counted. A folder
that an agent left behind is taken up by the next one; of a record that was cut off by a crash nothing is
read. There is no fsync: what is kept survives the process, not a power failure.
"""

import re
import struct
import zlib
from collections import Counter, deque
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from lineside.contracts import TopicName, WireMessage

_POSITION = struct.Struct("<Q")
_FRAME = struct.Struct("<II")
_SEGMENTS = 16
"""The bound is kept by dropping whole segments: at most a sixteenth more than needed is lost."""


class Kept(msgspec.Struct, array_like=True, frozen=True):
    """A message, and the rows that are lost if it never arrives."""

    topic: TopicName
    partition: int
    key: bytes
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    rows: int

    def message(self) -> WireMessage:
        return WireMessage(
            topic=self.topic,
            partition=self.partition,
            key=self.key,
            value=self.value,
            headers=self.headers,
        )


class _Place(NamedTuple):
    record: Kept
    end: int


class Spool:
    """A bounded queue in ``folder``. All methods but ``take_dropped`` may raise OSError.

    The folder is made with the first record, and is empty when nothing waits.
    """

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self._folder = folder
        self._max_bytes = max_bytes
        self._segment_bytes = max(1, max_bytes // _SEGMENTS)
        self._dropped: Counter[TopicName] = Counter()
        self._sizes: dict[int, int] = {}
        self._ready: deque[_Place] = deque()
        self._reading = -1
        self._fresh = True
        self._count = 0
        for path in sorted(folder.glob("*.spool")):
            if re.fullmatch(r"\d{8}", path.stem):
                self._sizes[int(path.stem)] = path.stat().st_size
        self._count = sum(1 for number in self._sizes for _ in self._unread(number))

    def __len__(self) -> int:
        """Records that wait."""
        return self._count

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return sum(self._sizes.values())

    def put(self, message: WireMessage, rows: int) -> None:
        """Append; the oldest go where there is no room."""
        body = msgspec.msgpack.encode(
            Kept(
                message.topic, message.partition, message.key, message.value, message.headers, rows
            )
        )
        newest = max(self._sizes, default=0)
        # A segment of an earlier process may end in a torn record: nothing is appended to it.
        if self._fresh or newest not in self._sizes or self._sizes[newest] >= self._segment_bytes:
            newest += 1
            self._begin(newest)
        frame = _FRAME.pack(len(body), zlib.crc32(body)) + body
        with self._path(newest).open("r+b", buffering=0) as file:
            file.seek(self._sizes[newest])
            if file.write(frame) != len(frame):
                raise OSError("the disk is full")
        self._sizes[newest] += len(frame)
        self._count += 1
        while self._sizes and self.size > self._max_bytes:
            self._drop_oldest()

    def first(self) -> Kept | None:
        """The oldest record; it stays until ``done``."""
        while not self._ready and self._sizes:
            oldest = min(self._sizes)
            self._reading = oldest
            self._ready.extend(self._unread(oldest))
            if self._ready:
                break
            self._remove(oldest)
        return self._ready[0].record if self._ready else None

    def done(self) -> None:
        """The oldest record need not be kept any longer."""
        place = self._ready.popleft()
        self._count -= 1
        if self._ready or place.end < self._sizes[self._reading]:
            with self._path(self._reading).open("r+b", buffering=0) as file:
                file.write(_POSITION.pack(place.end))
        else:
            self._remove(self._reading)

    def take_dropped(self) -> Counter[TopicName]:
        """Rows lost by topic since the last call."""
        dropped, self._dropped = self._dropped, Counter()
        return dropped

    def _begin(self, number: int) -> None:
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._path(number).write_bytes(_POSITION.pack(_POSITION.size))
        self._sizes[number] = _POSITION.size
        self._fresh = False

    def _unread(self, number: int) -> Iterator[_Place]:
        content = self._path(number).read_bytes()
        if len(content) < _POSITION.size:
            return
        (at,) = _POSITION.unpack_from(content)
        while at + _FRAME.size <= len(content):
            length, checksum = _FRAME.unpack_from(content, at)
            body = content[at + _FRAME.size : at + _FRAME.size + length]
            at += _FRAME.size + length
            if len(body) < length or zlib.crc32(body) != checksum:
                return
            try:
                yield _Place(msgspec.msgpack.decode(body, type=Kept), at)
            except msgspec.MsgspecError:
                return  # written by another version

    def _drop_oldest(self) -> None:
        oldest = min(self._sizes)
        for record, _ in self._unread(oldest):
            self._dropped[record.topic] += record.rows
            self._count -= 1
        self._remove(oldest)

    def _remove(self, number: int) -> None:
        self._path(number).unlink(missing_ok=True)
        del self._sizes[number]
        if number == self._reading:
            self._ready.clear()

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:08d}.spool"
