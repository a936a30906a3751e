# SPDX-License-Identifier: Apache-2.0
"""prelu and prelu_backward of pyflowk.jax, and their primitives.

alpha has one dimension. Parameter axis: the dimension of x that alpha runs along, -1 if alpha has one element.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._arguments import boolean, integer
from .._operators.prelu_arguments import alpha_axis
from . import primitives
from .jax_types import array
from .primitives import (
    Attributes,
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


def prelu(arrays: Sequence[Any], channel_axis: int) -> jax.Array:
    x, alpha = map(array, arrays, ("x", "alpha"))
    axis = _checked_axis(x, alpha, channel_axis)
    out: jax.Array = bind(prelu_p, x, _flat(alpha), axis=axis)
    return out


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
    axis = alpha_axis(x.shape, x.dtype, alpha.shape, alpha.dtype, integer(channel_axis, "channel_axis"))
    return -1 if axis is None else axis


# ---- formulas: what is differentiated -------------------------------------------------------------------------------


def _values(axis: int, x: Any, alpha: Any, *others: Any) -> list[Any]:
    """The operands, converted to the type that the library computes in; alpha broadcasts to x."""
    compute = jnp.float64 if x.dtype == jnp.float64 else jnp.float32
    alpha_shape = tuple(-1 if d == axis else 1 for d in range(x.ndim))
    return [x.astype(compute), alpha.astype(compute).reshape(alpha_shape), *(y.astype(compute) for y in others)]


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


def _like_first(first: Any, *others: Any, axis: int) -> Any:
    return first.update(weak_type=False)


def _like_x_and_alpha(dy: Any, x: Any, alpha: Any, *, axis: int) -> list[Any]:
    return [x.update(weak_type=False), alpha.update(weak_type=False)]


def _attributes(axis: int) -> Attributes:
    return {"axis": np.int64(axis)}


prelu_p = custom_call("prelu", _like_first, _attributes)
prelu_dx_p = custom_call("prelu_backward", _like_first, _attributes)
prelu_backward_p = custom_call("prelu_backward", _like_x_and_alpha, _attributes, multiple_results=True)
# Its transpose is prelu_backward, which makes both gradients in one pass.
prelu_tangent_p = computed("prelu_tangent", _like_first, _tangent_formula)
primitives.derive(prelu_dx_p, _dx_formula)
primitives.derive(prelu_backward_p, _backward_formula)


def _jvp(primitive: Any, primals: Sequence[Any], tangents: Sequence[Any], *, axis: int) -> Any:
    (x, alpha), (t, t_alpha) = primals, tangents
    out = bind(primitive, x, alpha, axis=axis)
    if is_zero(t) and is_zero(t_alpha):
        return out, zero_of(out)
    if is_zero(t_alpha):
        return out, bind(prelu_dx_p, t, x, alpha, axis=axis)
    return out, bind(prelu_tangent_p, instantiated(t), t_alpha, x, alpha, axis=axis)


def _transposed(primitive: Any, cotangent: jax.Array, *operands: Any, axis: int) -> list[jax.Array]:
    x, alpha = operands[-2:]
    if primitive is prelu_dx_p:
        return [bind(prelu_dx_p, cotangent, x, alpha, axis=axis)]
    return bind(prelu_backward_p, cotangent, x, alpha, axis=axis)  # type: ignore[no-any-return]


def _batch(primitive: Any, operands: Sequence[jax.Array], dimensions: Sequence[Any], *, axis: int) -> tuple[Any, Any]:
    """The last operand is alpha, and the second one of prelu_tangent is its tangent; the others have x's shape."""
    size = batch_size(operands, dimensions)
    alphas = {len(operands) - 1} | ({1} if primitive is prelu_tangent_p else set())
    triples = [(operand, d, index in alphas) for index, (operand, d) in enumerate(zip(operands, dimensions))]
    makes_dalpha = primitive is prelu_backward_p
    if not makes_dalpha and all(dimensions[index] is None for index in alphas):
        at = first_dimension(dimensions)
        moved = [operand if is_alpha else batched_at(operand, d, at, size) for operand, d, is_alpha in triples]
        return bind(primitive, *moved, axis=axis if axis < 0 else axis + (at <= axis)), at
    # One alpha for each element of the batch: the batch and the channels become one dimension.
    at = max(axis, 0)
    moved = [batched_at(operand, d, 0 if is_alpha else at, size) for operand, d, is_alpha in triples]
    shape, alpha_shape = moved[-2].shape, moved[-1].shape
    merged_shape = shape if axis < 0 else (*shape[:at], shape[at] * shape[at + 1], *shape[at + 2 :])
    merged = [operand.reshape(-1 if i in alphas else merged_shape) for i, operand in enumerate(moved)]
    out = bind(primitive, *merged, axis=at)
    if not makes_dalpha:
        return out.reshape(shape), at
    return [out[0].reshape(shape), out[1].reshape(alpha_shape)], [at, 0]


primitives.jvp(_jvp, prelu_p)
primitives.transpose(_transposed, prelu_dx_p, prelu_tangent_p)
primitives.batch(_batch, prelu_p, prelu_dx_p, prelu_tangent_p, prelu_backward_p)
