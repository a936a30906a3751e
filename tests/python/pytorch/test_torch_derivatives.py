# SPDX-License-Identifier: Apache-2.0
"""Gradients at infinities, zeros and large numbers, in 16 bits, and tangents of operands that are broadcast."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch_calls import Call, calls, label  # noqa: E402

import pyflowk  # noqa: E402

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
INFINITY = float("inf")
POINTS = torch.tensor([0.0, -0.0, 1.0, -1.0, 0.5, 3.0, -7.0, 100.0, -100.0, 3e4, INFINITY, -INFINITY, float("nan")])
each_float = pytest.mark.parametrize("dtype", FLOATS)


def pairs(dtype: torch.dtype) -> list[Any]:
    """All pairs of the points."""
    return [one.flatten().to(dtype).requires_grad_() for one in torch.meshgrid(POINTS, POINTS, indexing="ij")]


@each_float
def test_logaddexp_has_torch_s_gradients(dtype: torch.dtype) -> None:
    own, expected = (
        torch.autograd.grad(function(*operands).sum(), operands)
        for function in (pyflowk.logaddexp, torch.logaddexp)
        for operands in [pairs(dtype)]
    )
    torch.testing.assert_close(own, expected, equal_nan=True)


@each_float
def test_atan2_has_torch_s_gradients(dtype: torch.dtype) -> None:
    """Those of float64, because torch's squares overflow in float16."""
    own, expected = (
        torch.autograd.grad(function(*operands).sum(), operands)
        for function, operands in ((pyflowk.atan2, pairs(dtype)), (torch.atan2, pairs(torch.float64)))
    )
    for one, other, operand in zip(own, expected, pairs(dtype)):
        # 3e4 is another number in bfloat16, by 0.2 %.
        tolerance = {"rtol": 0.02, "atol": 1e-5} if operand.element_size() == 2 else {}
        torch.testing.assert_close(one, other.to(dtype), equal_nan=True, **tolerance)


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_atan2_of_numbers_without_squares(scale: float) -> None:
    x, y = (torch.tensor(scale * value, requires_grad=True) for value in (3, 4))
    of_x, of_y = torch.autograd.grad(pyflowk.atan2(x, y), (x, y))
    torch.testing.assert_close((of_x * scale, of_y * scale), (torch.tensor(4 / 25), torch.tensor(-3 / 25)))


@each_float
def test_elu_of_numbers_whose_results_round_to_minus_alpha(dtype: torch.dtype) -> None:
    x = torch.tensor([-7.0, -9.0, -0.5, 2.0, -INFINITY], dtype=dtype, requires_grad=True)
    (gradient,) = torch.autograd.grad(pyflowk.elu(x, 2.0).sum(), x)
    expected = torch.where(x > 0, 1, 2 * x.detach().exp())
    torch.testing.assert_close(gradient, expected)


@each_float
@pytest.mark.parametrize("name", ["gelu", "gelu_tanh", "silu"])
def test_second_derivatives_are_finite(name: str, dtype: torch.dtype) -> None:
    """They are those of float64 at the same points, and 0 far from 0."""

    def second(points: Any) -> Any:
        x = points.requires_grad_()
        function = pyflowk.silu if name == "silu" else lambda x: pyflowk.gelu(x, "tanh" if "tanh" in name else "none")
        (first,) = torch.autograd.grad(function(x).sum(), x, create_graph=True)
        return torch.autograd.grad(first.sum(), x)[0]

    near = torch.linspace(-6, 6, 49)
    torch.testing.assert_close(second(near.to(dtype)), second(near.double()).to(dtype))
    far = torch.tensor([256.0, -800.0, 6e4, -6e4, INFINITY, -INFINITY])
    assert torch.equal(second(far.to(dtype)), torch.zeros(6, dtype=dtype))
    assert second(torch.tensor([float("nan")], dtype=dtype)).isnan().all()


SEVERAL = [call for call in calls() if len(call.differentiable) > 1]


@pytest.mark.parametrize("number", range(len(SEVERAL)), ids=[label(call) for call in SEVERAL])
def test_a_tangent_of_one_operand_has_the_shape_of_the_result(number: int) -> None:
    call: Call = SEVERAL[number]
    for place in call.differentiable:
        operand = call.places[place]

        def alone(one: Any, place: Any = place) -> Any:
            return call.with_tensors([place], one)

        result, tangent = torch.func.jvp(alone, (operand,), (torch.ones_like(operand),))
        reverse = torch.autograd.functional.jvp(alone, operand, torch.ones_like(operand))[1]  # by backward() twice
        torch.testing.assert_close(tangent, reverse)
        parts = result if isinstance(result, tuple) else (result,)
        tangents = tangent if isinstance(tangent, tuple) else (tangent,)
        assert [one.shape for one in parts] == [one.shape for one in tangents]


@pytest.mark.parametrize("name", ["add", "subtract", "maximum", "remainder", "copysign", "lerp", "fma", "add_multiply"])
def test_the_tangent_of_an_operand_that_is_broadcast_against_integers(name: str) -> None:
    """The integers have no tangent, so that no sum of tangents has the shape of the result."""
    integers, y = torch.arange(1, 7, dtype=torch.int32).reshape(2, 3), torch.tensor([0.5, -1.5, 2.5])
    more = (0.25,) if name in ("lerp", "fma") else (integers,) if name == "add_multiply" else ()
    function = getattr(pyflowk, name)
    for place in (0, 1):

        def call(y: Any, integers: Any, place: int = place) -> Any:
            return function(*((y, integers) if place == 0 else (integers, y)), *more)

        result, tangent = torch.func.jvp(lambda y: call(y, integers), (y,), (torch.ones(3),))
        floats = torch.func.jvp(lambda y: call(y, integers.float()), (y,), (torch.ones(3),))
        torch.testing.assert_close((result, tangent), floats)
        assert tangent.shape == result.shape


def biased(x: torch.Tensor, bias: torch.Tensor, sinks: Any, row_scale: Any, softcap: float, log: bool) -> torch.Tensor:
    """The formula of masked_softmax(causal=True, scale=0.7)."""
    z = 0.7 * x if row_scale is None else 0.7 * row_scale[..., None] * x
    z = softcap * torch.tanh(z / softcap) + bias if softcap else z + bias
    z = torch.where(torch.ones(x.shape[-2:], dtype=torch.bool).tril(x.shape[-1] - x.shape[-2]), z, -torch.inf)
    lse = torch.logsumexp(z, -1, keepdim=True)
    lse = lse if sinks is None else torch.logaddexp(lse, sinks[..., None])
    return z - lse if log else torch.exp(z - lse)


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("terms", ["none", "sinks", "row_scale", "softcap", "all"])
@pytest.mark.parametrize("shape", [(3, 1, 6), (6,), (1, 3, 4, 6), (2, 3, 4, 6), (3, 1, 1)])
def test_a_bias_that_rows_share_has_the_gradients_of_the_formula(shape: tuple[int, ...], terms: str, log: bool) -> None:
    generator = torch.Generator().manual_seed(7)

    def drawn(*extents: int) -> torch.Tensor:
        return torch.randn(extents, dtype=torch.float64, generator=generator)

    x, bias, dy = drawn(2, 3, 4, 6).requires_grad_(), drawn(*shape).requires_grad_(), drawn(2, 3, 4, 6)
    sinks = drawn(3, 1).requires_grad_() if terms in ("sinks", "all") else None
    row_scale = (drawn(2, 1, 1).abs() + 0.5).requires_grad_() if terms in ("row_scale", "all") else None
    softcap = 2.0 if terms in ("softcap", "all") else 0.0
    y = pyflowk.masked_softmax(
        x, causal=True, bias=bias, sinks=sinks, row_scale=row_scale, scale=0.7, softcap=softcap, log=log
    )
    given = [one for one in (x, bias, sinks, row_scale) if one is not None]
    results = []
    for one in (y, biased(x, bias, sinks, row_scale, softcap, log)):
        finite = torch.where(torch.isinf(one), 0, one)
        first = torch.autograd.grad(finite, given, dy, create_graph=True)
        second = torch.autograd.grad(sum((each * each).sum() for each in first), given)
        results.append((*first, *second))
    for found, expected in zip(*results):
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_the_gradient_of_a_shared_bias_is_summed_in_float32(dtype: torch.dtype) -> None:
    x, dy = (torch.randn((500, 2, 33), generator=torch.Generator().manual_seed(seed)).to(dtype) for seed in (1, 2))
    bias = torch.zeros(2, 33, dtype=dtype, requires_grad=True)
    y = pyflowk.masked_softmax(x.requires_grad_(), bias=bias)
    dbias = torch.autograd.grad(y, bias, dy, retain_graph=True)[0]
    wide, of_y = y.detach().double(), dy.double()
    expected = (wide * (of_y - (wide * of_y).sum(-1, keepdim=True))).sum(0)
    torch.testing.assert_close(dbias.double(), expected, rtol=2 * torch.finfo(dtype).eps, atol=1e-5)
    assert dbias.dtype == dtype and torch.equal(torch.autograd.grad(y, bias, dy, retain_graph=True)[0], dbias)


def test_each_call_of_a_vmap_has_its_gradient_of_a_bias() -> None:
    x, bias = torch.randn(2, 3, 4, 6, dtype=torch.float64), torch.randn(3, 1, 6, dtype=torch.float64)
    of_both = torch.func.grad(lambda x, bias: pyflowk.masked_softmax(x, bias=bias, causal=True).pow(2).sum(), (0, 1))
    for found, expected in zip(torch.func.vmap(of_both, (0, None))(x, bias), zip(*(of_both(one, bias) for one in x))):
        torch.testing.assert_close(found, torch.stack(expected))
    rows = torch.func.vmap(of_both, (0, None))(x[:, 0, 0], bias[0, 0])
    for found, expected in zip(rows, zip(*(of_both(one, bias[0, 0]) for one in x[:, 0, 0]))):
        torch.testing.assert_close(found, torch.stack(expected))
