# SPDX-License-Identifier: Apache-2.0
"""masked_softmax, its gradient and their plans: arrays in, one call of the library, exceptions out."""

from __future__ import annotations

import ctypes
from ctypes import addressof
from typing import Any

from . import _library
from ._abi import SoftmaxMask
from ._array import KINDS, After, kind_of
from ._errors import error_of
from ._softmax_arguments import NAMES, Arguments, Geometry, address_past, arguments_of
from ._stream import stream_handle


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

    Columns that lengths, causal and window mask are not read, only written.

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
    return _run(
        *("flowk_masked_softmax", x, None, mask, lengths, side, causal, causal_offset, window, bias),
        *(scale, log, dtype, out, stream),
    )


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
    return _run(
        *("flowk_masked_softmax_backward", dy, y, None, lengths, side, causal, causal_offset, window, None),
        *(scale, log, dtype, out, stream),
    )


def softmax(x: Any, *, dtype: Any = None, out: Any = None, stream: Any = None) -> Any:
    """masked_softmax() over the last dimension of x, without a mask."""
    return _run(
        *("flowk_masked_softmax", x, None, None, None, "left", False, 0, None, None),
        *(1.0, False, dtype, out, stream),
    )


def log_softmax(x: Any, *, dtype: Any = None, out: Any = None, stream: Any = None) -> Any:
    """masked_softmax(log=True) over the last dimension of x, without a mask."""
    return _run(
        *("flowk_masked_softmax", x, None, None, None, "left", False, 0, None, None),
        *(1.0, True, dtype, out, stream),
    )


def explain_masked_softmax(
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
) -> str:
    """The plan of masked_softmax() with the same arguments as text; nothing is launched or allocated."""
    return _explain(
        *("flowk_masked_softmax_explain", x, None, mask, lengths, side, causal, causal_offset, window, bias),
        *(scale, log, dtype, out),
    )


def explain_masked_softmax_backward(
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
) -> str:
    """The plan of masked_softmax_backward() with the same arguments as text; nothing is launched or allocated."""
    return _explain(
        *("flowk_masked_softmax_backward_explain", dy, y, None, lengths, side, causal, causal_offset, window, None),
        *(scale, log, dtype, out),
    )


def _run(
    function: str,
    first: Any,
    second: Any,
    mask: Any,
    lengths: Any,
    side: str,
    causal: bool,
    causal_offset: int,
    window: int | None,
    bias: Any,
    scale: float,
    log: bool,
    dtype: Any,
    out: Any,
    stream: Any,
) -> Any:
    """One call of `function` on x (first), or on dy and y (first and second)."""
    source = KINDS.get(type(first)) or kind_of(first, "x" if second is None else "dy")
    if stream is not None:
        handle = stream_handle(stream)
    elif out is None or source.follows_current_stream:
        handle = source.stream_of(first)
    else:
        handle = (KINDS.get(type(out)) or kind_of(out, "out")).stream_of(out)
    device, afters, pointers, geometries = _read_all(source, first, second, mask, lengths, bias, out, handle)
    arguments = arguments_of(*geometries, side, causal, causal_offset, window, dtype)
    library = _library.loaded.get(device) or _library.for_device(device, "x" if second is None else "dy")
    if out is None:
        written, out_pointer = source.empty(first, arguments.out_shape, arguments.out_dtype, device, handle)
    else:
        out_pointer = pointers[5]
    mask_struct, tensors = _mask_and_tensors(arguments, pointers, out_pointer)
    status = getattr(library, function)(
        *tensors,
        arguments.rank,
        arguments.shape,
        scale if type(scale) is float else _number(scale),
        mask_struct and addressof(mask_struct),
        1 if log else 0,
        handle,
    )
    if status:
        raise error_of(library, status)
    for after in afters:
        after(handle)
    return source.result(first, written) if out is None else out


def _explain(
    function: str,
    first: Any,
    second: Any,
    mask: Any,
    lengths: Any,
    side: str,
    causal: bool,
    causal_offset: int,
    window: int | None,
    bias: Any,
    scale: float,
    log: bool,
    dtype: Any,
    out: Any,
) -> str:
    """The text of `function`, for the same call."""
    name = "x" if second is None else "dy"
    source = kind_of(first, name)
    handle = source.stream_of(first)
    device, _, pointers, geometries = _read_all(source, first, second, mask, lengths, bias, out, handle)
    arguments = arguments_of(*geometries, side, causal, causal_offset, window, dtype)
    library = _library.for_device(device, name)
    out_pointer = address_past(pointers, geometries) if out is None else pointers[5]
    mask_struct, tensors = _mask_and_tensors(arguments, pointers, out_pointer)
    text = ctypes.create_string_buffer(4096)
    status = getattr(library, function)(
        *tensors,
        arguments.rank,
        arguments.shape,
        _number(scale),
        mask_struct and addressof(mask_struct),
        1 if log else 0,
        text,
        len(text),
    )
    if status:
        raise error_of(library, status)
    return text.value.decode()


def _read_all(
    source: Any, first: Any, second: Any, mask: Any, lengths: Any, bias: Any, out: Any, handle: int
) -> tuple[int | None, list[After], list[int | None], list[Geometry | None]]:
    """The device of `first`, what is to be called after the work, and pointers and geometries in this order:
    first, second, mask, lengths, bias, out; None for what is None."""
    name = "x" if second is None else "dy"
    pointer, shape, strides, element, device, after = source.read(first, name, handle)
    afters = [] if after is None else [after]
    pointers: list[int | None] = [pointer, None, None, None, None, None]
    geometries: list[Geometry | None] = [(shape, strides, element), None, None, None, None, None]
    for place, array in enumerate((second, mask, lengths, bias, out), 1):
        if array is None:
            continue
        kind = KINDS.get(type(array)) or kind_of(array, NAMES[place])
        read = kind.read_out if place == 5 else kind.read
        pointers[place], shape, strides, element, its_device, after = read(array, NAMES[place], handle)
        geometries[place] = shape, strides, element
        if its_device != device:
            raise _different_devices(name, device, NAMES[place], its_device)
        if after is not None:
            afters.append(after)
    return device, afters, pointers, geometries


def _mask_and_tensors(
    arguments: Arguments, pointers: list[int | None], out_pointer: int
) -> tuple[SoftmaxMask | None, tuple[int | None, ...]]:
    """The mask of this call (None: it has none), and the C arguments before `rank`."""
    first, second, dense, lengths, bias, _ = pointers
    mask = arguments.mask
    if mask is not None and arguments.mask_has_pointers:
        # A copy: calls of other threads share what arguments_of() remembers.
        mask = SoftmaxMask.from_buffer_copy(mask)
        mask.dense, mask.lengths, mask.bias = dense, lengths, bias
    if arguments.second_strides is None:
        return mask, (
            *(first, arguments.first_strides, arguments.code),
            *(out_pointer, arguments.out_strides, arguments.out_code),
        )
    return mask, (
        *(first, arguments.first_strides, second, arguments.second_strides, arguments.code),
        *(out_pointer, arguments.out_strides, arguments.out_code),
    )


def _number(scale: Any) -> float:
    try:
        return float(scale)
    except (TypeError, ValueError) as error:
        raise TypeError(f"scale is {scale!r}, must be a number") from error


def _different_devices(name: str, device: int | None, other_name: str, other_device: int | None) -> Exception:
    places = ["a host array" if d is None else f"on device {d}" for d in (device, other_device)]
    kind = TypeError if None in (device, other_device) else ValueError
    return kind(f"{name} is {places[0]} and {other_name} is {places[1]}, must be on the same device")
