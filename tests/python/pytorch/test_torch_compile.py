# SPDX-License-Identifier: Apache-2.0
"""torch.compile by Inductor: one graph for all shapes, CUDA graphs, and what a compiled call checks."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch._dynamo.testing import CompileCounterWithBackend  # noqa: E402
from torch._inductor.utils import run_and_get_code  # noqa: E402
from torch_calls import DEVICES  # noqa: E402

import pyflowk  # noqa: E402
from pyflowk._torch import inductor  # noqa: E402

F = torch.nn.functional
Function = Callable[[Any], Any]


def columns_past(x: Any, kept: int) -> Any:
    return torch.arange(x.shape[-1], device=x.device) >= kept


def lengths_of(x: Any) -> Any:
    return torch.full((x.shape[0],), 2, dtype=torch.int32, device=x.device)


# Functions of x of three dimensions: flowk's and torch's.
FUNCTIONS: dict[str, tuple[Function, Function]] = {
    "permute": (lambda x: pyflowk.permute(x, (2, 0, 1)), lambda x: x.permute(2, 0, 1).contiguous()),
    "relu": (pyflowk.relu, torch.relu),
    "add": (lambda x: pyflowk.add(x, x[:1]), lambda x: x + x[:1]),
    "add_number": (lambda x: pyflowk.add(x, 1.5), lambda x: x + 1.5),
    "gelu": (pyflowk.gelu, F.gelu),
    "prelu": (lambda x: pyflowk.prelu(x, x[0, :, 0]), lambda x: F.prelu(x, x[0, :, 0])),
    "softmax": (pyflowk.softmax, lambda x: x.softmax(-1)),
    "softmax_of_rows_apart": (lambda x: pyflowk.softmax(x, 1), lambda x: x.softmax(1)),
    "masked_softmax": (
        lambda x: pyflowk.masked_softmax(x, columns_past(x, 3), scale=0.5),
        lambda x: (0.5 * x).masked_fill(columns_past(x, 3), -torch.inf).softmax(-1),
    ),
    "masked_softmax_lengths": (
        lambda x: pyflowk.masked_softmax(x, lengths=lengths_of(x)),
        lambda x: x.masked_fill(columns_past(x, 2), -torch.inf).softmax(-1),
    ),
}
SHAPES = ((3, 4, 5), (6, 7, 8), (2, 9, 6))
each_device = pytest.mark.parametrize("device", DEVICES)
each_function = pytest.mark.parametrize("name", FUNCTIONS)


def tensor(device: str, shape: tuple[int, ...]) -> Any:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).to(device).requires_grad_()


def assert_same(compiled: Function, reference: Function, x: Any) -> None:
    """Values and gradients; the results of replayed CUDA graphs are read before the next replay."""
    expected = reference(x)
    weights = torch.linspace(-1, 1, expected.numel(), device=x.device).reshape(expected.shape)
    result = compiled(x)
    torch.testing.assert_close(result, expected)
    (gradient,) = torch.autograd.grad(result, x, weights)
    torch.testing.assert_close(gradient, torch.autograd.grad(expected, x, weights)[0])


@each_device
@each_function
@pytest.mark.parametrize("marked", [False, True], ids=["dynamic", "mark_dynamic"])
def test_one_graph_serves_all_shapes(name: str, device: str, marked: bool) -> None:
    own, reference = FUNCTIONS[name]
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("inductor")
    compiled, frames = torch.compile(own, fullgraph=True, dynamic=None if marked else True, backend=counter), 0
    for shape in SHAPES:
        x = tensor(device, shape)
        for dimension in range(x.dim()) if marked else ():
            torch._dynamo.mark_dynamic(x, dimension)
        assert_same(compiled, reference, x)
        frames = frames or counter.frame_count  # Dynamo may start again if it finds a float to be a constant
    assert counter.frame_count == frames


@pytest.mark.skipif("cuda" not in DEVICES, reason="CUDA graphs need a GPU")
@each_function
def test_reduce_overhead_replays_cuda_graphs(name: str) -> None:
    own, reference = FUNCTIONS[name]
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    compiled = torch.compile(own, fullgraph=True, mode="reduce-overhead")
    x = tensor("cuda", SHAPES[0])
    for _ in range(5):  # a run, a capture, replays
        torch.compiler.cudagraph_mark_step_begin()
        x = x.detach().neg().requires_grad_()
        assert_same(compiled, reference, x)
    with torch.no_grad():
        for _ in range(5):
            torch.compiler.cudagraph_mark_step_begin()
            torch.testing.assert_close(compiled(x), reference(x))
    assert torch._dynamo.utils.counters["inductor"]["cudagraph_skips"] == 0


def several_operators(x: Any) -> Any:
    y = pyflowk.prelu(pyflowk.gelu(pyflowk.permute(x, (0, 2, 1))), x[0, :, 0])
    return pyflowk.add(pyflowk.masked_softmax(y, causal=True, scale=0.5), 2.0)


def operators_in_code(function: Function, x: Any) -> list[str]:
    """The names of the operators that Inductor's code calls in a step, each with what follows its overload's name."""
    torch._dynamo.reset()
    compiled = torch.compile(function, fullgraph=True)
    _, sources = run_and_get_code(lambda: compiled(x).sum().backward())
    return re.findall(r"= torch\.ops\.flowk\.(\w+\.default[\w.]*)\(", "\n".join(sources))


@each_device
def test_inductor_s_code_calls_kernels_without_the_dispatcher(device: str) -> None:
    forward = {"permute", "gelu", "prelu", "masked_softmax", "add"}
    backward = {"masked_softmax_backward", "prelu_backward", "gelu_backward"}
    found = operators_in_code(several_operators, tensor(device, (2, 4, 4)))
    assert set(found) == {f"{name}.default.direct" for name in forward | backward}
    assert found.count("permute.default.direct") == 2  # the gradient too


def test_code_in_cpp_calls_operators() -> None:
    x = tensor("cpu", (2, 4, 4))
    expected = several_operators(x)
    with torch._inductor.config.patch(cpp_wrapper=True):
        assert operators_in_code(several_operators, x) == []
        torch.testing.assert_close(torch.compile(several_operators)(x), expected)


def test_an_inductor_without_a_private_name_calls_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    operator = SimpleNamespace()
    monkeypatch.setitem(sys.modules, "torch._inductor.lowering", SimpleNamespace(ir=None, V=None))
    monkeypatch.setattr(inductor, "_to_lower", [])
    inductor.add_operator(operator, several_operators)
    inductor.lower_operators()
    assert operator.direct is several_operators and inductor._to_lower == []


def test_the_first_call_of_all_is_compiled_once() -> None:
    program = """
import torch, torch._dynamo.testing
from pyflowk import add, masked_softmax, permute
counter = torch._dynamo.testing.CompileCounterWithBackend("eager")
f = torch.compile(lambda x: masked_softmax(permute(add(x, 2), (1, 0))), fullgraph=True, dynamic=True, backend=counter)
for shape in ((3, 4), (5, 6), (7, 5)):
    f(torch.randn(shape))
assert counter.frame_count == 1, counter.frame_count
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=True, env=dict(os.environ))


def test_a_compiled_call_does_not_check_pyflowk_s_tables() -> None:
    """A guard on a table of pyflowk would be evaluated at every call, and there is none."""
    torch._dynamo.reset()
    explained: list[str] = []

    def keep(guards: Any) -> list[bool]:
        explained.extend(guard.name for guard in guards)
        return [True for _ in guards]

    compiled = torch.compile(
        lambda x: pyflowk.add(pyflowk.relu(x), 2.5),
        fullgraph=True,
        backend="eager",
        options={"guard_filter_fn": keep},
    )
    torch.testing.assert_close(compiled(torch.ones(3)), torch.full((3,), 3.5))
    assert explained
    tables = [
        name for name in explained if any(word in name for word in ("ARRAYS", "OPERANDS", "OPERATIONS", "FLOATS"))
    ]
    assert not tables, tables


def test_dynamo_warns_of_no_function_of_pyflowk() -> None:
    """It warns once per process of a function with a cache that it traces."""
    code = """
import torch, pyflowk
def call(x):
    return pyflowk.masked_softmax(pyflowk.permute(x, (1, 0), dtype=torch.float16), causal=True, dtype=torch.float32)
x = torch.rand(3, 4)
assert torch.equal(torch.compile(call, backend="eager", fullgraph=True)(x), call(x))
"""
    subprocess.run([sys.executable, "-W", "error:Dynamo detected", "-c", code], check=True)
