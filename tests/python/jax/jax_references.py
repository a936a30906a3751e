# SPDX-License-Identifier: Apache-2.0
"""Every elementwise function of pyflowk.jax by its operands, and what jax.numpy has for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jax_arrays import flowk_jax, jax, jnp


def gelu_slope(x: Any, approximate: bool) -> Any:
    return jax.vmap(jax.grad(lambda one: jax.nn.gelu(one, approximate=approximate)))(x.ravel()).reshape(x.shape)


def silu_slope(x: Any) -> Any:
    return jax.vmap(jax.grad(jax.nn.silu))(x.ravel()).reshape(x.shape)


def power(x: Any, y: Any) -> Any:
    return jnp.power(x, y) if jnp.issubdtype(x.dtype, jnp.integer) else jnp.float_power(x, y)


# name: (operands, reference). References take arrays of one shape.
ELEMENTWISE: dict[str, tuple[int, Callable[..., Any]]] = {
    "abs": (1, jnp.abs),
    "add": (2, jnp.add),
    "bitwise_and": (2, jnp.bitwise_and),
    "bitwise_or": (2, jnp.bitwise_or),
    "bitwise_xor": (2, jnp.bitwise_xor),
    "ceil": (1, jnp.ceil),
    "cos": (1, jnp.cos),
    "divide": (2, jnp.true_divide),
    "equal": (2, jnp.equal),
    "exp": (1, jnp.exp),
    "floor": (1, jnp.floor),
    "fma": (3, lambda x, y, z: x * y + z),
    "greater": (2, jnp.greater),
    "greater_equal": (2, jnp.greater_equal),
    "isnan": (1, jnp.isnan),
    "lerp": (3, lambda x, y, weight: x + weight * (y - x)),
    "less": (2, jnp.less),
    "less_equal": (2, jnp.less_equal),
    "log": (1, jnp.log),
    "logical_not": (1, jnp.logical_not),
    "maximum": (2, jnp.maximum),
    "minimum": (2, jnp.minimum),
    "multiply": (2, jnp.multiply),
    "negative": (1, jnp.negative),
    "not_equal": (2, jnp.not_equal),
    "pow": (2, power),
    "reciprocal": (1, jnp.reciprocal),
    "relu": (1, lambda x: jnp.maximum(x, 0)),
    "relu_backward": (2, lambda dy, x: jnp.where(x > 0, dy, 0)),
    "round": (1, jnp.round),
    "rsqrt": (1, lambda x: 1 / jnp.sqrt(x)),
    "sigmoid": (1, jax.nn.sigmoid),
    "silu": (1, jax.nn.silu),
    "silu_backward": (2, lambda dy, x: dy * silu_slope(x)),
    "silu_mul": (2, lambda x, y: jax.nn.silu(x) * y),
    "sin": (1, jnp.sin),
    "softplus": (1, jax.nn.softplus),
    "sqrt": (1, jnp.sqrt),
    "square": (1, jnp.square),
    "subtract": (2, jnp.subtract),
    "tanh": (1, jnp.tanh),
    "where": (3, lambda condition, x, y: jnp.where(condition, x, y)),
    "acos": (1, jnp.arccos),
    "acosh": (1, jnp.arccosh),
    "asin": (1, jnp.arcsin),
    "asinh": (1, jnp.arcsinh),
    "atan": (1, jnp.arctan),
    "atan2": (2, jnp.arctan2),
    "atanh": (1, jnp.arctanh),
    "bitwise_invert": (1, jnp.bitwise_not),
    "copysign": (2, jnp.copysign),
    "cosh": (1, jnp.cosh),
    "erf": (1, jax.lax.erf),
    "exp2": (1, jnp.exp2),
    "expm1": (1, jnp.expm1),
    "floor_divide": (2, jnp.floor_divide),
    "hypot": (2, jnp.hypot),
    "logaddexp": (2, jnp.logaddexp),
    "isfinite": (1, jnp.isfinite),
    "isinf": (1, jnp.isinf),
    "bitwise_left_shift": (2, jnp.left_shift),
    "log10": (1, jnp.log10),
    "log1p": (1, jnp.log1p),
    "log2": (1, jnp.log2),
    "logical_and": (2, jnp.logical_and),
    "logical_or": (2, jnp.logical_or),
    "logical_xor": (2, jnp.logical_xor),
    "remainder": (2, jnp.remainder),
    "bitwise_right_shift": (2, jnp.right_shift),
    "sign": (1, jnp.sign),
    "signbit": (1, jnp.signbit),
    "sinh": (1, jnp.sinh),
    "tan": (1, jnp.tan),
    "trunc": (1, jnp.trunc),
    "add_multiply": (3, lambda x, y, z: x + y * z),
    "cast": (1, lambda x: x),
    "clip": (3, lambda x, lo, hi: jnp.minimum(jnp.maximum(x, lo), hi)),
    "elu": (1, jax.nn.elu),
    "gelu": (1, lambda x: jax.nn.gelu(x, approximate=False)),
    "gelu_backward": (2, lambda dy, x: dy * gelu_slope(x, False)),
    "leaky_relu": (1, lambda x: jnp.where(x > 0, x, 0.01 * x)),
    "scale": (3, lambda x, a, b: a * x + b),
    "sigmoid_backward": (2, lambda dy, y: dy * y * (1 - y)),
    "tanh_backward": (2, lambda dy, y: dy * (1 - y * y)),
    "softplus_backward": (2, lambda dy, x: dy * jax.nn.sigmoid(x)),
    "leaky_relu_backward": (3, lambda dy, x, slope: jnp.where(x > 0, dy, slope * dy)),
    "elu_backward": (3, lambda dy, x, alpha: jnp.where(x > 0, dy, alpha * dy * jnp.exp(jnp.minimum(x, 0)))),
    "trunc_divide": (2, jax.lax.div),
}
# More calls, by the name of their function.
MORE_CALLS: dict[str, tuple[str, int, Callable[..., Any], Callable[..., Any]]] = {
    "gelu_tanh": ("gelu", 1, lambda x: flowk_jax.gelu(x, "tanh"), jax.nn.gelu),
    "gelu_tanh_backward": (
        "gelu_backward", 2, lambda dy, x: flowk_jax.gelu_backward(dy, x, "tanh"), lambda dy, x: dy * gelu_slope(x, True)
    ),
    "leaky_relu_slope": (
        "leaky_relu", 1, lambda x: flowk_jax.leaky_relu(x, 0.3), lambda x: jnp.where(x > 0, x, 0.3 * x)
    ),
    "elu_alpha": ("elu", 1, lambda x: flowk_jax.elu(x, 0.5), lambda x: jax.nn.elu(x, 0.5)),
    "clip_numbers": ("clip", 1, lambda x: flowk_jax.clip(x, -1, 1), lambda x: jnp.clip(x, -1, 1)),
    "clip_min": ("clip", 1, lambda x: flowk_jax.clip(x, -1), lambda x: jnp.maximum(x, -1)),
    "clip_max": ("clip", 2, lambda x, y: flowk_jax.clip(x, max=y), jnp.minimum),
    "scale_numbers": ("scale", 1, lambda x: flowk_jax.scale(x, 2, 3), lambda x: x * 2 + 3),
    "add_multiply_a": (
        "add_multiply", 3, lambda x, y, z: flowk_jax.add_multiply(x, y, z, 2), lambda x, y, z: x + 2 * y * z
    ),
}  # fmt: skip


def calls() -> dict[str, tuple[int, Callable[..., Any], Callable[..., Any]]]:
    """name: (operands, the function, the reference); cast has its type by the caller."""
    found = {
        name: (count, getattr(flowk_jax, name), reference)
        for name, (count, reference) in ELEMENTWISE.items()
        if name != "cast"
    }
    return {**found, **{name: call[1:] for name, call in MORE_CALLS.items()}}
