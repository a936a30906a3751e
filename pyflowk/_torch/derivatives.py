# SPDX-License-Identifier: Apache-2.0
"""The derivatives of the elementwise operations: for each operand, the gradient g of the result times the partial
derivative, or None where there is none. A formula names what it needs: g, operands, parameters, and the result `out`.

They are made of operators that have derivatives themselves. At points without a derivative they give what PyTorch's
do: half the gradient to each of two equal operands of `maximum`, 0 at 0 for relu. (relu's at NaN is 0, PyTorch's g.)
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from . import gate
from .registration import CALLS as flowk

Formula = Callable[..., Tensor]


def _same(g: Tensor) -> Tensor:
    return g


def _negated(g: Tensor) -> Tensor:
    return -g


def _zero(g: Tensor) -> Tensor:
    return torch.zeros_like(g)


def _where(condition: Tensor, g: Tensor) -> Tensor:
    return torch.where(condition, g, 0)


def _unless(g: Tensor, dropped: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """0 where `dropped`, half of g where x and y are equal, and g elsewhere, also where x or y is NaN."""
    return torch.where(x == y, g / 2, _where(~dropped, g))


def _normal_density(x: Tensor) -> Tensor:
    return torch.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def _held(x: Tensor, bound: float) -> Tensor:
    """x within -bound ... bound, in float32 if it has 16 bits. A second derivative is 0 at both bounds and past them,
    where its terms would be infinity times 0."""
    return (x.float() if x.element_size() < 4 else x).clamp(-bound, bound)


def _gelu_second(x: Tensor) -> Tensor:
    x = _held(x, 40)
    return (2 - x * x) * _normal_density(x)


def _gelu_tanh_second(x: Tensor) -> Tensor:
    x = _held(x, 10)
    k, c = math.sqrt(2 / math.pi), 0.044715
    t = torch.tanh(k * (x + c * x * x * x))
    slope, curvature = k * (1 + 3 * c * x * x), 6 * k * c * x
    return (1 - t * t) * (slope + x / 2 * (curvature - 2 * t * slope * slope))


def _silu_second(x: Tensor) -> Tensor:
    x = _held(x, 750)
    s = torch.sigmoid(x)
    return s * (1 - s) * (2 + x * (1 - 2 * s))


def _weak(number: float, g: Tensor) -> Tensor:
    """The number as an operand that does not affect g's type, and that 16-bit types do not round."""
    dtype = torch.promote_types(g.dtype, torch.float32) if g.dim() else g.dtype
    return torch.full((), number, dtype=dtype, device=g.device if gate.is_intercepted() else "cpu")


def _pow_by_base(g: Tensor, x: Tensor, y: Tensor) -> Tensor:
    return torch.where(y == 0, 0, g * y * torch.pow(x, y - 1))


def _pow_by_exponent(g: Tensor, x: Tensor, y: Tensor, out: Tensor) -> Tensor:
    return torch.where((x == 0) & (y >= 0), 0, g * out * torch.log(x))


def _over_squares(g: Tensor, a: Tensor, x: Tensor, y: Tensor) -> Tensor:
    """g * a / (x^2 + y^2), without squares that overflow or vanish; 0 where x and y are 0, and so is a."""
    length = torch.hypot(x, torch.where((x == 0) & (y == 0), 1, y))
    return g * (a / length) / length


DERIVATIVES: dict[str, tuple[Formula | None, ...]] = {
    "abs": (lambda g, x: g * torch.sgn(x),),
    "negative": (_negated,),
    "square": (lambda g, x: g * (2 * x),),
    "sqrt": (lambda g, out: g / (2 * out),),
    "rsqrt": (lambda g, out: -0.5 * g * out * out * out,),
    "reciprocal": (lambda g, out: -g * out * out,),
    "exp": (lambda g, out: g * out,),
    "log": (lambda g, x: g / x,),
    "sin": (lambda g, x: g * torch.cos(x),),
    "cos": (lambda g, x: -g * torch.sin(x),),
    "tanh": (lambda g, out: flowk.tanh_backward(g, out),),
    "sigmoid": (lambda g, out: flowk.sigmoid_backward(g, out),),
    "relu": (lambda g, x: flowk.relu_backward(g, x),),
    "leaky_relu": (lambda g, x, slope: flowk.leaky_relu_backward(g, x, _weak(slope, g)),),
    # Of x, not of out: in 16 bits out may be rounded to -alpha.
    "elu": (lambda g, x, alpha: flowk.elu_backward(g, x, _weak(alpha, g)),),
    "gelu": (lambda g, x: flowk.gelu_backward(g, x),),
    "gelu_tanh": (lambda g, x: flowk.gelu_tanh_backward(g, x),),
    "silu": (lambda g, x: flowk.silu_backward(g, x),),
    "softplus": (lambda g, x: flowk.softplus_backward(g, x),),
    "floor": (_zero,),
    "ceil": (_zero,),
    "round": (_zero,),
    "sign": (_zero,),
    "trunc": (_zero,),
    "exp2": (lambda g, out: g * out * math.log(2),),
    "expm1": (lambda g, out: g * (out + 1),),
    "log1p": (lambda g, x: g / (x + 1),),
    "log2": (lambda g, x: g / (x * math.log(2)),),
    "log10": (lambda g, x: g / (x * math.log(10)),),
    "erf": (lambda g, x: g * (2 / math.sqrt(math.pi)) * torch.exp(-x * x),),
    "tan": (lambda g, out: g * (1 + out * out),),
    "asin": (lambda g, x: g * torch.rsqrt(1 - x * x),),
    "acos": (lambda g, x: -g * torch.rsqrt(1 - x * x),),
    "atan": (lambda g, x: g / (1 + x * x),),
    "sinh": (lambda g, x: g * torch.cosh(x),),
    "cosh": (lambda g, x: g * torch.sinh(x),),
    "asinh": (lambda g, x: g * torch.rsqrt(x * x + 1),),
    "acosh": (lambda g, x: g * torch.rsqrt(x * x - 1),),
    "atanh": (lambda g, x: g / (1 - x * x),),
    "clip": (lambda g, x, lo, hi: _where((x >= lo) & (x <= hi), g),),
    "scale": (lambda g, a, b: a * g,),
    "add": (_same, _same),
    "subtract": (_same, _negated),
    "multiply": (lambda g, y: g * y, lambda g, x: g * x),
    "divide": (lambda g, y: g / y, lambda g, y, out: -g * (out / y)),
    "pow": (_pow_by_base, _pow_by_exponent),
    "minimum": (lambda g, x, y: _unless(g, x > y, x, y), lambda g, x, y: _unless(g, x < y, x, y)),
    "maximum": (lambda g, x, y: _unless(g, x < y, x, y), lambda g, x, y: _unless(g, x > y, x, y)),
    "relu_backward": (lambda g, x: flowk.relu_backward(g, x), _zero),
    "gelu_backward": (lambda g, x: flowk.gelu_backward(g, x), lambda g, dy, x: g * dy * _gelu_second(x)),
    "gelu_tanh_backward": (lambda g, x: flowk.gelu_tanh_backward(g, x), lambda g, dy, x: g * dy * _gelu_tanh_second(x)),
    "silu_backward": (lambda g, x: flowk.silu_backward(g, x), lambda g, dy, x: g * dy * _silu_second(x)),
    "sigmoid_backward": (lambda g, y: flowk.sigmoid_backward(g, y), lambda g, dy, y: g * dy * (1 - 2 * y)),
    "tanh_backward": (lambda g, y: flowk.tanh_backward(g, y), lambda g, dy, y: g * dy * (-2 * y)),
    "softplus_backward": (
        lambda g, x: flowk.softplus_backward(g, x),
        lambda g, dy, x: flowk.sigmoid_backward(g * dy, torch.sigmoid(x)),
    ),
    "leaky_relu_backward": (
        lambda g, x, slope: flowk.leaky_relu_backward(g, x, slope),
        _zero,
        lambda g, dy, x: _where(x <= 0, g * dy),
    ),
    "elu_backward": (
        lambda g, x, alpha: flowk.elu_backward(g, x, alpha),
        lambda g, dy, x, alpha: _where(x <= 0, flowk.elu_backward(g * dy, x, alpha)),
        lambda g, dy, x: _where(x <= 0, g * dy * torch.exp(x.clamp(max=0))),
    ),
    "silu_mul": (lambda g, x, y: flowk.silu_backward(g * y, x), lambda g, x: g * flowk.silu(x)),
    "floor_divide": (_zero, _zero),
    "remainder": (_same, lambda g, x, y: -g * torch.div(x, y, rounding_mode="floor")),
    "atan2": (lambda g, x, y: _over_squares(g, y, x, y), lambda g, x, y: _over_squares(-g, x, x, y)),
    "hypot": (lambda g, x, out: g * (x / out), lambda g, y, out: g * (y / out)),
    "logaddexp": (lambda g, x, y: g * torch.sigmoid(x - y), lambda g, x, y: g * torch.sigmoid(y - x)),
    "copysign": (lambda g, x, out: torch.where(x == 0, 0, g * (out / x)), _zero),
    "fma": (lambda g, y: g * y, lambda g, x: g * x, _same),
    "where": (None, lambda g, condition: _where(condition, g), lambda g, condition: _where(~condition, g)),
    "clip_by": (
        lambda g, x, lo, hi: _where((x >= lo) & (x <= hi), g),
        lambda g, x, lo, hi: _where((x < lo) & (lo < hi), g),
        lambda g, x, lo, hi: _where((x > hi) | (hi < lo), g),
    ),
    "lerp": (lambda g, weight: g * (1 - weight), lambda g, weight: g * weight, lambda g, x, y: g * (y - x)),
    "add_multiply": (_same, lambda g, z, a: a * g * z, lambda g, y, a: a * g * y),
}
