# SPDX-License-Identifier: Apache-2.0
"""One elementwise call: operands in, one call of the library, exceptions out.

Operands whose types the library does not mix are converted first, each by a call of its own into an array of the type
that they need.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from . import _driver, _library
from ._abi import DType, UnaryOp
from ._array import KINDS, PROTOCOL, After, kind_of, stream_for
from ._dtypes import dtype_like, dtype_name, number_type
from ._elementwise_layout import Layout, Request, Signature, layout_of
from ._errors import different_devices, error_of
from ._explain import Listener, plan_text
from ._memory import contiguous_strides
from ._promotion import INTEGERS, number_bytes
from ._stream import hold_until_done

# Where an array that is not made yet would be, for its plan: past all memory, aligned as a new one, and inside the
# addresses that the library takes.
_ELSEWHERE = 1 << 58
# The library takes parameters as float64, which holds every integer to this one.
LARGEST_PARAMETER = 2**53


def call(request: Request, operands: tuple[Any, ...], out: Any, stream: Any, parameters: tuple[float, ...] = ()) -> Any:
    """`out[...] = op(operands)`, out a new array where it is None; with a Listener as `stream` the text of the plan.

    `parameters` are the numbers a and b of the operation's formula.
    """
    readings = read_operands(request.names, operands, out, stream)
    layout = layout_of(request, readings.signatures, readings.out_signature, _types_of(parameters))
    device, source, handle, x = readings.device, readings.source, readings.handle, operands[readings.first]
    library = _library.loaded.get(device) or _library.for_device(device, request.names[readings.first])
    if stream.__class__ is Listener:
        return _explain(library, request, operands, readings, parameters)
    if layout.conversions:
        return _call_converted(request, operands, out, parameters, readings, layout)
    out_pointer = readings.out_pointer
    if out is None:
        written, out_pointer = source.empty(x, layout.out_shape, layout.out_dtype, device, handle)
    function, arguments = _arguments(layout, operands, readings, out_pointer, parameters)
    status = getattr(library, function)(*arguments, handle)
    if status:
        raise error_of(library, status)
    for after in readings.afters:
        after(handle)
    return source.result(x, written) if out is None else out


def _arguments(
    layout: Layout, operands: tuple[Any, ...], readings: Readings, out_pointer: int, parameters: tuple[float, ...]
) -> tuple[str, tuple[Any, ...]]:
    """The C function, and its arguments without the stream."""
    pointers: list[Any] = readings.pointers
    if None in pointers:
        pointers = [
            _number_bytes(operand, code) if pointer is None else pointer
            for operand, code, pointer in zip(operands, layout.number_types, pointers, strict=True)
        ]
    a = _checked(parameters[0], layout.out_type) if parameters else 0.0
    b = _checked(parameters[1], layout.out_type) if len(parameters) > 1 else 0.0
    op, strides, types, out = layout.op, layout.strides, layout.types, (out_pointer, *layout.out_and_extents)
    if len(pointers) == 1:
        return "flowk_unary", (op, pointers[0], strides[0], types[0], *out, a, b)
    if len(pointers) == 2:
        return "flowk_binary", (op, pointers[0], strides[0], types[0], pointers[1], strides[1], types[1], *out)
    x, y, z = pointers
    return (
        "flowk_ternary",
        (op, x, strides[0], types[0], y, strides[1], types[1], z, strides[2], types[2], *out, a),
    )


class Readings(NamedTuple):
    """All that the operands and out say of themselves; the pointer of a number is None."""

    source: Any  # the kind of the first array, and of the result
    first: int  # which operand that is
    handle: int  # of the stream
    device: int | None
    pointers: list[int | None]
    signatures: tuple[Signature, ...]
    out_pointer: int
    out_signature: Signature | None
    afters: list[After]


def read_operands(names: tuple[str, ...], operands: tuple[Any, ...], out: Any, stream: Any) -> Readings:
    """What operands and out say of themselves; TypeError or ValueError where one is no array, or on another device."""
    for first, x in enumerate(operands):
        source = KINDS.get(type(x)) or (None if _is_number(x) else kind_of(x, names[first]))
        if source is not None:
            break
    else:
        if len(names) == 1:
            raise TypeError(f"{names[0]} is a {type(operands[0]).__name__}, must be an array")
        raise TypeError(f"{', '.join(names[:-1])} and {names[-1]} are numbers, one at least must be an array")
    target = None if out is None else KINDS.get(type(out)) or kind_of(out, "out")
    handle = stream_for(None if stream.__class__ is Listener else stream, source, x, target, out)
    pointers: list[int | None] = []
    signatures: list[Signature] = []
    afters: list[After] = []
    device = None
    for index, operand in enumerate(operands):
        kind = KINDS.get(type(operand))
        if kind is None and _is_number(operand):
            pointers.append(None)
            signatures.append(_number_signature(operand, names[index]))
            continue
        kind = kind or kind_of(operand, names[index])
        pointer, shape, strides, dtype, place, after = kind.read(operand, names[index], handle)
        if index == first:
            device = place
        elif place != device:
            raise different_devices(names[first], device, names[index], place)
        pointers.append(pointer)
        signatures.append((shape, strides, dtype))
        if after is not None:
            afters.append(after)
    out_pointer, out_signature = _ELSEWHERE, None
    if target is not None:
        out_pointer, shape, strides, dtype, place, after = target.read_out(out, "out", handle)
        if place != device:
            raise different_devices(names[first], device, "out", place)
        out_signature = (shape, strides, dtype)
        if after is not None:
            afters.append(after)
    return Readings(source, first, handle, device, pointers, tuple(signatures), out_pointer, out_signature, afters)


# ---- numbers --------------------------------------------------------------------------------------------------------


def _is_number(operand: Any) -> bool:
    return isinstance(operand, (bool, int, float, np.generic))


def _number_signature(number: Any, name: str) -> type | DType:
    """A NumPy scalar has its dtype; a Python number is weak."""
    if isinstance(number, np.generic):
        return number_type(number.dtype, name)
    return bool if isinstance(number, bool) else int if isinstance(number, int) else float


def _number_bytes(number: Any, code: DType) -> bytes:
    """A number, rounded to type `code`, as number_bytes() writes it."""
    if isinstance(number, np.generic):
        number = number.item() if number.dtype.kind in "biu" else float(number)
    return number_bytes(number, code)


def _types_of(parameters: tuple[Any, ...]) -> tuple[type, ...]:
    return tuple(map(_number_type, parameters)) if parameters else ()


def _number_type(parameter: Any) -> type:
    if not isinstance(parameter, (int, float)):
        raise TypeError(f"a parameter is a {type(parameter).__name__}, must be a number")
    return float if isinstance(parameter, float) else int


def _checked(parameter: float, code: DType) -> float:
    """A parameter of a result of type `code`; OverflowError, as in NumPy 2, where an integer type does not hold it."""
    if code in INTEGERS:
        number_bytes(parameter, code)
        if abs(parameter) > LARGEST_PARAMETER:
            raise OverflowError(f"Python integer {parameter} is past 2**53, the largest parameter")
    return parameter


# ---- operands that are converted first ------------------------------------------------------------------------------


@functools.cache
def conversion(name: str, code: DType) -> Request:
    """To convert the operand that its function calls `name`."""
    return Request(UnaryOp.COPY, (name,), result=code)


def _call_converted(
    request: Request,
    operands: tuple[Any, ...],
    out: Any,
    parameters: tuple[float, ...],
    readings: Readings,
    layout: Layout,
) -> Any:
    converted, target = list(operands), out
    for index, code in layout.conversions:
        array = call(conversion(request.names[index], code), operands[index : index + 1], None, readings.handle)
        converted[index] = array
        # The result may take its place, where it has its shape, type and kind (JAX's arrays may not be written).
        fits = code == layout.out_type and tuple(readings.signatures[index][0]) == layout.out_shape
        is_ours = index == readings.first and readings.source is not PROTOCOL
        if out is None and fits and is_ours and layout.result == "SAME":
            target = array
    result = call(request, tuple(converted), target, readings.handle, parameters)
    if readings.device is not None:
        with _driver.current(readings.device):
            hold_until_done(readings.handle, converted)
    return result


def _explain(
    library: Any, request: Request, operands: tuple[Any, ...], readings: Readings, parameters: tuple[float, ...]
) -> str:
    types = _types_of(parameters)
    layout = layout_of(request, readings.signatures, readings.out_signature, types)
    texts, pointers, signatures = [], readings.pointers, list(readings.signatures)
    for index, code in layout.conversions:
        name = request.names[index]
        shape, _, dtype = signatures[index]
        texts.append(f"{name} is converted to {dtype_name(code)} first:")
        texts.append(call(conversion(name, code), operands[index : index + 1], None, Listener()))
        strides = contiguous_strides(shape, dtype_like(code, dtype).itemsize if isinstance(dtype, np.dtype) else 1)
        signatures[index] = (shape, strides, dtype_like(code, dtype))
        pointers[index] = _ELSEWHERE + (index + 1 << 55)
    readings = readings._replace(signatures=tuple(signatures))
    layout = layout_of(request, readings.signatures, readings.out_signature, types)
    function, arguments = _arguments(layout, operands, readings, readings.out_pointer, parameters)
    return "\n".join([*texts, plan_text(library, function + "_explain", arguments)])
