# SPDX-License-Identifier: Apache-2.0
"""prelu, prelu_backward and their plans: arrays in, one call of the library, exceptions out."""

from __future__ import annotations

import ctypes
import functools
import math
import operator
from typing import Any

import numpy as np

from . import _library
from ._abi import DType, Status
from ._array import KINDS, Geometry, kind_of, stream_for
from ._dtypes import dtype_like, element_strides, element_type
from ._errors import FlowkValueError, different_devices, error_of
from ._explain import EXPLAINERS, plan_text
from ._memory import DeviceArray, contiguous_strides, empty


def prelu(x: Any, alpha: Any, channel_axis: int = 1, *, out: Any = None, stream: Any = None) -> Any:
    """`out = x where x > 0, alpha * x elsewhere`, with one alpha for all elements or one for each channel.

    x             an array of float16, bfloat16, float32 or float64: NumPy's, torch's, CuPy's, a DeviceArray, anything
                  with DLPack or `__cuda_array_interface__`. Its elements lie without gaps, in any order of the
                  dimensions: C-contiguous, channels last, transposed.
    alpha         a contiguous array on x's device of x's dtype, or of float32 beside a 16-bit one: of one element, or
                  of shape (x.shape[channel_axis],)
    channel_axis  the dimension of x that alpha runs along; not read where alpha has one element
    out           an array of x's shape, dtype and strides to write; x itself computes in place, anything else must not
                  share memory with x. None: a new array of x's own kind and device, in x's order of the dimensions.
    stream        as in permute()

    Returns `out`. On a GPU the work may still be running then.

    Raises FlowkError (`.status` and the library's text, in which y is `out`), FlowkValueError, ValueError or TypeError
    for what permute() raises them, and ValueError for strides and shapes other than those above.
    """
    source, alphas = KINDS.get(type(x)) or kind_of(x, "x"), KINDS.get(type(alpha)) or kind_of(alpha, "alpha")
    target = None if out is None else KINDS.get(type(out)) or kind_of(out, "out")
    handle = stream_for(stream, source, x, target, out)
    x_pointer, shape, strides, dtype, device, after_x = source.read(x, "x", handle)
    a_pointer, a_shape, a_strides, a_dtype, a_device, after_alpha = alphas.read(alpha, "alpha", handle)
    if device != a_device:
        raise different_devices("x", device, "alpha", a_device)
    others, after_out = (), None
    if target is not None:
        y_pointer, y_shape, y_strides, y_dtype, y_device, after_out = target.read_out(out, "out", handle)
        if device != y_device:
            raise different_devices("x", device, "out", y_device)
        others = (("out", (y_shape, y_strides, y_dtype)),)
    outer, channels, inner, code, a_code, order = _arguments(
        (shape, strides, dtype), (a_shape, a_strides, a_dtype), channel_axis, others
    )
    library = _library.loaded.get(device) or _library.for_device(device, "x")
    if target is None:
        written, y_pointer = _empty_like(source, x, shape, order, dtype, device, handle)
    status = library.flowk_prelu(x_pointer, a_pointer, y_pointer, outer, channels, inner, code, a_code, handle)
    if status:
        raise error_of(library, status)
    if after_x is not None:
        after_x(handle)
    if after_alpha is not None:
        after_alpha(handle)
    if after_out is not None:
        after_out(handle)
    return source.result(x, written) if target is None else out


def prelu_backward(
    dy: Any,
    x: Any,
    alpha: Any,
    channel_axis: int = 1,
    *,
    need_dx: bool = True,
    need_dalpha: bool = True,
    dx_out: Any = None,
    dalpha_out: Any = None,
    workspace: Any = None,
    stream: Any = None,
) -> tuple[Any, Any]:
    """`(dx, dalpha)` of prelu(): dx = dy where x > 0, alpha * dy elsewhere; dalpha sums dy * x where x <= 0 (or is NaN)
    over every dimension but `channel_axis`, over all of them where alpha has one element.

    dy, x, alpha         as prelu()'s x and alpha; dy has x's shape, dtype and strides
    need_dx, need_dalpha False: that gradient is not computed, and None in the result
    dx_out               an array of x's shape, dtype and strides to write: dy itself, x itself, or one that shares
                         memory with neither. None: a new one.
    dalpha_out           a contiguous array of alpha's shape and dtype to write. None: a new one of alpha's kind.
    workspace            a contiguous array of prelu_backward_workspace_bytes() bytes or more, on x's device and a
                         multiple of 16; in use until the work is done. None: allocated where it is needed, on a GPU
                         from cuda.core's pool in the stream's order.
    stream               as in permute()

    Sums are in float32, in float64 for float64, in a fixed order: equal calls on one device give equal bits.
    Raises as prelu().
    """
    source, alphas = KINDS.get(type(x)) or kind_of(x, "x"), KINDS.get(type(alpha)) or kind_of(alpha, "alpha")
    gradients = KINDS.get(type(dy)) or kind_of(dy, "dy")
    target = None if dx_out is None else KINDS.get(type(dx_out)) or kind_of(dx_out, "dx_out")
    handle = stream_for(stream, source, x, target, dx_out)
    x_pointer, shape, strides, dtype, device, after_x = source.read(x, "x", handle)
    dy_pointer, dy_shape, dy_strides, dy_dtype, dy_device, after_dy = gradients.read(dy, "dy", handle)
    a_pointer, a_shape, a_strides, a_dtype, a_device, after_alpha = alphas.read(alpha, "alpha", handle)
    if not device == dy_device == a_device:
        _check_devices(device, (("dy", dy_device), ("alpha", a_device)))
    others: tuple[tuple[str, Geometry], ...] = (("dy", (dy_shape, dy_strides, dy_dtype)),)
    afters = [after_x, after_dy, after_alpha]
    dx = dalpha = dx_pointer = dalpha_pointer = dalpha_geometry = None
    if need_dx and target is not None:
        dx = dx_out
        dx_pointer, dx_shape, dx_strides, dx_dtype, dx_device, after = target.read_out(dx_out, "dx_out", handle)
        if device != dx_device:
            raise different_devices("x", device, "dx_out", dx_device)
        others = (*others, ("dx_out", (dx_shape, dx_strides, dx_dtype)))
        afters.append(after)
    if need_dalpha and dalpha_out is not None:
        dalpha = dalpha_out
        kind = KINDS.get(type(dalpha_out)) or kind_of(dalpha_out, "dalpha_out")
        dalpha_pointer, da_shape, da_strides, da_dtype, da_device, after = kind.read_out(
            dalpha_out, "dalpha_out", handle
        )
        if device != da_device:
            raise different_devices("x", device, "dalpha_out", da_device)
        dalpha_geometry = (da_shape, da_strides, da_dtype)
        afters.append(after)
    outer, channels, inner, code, a_code, order = _arguments(
        (shape, strides, dtype), (a_shape, a_strides, a_dtype), channel_axis, others, dalpha_geometry
    )
    library = _library.loaded.get(device) or _library.for_device(device, "x")
    if need_dx and target is None:
        dx, dx_pointer = _empty_like(source, x, shape, order, dtype, device, handle)
        dx = source.result(x, dx)
    if need_dalpha and dalpha_out is None:
        dalpha, dalpha_pointer = alphas.empty(alpha, tuple(a_shape), a_dtype, device, handle)
        dalpha = alphas.result(alpha, dalpha)
    if not (need_dx or need_dalpha):
        return None, None

    memory, memory_pointer, memory_bytes = None, None, 0
    if need_dalpha and workspace is None:
        memory_bytes = _workspace_bytes(library, outer, channels, inner, code, a_code)
        if memory_bytes:
            memory, memory_pointer = _allocate(source, x, stream, memory_bytes, device, handle)
    elif need_dalpha:
        memory_pointer, memory_bytes, after = _read_workspace(workspace, device, handle)
        afters.append(after)
    status = library.flowk_prelu_backward(
        *(dy_pointer, x_pointer, a_pointer, dx_pointer, dalpha_pointer, outer, channels, inner, code, a_code),
        *(memory_pointer, memory_bytes, handle),
    )
    if status:
        raise error_of(library, status)
    del memory  # freed in the stream's order, after the work
    for after in afters:
        if after is not None:
            after(handle)
    return dx, dalpha


def prelu_backward_workspace_bytes(x: Any, alpha: Any, channel_axis: int = 1) -> int:
    """Bytes that prelu_backward() needs for arrays as x and alpha, wherever they lie; 0 where it needs none."""
    _, _, sizes, code, a_code, device = _read_both(x, alpha, channel_axis)
    return _workspace_bytes(_library.for_device(device, "x"), *sizes, code, a_code)


def explain_prelu(x: Any, alpha: Any, channel_axis: int = 1, *, out: Any = None) -> str:
    """The plan of prelu() of the same arguments as text; without `out`, for a new array aligned as any is."""
    x_pointer, a_pointer, sizes, code, a_code, device = _read_both(x, alpha, channel_axis)
    y_pointer = _apart((x_pointer, a_pointer), sizes) if out is None else _pointer_of(out, "out")
    library = _library.for_device(device, "x")
    return plan_text(library, "flowk_prelu_explain", (x_pointer, a_pointer, y_pointer, *sizes, code, a_code))


def explain_prelu_backward(dy: Any, x: Any, alpha: Any, channel_axis: int = 1, *, dx_out: Any = None) -> str:
    """The plan of prelu_backward() of the same arguments as text."""
    x_pointer, a_pointer, sizes, code, a_code, device = _read_both(x, alpha, channel_axis)
    dy_pointer = _pointer_of(dy, "dy")
    inputs = dy_pointer, x_pointer, a_pointer
    dx_pointer = _apart(inputs, sizes) if dx_out is None else _pointer_of(dx_out, "dx_out")
    dalpha_pointer = _apart((*inputs, dx_pointer), sizes)
    library = _library.for_device(device, "x")
    arguments = (*inputs, dx_pointer, dalpha_pointer, *sizes, code, a_code)
    return plan_text(library, "flowk_prelu_backward_explain", arguments)


# ---- what the calls share -------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=4096)
def _arguments(
    x: Geometry,
    alpha: Geometry,
    channel_axis: int,
    others: tuple[tuple[str, Geometry], ...] = (),
    dalpha: Geometry | None = None,
) -> tuple[int, int, int, DType, DType, tuple[int, ...] | None]:
    """What the library takes besides pointers, checked: (outer, channels, inner) of x as it lies in memory and both
    dtypes; then the dimensions from the outermost in memory to the innermost, None where that is C order. `others` are
    names and arrays that must be as x is; dalpha must be as alpha."""
    for name, geometry in others:
        _check_same_place("x", x, name, geometry)
    if dalpha is not None:
        _check_same_place("alpha", alpha, "dalpha_out", dalpha)
    (shape, strides, dtype), (a_shape, a_strides, a_dtype) = x, alpha
    code, _ = element_type(dtype, "x")
    a_code, _ = element_type(a_dtype, "alpha")
    order = _memory_order(shape, element_strides(dtype, shape, strides, "x"), "x")
    num_alphas = math.prod(a_shape)
    if element_strides(a_dtype, a_shape, a_strides, "alpha") != contiguous_strides(a_shape, 1) and num_alphas > 1:
        raise ValueError(f"alpha has strides of {tuple(a_strides)}, must be contiguous")
    if num_alphas == 1:
        return 1, 1, math.prod(shape), code, a_code, order
    axis = operator.index(channel_axis)
    if not -len(shape) <= axis < len(shape):
        raise FlowkValueError(
            Status.INVALID_ARGUMENT, f"channel_axis = {axis}, must be in {-len(shape)} ... {len(shape) - 1}"
        )
    axis %= len(shape)
    if tuple(a_shape) != (shape[axis],):
        raise ValueError(
            f"alpha has shape {tuple(a_shape)}, must have one element or the shape ({shape[axis]},) of x's channels"
        )
    in_memory = order or tuple(range(len(shape)))
    place = in_memory.index(axis)
    outer = math.prod(shape[d] for d in in_memory[:place])
    inner = math.prod(shape[d] for d in in_memory[place + 1 :])
    return outer, shape[axis], inner, code, a_code, order


def _memory_order(shape: tuple[int, ...], strides: tuple[int, ...], name: str) -> tuple[int, ...] | None:
    """The dimensions of a dense array from the outermost in memory to the innermost; None for C order."""
    if tuple(strides) == contiguous_strides(shape, 1) or 0 in shape:
        return None
    order = tuple(sorted(range(len(shape)), key=lambda d: (-strides[d], shape[d] == 1, d)))
    expected = 1
    for d in reversed(order):
        if shape[d] > 1 and strides[d] != expected:
            raise ValueError(
                f"{name} has strides of {tuple(strides)} elements for shape {tuple(shape)}: its elements must lie "
                "without gaps, in any order of the dimensions"
            )
        expected *= shape[d]
    kept = [d for d in order if shape[d] > 1]
    return None if kept == sorted(kept) else order


def _empty_like(
    kind: Any, x: Any, shape: tuple[int, ...], order: tuple[int, ...] | None, dtype: Any, device: Any, stream: int
) -> tuple[Any, int]:
    """A new array that lies in memory as x does, and its pointer."""
    if order is None:
        return kind.empty(x, tuple(shape), dtype, device, stream)
    array, pointer = kind.empty(x, tuple(shape[d] for d in order), dtype, device, stream)
    axes = tuple(order.index(d) for d in range(len(order)))
    if isinstance(array, DeviceArray):
        strides = tuple(array.strides[axis] for axis in axes)
        return array._view(0, tuple(shape), strides, array.dtype), pointer
    return array.permute(axes) if hasattr(array, "permute") else array.transpose(axes), pointer


def _check_same_place(name: str, first: Geometry, other_name: str, other: Geometry) -> None:
    """Are shape, strides and dtype of two arrays the same? Strides of extents of 1 do not matter."""
    (shape, strides, dtype), (other_shape, other_strides, other_dtype) = first, other
    if tuple(shape) != tuple(other_shape):
        raise ValueError(f"{other_name} has shape {tuple(other_shape)}, must be {tuple(shape)} as {name}")
    same = (
        dtype == other_dtype
        if type(dtype) is type(other_dtype)
        else element_type(dtype, name) == element_type(other_dtype, other_name)
    )
    if not same:
        raise TypeError(f"{other_name} has dtype {other_dtype}, must be {dtype} as {name}")
    if tuple(strides) == tuple(other_strides) or 0 in shape:
        return
    pair = [
        element_strides(t, shape, s, n)
        for t, s, n in ((dtype, strides, name), (other_dtype, other_strides, other_name))
    ]
    if any(a != b and extent > 1 for a, b, extent in zip(*pair, shape, strict=True)):
        raise ValueError(f"{other_name} has strides of {pair[1]} elements, must be {pair[0]} as {name}")


def _check_devices(device: int | None, others: tuple[tuple[str, int | None], ...]) -> None:
    for name, other in others:
        if other != device:
            raise different_devices("x", device, name, other)


@functools.lru_cache(maxsize=4096)
def _workspace_bytes(library: Any, outer: int, channels: int, inner: int, code: DType, a_code: DType) -> int:
    num_bytes = ctypes.c_size_t()
    status = library.flowk_prelu_backward_workspace_bytes(
        outer, channels, inner, code, a_code, ctypes.addressof(num_bytes)
    )
    if status:
        raise error_of(library, status)
    return num_bytes.value


def _allocate(kind: Any, x: Any, given_stream: Any, num_bytes: int, device: int | None, stream: int) -> tuple[Any, int]:
    """(memory of at least that many bytes, its address, a multiple of 16)."""
    if device is None:
        memory = np.empty(num_bytes + 15, np.uint8)
        return memory, (memory.ctypes.data + 15) // 16 * 16
    if given_stream is None and kind.follows_current_stream:
        # From the framework's own pool, which gives freed memory to later work on its current stream, and that is ours.
        return kind.empty(x, ((num_bytes + 3) // 4,), dtype_like(DType.FLOAT32, x.dtype), device, stream)
    array = empty(num_bytes, np.uint8, device=device, stream=stream)
    return array, array.ptr


def _read_workspace(workspace: Any, device: int | None, stream: int) -> tuple[int, int, Any]:
    """(pointer, bytes, after) of the caller's workspace."""
    pointer, shape, strides, dtype, own_device, after = kind_of(workspace, "workspace").read_out(
        workspace, "workspace", stream
    )
    _check_devices(device, (("workspace", own_device),))
    if element_strides(dtype, shape, strides, "workspace") != contiguous_strides(shape, 1):
        raise ValueError(f"workspace has strides of {tuple(strides)}, must be contiguous")
    return pointer, math.prod(shape) * dtype.itemsize, after


def _read_both(x: Any, alpha: Any, channel_axis: int) -> tuple[int, int, tuple[int, int, int], DType, DType, Any]:
    """Pointers of both, then what _arguments() gives, then the device."""
    source, alphas = kind_of(x, "x"), kind_of(alpha, "alpha")
    x_pointer, shape, strides, dtype, device, _ = source.read(x, "x", source.stream_of(x))
    a_pointer, a_shape, a_strides, a_dtype, a_device, _ = alphas.read(alpha, "alpha", alphas.stream_of(alpha))
    _check_devices(device, (("alpha", a_device),))
    *sizes, code, a_code, _ = _arguments((shape, strides, dtype), (a_shape, a_strides, a_dtype), channel_axis)
    return x_pointer, a_pointer, tuple(sizes), code, a_code, device


def _pointer_of(array: Any, name: str) -> int:
    kind = kind_of(array, name)
    return kind.read(array, name, kind.stream_of(array))[0]


def _apart(pointers: tuple[int, ...], sizes: tuple[int, int, int]) -> int:
    """An address past tensors of these sizes, whatever their dtype, and aligned as that of a new array."""
    return (max(pointers) + 8 * math.prod(sizes) + 511) // 256 * 256


EXPLAINERS.update(prelu=explain_prelu, prelu_backward=explain_prelu_backward)
