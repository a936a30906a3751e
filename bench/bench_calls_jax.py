# SPDX-License-Identifier: Apache-2.0
"""What calls of pyflowk.jax and of XLA's own operations cost: microseconds per call, by the clock of the CPU.

    python bench/bench_calls_jax.py

Tiny arrays show the price of a call: under jit, in eager mode, and of one call in a chain of 64 in one program, which
XLA puts into a command buffer. Arrays of 128 MiB show the kernel in a program. Each result is checked.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import pyflowk.jax

NUM_ROUNDS = 25
NUM_CALLS = 80
CHAIN = 64
LARGE_SHAPE, SCORES_SHAPE = (8192, 8192), (16384, 4096)  # 128 MiB of float16
Row = tuple[str, Callable[[Any], Any], Callable[[Any], Any], Any]


def microseconds(call: Callable[[Any], Any], x: Any, num_calls: int) -> float:
    """Per call, of one round; before it the queue is empty, and its last result is waited for."""
    jax.block_until_ready(call(x))
    start = time.perf_counter()
    for _ in range(num_calls):
        result = call(x)
    jax.block_until_ready(result)
    return (time.perf_counter() - start) / num_calls * 1e6


def chained(one: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def chain(x: Any) -> Any:
        for _ in range(CHAIN):
            x = jax.lax.optimization_barrier(one(x))  # or XLA fuses its own
        return x

    return jax.jit(chain)


def transpose(x: Any) -> Any:
    """In new memory: XLA would return a view of the layout otherwise."""
    return jax.lax.optimization_barrier(x.T) + 0


def rows() -> list[Row]:
    small = jax.random.normal(jax.random.key(0), (128, 128))
    large = jax.random.normal(jax.random.key(1), LARGE_SHAPE, jnp.float16)
    scores = jax.random.normal(jax.random.key(2), SCORES_SHAPE, jnp.float16)

    def relu(x: Any) -> Any:
        return jnp.maximum(x, 0)

    def permute(x: Any) -> Any:
        return pyflowk.jax.permute(x, (1, 0))

    def gradient(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        return jax.jit(jax.grad(lambda x: function(x).sum()))

    ours = pyflowk.jax
    return [
        ("relu, jit", jax.jit(ours.relu), jax.jit(relu), small),
        ("permute, jit", jax.jit(permute), jax.jit(transpose), small),
        ("softmax, jit", jax.jit(ours.softmax), jax.jit(jax.nn.softmax), small),
        ("gradient of relu, jit", gradient(ours.relu), gradient(jax.nn.relu), small),
        ("relu, eager", ours.relu, relu, small),
        ("permute, eager", permute, jnp.transpose, small),
        ("softmax, eager", ours.softmax, jax.nn.softmax, small),
        (f"relu, {CHAIN} in one program", chained(ours.relu), chained(relu), small),
        (f"permute, {CHAIN} in one program", chained(permute), chained(transpose), small),
        ("relu of 128 MiB, jit", jax.jit(ours.relu), jax.jit(relu), large),
        ("permute of 128 MiB, jit", jax.jit(permute), jax.jit(transpose), large),
        ("softmax of 128 MiB, jit", jax.jit(ours.softmax), jax.jit(jax.nn.softmax), scores),
    ]


def main() -> None:
    """One line per case: the medians, both in turn in each round."""
    device = jax.devices()[0]
    if device.platform == "cpu":
        print("no GPU: these are times of the CPU executor, which is there to check results")
    print(f"{device.device_kind}, jax {jax.__version__}\n{'us a call':<30}{'pyflowk.jax':>12}{'jax':>9}{'ratio':>8}")
    for name, ours, theirs, x in rows():
        found, expected = (np.asarray(one(x), np.float32) for one in (ours, theirs))
        np.testing.assert_allclose(found, expected, 1e-2, 1e-3, err_msg=name)
        num_calls = max(NUM_CALLS // (1 if x.size < 1e6 else 8), 1)
        times = [[microseconds(one, x, num_calls) for one in (ours, theirs)] for _ in range(NUM_ROUNDS)]
        mine, others = np.median(times, axis=0) / (CHAIN if "in one program" in name else 1)
        print(f"{name:<30}{mine:12.2f}{others:9.2f}{mine / others:8.2f}", flush=True)


if __name__ == "__main__":
    main()
