# SPDX-License-Identifier: Apache-2.0
"""The elementwise operations that have a derivative, as formulas in jax.numpy: they say what the derivative is."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy.special import erf

from .._native.operations import BinaryOp, TernaryOp, UnaryOp

Op = UnaryOp | BinaryOp | TernaryOp


def _elu(x: Any, a: float) -> Any:
    return jnp.where(x > 0, x, a * jnp.expm1(jnp.where(x > 0, 0, x)))


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
    """The slopes are y / (x^2 + y^2) and -x / (x^2 + y^2), of numbers whose squares are not 0 or infinite too; 0 at
    (0, 0), as PyTorch's. (Those of jnp.arctan2 are NaN there.)"""
    (x, y), (t_x, t_y) = primals, tangents
    size = jax.lax.stop_gradient(jnp.maximum(jnp.abs(x), jnp.abs(y)))
    is_origin = size == 0
    size = jnp.where(is_origin, 1, size)
    x_, y_ = (jnp.where(is_origin, 0, value) / size for value in (x, y))
    square = jnp.where(is_origin, 1, x_ * x_ + y_ * y_)
    return jnp.arctan2(x, y), (t_x * y_ - t_y * x_) / square / size


# From the operands and the parameters a and b. Of an operation that is not here the derivative is 0.
FORMULAS: dict[Op, Callable[..., Any]] = {
    UnaryOp.COPY: lambda x, a, b: x,
    UnaryOp.ABS: lambda x, a, b: jnp.abs(x),
    UnaryOp.NEG: lambda x, a, b: -x,
    UnaryOp.SQUARE: lambda x, a, b: x * x,
    UnaryOp.SQRT: lambda x, a, b: jnp.sqrt(x),
    UnaryOp.RSQRT: lambda x, a, b: jax.lax.rsqrt(x),
    UnaryOp.RECIPROCAL: lambda x, a, b: 1 / x,
    UnaryOp.EXP: lambda x, a, b: jnp.exp(x),
    UnaryOp.LOG: lambda x, a, b: jnp.log(x),
    UnaryOp.SIN: lambda x, a, b: jnp.sin(x),
    UnaryOp.COS: lambda x, a, b: jnp.cos(x),
    UnaryOp.TANH: lambda x, a, b: jnp.tanh(x),
    UnaryOp.SIGMOID: lambda x, a, b: jax.nn.sigmoid(x),
    UnaryOp.LEAKY_RELU: lambda x, a, b: jnp.where(x > 0, x, a * x),
    UnaryOp.ELU: lambda x, a, b: _elu(x, a),
    UnaryOp.SOFTPLUS: lambda x, a, b: _logaddexp(x, jnp.zeros_like(x)),
    UnaryOp.CLAMP: lambda x, a, b: jnp.minimum(jnp.maximum(x, a), b),
    UnaryOp.SCALE: lambda x, a, b: a * x + b,
    UnaryOp.EXP2: lambda x, a, b: jnp.exp2(x),
    UnaryOp.EXPM1: lambda x, a, b: jnp.expm1(x),
    UnaryOp.LOG1P: lambda x, a, b: jnp.log1p(x),
    UnaryOp.LOG2: lambda x, a, b: jnp.log2(x),
    UnaryOp.LOG10: lambda x, a, b: jnp.log10(x),
    UnaryOp.ERF: lambda x, a, b: jax.lax.erf(x),
    UnaryOp.TAN: lambda x, a, b: jnp.tan(x),
    UnaryOp.ASIN: lambda x, a, b: jnp.arcsin(x),
    UnaryOp.ACOS: lambda x, a, b: jnp.arccos(x),
    UnaryOp.ATAN: lambda x, a, b: jnp.arctan(x),
    UnaryOp.SINH: lambda x, a, b: jnp.sinh(x),
    UnaryOp.COSH: lambda x, a, b: jnp.cosh(x),
    UnaryOp.ASINH: lambda x, a, b: jnp.arcsinh(x),
    UnaryOp.ACOSH: lambda x, a, b: jnp.arccosh(x),
    UnaryOp.ATANH: lambda x, a, b: jnp.arctanh(x),
    BinaryOp.ADD: lambda x, y, a, b: x + y,
    BinaryOp.SUB: lambda x, y, a, b: x - y,
    BinaryOp.MUL: lambda x, y, a, b: x * y,
    BinaryOp.DIV: lambda x, y, a, b: x / y,
    BinaryOp.POW: lambda x, y, a, b: jnp.power(x, y),
    BinaryOp.MIN: lambda x, y, a, b: jnp.minimum(x, y),
    BinaryOp.MAX: lambda x, y, a, b: jnp.maximum(x, y),
    BinaryOp.RELU_GRAD: lambda dy, x, a, b: jnp.where(x > 0, dy, 0),
    BinaryOp.GELU_GRAD: lambda dy, x, a, b: dy * _gelu_slope(x),
    BinaryOp.GELU_TANH_GRAD: lambda dy, x, a, b: dy * _gelu_tanh_slope(x),
    BinaryOp.SILU_GRAD: lambda dy, x, a, b: dy * _silu_slope(x),
    BinaryOp.SILU_MUL: lambda x, y, a, b: jax.nn.silu(x) * y,
    BinaryOp.REMAINDER: lambda x, y, a, b: x - y * jax.lax.stop_gradient(jnp.floor_divide(x, y)),
    BinaryOp.ATAN2: lambda x, y, a, b: _atan2(x, y),
    BinaryOp.HYPOT: lambda x, y, a, b: jnp.hypot(x, y),
    BinaryOp.LOGADDEXP: lambda x, y, a, b: _logaddexp(x, y),
    BinaryOp.COPYSIGN: lambda x, y, a, b: jnp.where(jnp.signbit(x) == jnp.signbit(y), x, -x),
    TernaryOp.FMA: lambda x, y, z, a, b: x * y + z,
    TernaryOp.WHERE: lambda x, y, z, a, b: jnp.where(x, y, z),
    TernaryOp.CLAMP_BY: lambda x, y, z, a, b: jnp.minimum(jnp.maximum(x, y), z),
    TernaryOp.LERP: lambda x, y, z, a, b: x + z * (y - x),
    TernaryOp.ADD_MULTIPLY: lambda x, y, z, a, b: x + a * y * z,
}

# Operations whose derivative is an operation: of the tangent and x, linear in the first.
GRADIENTS: dict[Op, BinaryOp] = {
    UnaryOp.RELU: BinaryOp.RELU_GRAD,
    UnaryOp.GELU: BinaryOp.GELU_GRAD,
    UnaryOp.GELU_TANH: BinaryOp.GELU_TANH_GRAD,
    UnaryOp.SILU: BinaryOp.SILU_GRAD,
}
# Operations whose derivative is 0 wherever it exists.
CONSTANT = frozenset({UnaryOp.FLOOR, UnaryOp.CEIL, UnaryOp.ROUND, UnaryOp.TRUNC, UnaryOp.SIGN, BinaryOp.FLOOR_DIVIDE})
