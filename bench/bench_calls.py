# SPDX-License-Identifier: Apache-2.0
"""What a call costs on the CPU, from Python, beside PyTorch's: microseconds to enqueue a small operation on a GPU.

    python bench/bench_calls.py

The operands are small, so that the GPU never holds the CPU up; the GPU's own time is not in it.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

import pyflowk

NUM_CALLS = 2000
NUM_ROUNDS = 25


def microseconds(call: Callable[[], object]) -> float:
    """The median of the rounds; before each the queue is empty."""
    times = []
    for _ in range(NUM_ROUNDS):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(NUM_CALLS // NUM_ROUNDS):
            call()
        times.append((time.perf_counter() - start) / (NUM_CALLS // NUM_ROUNDS) * 1e6)
    return sorted(times)[NUM_ROUNDS // 2]


def main() -> None:
    """Checks each result, then prints one line per call."""
    x, y, z = (torch.randn(64, 128, device="cuda") for _ in range(3))
    out, flipped = torch.empty_like(x), torch.empty(128, 64, device="cuda")
    alpha, dalpha = torch.rand(2, 128, device="cuda")
    fused = pyflowk.ElementwiseKernel("T x, T y", "T z", "z = x * y + 1")
    rows: list[tuple[str, Callable[[], object], Callable[[], torch.Tensor]]] = [
        ("relu(x, out)", lambda: pyflowk.relu(x, out=out), lambda: torch.relu(x)),
        ("relu(x)", lambda: pyflowk.relu(x), lambda: torch.relu(x)),
        ("add(x, y, out)", lambda: pyflowk.add(x, y, out=out), lambda: torch.add(x, y, out=out)),
        ("add(x, row, out)", lambda: pyflowk.add(x, y[0], out=out), lambda: torch.add(x, y[0], out=out)),
        ("mul(x, 1.5, out)", lambda: pyflowk.mul(x, 1.5, out=out), lambda: torch.mul(x, 1.5, out=out)),
        ("fma(x, y, z, out)", lambda: pyflowk.fma(x, y, z, out=out), lambda: torch.addcmul(z, x, y)),
        ("clamp(x, -1, 1, out)", lambda: pyflowk.clamp(x, -1, 1, out=out), lambda: torch.clamp(x, -1, 1, out=out)),
        ("ElementwiseKernel", lambda: fused(x, y, out=out), lambda: torch.addcmul(torch.ones_like(x), x, y)),
        ("permute(x, (1, 0), out)", lambda: pyflowk.permute(x, (1, 0), out=flipped), lambda: x.t().contiguous()),
        ("permute(x, (1, 0))", lambda: pyflowk.permute(x, (1, 0)), lambda: x.t().contiguous()),
        ("prelu(x, alpha, out)", lambda: pyflowk.prelu(x, alpha, out=out), lambda: torch.prelu(x, alpha)),
        (
            "prelu_backward(..., out)",
            lambda: pyflowk.prelu_backward(y, x, alpha, dx_out=out, dalpha_out=dalpha)[0],
            lambda: torch.ops.aten._prelu_kernel_backward(y, x, alpha)[0],
        ),
        ("softmax(x, out)", lambda: pyflowk.softmax(x, out=out), lambda: torch.softmax(x, -1)),
    ]
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}\n{'us a call':<26}{'pyflowk':>9}{'torch':>9}")
    for name, ours, theirs in rows:
        torch.testing.assert_close(ours(), theirs().clone())
        print(f"{name:<26}{microseconds(ours):>9.2f}{microseconds(theirs):>9.2f}")


if __name__ == "__main__":
    main()
