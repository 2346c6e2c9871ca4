"""Who computes which micro-batches: the split of a step over the data-parallel replicas.

A step always trains on the same ``micro_batches`` micro-batches, cut contiguously by the replicas' shares.
With the loss summed and divided by the *global* number of tokens, a plain SUM of the replicas' gradients is
the same gradient for every split (FALCON, section 5.1, weights gradients to the same end).
"""

from collections.abc import Sequence
from itertools import accumulate

from lineside.contracts import Plan

MINIMUM = 1
"""A replica without work would be exact too, but then nobody could see that it has recovered."""


def even(micro_batches: int, replicas: int) -> list[int]:
    """As equal as can be, the remainder to the first replicas.

    >>> even(20, 3)
    [7, 7, 6]
    """
    share, extra = divmod(micro_batches, replicas)
    return [share + (replica < extra) for replica in range(replicas)]


def own(shares: Sequence[int], replica: int) -> range:
    """The micro-batches of ``replica`` within a step.

    >>> own([6, 6, 6, 2], 3)
    range(18, 20)
    """
    return range(sum(shares[:replica]), list(accumulate(shares))[replica])


def wanted(plan: Plan, micro_batches: int, replicas: int) -> list[int]:
    """The shares that ``plan`` asks for. Raises ValueError, saying why, where it cannot be carried out."""
    if plan.ring_orders:
        raise ValueError("this trainer cannot change ring orders")
    shares = list(plan.micro_batch_plan) or even(micro_batches, replicas)
    if len(shares) != replicas:
        raise ValueError(f"micro_batch_plan has {len(shares)} entries for {replicas} replicas")
    if sum(shares) != micro_batches:
        raise ValueError(f"micro_batch_plan sums to {sum(shares)}, a step has {micro_batches}")
    if min(shares) < MINIMUM:
        raise ValueError(f"micro_batch_plan gives a replica {min(shares)}, at least {MINIMUM} each")
    return shares
