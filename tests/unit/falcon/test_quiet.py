"""Healthy jobs on noisy hosts: how often somebody is accused (prints the count)."""

import numpy as np
import pytest

from lineside.contracts import Job, Mesh
from lineside.falcon.history import History
from lineside.falcon.profile import excess_over_peers
from lineside.falcon.topology import of_job
from lineside.falcon.tracking import Change, Tracker

STEPS = 1200


def onsets(dp, pp, noise, seed, shared=0.0):
    """Student-t(3) noise, ``noise`` its CV; ``shared`` hits all ranks alike."""
    rng = np.random.default_rng(seed)
    topology = of_job(Job(job_id="j", run_id="r", mesh=Mesh(["dp", "pp"], [dp, pp])))
    history, tracker = History(topology.size, dp), Tracker(topology.size)
    cost = 1 + noise * rng.standard_t(3, (STEPS, topology.size)) / np.sqrt(3)
    cost *= np.exp(shared * rng.standard_t(3, (STEPS, 1)) / np.sqrt(3))
    found = 0
    for step, unit in enumerate(np.log(np.clip(cost, 0.4, None))):
        history.push(
            cost=unit,
            excess=excess_over_peers(unit, topology.classes),
            micro_batches=np.full(dp, 8.0),
            step_s=1.0,
            step=step,
            start_ns=step,
        )
        changes = tracker.advance(history, topology)
        found += sum(change is Change.ONSET for change, _ in changes)
    return found


@pytest.mark.parametrize(
    ("dp", "pp", "noise", "shared"),
    [(4, 8, 0.05, 0.0), (4, 8, 0.10, 0.0), (4, 8, 0.17, 0.0), (16, 4, 0.17, 0.0), (8, 4, 0.1, 0.2)],
)
def test_heavy_tailed_noise_accuses_nobody(dp, pp, noise, shared):
    found = sum(onsets(dp, pp, noise, seed, shared) for seed in range(2))
    print(f"{found} onsets in {2 * STEPS * dp * pp} healthy rank-steps at CV {noise}")
    assert found == 0
