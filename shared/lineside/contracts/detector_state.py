"""``detector-state.v1``: a detector's memory of one job, or how far a partition has been read."""

import msgspec


class DetectorState(msgspec.Struct, frozen=True, array_like=True, tag="detector-state.1"):
    """Key ``<detector>/<job_id>``: ``state`` holds a byte 0 and the core's snapshot, or a byte 1 and how many
    parts it was cut into and their checksum; ``offsets`` the next offset, per input topic (without prefix),
    that it has not applied. Key ``<detector>/cursor/<partition>``: below ``offsets`` every record is in some
    job's state, and ``state`` says which versions of those states it was written after. Key
    ``<detector>/part/<checksum>/<number>/<job_id>``: the bytes of one part, without this type around them.
    """

    offsets: dict[str, int]
    state: bytes = b""
    now_ns: int = -1
