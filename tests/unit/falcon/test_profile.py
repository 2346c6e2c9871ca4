"""Peers and the replica model, against brute force and a simulated pipeline."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lineside.contracts import Device, Job, Machine, Mesh
from lineside.falcon.assembly import DecidedStep
from lineside.falcon.profile import (
    ReplicaModel,
    excess_over_peers,
    per_replica,
    unit_costs,
)
from lineside.falcon.robust import median, spread
from lineside.falcon.topology import of_job, of_ranks

values = st.one_of(st.floats(-100, 100, allow_nan=False), st.just(float("nan")))


@given(st.lists(st.lists(values, min_size=5, max_size=5), min_size=1, max_size=6))
def test_median_ignores_the_unknown(rows):
    for row, found in zip(rows, median(rows), strict=True):
        known = [v for v in row if v == v]
        expected = np.median(known) if known else np.nan
        np.testing.assert_allclose(found, expected)


def test_nothing_known_has_no_median_and_no_spread():
    assert np.isnan(median(np.empty((2, 0)))).all()
    assert np.isnan(spread([np.nan, np.nan]))


@given(st.lists(values, min_size=1, max_size=12), st.integers(1, 4))
def test_excess_is_against_the_median_of_the_others(costs, width):
    cost = np.array(costs)
    groups = [list(range(i, min(i + width, len(costs)))) for i in range(0, len(costs), width)]
    classes = np.array([g + [-1] * (width - len(g)) for g in groups])
    found = excess_over_peers(cost, classes)
    for group in groups:
        for series in group:
            others = [costs[o] for o in group if o != series and costs[o] == costs[o]]
            expected = costs[series] - np.median(others) if others else np.nan
            np.testing.assert_allclose(found[series], expected, atol=1e-9)


def decided(compute, micro, tokens):
    n = len(compute)
    unknown = np.full(n, np.nan)
    return DecidedStep(
        step=1,
        reported=np.ones(n, bool),
        start_ns=np.zeros(n, np.int64),
        step_s=unknown,
        compute_s=np.array(compute, float),
        micro_batches=np.array(micro, float),
        tokens=np.array(tokens, float),
        phase=np.zeros(n),
        revision=np.zeros(n),
    )


def test_unit_costs_divide_by_work():
    everyone = np.ones(3, bool)
    plain = unit_costs(decided([1.0, 2.0, 3.0], [1, 2, 1], [-1, -1, -1]), everyone)
    np.testing.assert_allclose(plain, [1, 1, 3])
    # the third had three times the tokens: it is as fast as the others
    weighed = unit_costs(decided([1.0, 2.0, 3.0], [1, 2, 1], [10, 20, 30]), everyone)
    np.testing.assert_allclose(weighed, [1, 1, 1])


def test_unit_costs_of_nonsense_are_unknown():
    step = decided([0.0, -1.0, np.nan, 1.0, 1.0, 1.0], [1, 1, 1, 0, -1, 1], [-1] * 6)
    found = unit_costs(step, np.array([True] * 5 + [False]))
    assert np.isnan(found).all()


def test_peers_share_stage_and_hardware():
    job = Job(
        job_id="j",
        run_id="r",
        mesh=Mesh(["dp", "pp", "tp"], [3, 2, 2]),
        machines=[
            Machine("a", "a", "H100", devices=[Device(r, r, str(r)) for r in range(8)]),
            Machine("b", "b", "A100", devices=[Device(r, r - 8, str(r)) for r in range(8, 12)]),
        ],
    )
    topology = of_job(job)
    assert sorted(topology.peers(0).tolist()) == [1, 4, 5]
    assert sorted(topology.peers(8).tolist()) == [9]
    assert topology.cells[1].tolist() == [[4, 5], [6, 7]]
    assert not topology.lonely.any()


def test_ranks_without_a_peer_are_compared_with_each_other():
    topology = of_job(Job(job_id="j", run_id="r", mesh=Mesh(["dp", "pp"], [1, 4])))
    assert topology.lonely.all()
    assert topology.peers(2).tolist() == [0, 1, 3]


@pytest.mark.parametrize("sizes", [[], [10**6, 10**6]])
def test_no_plausible_mesh_is_no_topology(sizes):
    mesh = Mesh(["dp", "pp"][: len(sizes)], sizes)
    assert of_job(Job(job_id="j", run_id="r", mesh=mesh)) is None


def test_per_replica_takes_the_largest():
    topology = of_job(Job(job_id="j", run_id="r", mesh=Mesh(["dp", "pp"], [2, 2])))
    found = per_replica(np.array([1.0, 2.0, np.nan, np.nan]), topology)
    np.testing.assert_array_equal(found, [2.0, np.nan])


def one_forward_one_backward(unit, micro_batches, rng, noise):
    """Seconds that one replica's pipeline takes; ``unit`` (stages,): a third forward, the rest backward."""
    stages = len(unit)
    orders = []
    for s in range(stages):
        warm = min(stages - 1 - s, micro_batches)
        order = [("f", m) for m in range(warm)]
        for m in range(micro_batches - warm):
            order += [("f", warm + m), ("b", m)]
        orders.append(order + [("b", m) for m in range(micro_batches - warm, micro_batches)])
    done, free, at = {}, np.zeros(stages), [0] * stages
    while any(at[s] < len(orders[s]) for s in range(stages)):
        for s in range(stages):
            while at[s] < len(orders[s]):
                kind, m = orders[s][at[s]]
                before = (kind, m, s - 1) if kind == "f" else (kind, m, s + 1)
                first = s == 0 if kind == "f" else s == stages - 1
                if not first and before not in done:
                    break
                cost = unit[s] * (1 / 3 if kind == "f" else 2 / 3) * max(rng.normal(1, noise), 0.2)
                free[s] = max(free[s], 0.0 if first else done[before]) + cost
                done[(kind, m, s)] = free[s]
                at[s] += 1
    return free.max()


@pytest.mark.parametrize("noise", [0.0, 0.05])
@pytest.mark.parametrize("slow", [1.0, 1.5, 2.5])
def test_the_model_predicts_a_pipelines_step_for_another_split(noise, slow):
    """Calibrated on the even split, right within 4 % for the split that a planner would choose."""
    rng = np.random.default_rng(7)
    topology = of_job(Job(job_id="j", run_id="r", mesh=Mesh(["dp", "pp"], [4, 3])))
    unit = np.full((4, 3), 0.02)
    rest = 0.03

    def measure(micro, units):
        steps = [
            max(one_forward_one_backward(units[d], micro[d], rng, noise) for d in range(4))
            for _ in range(9)
        ]
        return np.array(steps) + rest

    even = [8, 8, 8, 8]
    healthy = ReplicaModel.of_units(unit.ravel(), topology, np.array(even, float)).calibrated(
        np.array([even] * 9, float), measure(even, unit)
    )
    unit[1, 1] *= slow
    now = ReplicaModel.of_units(unit.ravel(), topology, np.array(even, float))
    model = ReplicaModel(now.unit_s, now.fill_s, healthy.rest_s)
    for split in ([8, 8, 8, 8], [9, 5, 9, 9], [10, 3, 10, 9]):
        true = float(np.median(measure(split, unit)))
        predicted = float(model.predict(np.array(split, float)))
        assert abs(predicted / true - 1) < 0.04, (split, predicted, true)
        from_evidence = max(
            f + u * m for f, u, m in zip(model.fixed_s, model.unit_s, split, strict=True)
        )
        assert from_evidence == pytest.approx(predicted)


def test_an_unmeasured_replica_is_taken_for_a_usual_one():
    topology = of_job(Job(job_id="j", run_id="r", mesh=Mesh(["dp", "pp"], [3, 1])))
    model = ReplicaModel.of_units(np.array([1.0, np.nan, 1.2]), topology, np.full(3, 4.0))
    np.testing.assert_allclose(model.unit_s, [1.0, 1.1, 1.2])


def test_ranks_alone_are_one_class_and_their_own_replicas():
    topology = of_ranks([7, 3])
    assert topology.peers(0).tolist() == [1]
    assert not topology.meshed and topology.cells.shape == (2, 1, 1)
