"""``python -m lineside.agent.gemm``: multiply the same matrices again and again, and say how fast and how
often the product was another one.

The inputs are small integers held as floats, so the product is exact in any order of summation: a single
wrong bit is a wrong device, not rounding. On the CPU by numpy, on a GPU by PyTorch.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

_CPU_SIZE, _GPU_SIZE = 384, 4096


def measure(
    multiply: Callable[[], Any], wrong: Callable[[Any], bool], seconds: float, size: int
) -> dict[str, Any]:
    """At least two products, for about ``seconds``. Returns counts, GFLOP/s and the slowest product's time.

    >>> found = measure(lambda: 1, lambda product: product != 1, 0.001, 8)
    >>> found["wrong"], found["gemms"] >= 2
    (0, True)
    """
    multiply()  # warm: libraries load and plan in the first one
    began, longest_s, count, bad = time.perf_counter(), 0.0, 0, 0
    while count < 2 or time.perf_counter() - began < seconds:
        start = time.perf_counter()
        product = multiply()
        longest_s = max(longest_s, time.perf_counter() - start)
        count += 1
        bad += wrong(product)
    took_s = time.perf_counter() - began
    return {
        "gemms": count,
        "wrong": bad,
        "size": size,
        "seconds": round(took_s, 4),
        "gflops": round(2 * size**3 * count / took_s / 1e9, 2),
        "longest_s": round(longest_s, 6),
    }


def on_cpu(seconds: float, size: int = _CPU_SIZE) -> dict[str, Any]:
    a, b = _integers(size)
    expected = _exact(a, b)
    left, right = a.astype(np.float32), b.astype(np.float32)
    found = measure(
        lambda: left @ right, lambda product: not np.array_equal(product, expected), seconds, size
    )
    return {"device": "cpu", **found}


def on_gpu(device: str, seconds: float, size: int = _GPU_SIZE) -> dict[str, Any]:
    """Raises RuntimeError or AssertionError where PyTorch cannot use the device."""
    import torch

    a, b = _integers(size)
    left = torch.tensor(a, dtype=torch.float32, device=device)
    right = torch.tensor(b, dtype=torch.float32, device=device)
    # The row sums check the product in n^2 steps: (A B) 1 = A (B 1), exact in float64.
    check = torch.tensor(a @ b.sum(axis=1), dtype=torch.float64, device=device)
    on_cuda = left.device.type == "cuda"

    def multiply() -> Any:
        product = left @ right
        if on_cuda:
            torch.cuda.synchronize(left.device)
        return product

    def wrong(product: Any) -> bool:
        return not bool(torch.equal(product.double().sum(dim=1), check))

    return {"device": device, **measure(multiply, wrong, seconds, size)}


def _integers(size: int) -> tuple[Any, Any]:
    """Two matrices of -4..3: a sum of ``size`` products stays far below float32's 2^24."""
    rng = np.random.default_rng(7)
    a, b = rng.integers(-4, 4, (2, size, size))
    return a, b


def _exact(a: Any, b: Any) -> Any:
    return (a.astype(np.float64) @ b.astype(np.float64)).astype(np.float32)


def main() -> int:
    parser = argparse.ArgumentParser(description="Multiply matrices and check the products.")
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    try:
        cpu = options.device == "cpu"
        found = on_cpu(options.seconds) if cpu else on_gpu(options.device, options.seconds)
    except (ImportError, RuntimeError, AssertionError) as error:
        print(f"cannot compute on {options.device}: {error}", file=sys.stderr)
        return 1
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
