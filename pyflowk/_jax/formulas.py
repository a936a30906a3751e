# SPDX-License-Identifier: Apache-2.0
"""The derivatives of the elementwise operations: an operation of flowk (GRADIENTS), or what jax.numpy's derivative of a
formula is (FORMULAS)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.special import erf

from .._native.operations import BinaryOp, TernaryOp, UnaryOp

Op = UnaryOp | BinaryOp | TernaryOp


# The slopes of gelu and silu are 0 or 1 outside the ranges that x is held in, so that no infinity is multiplied by 0.


def _gelu_slope(x: Any) -> Any:
    held = jnp.clip(x, -40, 40)
    return (1 + erf(held / math.sqrt(2))) / 2 + held * jnp.exp(-held * held / 2) / math.sqrt(2 * math.pi)


def _gelu_tanh_slope(x: Any) -> Any:
    held = jnp.clip(x, -40, 40)
    scale = math.sqrt(2 / math.pi)
    t = jnp.tanh(scale * (held + 0.044715 * held**3))
    return (1 + t) / 2 + held * (1 - t * t) / 2 * scale * (1 + 3 * 0.044715 * held * held)


def _silu_slope(x: Any) -> Any:
    held = jnp.clip(x, -750, 750)
    sigmoid = jax.nn.sigmoid(held)
    return sigmoid * (1 + held * (1 - sigmoid))


@jax.custom_jvp
def _logaddexp(x: Any, y: Any) -> Any:
    return jnp.logaddexp(x, y)


@_logaddexp.defjvp
def _logaddexp_jvp(primals: Any, tangents: Any) -> Any:
    """The slopes are 1 / (1 + e^(y - x)) and 1 / (1 + e^(x - y)), 1/2 for two equal infinities. (Those of jnp.logaddexp
    are 1 and e at (inf, 1), 1 and 1 at (inf, inf), NaN at (-inf, -inf).)"""
    (x, y), (t_x, t_y) = primals, tangents
    difference = jnp.where(jnp.isinf(x) & (x == y), 0, x - y)
    return jnp.logaddexp(x, y), t_x * jax.nn.sigmoid(difference) + t_y * jax.nn.sigmoid(-difference)


@jax.custom_jvp
def _atan2(x: Any, y: Any) -> Any:
    return jnp.arctan2(x, y)


@_atan2.defjvp
def _atan2_jvp(primals: Any, tangents: Any) -> Any:
    """The slopes are y / (x^2 + y^2) and -x / (x^2 + y^2), also if a square would be 0 or infinite; 0 at (0, 0), as
    PyTorch's. (The slopes of jnp.arctan2 are NaN there.)"""
    (x, y), (t_x, t_y) = primals, tangents
    size = jax.lax.stop_gradient(jnp.maximum(jnp.abs(x), jnp.abs(y)))
    is_origin = size == 0
    size = jnp.where(is_origin, 1, size)
    x_, y_ = (jnp.where(is_origin, 0, value) / size for value in (x, y))
    square = jnp.where(is_origin, 1, x_ * x_ + y_ * y_)
    return jnp.arctan2(x, y), (t_x * y_ - t_y * x_) / square / size


# The operations that jax.numpy has under the same name.
_SAME_NAMES = (
    *("ABS", "SQUARE", "SQRT", "EXP", "LOG", "EXP2", "EXPM1", "LOG1P", "LOG2", "LOG10", "SIN", "COS", "TAN"),
    *("ASIN", "ACOS", "ATAN", "SINH", "COSH", "ASINH", "ACOSH", "ATANH"),
)
# Functions of the operands and the operation's parameters. An operation that is neither here, nor in GRADIENTS
# or CONSTANT, has no derivative.
FORMULAS: dict[Op, Callable[..., Any]] = {
    **{UnaryOp[name]: getattr(jnp, name.lower()) for name in _SAME_NAMES},
    UnaryOp.COPY: lambda x: x,
    UnaryOp.NEGATIVE: jnp.negative,
    UnaryOp.RSQRT: jax.lax.rsqrt,
    UnaryOp.RECIPROCAL: lambda x: 1 / x,
    UnaryOp.CLIP: lambda x, low, high: jnp.minimum(jnp.maximum(x, low), high),
    UnaryOp.SCALE: lambda x, a, b: a * x + b,
    UnaryOp.ERF: jax.lax.erf,
    BinaryOp.ADD: jnp.add,
    BinaryOp.SUBTRACT: jnp.subtract,
    BinaryOp.MULTIPLY: jnp.multiply,
    BinaryOp.DIVIDE: jnp.divide,
    BinaryOp.POW: jnp.power,
    BinaryOp.MINIMUM: jnp.minimum,
    BinaryOp.MAXIMUM: jnp.maximum,
    BinaryOp.RELU_BACKWARD: lambda dy, x: jnp.where(x > 0, dy, 0),
    BinaryOp.GELU_BACKWARD: lambda dy, x: dy * _gelu_slope(x),
    BinaryOp.GELU_TANH_BACKWARD: lambda dy, x: dy * _gelu_tanh_slope(x),
    BinaryOp.SILU_BACKWARD: lambda dy, x: dy * _silu_slope(x),
    BinaryOp.SIGMOID_BACKWARD: lambda dy, y: dy * y * (1 - y),
    BinaryOp.TANH_BACKWARD: lambda dy, y: dy * (1 - y * y),
    BinaryOp.SOFTPLUS_BACKWARD: lambda dy, x: dy * jax.nn.sigmoid(x),
    BinaryOp.SILU_MUL: lambda x, y: jax.nn.silu(x) * y,
    BinaryOp.REMAINDER: lambda x, y: x - y * jax.lax.stop_gradient(jnp.floor_divide(x, y)),
    BinaryOp.ATAN2: _atan2,
    BinaryOp.HYPOT: jnp.hypot,
    BinaryOp.LOGADDEXP: _logaddexp,
    BinaryOp.COPYSIGN: lambda x, y: jnp.where(jnp.signbit(x) == jnp.signbit(y), x, -x),
    TernaryOp.FMA: lambda x, y, z: x * y + z,
    TernaryOp.WHERE: jnp.where,
    TernaryOp.CLIP_BY: lambda x, low, high: jnp.minimum(jnp.maximum(x, low), high),
    TernaryOp.LERP: lambda x, y, weight: x + weight * (y - x),
    TernaryOp.ADD_MULTIPLY: lambda x, y, z, a: x + a * y * z,
    TernaryOp.LEAKY_RELU_BACKWARD: lambda dy, x, slope: jnp.where(x > 0, dy, slope * dy),
    TernaryOp.ELU_BACKWARD: lambda dy, x, alpha: jnp.where(x > 0, dy, alpha * dy * jnp.exp(jnp.where(x > 0, 0, x))),
}

# The operations with an operation NAME_BACKWARD, which is their derivative. Its operands: the tangent, in which it is
# linear; x, or the result (OF_RESULT); the parameter, if there is one.
GRADIENTS: dict[Op, BinaryOp | TernaryOp] = {
    UnaryOp[op.name.removesuffix("_BACKWARD")]: op for op in (*BinaryOp, *TernaryOp) if op.name.endswith("_BACKWARD")
}
OF_RESULT = frozenset({UnaryOp.SIGMOID, UnaryOp.TANH})
# The derivative of these operations is 0 wherever it exists.
CONSTANT = frozenset({UnaryOp.FLOOR, UnaryOp.CEIL, UnaryOp.ROUND, UnaryOp.TRUNC, UnaryOp.SIGN, BinaryOp.FLOOR_DIVIDE})
