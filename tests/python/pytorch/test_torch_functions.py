# SPDX-License-Identifier: Apache-2.0
"""pyflowk's own functions in autograd, torch.func, traces, compiled functions and exported programs."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode  # noqa: E402
from torch.autograd import forward_ad  # noqa: E402
from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402
from torch_calls import DEVICES  # noqa: E402

import pyflowk  # noqa: E402

FUNCTIONS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "relu": (pyflowk.relu, torch.relu),
    "add": (lambda x: pyflowk.add(x, 2.0), lambda x: x + 2.0),
    "rsub": (lambda x: pyflowk.subtract(2, x), lambda x: 2 - x),
    "mul_both": (lambda x: pyflowk.multiply(x, x[0]), lambda x: x * x[0]),
    "where": (lambda x: pyflowk.where(x > 0, x, 0.5), lambda x: torch.where(x > 0, x, 0.5)),
    "fma": (lambda x: pyflowk.fma(x, 2, x[:, :1]), lambda x: x * 2 + x[:, :1]),
    "clamp": (lambda x: pyflowk.clamp(x, -1, 1.0), lambda x: x.clamp(-1, 1.0)),
    "clamp_lo": (lambda x: pyflowk.clamp(x, -1), lambda x: x.clamp(-1)),
    "scale": (lambda x: pyflowk.scale(x, 3, 0.5), lambda x: 3 * x + 0.5),
    "gelu": (lambda x: pyflowk.gelu(x, "tanh"), lambda x: torch.nn.functional.gelu(x, approximate="tanh")),
    "cast": (lambda x: pyflowk.cast(x, "float64"), lambda x: x.double()),
    "positive": (pyflowk.positive, lambda x: x.clone()),
    "permute": (lambda x: pyflowk.permute(x, (-1, 0)), lambda x: x.T),
    "permute_dtype": (
        lambda x: pyflowk.permute(x, (1, 0), dtype=torch.float64, scale=0.5),
        lambda x: x.T.double() / 2,
    ),
    "batch_transpose": (pyflowk.batch_transpose, lambda x: x.mT),
    "prelu": (lambda x: pyflowk.prelu(x, x[0]), lambda x: torch.nn.functional.prelu(x, x[0])),
    "softmax": (pyflowk.softmax, lambda x: x.softmax(-1)),
    "log_softmax": (pyflowk.log_softmax, lambda x: x.log_softmax(-1)),
    "softmax_axis": (lambda x: pyflowk.softmax(x, 0), lambda x: x.softmax(0)),
    "log_softmax_dim": (lambda x: pyflowk.log_softmax(x, dim=-2), lambda x: x.log_softmax(0)),
    "operations": (
        lambda x: pyflowk.hypot(pyflowk.erf(x), pyflowk.remainder(x, 0.7)),
        lambda x: torch.hypot(torch.erf(x), torch.remainder(x, 0.7)),
    ),
    "permute_pattern": (lambda x: pyflowk.permute(x, "a b -> b a"), lambda x: x.T),
    "transpose": (pyflowk.transpose, lambda x: x.T),
    "permute_many": (
        lambda x: pyflowk.add(*pyflowk.permute_many([x, 2 * x], (1, 0), scale=0.5)),
        lambda x: x.T / 2 + x.T,
    ),
    "masked_softmax": (
        lambda x: pyflowk.masked_softmax(x, x > 1.5, bias=x[:1], scale=0.5),
        lambda x: (0.5 * x + x[:1]).masked_fill(x > 1.5, -torch.inf).softmax(-1).nan_to_num(),
    ),
}
each_function = pytest.mark.parametrize("name", FUNCTIONS)
each_device = pytest.mark.parametrize("device", DEVICES)


def x_of(device: str, rows: int = 3, columns: int = 4) -> Any:
    return torch.randn(rows, columns, generator=torch.Generator().manual_seed(rows)).to(device).requires_grad_()


def values_and_gradients(function: Callable[..., Any], x: Any) -> tuple[Any, Any]:
    result = function(x)
    weights = torch.arange(1.0, result.numel() + 1, device=x.device, dtype=result.dtype).reshape(result.shape)
    (gradient,) = torch.autograd.grad((result * weights).sum(), x)
    return result.detach(), gradient


@each_device
@each_function
def test_gradients_are_torch_s(name: str, device: str) -> None:
    own, reference = FUNCTIONS[name]
    x = x_of(device)
    torch.testing.assert_close(values_and_gradients(own, x), values_and_gradients(reference, x))


@each_device
@each_function
def test_transforms_are_torch_s(name: str, device: str) -> None:
    own, reference = FUNCTIONS[name]
    x = x_of(device).detach()
    for transform in (torch.func.jacfwd, torch.func.jacrev):
        torch.testing.assert_close(transform(own)(x), transform(reference)(x))


@each_device
@each_function
def test_compiled_in_one_graph(name: str, device: str) -> None:
    """By Inductor on a GPU; on the CPU its code is compiled by test_inductor_compiles_a_model."""
    own, reference = FUNCTIONS[name]
    torch._dynamo.reset()
    compiled = torch.compile(own, fullgraph=True, dynamic=True, backend="aot_eager" if device == "cpu" else "inductor")
    for rows, columns in ((3, 4), (5, 7), (6, 2)):
        x = x_of(device, rows, columns)
        torch.testing.assert_close(values_and_gradients(compiled, x), values_and_gradients(reference, x))


@pytest.mark.parametrize("transform", ["grad", "jvp", "vmap"])
def test_transforms_inside_a_compiled_function(transform: str) -> None:
    x = x_of("cpu").detach()

    def transformed(function: Callable[..., Any]) -> Callable[..., Any]:
        if transform == "grad":
            return torch.func.grad(lambda x: function(x).sum())
        if transform == "jvp":
            return lambda x: torch.func.jvp(function, (x,), (torch.ones_like(x),))[1]
        return torch.func.vmap(function)

    compiled = torch.compile(transformed(pyflowk.gelu), fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), transformed(torch.nn.functional.gelu)(x))


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)

    def forward(self, x: Any) -> Any:
        scores = pyflowk.masked_softmax(self.linear(x), causal=True, scale=0.5)
        return pyflowk.permute(pyflowk.relu(scores + x), (1, 0))


@each_device
def test_inductor_compiles_a_model(device: str) -> None:
    torch._dynamo.reset()
    model = Model().to(device)
    modes = ["default"] if device == "cpu" else ["default", "reduce-overhead"]
    for mode in modes:
        compiled = torch.compile(model, fullgraph=True, mode=mode)
        for _ in range(3):
            x = torch.randn(8, 8, device=device)
            expected = torch.autograd.grad(model(x).square().sum(), list(model.parameters()))
            gradients = torch.autograd.grad(compiled(x).square().sum(), list(model.parameters()))
            torch.testing.assert_close(gradients, expected)


@each_device
def test_an_exported_program_calls_the_operators(device: str, tmp_path: Any) -> None:
    model, x = Model().to(device), torch.randn(8, 8, device=device)
    program = torch.export.export(model, (x,))
    targets = {str(node.target) for node in program.graph.nodes}
    assert {"flowk.masked_softmax.default", "flowk.permute.default", "flowk.relu.default"} <= targets
    torch.export.save(program, tmp_path / "model.pt2")
    loaded = torch.export.load(tmp_path / "model.pt2").module()
    torch.testing.assert_close(loaded(x), model(x))


@pytest.mark.filterwarnings("ignore")
def test_jit_trace_holds_the_operator() -> None:
    x = x_of("cpu").detach()
    traced = torch.jit.trace(lambda x: pyflowk.relu(x), x)
    assert "flowk::relu" in str(traced.graph)
    torch.testing.assert_close(traced(-x), torch.relu(-x))


def each_transposed(*xs: Any) -> Any:
    return tuple(pyflowk.permute_many(list(xs), (1, 0)))


@pytest.mark.filterwarnings("ignore")
def test_torch_sees_permute_many() -> None:
    xs = tuple(torch.arange(6.0).reshape(2, 3) + i for i in range(3))
    ys = tuple(-x for x in xs)
    expected = tuple(y.T for y in ys)
    for traced in (torch.jit.trace(each_transposed, xs), make_fx(each_transposed)(*xs)):
        torch.testing.assert_close(traced(*ys), expected)
    with forward_ad.dual_level():
        results = each_transposed(*(forward_ad.make_dual(x, y) for x, y in zip(xs, ys)))
        torch.testing.assert_close(tuple(forward_ad.unpack_dual(one).tangent for one in results), expected)
    with FakeTensorMode() as mode:
        assert all(isinstance(one, FakeTensor) for one in each_transposed(*map(mode.from_tensor, xs)))
    parameters = [torch.nn.Parameter(x) for x in xs]
    assert all(one.requires_grad for one in each_transposed(*parameters))
    assert each_transposed(xs[0], xs[1], parameters[2])[0].requires_grad is False
    assert torch.equal(torch.func.vmap(each_transposed)(*(torch.stack([x, y]) for x, y in zip(xs, ys)))[2][1], -xs[2].T)


def test_permute_many_of_tensors_that_torch_sees_is_refused_as_elsewhere() -> None:
    x = torch.ones(2, 3)
    weight, plain = torch.nn.Parameter(x), torch.nn.Parameter(x, requires_grad=False)
    expected = pyflowk.explain(pyflowk.permute_many, [x, x], (1, 0))
    assert pyflowk.explain(pyflowk.permute_many, [weight, x], (1, 0)) == expected
    assert pyflowk.explain(pyflowk.permute_many, [plain, plain], (1, 0)) == expected
    with pytest.raises(TypeError, match="out is given while autograd is on and a tensor requires grad"):
        pyflowk.permute_many([weight], (1, 0), out=[torch.empty(3, 2)])
    with pytest.raises(ValueError, match=r"xs\[1\] has shape \(2, 2\), must be \(2, 3\) as xs\[0\] has"):
        pyflowk.permute_many([weight, x[:, :2]], (1, 0))
    with pytest.raises(TypeError, match=r"xs\[1\] is a ndarray, must be a torch.Tensor, as the others are"):
        pyflowk.permute_many([weight, x.numpy()], (1, 0))
    with pytest.raises(TypeError, match="stream is given while torch traces or transforms"):
        torch.func.vmap(lambda x: pyflowk.permute_many([x], (1, 0), stream=0)[0])(x[None])


def test_compiling_may_be_the_first_use() -> None:
    program = """
from pyflowk import permute, relu
import torch
f = torch.compile(lambda x: permute(relu(x) + 1, (1, 0)), fullgraph=True, backend="aot_eager")
x = torch.randn(3, 4, requires_grad=True)
f(x).sum().backward()
assert torch.equal(x.grad, (x > 0).float())
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=True, env=dict(os.environ))


def test_checkpointing_and_saved_tensor_hooks() -> None:
    x = x_of("cpu")
    checkpointed = torch.utils.checkpoint.checkpoint(pyflowk.softmax, x, use_reentrant=False)
    (gradient,) = torch.autograd.grad(checkpointed.square().sum(), x)
    torch.testing.assert_close(gradient, torch.autograd.grad(x.softmax(-1).square().sum(), x)[0])


def test_numbers_of_every_kind_beside_tensors_that_require_grad() -> None:
    for dtype in (torch.float16, torch.float32, torch.float64):
        for shape in ((3,), ()):
            x = torch.full(shape, 0.7, dtype=dtype, requires_grad=True)
            for number in (2, 2.1, True):
                with torch.no_grad():
                    expected = pyflowk.multiply(x, number)
                result = pyflowk.multiply(x, number)
                assert result.requires_grad and result.shape == shape
                torch.testing.assert_close(result.detach(), expected, rtol=0, atol=0)
