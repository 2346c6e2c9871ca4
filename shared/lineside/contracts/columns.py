"""Columns: equal-length arrays that travel as packed little-endian blobs.

A batch of telemetry is a Struct whose fields are either scalars (who sent it) or columns. A column's
element type stands in its annotation, so packing, unpacking, checking, recording and the documentation
all follow from the Struct definition and cannot drift from it (measured: a packed blob decodes 25 times
faster than a list of floats).
"""

import functools
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

import msgspec
import numpy as np
from numpy.typing import ArrayLike, NDArray

from lineside.contracts.errors import InvalidRecord


class ColumnSpec(msgspec.Struct, frozen=True):
    """How one column is packed and what its values may be.

    ``minimum`` is the smallest allowed value (None: any); for floats NaN always means unknown and is
    allowed, infinities never are. ``rows``: the name of the columns that must be equally long.
    """

    dtype: str
    minimum: float | None = None
    rows: str = "rows"


def column(dtype: str, minimum: float | None = None, rows: str = "rows") -> Any:
    return Annotated[bytes, msgspec.Meta(extra={"column": ColumnSpec(dtype, minimum, rows)})]


U8 = column("u1")
F32 = column("<f4")
RankColumn = column("<i4", 0)
"""A global rank; never unknown."""
CountColumn = column("<i8", -1)
"""A count, sequence or time in ns; -1 is unknown."""
SmallCountColumn = column("<i4", -1)
DurationColumn = column("<f4", 0)
"""Seconds; NaN is unknown, negative is impossible."""
MatrixColumn = column("<f4", None, rows="matrix")
"""A float32 matrix, C order, whose shape follows from another field."""

B = TypeVar("B", bound="TelemetryBatch")


class TelemetryBatch(msgspec.Struct, frozen=True, array_like=True):
    """What every telemetry batch says of its sender.

    ``incarnation`` is random at agent start; ``sequence`` has no gaps within one; ``dropped`` counts the
    records lost since the batch before. Clock fields are -1 where no reference was measured.
    """

    job_id: str
    run_id: str
    generation: int
    machine_id: str
    incarnation: str
    sequence: int
    dropped: int
    sent_ns: int
    clock_offset_ns: int
    clock_error_ns: int


@functools.cache
def column_specs(kind: type[msgspec.Struct]) -> dict[str, ColumnSpec]:
    """The packed columns of a Struct type, by field name, in wire order."""
    found = {}
    for name, hint in get_type_hints(kind, include_extras=True).items():
        if get_origin(hint) is Annotated:
            for meta in get_args(hint)[1:]:
                if isinstance(meta, msgspec.Meta) and meta.extra and "column" in meta.extra:
                    found[name] = meta.extra["column"]
    return found


def pack(kind: type[B], values: Mapping[str, Any]) -> B:
    """A batch of type ``kind``; array-likes given for columns are packed, the rest is taken as it is.

    Raises ``InvalidRecord`` for a value that breaks the contract: what we send is held to the same rules
    as what we receive.
    """
    specs = column_specs(kind)
    packed: dict[str, Any] = {
        name: np.ascontiguousarray(value, dtype=specs[name].dtype).tobytes()
        if name in specs
        else value
        for name, value in values.items()
    }
    batch = kind(**packed)
    if reason := invalid_reason(batch):
        raise InvalidRecord(reason)
    return batch


def unpack(kind: type[msgspec.Struct], name: str, blob: bytes) -> NDArray[Any]:
    """One column as a read-only array."""
    return np.frombuffer(blob, dtype=column_specs(kind)[name].dtype)


def columns(batch: msgspec.Struct) -> dict[str, NDArray[Any]]:
    """Every packed column of ``batch`` as a read-only array, without a copy."""
    kind = type(batch)
    return {name: unpack(kind, name, getattr(batch, name)) for name in column_specs(kind)}


def invalid_reason(batch: msgspec.Struct) -> str | None:
    """Why ``batch`` breaks the contract, or None. Checks lengths, ranges and infinities of its columns,
    and whatever the type itself adds in ``check()``."""
    lengths: dict[str, tuple[str, int]] = {}
    kind = type(batch)
    for name, spec in column_specs(kind).items():
        blob = getattr(batch, name)
        if len(blob) % np.dtype(spec.dtype).itemsize:
            return f"{name}: {len(blob)} bytes are no whole number of {spec.dtype} values"
        values = unpack(kind, name, blob)
        first, n = lengths.setdefault(spec.rows, (name, len(values)))
        if len(values) != n:
            return f"{name} has {len(values)} rows, {first} has {n}"
        if values.dtype.kind == "f" and np.isinf(values).any():
            return f"{name} holds an infinity"
        if spec.minimum is not None and (values < spec.minimum).any():
            return f"{name} holds {np.nanmin(values)}, below {spec.minimum:g}"
    check = getattr(batch, "check", None)
    return check() if check else None


def plain_column(array: ArrayLike) -> list[Any]:
    """A column as a JSON list: NaN becomes None."""
    values = np.asarray(array)
    if values.dtype.kind != "f":
        return list(values.tolist())
    # float32 shown by its shortest decimal: 0.1 and not 0.10000000149011612
    return [None if np.isnan(v) else float(str(v)) for v in values]


def packed_column(spec: ColumnSpec, values: list[Any]) -> bytes:
    """The reverse of ``plain_column``. Raises ``InvalidRecord`` where a value does not fit the type."""
    try:
        return np.array(
            [np.nan if v is None else v for v in values], dtype=np.dtype(spec.dtype)
        ).tobytes()
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidRecord(str(error)) from error
