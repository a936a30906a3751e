# SPDX-License-Identifier: Apache-2.0
"""masked_softmax, its gradient and their plans: arrays in, one call of the library, exceptions out."""

from __future__ import annotations

import functools
from ctypes import addressof
from typing import Any

from . import _library
from ._abi import SoftmaxMask
from ._array import KINDS, After, Geometry, kind_of, stream_for
from ._errors import different_devices, error_of
from ._explain import EXPLAINERS, Listener, plan_text
from ._softmax_arguments import address_past, arguments_of

_NONE = (None, None, None)  # mask, lengths and bias of a call without
_FORWARD = object()  # in place of the y of a backward call


def masked_softmax(
    x: Any,
    mask: Any = None,
    *,
    lengths: Any = None,
    side: str = "left",
    causal: bool = False,
    causal_offset: int = 0,
    window: int | None = None,
    bias: Any = None,
    scale: float = 1.0,
    log: bool = False,
    dtype: Any = None,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """`out[..., j] = exp(z[..., j]) / sum of exp(z[..., i]) over kept i`, 0 for masked j; `z = scale * x + bias`.

    x        (..., q, k), or (k,), of float16, bfloat16, float32 or float64; the softmax runs over the last dimension,
             whose elements lie one after the other. Any other strides; the kinds of array that permute() takes.

    What is kept: a column that each of these keeps, those that are given.

    mask     bool or uint8, nonzero (True) = *masked*, as in torch's masked_fill. It broadcasts to x's shape as in
             NumPy, (b, 1, q, k), (b, 1, 1, k), (q, k), (k,) ..., its last extent being k; nothing is copied.
    lengths  int32 or int64: how many columns of a row are kept, counted from `side`, "left" or "right". Its dimensions
             are x's *first* ones, each of x's extent or 1: (b,), (b, h), (b, 1, 1), (b, 1, q) ... One below 0 counts as
             0, one above k as k.
    causal   True: columns j <= d of row i, d = i + (k - q) + causal_offset: without an offset the last row's diagonal
             ends in the last column. q is x's extent before the last (1 where x has one dimension).
    window   columns j > d - window, with `causal` the last `window` ones of those that it keeps; without `causal` those
             of j < d + window too: a band around the diagonal. At least 1; None: no window.

    Columns that lengths, causal and window mask are not read, only written, but for short rows of odd lengths.

    bias     of x's dtype, or float32 where x is float16 or bfloat16; broadcasts as `mask` does. It is not scaled.
    scale    a finite number of any sign.
    log      True: the logarithm, `z[..., j] - log(sum of exp(z[..., i]) over kept i)`, -infinity for masked j.
    dtype    of a new `out`: x's where None; float32 x gives float16 or bfloat16 too, and these give float32.
    out      an array of x's shape and a dtype as above, its last dimension contiguous; x itself is allowed, other
             memory in common with an input is not. None: a new C-contiguous array of x's kind and device.
    stream   as permute().

    Rows without a kept column, and rows whose kept z are all -infinity, are 0 (-infinity where log). A NaN or +infinity
    among a row's kept z gives NaN in its kept columns; what a masked column holds is never looked at.

    Returns `out`. On a GPU the work may still be running then; an array passed as mask, lengths or bias must not change
    before it has ended.

    Raises ValueError or TypeError for a shape that does not broadcast, a dtype, side, window or an array on another
    device; FlowkError with the library's text (in which dense is `mask` and y is `out`) for the rest.
    """
    operands = _NONE if mask is None and lengths is None and bias is None else (mask, lengths, bias)
    options = (side, causal, causal_offset, window, dtype)
    return _run("flowk_masked_softmax", x, _FORWARD, operands, options, scale, log, out, stream)


def masked_softmax_backward(
    dy: Any,
    y: Any,
    *,
    lengths: Any = None,
    side: str = "left",
    causal: bool = False,
    causal_offset: int = 0,
    window: int | None = None,
    scale: float = 1.0,
    log: bool = False,
    dtype: Any = None,
    out: Any = None,
    stream: Any = None,
) -> Any:
    """The gradient with respect to x: `out[..., j] = scale * y[..., j] * (dy[..., j] - sum of y[..., i] * dy[..., i])`.

    With log: `out[..., j] = scale * (dy[..., j] - exp(y[..., j]) * sum of dy[..., i])`, sums and result without the
    columns where y is -infinity: those are masked.

    dy       the gradient of y, of y's shape and dtype
    y        what masked_softmax() returned
    lengths, side, causal, causal_offset, window
             as given to masked_softmax(), to leave masked columns unread: out is 0 there. Leaving them out gives the
             same result, and so it does for the mask and the bias, which are not taken: y has their effect in it.
    scale, log
             as given to masked_softmax()
    dtype    of a new `out`: dy's where None; others as there, x's dtype being the one wanted
    out      as there; dy or y itself is allowed
    stream   as permute()

    A row without a kept column has a gradient of 0. The gradient of a bias of x's whole shape is `out / scale`.

    Returns `out`; raises as masked_softmax(), in the library's text dx is `out`.
    """
    operands = _NONE if lengths is None else (None, lengths, None)
    options = (side, causal, causal_offset, window, dtype)
    return _run("flowk_masked_softmax_backward", dy, y, operands, options, scale, log, out, stream)


def softmax(x: Any, *, dtype: Any = None, out: Any = None, stream: Any = None) -> Any:
    """masked_softmax() over the last dimension of x, without a mask."""
    return _run("flowk_masked_softmax", x, _FORWARD, _NONE, ("left", False, 0, None, dtype), 1.0, False, out, stream)


def log_softmax(x: Any, *, dtype: Any = None, out: Any = None, stream: Any = None) -> Any:
    """masked_softmax(log=True) over the last dimension of x, without a mask."""
    return _run("flowk_masked_softmax", x, _FORWARD, _NONE, ("left", False, 0, None, dtype), 1.0, True, out, stream)


def _run(
    function: str,
    first: Any,
    second: Any,
    operands: tuple[Any, Any, Any],
    options: tuple[str, bool, int, int | None, Any],
    scale: float,
    log: bool,
    out: Any,
    stream: Any,
) -> Any:
    """One call of `function`, on x (first) or on dy and y (first and second). `operands` are mask, lengths and bias,
    `options` side, causal, causal_offset, window and dtype. With a Listener as `stream` it is the text of the plan, and
    nothing is allocated."""
    is_forward = second is _FORWARD
    name = "x" if is_forward else "dy"
    explains = stream.__class__ is Listener
    source = KINDS.get(type(first)) or kind_of(first, name)
    target = None if out is None else KINDS.get(type(out)) or kind_of(out, "out")
    handle = stream_for(None if explains else stream, source, first, target, out)
    pointer, shape, strides, element, device, after = source.read(first, name, handle)
    first_geometry = (shape, strides, element)
    second_pointer = second_geometry = out_geometry = after_out = None
    pointers = geometries = _NONE
    afters: list[After] = []
    if not is_forward:
        second_pointer, second_geometry = _read(second, "y", name, device, handle, afters)
    if operands is not _NONE:
        pointers, geometries = _read_operands(operands, name, device, handle, afters)
    if target is not None:
        out_pointer, out_shape, out_element_strides, out_element, out_device, after_out = target.read_out(
            out, "out", handle
        )
        if out_device != device:
            raise different_devices(name, device, "out", out_device)
        out_geometry = (out_shape, out_element_strides, out_element)
    first_strides, second_strides, code, out_strides, out_code, rank, extents, mask, mask_pointer, like, _ = (
        arguments_of(first_geometry, second_geometry, geometries, out_geometry, options)
    )
    library = _library.loaded.get(device) or _library.for_device(device, name)
    result = out
    if target is None and not explains:
        result, out_pointer = source.empty(first, *like, device, handle)
    elif target is None:
        out_pointer = address_past((pointer, second_pointer, *pointers), (first_geometry, second_geometry, *geometries))
    if pointers is not _NONE:
        # A copy: the calls of other threads share what arguments_of() remembers.
        mask = SoftmaxMask.from_buffer_copy(mask)
        mask.dense, mask.lengths, mask.bias = pointers
        mask_pointer = addressof(mask)
    number = scale if type(scale) is float else _number(scale)
    inputs = (pointer, first_strides) if is_forward else (pointer, first_strides, second_pointer, second_strides)
    if explains:
        written = out_pointer, out_strides, out_code
        arguments = (*inputs, code, *written, rank, extents, number, mask_pointer, 1 if log else 0)
        return plan_text(library, function + "_explain", arguments)
    status = getattr(library, function)(
        *inputs, code, out_pointer, out_strides, out_code, rank, extents, number, mask_pointer, 1 if log else 0, handle
    )
    if status:
        raise error_of(library, status)
    if after is not None:
        after(handle)
    if after_out is not None:
        after_out(handle)
    for after_operand in afters:
        after_operand(handle)
    return source.result(first, result) if target is None else result


def _read_operands(
    operands: tuple[Any, Any, Any], first_name: str, device: int | None, handle: int, afters: list[After]
) -> tuple[tuple[int | None, ...], tuple[Geometry | None, ...]]:
    """Pointers and geometries of mask, lengths and bias."""
    mask, lengths, bias = operands
    dense = counts = added = mask_geometry = lengths_geometry = bias_geometry = None
    if mask is not None:
        dense, mask_geometry = _read(mask, "mask", first_name, device, handle, afters)
    if lengths is not None:
        counts, lengths_geometry = _read(lengths, "lengths", first_name, device, handle, afters)
    if bias is not None:
        added, bias_geometry = _read(bias, "bias", first_name, device, handle, afters)
    return (dense, counts, added), (mask_geometry, lengths_geometry, bias_geometry)


def _read(
    array: Any, name: str, first_name: str, first_device: int | None, handle: int, afters: list[After]
) -> tuple[int, Geometry]:
    """Pointer and geometry of an array that must be where the first one is."""
    kind = KINDS.get(type(array)) or kind_of(array, name)
    pointer, shape, strides, element, device, after = kind.read(array, name, handle)
    if device != first_device:
        raise different_devices(first_name, first_device, name, device)
    if after is not None:
        afters.append(after)
    return pointer, (shape, strides, element)


def _number(scale: Any) -> float:
    try:
        return float(scale)
    except (TypeError, ValueError) as error:
        raise TypeError(f"scale is {scale!r}, must be a number") from error


explain_masked_softmax = functools.partial(masked_softmax, stream=Listener())
explain_masked_softmax_backward = functools.partial(masked_softmax_backward, stream=Listener())
EXPLAINERS.update(
    masked_softmax=explain_masked_softmax,
    masked_softmax_backward=explain_masked_softmax_backward,
    softmax=explain_masked_softmax,
    log_softmax=functools.partial(explain_masked_softmax, log=True),
)
