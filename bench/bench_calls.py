# SPDX-License-Identifier: Apache-2.0
"""What a call costs on the CPU, from Python: microseconds to enqueue a small operation, by flowk and by a rival.

    python bench/bench_calls.py [WORD ...]      # the rows with a word in their name or rival; default: all

The operands are small, so that the CPU never waits for the GPU. The GPU's own time is not included, except in rows that
say backward. Each round runs a rival and flowk in turn, from an empty queue. The figures are medians of the rounds, and
the ratio is of these. Without a GPU, every row that can runs on smaller tensors on the executor, and flowk's figures
include the time of the executor. bench_calls_jax.py measures the calls of JAX.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
import torch

import pyflowk
from pyflowk._calls.call_path import bind_call
from pyflowk._program import arguments_of

NUM_CALLS = 4000
NUM_ROUNDS = 41
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
ROWS, COLS = (64, 128) if DEVICE == "cuda" else (4, 8)


class Row(NamedTuple):
    """A call of flowk's and a rival's, which gives the same values; `check` turns a result into a tensor."""

    name: str
    rival: str
    theirs: Callable[[], Any]
    ours: Callable[[], Any]
    to_reach: str
    synchronize: Callable[[], Any]
    check: Callable[[Any], torch.Tensor] = torch.as_tensor


class Absent(NamedTuple):
    """Rows that cannot run here."""

    name: str
    reason: str


def synchronize_torch() -> None:
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def medians(row: Row) -> tuple[float, float]:
    """Microseconds of the rival's call and of flowk's."""
    num_calls = NUM_CALLS // NUM_ROUNDS
    times: dict[Callable[[], Any], list[float]] = {row.theirs: [], row.ours: []}
    for _ in range(NUM_ROUNDS):
        for call, own in times.items():
            row.synchronize()
            start = time.perf_counter()
            for _ in range(num_calls):
                call()
            own.append((time.perf_counter() - start) / num_calls * 1e6)
    theirs, ours = (sorted(own)[NUM_ROUNDS // 2] for own in times.values())
    return theirs, ours


# ---- PyTorch --------------------------------------------------------------------------------------------------------


def torch_rows() -> Iterator[Row | Absent]:
    x, y, z = (torch.randn(ROWS, COLS, device=DEVICE) for _ in range(3))
    out, flipped, alpha = torch.empty_like(x), torch.empty(COLS, ROWS, device=DEVICE), torch.rand(COLS, device=DEVICE)
    mask, minus = torch.rand(ROWS, COLS, device=DEVICE) > 0.5, float("-inf")
    scores = torch.randn(2, 4, 16, 32, device=DEVICE)
    padding = torch.arange(32, device=DEVICE).expand(2, 1, 16, 32) > 20

    def row(name: str, to_reach: str, theirs: Callable[[], Any], ours: Callable[[], Any]) -> Row:
        return Row(name, "torch", theirs, ours, to_reach, synchronize_torch)

    flow = pyflowk
    yield row(
        "permute out=", "0.60", lambda: flipped.copy_(x.permute(1, 0)), lambda: flow.permute(x, (1, 0), out=flipped)
    )
    yield row("permute", "0.70", lambda: x.permute(1, 0).contiguous(), lambda: flow.permute(x, (1, 0)))
    yield row("relu out=", "0.80", lambda: torch.clamp_min(x, 0, out=out), lambda: flow.relu(x, out=out))
    yield row("relu", "1.1", lambda: torch.relu(x), lambda: flow.relu(x))
    yield row("add out=", "0.80", lambda: torch.add(x, y, out=out), lambda: flow.add(x, y, out=out))
    yield row("add", "1.1", lambda: torch.add(x, y), lambda: flow.add(x, y))
    yield row("add of a row, out=", "", lambda: torch.add(x, alpha, out=out), lambda: flow.add(x, alpha, out=out))
    yield row("mul by 1.5, out=", "", lambda: torch.mul(x, 1.5, out=out), lambda: flow.multiply(x, 1.5, out=out))
    yield row("fma out=", "", lambda: torch.addcmul(z, x, y, out=out), lambda: flow.fma(x, y, z, out=out))
    yield row("clamp out=", "", lambda: torch.clamp(x, -1, 1, out=out), lambda: flow.clamp(x, -1, 1, out=out))
    yield row("prelu out= (torch: new)", "0.80", lambda: torch.prelu(x, alpha), lambda: flow.prelu(x, alpha, out=out))
    yield row("prelu", "1.1", lambda: torch.prelu(x, alpha), lambda: flow.prelu(x, alpha))
    yield row("softmax out=", "0.85", lambda: torch.softmax(x, -1, out=out), lambda: flow.softmax(x, out=out))
    yield row("softmax", "", lambda: torch.softmax(x, -1), lambda: flow.softmax(x))
    yield row(
        "masked_softmax, dense mask",
        "0.20",
        lambda: torch.softmax(torch.mul(scores, 0.125).masked_fill(padding, minus), -1),
        lambda: flow.masked_softmax(scores, padding, scale=0.125),
    )
    yield row(
        "masked_softmax out=",
        "",
        lambda: torch.softmax(x.masked_fill(mask, minus), -1),
        lambda: flow.masked_softmax(x, mask, out=out),
    )
    dx, dalpha = torch.empty_like(x), torch.empty_like(alpha)
    yield row(
        "prelu_backward out=",
        "",
        lambda: torch.ops.aten._prelu_kernel_backward(y, x, alpha.expand_as(x))[0],
        lambda: flow.prelu_backward(y, x, alpha, dx_out=dx, dalpha_out=dalpha)[0],
    )


def operator_rows() -> Iterator[Row | Absent]:
    """torch.ops.flowk, and calls that take part in autograd."""
    x, watched = torch.randn(ROWS, COLS, device=DEVICE), torch.randn(ROWS, COLS, device=DEVICE, requires_grad=True)
    ones = torch.ones_like(x)
    try:
        import_module("pyflowk._torch.operators")
    except ImportError as error:
        yield Absent("torch.ops.flowk", str(error))
        return
    operators = torch.ops.flowk

    def row(name: str, to_reach: str, theirs: Callable[[], Any], ours: Callable[[], Any]) -> Row:
        return Row(name, "torch", theirs, ours, to_reach, synchronize_torch, lambda one: one.detach())

    def through(function: Callable[[Any], Any]) -> Callable[[], Any]:
        return lambda: torch.autograd.grad(function(watched), watched, ones)[0]

    yield row("torch.ops.flowk.relu", "1.15", lambda: torch.relu(x), lambda: operators.relu(x))
    yield row(
        "torch.ops.flowk.permute", "0.75", lambda: x.permute(1, 0).contiguous(), lambda: operators.permute(x, [1, 0])
    )
    yield row("relu, gradient needed", "2.7", lambda: torch.relu(watched), lambda: pyflowk.relu(watched))
    yield row("relu, forward and backward", "1.7", through(torch.relu), through(pyflowk.relu))


# ---- the C function by ctypes ---------------------------------------------------------------------------------------


def c_function_of(function: Callable[..., Any], *arguments: Any, out: torch.Tensor) -> Callable[[], Any]:
    """The bare C function with ready arguments: what a binding without any checks costs."""
    bound = bind_call(function, arguments, {"out": out})
    (step,) = bound.program.steps
    ready = arguments_of(step, bound.planned_memory())
    bare = getattr(bound.library, step.function)
    stream = torch.cuda.current_stream().cuda_stream if DEVICE == "cuda" else 0

    def call() -> torch.Tensor:
        bare(*ready, stream)
        return out

    return call


def c_function_rows() -> Iterator[Row | Absent]:
    x, y = (torch.randn(ROWS, COLS, device=DEVICE) for _ in range(2))
    out, flipped, alpha = torch.empty_like(x), torch.empty(COLS, ROWS, device=DEVICE), torch.rand(COLS, device=DEVICE)
    cases = {
        "permute": ((x, (1, 0)), flipped),
        "relu": ((x,), out),
        "add": ((x, y), out),
        "prelu": ((x, alpha), out),
        "softmax": ((x,), out),
    }
    stream = torch.cuda.current_stream().cuda_stream if DEVICE == "cuda" else 0
    for name, (arguments, target) in cases.items():
        function = getattr(pyflowk, name)
        bare = c_function_of(function, *arguments, out=target)
        run = pyflowk.prepare(function, *arguments, out=target)
        addresses = [one.data_ptr() for one in (*arguments, target) if isinstance(one, torch.Tensor)]

        def prepared(run: Any = run, addresses: Any = addresses, target: Any = target) -> torch.Tensor:
            run(*addresses, stream)
            return target

        calls: list[tuple[str, str, Callable[[], Any]]] = [
            (f"{name} out=", "+0.7", lambda f=function, a=arguments, t=target: f(*a, out=t)),
            (f"{name}", "+1.5", lambda f=function, a=arguments: f(*a)),
            (f"{name} prepared", "+0.0", prepared),
        ]
        for title, to_reach, call in calls:
            yield Row(title, "the C function", bare, call, to_reach, synchronize_torch)


# ---- CuPy, Numba, DeviceArray ---------------------------------------------------------------------------------------


def cupy_rows() -> Iterator[Row | Absent]:
    try:
        cupy: Any = import_module("cupy")
        x = cupy.random.rand(ROWS, COLS, dtype=cupy.float32)
    except Exception as error:  # CuPy without a GPU raises its own
        yield Absent("CuPy, Numba, DeviceArray: permute out=", f"no CuPy on a GPU ({type(error).__name__})")
        return
    out = cupy.empty((COLS, ROWS), cupy.float32)

    def theirs() -> Any:
        cupy.copyto(out, x.transpose(1, 0))
        return out

    def row(name: str, ours: Callable[[], Any], to_host: Callable[[Any], np.ndarray]) -> Row:
        def check(result: Any) -> torch.Tensor:
            return torch.as_tensor(cupy.asnumpy(result) if isinstance(result, cupy.ndarray) else to_host(result))

        return Row(name, "CuPy", theirs, ours, "0.80", cupy.cuda.runtime.deviceSynchronize, check)

    yield row("CuPy: permute out=", lambda: pyflowk.permute(x, (1, 0), out=out), cupy.asnumpy)
    y, same = cupy.random.rand(ROWS, COLS, dtype=cupy.float32), cupy.empty_like(x)
    formula = ("T x, T y, float32 a", "T z", "z = a * x * y", "scaled_product")
    their_kernel, kernel = cupy.ElementwiseKernel(*formula), pyflowk.ElementwiseKernel(*formula)
    pairs: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
        "permute": (lambda: cupy.ascontiguousarray(x.transpose(1, 0)), lambda: pyflowk.permute(x, (1, 0))),
        "add": (lambda: cupy.add(x, y), lambda: pyflowk.add(x, y)),
        "ElementwiseKernel out=": (lambda: their_kernel(x, y, 0.5, same), lambda: kernel(x, y, 0.5, out=same)),
    }
    for name, (of_cupy, of_flowk) in pairs.items():
        yield row(f"CuPy: {name}", of_flowk, cupy.asnumpy)._replace(theirs=of_cupy, to_reach="1.0")
    host = cupy.asnumpy(x)
    own, own_out = pyflowk.asarray(host), pyflowk.empty((COLS, ROWS), "float32")
    yield row(
        "DeviceArray: permute out=", lambda: pyflowk.permute(own, (1, 0), out=own_out), lambda one: one.to_numpy()
    )
    try:
        numba: Any = import_module("numba.cuda")
        theirs_x, theirs_out = numba.to_device(host), numba.device_array((COLS, ROWS), np.float32)
    except Exception as error:  # Numba without CUDA raises its own
        yield Absent("Numba: permute out=", f"no Numba with CUDA ({type(error).__name__})")
        return
    yield row(
        "Numba: permute out=",
        lambda: pyflowk.permute(theirs_x, (1, 0), out=theirs_out),
        lambda one: one.copy_to_host(),
    )


# ---- the table ------------------------------------------------------------------------------------------------------


def main(words: list[str]) -> None:
    """Checks each result, then prints one line per call."""
    place = torch.cuda.get_device_name() if DEVICE == "cuda" else "the CPU: for the rows alone, not for their figures"
    print(f"{place}; torch {torch.__version__}, Python {sys.version.split()[0]}")
    print(f"{'us a call':<34}{'rival':>16}{'rival us':>10}{'flowk us':>10}{'ratio':>8}{'more':>8}  to reach")
    for rows in (torch_rows, operator_rows, c_function_rows, cupy_rows):
        for row in rows():
            if words and not any(word in f"{row.name} {getattr(row, 'rival', '')}" for word in words):
                continue
            if isinstance(row, Absent):
                print(f"{row.name:<34}absent: {row.reason}")
                continue
            expected = row.check(row.theirs()).clone()  # both may write to the same memory
            torch.testing.assert_close(row.check(row.ours()), expected)
            for _ in range(20):
                row.theirs()
                row.ours()
            theirs_us, ours_us = medians(row)
            figures = f"{theirs_us:>10.2f}{ours_us:>10.2f}{ours_us / theirs_us:>8.2f}{ours_us - theirs_us:>+8.2f}"
            print(f"{row.name:<34}{row.rival:>16}{figures}  {row.to_reach}")


if __name__ == "__main__":
    main(sys.argv[1:])
