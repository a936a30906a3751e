# SPDX-License-Identifier: Apache-2.0
"""permute, batch_transpose and their plans: arrays in, one call of flowk_permute, exceptions out."""

from __future__ import annotations

import ctypes
import functools
import operator
from collections.abc import Iterable
from ctypes import c_int32, c_int64
from typing import Any

from . import _library
from ._abi import DType, Status
from ._array import KINDS, kind_of
from ._dtypes import dtype_like, element_strides, element_type, named_type, number_type
from ._errors import FlowkValueError, different_devices, error_of
from ._explain import EXPLAINERS, plan_text
from ._memory import contiguous_strides
from ._stream import stream_handle


def permute(
    x: Any, axes: Iterable[int], *, dtype: Any = None, scale: float = 1.0, out: Any = None, stream: Any = None
) -> Any:
    """`out[i[axes[0]], i[axes[1]], ...] = x[i[0], i[1], ...]`: what np.transpose(x, axes) shows, in memory of its own.

    x       an array with any strides and elements of 1, 2, 4, 8 or 16 bytes: NumPy's (on the CPU, by libflowk_simt), or
            one on a GPU: torch's, CuPy's, a DeviceArray, anything with DLPack or `__cuda_array_interface__`. A view is
            read where it is, never copied first.
    axes    every dimension of x once, negative ones counted from the end
    dtype   the type of the result: a name ("bfloat16"), a DType, a dtype of NumPy, ml_dtypes or torch. Elements are
            converted on the way, as flowk_permute_convert() in flowk.h says. None: x's own
    scale   what every element is multiplied by before it is converted: `dtype="float16", scale=1 / 255` for pixels
    out     an array of shape [x.shape[a] for a in axes] to write, with any strides; it must not share memory with x.
            Its dtype is `dtype`, or x's where that is None. None: a new C-contiguous array of x's own kind and device.
    stream  where to enqueue the work: an int (a cudaStream_t), or a stream of cuda.core, torch, CuPy or Numba. None:
            the current stream of torch or CuPy for their arrays, the stream that a DeviceArray belongs to (out's
            before x's), the legacy default stream for others. Work on torch's and CuPy's arrays that is on other
            streams than this one is for the caller to wait for; other arrays carry their stream, and it is waited for.

    Returns `out`. On a GPU the work may still be running then.

    Raises FlowkError (`.status` and the library's text, in which src is x and dst is out), FlowkValueError for bad
    axes, ValueError or TypeError for an `out` of the wrong shape, dtype or device, for a type that is no number where
    one is to be converted or scaled, or for what is no array.
    """
    return _run(x, tuple(map(operator.index, axes)), out, stream, dtype, scale)


def batch_transpose(x: Any, *, dtype: Any = None, scale: float = 1.0, out: Any = None, stream: Any = None) -> Any:
    """`out[..., c, r] = x[..., r, c]`: permute() with the last two axes of x, of rank >= 2, swapped."""
    return _run(x, None, out, stream, dtype, scale)


def _explain_permute(x: Any, axes: Iterable[int], *, dtype: Any = None, scale: float = 1.0, out: Any = None) -> str:
    return _explain(x, tuple(map(operator.index, axes)), out, dtype, scale)


def _explain_batch_transpose(x: Any, *, dtype: Any = None, scale: float = 1.0, out: Any = None) -> str:
    return _explain(x, None, out, dtype, scale)


EXPLAINERS.update(permute=_explain_permute, batch_transpose=_explain_batch_transpose)


def _explain(x: Any, axes: tuple[int, ...] | None, out: Any, dtype: Any, scale: float) -> str:
    source = kind_of(x, "x")
    src, shape, strides, x_dtype, device, _ = source.read(x, "x", source.stream_of(x))
    out_shape = out_strides = out_dtype = None
    if out is None:
        dst = _address_past(src, shape, strides, x_dtype)
    else:
        target = kind_of(out, "out")
        dst, out_shape, out_strides, out_dtype, out_device, _ = target.read_out(out, "out", target.stream_of(out))
        if device != out_device:
            raise different_devices("x", device, "out", out_device)
    library = _library.for_device(device, "x")
    if dtype is None and scale == 1:
        src_strides, dst_strides, rank, extents, c_axes, code, _, _ = _arguments(
            shape, strides, x_dtype, axes, out_shape, out_strides, out_dtype
        )
        arguments = (src, src_strides, dst, dst_strides, rank, extents, c_axes, code)
        return plan_text(library, "flowk_permute_explain", arguments)
    converted = _convert_arguments(shape, strides, x_dtype, axes, out_shape, out_strides, out_dtype, dtype)
    (src_strides, dst_strides, rank, extents, c_axes, code, _, _), out_code, _ = converted
    arguments = (src, src_strides, code, dst, dst_strides, out_code, rank, extents, c_axes, float(scale))
    return plan_text(library, "flowk_permute_convert_explain", arguments)


def _run(x: Any, axes: tuple[int, ...] | None, out: Any, stream: Any, dtype: Any, scale: float) -> Any:
    """One call; `axes` None swaps the last two. The library takes under 1 us for its part: so must all of this."""
    converts = dtype is not None or scale != 1
    source = KINDS.get(type(x)) or kind_of(x, "x")
    if out is None:
        handle = source.stream_of(x) if stream is None else stream_handle(stream)
        src, shape, strides, x_dtype, device, after_src = source.read(x, "x", handle)
        if converts:
            arguments, out_code, out_dtype = _convert_arguments(shape, strides, x_dtype, axes, None, None, None, dtype)
        else:
            arguments, out_dtype = _arguments(shape, strides, x_dtype, axes, None, None, None), x_dtype
        src_strides, dst_strides, rank, extents, c_axes, code, out_shape, _ = arguments
        library = _library.loaded.get(device) or _library.for_device(device, "x")
        written, dst = source.empty(x, out_shape, out_dtype, device, handle)
        after_dst = None
    else:
        target = KINDS.get(type(out)) or kind_of(out, "out")
        if stream is not None:
            handle = stream_handle(stream)
        elif source.follows_current_stream:
            handle = source.stream_of(x)
        else:
            handle = target.stream_of(out)
        src, shape, strides, x_dtype, device, after_src = source.read(x, "x", handle)
        dst, out_shape, out_strides, out_dtype, out_device, after_dst = target.read_out(out, "out", handle)
        if device != out_device:
            raise different_devices("x", device, "out", out_device)
        if converts:
            arguments, out_code, _ = _convert_arguments(
                shape, strides, x_dtype, axes, out_shape, out_strides, out_dtype, dtype
            )
        else:
            arguments = _arguments(shape, strides, x_dtype, axes, out_shape, out_strides, out_dtype)
        src_strides, dst_strides, rank, extents, c_axes, code, _, _ = arguments
        library = _library.loaded.get(device) or _library.for_device(device, "x")
    if converts:
        status = library.flowk_permute_convert(
            src, src_strides, code, dst, dst_strides, out_code, rank, extents, c_axes, float(scale), handle
        )
    else:
        status = library.flowk_permute(src, src_strides, dst, dst_strides, rank, extents, c_axes, code, handle)
    if status:
        raise error_of(library, status)
    if after_src is not None:
        after_src(handle)
    if after_dst is not None:
        after_dst(handle)
    return source.result(x, written) if out is None else out


@functools.lru_cache(maxsize=4096)  # 0.2 us in place of 20; an entry is about 1 KB
def _arguments(
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    dtype: Any,
    axes: tuple[int, ...] | None,
    out_shape: tuple[int, ...] | None,
    out_strides: tuple[int, ...] | None,
    out_dtype: Any,
) -> tuple[int, int, int, int, int, DType, tuple[int, ...], Any]:
    """What flowk_permute takes besides pointers and stream, checked: the addresses of src_strides and dst_strides, the
    rank, the addresses of shape and axes, the dtype; then out's shape, and what keeps the addresses good."""
    code, _ = element_type(dtype, "x")
    return _checked_arguments(shape, strides, dtype, axes, out_shape, out_strides, out_dtype, code, dtype, code)


@functools.lru_cache(maxsize=4096)
def _convert_arguments(
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    dtype: Any,
    axes: tuple[int, ...] | None,
    out_shape: tuple[int, ...] | None,
    out_strides: tuple[int, ...] | None,
    out_dtype: Any,
    wanted: Any,
) -> tuple[tuple, DType, Any]:
    """What _arguments() gives, for a result of type `wanted` (None: x's); that type, and as x's framework has it."""
    code = number_type(dtype, "x")
    out_code = code if wanted is None else named_type(wanted)
    like = dtype_like(out_code, dtype)
    arguments = _checked_arguments(shape, strides, dtype, axes, out_shape, out_strides, out_dtype, code, like, out_code)
    return arguments, out_code, like


def _checked_arguments(
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    dtype: Any,
    axes: tuple[int, ...] | None,
    out_shape: tuple[int, ...] | None,
    out_strides: tuple[int, ...] | None,
    out_dtype: Any,
    code: DType,
    wanted: Any,
    wanted_code: DType,
) -> tuple[int, int, int, int, int, DType, tuple[int, ...], Any]:
    order = _last_two_swapped(len(shape)) if axes is None else _checked_axes(axes, len(shape))
    permuted = tuple(shape[axis] for axis in order)
    if out_shape is None:
        dst_strides = contiguous_strides(permuted, 1)
    else:
        _check_out(permuted, wanted, wanted_code, out_shape, out_dtype)
        dst_strides = element_strides(out_dtype, out_shape, out_strides, "out")
    src_strides = element_strides(dtype, shape, strides, "x")
    rank = len(shape)
    longs = c_int64 * max(rank, 1)
    arrays = longs(*src_strides), longs(*dst_strides), longs(*shape), (c_int32 * max(rank, 1))(*order)
    c_src_strides, c_dst_strides, c_shape, c_axes = map(ctypes.addressof, arrays)
    return c_src_strides, c_dst_strides, rank, c_shape, c_axes, code, permuted, arrays


def _checked_axes(axes: tuple[int, ...], rank: int) -> list[int]:
    if len(axes) != rank:
        raise FlowkValueError(Status.INVALID_ARGUMENT, f"axes has {len(axes)} entries, x has {rank} dimensions")
    order: list[int] = []
    for position, axis in enumerate(axes):
        if not -rank <= axis < rank:
            raise FlowkValueError(
                Status.INVALID_ARGUMENT, f"axes[{position}] = {axis}, must be in {-rank} ... {rank - 1}"
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


def _check_out(shape: tuple[int, ...], dtype: Any, code: DType, out_shape: tuple[int, ...], out_dtype: Any) -> None:
    if tuple(out_shape) != shape:
        raise ValueError(f"out has shape {tuple(out_shape)}, must be {shape}")
    same = dtype == out_dtype if type(dtype) is type(out_dtype) else element_type(out_dtype, "out")[0] == code
    if not same:
        raise TypeError(f"out has dtype {out_dtype}, must be {dtype}")


def _address_past(pointer: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: Any) -> int:
    """An address past all that x spans, and aligned as that of a new array: to plan for one that is not there."""
    _, num_bytes = element_type(dtype, "x")
    in_elements = element_strides(dtype, shape, strides, "x")
    reach = sum(max(stride, 0) * max(extent - 1, 0) for extent, stride in zip(shape, in_elements, strict=True))
    return (pointer + (reach + 1) * num_bytes + 255) // 256 * 256
