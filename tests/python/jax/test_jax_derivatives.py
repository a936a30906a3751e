# SPDX-License-Identifier: Apache-2.0
"""Derivatives of pyflowk.jax: against differences in float64, and against those of jax.numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from jax_arrays import ON_GPU, assert_close, check_grads, flowk_jax, jax, jnp, x64
from jax_references import calls

CALLS = calls()
# Without a derivative: results that are no floats; the others are constant between their jumps.
NO_DERIVATIVE = {
    "bitwise_and", "bitwise_or", "bitwise_xor", "equal", "not_equal", "less", "less_equal", "greater", "greater_equal",
    "isnan", "logical_not", "isinf", "isfinite", "signbit", "logical_and", "logical_or", "logical_xor",
    "bitwise_invert", "bitwise_left_shift", "bitwise_right_shift", "floor_divide", "trunc_divide",
}  # fmt: skip
JUMPS = {"floor", "ceil", "round", "trunc", "sign"}
# Functions with a second derivative that is more than jax.numpy's of a formula.
TWICE = {"gelu", "silu", "gelu_backward"}


def points(count: int, shapes: tuple[tuple[int, ...], ...] = ((2, 3),) * 3) -> list[Any]:
    """Positive numbers away from the kinks at 0 and 1, and from each other."""
    rng = np.random.default_rng(7)
    return [jnp.asarray(rng.uniform(0.3, 0.9, shape) + index) for index, shape in zip(range(count), shapes)]


def both_signs(function: Callable[..., Any]) -> Callable[..., Any]:
    signs = jnp.asarray([1.0, -1.0, 1.0])
    return lambda x, *others: function(x * signs, *others)


def differentiated(name: str) -> tuple[int, Callable[..., Any]]:
    """The operands that have a derivative, and the function of them."""
    count, function, _ = CALLS[name]
    if name == "where":
        return 2, lambda x, y: flowk_jax.where(jnp.asarray([True, False, True]), x, y)
    if name == "acosh":
        return 1, lambda x: function(x + 1)
    positive = name in ("log2", "log10", "sqrt", "rsqrt", "log", "pow", "reciprocal")
    return count, function if positive else both_signs(function)


DIFFERENTIATED = sorted(set(CALLS) - NO_DERIVATIVE - JUMPS - TWICE)
GROUPS = [*([name] for name in sorted(TWICE)), *(DIFFERENTIATED[start::4] for start in range(4))]


@pytest.mark.parametrize("names", GROUPS, ids=lambda names: "+".join(names))
def test_first_derivatives_are_those_of_differences(names: list[str]) -> None:
    """Several functions in one program: each is compiled once."""
    with x64():
        functions = {name: differentiated(name) for name in names}
        inputs = {name: points(count) for name, (count, _) in functions.items()}
        program = jax.jit(lambda given: {name: functions[name][1](*given[name]) for name in names})
        order = 2 if TWICE.issuperset(names) else 1
        check_grads(program, (inputs,), order, modes=("fwd", "rev"), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", ["add", "fma", "gelu_backward", "clip"])
def test_derivatives_of_operands_that_are_broadcast_are_summed(name: str) -> None:
    with x64():
        count, function, _ = CALLS[name]
        operands = points(count, ((2, 3), (3,), (2, 1)))
        for turned in (operands, operands[::-1]):
            check_grads(jax.jit(function), turned, 1, modes=("fwd", "rev"), atol=1e-5, rtol=1e-5)


def test_functions_that_jump_have_no_slope_and_the_others_no_tangent() -> None:
    x = jnp.linspace(-2, 2, 9) + 0.1
    for name in JUMPS:
        assert_close(jax.grad(lambda x, name=name: getattr(flowk_jax, name)(x).sum())(x), np.zeros(9, np.float32))
    for name in ("less", "equal"):
        y, t = jax.jvp(lambda x, name=name: getattr(flowk_jax, name)(x, 0.5), (x,), (x,))
        assert y.dtype == bool and t.dtype == jax.dtypes.float0
    y, t = jax.jvp(lambda x: flowk_jax.cast(x, "int32"), (x,), (x,))
    assert y.dtype == "int32" and t.dtype == jax.dtypes.float0
    counts = jnp.arange(9)
    assert_close(jax.grad(lambda x: flowk_jax.add(x, counts).sum())(x), np.ones(9, np.float32))


def test_gradients_of_bfloat16_are_those_of_float64_rounded() -> None:
    dtype = "bfloat16"
    names = [name for name in sorted(set(CALLS) - NO_DERIVATIVE - JUMPS) if name not in ("where", "clip_max")]
    with x64():
        inputs = {name: points(differentiated(name)[0]) for name in names}

        def gradients(given: Any) -> Any:
            return {
                name: jax.grad(lambda *x, name=name: differentiated(name)[1](*x).astype("float64").sum(), 0)(
                    *given[name]
                )
                for name in names
            }

        narrow = jax.tree.map(lambda x: x.astype(dtype), inputs)
        ours = jax.jit(gradients)(narrow)
        exact = jax.jit(gradients)(jax.tree.map(lambda x: x.astype("float64"), narrow))
        for name in names:
            assert ours[name].dtype == dtype
            assert_close(ours[name], exact[name].astype(dtype), 8 * float(jnp.finfo(dtype).eps))


def test_slopes_at_infinity_are_numbers() -> None:
    ends = jnp.asarray([-jnp.inf, jnp.inf, -1e30, 1e30])
    for name in ("gelu", "silu", "relu"):
        function = getattr(flowk_jax, name)
        slope = jax.vmap(jax.grad(function))(ends)
        assert_close(slope, np.array([0, 1, 0, 1], np.float32))
        assert_close(jax.vmap(jax.grad(jax.grad(function)))(ends), np.zeros(4, np.float32))


def test_hessians_are_those_of_jax_numpy() -> None:
    x = jnp.linspace(-2, 2, 6).reshape(2, 3)
    pairs = [
        (flowk_jax.gelu, lambda x: jax.nn.gelu(x, approximate=False)),
        (flowk_jax.softmax, jax.nn.softmax),
        (flowk_jax.log_softmax, jax.nn.log_softmax),
        (lambda x: flowk_jax.permute(flowk_jax.multiply(x, x), (1, 0)), lambda x: (x * x).T),
    ]
    for ours, reference in pairs:
        weights = jnp.arange(6.0).reshape(ours(x).shape)
        found = jax.jit(jax.hessian(lambda x, f=ours, w=weights: (f(x) * w).sum()))(x)
        assert_close(
            found, jax.jit(jax.hessian(lambda x, f=reference, w=weights: (f(x) * w).sum()))(x), 1e-4 if ON_GPU else 1e-5
        )
        forward = jax.jit(jax.jacfwd(jax.jacfwd(lambda x, f=ours, w=weights: (f(x) * w).sum())))(x)
        assert_close(forward, found, 1e-5)


@pytest.mark.parametrize("dtype", [None, "float16"])
def test_permute_has_permute_as_its_derivative(dtype: str | None) -> None:
    x = jnp.asarray(np.random.default_rng(1).normal(size=(2, 3, 4)), jnp.float32)

    def loss(x: Any) -> Any:
        return (flowk_jax.permute(x, (2, 0, 1), dtype=dtype, scale=0.5) * 3.0).sum()

    assert_close(jax.jit(jax.grad(loss))(x), np.full((2, 3, 4), 1.5, np.float32))
    text = str(jax.make_jaxpr(jax.grad(loss))(x))
    assert text.count("= flowk_permute_convert[") == 2
    check_grads(lambda x: flowk_jax.permute(x, (1, 2, 0)), (x,), 2, atol=1e-2, rtol=1e-2)


def test_gradients_are_kernels_of_flowk() -> None:
    x = jnp.ones((4, 5))
    for function, call in [
        (flowk_jax.relu, "flowk_binary"),
        (flowk_jax.gelu, "flowk_binary"),
        (flowk_jax.silu, "flowk_binary"),
        (flowk_jax.softmax, "flowk_masked_softmax_backward"),
        (lambda x: flowk_jax.prelu(x, jnp.ones(5)), "flowk_prelu_backward"),
        (lambda x: flowk_jax.permute(x, (1, 0)), "flowk_permute"),
    ]:
        text = jax.jit(jax.grad(lambda x, f=function: f(x).sum())).lower(x).as_text()
        assert f"@{call}(" in text


INF = float("inf")
ENDS = [(INF, 1.0), (1.0, INF), (-INF, 1.0), (1.0, -INF), (INF, -INF), (INF, INF), (-INF, -INF), (100.0, 100.0)]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_slopes_of_logaddexp_are_finite(dtype: str) -> None:
    """jnp.logaddexp's is e at (1, inf), 1 for both at (inf, inf), NaN at (-inf, -inf)."""
    x, y = jnp.asarray(ENDS, dtype).T
    slopes = jax.vmap(jax.grad(flowk_jax.logaddexp, (0, 1)))(x, y)
    expected = np.array([1, 0, 0, 1, 1, 0.5, 0.5, 0.5])
    assert_close(slopes[0], expected.astype(slopes[0].dtype), 1e-6)
    assert_close(slopes[1], (1 - expected).astype(slopes[1].dtype), 1e-6)
    second = jax.vmap(jax.grad(jax.grad(flowk_jax.logaddexp)))(x, y)
    assert_close(second[-1:], np.array([0.25]).astype(second.dtype), 1e-6)
    softplus = jax.vmap(jax.grad(flowk_jax.softplus))(jnp.asarray([INF, -INF, 0], dtype))
    assert_close(softplus, np.array([1, 0, 0.5]).astype(softplus.dtype), 1e-6)


@pytest.mark.parametrize("signs", [(0.0, 0.0), (-0.0, 0.0), (0.0, -0.0), (-0.0, -0.0)], ids=str)
def test_the_slope_of_atan2_at_the_origin_is_0(signs: tuple[float, float]) -> None:
    """As PyTorch's; jnp.arctan2's is NaN."""
    x, y = map(jnp.float32, signs)
    assert [float(slope) for slope in jax.grad(flowk_jax.atan2, (0, 1))(x, y)] == [0, 0]
    assert np.isfinite(np.asarray(jax.hessian(flowk_jax.atan2, (0, 1))(x, y))).all()


def test_the_slope_of_atan2_is_that_of_numbers_whose_squares_are_0_or_infinite() -> None:
    for size in (1e-30, 1e30):
        x, y = jnp.float32(3 * size), jnp.float32(4 * size)
        slopes = [float(slope) * size for slope in jax.grad(flowk_jax.atan2, (0, 1))(x, y)]
        assert slopes == pytest.approx([4 / 25, -3 / 25], rel=1e-6)


@pytest.mark.parametrize("name", sorted(TWICE - {"gelu_backward"} | {"gelu_tanh"}))
def test_second_derivatives_in_float16_are_numbers_past_255(name: str) -> None:
    """255^2 is the last square that float16 holds."""
    function = {"gelu_tanh": lambda x: flowk_jax.gelu(x, "tanh")}.get(name) or getattr(flowk_jax, name)
    x = jnp.asarray([255, 256, -300, 65504, INF, -INF], "float16")
    assert_close(jax.vmap(jax.grad(jax.grad(function)))(x), np.zeros(6, np.float16))


@pytest.mark.parametrize("name", [name for name in DIFFERENTIATED if CALLS[name][0] > 1] + ["gelu_backward"])
def test_the_tangent_of_one_operand_that_is_broadcast_has_the_shape_of_the_result(name: str) -> None:
    count, function, _ = CALLS[name]
    shapes = [(4, 1), (1, 3), (3,)][:count]
    operands = [jnp.full(shape, 0.5 + 0.25 * index) for index, shape in enumerate(shapes)]
    for index, one in enumerate(operands):

        def of_one(value: Any, index: int = index) -> Any:
            return function(*operands[:index], value, *operands[index + 1 :])

        out, tangent = jax.jvp(of_one, (one,), (jnp.ones_like(one),))
        assert out.shape == tangent.shape == (4, 3)
