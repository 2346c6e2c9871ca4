"""A rank without torch: steps of a fixed time, one collective each, and plans taken at step boundaries."""

import argparse
import signal
import sys
import time

from lineside.contracts import Capabilities, Mesh
from lineside.probe import Probe

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=100_000)
parser.add_argument("--world", type=int, default=1)
parser.add_argument("--deaf", action="store_true", help="ignore SIGTERM")
options = parser.parse_args()
if options.deaf:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)

probe = Probe.attach()
probe.declare(
    mesh=Mesh(["dp"], [options.world]), micro_batches=8, capabilities=Capabilities(rebalance=True)
)
print("warming up", file=sys.stderr, flush=True)
for step in range(options.steps):
    with probe.step(step, micro_batches=2, tokens=64) as s:
        with probe.phase("compute"):
            time.sleep(0.01)
        with probe.phase("comm"), probe.collective("dp:test", "all_reduce", 1024):
            time.sleep(0.01)
        s.loss = 1.0 / (step + 1)
    # Each rank decides alone here: a world of one agrees with itself.
    if plan := probe.agreed(probe.agreement(probe.plan()), 1):
        probe.applied(plan.revision, step + 1)
print("done", flush=True)
