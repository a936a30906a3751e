# SPDX-License-Identifier: Apache-2.0
"""pyflowk.torch's modules are torch's: arguments, state dicts, values and gradients."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch_calls import DEVICES  # noqa: E402

import pyflowk.torch as modules  # noqa: E402

PAIRS = [
    ("PReLU", {}),
    ("PReLU", {"num_parameters": 5, "init": 0.1}),
    ("GELU", {}),
    ("GELU", {"approximate": "tanh"}),
    ("SiLU", {}),
    ("ReLU", {}),
    ("LeakyReLU", {}),
    ("LeakyReLU", {"negative_slope": 0.3}),
    ("ELU", {}),
    ("ELU", {"alpha": 0.5}),
    ("Sigmoid", {}),
    ("Softmax", {"dim": -1}),
    ("Softmax", {"dim": 1}),
    ("LogSoftmax", {"dim": 0}),
]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("name", "options"), PAIRS)
def test_a_module_is_torch_s(name: str, options: dict[str, Any], device: str) -> None:
    own, reference = getattr(modules, name)(**options).to(device), getattr(torch.nn, name)(**options).to(device)
    assert inspect.signature(type(own)) == inspect.signature(type(reference))
    own.load_state_dict(reference.state_dict())
    reference.load_state_dict(own.state_dict())
    torch.manual_seed(1)
    x = torch.randn(4, 5, 6, device=device, requires_grad=True)
    results, gradients = [], []
    for module in (own, reference):
        y = module(x)
        results.append(y.detach())
        weights = torch.linspace(0, 1, y.numel(), device=device).reshape(y.shape)
        gradients.append(torch.autograd.grad((y * weights).sum(), [x, *module.parameters()]))
    torch.testing.assert_close(*results)
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("name", ["SiLU", "ReLU", "LeakyReLU", "ELU"])
def test_an_activation_in_place(name: str) -> None:
    x = torch.randn(10)
    expected = getattr(torch.nn, name)()(x)
    assert getattr(modules, name)(inplace=True)(x) is x
    torch.testing.assert_close(x, expected)


def test_the_functional_form_has_the_arguments_of_torch_s() -> None:
    x = torch.randn(3, 4)
    calls = {
        "elu": ((x, 0.5), {}), "gelu": ((x,), {"approximate": "tanh"}), "leaky_relu": ((x, 0.2), {}),
        "log_softmax": ((x, 0), {}), "prelu": ((x, torch.rand(4)), {}), "relu": ((x,), {}), "sigmoid": ((x,), {}),
        "silu": ((x,), {}), "softmax": ((x.half(), -1), {"dtype": torch.float32}),
    }  # fmt: skip
    assert set(calls) == set(modules.functional.__all__) == set(dir(modules.functional))
    for name, (arguments, options) in calls.items():
        function, expected = (
            getattr(modules.functional, name),
            getattr(torch.nn.functional, name)(*arguments, **options),
        )
        torch.testing.assert_close(function(*arguments, **options), expected)
        on_meta = function(*(one.to("meta") if isinstance(one, torch.Tensor) else one for one in arguments), **options)
        assert on_meta.is_meta and on_meta.dtype == expected.dtype
    with pytest.raises(TypeError, match="dim is None"):
        modules.functional.softmax(x)


def test_dir_lists_what_is_public() -> None:
    import pyflowk.distributed
    import pyflowk.memory

    assert dir(modules) == sorted([*modules.__all__, "functional"])
    for module in (pyflowk.memory, pyflowk.distributed):
        assert dir(module) == sorted(module.__all__)


def test_silu_in_place_in_training() -> None:
    results = []
    for module in (modules.SiLU(inplace=True), torch.nn.SiLU(inplace=True)):
        weight = torch.linspace(-2, 2, 6).requires_grad_()
        x = 2 * weight
        y = module(x)
        assert y is x and x._version == 1
        (gradient,) = torch.autograd.grad((y * torch.arange(6)).sum(), weight)
        with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
            module(weight)
        squares = 2 * weight
        needs_old_values = squares.square()
        module(squares)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            needs_old_values.sum().backward()
        results.append((y.detach(), gradient, torch.func.grad(lambda w: module(2 * w).sum())(weight.detach())))  # noqa: B023
    torch.testing.assert_close(*results)


@pytest.mark.parametrize(("name", "options"), [*PAIRS, ("MaskedSoftmax", {"causal": True})])
def test_modules_take_meta_tensors(name: str, options: dict[str, Any]) -> None:
    module = getattr(modules, name)(**options).to("meta")
    for requires_grad in (False, True):
        x = torch.empty(4, 5, 6, dtype=torch.float16, device="meta", requires_grad=requires_grad)
        for context in (torch.no_grad, torch.enable_grad):
            with context():
                y = module(x) if name != "PReLU" else module.half()(x)
            assert y.is_meta and y.shape == x.shape and y.dtype == torch.float16


def test_masked_softmax() -> None:
    module = modules.MaskedSoftmax(causal=True, scale=0.5)
    assert "causal=True" in repr(module)
    x, mask = torch.randn(2, 4, 4, requires_grad=True), torch.rand(4, 4) > 0.8
    allowed = torch.ones(4, 4).tril().bool() & ~mask
    expected = (0.5 * x).masked_fill(~allowed, -torch.inf).softmax(-1).nan_to_num()
    torch.testing.assert_close(module(x, mask), expected)


def test_the_operators_are_listed() -> None:
    assert "masked_softmax" in modules.operators and callable(torch.ops.flowk.masked_softmax)


def test_a_softmax_needs_a_dimension() -> None:
    with pytest.raises(TypeError, match="dim is None, must be an integer"):
        modules.Softmax()(torch.randn(3))
