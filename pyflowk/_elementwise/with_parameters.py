# SPDX-License-Identifier: Apache-2.0
"""The elementwise functions with parameters besides operands. The others are generated: functions.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from .._arguments import shown
from .._arrays.dtypes import NUMBER_TYPES, named_type
from .._calls import call_path
from .._calls.call_path import CallPath
from .._native.abi import DType
from .._native.operations import BinaryOp, TernaryOp, UnaryOp
from .._pipeline import Request
from .call import LARGEST_PARAMETER, Elementwise, elementwise_path, types_of

if TYPE_CHECKING:
    from .._typing import Array, ArrayT, DTypeLike, Number, Numbers, Stream

_CAST_TO_OUT = Elementwise(UnaryOp.COPY, ("x",))
_CAST = {code: Elementwise(UnaryOp.COPY, ("x",), code) for code in NUMBER_TYPES}
_LEAKY_RELU = Elementwise(UnaryOp.LEAKY_RELU, ("x",), parameters=("slope",))
_ELU = Elementwise(UnaryOp.ELU, ("x",), parameters=("alpha",))
_SCALE = Elementwise(UnaryOp.SCALE, ("x",), parameters=("a", "b"))
_SCALE_BY = Elementwise(TernaryOp.FMA, ("x", "a", "b"))
_ADD_MULTIPLY = Elementwise(TernaryOp.ADD_MULTIPLY, ("x", "y", "z"), parameters=("a",))
_GELU = {"none": Elementwise(UnaryOp.GELU, ("x",)), "tanh": Elementwise(UnaryOp.GELU_TANH, ("x",))}
_GELU_BACKWARD = {
    "none": Elementwise(BinaryOp.GELU_BACKWARD, ("dy", "x")),
    "tanh": Elementwise(BinaryOp.GELU_TANH_BACKWARD, ("dy", "x")),
}


def cast(
    x: ArrayT, dtype: DTypeLike | None = None, *, out: Array | None = None, stream: Stream | None = None
) -> ArrayT:
    """``out = x``, for every element, converted to `dtype`.

    Parameters
    ----------
    x : array
        Any shape and strides; bool, integers or floats.
    dtype : dtype-like, optional
        Of the result: a dtype of NumPy or torch, its name, or a pyflowk.DType. By default out's.
    out, stream : optional
        As in `add`, which also says what is returned and raised.

    See Also
    --------
    permute : Converts and reorders in one pass.
    scale : Multiplies by a number.

    Examples
    --------
    >>> pyflowk.cast(np.array([0.5, 2.75]), np.int32)
    array([0, 2], dtype=int32)
    """
    return (_CAST_PATH.call if call_path.is_compiling() else _CAST_PATH.cached_call)(x, dtype, out, stream)


def _cast(x: Any, dtype: Any, out: Any) -> Request:
    if dtype is None and out is None:
        raise TypeError("dtype is None: pass one, or an out that has one")
    return Request(_CAST_TO_OUT if dtype is None else _CAST[named_type(dtype)], (x,))


_CAST_PATH = CallPath("x dtype=", _cast, takes_outs=True)


def positive(x: ArrayT, *, out: Array | None = None, stream: Stream | None = None) -> ArrayT:
    """``out = x``, for every element.

    Parameters
    ----------
    x : array
        Any shape and strides; bool, integers or floats.
    out, stream : optional
        As in `add`, which also says what is returned and raised.
    """
    return (_POSITIVE_PATH.call if call_path.is_compiling() else _POSITIVE_PATH.cached_call)(x, out, stream)


_POSITIVE_PATH = elementwise_path(UnaryOp.COPY, "x")


def leaky_relu(x: ArrayT, slope: Number = 0.01, *, out: Array | None = None, stream: Stream | None = None) -> ArrayT:
    """``out = x > 0 ? x : slope * x``, for every element.

    Parameters
    ----------
    x : array
        Any shape and strides; floats. Integers and bool are computed in the float that NumPy computes them in.
    slope : number, optional
        A Python number or NumPy scalar, which affects the type of the result as in `multiply`.
    out, stream : optional
        As in `add`, which also says what is returned and raised.

    See Also
    --------
    prelu : With a slope per channel that is learned.

    Examples
    --------
    >>> pyflowk.leaky_relu(np.array([-2.0, 2.0]), 0.25)
    array([-0.5,  2. ])
    """
    return (_LEAKY_RELU_PATH.call if call_path.is_compiling() else _LEAKY_RELU_PATH.cached_call)(x, slope, out, stream)


def _leaky_relu(x: Any, slope: Any) -> Request:
    return Request(_LEAKY_RELU, (x,), _as_float(slope=slope), (slope,))


_LEAKY_RELU_PATH = CallPath("x slope~", _leaky_relu)


def leaky_relu_backward(
    dy: ArrayT | Numbers,
    x: ArrayT | Numbers,
    slope: Array | Number = 0.01,
    *,
    out: Array | None = None,
    stream: Stream | None = None,
) -> ArrayT:
    """``out = x > 0 ? dy : slope * dy``, for every element: the gradient of `leaky_relu` with respect to x.

    Parameters
    ----------
    dy, x : array or number
        As the operands of `add`; floats.
    slope : number or array, optional
        As given to `leaky_relu`; or one for each element, broadcast with x.
    out, stream : optional
        As in `add`, which also says what is returned and raised.
    """
    return (_LEAKY_RELU_BACKWARD_PATH.call if call_path.is_compiling() else _LEAKY_RELU_BACKWARD_PATH.cached_call)(
        dy, x, slope, out, stream
    )


_LEAKY_RELU_BACKWARD_PATH = elementwise_path(TernaryOp.LEAKY_RELU_BACKWARD, "dy x slope")


def elu(x: ArrayT, alpha: Number = 1.0, *, out: Array | None = None, stream: Stream | None = None) -> ArrayT:
    """``out = x > 0 ? x : alpha * (e^x - 1)``, for every element.

    Parameters
    ----------
    x : array
        Any shape and strides; floats. Integers and bool are computed in the float that NumPy computes them in.
    alpha : number, optional
        A Python number or NumPy scalar, which affects the type of the result as in `multiply`.
    out, stream : optional
        As in `add`, which also says what is returned and raised.
    """
    return (_ELU_PATH.call if call_path.is_compiling() else _ELU_PATH.cached_call)(x, alpha, out, stream)


def _elu(x: Any, alpha: Any) -> Request:
    return Request(_ELU, (x,), _as_float(alpha=alpha), (alpha,))


_ELU_PATH = CallPath("x alpha~", _elu)


def elu_backward(
    dy: ArrayT | Numbers,
    x: ArrayT | Numbers,
    alpha: Array | Number = 1.0,
    *,
    out: Array | None = None,
    stream: Stream | None = None,
) -> ArrayT:
    """``out = x > 0 ? dy : alpha * e^x * dy``, for every element: the gradient of `elu` with respect to x.

    Parameters
    ----------
    dy, x : array or number
        As the operands of `add`; floats.
    alpha : number or array, optional
        As given to `elu`; or one for each element, broadcast with x.
    out, stream : optional
        As in `add`, which also says what is returned and raised.
    """
    return (_ELU_BACKWARD_PATH.call if call_path.is_compiling() else _ELU_BACKWARD_PATH.cached_call)(
        dy, x, alpha, out, stream
    )


_ELU_BACKWARD_PATH = elementwise_path(TernaryOp.ELU_BACKWARD, "dy x alpha")


def gelu(x: ArrayT, approximate: str = "none", *, out: Array | None = None, stream: Stream | None = None) -> ArrayT:
    """``out = x * (1 + erf(x / sqrt(2))) / 2``, for every element (Hendrycks and Gimpel, 2016).

    Parameters
    ----------
    x : array
        Any shape and strides; floats. Integers and bool are computed in the float that NumPy computes them in.
    approximate : {"none", "tanh"}, optional
        "tanh": ``x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))) / 2``.
    out, stream : optional
        As in `add`, which also says what is returned and raised.

    See Also
    --------
    gelu_backward : The gradient, for use without autograd.

    Examples
    --------
    >>> pyflowk.gelu(np.array([-1.0, 0.0, 1.0])).round(4)
    array([-0.1587,  0.    ,  0.8413])
    """
    return (_GELU_PATH.call if call_path.is_compiling() else _GELU_PATH.cached_call)(x, approximate, out, stream)


def _gelu(x: Any, approximate: Any) -> Request:
    return Request(_approximated(_GELU, approximate), (x,))


_GELU_PATH = CallPath("x approximate=", _gelu)


def gelu_backward(
    dy: ArrayT | Numbers,
    x: ArrayT | Numbers,
    approximate: str = "none",
    *,
    out: Array | None = None,
    stream: Stream | None = None,
) -> ArrayT:
    """``out = dy * gelu'(x)``, for every element: the gradient of `gelu` with respect to x.

    Parameters
    ----------
    dy, x : array or number
        As the operands of `add`; floats.
    approximate : {"none", "tanh"}, optional
        As given to `gelu`.
    out, stream : optional
        As in `add`, which also says what is returned and raised.
    """
    return (_GELU_BACKWARD_PATH.call if call_path.is_compiling() else _GELU_BACKWARD_PATH.cached_call)(
        dy, x, approximate, out, stream
    )


def _gelu_backward(dy: Any, x: Any, approximate: Any) -> Request:
    return Request(_approximated(_GELU_BACKWARD, approximate), (dy, x))


_GELU_BACKWARD_PATH = CallPath("dy x approximate=", _gelu_backward)


def _approximated(operations: dict[str, Elementwise], approximate: str) -> Elementwise:
    if not isinstance(approximate, str) or approximate not in operations:
        raise ValueError(f"approximate = {shown(approximate)}, must be 'none' or 'tanh'")
    return operations[approximate]


def clip(
    x: ArrayT,
    min: Array | Numbers | None = None,
    max: Array | Numbers | None = None,
    *,
    out: Array | None = None,
    stream: Stream | None = None,
) -> ArrayT:
    """``out = min(max(x, min), max)``, for every element.

    Also called clamp.

    Parameters
    ----------
    x : array
        Any shape and strides; integers or floats.
    min, max : array or number, optional
        The bounds: numbers, or arrays that are broadcast with x. None: no bound on that side; one is needed.
    out, stream : optional
        As in `add`, which also says what is returned and raised.

    Examples
    --------
    >>> pyflowk.clip(np.array([-2.0, 0.5, 3.0]), 0, 1)
    array([0. , 0.5, 1. ])
    """
    return (_CLIP_PATH.call if call_path.is_compiling() else _CLIP_PATH.cached_call)(x, min, max, out, stream)


def _clip(x: Any, min: Any, max: Any) -> Request:
    if max is None:
        if min is None:
            raise TypeError("min is None and max is None: pass one or both")
        return Request(_AT_LEAST, (x, min))
    if min is None:
        return Request(_AT_MOST, (x, max))
    if _are_parameters(min, max):
        return Request(_CLIP_BY_NUMBERS, (x,), types_of(min=min, max=max), (min, max))
    return Request(_CLIP_BY_ARRAYS, (x, min, max))


_AT_LEAST = Elementwise(BinaryOp.MAXIMUM, ("x", "min"))
_AT_MOST = Elementwise(BinaryOp.MINIMUM, ("x", "max"))
_CLIP_BY_NUMBERS = Elementwise(UnaryOp.CLIP, ("x",), parameters=("min", "max"))
_CLIP_BY_ARRAYS = Elementwise(TernaryOp.CLIP_BY, ("x", "min", "max"))
_CLIP_PATH = CallPath("x min max", _clip)


def scale(x: ArrayT, a: Number, b: Number = 0, *, out: Array | None = None, stream: Stream | None = None) -> ArrayT:
    """``out = a * x + b``, for every element.

    Parameters
    ----------
    x : array
        Any shape and strides; integers or floats.
    a, b : number
        Numbers, which affect the type of the result as in `multiply` and `add`.
    out, stream : optional
        As in `add`, which also says what is returned and raised.

    Examples
    --------
    >>> pyflowk.scale(np.array([1.0, 2.0]), 10, 0.5)
    array([10.5, 20.5])
    """
    return (_SCALE_PATH.call if call_path.is_compiling() else _SCALE_PATH.cached_call)(x, a, b, out, stream)


def _scale(x: Any, a: Any, b: Any) -> Request:
    if _are_parameters(a, b):
        return Request(_SCALE, (x,), types_of(a=a, b=b), (a, b))
    return Request(_SCALE_BY, (x, a, b))


_SCALE_PATH = CallPath("x a~ b~", _scale)


def _as_float(**parameter: Any) -> tuple[DType | type, ...]:
    """types_of(), where an int counts as a float."""
    (kind,) = types_of(**parameter)
    return (float if kind is int else kind,)


def _are_parameters(*numbers: Any) -> bool:
    """Whether these are parameters that the library takes without rounding."""
    return all(
        isinstance(number, (float, np.floating))
        or (isinstance(number, (int, np.integer)) and -LARGEST_PARAMETER <= int(number) <= LARGEST_PARAMETER)
        for number in numbers
    )


def add_multiply(
    x: ArrayT | Numbers,
    y: ArrayT | Numbers,
    z: ArrayT | Numbers,
    a: Number = 1,
    *,
    out: Array | None = None,
    stream: Stream | None = None,
) -> ArrayT:
    """``out = x + a * y * z``, for every element.

    Parameters
    ----------
    x, y, z : array or number
        As the operands of `add`.
    a : number, optional
        A Python number or NumPy scalar, which affects the type of the result as in `multiply`; with integers within
        +-2^53.
    out, stream : optional
        As in `add`, which also says what is returned and raised.

    See Also
    --------
    fma : x * y + z.

    Examples
    --------
    >>> pyflowk.add_multiply(np.array([1.0, 2.0]), 3.0, np.array([1.0, -1.0]), 0.5)
    array([2.5, 0.5])
    """
    return (_ADD_MULTIPLY_PATH.call if call_path.is_compiling() else _ADD_MULTIPLY_PATH.cached_call)(
        x, y, z, a, out, stream
    )


def _add_multiply(x: Any, y: Any, z: Any, a: Any) -> Request:
    return Request(_ADD_MULTIPLY, (x, y, z), types_of(a=a), (a,))


_ADD_MULTIPLY_PATH = CallPath("x y z a~", _add_multiply)
