"""A recording through a detector's core: no Kafka, no clock, as fast as the core goes."""

from collections.abc import Callable, Iterable, Iterator

from lineside.contracts import Fault, JobHealth
from lineside.contracts.codec import job_of
from lineside.diagnose.recording import Recorded
from lineside.stream.detector import JobDetector


def replay(
    records: Iterable[Recorded], make: Callable[[str], JobDetector]
) -> Iterator[Fault | JobHealth]:
    """What the detector says of ``records``, which are taken in the order of their append times.

    ``now_ns`` is the largest append time seen in a partition, as in the stream processor, so the faults that
    come out have the ids that the live run raised.
    """
    detectors: dict[str, JobDetector] = {}
    now_ns: dict[int, int] = {}
    for item in sorted(records, key=lambda item: item.log_order):
        now = max(now_ns.get(item.partition, 0), item.timestamp_ms * 1_000_000)
        now_ns[item.partition] = now
        if item.record is None:
            continue
        job = job_of(item.record)
        if job not in detectors:
            detectors[job] = make(job)
        yield from detectors[job].observe(item.record, now)
