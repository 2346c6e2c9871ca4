"""Records on disk: whole, in order, bounded, and there again after a crash."""

import random
from pathlib import Path

from lineside.agent.spool import Spool
from lineside.contracts import TopicName, WireMessage


def record(number: int, size: int = 50) -> WireMessage:
    return WireMessage(
        topic=TopicName.STEPS,
        partition=3,
        key=b"gpt",
        value=b"%d" % number + b"." * size,
        headers=(("schema", b"steps.1"),),
    )


def drain(spool: Spool) -> list[int]:
    numbers = []
    while (kept := spool.first()) is not None:
        numbers.append(int(kept.message().value.rstrip(b".")))
        spool.done()
    return numbers


def test_records_come_back_as_they_were(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool", 10_000)
    assert spool.first() is None and not (tmp_path / "spool").exists()
    spool.put(record(1), rows=7)
    kept = spool.first()
    assert kept is not None and kept.message() == record(1) and kept.rows == 7
    assert spool.first() == kept and len(spool) == 1, "it stays until it is done with"
    spool.done()
    assert spool.first() is None and len(spool) == 0 and spool.size == 0


def test_reading_and_writing_take_turns_in_any_way(tmp_path: Path) -> None:
    dice = random.Random(5)
    spool = Spool(tmp_path, 20_000)
    written, read = 0, []
    for _ in range(600):
        if dice.random() < 0.55:
            spool.put(record(written, dice.randrange(300)), rows=1)
            written += 1
        elif (kept := spool.first()) is not None:
            read.append(int(kept.message().value.rstrip(b".")))
            spool.done()
        if dice.random() < 0.05:
            spool = Spool(tmp_path, 20_000)  # the agent died and came back
        assert len(spool) == written - len(read)
    assert read + drain(spool) == list(range(written))
    assert sum(spool.take_dropped().values()) == 0


def test_the_oldest_go_beyond_the_bound_and_every_row_is_counted(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 4_000)
    for number in range(500):
        spool.put(record(number), rows=2)
        assert spool.size <= 4_000
        assert sum(path.stat().st_size for path in tmp_path.iterdir()) == spool.size
    left = drain(spool)
    assert left == list(range(left[0], 500)) and len(left) > 30
    assert spool.take_dropped() == {TopicName.STEPS: 2 * left[0]}


def test_a_record_cut_off_by_a_crash_is_not_read_and_later_ones_are(tmp_path: Path) -> None:
    spool = Spool(tmp_path, 100_000)
    for number in range(3):
        spool.put(record(number), rows=1)
    (segment,) = tmp_path.iterdir()
    segment.write_bytes(segment.read_bytes()[:-5])
    spool = Spool(tmp_path, 100_000)
    assert len(spool) == 2
    spool.put(record(3), rows=1)
    assert drain(spool) == [0, 1, 3]


def test_bytes_of_others_are_passed_over(tmp_path: Path) -> None:
    (tmp_path / "00000001.spool").write_bytes(b"abc")
    (tmp_path / "00000002.spool").write_bytes(bytes(8) + b"\xff" * 100)
    (tmp_path / "notes.spool").write_text("not ours")
    spool = Spool(tmp_path, 100_000)
    spool.put(record(0), rows=1)
    assert drain(spool) == [0]
    assert [path.name for path in tmp_path.iterdir()] == ["notes.spool"]
