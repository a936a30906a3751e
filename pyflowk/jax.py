# SPDX-License-Identifier: Apache-2.0
"""pyflowk's functions for JAX: under jit, grad, jvp, vmap, shard_map and jax.export, on "cpu" and on "cuda".

    import jax, pyflowk.jax

    @jax.jit
    def attention_weights(scores, mask):
        return pyflowk.jax.masked_softmax(scores, mask, causal=True, scale=0.125)

The functions have the names and the arguments of pyflowk's, without `out` and `stream`, and return a jax.Array. They
are primitives of JAX; derivatives of any order and in both modes follow, with flowk's kernels for the gradients of
permute, relu, gelu, silu, prelu and softmax. The slopes of atan2 at (0, 0) are 0, and those of logaddexp for two equal
infinities 1/2. (jax.numpy's are NaN, or 1 and 1.) On a GPU the primitives run on libflowk, inside CUDA graphs too
(except prelu_backward with dalpha); on the CPU on libflowk_simt, which is there to check results, not for speed.

Types follow jax.numpy's promotion, with jax_enable_x64 and without: Python numbers are weak and are rounded to the
arrays' type; NumPy's arrays and scalars are converted to JAX's; a function that only floats have computes integers in
the type of jnp.sqrt, as do div and pow. Operands of softmax and prelu are not promoted. An int that an integer array's
type does not hold compares as what it is, as in NumPy, and is an OverflowError elsewhere; jax.numpy wraps it around.

Parameters that are no operands (scale of permute and softmax, slope of leaky_relu, alpha of elu, a of add_multiply) are
Python numbers and part of the compiled program. Shapes and types are checked while a function is traced.

jax.export asks for the names of custom calls:

    checks = [jax.export.DisabledSafetyCheck.custom_call(name) for name in pyflowk.jax.CUSTOM_CALLS]
    stored = jax.export.export(jax.jit(f), disabled_checks=checks)(*arguments).serialize()

Import pyflowk.jax before calling a stored program. On the CPU it runs wherever libflowk_simt is.
"""

from __future__ import annotations

from typing import Any

from . import _ALIASES  # type: ignore[attr-defined]
from ._jax.handlers import HANDLERS, register
from ._jax.jax_functions import (
    abs,
    acos,
    acosh,
    add,
    asin,
    asinh,
    atan,
    atan2,
    atanh,
    bitwise_and,
    bitwise_not,
    bitwise_or,
    bitwise_xor,
    ceil,
    copysign,
    cos,
    cosh,
    div,
    equal,
    erf,
    exp,
    exp2,
    expm1,
    floor,
    floor_divide,
    fma,
    greater,
    greater_equal,
    hypot,
    is_finite,
    is_inf,
    is_nan,
    left_shift,
    lerp,
    less,
    less_equal,
    log,
    log1p,
    log2,
    log10,
    logaddexp,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    maximum,
    minimum,
    mul,
    neg,
    not_equal,
    pow,
    reciprocal,
    relu,
    relu_grad,
    remainder,
    right_shift,
    round,
    rsqrt,
    sigmoid,
    sign,
    signbit,
    silu,
    silu_grad,
    silu_mul,
    sin,
    sinh,
    softplus,
    sqrt,
    square,
    sub,
    tan,
    tanh,
    trunc,
    where,
)
from ._jax.jax_permute import batch_transpose, permute
from ._jax.jax_prelu import prelu, prelu_backward
from ._jax.jax_softmax import log_softmax, masked_softmax, masked_softmax_backward, softmax
from ._jax.jax_with_parameters import add_multiply, cast, clip, elu, gelu, gelu_grad, leaky_relu, scale, trunc_div

# fmt: off
__all__ = [  # noqa: RUF022
    "abs", "acos", "acosh", "add", "add_multiply", "asin", "asinh", "atan", "atan2", "atanh", "batch_transpose",
    "bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor", "cast", "ceil", "clip", "copysign", "cos", "cosh", "div",
    "elu", "equal", "erf", "exp", "exp2", "expm1", "floor", "floor_divide", "fma", "gelu", "gelu_grad", "greater",
    "greater_equal", "hypot", "is_finite", "is_inf", "is_nan", "leaky_relu", "left_shift", "lerp", "less", "less_equal",
    "log", "log10", "log1p", "log2", "log_softmax", "logaddexp", "logical_and", "logical_not", "logical_or",
    "logical_xor", "masked_softmax", "masked_softmax_backward", "maximum", "minimum", "mul", "neg", "not_equal",
    "permute", "pow", "prelu", "prelu_backward", "reciprocal", "relu", "relu_grad", "remainder", "right_shift", "round",
    "rsqrt", "scale", "sigmoid", "sign", "signbit", "silu", "silu_grad", "silu_mul", "sin", "sinh", "softmax",
    "softplus", "sqrt", "square", "sub", "tan", "tanh", "trunc", "trunc_div", "where", "CUSTOM_CALLS",
]
# fmt: on

CUSTOM_CALLS = tuple(f"flowk_{name}" for name in HANDLERS)
"""The names of flowk's custom calls in a compiled program, which jax.export asks for."""

register()


def __getattr__(name: str) -> Any:
    """The other names that `pyflowk` has for these functions: subtract, clamp, ..."""
    known = _ALIASES.get(name)
    if known not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return globals()[known]
