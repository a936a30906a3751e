# SPDX-License-Identifier: Apache-2.0
"""prelu and prelu_backward of pyflowk.jax, and their primitives.

alpha has one dimension. Parameter axis: the dimension of x that alpha runs along, -1 where alpha has one element.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._arguments import boolean, integer
from .._operators.prelu import _alpha_axis
from . import primitives
from .jax_types import array
from .primitives import (
    batch_size,
    batched_at,
    bind,
    computed,
    custom_call,
    first_dimension,
    instantiated,
    is_zero,
    zero_of,
)


def prelu(arrays: Sequence[Any], channel_axis: int) -> Any:
    x, alpha = map(array, arrays, ("x", "alpha"))
    axis = _checked_axis(x, alpha, channel_axis)
    return bind(prelu_p, x, _flat(alpha), axis=axis)


def prelu_backward(
    arrays: Sequence[Any], channel_axis: int, need_dx: bool, need_dalpha: bool
) -> tuple[jax.Array | None, jax.Array | None]:
    dy, x, alpha = map(array, arrays, ("dy", "x", "alpha"))
    axis = _checked_axis(x, alpha, channel_axis)
    if dy.shape != x.shape:
        raise ValueError(f"dy has shape {dy.shape}, must be {x.shape} as x")
    if dy.dtype != x.dtype:
        raise TypeError(f"dy has dtype {dy.dtype}, must be {x.dtype} as x")
    wants_dx, wants_dalpha = boolean(need_dx, "need_dx"), boolean(need_dalpha, "need_dalpha")
    if not wants_dalpha:
        return (bind(prelu_dx_p, dy, x, _flat(alpha), axis=axis) if wants_dx else None), None
    dx, dalpha = bind(prelu_backward_p, dy, x, _flat(alpha), axis=axis)
    return (dx if wants_dx else None), dalpha.reshape(alpha.shape)


def _flat(alpha: jax.Array) -> jax.Array:
    return alpha if alpha.ndim == 1 else alpha.reshape(-1)


def _checked_axis(x: jax.Array, alpha: jax.Array, channel_axis: int) -> int:
    axis = _alpha_axis(x.shape, x.dtype, alpha.shape, alpha.dtype, integer(channel_axis, "channel_axis"))
    return -1 if axis is None else axis


# ---- formulas: what is differentiated -------------------------------------------------------------------------------


def _values(axis: int, x: Any, alpha: Any, *others: Any) -> list[Any]:
    """In the type that the library computes in, alpha over x's dimensions."""
    compute = jnp.float64 if x.dtype == jnp.float64 else jnp.float32
    place = tuple(-1 if d == axis else 1 for d in range(x.ndim))
    return [x.astype(compute), alpha.astype(compute).reshape(place), *(one.astype(compute) for one in others)]


def _tangent_formula(t: Any, t_alpha: Any, x: Any, alpha: Any, *, axis: int) -> Any:
    """The derivative of prelu in the direction of t and t_alpha."""
    x_, alpha_, t_ = _values(axis, x, alpha, t)
    return jnp.where(x_ > 0, t_, alpha_ * t_ + _values(axis, x, t_alpha)[1] * x_).astype(x.dtype)


def _dx_formula(dy: Any, x: Any, alpha: Any, *, axis: int) -> Any:
    x_, alpha_, dy_ = _values(axis, x, alpha, dy)
    return jnp.where(x_ > 0, dy_, alpha_ * dy_).astype(x.dtype)


def _backward_formula(dy: Any, x: Any, alpha: Any, *, axis: int) -> list[Any]:
    x_, _, dy_ = _values(axis, x, alpha, dy)
    terms = jnp.where(x_ > 0, 0, dy_ * x_)
    dalpha = jnp.sum(terms, axis=tuple(d for d in range(x.ndim) if d != axis)).reshape(alpha.shape)
    return [_dx_formula(dy, x, alpha, axis=axis), dalpha.astype(alpha.dtype)]


# ---- primitives -----------------------------------------------------------------------------------------------------


def _like_x(x: Any, alpha: Any, *, axis: int) -> Any:
    return x.update(weak_type=False)


def _like_first(first: Any, *others: Any, axis: int) -> Any:
    return first.update(weak_type=False)


def _like_x_and_alpha(dy: Any, x: Any, alpha: Any, *, axis: int) -> list[Any]:
    return [x.update(weak_type=False), alpha.update(weak_type=False)]


def _attributes(axis: int) -> dict[str, Any]:
    return {"axis": np.int64(axis)}


prelu_p = custom_call("prelu", _like_x, _attributes)
prelu_dx_p = custom_call("prelu_backward", _like_first, _attributes)
prelu_backward_p = custom_call("prelu_backward", _like_x_and_alpha, _attributes, multiple_results=True)
# Its transpose is prelu_backward, which makes both gradients in one pass.
prelu_tangent_p = computed("prelu_tangent", _like_first, _tangent_formula)
primitives.derive(prelu_dx_p, _dx_formula)
primitives.derive(prelu_backward_p, _backward_formula)


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], *, axis: int) -> Any:
    (x, alpha), (t, t_alpha) = primals, tangents
    out = bind(prelu_p, x, alpha, axis=axis)
    if is_zero(t) and is_zero(t_alpha):
        return out, zero_of(out)
    if is_zero(t_alpha):
        return out, bind(prelu_dx_p, t, x, alpha, axis=axis)
    return out, bind(prelu_tangent_p, instantiated(t), t_alpha, x, alpha, axis=axis)


primitives.jvp(prelu_p, _jvp)


@functools.partial(primitives.transpose, prelu_dx_p)
def _transposed_dx(cotangent: Any, dy: Any, x: Any, alpha: Any, *, axis: int) -> list[Any]:
    return [bind(prelu_dx_p, cotangent, x, alpha, axis=axis)]


@functools.partial(primitives.transpose, prelu_tangent_p)
def _transposed_tangent(cotangent: Any, t: Any, t_alpha: Any, x: Any, alpha: Any, *, axis: int) -> list[Any]:
    return bind(prelu_backward_p, cotangent, x, alpha, axis=axis)  # type: ignore[no-any-return]


# ---- vmap -----------------------------------------------------------------------------------------------------------


def _batch(
    primitive: Any, num_alphas: int, makes_dalpha: bool, operands: Any, dimensions: Any, *, axis: int
) -> tuple[Any, Any]:
    """The last operands are x and alpha, before them such as x; of prelu_tangent, alpha's tangent stands before x."""
    size = batch_size(operands, dimensions)
    are_alphas = [index in _alpha_places(len(operands), num_alphas) for index in range(len(operands))]
    pairs = list(zip(operands, dimensions, are_alphas))
    if not makes_dalpha and all(d is None for _, d, is_alpha in pairs if is_alpha):
        at = first_dimension(dimensions)
        moved = [one if is_alpha else batched_at(one, d, at, size) for one, d, is_alpha in pairs]
        return bind(primitive, *moved, axis=axis if axis < 0 else axis + (at <= axis)), at
    # One alpha for each element of the batch: its dimension and the channels' become one.
    at = max(axis, 0)
    moved = [batched_at(one, d, 0 if is_alpha else at, size) for one, d, is_alpha in pairs]
    shape = next(one.shape for one, is_alpha in zip(moved, are_alphas) if not is_alpha)
    alpha_shape = moved[-1].shape
    merged_shape = shape if axis < 0 else (*shape[:at], shape[at] * shape[at + 1], *shape[at + 2 :])
    merged = [one.reshape(-1 if is_alpha else merged_shape) for one, is_alpha in zip(moved, are_alphas)]
    out = bind(primitive, *merged, axis=at)
    if not makes_dalpha:
        return out.reshape(shape), at
    return [out[0].reshape(shape), out[1].reshape(alpha_shape)], [at, 0]


def _alpha_places(num_operands: int, num_alphas: int) -> tuple[int, ...]:
    return (num_operands - 1,) if num_alphas == 1 else (1, num_operands - 1)


for _primitive, _num_alphas, _makes_dalpha in (
    (prelu_p, 1, False),
    (prelu_dx_p, 1, False),
    (prelu_tangent_p, 2, False),
    (prelu_backward_p, 1, True),
):
    primitives.batch(_primitive, functools.partial(_batch, _primitive, _num_alphas, _makes_dalpha))
