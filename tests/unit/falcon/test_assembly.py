"""Rows from several machines, in the ways in which they really arrive."""

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lineside.falcon.assembly import Assembler, AssemblyConfig


def rows(batch_of, rank, step, sent_s=0.0, **more):
    n = len(rank)
    ones = {"step_s": np.ones(n), "compute_s": np.ones(n), "micro_batches": np.ones(n)}
    sent = 1_000_000_000_000 + int(sent_s * 1e9)
    return batch_of(ones | {"rank": rank, "step": step} | more, sent_ns=sent)


def closed(world, **config):
    return Assembler(np.arange(world), closed=True, config=AssemblyConfig(**config))


def take(assembler, batch):
    assembler.add(batch)
    return [step.step for step in assembler.decided()]


def test_a_step_waits_for_every_rank(batch_of):
    two = closed(2)
    assert take(two, rows(batch_of, [0, 0], [1, 2])) == []
    assert take(two, rows(batch_of, [1], [1])) == [1]
    assert take(two, rows(batch_of, [1], [2])) == [2]


def test_a_rank_that_skipped_a_step_does_not_hold_it_up(batch_of):
    two = closed(2)
    take(two, rows(batch_of, [0, 0], [1, 2]))
    two.add(rows(batch_of, [1], [2]))
    first, second = two.decided()
    assert first.reported.tolist() == [True, False]
    assert np.isnan(first.step_s[1])
    assert second.reported.all()


def test_a_silent_rank_is_waited_for_ten_seconds_once(batch_of):
    three = closed(3)
    take(three, rows(batch_of, [0, 1, 2], [1, 1, 1]))
    decided = {}
    for second in range(2, 20):
        for step in take(three, rows(batch_of, [0, 1], [second] * 2, sent_s=second)):
            decided[step] = second
    assert decided[2] == 12
    assert decided[13] == 13  # from then on nobody waits
    assert three.reporting == 2
    # its next row, though late, brings it back
    assert take(three, rows(batch_of, [2], [5], sent_s=20)) == []
    assert three.counts["late"] == 1
    assert take(three, rows(batch_of, [0, 1], [20, 20], sent_s=20)) == []
    assert take(three, rows(batch_of, [2], [20], sent_s=20)) == [20]


def test_steps_in_waiting_are_bounded(batch_of):
    three = closed(3, ahead=5)
    decided = [s for step in range(20) for s in take(three, rows(batch_of, [0, 1], [step] * 2))]
    assert decided == list(range(20))[: len(decided)] and len(decided) >= 14


def test_a_clock_that_leaps_decides_nothing_early(batch_of):
    two = closed(2)
    take(two, rows(batch_of, [0, 1], [1, 1]))
    assert take(two, rows(batch_of, [0], [2], sent_s=1)) == []
    assert take(two, rows(batch_of, [0], [3], sent_s=86_400)) == []
    assert take(two, rows(batch_of, [1, 1], [2, 3], sent_s=2)) == [2, 3]


def test_a_stray_step_number_does_not_make_the_others_late(batch_of):
    three = closed(3)
    take(three, rows(batch_of, [0, 1, 2], [1, 1, 1]))
    take(three, rows(batch_of, [0], [10**15]))
    decided = []
    for step in range(2, 40):
        decided += take(three, rows(batch_of, [0, 1, 2], [step] * 3, sent_s=step))
    assert decided == list(range(2, 40))
    assert three.counts["partial"] == 1


def test_rows_that_belong_nowhere_are_counted(batch_of):
    two = closed(2)
    assert take(two, rows(batch_of, [0, 1, 2, 0], [1, 1, 1, -1])) == [1]
    assert two.counts["stray"] == 2


def test_what_was_said_first_stands(batch_of):
    one = closed(1)
    one.add(rows(batch_of, [0, 0], [1, 1], step_s=[2.0, 3.0]))
    (step,) = one.decided()
    assert step.step_s.tolist() == [2.0]
    assert one.counts["duplicate"] == 1


def test_without_a_mesh_new_ranks_join(batch_of):
    open_ended = Assembler(np.array([], np.int64), closed=False)
    assert take(open_ended, rows(batch_of, [5], [1])) == [1]
    assert take(open_ended, rows(batch_of, [5], [2])) == [2]
    assert take(open_ended, rows(batch_of, [3, 5, 2**31 - 1], [3, 3, 3])) == [3]
    assert open_ended.ranks.tolist() == [5, 3]
    assert open_ended.counts["stray"] == 1


@given(st.randoms(use_true_random=False), st.integers(1, 5), st.integers(1, 15))
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_any_order_of_machines_gives_the_same_steps(batch_of, random, world, steps):
    queues = [[rows(batch_of, [r], [s]) for s in range(steps)] for r in range(world)]
    assembler, decided = closed(world), []
    while any(queues):
        queue = random.choice([q for q in queues if q])
        decided += take(assembler, queue.pop(0))
    assert decided == list(range(steps))
    assert not assembler.counts["late"]
