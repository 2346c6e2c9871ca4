"""Does a split of micro-batches fit the job? What a person asks for is held to what the planner obeys."""

from collections.abc import Sequence

from lineside.contracts import Job


def broken_limit(job: Job, counts: Sequence[int]) -> str | None:
    """The first limit of ``job`` that ``counts`` (one per replica) breaks, as a sentence; None: it fits."""
    limits = job.micro_batch_limits
    if len(counts) != job.replicas:
        return f"the plan has {len(counts)} counts, the job {job.replicas} replicas"
    if sum(counts) != job.micro_batches:
        return f"the counts add up to {sum(counts)}, a step has {job.micro_batches} micro-batches"
    for replica, count in enumerate(counts):
        if count < limits.min:
            return f"replica {replica} gets {count} micro-batches, at least {limits.min} are needed"
        if 0 <= limits.max < count:
            return f"replica {replica} gets {count} micro-batches, at most {limits.max} fit"
        if count % limits.multiple:
            return f"replica {replica} gets {count} micro-batches, no multiple of {limits.multiple}"
    for unit in job.rebalance_units:
        if len({counts[replica] for replica in unit}) > 1:
            return f"replicas {unit} must get equal counts"
    return None
