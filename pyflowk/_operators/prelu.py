# SPDX-License-Identifier: Apache-2.0
"""prelu and prelu_backward."""

from __future__ import annotations

import ctypes
import functools
import math
from ctypes import c_int, c_int64
from typing import TYPE_CHECKING, Any

from .._arguments import boolean, integer, shown
from .._arrays.dtypes import beside, contiguous_strides, element_strides, element_type, float_type, listed, wrong_dtype
from .._arrays.kinds import ARRAYS, After, Geometry, Signature, find_array_kind
from .._calls import roads
from .._calls.roads import Road
from .._copies import in_c_order, on_copies, temporary
from .._native.abi import DType, Status
from .._native.errors import FlowkValueError, different_devices, error_of
from .._pipeline import (
    UNALLOCATED,
    Call,
    Listener,
    Operation,
    Plan,
    Readings,
    Recorded,
    Recorder,
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
        Any shape and strides, of float16, bfloat16, float32 or float64, of the kinds that `permute` takes. Fastest are
        elements that lie without gaps, in any order of the dimensions: C-contiguous, channels last, transposed.
        Otherwise, and where x and `out` are laid out differently, each of them that is not C-contiguous is copied to
        temporary memory first, or from it for `out`: one more pass over that array.
    alpha : array
        On x's device, of x's dtype or of float32 beside a 16-bit x. One element for the whole of x, or shape
        ``(x.shape[channel_axis],)``: one per channel. Where it is not contiguous it is copied first.
    channel_axis : int, optional
        The dimension of x that alpha runs along; not read where alpha has one element.
    out : array, optional
        Where to write: x's shape and dtype, any strides. x itself computes in place; anything else must not share
        memory with x. By default a new array of x's kind, its dimensions in memory in x's order, or where x has gaps in
        C order.
    stream : int or stream object, optional
        As in `permute`.

    Returns
    -------
    array
        `out`. On a GPU the work may still be running.

    Raises
    ------
    FlowkError, FlowkValueError
        The library's status and text.
    ValueError, TypeError
        A shape, stride, dtype or device is not as above; an argument is not an array.
    """
    return (_ROAD.call if roads.is_compiling() else _ROAD.enter)(x, alpha, channel_axis, out, stream)


def _prelu(x: Any, alpha: Any, channel_axis: Any, out: Any, stream: Any) -> Any:
    return call(_PRELU, x, (alpha,), out, stream, integer(channel_axis, "channel_axis"))


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
        The gradient of prelu's output: x's shape and dtype. `prelu` says which strides cost a copy.
    x, alpha, channel_axis
        As given to `prelu`.
    need_dx, need_dalpha : bool, optional
        False: that gradient is not computed and is None in the result.
    dx_out : array, optional
        Where to write dx: x's shape and dtype, as `out` of `prelu`. dy itself, x itself, or memory shared with neither.
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
    others = (boolean(need_dx, "need_dx"), boolean(need_dalpha, "need_dalpha"), dalpha_out, workspace)
    axis = integer(channel_axis, "channel_axis")
    for need, is_needed, name, out in (
        ("need_dx", need_dx, "dx_out", dx_out),
        ("need_dalpha", need_dalpha, "dalpha_out", dalpha_out),
    ):
        if out is not None and not is_needed:
            raise ValueError(f"{name} is given, must be None where {need} is False")
    return call(_BACKWARD, x, (dy, alpha), dx_out, stream, axis, others)


def prelu_backward_workspace_bytes(x: Array, alpha: Array, channel_axis: int = 1) -> int:
    """Bytes of workspace that `prelu_backward` needs for arrays as x and alpha; 0 where it needs none.

    Parameters
    ----------
    x, alpha, channel_axis
        As given to `prelu`; values and addresses do not matter.
    """
    return call(_WORKSPACE, x, (alpha,), None, None, integer(channel_axis, "channel_axis"))


# ---- plans ----------------------------------------------------------------------------------------------------------


def _plan_prelu(signatures: tuple[Signature, ...], out: Geometry | None, channel_axis: int) -> Plan:
    require_arrays(("x", "alpha"), signatures)
    copied, out_name = _copied(("x", "alpha"), signatures, out, "out")
    if copied or out_name:
        return on_copies(_plan_prelu, signatures, out, channel_axis, copied, out_name)
    (shape, strides, dtype), alpha = signatures
    sizes, order = _sizes((shape, strides, dtype), alpha, channel_axis)
    outer, channels, inner, code, a_code = sizes

    def arguments(pointers: Any, y: int, values: Any, stream: Any) -> tuple[Any, ...]:
        return pointers[0], pointers[1], y, outer, channels, inner, code, a_code, stream

    return Plan("flowk_prelu", arguments, tuple(shape), dtype, order)


def _plan_workspace(signatures: tuple[Signature, ...], out: None, channel_axis: int) -> Plan:
    """The larger workspace of two: where dy and dx are laid out as x, and where all are copied to C order."""
    plan = _plan_prelu(signatures, out, channel_axis)
    in_order = _plan_prelu((in_c_order(signatures[0], "x"), *signatures[1:]), out, channel_axis)
    both = [[size.value for size in each.arguments((None, None), 0, (), None)[3:-1]] for each in (plan, in_order)]
    return plan._replace(steps=lambda read, made: max(_workspace_bytes(read.library, *sizes) for sizes in both))


def _plan_backward(signatures: tuple[Signature, ...], dx: Geometry | None, channel_axis: int) -> Plan:
    require_arrays(("x", "dy", "alpha"), signatures)
    copied, out_name = _copied(("x", "dy", "alpha"), signatures, dx, "dx_out")
    if copied or out_name:
        return on_copies(_plan_backward, signatures, dx, channel_axis, copied, out_name)
    x, _, alpha = signatures
    sizes, order = _sizes(x, alpha, channel_axis)

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
        if not _check_same_type("alpha", read.signatures[2], "dalpha_out", geometry):
            raise ValueError(f"dalpha_out has strides of {tuple(geometry[1])}, must be contiguous")
    if made.stream.__class__ is Recorder:
        return _recorded_backward(plan, sizes, read, made)
    if made.stream.__class__ is Listener:
        if not (need_dx or need_dalpha):
            return "nothing to do: no gradient is needed\n"
        addresses = dx_pointer if need_dx else None, (dalpha_pointer if need_dalpha else None,)
        return plan_text(library, plan.function, plan.arguments(read.pointers, *addresses, None)[:-1])
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
            memory, memory_pointer = temporary(source, x, memory_bytes, device, handle)
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


def _recorded_backward(plan: Plan, sizes: tuple[int, ...], read: Readings, made: Call) -> Recorded | None:
    """The call with the results and the workspace that it needs, whether they are given or not; None for no call."""
    need_dx, need_dalpha, _, workspace = made.values
    if not (need_dx or need_dalpha):
        return None
    num_bytes = _workspace_bytes(read.library, *sizes) if need_dalpha else 0
    if workspace is not None and need_dalpha:
        num_bytes = workspace.dtype.itemsize * math.prod(workspace.shape)
    names = ("x", "dy", "alpha", "dx_out", "dalpha_out", "workspace")
    needed = (True, True, True, need_dx, need_dalpha, num_bytes > 0)
    addresses = [UNALLOCATED + (index + 1 << 40) if needed[index] else None for index in range(len(names))]
    *inputs, dx, dalpha, memory = addresses
    *arguments, _ = plan.arguments(inputs, dx or 0, (dalpha,), None)
    named = {address: name for address, name in zip(addresses, names) if address is not None}
    return Recorded(read.library, plan.function, (*arguments, memory, num_bytes), named, plan.arguments, None)


_PRELU = Operation(("x", "alpha"), _plan_prelu)
_ROAD = Road("x alpha channel_axis=", _prelu)
_BACKWARD = Operation(("x", "dy", "alpha"), _plan_backward, "dx_out")
_WORKSPACE = Operation(("x", "alpha"), _plan_workspace)


# ---- sizes ----------------------------------------------------------------------------------------------------------

# (outer, channels, inner, x's dtype, alpha's dtype) as C values; the dimensions of x from the outermost in memory to
# the innermost, None where that is C order.
Sizes = tuple[tuple[Any, ...], "tuple[int, ...] | None"]


def _copied(
    names: tuple[str, ...], signatures: tuple[Signature, ...], out: Geometry | None, out_name: str
) -> tuple[dict[int, tuple[str, Geometry]], str | None]:
    """What on_copies() is to copy: alpha where it is not contiguous, and where the arrays of x's shape are not laid out
    alike, without gaps, each of them that is not C-contiguous."""
    x, place = signatures[0], names.index("alpha")
    alpha = {} if _is_contiguous(signatures[place], "alpha") else {place: ("alpha", signatures[place])}
    arrays: dict[int | None, tuple[str, Geometry]] = {
        number: (name, signature) for number, (name, signature) in enumerate(zip(names, signatures)) if name != "alpha"
    }
    if out is not None:
        arrays[None] = (out_name, out)
    alike = all([_check_same_type("x", x, name, geometry) for name, geometry in arrays.values()])
    strides = element_strides(x[2], x[0], x[1], "x")
    if (alike and _memory_order(x[0], strides) is not _HAS_GAPS) or 0 in x[0]:
        return alpha, None
    copied = {number: named for number, named in arrays.items() if not _is_contiguous(named[1], named[0])}
    others = {n: named for n, named in copied.items() if n is not None}
    return {**others, **alpha}, out_name if None in copied else None


def _sizes(x: Geometry, alpha: Geometry, channel_axis: int) -> Sizes:
    """x, an array without gaps, as (outer, channels, inner) in memory."""
    (shape, strides, dtype), (a_shape, _, a_dtype) = x, alpha
    code, a_code = float_type(dtype, "x"), float_type(a_dtype, "alpha")
    if a_code not in beside(code):
        raise wrong_dtype("alpha", a_dtype, f"{listed(beside(code))} beside x of {dtype}")
    order = _memory_order(shape, element_strides(dtype, shape, strides, "x"))
    assert order is not _HAS_GAPS
    if math.prod(a_shape) == 1:
        return _c_values(1, 1, math.prod(shape), code, a_code), order
    axis = channel_axis
    if not shape:
        raise ValueError(f"x has no dimensions: alpha has shape {tuple(a_shape)}, must have one element")
    if not -len(shape) <= axis < len(shape):
        raise FlowkValueError(
            Status.INVALID_ARGUMENT, f"channel_axis = {shown(axis)}, must be in {-len(shape)} ... {len(shape) - 1}"
        )
    axis %= len(shape)
    if tuple(a_shape) != (shape[axis],):
        raise ValueError(
            f"alpha has shape {tuple(a_shape)}, must have one element or the shape ({shape[axis]},) of x along "
            f"channel_axis = {axis}"
        )
    in_memory = order or tuple(range(len(shape)))
    place = in_memory.index(axis)
    outer = math.prod(shape[d] for d in in_memory[:place])
    inner = math.prod(shape[d] for d in in_memory[place + 1 :])
    return _c_values(outer, shape[axis], inner, code, a_code), order


def _c_values(outer: int, channels: int, inner: int, code: DType, a_code: DType) -> tuple[Any, ...]:
    return c_int64(outer), c_int64(channels), c_int64(inner), c_int(code), c_int(a_code)


_HAS_GAPS = (-1,)


def _memory_order(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, ...] | None:
    """The dimensions of an array from the outermost in memory to the innermost; None for C order; _HAS_GAPS where its
    elements do not lie without gaps, or repeat."""
    if tuple(strides) == contiguous_strides(shape, 1) or 0 in shape:
        return None
    order = tuple(sorted(range(len(shape)), key=lambda d: (-strides[d], shape[d] == 1, d)))
    expected = 1
    for d in reversed(order):
        if shape[d] > 1 and strides[d] != expected:
            return _HAS_GAPS
        expected *= shape[d]
    kept = [d for d in order if shape[d] > 1]
    return None if kept == sorted(kept) else order


@functools.lru_cache(maxsize=4096)
def _check_same_type(name: str, first: Geometry, other_name: str, other: Geometry) -> bool:
    """Are the strides of two arrays the same? An error where their shapes or dtypes are not."""
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
    own = element_strides(dtype, shape, strides, name)
    return _have_same_strides(own, element_strides(other_dtype, shape, other_strides, other_name), shape)


def _have_same_strides(strides: tuple[int, ...], others: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """Strides of extents of 1 do not matter, and none of an empty array."""
    return 0 in shape or all(a == b or extent == 1 for a, b, extent in zip(strides, others, shape, strict=True))


def _is_contiguous(geometry: Geometry, name: str) -> bool:
    shape, strides, dtype = geometry
    return _have_same_strides(element_strides(dtype, shape, strides, name), contiguous_strides(shape, 1), shape)


# ---- memory ---------------------------------------------------------------------------------------------------------


def _read_written(array: Any, name: str, read: Readings, afters: list[After]) -> tuple[int, Geometry]:
    """Pointer and geometry of another array that the call writes."""
    kind = ARRAYS.get(type(array)) or find_array_kind(array, name)
    pointer, shape, strides, dtype, device, after = kind.read_out(array, name, read.stream)
    if getattr(dtype, "hasobject", False):
        raise TypeError(f"{name} has dtype {dtype}: its elements are Python objects, must be plain bytes")
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
