"""The training step: pipeline, one gradient all-reduce, one small reduction that the whole world shares.

That small reduction carries the loss, the gradient norm, the wish to stop and the plan revision that each
rank has read, in float64. So all ranks learn in the same step that all of them hold a new plan, and switch
to its micro-batch shares together from the next step on, at no extra message.
"""

import math
from dataclasses import dataclass, field
from typing import Literal

import torch
import torch.distributed as dist

from lineside.contracts import Capabilities, MicroBatchLimits, Op, Phase, Plan
from lineside.hybrid import shares
from lineside.hybrid.accelerator import Accelerator
from lineside.hybrid.data import Corpus
from lineside.hybrid.flat import FlatAdamW
from lineside.hybrid.grid import Grid
from lineside.hybrid.model import ModelConfig, Stage
from lineside.hybrid.pipeline import Pipeline
from lineside.probe import Probe


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainerConfig:
    """``micro_batches`` are all replicas' per step, of ``samples`` windows each. ``pad_ms`` is the emulated
    time of one forward on one stage (a backward takes twice that); 0 means real compute only."""

    micro_batches: int = 20
    samples: int = 1
    pad_ms: float = 0.0
    learning_rate: float = 3e-3
    seed: int = 0
    dtype: Literal["float32", "float64"] = "float32"
    """float64 shows that two splits are the same training to 1e-12."""
    model: ModelConfig = field(default_factory=ModelConfig)


@dataclass(frozen=True, slots=True)
class StepResult:
    """``loss`` is the mean over all tokens of the step, equal on all ranks; ``stop``: some rank wants to."""

    step: int
    loss: float
    grad_norm: float
    stop: bool


class Trainer:
    """One rank's part of the training."""

    def __init__(self, config: TrainerConfig, grid: Grid, probe: Probe) -> None:
        replicas, stages = grid.mesh.sizes
        if config.micro_batches < replicas * shares.MINIMUM:
            raise ValueError(f"{config.micro_batches} micro-batches for {replicas} replicas")
        self.shares = shares.even(config.micro_batches, replicas)
        self.next_step = 0
        self._config = config
        self._grid = grid
        self._probe = probe
        dtype = getattr(torch, config.dtype)
        model = config.model
        module = Stage(model, grid.stage, stages, config.seed).to(dtype)
        self.optimizer = FlatAdamW(module, config.learning_rate)
        self._pipeline = Pipeline(
            module,
            Corpus(model.sequence, config.seed),
            Accelerator(config.pad_ms / 1e3),
            probe,
            rank=grid.rank,
            stage=grid.stage,
            stages=stages,
            samples=config.samples,
            activation=(config.samples, model.sequence, model.width),
            dtype=dtype,
        )
        self._micro_batch_tokens = config.samples * model.sequence
        probe.declare(
            mesh=grid.mesh,
            micro_batches=config.micro_batches,
            micro_batch_limits=MicroBatchLimits(min=shares.MINIMUM),
            capabilities=Capabilities(rebalance=True),
        )

    def step(self, *, stop: bool = False) -> StepResult:
        """Train on the next global batch. All ranks call it together; ``stop`` is this rank's vote to end."""
        config, probe = self._config, self._probe
        own = shares.own(self.shares, self._grid.replica)
        plan = probe.plan()
        with probe.step(
            self.next_step,
            micro_batches=len(own),
            tokens=len(own) * self._micro_batch_tokens,
            phase=Phase.TRAIN if self.next_step else Phase.FIRST,
        ) as row:
            self.optimizer.zero_gradients()
            loss_sum = self._pipeline.run(
                (self.next_step * config.micro_batches + own.start) * config.samples,
                len(own),
                tokens := config.micro_batches * self._micro_batch_tokens,
            )
            self.reduce_gradients()
            # Every replica holds the same reduced gradient, so the world's sum has each stage's dp times.
            squares = self.optimizer.gradients.double().square().sum().item()
            loss, squares, stops, *revisions = self._sum_over_world(
                loss_sum / tokens, squares / len(self.shares), float(stop), *probe.agreement(plan)
            )
            row.loss, row.grad_norm = loss, math.sqrt(squares)
            self.optimizer.step()
        result = StepResult(self.next_step, loss, math.sqrt(squares), stops > 0.0)
        self.next_step += 1
        if agreed := probe.agreed((revisions[0], revisions[1]), self._grid.mesh.world_size):
            self._follow(agreed)
        return result

    def reduce_gradients(self) -> None:
        """Sum the replicas' gradients. No division: the losses were divided by the whole step's tokens."""
        gradients = self.optimizer.gradients
        if len(self.shares) > 1:
            with (
                self._probe.phase("comm"),
                self._probe.collective(self._grid.replicas_id, Op.ALL_REDUCE, gradients.nbytes),
            ):
                dist.all_reduce(gradients, group=self._grid.replicas)

    def _sum_over_world(self, *numbers: float) -> list[float]:
        vector = torch.tensor(numbers, dtype=torch.float64)
        if self._grid.mesh.world_size > 1:
            with (
                self._probe.phase("comm"),
                self._probe.collective(self._grid.world_id, Op.ALL_REDUCE, vector.nbytes),
            ):
                dist.all_reduce(vector)
        summed: list[float] = vector.tolist()
        return summed

    def _follow(self, plan: Plan) -> None:
        """Carry out a plan that all ranks hold, from the next step on."""
        try:
            self.shares = shares.wanted(plan, self._config.micro_batches, len(self.shares))
        except ValueError as refusal:
            self._probe.rejected(plan.revision, str(refusal))
        else:
            self._probe.applied(plan.revision, self.next_step)
