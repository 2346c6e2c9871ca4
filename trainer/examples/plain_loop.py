"""Your own training loop with Lineside in it: the lines marked with ``#`` and a number, and nothing else.

Run it as it is (``python trainer/examples/plain_loop.py``): the probe does nothing. Run it under agents
(``lineside run -- python trainer/examples/plain_loop.py``): every step is recorded. Further lines are for
those who want more: ``probe.phase("data")`` around the loader tells slow input from slow compute;
``probe.declare(...)`` and ``probe.plan()`` let a run be rebalanced (``lineside/hybrid/trainer.py`` does all).
"""

import torch

from lineside.probe import Probe  # 1


def main(steps: int = 200) -> float:
    """Fits a line by gradient descent. Returns the last loss."""
    probe = Probe.attach()  # 2
    generator = torch.Generator().manual_seed(0)
    model = torch.nn.Linear(8, 1)
    truth = torch.randn(8, 1, generator=generator)
    loss = float("nan")
    for step in range(steps):
        with probe.step(step) as row:  # 3
            inputs = torch.randn(64, 8, generator=generator)
            error = (model(inputs) - inputs @ truth).square().mean()
            model.zero_grad()
            torch.autograd.backward(error)
            with torch.no_grad():
                for parameter in model.parameters():
                    if parameter.grad is not None:
                        parameter.sub_(0.1 * parameter.grad)
            row.loss = loss = error.item()  # and, if you like, what it achieved
    return loss


if __name__ == "__main__":
    print(f"last loss {main():.2e}")
