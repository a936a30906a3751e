# SPDX-License-Identifier: Apache-2.0
"""What each elementwise operation computes, in NumPy for the check and in PyTorch as a rival."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

PARAMETERS = {"leaky_relu": (0.1,), "elu": (1.5,), "clip": (-0.5, 0.75), "scale": (2.0, 1.0), "add_multiply": (2.0,)}
TANH_SCALE = math.sqrt(2 / math.pi)

_erf = np.vectorize(math.erf, otypes=[np.float64])
_erfc = np.vectorize(math.erfc, otypes=[np.float64])


def _sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def _trunc_divide(x: Any, y: Any) -> Any:
    return np.where(y == 0, 0, np.trunc(x.astype(np.longdouble) / y)).astype(x.dtype)


def _tanh_argument(x: Any) -> Any:
    """2 u, where gelu_tanh(x) = x (1 + tanh(u)) / 2 = x sigmoid(2 u)."""
    return 2 * TANH_SCALE * (x + 0.044715 * x**3)


def _normal_density(x: Any) -> Any:
    return np.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def _gelu_tanh_slope(y: Any) -> Any:
    s = _sigmoid(_tanh_argument(y))
    return s + y * s * (1 - s) * 2 * TANH_SCALE * (1 + 3 * 0.044715 * y * y)


# NumPy's names, which PyTorch has too; other operations have their own name in both, or a formula.
_NAMES = {
    "asin": "arcsin", "acos": "arccos", "atan": "arctan", "asinh": "arcsinh", "acosh": "arccosh", "atanh": "arctanh",
    "atan2": "arctan2",
}  # fmt: skip
# Written so that nothing cancels: 1 + erf(x / sqrt(2)) has one digit left at x = -8.
_NUMPY: dict[str, Callable[..., Any]] = {
    "copy": lambda x: x, "rsqrt": lambda x: 1 / np.sqrt(x), "erf": _erf, "pow": np.power, "bitwise_invert": np.invert,
    "bitwise_left_shift": np.left_shift, "bitwise_right_shift": np.right_shift, "trunc_divide": _trunc_divide,
    "scale": lambda x, a, b: a * x + b, "relu_backward": lambda x, y: np.where(y > 0, x, 0),
    "clip_by": lambda x, y, z: np.minimum(np.maximum(x, y), z), "lerp": lambda x, y, z: x + z * (y - x),
    "sigmoid": _sigmoid, "relu": lambda x: np.maximum(x, 0), "leaky_relu": lambda x, a: np.where(x > 0, x, a * x),
    "elu": lambda x, a: np.where(x > 0, x, a * np.expm1(np.minimum(x, 0))), "silu": lambda x: x * _sigmoid(x),
    "gelu": lambda x: x * _erfc(x * -math.sqrt(0.5)) / 2, "gelu_tanh": lambda x: x * _sigmoid(_tanh_argument(x)),
    "softplus": lambda x: np.logaddexp(0, x), "silu_mul": lambda x, y: x * _sigmoid(x) * y,
    "gelu_backward": lambda x, y: x * (_erfc(y * -math.sqrt(0.5)) / 2 + y * _normal_density(y)),
    "gelu_tanh_backward": lambda x, y: x * _gelu_tanh_slope(y),
    "silu_backward": lambda x, y: x * _sigmoid(y) * (1 + y * _sigmoid(-y)),
    "sigmoid_backward": lambda x, y: x * y * (1 - y), "tanh_backward": lambda x, y: x * (1 - y * y),
    "softplus_backward": lambda x, y: x * _sigmoid(y), "leaky_relu_backward": lambda x, y, z: np.where(y > 0, x, z * x),
    "elu_backward": lambda x, y, z: np.where(y > 0, x, x * z * np.exp(np.minimum(y, 0))),
    "fma": lambda x, y, z: x * y + z, "add_multiply": lambda x, y, z, a: x + a * y * z,
}  # fmt: skip
_TORCH: dict[str, Callable[..., Any]] = {
    "equal": lambda t: t.eq, "bitwise_invert": lambda t: t.bitwise_not,
    "trunc_divide": lambda t: lambda x, y: t.div(x, y, rounding_mode="trunc"),
    "scale": lambda t: lambda x, a, b: a * x + b,
    "leaky_relu": lambda t: t.nn.functional.leaky_relu, "elu": lambda t: t.nn.functional.elu,
    "gelu": lambda t: t.nn.functional.gelu, "silu": lambda t: t.nn.functional.silu,
    "gelu_tanh": lambda t: lambda x: t.nn.functional.gelu(x, approximate="tanh"),
    "softplus": lambda t: lambda x: t.nn.functional.softplus(x, threshold=1e9 if x.dtype == t.float64 else 60),
    "relu_backward": lambda t: lambda x, y: t.where(y > 0, x, t.zeros((), dtype=x.dtype, device=x.device)),
    "gelu_backward": lambda t: lambda x, y: t.ops.aten.gelu_backward(x, y),
    "gelu_tanh_backward": lambda t: lambda x, y: t.ops.aten.gelu_backward(x, y, approximate="tanh"),
    "silu_backward": lambda t: lambda x, y: t.ops.aten.silu_backward(x, y),
    "silu_mul": lambda t: lambda x, y: t.nn.functional.silu(x) * y, "clip_by": lambda t: t.clamp,
    "sigmoid_backward": lambda t: t.ops.aten.sigmoid_backward, "tanh_backward": lambda t: t.ops.aten.tanh_backward,
    "softplus_backward": lambda t: lambda x, y: t.ops.aten.softplus_backward(x, y, 1, 60),
    "leaky_relu_backward": lambda t: lambda x, y, z: t.where(y > 0, x, z * x),
    "elu_backward": lambda t: lambda x, y, z: t.where(y > 0, x, x * z * t.exp(y.clamp(max=0))),
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
    "gelu_backward": lambda x, y: np.abs(x) * (8 + 16 * (1 + y * y) * np.exp(-y * y / 4)),
    "gelu_tanh_backward": lambda x, y: 64 * np.abs(x),
    "silu_backward": lambda x, y: np.abs(x) * (8 + (8 + 4 * np.abs(y)) * (1 + np.abs(y)) * _sigmoid(-np.abs(y))),
    "logaddexp": lambda x, y: 4 + np.abs(np.logaddexp(x, y)),
    "lerp": lambda x, y, z: np.abs(x) + np.abs(z) * (np.abs(x) + np.abs(y)),
    "fma": lambda x, y, z: np.abs(x * y) * 1e-8, "add_multiply": lambda x, y, z, a: 2 * np.abs(a * y * z),
}  # fmt: skip


def numpy_formula(op: str) -> Callable[..., Any]:
    """A function of NumPy arrays, and after them of the operation's parameters."""
    found: Callable[..., Any] = _NUMPY[op] if op in _NUMPY else getattr(np, _NAMES.get(op, op))
    return found


def torch_formula(op: str, torch: Any) -> Callable[..., Any]:
    """A function of PyTorch tensors, and after them of the operation's parameters."""
    found: Callable[..., Any] = _TORCH[op](torch) if op in _TORCH else getattr(torch, _NAMES.get(op, op))
    return found
