# SPDX-License-Identifier: Apache-2.0
"""The elementwise functions whose arguments decide which operation they are: what a call asks for. functions.py has the
functions themselves, and jax_functions.py those of JAX."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._arguments import shown
from .._arrays.dtypes import NUMBER_TYPES, named_type
from .._native.operations import BinaryOp, TernaryOp, UnaryOp
from .._pipeline import Request
from .call import LARGEST_PARAMETER, Elementwise, types_of

_CAST_TO_OUT = Elementwise(UnaryOp.COPY, ("x",))
_CAST = {code: Elementwise(UnaryOp.COPY, ("x",), code) for code in NUMBER_TYPES}
_GELU = {"none": Elementwise(UnaryOp.GELU, ("x",)), "tanh": Elementwise(UnaryOp.GELU_TANH, ("x",))}
_GELU_BACKWARD = {
    "none": Elementwise(BinaryOp.GELU_BACKWARD, ("dy", "x")),
    "tanh": Elementwise(BinaryOp.GELU_TANH_BACKWARD, ("dy", "x")),
}
_AT_LEAST = Elementwise(BinaryOp.MAXIMUM, ("x", "min"))
_AT_MOST = Elementwise(BinaryOp.MINIMUM, ("x", "max"))
_CLIP_BY_NUMBERS = Elementwise(UnaryOp.CLIP, ("x",), parameters=("min", "max"))
_CLIP_BY_ARRAYS = Elementwise(TernaryOp.CLIP_BY, ("x", "min", "max"))
_SCALE = Elementwise(UnaryOp.SCALE, ("x",), parameters=("a", "b"))
_SCALE_BY = Elementwise(TernaryOp.FMA, ("x", "a", "b"))


def cast(x: Any, dtype: Any, out: Any) -> Request:
    if dtype is None and out is None:
        raise TypeError("dtype is None: pass one, or an out that has one")
    return Request(_CAST_TO_OUT if dtype is None else _CAST[named_type(dtype)], (x,))


def gelu(x: Any, approximate: Any) -> Request:
    return Request(_approximated(_GELU, approximate), (x,))


def gelu_backward(dy: Any, x: Any, approximate: Any) -> Request:
    return Request(_approximated(_GELU_BACKWARD, approximate), (dy, x))


def _approximated(operations: dict[str, Elementwise], approximate: str) -> Elementwise:
    if not isinstance(approximate, str) or approximate not in operations:
        raise ValueError(f"approximate = {shown(approximate)}, must be 'none' or 'tanh'")
    return operations[approximate]


def clip(x: Any, min: Any, max: Any) -> Request:
    if max is None:
        if min is None:
            raise TypeError("min is None and max is None: pass one or both")
        return Request(_AT_LEAST, (x, min))
    if min is None:
        return Request(_AT_MOST, (x, max))
    if _are_parameters(min, max):
        return Request(_CLIP_BY_NUMBERS, (x,), types_of(min=min, max=max), (min, max))
    return Request(_CLIP_BY_ARRAYS, (x, min, max))


def scale(x: Any, a: Any, b: Any) -> Request:
    if _are_parameters(a, b):
        return Request(_SCALE, (x,), types_of(a=a, b=b), (a, b))
    return Request(_SCALE_BY, (x, a, b))


def _are_parameters(*numbers: Any) -> bool:
    """Whether these are numbers that the library takes as float64 without rounding."""
    return all(
        isinstance(number, (float, np.floating))
        or (isinstance(number, (int, np.integer)) and -LARGEST_PARAMETER <= int(number) <= LARGEST_PARAMETER)
        for number in numbers
    )
