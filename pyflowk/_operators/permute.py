# SPDX-License-Identifier: Apache-2.0
"""permute and batch_transpose."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from .._calls import call_path
from .._calls.call_path import CallPath, parameters_of
from .._pipeline import Request
from .permute_arguments import axes_tuple, permute_request
from .permute_pattern import axes_of_pattern

if TYPE_CHECKING:
    from .._typing import Array, ArrayT, DTypeLike, Stream


def permute(
    x: ArrayT,
    axes: Iterable[int] | int | str,
    *more: int,
    dtype: DTypeLike | None = None,
    scale: float = 1.0,
    out: Array | None = None,
    stream: Stream | None = None,
) -> ArrayT:
    """Reorder the dimensions of an array, in new memory.

    ``out[i[axes[0]], i[axes[1]], ...] = x[i[0], i[1], ...]``: the values of ``np.transpose(x, axes)``.

    Parameters
    ----------
    x : array
        Any shape, any strides, elements of 1, 2, 4, 8 or 16 bytes. On a GPU: torch's, CuPy's, a DeviceArray, or
        anything with ``__dlpack__`` or ``__cuda_array_interface__``. NumPy's arrays run on libflowk_simt, an executor
        of the same kernels on the CPU: it is there to check results, not for speed. A view is read in place.
    axes, *more : iterable of int, ints, or str
        Every dimension of x once; a negative one counts from the end. ``permute(x, 0, 2, 1)`` is
        ``permute(x, (0, 2, 1))`` is ``permute(x, "b q k -> b k q")``; in a pattern ``...`` are the dimensions that have
        no name.
    dtype : dtype-like, optional
        Element type of the result: a name ("bfloat16"), a DType, or a dtype of NumPy, ml_dtypes or torch. Elements are
        converted as flowk_permute_convert() in flowk.h says. By default x's.
    scale : float, optional
        Each element is multiplied by it before the conversion: ``dtype="float16", scale=1 / 255`` for pixels. Finite.
    out : array, optional
        Where to write: shape ``[x.shape[a] for a in axes]``, any strides, of type `dtype`; it must not share memory
        with x. By default a new C-contiguous array of x's kind on x's device.
    stream : int or stream object, optional
        Where to enqueue the work: a cudaStream_t as int, or a stream of cuda.core, torch, CuPy or Numba. By default the
        current stream of torch or CuPy for their arrays, the stream that a DeviceArray belongs to (out's before x's),
        and the legacy default stream for others. Where torch's or CuPy's arrays are in use on another stream, the
        caller waits; other arrays carry their stream, and pyflowk waits for it. New results and temporaries are
        allocated on this stream, as in a block ``with torch.cuda.stream(stream)``, and freed in its order: before a
        result is freed, its use on another stream must be over, or torch must know of it by ``record_stream``.

    Returns
    -------
    array
        `out`. On a GPU the work may still be running.

    Raises
    ------
    FlowkValueError
        `axes` is not a permutation, or the library refuses a value.
    FlowkError
        Any other status of the library, in ``.status``.
    ValueError, TypeError
        `out` has another shape, dtype or device; x or `dtype` is of 64-bit integers, complex or no number and differs
        from the other or is scaled; an argument is not of its type.

    See Also
    --------
    transpose : The dimensions in reverse.
    swapaxes : Two dimensions.
    moveaxis : Some dimensions, by their old and new places.
    permute_many : The same permute of several arrays in one launch.
    cast : Another type in the same order.

    Examples
    --------
    >>> x = np.arange(6).reshape(1, 2, 3)
    >>> pyflowk.permute(x, (0, 2, 1))
    array([[[0, 3],
            [1, 4],
            [2, 5]]])
    >>> pixels = np.full((1, 4, 4, 3), 255, np.uint8)  # NHWC to NCHW, in 0 ... 1
    >>> planes = pyflowk.permute(pixels, "n h w c -> n c h w", dtype="float16", scale=1 / 255)
    >>> planes[0, 0, 0]
    array([1., 1., 1., 1.], dtype=float16)
    """
    return (_PERMUTE.call if call_path.is_compiling() else _PERMUTE.cached_call)(
        x, axes, more, dtype, scale, out, stream
    )


def batch_transpose(
    x: ArrayT,
    *,
    dtype: DTypeLike | None = None,
    scale: float = 1.0,
    out: Array | None = None,
    stream: Stream | None = None,
) -> ArrayT:
    """Swap the last two dimensions of an array, in new memory: ``out[..., c, r] = x[..., r, c]``.

    Parameters
    ----------
    x : array
        At least two dimensions.
    dtype, scale, out, stream : optional
        As in `permute`, which also says what is returned and raised.

    See Also
    --------
    swapaxes : Any two dimensions.

    Examples
    --------
    >>> pyflowk.batch_transpose(np.array([[1, 2, 3], [4, 5, 6]]))
    array([[1, 4],
           [2, 5],
           [3, 6]])
    """
    return (_TRANSPOSE.call if call_path.is_compiling() else _TRANSPOSE.cached_call)(x, dtype, scale, out, stream)


def _permute(x: Any, axes: Any, more: tuple[Any, ...], dtype: Any, scale: Any) -> Request:
    if isinstance(axes, str) and not more:
        axes = axes_of_pattern(axes, len(getattr(x, "shape", ())))
    elif more or isinstance(axes, (int, np.integer)):
        axes = (axes, *more)
    return permute_request(x, axes_tuple(axes), dtype, scale)


def _transpose(x: Any, dtype: Any, scale: Any) -> Request:
    return permute_request(x, None, dtype, scale)


_PERMUTE = CallPath(parameters_of(permute), _permute)
_TRANSPOSE = CallPath(parameters_of(batch_transpose), _transpose)
