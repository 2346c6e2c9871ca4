"""Plain values and arrays as bytes and back, exactly: what a detector's memory is written in."""

from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

_ARRAY = 1


def dump(state: Any) -> bytes:
    """``state`` (dicts, lists, numbers, strings, bytes, arrays) as MessagePack.

    >>> load(dump({"a": np.arange(3, dtype="<i4"), "b": [None, 0.1]}))
    {'a': array([0, 1, 2], dtype=int32), 'b': [None, 0.1]}
    """
    return msgspec.msgpack.encode(state, enc_hook=_encode)


def load(data: bytes) -> Any:
    """The reverse of ``dump``; arrays are writable, tuples come back as lists."""
    return msgspec.msgpack.decode(data, ext_hook=_decode)


def _encode(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        head = (value.dtype.str, value.shape, value.tobytes())
        return msgspec.msgpack.Ext(_ARRAY, msgspec.msgpack.encode(head))
    if isinstance(value, np.generic):
        return value.item()
    raise NotImplementedError(f"{type(value)} has no place in a snapshot")


def _decode(code: int, data: memoryview) -> NDArray[Any]:
    dtype, shape, raw = msgspec.msgpack.decode(data)
    return np.frombuffer(raw, dtype).reshape(shape).copy()
