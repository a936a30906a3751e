# SPDX-License-Identifier: Apache-2.0
"""What each elementwise operation computes, in NumPy for the check and in PyTorch as a rival."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

PARAMETERS = {"leaky_relu": (0.1,), "elu": (1.5,), "clamp": (-0.5, 0.75), "scale": (2.0, 1.0), "add_multiply": (2.0,)}
BOOLEAN = {
    *(
        "equal",
        "not_equal",
        "less",
        "less_equal",
        "greater",
        "greater_equal",
        "is_nan",
        "is_inf",
        "is_finite",
        "signbit",
    ),
    *("logical_not", "logical_and", "logical_or", "logical_xor"),
}
OF_INTEGERS = {"bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not", "left_shift", "right_shift"}
TANH_SCALE = math.sqrt(2 / math.pi)

_erf = np.vectorize(math.erf, otypes=[np.float64])
_erfc = np.vectorize(math.erfc, otypes=[np.float64])


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def _tanh_argument(x: Any) -> Any:
    """2 u, where gelu_tanh(x) = x (1 + tanh(u)) / 2 = x sigmoid(2 u)."""
    return 2 * TANH_SCALE * (x + 0.044715 * x**3)


def _normal_density(x: Any) -> Any:
    return np.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def _gelu_tanh_slope(y: Any) -> Any:
    s = _sigmoid(_tanh_argument(y))
    return s + y * s * (1 - s) * 2 * TANH_SCALE * (1 + 3 * 0.044715 * y * y)


# The same of NumPy and of PyTorch: m is the module.
_SHARED: dict[str, Callable[..., Any]] = {
    "copy": lambda m, x: x, "abs": lambda m, x: m.abs(x), "neg": lambda m, x: -x, "square": lambda m, x: x * x,
    "sqrt": lambda m, x: m.sqrt(x), "rsqrt": lambda m, x: 1 / m.sqrt(x), "reciprocal": lambda m, x: 1 / x,
    "exp": lambda m, x: m.exp(x), "log": lambda m, x: m.log(x), "sin": lambda m, x: m.sin(x),
    "cos": lambda m, x: m.cos(x), "tanh": lambda m, x: m.tanh(x), "floor": lambda m, x: m.floor(x),
    "ceil": lambda m, x: m.ceil(x), "round": lambda m, x: m.round(x), "is_nan": lambda m, x: m.isnan(x),
    "clamp": lambda m, x, a, b: m.clip(x, a, b), "scale": lambda m, x, a, b: a * x + b,
    "logical_not": lambda m, x: m.logical_not(x), "add": lambda m, x, y: x + y, "sub": lambda m, x, y: x - y,
    "mul": lambda m, x, y: x * y, "div": lambda m, x, y: x / y, "pow": lambda m, x, y: x**y,
    "min": lambda m, x, y: m.minimum(x, y), "max": lambda m, x, y: m.maximum(x, y), "equal": lambda m, x, y: x == y,
    "not_equal": lambda m, x, y: x != y, "less": lambda m, x, y: x < y, "less_equal": lambda m, x, y: x <= y,
    "greater": lambda m, x, y: x > y, "greater_equal": lambda m, x, y: x >= y, "bitwise_and": lambda m, x, y: x & y,
    "bitwise_or": lambda m, x, y: x | y, "bitwise_xor": lambda m, x, y: x ^ y,
    "is_inf": lambda m, x: m.isinf(x), "is_finite": lambda m, x: m.isfinite(x),
    "atan2": lambda m, x, y: m.arctan2(x, y), "bitwise_not": lambda m, x: ~x,
    "remainder": lambda m, x, y: m.remainder(x, y), "floor_divide": lambda m, x, y: m.floor_divide(x, y),
    "relu_grad": lambda m, x, y: m.where(y > 0, x, x * 0), "where": lambda m, x, y, z: m.where(x, y, z),
    "clamp_by": lambda m, x, y, z: m.minimum(m.maximum(x, y), z), "lerp": lambda m, x, y, z: x + z * (y - x),
}  # fmt: skip
# These have one name in both.
for _name in (
    *("signbit", "sign", "trunc", "exp2", "expm1", "log1p", "log2", "log10", "tan", "sinh", "cosh", "logical_and"),
    *("logical_or", "logical_xor", "hypot", "copysign", "logaddexp"),
):
    _SHARED[_name] = lambda m, *x, _name=_name: getattr(m, _name)(*x)
for _name in ("asin", "acos", "atan", "asinh", "acosh", "atanh"):
    _SHARED[_name] = lambda m, x, _name="arc" + _name[1:]: getattr(m, _name)(x)
# Written so that nothing cancels: 1 + erf(x / sqrt(2)) has one digit left at x = -8.
_NUMPY: dict[str, Callable[..., Any]] = {
    "erf": _erf, "left_shift": lambda x, y: np.left_shift(x, y), "right_shift": lambda x, y: np.right_shift(x, y),
    "sigmoid": _sigmoid, "relu": lambda x: np.maximum(x, 0), "leaky_relu": lambda x, a: np.where(x > 0, x, a * x),
    "elu": lambda x, a: np.where(x > 0, x, a * np.expm1(np.minimum(x, 0))), "silu": lambda x: x * _sigmoid(x),
    "gelu": lambda x: x * _erfc(x * -math.sqrt(0.5)) / 2, "gelu_tanh": lambda x: x * _sigmoid(_tanh_argument(x)),
    "softplus": lambda x: np.logaddexp(0, x), "silu_mul": lambda x, y: x * _sigmoid(x) * y,
    "gelu_grad": lambda x, y: x * (_erfc(y * -math.sqrt(0.5)) / 2 + y * _normal_density(y)),
    "gelu_tanh_grad": lambda x, y: x * _gelu_tanh_slope(y),
    "silu_grad": lambda x, y: x * _sigmoid(y) * (1 + y * _sigmoid(-y)),
    "fma": lambda x, y, z: x * y + z, "add_multiply": lambda x, y, z, a: x + a * y * z,
}  # fmt: skip
_TORCH: dict[str, Callable[..., Any]] = {
    "erf": lambda t: t.erf, "left_shift": lambda t: t.bitwise_left_shift,
    "right_shift": lambda t: t.bitwise_right_shift,
    "rsqrt": lambda t: t.rsqrt, "square": lambda t: t.square, "reciprocal": lambda t: t.reciprocal,
    "sigmoid": lambda t: t.sigmoid, "relu": lambda t: t.relu, "leaky_relu": lambda t: t.nn.functional.leaky_relu,
    "elu": lambda t: t.nn.functional.elu, "gelu": lambda t: t.nn.functional.gelu,
    "silu": lambda t: t.nn.functional.silu,
    "gelu_tanh": lambda t: lambda x: t.nn.functional.gelu(x, approximate="tanh"), "pow": lambda t: t.pow,
    "softplus": lambda t: lambda x: t.nn.functional.softplus(x, threshold=1e9 if x.dtype == t.float64 else 60),
    "relu_grad": lambda t: lambda x, y: t.where(y > 0, x, t.zeros((), dtype=x.dtype, device=x.device)),
    "gelu_grad": lambda t: lambda x, y: t.ops.aten.gelu_backward(x, y),
    "gelu_tanh_grad": lambda t: lambda x, y: t.ops.aten.gelu_backward(x, y, approximate="tanh"),
    "silu_grad": lambda t: lambda x, y: t.ops.aten.silu_backward(x, y), "lerp": lambda t: t.lerp,
    "silu_mul": lambda t: lambda x, y: t.nn.functional.silu(x) * y, "clamp_by": lambda t: t.clamp,
    "fma": lambda t: lambda x, y, z: t.addcmul(z, x, y),
    "add_multiply": lambda t: lambda x, y, z, a: t.addcmul(x, y, z, value=a),
}  # fmt: skip
# The errors of float32 and float64 results that 16 units in the last place of the result do not bound, in units of the
# type's eps: an exponential multiplies the rounding error of its argument, and a sum is as exact as its summands.
LOSSES: dict[str, Callable[..., Any]] = {
    "gelu": lambda x: (8 + 2 * x * x) * np.abs(_NUMPY["gelu"](x)),
    "gelu_tanh": lambda x: (8 + 8 * np.abs(_tanh_argument(x))) * np.abs(_NUMPY["gelu_tanh"](x)),
    "silu": lambda x: (8 + np.abs(x)) * np.abs(_NUMPY["silu"](x)), "sigmoid": lambda x: (8 + np.abs(x)) * _sigmoid(x),
    "silu_mul": lambda x, y: (8 + np.abs(x)) * np.abs(_NUMPY["silu"](x) * y),
    "gelu_grad": lambda x, y: np.abs(x) * (8 + 16 * (1 + y * y) * np.exp(-y * y / 4)),
    "gelu_tanh_grad": lambda x, y: 64 * np.abs(x),
    "silu_grad": lambda x, y: np.abs(x) * (8 + (8 + 4 * np.abs(y)) * (1 + np.abs(y)) * _sigmoid(-np.abs(y))),
    "logaddexp": lambda x, y: 4 + np.abs(np.logaddexp(x, y)),
    "lerp": lambda x, y, z: np.abs(x) + np.abs(z) * (np.abs(x) + np.abs(y)),
    "fma": lambda x, y, z: np.abs(x * y) * 1e-8, "add_multiply": lambda x, y, z, a: 2 * np.abs(a * y * z),
}  # fmt: skip


def numpy_formula(op: str) -> Callable[..., Any]:
    """The operation of NumPy arrays, then its parameters."""
    if op in _NUMPY:
        return _NUMPY[op]
    shared = _SHARED[op]
    return lambda *inputs: shared(np, *inputs)


def torch_formula(op: str, torch: Any) -> Callable[..., Any]:
    """The operation of PyTorch tensors, then its parameters."""
    if op in _TORCH:
        found: Callable[..., Any] = _TORCH[op](torch)
        return found
    shared = _SHARED[op]
    return lambda *inputs: shared(torch, *inputs)
