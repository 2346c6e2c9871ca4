"""Files from anywhere, read without running what is in them or letting them take the machine down.

A pickle is a program. Here it may only build containers and scalars: every global that it asks for is
refused, which leaves nothing to call. Size is bounded before reading, and memory while decoding, because
a few bytes of pickle can ask for gigabytes.
"""

import io
import pickle
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

MOST_BYTES = 256 << 20
"""A full Flight Recorder of 2,000 entries with stacks is about 1 MB; this leaves room for huge buffers."""
GROWTH = 40
"""Bytes of objects per byte of pickle, at most: a one-byte number in a list costs 8 and is shared."""
ALLOWANCE = 256 << 20


class UnreadableFileError(ValueError):
    """The file cannot be used; the text says why."""


class _Containers(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        raise UnreadableFileError(
            f"refused: this pickle asks for {module}.{name}, and a dump holds plain data only"
        )

    def persistent_load(self, pid: Any) -> Any:
        raise UnreadableFileError("refused: this pickle refers to objects outside itself")


def load(path: Path, most_bytes: int = MOST_BYTES) -> Any:
    """The object in ``path``, from JSON or pickle by its first byte.

    Raises:
        UnreadableFileError: not a regular file, too large, truncated, of another format, or malicious.
    """
    try:
        if not path.is_file():
            raise UnreadableFileError("not a regular file")
        size = path.stat().st_size
        if size > most_bytes:
            raise UnreadableFileError(f"larger than {most_bytes >> 20} MiB")
        content = path.read_bytes()
    except OSError as error:
        raise UnreadableFileError(error.strerror or str(error)) from error
    if not content:
        raise UnreadableFileError("empty file")
    if content[:1] == b"\x80":
        return _unpickle(content)
    try:
        return msgspec.json.decode(content)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        kind = "JSON" if content.lstrip()[:1] in (b"{", b"[") else "a dump"
        raise UnreadableFileError(f"not {kind}, or truncated: {error}") from error


def _unpickle(content: bytes) -> Any:
    try:
        with _bounded_memory(GROWTH * len(content) + ALLOWANCE):
            return _Containers(io.BytesIO(content)).load()
    except UnreadableFileError:
        raise
    except MemoryError as error:
        raise UnreadableFileError("refused: this pickle asks for too much memory") from error
    except Exception as error:  # pickle documents no closed set of errors for bad input
        raise UnreadableFileError(f"not a pickle, or truncated: {error}") from error


@contextmanager
def _bounded_memory(extra: int) -> Iterator[None]:
    """Lets this process grow by ``extra`` bytes at most (Linux; elsewhere without a bound)."""
    statm = Path("/proc/self/statm")
    if not statm.exists():
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    now = int(statm.read_text().split()[0]) * resource.getpagesize()
    bound = now + extra
    if soft != resource.RLIM_INFINITY:
        bound = min(bound, soft)
    resource.setrlimit(resource.RLIMIT_AS, (bound, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
