# SPDX-License-Identifier: Apache-2.0
"""permute and batch_transpose."""

from __future__ import annotations

import ctypes
import functools
import operator
from collections.abc import Iterable
from ctypes import c_int, c_int32, c_int64
from typing import TYPE_CHECKING, Any

import numpy as np

from .._arguments import number, shown
from .._arrays.dtypes import (
    ALL_TYPES,
    NUMBER_TYPES,
    contiguous_strides,
    dtype_like,
    dtype_name,
    element_strides,
    element_type,
    listed,
    named_type,
    type_of_elements,
    wrong_dtype,
)
from .._arrays.kinds import Geometry, Signature
from .._native.abi import DType, Int32Pointer, Int64Pointer, Status
from .._native.errors import FlowkValueError
from .._pipeline import Operation, Plan, call, require_arrays

if TYPE_CHECKING:
    from .._typing import Array, ArrayT, DTypeLike, Stream

# What flowk_permute_convert() takes.
_CONVERTED = tuple(code for code in NUMBER_TYPES if code not in (DType.INT64, DType.UINT64))


def permute(
    x: ArrayT,
    axes: Iterable[int],
    *,
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
    axes : iterable of int
        Every dimension of x once; a negative one counts from the end.
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
        caller waits; other arrays carry their stream, and pyflowk waits for it.

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
    """
    try:
        order = tuple(map(operator.index, axes))
    except (TypeError, NotImplementedError) as error:  # the second by a memoryview
        raise TypeError(f"axes is {shown(axes)}, must be integers, one per dimension of x") from error
    return _permute(x, order, dtype, scale, out, stream)


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
    """
    return _permute(x, None, dtype, scale, out, stream)


def _permute(x: Any, axes: tuple[int, ...] | None, dtype: Any, scale: Any, out: Any, stream: Any) -> Any:
    factor = scale if type(scale) is float else number(scale, "scale")
    wanted, is_own = None, True
    if dtype is not None:
        own = getattr(x, "dtype", None)
        # A dtype of NumPy's may be one that flowk does not name.
        is_own = isinstance(dtype, np.dtype) and isinstance(own, np.dtype) and dtype == own
        if not is_own:
            wanted = named_type(dtype, ALL_TYPES)
            is_own = wanted == type_of_elements(own)
    if is_own and factor == 1:
        return call(_PERMUTE, x, (), out, stream, (axes, None))
    return call(_PERMUTE_CONVERT, x, (), out, stream, (axes, wanted), (factor,))


def _plan(
    converts: bool,
    signatures: tuple[Signature, ...],
    out: Geometry | None,
    options: tuple[tuple[int, ...] | None, DType | None],
) -> Plan:
    """`options` are the axes (None swaps the last two) and the type of the result (None is x's)."""
    axes, wanted = options
    require_arrays(("x",), signatures)
    shape, strides, dtype = signatures[0]
    code = _converted_type(dtype, wanted) if converts else element_type(dtype, "x")[0]
    out_code = code if wanted is None else wanted
    out_dtype = dtype_like(out_code, dtype) if converts else dtype
    order = _last_two_swapped(len(shape)) if axes is None else _checked_axes(axes, len(shape))
    permuted = tuple(shape[axis] for axis in order)
    if out is None:
        dst_strides = contiguous_strides(permuted, 1)
    else:
        _check_out(permuted, out_dtype, out_code, out)
        dst_strides = element_strides(out[2], out[0], out[1], "out")
    src_strides = element_strides(dtype, shape, strides, "x")
    longs = c_int64 * max(len(shape), 1)
    arrays = longs(*src_strides), longs(*dst_strides), longs(*shape), (c_int32 * max(len(shape), 1))(*order)
    # As C values they pass in half the time of an int.
    c_src_strides, c_dst_strides, c_shape = (Int64Pointer(ctypes.addressof(array)) for array in arrays[:3])
    rank, c_axes, c_code, c_out_code = (
        c_int32(len(shape)), Int32Pointer(ctypes.addressof(arrays[3])), c_int(code), c_int(out_code)
    )  # fmt: skip

    def move(pointers: Any, dst: int, values: Any, stream: Any) -> tuple[Any, ...]:
        return pointers[0], c_src_strides, dst, c_dst_strides, rank, c_shape, c_axes, c_code, stream

    def convert(pointers: Any, dst: int, values: Any, stream: Any) -> tuple[Any, ...]:
        return (
            *(pointers[0], c_src_strides, c_code, dst, c_dst_strides, c_out_code, rank, c_shape, c_axes),
            *(values[0], stream),
        )

    move.keep = convert.keep = arrays
    if converts:
        return Plan("flowk_permute_convert", convert, permuted, out_dtype)
    return Plan("flowk_permute", move, permuted, out_dtype)


_PERMUTE = Operation(("x",), functools.partial(_plan, False))
_PERMUTE_CONVERT = Operation(("x",), functools.partial(_plan, True))


def _converted_type(dtype: Any, wanted: DType | None) -> DType:
    """The type of x; TypeError where flowk_permute_convert() does not take it or `wanted`."""
    code = type_of_elements(dtype)
    if code not in _CONVERTED:
        raise wrong_dtype("x", dtype, f"{listed(_CONVERTED)} to be converted or scaled")
    if wanted is not None and wanted not in _CONVERTED:
        raise TypeError(
            f"dtype = {dtype_name(wanted)}, must be x's own dtype {dtype} without a scale, or {listed(_CONVERTED)}"
        )
    return code


def _checked_axes(axes: tuple[int, ...], rank: int) -> list[int]:
    if len(axes) != rank:
        raise FlowkValueError(Status.INVALID_ARGUMENT, f"axes has {len(axes)} entries, x has {rank} dimensions")
    order: list[int] = []
    for position, axis in enumerate(axes):
        if not -rank <= axis < rank:
            raise FlowkValueError(
                Status.INVALID_ARGUMENT, f"axes[{position}] = {shown(axis)}, must be in {-rank} ... {rank - 1}"
            )
        if axis % rank in order:
            raise FlowkValueError(
                Status.INVALID_ARGUMENT, f"axes[{position}] = {axis}, but axes must name each dimension once: {axes}"
            )
        order.append(axis % rank)
    return order


def _last_two_swapped(rank: int) -> list[int]:
    if rank < 2:
        raise FlowkValueError(Status.INVALID_ARGUMENT, f"x has {rank} dimensions, must have >= 2")
    return [*range(rank - 2), rank - 1, rank - 2]


def _check_out(shape: tuple[int, ...], dtype: Any, code: DType, out: Geometry) -> None:
    out_shape, _, out_dtype = out
    if tuple(out_shape) != shape:
        raise ValueError(f"out has shape {tuple(out_shape)}, must be {shape}")
    same = dtype == out_dtype if type(dtype) is type(out_dtype) else element_type(out_dtype, "out")[0] == code
    if not same:
        raise TypeError(f"out has dtype {out_dtype}, must be {dtype}")
