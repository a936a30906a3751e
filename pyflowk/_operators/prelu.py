# SPDX-License-Identifier: Apache-2.0
"""prelu and prelu_backward."""

from __future__ import annotations

import ctypes
import functools
import math
import operator
from ctypes import c_int, c_int64
from typing import TYPE_CHECKING, Any

import numpy as np

from .._arrays.device_array import empty
from .._arrays.dtypes import contiguous_strides, dtype_like, element_strides, element_type
from .._arrays.kinds import ARRAYS, After, Geometry, Signature, find_array_kind
from .._native.abi import DType, Status
from .._native.errors import FlowkValueError, different_devices, error_of
from .._pipeline import (
    UNALLOCATED,
    Call,
    Listener,
    Operation,
    Plan,
    Readings,
    call,
    new_array,
    plan_text,
    require_arrays,
)

if TYPE_CHECKING:
    from .._typing import Array, ArrayT, Stream


def prelu(
    x: ArrayT, alpha: Array, channel_axis: int = 1, *, out: Array | None = None, stream: Stream | None = None
) -> ArrayT:
    """Parametric ReLU: ``out = x where x > 0, alpha * x elsewhere``.

    Parameters
    ----------
    x : array
        Any shape, of float16, bfloat16, float32 or float64, of the kinds that `permute` takes. Its elements lie
        without gaps, in any order of the dimensions: C-contiguous, channels last, transposed.
    alpha : array
        Contiguous, on x's device, of x's dtype or of float32 beside a 16-bit x. One element for the whole of x, or
        shape ``(x.shape[channel_axis],)``: one per channel.
    channel_axis : int, optional
        The dimension of x that alpha runs along; not read where alpha has one element.
    out : array, optional
        Where to write: x's shape, dtype and strides. x itself computes in place; anything else must not share memory
        with x. By default a new array of x's kind, its dimensions in memory in x's order.
    stream : int or stream object, optional
        As in `permute`.

    Returns
    -------
    array
        `out`. On a GPU the work may still be running.

    Raises
    ------
    FlowkError, FlowkValueError
        The library's status and text, in which y is `out`.
    ValueError, TypeError
        A shape, stride, dtype or device is not as above; an argument is not an array.
    """
    return call(_PRELU, x, (alpha,), out, stream, channel_axis)


def prelu_backward(
    dy: Array,
    x: ArrayT,
    alpha: Array,
    channel_axis: int = 1,
    *,
    need_dx: bool = True,
    need_dalpha: bool = True,
    dx_out: Array | None = None,
    dalpha_out: Array | None = None,
    workspace: Array | None = None,
    stream: Stream | None = None,
) -> tuple[ArrayT | None, Any]:
    """The gradients of `prelu` with respect to x and alpha.

    ``dx = dy where x > 0, alpha * dy elsewhere``; dalpha is the sum of ``dy * x`` over the elements with x <= 0 or NaN:
    one sum per channel, or one in all if alpha has one element.

    Parameters
    ----------
    dy : array
        The gradient of prelu's output: x's shape, dtype and strides.
    x, alpha, channel_axis
        As given to `prelu`.
    need_dx, need_dalpha : bool, optional
        False: that gradient is not computed and is None in the result.
    dx_out : array, optional
        Where to write dx: x's shape, dtype and strides. dy itself, x itself, or memory shared with neither.
    dalpha_out : array, optional
        Where to write dalpha: contiguous, alpha's shape and dtype. By default a new array of alpha's kind.
    workspace : array, optional
        Contiguous, at least `prelu_backward_workspace_bytes` bytes, on x's device, at a multiple of 16 bytes; in use
        until the work is done. By default it is allocated if one is needed, on a GPU in the stream's order.
    stream : int or stream object, optional
        As in `permute`.

    Returns
    -------
    dx, dalpha : array or None
        Sums are taken in float32, in float64 for float64, in a fixed order: equal calls on one device give equal bits.

    Raises
    ------
    FlowkError, FlowkValueError, ValueError, TypeError
        As `prelu`.
    """
    others = (need_dx, need_dalpha, dalpha_out, workspace)
    return call(_BACKWARD, x, (dy, alpha), dx_out if need_dx else None, stream, channel_axis, others)


def prelu_backward_workspace_bytes(x: Array, alpha: Array, channel_axis: int = 1) -> int:
    """Bytes of workspace that `prelu_backward` needs for arrays as x and alpha; 0 where it needs none.

    Parameters
    ----------
    x, alpha, channel_axis
        As given to `prelu`; values and addresses do not matter.
    """
    return call(_WORKSPACE, x, (alpha,), None, None, channel_axis)


# ---- plans ----------------------------------------------------------------------------------------------------------


def _plan_prelu(signatures: tuple[Signature, ...], out: Geometry | None, channel_axis: int) -> Plan:
    require_arrays(("x", "alpha"), signatures)
    (shape, strides, dtype), alpha = signatures
    sizes, order = _sizes((shape, strides, dtype), alpha, channel_axis, () if out is None else (("out", out),))
    outer, channels, inner, code, a_code = sizes

    def arguments(pointers: Any, y: int, values: Any, stream: Any) -> tuple[Any, ...]:
        return pointers[0], pointers[1], y, outer, channels, inner, code, a_code, stream

    return Plan("flowk_prelu", arguments, tuple(shape), dtype, order)


def _plan_workspace(signatures: tuple[Signature, ...], out: None, channel_axis: int) -> Plan:
    plan = _plan_prelu(signatures, out, channel_axis)
    sizes = tuple(size.value for size in plan.arguments((None, None), 0, (), None)[3:-1])
    return plan._replace(steps=lambda read, made: _workspace_bytes(read.library, *sizes))


def _plan_backward(signatures: tuple[Signature, ...], dx: Geometry | None, channel_axis: int) -> Plan:
    require_arrays(("x", "dy", "alpha"), signatures)
    x, dy, alpha = signatures
    others = (("dy", dy),) if dx is None else (("dy", dy), ("dx_out", dx))
    sizes, order = _sizes(x, alpha, channel_axis, others)

    def arguments(pointers: Any, dx: int, values: Any, stream: Any) -> tuple[Any, ...]:
        return pointers[1], pointers[0], pointers[2], dx, *values, *sizes, stream

    numbers = tuple(size.value for size in sizes)
    plan = Plan("flowk_prelu_backward", arguments, tuple(x[0]), x[2], order)
    return plan._replace(steps=lambda read, made: _run_backward(plan, numbers, read, made))


def _run_backward(plan: Plan, sizes: tuple[int, ...], read: Readings, made: Call) -> Any:
    """The steps of a Plan: allocates dx, dalpha and the workspace where they are not given, and calls the library."""
    need_dx, need_dalpha, dalpha, workspace = made.values
    source, x, library, device, handle = read.source, read.x, read.library, read.device, read.stream
    dx, dx_pointer, dalpha_pointer = made.out, read.out_pointer, UNALLOCATED + (1 << 55)
    afters = read.afters
    if not need_dalpha:
        dalpha = None
    if dalpha is not None:
        dalpha_pointer, geometry = _read_written(dalpha, "dalpha_out", read, afters)
        _check_same_place("alpha", read.signatures[2], "dalpha_out", geometry)
    if made.stream.__class__ is Listener:
        arguments = plan.arguments(read.pointers, dx_pointer, (dalpha_pointer,), None)
        return plan_text(library, plan.function, arguments[:-1])
    if need_dx and dx is None:
        dx, dx_pointer = new_array(source, x, plan.out_shape, plan.out_dtype, plan.order, device, handle)
        dx = source.result(x, dx)
    if need_dalpha and dalpha is None:
        alpha, (shape, _, dtype) = made.inputs[2], read.signatures[2]
        alphas = ARRAYS[type(alpha)]
        dalpha, dalpha_pointer = alphas.empty(alpha, tuple(shape), dtype, device, handle)
        dalpha = alphas.result(alpha, dalpha)
    if not (need_dx or need_dalpha):
        return None, None

    memory, memory_pointer, memory_bytes = None, None, 0
    if need_dalpha and workspace is None:
        memory_bytes = _workspace_bytes(library, *sizes)
        if memory_bytes:
            memory, memory_pointer = _allocate(source, x, made.stream, memory_bytes, device, handle)
    elif need_dalpha:
        memory_pointer, (shape, strides, dtype) = _read_written(workspace, "workspace", read, afters)
        if element_strides(dtype, shape, strides, "workspace") != contiguous_strides(shape, 1):
            raise ValueError(f"workspace has strides of {tuple(strides)}, must be contiguous")
        memory_bytes = math.prod(shape) * dtype.itemsize
    pointers = (dalpha_pointer if need_dalpha else None,)
    *arguments, _ = plan.arguments(read.pointers, dx_pointer if need_dx else None, pointers, None)
    status = library.flowk_prelu_backward(*arguments, memory_pointer, memory_bytes, handle)
    if status:
        raise error_of(library, status)
    del memory  # freed in the stream's order, after the work
    for after in afters:
        after(handle)
    return dx, dalpha


_PRELU = Operation(("x", "alpha"), _plan_prelu)
_BACKWARD = Operation(("x", "dy", "alpha"), _plan_backward, "dx_out")
_WORKSPACE = Operation(("x", "alpha"), _plan_workspace)


# ---- sizes ----------------------------------------------------------------------------------------------------------

# (outer, channels, inner, x's dtype, alpha's dtype) as C values; the dimensions of x from the outermost in memory to
# the innermost, None where that is C order.
Sizes = tuple[tuple[Any, ...], "tuple[int, ...] | None"]


def _sizes(
    x: Geometry,
    alpha: Geometry,
    channel_axis: int,
    others: tuple[tuple[str, Geometry], ...],
) -> Sizes:
    """x as (outer, channels, inner) in memory. The arrays `others` must be laid out as x."""
    for name, geometry in others:
        _check_same_place("x", x, name, geometry)
    (shape, strides, dtype), (a_shape, a_strides, a_dtype) = x, alpha
    code, _ = element_type(dtype, "x")
    a_code, _ = element_type(a_dtype, "alpha")
    order = _memory_order(shape, element_strides(dtype, shape, strides, "x"), "x")
    num_alphas = math.prod(a_shape)
    if element_strides(a_dtype, a_shape, a_strides, "alpha") != contiguous_strides(a_shape, 1) and num_alphas > 1:
        raise ValueError(f"alpha has strides of {tuple(a_strides)}, must be contiguous")
    if num_alphas == 1:
        return _c_values(1, 1, math.prod(shape), code, a_code), order
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
    return _c_values(outer, shape[axis], inner, code, a_code), order


def _c_values(outer: int, channels: int, inner: int, code: DType, a_code: DType) -> tuple[Any, ...]:
    return c_int64(outer), c_int64(channels), c_int64(inner), c_int(code), c_int(a_code)


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


@functools.lru_cache(maxsize=4096)
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


# ---- memory ---------------------------------------------------------------------------------------------------------


def _read_written(array: Any, name: str, read: Readings, afters: list[After]) -> tuple[int, Geometry]:
    """Pointer and geometry of another array that the call writes."""
    kind = ARRAYS.get(type(array)) or find_array_kind(array, name)
    pointer, shape, strides, dtype, device, after = kind.read_out(array, name, read.stream)
    if device != read.device:
        raise different_devices("x", read.device, name, device)
    if after is not None:
        afters.append(after)
    return pointer, (shape, strides, dtype)


@functools.lru_cache(maxsize=4096)
def _workspace_bytes(library: Any, outer: int, channels: int, inner: int, code: int, a_code: int) -> int:
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
