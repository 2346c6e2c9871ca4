"""Who is who on the wire: ids, group ids, and which partition a job lives on."""

import hashlib
import struct
from collections.abc import Iterable
from typing import NewType

JobId = NewType("JobId", str)
"""The user's name for a job; may be reused by a later run."""
RunId = NewType("RunId", str)
"""One submission of a job (a UUID)."""
MachineId = NewType("MachineId", str)
Rank = NewType("Rank", int)
"""Global rank; means something only within its generation."""


def group_id(kind: str, ranks: Iterable[int]) -> str:
    """``<kind>:<first 16 hex of SHA-256 of the sorted ranks as little-endian u32>``.

    The same ranks give the same id in any order and in any library's naming.

    >>> group_id("dp", [2, 0]) == group_id("dp", [0, 2])
    True
    >>> group_id("dp", [0, 2])
    'dp:2fcd151b8295e8b3'
    """
    ordered = sorted(ranks)
    digest = hashlib.sha256(struct.pack(f"<{len(ordered)}I", *ordered)).hexdigest()
    return f"{kind}:{digest[:16]}"


def p2p_group_id(sender: int, receiver: int) -> str:
    """Point-to-point traffic has a sequence of its own per ordered pair.

    >>> p2p_group_id(3, 4)
    'p2p:3:4'
    """
    return f"p2p:{sender}:{receiver}"


def partition_of(job_id: str, partitions: int) -> int:
    """The partition that holds ``job_id`` on every topic: Kafka's murmur2 modulo ``partitions``.

    The one place to change should a huge job ever be spread over shards.

    >>> partition_of("gpt", 12)
    6
    """
    return (_murmur2(job_id.encode()) & 0x7FFFFFFF) % partitions


def _murmur2(data: bytes) -> int:
    """Kafka's 32-bit murmur2 (seed 0x9747b28c), as in org.apache.kafka.common.utils.Utils."""
    mask, m = 0xFFFFFFFF, 0x5BD1E995
    h = 0x9747B28C ^ len(data)
    whole = len(data) & ~3
    for (k,) in struct.iter_unpack("<I", data[:whole]):
        k = k * m & mask
        k ^= k >> 24
        h = (h * m & mask) ^ (k * m & mask)
    tail = data[whole:]
    if tail:
        h ^= int.from_bytes(tail, "little")
        h = h * m & mask
    h ^= h >> 13
    h = h * m & mask
    return h ^ (h >> 15)
