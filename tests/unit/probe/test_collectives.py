"""Progress per group: sequences, the oldest open operation, times."""

from collections.abc import Callable
from typing import Any

import pytest

from lineside.probe.layout import OP_CODES


def only(reader: Any) -> Any:
    (row,) = reader.groups()
    return row


def test_an_operation_from_enqueued_to_completed(opened: Callable[..., Any]) -> None:
    probe, reader = opened()
    ticket = probe.enqueue("dp:1", "all_reduce", 4096)
    row = only(reader)
    assert row["name"] == b"dp:1"
    assert (row["enqueued_seq"], row["started_seq"], row["completed_seq"]) == (1, 0, 0)
    assert (row["oldest_open_seq"], row["oldest_open_op"]) == (1, OP_CODES["all_reduce"])
    assert (row["oldest_open_bytes"], row["open_count"]) == (4096, 1)
    assert row["last_started_ns"] == -1
    probe.started(ticket)
    row = only(reader)
    assert row["started_seq"] == 1 and row["oldest_open_since_ns"] == row["last_started_ns"]
    probe.completed(ticket)
    probe.completed(ticket)
    row = only(reader)
    assert (row["completed_seq"], row["completed_ops"], row["completed_bytes"]) == (1, 1, 4096)
    assert (row["open_count"], row["oldest_open_seq"], row["oldest_open_since_ns"]) == (0, -1, -1)
    assert row["op_time_ns"] == row["last_completed_ns"] - row["last_started_ns"]
    assert row["window_max_ns"] == row["op_time_ns"]


def test_the_oldest_open_one_is_what_the_rank_waits_in(opened: Callable[..., Any]) -> None:
    probe, reader = opened()
    tickets = [probe.enqueue("dp:1", "send", n) for n in range(3)]
    probe.completed(tickets[0])
    probe.completed(tickets[2])
    row = only(reader)
    assert (row["enqueued_seq"], row["completed_seq"]) == (3, 3)
    assert (row["oldest_open_seq"], row["oldest_open_bytes"], row["open_count"]) == (2, 1, 1)


def test_one_that_raised_stays_open_until_a_later_one_completes(opened: Callable[..., Any]) -> None:
    probe, reader = opened()
    with pytest.raises(RuntimeError), probe.collective("dp:1", "all_reduce", 8):
        raise RuntimeError("connection reset")
    assert only(reader)["oldest_open_seq"] == 1
    with probe.collective("dp:1", "all_reduce", 8):
        assert only(reader)["open_count"] == 2
    row = only(reader)
    assert (row["open_count"], row["completed_ops"], row["completed_seq"]) == (0, 1, 2)


def test_more_groups_or_open_operations_than_fit_are_counted(opened: Callable[..., Any]) -> None:
    probe, reader = opened(group_slots=1)
    for _ in range(1025):
        probe.enqueue("dp:1", "something new", 1)
    with probe.collective("pp:1", "send", 1), probe.collective("x" * 41, "send", 1):
        pass
    assert reader.lost() == 3
    row = only(reader)
    assert (row["enqueued_seq"], row["open_count"], row["oldest_open_seq"]) == (1025, 1024, 1)
    assert row["oldest_open_op"] == OP_CODES["other"]
