from lineside.contracts import CollectiveBatch, Job, pack
from lineside.contracts.columns import column_specs
from lineside.mycroft.detector import MycroftDetector
from lineside.mycroft.processor import PROCESSOR


def batch(sequence: int, incarnation: str = "a", dropped: int = 0) -> CollectiveBatch:
    values: dict[str, object] = {name: [] for name in column_specs(CollectiveBatch)}
    values |= dict(
        job_id="j",
        run_id="r",
        generation=0,
        machine_id="m",
        incarnation=incarnation,
        sequence=sequence,
        dropped=dropped,
        sent_ns=0,
        clock_offset_ns=-1,
        clock_error_ns=-1,
    )
    values |= dict(group_id=[], oldest_open_op=[], timing=[])
    return pack(CollectiveBatch, values)


def test_counts_batches_and_says_what_is_missing() -> None:
    detector = MycroftDetector()
    for sequence in (4, 5, 8):
        assert detector.observe(batch(sequence, dropped=1), 0) == []
    sender = detector.senders["m"]
    assert (sender.batches, sender.missing, sender.dropped) == (3, 2, 3)


def test_a_restarted_agent_counts_from_its_first_batch() -> None:
    detector = MycroftDetector()
    detector.observe(batch(7), 0)
    detector.observe(batch(0, incarnation="b"), 0)
    assert detector.senders["m"].missing == 0


def test_a_job_changes_no_count() -> None:
    detector = MycroftDetector()
    assert detector.observe(Job(job_id="j", run_id="r"), 0) == []
    assert detector.senders == {}


def test_a_snapshot_continues_where_it_stood() -> None:
    detector, copy = MycroftDetector(), PROCESSOR.make("j")
    detector.observe(batch(1), 0)
    copy.restore(detector.snapshot())
    copy.observe(batch(2), 0)
    detector.observe(batch(2), 0)
    assert copy.snapshot() == detector.snapshot()
