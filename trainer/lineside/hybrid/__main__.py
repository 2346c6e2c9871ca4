"""``python -m lineside.hybrid``: one rank of the reference trainer, placed by torchrun's environment."""

import os

# Read by OpenMP when torch is imported: ranks share the host's cores, a thread pool in each would fight.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import logging
import signal
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist

from lineside.hybrid.grid import Grid
from lineside.hybrid.model import ModelConfig
from lineside.hybrid.trainer import Trainer, TrainerConfig
from lineside.kit.logging import configure
from lineside.probe import Probe

log = logging.getLogger("lineside.hybrid")

ALONE = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m lineside.hybrid",
        description="One rank of a small GPT, data x pipeline parallel. RANK, WORLD_SIZE, MASTER_ADDR and "
        "MASTER_PORT say which (torchrun or an agent sets them); without them it trains alone.",
        epilog="example: torchrun --nproc-per-node 8 -m lineside.hybrid --dp 4 --pp 2 --pad-ms 10",
    )
    defaults, model = TrainerConfig(), ModelConfig()
    add = parser.add_argument
    add("--dp", type=int, default=1, help="data-parallel replicas")
    add("--pp", type=int, default=1, help="pipeline stages")
    end = parser.add_mutually_exclusive_group()
    end.add_argument("--steps", type=int, default=100, help="steps to train")
    end.add_argument("--seconds", type=float, help="train that long instead")
    add("--micro-batches", type=int, default=defaults.micro_batches, help="per step, all replicas")
    add("--samples", type=int, default=defaults.samples, help="samples per micro-batch")
    add("--pad-ms", type=float, default=defaults.pad_ms, help="emulated time of one forward")
    add("--learning-rate", type=float, default=defaults.learning_rate)
    add("--seed", type=int, default=defaults.seed)
    add("--dtype", choices=["float32", "float64"], default=defaults.dtype)
    add("--layers", type=int, default=model.layers)
    add("--width", type=int, default=model.width)
    add("--heads", type=int, default=model.heads)
    add("--sequence", type=int, default=model.sequence, help="tokens per sample")
    add("--timeout-s", type=float, default=300.0, help="of a collective; then the rank gives up")
    add("--log-every", type=int, default=10, help="steps between two lines of rank 0; 0: none")
    return parser.parse_args(argv)


def join(timeout: timedelta) -> None:
    """Enter the process group that the environment names, or one of this rank alone."""
    for name, alone in ALONE.items():
        os.environ.setdefault(name, alone)
    if os.environ["MASTER_ADDR"] in ("localhost", "127.0.0.1"):
        # gloo listens on the interface that the host's name resolves to, which may be a public one.
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo", timeout=timeout)


def train(trainer: Trainer, steps: int, seconds: float | None, log_every: int) -> None:
    """Step until the end, or until SIGTERM or SIGINT reaches any rank: all end after the same step."""
    asked: list[int] = []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: asked.append(number))
    began = last = time.monotonic()
    since = 0
    while True:
        over = seconds is not None and time.monotonic() - began >= seconds
        result = trainer.step(stop=over or bool(asked))
        done = result.stop or (seconds is None and trainer.next_step >= steps)
        since += 1
        if log_every and (since == log_every or done):
            now = time.monotonic()
            log.info(
                "step %d loss %.4f grad norm %.3f, %.0f ms a step, micro-batches %s",
                *(result.step, result.loss, result.grad_norm),
                *((now - last) / since * 1e3, trainer.shares),
            )
            last, since = now, 0
        if done:
            return


def main() -> None:
    options = arguments()
    configure("info")
    torch.set_num_threads(1)
    timeout = timedelta(seconds=options.timeout_s)
    join(timeout)
    try:
        config = TrainerConfig(
            micro_batches=options.micro_batches,
            samples=options.samples,
            pad_ms=options.pad_ms,
            learning_rate=options.learning_rate,
            seed=options.seed,
            dtype=options.dtype,
            model=ModelConfig(
                layers=options.layers,
                width=options.width,
                heads=options.heads,
                sequence=options.sequence,
            ),
        )
        trainer = Trainer(config, Grid.join(options.dp, options.pp, timeout), Probe.attach())
    except ValueError as mistake:
        log.error("%s", mistake)
        sys.exit(2)
    try:
        train(
            trainer,
            options.steps,
            options.seconds,
            options.log_every if dist.get_rank() == 0 else 0,
        )
        dist.destroy_process_group()
    except RuntimeError as failure:  # gloo's word for a peer that died or did not answer in time
        log.error("rank %d lost its peers: %s", dist.get_rank(), failure)
        # A plain exit would join the threads of a group that is stuck.
        os._exit(1)


if __name__ == "__main__":
    main()
