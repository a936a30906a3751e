# SPDX-License-Identifier: Apache-2.0
"""The shortest way to a call of one or two arrays, for which the time of call() would count: the same steps, without
its lists. What it does not cover goes to call()."""

from __future__ import annotations

import functools
from ctypes import c_double
from typing import Any

from . import _library
from ._array import KINDS, kind_of, stream_for
from ._elementwise_call import call
from ._elementwise_layout import Layout, Request, layout_of
from ._errors import error_of
from ._explain import Listener
from ._promotion import number_bytes

_ZERO = c_double(0)  # for a parameter that there is not; half the time of a float that ctypes has to convert


def call_unary(request: Request, x: Any, out: Any, stream: Any) -> Any:
    """call() of one operand, no parameters."""
    source = KINDS.get(type(x))
    if source is None or stream.__class__ is Listener:
        return call(request, (x,), out, stream)
    target = None if out is None else KINDS.get(type(out)) or kind_of(out, "out")
    handle = stream_for(stream, source, x, target, out)
    name = request.names[0]
    pointer, shape, strides, dtype, device, after = source.read(x, name, handle)
    if target is None:
        arguments, layout = _unary_arguments(request, shape, strides, dtype)
        if arguments is None:
            return call(request, (x,), out, stream)
        out, out_pointer = source.empty(x, layout.out_shape, layout.out_dtype, device, handle)
        out_after = None
    else:
        out_pointer, out_shape, out_strides, out_dtype, out_device, out_after = target.read_out(out, "out", handle)
        arguments, _ = _unary_arguments(request, shape, strides, dtype, out_shape, out_strides, out_dtype)
        if arguments is None or device != out_device:
            return call(request, (x,), out, stream)
    op, x_strides, x_type, c_out_strides, out_type, rank, extents = arguments
    library = _library.loaded.get(device) or _library.for_device(device, name)
    status = library.flowk_unary(
        op, pointer, x_strides, x_type, out_pointer, c_out_strides, out_type, rank, extents, _ZERO, _ZERO, handle
    )
    if status:
        raise error_of(library, status)
    if after is not None:
        after(handle)
    if out_after is not None:
        out_after(handle)
    return source.result(x, out) if target is None else out


def call_binary(request: Request, x: Any, y: Any, out: Any, stream: Any) -> Any:
    """call() of an array and an array or a Python number."""
    source, other = KINDS.get(type(x)), KINDS.get(type(y))
    is_number = type(y) is float or type(y) is int
    if source is None or not (is_number or other) or stream.__class__ is Listener:
        return call(request, (x, y), out, stream)
    target = None if out is None else KINDS.get(type(out)) or kind_of(out, "out")
    handle = stream_for(stream, source, x, target, out)
    x_name, y_name = request.names
    x_pointer, shape, strides, dtype, device, x_after = source.read(x, x_name, handle)
    if is_number:
        y_pointer, y_shape, y_strides, y_dtype, y_device, y_after = None, None, None, type(y), device, None
    else:
        y_pointer, y_shape, y_strides, y_dtype, y_device, y_after = other.read(y, y_name, handle)
    if target is None:
        arguments, layout = _binary_arguments(request, shape, strides, dtype, y_shape, y_strides, y_dtype)
        if arguments is None or device != y_device:
            return call(request, (x, y), out, stream)
        out, out_pointer = source.empty(x, layout.out_shape, layout.out_dtype, device, handle)
        out_after = None
    else:
        out_pointer, out_shape, out_strides, out_dtype, out_device, out_after = target.read_out(out, "out", handle)
        arguments, layout = _binary_arguments(
            request, shape, strides, dtype, y_shape, y_strides, y_dtype, out_shape, out_strides, out_dtype
        )
        if arguments is None or not device == y_device == out_device:
            return call(request, (x, y), out, stream)
    if is_number:
        y_pointer = number_bytes(y, layout.number_types[1])
    op, c_x_strides, x_type, c_y_strides, y_type, c_out_strides, out_type, rank, extents = arguments
    library = _library.loaded.get(device) or _library.for_device(device, x_name)
    status = library.flowk_binary(
        *(op, x_pointer, c_x_strides, x_type, y_pointer, c_y_strides, y_type),
        *(out_pointer, c_out_strides, out_type, rank, extents, handle),
    )
    if status:
        raise error_of(library, status)
    if x_after is not None:
        x_after(handle)
    if y_after is not None:
        y_after(handle)
    if out_after is not None:
        out_after(handle)
    return source.result(x, out) if target is None else out


@functools.lru_cache(maxsize=4096)
def _unary_arguments(
    request: Request,
    shape: Any,
    strides: Any,
    dtype: Any,
    out_shape: Any = None,
    out_strides: Any = None,
    out_dtype: Any = None,
) -> tuple[tuple[Any, ...] | None, Layout]:
    """The C values of a call, None where an operand is converted first; and its layout, which keeps them good."""
    out = None if out_shape is None else (out_shape, out_strides, out_dtype)
    return _arguments(layout_of(request, ((shape, strides, dtype),), out))


@functools.lru_cache(maxsize=4096)
def _binary_arguments(
    request: Request,
    shape: Any,
    strides: Any,
    dtype: Any,
    y_shape: Any,
    y_strides: Any,
    y_dtype: Any,
    out_shape: Any = None,
    out_strides: Any = None,
    out_dtype: Any = None,
) -> tuple[tuple[Any, ...] | None, Layout]:
    """The same for two operands, the second a number of type y_dtype where it has no shape."""
    out = None if out_shape is None else (out_shape, out_strides, out_dtype)
    y = y_dtype if y_shape is None else (y_shape, y_strides, y_dtype)
    return _arguments(layout_of(request, ((shape, strides, dtype), y), out))


def _arguments(layout: Layout) -> tuple[tuple[Any, ...] | None, Layout]:
    if layout.conversions:
        return None, layout
    operands = [part for operand in zip(layout.strides, layout.types, strict=True) for part in operand]
    return (layout.op, *operands, *layout.out_and_extents), layout
