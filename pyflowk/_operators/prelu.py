# SPDX-License-Identifier: Apache-2.0
"""prelu and prelu_backward."""

from __future__ import annotations

import ctypes
import functools
import math
from ctypes import c_int, c_int64
from typing import TYPE_CHECKING, Any

from .._arguments import boolean, integer, shown
from .._arrays.adapters.base import Geometry, Signature
from .._arrays.dtypes import (
    coefficient_types,
    contiguous_strides,
    element_strides,
    element_type,
    float_type,
    listed,
    wrong_dtype,
)
from .._calls import call_path
from .._calls.call_path import CallPath
from .._copies import in_c_order, on_copies
from .._native.abi import DType, Status
from .._native.errors import FlowkValueError, error_of
from .._pipeline import Operation, Request, bind_plan, require_arrays
from .._program import INPUT, OUTPUT, TEMP, Arg, Buffer, Program, Step

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
    return (_PATH.call if call_path.is_compiling() else _PATH.cached_call)(x, alpha, channel_axis, out, stream)


def _prelu(x: Any, alpha: Any, channel_axis: Any) -> Request:
    return Request(_PRELU, (x, alpha), integer(channel_axis, "channel_axis"))


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
    both = _BACKWARD_PATH.call if call_path.is_compiling() else _BACKWARD_PATH.cached_call
    return both(  # type: ignore[no-any-return]
        dy, x, alpha, channel_axis, need_dx, need_dalpha, dx_out, dalpha_out, workspace, stream
    )


def _prelu_backward(dy: Any, x: Any, alpha: Any, channel_axis: Any, *rest: Any) -> Request:
    need_dx, need_dalpha, dx_out, dalpha_out, _ = rest
    needs = boolean(need_dx, "need_dx"), boolean(need_dalpha, "need_dalpha")
    axis = integer(channel_axis, "channel_axis")
    for name, out, is_needed in zip(("dx", "dalpha"), (dx_out, dalpha_out), needs):
        if out is not None and not is_needed:
            raise ValueError(f"{name}_out is given, must be None where need_{name} is False")
    return Request(_BACKWARD, (x, dy, alpha), (axis, *needs))


def prelu_backward_workspace_bytes(x: Array, alpha: Array, channel_axis: int = 1) -> int:
    """Bytes of workspace that `prelu_backward` needs for arrays as x and alpha; 0 where it needs none.

    Parameters
    ----------
    x, alpha, channel_axis
        As given to `prelu`; values and addresses do not matter.
    """
    request = Request(_WORKSPACE, (x, alpha), integer(channel_axis, "channel_axis"))
    return sum(bind_plan(request).program.temps)


# ---- plans ----------------------------------------------------------------------------------------------------------


def _plan_prelu(
    signatures: tuple[Signature, ...], outs: tuple[Geometry | None, ...], channel_axis: int
) -> Program | None:
    require_arrays(("x", "alpha"), signatures)
    copied, out_name = _copied(("x", "alpha"), signatures, outs[0], "out")
    if copied or out_name:
        return on_copies(_plan_prelu, signatures, outs, channel_axis, copied, out_name)
    x, alpha = signatures
    sizes, order = _sizes(x, alpha, channel_axis)
    step = Step.of("flowk_prelu", (Arg(INPUT, 0), Arg(INPUT, 1), Arg(OUTPUT, 0), *sizes), ("x", "alpha"))
    return Program((step,), (Buffer(tuple(x[0]), x[2], order),))


def _plan_workspace(
    signatures: tuple[Signature, ...], outs: tuple[None], channel_axis: int, library: Any = None
) -> Program | None:
    """The larger workspace of two: where dy and dx are laid out as x, and where all are copied to C order."""
    require_arrays(("x", "alpha"), signatures)
    if library is None:
        return None
    x, alpha = signatures
    copied, _ = _copied(("x", "alpha"), signatures, None, "out")
    layouts = (in_c_order(x, "x"), *(() if 0 in copied else (x,)))
    return Program((), (), (max(_workspace_bytes(library, *_sizes(each, alpha, channel_axis)[0]) for each in layouts),))


def _plan_backward(
    signatures: tuple[Signature, ...],
    outs: tuple[Geometry | None, ...],
    options: tuple[int, bool, bool],
    library: Any = None,
) -> Program | None:
    """`outs` are dx, dalpha and the workspace, the size of which depends on the device."""
    require_arrays(("x", "dy", "alpha"), signatures)
    copied, out_name = _copied(("x", "dy", "alpha"), signatures, outs[0], "dx_out")
    if copied or out_name:
        plan = functools.partial(_plan_backward, library=library)
        return on_copies(plan, signatures, outs, options, copied, out_name)
    (x, _, alpha), (_, dalpha, workspace), (channel_axis, need_dx, need_dalpha) = signatures, outs, options
    sizes, order = _sizes(x, alpha, channel_axis)
    if not need_dalpha:
        num_bytes = 0
    elif workspace is not None:
        num_bytes = _bytes_of_workspace(workspace)
    elif library is None:
        return None
    else:
        num_bytes = _workspace_bytes(library, *sizes)
    if need_dalpha and dalpha is not None:
        _require_bytes("dalpha_out", dalpha)
        if not _check_same_type("alpha", alpha, "dalpha_out", dalpha):
            raise ValueError(f"dalpha_out has strides of {tuple(dalpha[1])}, must be contiguous")
    results = (
        Buffer(tuple(x[0]), x[2], order) if need_dx else None,
        Buffer(tuple(alpha[0]), alpha[2], like=2) if need_dalpha else None,
        None,
    )
    if not (need_dx or need_dalpha):
        return Program((), results, idle="no gradient is needed")
    dx, dalpha_arg = (Arg(OUTPUT, index) if result else None for index, result in enumerate(results[:2]))
    memory = None if not num_bytes else Arg(TEMP, 0) if workspace is None else Arg(OUTPUT, 2)
    args = (Arg(INPUT, 1), Arg(INPUT, 0), Arg(INPUT, 2), dx, dalpha_arg, *sizes, memory, num_bytes)
    step = Step.of("flowk_prelu_backward", args, ("x", "dy", "alpha"))
    return Program((step,), results, (num_bytes,) if num_bytes and workspace is None else ())


def _bytes_of_workspace(workspace: Geometry) -> int:
    shape, strides, dtype = workspace
    _require_bytes("workspace", workspace)
    if element_strides(dtype, shape, strides, "workspace") != contiguous_strides(shape, 1):
        raise ValueError(f"workspace has strides of {tuple(strides)}, must be contiguous")
    return int(math.prod(shape) * dtype.itemsize)


def _require_bytes(name: str, geometry: Geometry) -> None:
    if getattr(geometry[2], "hasobject", False):
        raise TypeError(f"{name} has dtype {geometry[2]}: its elements are Python objects, must be plain bytes")


def _workspace_bytes(library: Any, *sizes: Any) -> int:
    num_bytes = ctypes.c_size_t()
    status = library.flowk_prelu_backward_workspace_bytes(*sizes, ctypes.addressof(num_bytes))
    if status:
        error = error_of(library, status)
        error.name_parameters("flowk_prelu_backward", ())
        raise error
    return num_bytes.value


_PRELU = Operation(("x", "alpha"), _plan_prelu, operator="prelu")
_PATH = CallPath("x alpha channel_axis=", _prelu)
_BACKWARD = Operation(
    *(("x", "dy", "alpha"), _plan_backward),
    out_names=("dx_out", "dalpha_out", "workspace"),
    num_results=2,
    context=lambda library, adapter: library,
    operator="prelu_backward",
)
_BACKWARD_PATH = CallPath(
    "dy x alpha channel_axis= need_dx= need_dalpha=", _prelu_backward, _BACKWARD.out_names, takes_outs=True
)
_WORKSPACE = Operation(
    *(("x", "alpha"), _plan_workspace),
    context=lambda library, adapter: library,
    operator="prelu_backward_workspace_bytes",
)


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
    if a_code not in coefficient_types(code):
        raise wrong_dtype("alpha", a_dtype, f"{listed(coefficient_types(code))} beside x of {dtype}")
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
