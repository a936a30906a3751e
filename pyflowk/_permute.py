# SPDX-License-Identifier: Apache-2.0
"""permute, batch_transpose and their plans: arrays in, one call of flowk_permute, exceptions out."""

from __future__ import annotations

import ctypes
import functools
import operator
from collections.abc import Iterable
from ctypes import c_int, c_int32, c_int64
from typing import Any, NamedTuple

from . import _library
from ._abi import DType, Int32Pointer, Int64Pointer, Status
from ._array import KINDS, Geometry, kind_of, stream_for
from ._dtypes import dtype_like, element_strides, element_type, named_type, number_type
from ._errors import FlowkValueError, different_devices, error_of
from ._explain import EXPLAINERS, Listener, plan_text
from ._memory import contiguous_strides


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


EXPLAINERS.update(
    permute=functools.partial(permute, stream=Listener()),
    batch_transpose=functools.partial(batch_transpose, stream=Listener()),
)


def _run(x: Any, axes: tuple[int, ...] | None, out: Any, stream: Any, dtype: Any, scale: float) -> Any:
    """One call; `axes` None swaps the last two. With a Listener as `stream` it is the text of the plan, and nothing is
    allocated. The library takes under 1 us for its part: so must all of this."""
    converts = dtype is not None or scale != 1
    explains = stream.__class__ is Listener
    source = KINDS.get(type(x)) or kind_of(x, "x")
    target = None if out is None else KINDS.get(type(out)) or kind_of(out, "out")
    handle = stream_for(None if explains else stream, source, x, target, out)
    src, shape, strides, element, device, after_src = source.read(x, "x", handle)
    geometry, out_geometry, after_dst = (shape, strides, element), None, None
    if target is not None:
        dst, out_shape, out_strides, out_element, out_device, after_dst = target.read_out(out, "out", handle)
        if device != out_device:
            raise different_devices("x", device, "out", out_device)
        out_geometry = (out_shape, out_strides, out_element)
    src_strides, dst_strides, rank, extents, c_axes, code, out_code, like, _ = _arguments(
        geometry, axes, out_geometry, dtype, converts
    )
    library = _library.loaded.get(device) or _library.for_device(device, "x")
    result = out
    if target is None and not explains:
        result, dst = source.empty(x, *like, device, handle)
    elif target is None:
        dst = _address_past(src, geometry)
    if converts:
        function, between = "flowk_permute_convert", (src, src_strides, code, dst, dst_strides, out_code)
        arguments = (*between, rank, extents, c_axes, float(scale))
    else:
        function, arguments = "flowk_permute", (src, src_strides, dst, dst_strides, rank, extents, c_axes, code)
    if explains:
        return plan_text(library, function + "_explain", arguments)
    status = getattr(library, function)(*arguments, handle)
    if status:
        raise error_of(library, status)
    if after_src is not None:
        after_src(handle)
    if after_dst is not None:
        after_dst(handle)
    return source.result(x, result) if target is None else out


class Arguments(NamedTuple):
    """What the library takes besides pointers, scale and stream, as C values: they pass in half the time of an int."""

    src_strides: Int64Pointer
    dst_strides: Int64Pointer
    rank: c_int32
    shape: Int64Pointer
    axes: Int32Pointer
    dtype: c_int
    out_dtype: c_int
    out_like: tuple[tuple[int, ...], Any]  # shape and dtype of a new out
    keep_alive: Any


@functools.lru_cache(maxsize=4096)  # 0.2 us in place of 20; an entry is about 2 KB
def _arguments(
    x: Geometry, axes: tuple[int, ...] | None, out: Geometry | None, wanted: Any, converts: bool
) -> Arguments:
    """The arguments of a call, checked. `wanted` is the dtype that the caller asks for, None: x's; where nothing
    `converts`, elements are moved whatever they are."""
    shape, strides, dtype = x
    code = number_type(dtype, "x") if converts else element_type(dtype, "x")[0]
    out_code = code if wanted is None else named_type(wanted)
    out_dtype = dtype_like(out_code, dtype) if converts else dtype
    order = _last_two_swapped(len(shape)) if axes is None else _checked_axes(axes, len(shape))
    permuted = tuple(shape[axis] for axis in order)
    if out is None:
        dst_strides = contiguous_strides(permuted, 1)
    else:
        _check_out(permuted, out_dtype, out_code, out)
        dst_strides = element_strides(out[2], out[0], out[1], "out")
    src_strides = element_strides(dtype, shape, strides, "x")
    rank = len(shape)
    longs = c_int64 * max(rank, 1)
    arrays = longs(*src_strides), longs(*dst_strides), longs(*shape), (c_int32 * max(rank, 1))(*order)
    c_src_strides, c_dst_strides, c_shape, c_axes = map(ctypes.addressof, arrays)
    return Arguments(
        src_strides=Int64Pointer(c_src_strides),
        dst_strides=Int64Pointer(c_dst_strides),
        rank=c_int32(rank),
        shape=Int64Pointer(c_shape),
        axes=Int32Pointer(c_axes),
        dtype=c_int(code),
        out_dtype=c_int(out_code),
        out_like=(permuted, out_dtype),
        keep_alive=arrays,
    )


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


def _check_out(shape: tuple[int, ...], dtype: Any, code: DType, out: Geometry) -> None:
    out_shape, _, out_dtype = out
    if tuple(out_shape) != shape:
        raise ValueError(f"out has shape {tuple(out_shape)}, must be {shape}")
    same = dtype == out_dtype if type(dtype) is type(out_dtype) else element_type(out_dtype, "out")[0] == code
    if not same:
        raise TypeError(f"out has dtype {out_dtype}, must be {dtype}")


def _address_past(pointer: int, x: Geometry) -> int:
    """An address past all that x spans, and aligned as that of a new array: to plan for one that is not there."""
    shape, strides, dtype = x
    in_elements = element_strides(dtype, shape, strides, "x")
    reach = sum(max(stride, 0) * max(extent - 1, 0) for extent, stride in zip(shape, in_elements, strict=True))
    return (pointer + (reach + 1) * dtype.itemsize + 255) // 256 * 256
