# SPDX-License-Identifier: Apache-2.0
"""The elementwise functions of pyflowk.jax with parameters besides operands. The others are generated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
from jax.typing import ArrayLike

from .._arguments import shown
from .._arrays.dtypes import number_type
from .._elementwise.call import LARGEST_PARAMETER
from .._native.operations import BinaryOp, TernaryOp, UnaryOp
from .._typing import DTypeLike
from . import eager
from .jax_elementwise import apply, elementwise
from .jax_types import NUMBERS, array, requested_type, require_static, static_number

__all__ = [
    "add_multiply",
    "cast",
    "clip",
    "elu",
    "elu_backward",
    "gelu",
    "gelu_backward",
    "leaky_relu",
    "leaky_relu_backward",
    "scale",
]

_GELU = {"none": UnaryOp.GELU, "tanh": UnaryOp.GELU_TANH}
_GELU_BACKWARD = {"none": BinaryOp.GELU_BACKWARD, "tanh": BinaryOp.GELU_TANH_BACKWARD}


def cast(x: ArrayLike, dtype: DTypeLike) -> jax.Array:
    """``out = x``, for every element, converted to `dtype`: as `pyflowk.cast`."""
    return eager.call(_cast, (x,), dtype=dtype)


def _cast(arrays: Sequence[Any], dtype: DTypeLike) -> jax.Array:
    x = array(arrays[0], "x")
    number_type(x.dtype, "x")
    return elementwise(UnaryOp.COPY, x, dtype=requested_type(dtype))


def leaky_relu(x: ArrayLike, slope: float = 0.01) -> jax.Array:
    """``out = x > 0 ? x : slope * x``, for every element; slope is a number: as `pyflowk.leaky_relu`."""
    return apply(UnaryOp.LEAKY_RELU, ("x", "slope"), (x,), (static_number(slope, "slope"),))


def elu(x: ArrayLike, alpha: float = 1.0) -> jax.Array:
    """``out = x > 0 ? x : alpha * (e^x - 1)``, for every element; alpha is a number: as `pyflowk.elu`."""
    return apply(UnaryOp.ELU, ("x", "alpha"), (x,), (static_number(alpha, "alpha"),))


def leaky_relu_backward(dy: ArrayLike, x: ArrayLike, slope: ArrayLike = 0.01) -> jax.Array:
    """``out = x > 0 ? dy : slope * dy``, for every element: as `pyflowk.leaky_relu_backward`."""
    return apply(TernaryOp.LEAKY_RELU_BACKWARD, ("dy", "x", "slope"), (dy, x, slope))


def elu_backward(dy: ArrayLike, x: ArrayLike, alpha: ArrayLike = 1.0) -> jax.Array:
    """``out = x > 0 ? dy : alpha * e^x * dy``, for every element: as `pyflowk.elu_backward`."""
    return apply(TernaryOp.ELU_BACKWARD, ("dy", "x", "alpha"), (dy, x, alpha))


def gelu(x: ArrayLike, approximate: str = "none") -> jax.Array:
    """``out = x * (1 + erf(x / sqrt(2))) / 2``, for every element; approximate may be "tanh": as `pyflowk.gelu`."""
    return apply(_approximated(_GELU, approximate), ("x",), (x,))


def gelu_backward(dy: ArrayLike, x: ArrayLike, approximate: str = "none") -> jax.Array:
    """``out = dy * gelu'(x)``, for every element; approximate as given to `gelu`: as `pyflowk.gelu_backward`."""
    return apply(_approximated(_GELU_BACKWARD, approximate), ("dy", "x"), (dy, x))


def _approximated(operations: dict[str, Any], approximate: str) -> Any:
    require_static(approximate, "approximate")
    if not isinstance(approximate, str) or approximate not in operations:
        raise ValueError(f"approximate = {shown(approximate)}, must be 'none' or 'tanh'")
    return operations[approximate]


def clip(x: ArrayLike, min: ArrayLike | None = None, max: ArrayLike | None = None) -> jax.Array:
    """``out = min(max(x, min), max)``, for every element; the bounds are numbers, arrays or None: as `pyflowk.clip`."""
    if max is None:
        if min is None:
            raise TypeError("min is None and max is None: pass one or both")
        return apply(BinaryOp.MAXIMUM, ("x", "min"), (x, min))
    if min is None:
        return apply(BinaryOp.MINIMUM, ("x", "max"), (x, max))
    if _are_parameters(min, max):
        return apply(UnaryOp.CLIP, ("x", "min", "max"), (x,), (min, max))
    return apply(TernaryOp.CLIP_BY, ("x", "min", "max"), (x, min, max))


def scale(x: ArrayLike, a: ArrayLike, b: ArrayLike = 0) -> jax.Array:
    """``out = a * x + b``, for every element; a and b are numbers or arrays: as `pyflowk.scale`."""
    if _are_parameters(a, b):
        return apply(UnaryOp.SCALE, ("x", "a", "b"), (x,), (a, b))
    return apply(TernaryOp.FMA, ("x", "a", "b"), (x, a, b))


def _are_parameters(*numbers: Any) -> bool:
    """Whether these are numbers that the library takes as float64 without rounding."""
    return all(
        type(number) in NUMBERS and (isinstance(number, float) or abs(number) <= LARGEST_PARAMETER)
        for number in numbers
    )


def add_multiply(x: ArrayLike, y: ArrayLike, z: ArrayLike, a: float = 1) -> jax.Array:
    """``out = x + a * y * z``, for every element; a is a number: as `pyflowk.add_multiply`."""
    factor = a if type(a) is int and abs(a) <= LARGEST_PARAMETER else static_number(a, "a")
    return apply(TernaryOp.ADD_MULTIPLY, ("x", "y", "z", "a"), (x, y, z), (factor,))
