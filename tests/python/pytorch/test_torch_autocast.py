# SPDX-License-Identifier: Apache-2.0
"""Under torch.autocast the types are those that PyTorch's own operators have."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from torch_calls import DEVICES  # noqa: E402

import pyflowk  # noqa: E402
import pyflowk.torch as modules  # noqa: E402
from pyflowk._explain import _OPERATORS  # noqa: E402
from pyflowk._torch import autocast  # noqa: E402

F = torch.nn.functional
OTHER_NAMES = {
    "absolute": torch.abs,
    "silu": F.silu,
    "gelu": F.gelu,
    "softplus": F.softplus,
    "elu": F.elu,
    "leaky_relu": F.leaky_relu,
    "cast": None,
    "fma": None,
    "scale": None,
    "positive": torch.clone,
    "where": None,
    "lerp": None,
    "equal": torch.eq,
    "clip": None,
    "permute": None,
    "softmax": lambda x: torch.softmax(x, -1),
    "log_softmax": lambda x: torch.log_softmax(x, -1),
}


def pairs() -> dict[str, tuple[Callable[..., Any], Callable[..., Any]]]:
    """The functions of one or two floats that PyTorch has too."""
    found: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {}
    x = torch.rand(3, 3) / 2 + 0.25
    for name in _OPERATORS:
        own, other = getattr(pyflowk, name), OTHER_NAMES.get(name, getattr(torch, name, None))
        for count in (1, 2):
            try:
                own(*[x] * count), other(*[x] * count)  # type: ignore[misc]
            except (TypeError, ValueError, RuntimeError):
                continue
            found[name] = (
                lambda x, own=own, count=count: own(*[x] * count),
                lambda x, other=other, count=count: other(*[x] * count),
            )
            break
    return found


PAIRS = pairs()


@pytest.fixture(params=["cpu", "cuda"])
def device(request: pytest.FixtureRequest) -> Iterator[str]:
    """A device under autocast to bfloat16. Without a GPU its tensors are fake, and have a type."""
    before = torch.is_autocast_enabled(request.param), torch.get_autocast_dtype(request.param)
    torch.set_autocast_enabled(request.param, True)
    torch.set_autocast_dtype(request.param, torch.bfloat16)
    try:
        if request.param in DEVICES:
            yield request.param
        else:
            with FakeTensorMode():
                yield request.param
    finally:
        torch.set_autocast_enabled(request.param, before[0])
        torch.set_autocast_dtype(request.param, before[1])


def test_the_pairs_are_most_functions() -> None:
    assert len(PAIRS) > 50
    assert {"exp", "log", "pow", "square", "softplus", "add", "relu", "gelu", "tanh", "softmax"} <= set(PAIRS)


@pytest.mark.parametrize("name", PAIRS)
def test_results_have_torch_s_types(name: str, device: str) -> None:
    own, other = PAIRS[name]
    # PyTorch refuses atan2 of other types than float32 and autocast's.
    others = () if name == "atan2" else (torch.float16, torch.float64)
    for dtype in (torch.bfloat16, torch.float32, *others):
        for requires_grad in (False, True)[
            : 1 + (device in DEVICES)
        ]:  # fake tensors on CUDA have no graph without a GPU
            x = torch.rand(3, 3, device=device).to(dtype).requires_grad_(requires_grad)
            for _ in range(3):
                assert own(x).dtype == other(x).dtype, (dtype, requires_grad)


@pytest.mark.parametrize("requires_grad", [False, True])
def test_rules_apply_to_calls_that_do_not_pass_the_dispatcher(
    requires_grad: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rules for CUDA devices, on the CPU."""
    monkeypatch.setitem(autocast.RULES, "cpu", autocast.RULES["cuda"])
    x = torch.rand(3, 3).requires_grad_(requires_grad)
    with torch.autocast("cpu", torch.bfloat16):
        half = x.to(torch.bfloat16)
        results = (pyflowk.softmax(half), pyflowk.exp(half), pyflowk.prelu(x, x[0]), pyflowk.relu(half))
        assert [one.dtype for one in results] == [torch.float32, torch.float32, torch.bfloat16, torch.bfloat16]
        with pytest.raises(ValueError, match="x has no dimensions"):
            pyflowk.softmax(half.sum())
        assert torch.is_autocast_enabled("cpu")
    torch.testing.assert_close(results[0], torch.softmax(x.to(torch.bfloat16).float(), -1))
    if requires_grad:
        sum(one.float().sum() for one in results).backward()
        assert x.grad.dtype == torch.float32


@pytest.mark.parametrize("name", ["PReLU", "GELU", "SiLU", "Softmax", "LogSoftmax"])
def test_modules_have_torch_s_types_and_gradients(name: str, device: str) -> None:
    options = {"dim": -1} if "Softmax" in name else {}
    has_graph = device in DEVICES
    x = torch.rand(3, 3, device=device)
    for dtype in (torch.bfloat16, torch.float32):
        results = []
        for module in (getattr(modules, name)(**options), getattr(torch.nn, name)(**options)):
            if name == "PReLU":
                module.weight = torch.nn.Parameter(torch.rand(3, device=device), requires_grad=has_graph)
            own = x.to(dtype).requires_grad_(has_graph)
            y = module(own)
            gradient = torch.autograd.grad(y.sum(), own)[0] if has_graph else x
            results.append((y.dtype, gradient.dtype))
        assert results[0] == results[1], dtype


def test_masked_softmax_is_as_softmax(device: str) -> None:
    for dtype in (torch.float16, torch.float32):
        x = torch.rand(3, 3, device=device).to(dtype)
        assert pyflowk.masked_softmax(x, causal=True).dtype == torch.softmax(x, -1).dtype
        assert pyflowk.softmax(x, dtype=torch.float16).dtype == torch.float16
        assert pyflowk.softmax(x, 0).dtype == torch.softmax(x, 0).dtype


def test_values_under_autocast() -> None:
    x = torch.rand(3, 3)
    with torch.autocast("cpu", torch.bfloat16):
        weight = torch.tensor([0.3])
        torch.testing.assert_close(pyflowk.prelu(x - 0.5, weight), torch.prelu(x - 0.5, weight))
        assert pyflowk.prelu(x, weight).dtype == torch.bfloat16
        assert torch.equal(pyflowk.add(x, 1.5), x + 1.5)


def test_calls_that_autocast_leaves_alone() -> None:
    x = torch.rand(3, 3)
    text, size = pyflowk.explain(pyflowk.prelu, x, x[0]), pyflowk.prelu_backward_workspace_bytes(x, x[0])
    kernel = pyflowk.ElementwiseKernel("T x", "T y", "y = x + 1")
    with torch.autocast("cpu", torch.bfloat16):
        out = torch.empty(3, 3)
        assert pyflowk.prelu(x, x[0], out=out) is out and torch.equal(out, x)
        assert pyflowk.explain(pyflowk.prelu, x, x[0]) == text
        assert pyflowk.explain(pyflowk.relu, x.clone().requires_grad_()) == pyflowk.explain(pyflowk.relu, x)
        assert pyflowk.prelu_backward_workspace_bytes(x, x[0]) == size
        assert torch.equal(pyflowk.relu(x, stream=0), x)
        assert torch.equal(pyflowk.permute_many([x, x], (1, 0))[1], x.T)
        dx, _ = pyflowk.prelu_backward(x, x, x[0], dalpha_out=torch.empty(3))
        assert torch.equal(dx, x)
        with pytest.raises(Exception, match=r"no GPU|ElementwiseKernel|host|CUDA"):
            kernel(x)
    assert pyflowk.prelu(x, x[0]).dtype == torch.float32


def test_autocast_in_a_compiled_function() -> None:
    def function(x: Any) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            return pyflowk.prelu(x, x[0]), pyflowk.relu(x)

    x = torch.rand(3, 3)
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    assert [one.dtype for one in compiled(x)] == [torch.bfloat16, torch.float32]


def test_an_operator_without_a_rule_keeps_its_gradient() -> None:
    x = torch.randn(2, 8, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        (gradient,) = torch.autograd.grad(pyflowk.permute(x, (1, 0)).sum(), x)
    assert torch.equal(gradient, torch.ones(2, 8))
