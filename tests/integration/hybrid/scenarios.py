"""What the ranks of a test do, in one launch per group of tests; see ``ranks.py``."""

import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import torch
import torch.distributed as dist

from lineside.contracts import Plan, PlanKind
from lineside.hybrid.data import Corpus
from lineside.hybrid.flat import FlatAdamW
from lineside.hybrid.grid import Grid
from lineside.hybrid.model import ModelConfig, Stage
from lineside.hybrid.trainer import Trainer, TrainerConfig
from lineside.probe import Probe

STEPS = 15
SMALL = TrainerConfig(
    micro_batches=6,
    dtype="float64",
    model=ModelConfig(layers=4, width=16, heads=2, sequence=16),
)
"""float64, so that "the same training" can be held to 1e-12."""


class NaiveTrainer(Trainer):
    """Wrong: each replica takes the mean over its own micro-batches, then the plain mean over replicas."""

    def reduce_gradients(self) -> None:
        own = self.shares[self._grid.replica]
        self.optimizer.gradients.mul_(sum(self.shares) / (own * len(self.shares)))
        super().reduce_gradients()


def plain_training() -> tuple[list[float], list[float]]:
    """The oracle: one process, the whole model, all samples of a step in one batch; losses and norms."""
    module = Stage(SMALL.model, 0, 1, SMALL.seed).double()
    optimizer = FlatAdamW(module, SMALL.learning_rate)
    corpus = Corpus(SMALL.model.sequence, SMALL.seed)
    samples = SMALL.micro_batches * SMALL.samples
    losses, norms = [], []
    for step in range(STEPS):
        inputs, targets = corpus.batch(range(step * samples, (step + 1) * samples))
        optimizer.zero_gradients()
        loss = module(inputs, targets) / inputs.numel()
        torch.autograd.backward(loss)
        losses.append(loss.item())
        norms.append(float(optimizer.gradients.norm()))
        optimizer.step()
    return losses, norms


def trajectories(folder: Path) -> dict[str, Any]:
    """The same training under several splits, each from scratch, in the same four processes."""
    grids = {shape: Grid.join(*shape, timedelta(seconds=60)) for shape in ((2, 2), (1, 4), (4, 1))}
    losses: dict[str, list[float]] = {}
    norms: dict[str, list[float]] = {}
    values: dict[str, torch.Tensor] = {}

    def train(
        name: str,
        split: Callable[[int], list[int]],
        shape: tuple[int, int] = (2, 2),
        kind: type[Trainer] = Trainer,
    ) -> None:
        trainer = kind(SMALL, grids[shape], Probe(None))
        losses[name], norms[name] = [], []
        for step in range(STEPS):
            trainer.shares = split(step)
            result = trainer.step()
            losses[name].append(result.loss)
            norms[name].append(result.grad_norm)
        values[name] = trainer.optimizer.values

    changing = [[3, 3], [1, 5], [4, 2], [6, 0]]
    train("even", lambda step: [3, 3])
    train("uneven", lambda step: [5, 1])
    train("changing", lambda step: changing[step % 4])
    train("naive", lambda step: [5, 1], kind=NaiveTrainer)
    train("deep", lambda step: [6], (1, 4))
    train("wide", lambda step: [2, 1, 2, 1], (4, 1))
    losses["plain"], norms["plain"] = plain_training()
    return {
        "losses": losses,
        "norms": norms,
        "apart": {
            name: float((values[name] - values["even"]).abs().max())
            for name in ("uneven", "changing", "naive")
        },
        "compiler_imported": "torch._dynamo" in sys.modules or "sympy" in sys.modules,
    }


def plan(revision: int, shares: list[int]) -> Plan:
    return Plan(
        job_id="job",
        run_id="run",
        revision=revision,
        base_generation=0,
        base_revision=0,
        generation=0,
        issued_ns=0,
        valid_until_ns=0,
        kind=PlanKind.REBALANCE,
        micro_batch_plan=shares,
    )


def plans(folder: Path) -> dict[str, Any]:
    """Four ranks on four "machines" that hand them the same plans at different steps."""
    rank = dist.get_rank()
    machine = folder / f"machine.{rank}"
    machine.mkdir()
    probe = Probe.create(machine, rank)
    trainer = Trainer(SMALL, Grid.join(2, 2, timedelta(seconds=60)), probe)
    arrivals = {2 + rank: plan(1, [5, 1]), 9: plan(2, [5, 5]), 12: plan(3, [])}
    in_force, losses = [], []
    for step in range(STEPS):
        if step in arrivals:
            draft = machine / "draft"
            draft.write_bytes(msgspec.json.encode(arrivals[step]))
            draft.rename(machine / "plan")
        in_force.append(trainer.shares)
        losses.append(trainer.step().loss)
    return {"in_force": in_force, "losses": losses}


def until_stopped(folder: Path) -> dict[str, Any]:
    """Padded training, 2 x 2, recorded in ``folder``, until one rank finds the file ``stop``."""
    model = ModelConfig(layers=2, width=16, heads=2, sequence=16)
    config = TrainerConfig(micro_batches=6, pad_ms=10.0, model=model)
    rank = dist.get_rank()
    probe = Probe.create(folder, rank)
    trainer = Trainer(config, Grid.join(2, 2, timedelta(seconds=60)), probe)
    while not trainer.step(stop=rank == 1 and (folder / "stop").exists()).stop:
        pass
    return {"steps": trainer.next_step}
