# SPDX-License-Identifier: Apache-2.0
"""permute by other descriptions of the axes: transpose, swapaxes, moveaxis."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from .._arguments import kind_of
from .._arrays.registry import array_adapter
from .._calls import call_path
from .._calls.call_path import CallPath, parameters_of
from .._pipeline import Request
from .permute import _permute
from .permute_arguments import moved_axes, permute_request, swapped_axes

if TYPE_CHECKING:
    from .._typing import Array, ArrayT, DTypeLike, Stream


def transpose(
    x: ArrayT,
    axes: Iterable[int] | None = None,
    *more: int,
    dtype: DTypeLike | None = None,
    scale: float = 1.0,
    out: Array | None = None,
    stream: Stream | None = None,
) -> ArrayT:
    """`permute`, which reverses the dimensions where it is given no axes.

    The values of ``np.transpose(x, axes)``, in new memory. PyTorch's transpose(x, dim0, dim1) is `swapaxes`.

    Parameters
    ----------
    x : array
        As in `permute`.
    axes : iterable of int, optional
        Every dimension of x once; by default the last one first.
    *more : int
        Refused: axes are a tuple, and PyTorch's transpose(x, dim0, dim1) is `swapaxes`.
    dtype, scale, out, stream : optional
        As in `permute`, which also says what is returned and raised.

    See Also
    --------
    swapaxes : Two dimensions, as PyTorch's transpose.
    batch_transpose : The last two dimensions.

    Examples
    --------
    >>> pyflowk.transpose(np.zeros((2, 3, 4))).shape
    (4, 3, 2)
    >>> pyflowk.transpose(np.zeros((2, 3, 4)), (0, 2, 1)).shape
    (2, 4, 3)
    """
    if more:
        raise TypeError(
            "transpose takes the axes in a tuple, as np.transpose; PyTorch's transpose(x, dim0, dim1) is swapaxes"
        )
    return (_TRANSPOSE.call if call_path.is_compiling() else _TRANSPOSE.cached_call)(x, axes, dtype, scale, out, stream)


def swapaxes(
    x: ArrayT,
    axis1: int,
    axis2: int,
    *,
    dtype: DTypeLike | None = None,
    scale: float = 1.0,
    out: Array | None = None,
    stream: Stream | None = None,
) -> ArrayT:
    """Swap two dimensions of an array: the values of ``np.swapaxes(x, axis1, axis2)``, in new memory.

    Parameters
    ----------
    x : array
        As in `permute`.
    axis1, axis2 : int
        Dimensions of x; a negative one counts from the end.
    dtype, scale, out, stream : optional
        As in `permute`, which also says what is returned and raised.

    See Also
    --------
    batch_transpose : The last two dimensions.

    Examples
    --------
    >>> heads = pyflowk.swapaxes(np.zeros((2, 128, 8, 64)), 1, 2)  # (batch, tokens, heads, size)
    >>> heads.shape, heads.flags.c_contiguous
    ((2, 8, 128, 64), True)
    """
    return (_SWAPAXES.call if call_path.is_compiling() else _SWAPAXES.cached_call)(
        x, axis1, axis2, dtype, scale, out, stream
    )


def moveaxis(
    x: ArrayT,
    source: int | Iterable[int],
    destination: int | Iterable[int],
    *,
    dtype: DTypeLike | None = None,
    scale: float = 1.0,
    out: Array | None = None,
    stream: Stream | None = None,
) -> ArrayT:
    """Move dimensions to other places; the others stay in order. ``np.moveaxis(x, source, destination)`` in new memory.

    Parameters
    ----------
    x : array
        As in `permute`.
    source, destination : int or iterable of int
        Dimensions of x, and the place of each in the result: the same number of both, none twice. Negative ones count
        from the end.
    dtype, scale, out, stream : optional
        As in `permute`, which also says what is returned and raised.

    See Also
    --------
    permute : All dimensions at once.

    Examples
    --------
    >>> pyflowk.moveaxis(np.zeros((2, 3, 4, 5)), -1, 1).shape
    (2, 5, 3, 4)
    >>> pyflowk.moveaxis(np.zeros((2, 3, 4, 5)), (0, 1), (2, 3)).shape
    (4, 5, 2, 3)
    """
    return (_MOVEAXIS.call if call_path.is_compiling() else _MOVEAXIS.cached_call)(
        x, source, destination, dtype, scale, out, stream
    )


def _transpose(x: Any, axes: Any, dtype: Any, scale: Any) -> Request:
    return _permute(x, range(_rank(x))[::-1] if axes is None else axes, (), dtype, scale)


def _swapaxes(x: Any, axis1: Any, axis2: Any, dtype: Any, scale: Any) -> Request:
    return permute_request(x, swapped_axes(_rank(x), axis1, axis2), dtype, scale)


def _moveaxis(x: Any, source: Any, destination: Any, dtype: Any, scale: Any) -> Request:
    return permute_request(x, moved_axes(_rank(x), source, destination), dtype, scale)


_TRANSPOSE = CallPath("x axes= dtype= scale=", _transpose)
_SWAPAXES = CallPath(parameters_of(swapaxes), _swapaxes)
_MOVEAXIS = CallPath(parameters_of(moveaxis), _moveaxis)


def _rank(x: Any) -> int:
    array_adapter(x, "x")
    if not hasattr(x, "shape"):
        raise TypeError(f"x is {kind_of(x)} without a shape: pass its axes to permute")
    return len(x.shape)
