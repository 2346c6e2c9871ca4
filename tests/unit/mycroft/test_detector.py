"""MycroftDetector counts its own batches and nothing else."""

import msgspec
from tests.contract.examples import COLLECTIVES

from lineside.contracts import Job
from lineside.mycroft.detector import MycroftDetector
from lineside.mycroft.processor import PROCESSOR


def test_counts_its_batches_and_a_job_changes_no_count() -> None:
    detector = MycroftDetector()
    assert detector.observe(Job(job_id="j", run_id="r"), 0) == []
    assert detector.senders.by_machine == {}
    assert detector.observe(COLLECTIVES, 0) == []
    assert detector.senders.by_machine[COLLECTIVES.machine_id].batches == 1


def test_a_snapshot_continues_where_it_stood() -> None:
    detector, copy = MycroftDetector(), PROCESSOR.make("j")
    detector.observe(COLLECTIVES, 0)
    copy.restore(detector.snapshot())
    following = msgspec.structs.replace(COLLECTIVES, sequence=COLLECTIVES.sequence + 2)
    copy.observe(following, 0)
    detector.observe(following, 0)
    assert copy.snapshot() == detector.snapshot()
    assert detector.senders.by_machine[COLLECTIVES.machine_id].missing == 1
