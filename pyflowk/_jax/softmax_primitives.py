# SPDX-License-Identifier: Apache-2.0
"""The primitives of the softmax functions.

softmax_p           x and the operands that Options.given names -> y
softmax_tangent_p   t, y and lengths where they are given -> the derivative of y in the direction t of x
backward_p          dy, y and lengths where they are given -> dx; softmax_tangent_p's transpose in its first operand

All have at least the dimensions (q, k). The mask and the bias have x's rank and k columns; an extent of 1 is repeated.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from .._operators.softmax_arguments import _mask_without_arrays
from . import primitives
from .primitives import ExactFloat, batch_size, batched_at, bind, computed, custom_call, is_zero, zero_of

HAS_MASK, HAS_LENGTHS, HAS_BIAS = 1, 2, 4


class Options(NamedTuple):
    """What is fixed when a program is compiled. `given` says which of mask, lengths and bias are operands, `selection`
    is side, causal, causal_offset and window."""

    given: int
    selection: tuple[Any, ...]
    scale: ExactFloat
    log: bool


def _abstract(first: Any, *others: Any, options: Options, dtype: np.dtype[Any]) -> Any:
    return first.update(dtype=dtype, weak_type=False)


def _attributes(options: Options, dtype: np.dtype[Any]) -> dict[str, Any]:
    mask = _mask_without_arrays(*options.selection)
    for name, bit in (("dense", HAS_MASK), ("lengths", HAS_LENGTHS), ("bias", HAS_BIAS)):
        setattr(mask, name, 1 if options.given & bit else None)
    words = np.frombuffer(bytes(mask), np.int64)
    return {"mask": words, "scale": np.float64(options.scale), "log": np.int64(options.log)}


def _values(dtype: np.dtype[Any], *arrays: Any) -> list[Any]:
    """In the type that the library computes in."""
    is_double = dtype == jnp.float64 or any(one.dtype == jnp.float64 for one in arrays)
    return [one.astype(jnp.float64 if is_double else jnp.float32) for one in arrays]


def _tangent_formula(t: Any, y: Any, *lengths: Any, options: Options, dtype: np.dtype[Any]) -> Any:
    t_, y_ = _values(dtype, t, y)
    if options.log:
        masked = jnp.isneginf(y_)
        total = jnp.sum(jnp.where(masked, 0, jnp.exp(y_) * t_), axis=-1, keepdims=True)
        return (float(options.scale) * jnp.where(masked, 0, t_ - total)).astype(dtype)
    return (float(options.scale) * (y_ * t_ - y_ * jnp.sum(y_ * t_, axis=-1, keepdims=True))).astype(dtype)


def _backward_formula(dy: Any, y: Any, *lengths: Any, options: Options, dtype: np.dtype[Any]) -> Any:
    if not options.log:
        return _tangent_formula(dy, y, options=options, dtype=dtype)
    dy_, y_ = _values(dtype, dy, y)
    masked = jnp.isneginf(y_)
    total = jnp.sum(jnp.where(masked, 0, dy_), axis=-1, keepdims=True)
    return (float(options.scale) * jnp.where(masked, 0, dy_ - jnp.exp(y_) * total)).astype(dtype)


softmax_p = custom_call("masked_softmax", _abstract, _attributes)
backward_p = custom_call("masked_softmax_backward", _abstract, _attributes)
softmax_tangent_p = computed("softmax_tangent", _abstract, _tangent_formula)
primitives.derive(backward_p, _backward_formula)


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], *, options: Options, dtype: np.dtype[Any]) -> Any:
    x, t = primals[0], tangents[0]
    y = bind(softmax_p, *primals, options=options, dtype=dtype)
    t_bias = tangents[-1] if options.given & HAS_BIAS else zero_of(y)
    if is_zero(t) and is_zero(t_bias):
        return y, zero_of(y)
    if not is_zero(t_bias):  # of z = scale * x + bias
        compute = jnp.float64 if x.dtype == jnp.float64 else jnp.float32
        t_z = jnp.broadcast_to(t_bias.astype(compute), x.shape)
        t = t_z if is_zero(t) else float(options.scale) * t.astype(compute) + t_z
        options = options._replace(scale=ExactFloat(1))
    lengths = [primals[1 + bool(options.given & HAS_MASK)]] if options.given & HAS_LENGTHS else []
    options = options._replace(given=options.given & HAS_LENGTHS)
    return y, bind(softmax_tangent_p, t, y, *lengths, options=options, dtype=dtype)


primitives.jvp(softmax_p, _jvp)


def _transposed(primitive: Any, cotangent: Any, t: Any, *others: Any, options: Options, dtype: np.dtype[Any]) -> Any:
    return [bind(primitive, cotangent, *others, options=options, dtype=np.dtype(t.dtype))]


primitives.transpose(softmax_tangent_p, functools.partial(_transposed, backward_p))
primitives.transpose(backward_p, functools.partial(_transposed, softmax_tangent_p))


def _batch(
    num_first: int, primitive: Any, operands: Any, dimensions: Any, *, options: Options, dtype: np.dtype[Any]
) -> tuple[Any, int]:
    """The first operands have x's shape, the others broadcast."""
    size = batch_size(operands, dimensions)
    sizes = [size] * num_first + [1] * (len(operands) - num_first)
    moved = [batched_at(one, d, 0, own) for one, d, own in zip(operands, dimensions, sizes)]
    return bind(primitive, *moved, options=options, dtype=dtype), 0


for _primitive, _num_first in ((softmax_p, 1), (softmax_tangent_p, 2), (backward_p, 2)):
    primitives.batch(_primitive, functools.partial(_batch, _num_first, _primitive))
