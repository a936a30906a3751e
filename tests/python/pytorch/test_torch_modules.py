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


def test_silu_in_place() -> None:
    x = torch.randn(10)
    expected = torch.nn.functional.silu(x)
    assert modules.SiLU(inplace=True)(x) is x
    torch.testing.assert_close(x, expected)


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
