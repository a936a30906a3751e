# SPDX-License-Identifier: Apache-2.0
"""The one path of every call: read the arrays, choose the stream, plan, allocate the output, call C, return the output.

An operator is an `Operation`: the names of its array parameters and a function that turns what the arrays say of
themselves into a `Plan`, the arguments of one C function. Plans are cached per operation, because making one takes ten
times as long as the call itself.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from ._arrays.kinds import ANYWHERE, ARRAYS, OPERANDS, After, Signature, find_array_kind, find_operand_kind
from ._arrays.stream import stream_handle
from ._native import library as native
from ._native.errors import different_devices, error_of

# The address of an output that is planned for but not allocated: past all memory, aligned as a new array, and inside
# the range of addresses that the library accepts.
UNALLOCATED = 1 << 58
_TEXT_BYTES = 4096
_UNKNOWN = object()  # the device, before the first array is read


class Listener:
    """Passed as `stream`, makes a function return the plan of its call as text; nothing is launched or allocated."""


class Plan(NamedTuple):
    """What the arrays' shapes, strides and dtypes determine about a call.

    function   name of the C function
    arguments  (pointers of the inputs, pointer of the output, values) -> the C arguments, without the stream
    out_shape  shape of a new output
    out_dtype  dtype of a new output
    order      dimensions of a new output from the outermost in memory to the innermost; None is C order
    steps      None, or what replaces the C call: (operation, inputs, out, stream, options, values, readings) -> result
    """

    function: str
    arguments: Callable[[list[Any], int, tuple[Any, ...]], tuple[Any, ...]]
    out_shape: tuple[int, ...]
    out_dtype: Any
    order: tuple[int, ...] | None = None
    steps: Callable[..., Any] | None = None


class Operation:
    """`plan(signatures, out_signature, options)` makes and caches the Plan of a call on parameters called `names`."""

    __slots__ = ("names", "plan")

    def __init__(self, names: tuple[str, ...], plan: Callable[..., Plan], num_plans: int = 4096) -> None:
        self.names = names
        self.plan = functools.lru_cache(maxsize=num_plans)(plan)  # one entry is about 2 KB


class Readings(NamedTuple):
    """What a call's arrays say of themselves. In the lists the entry of a number is the number and its type."""

    source: Any  # the kind of the first array, and of the result
    x: Any  # the first array
    stream: int
    device: int | None
    pointers: list[Any]
    signatures: tuple[Signature, ...]
    out_pointer: int
    out_signature: Signature | None
    afters: list[After]


def inspect(names: tuple[str, ...], inputs: tuple[Any, ...], out: Any, stream: Any, out_name: str = "out") -> Readings:
    """Reads every array of a call. TypeError or ValueError where one is no array, or lies on another device."""
    x = inputs[0]
    source = ARRAYS.get(type(x))
    if source is None:
        x, source = _first_array(names, inputs)
    target = None if out is None else ARRAYS.get(type(out)) or find_array_kind(out, out_name)
    if stream is not None and stream.__class__ is not Listener:
        handle = stream if stream.__class__ is int else stream_handle(stream)
    elif target is None or source.follows_current_stream:
        handle = source.stream_of(x)
    else:
        handle = target.stream_of(out)
    pointers: list[Any] = []
    signatures: list[Signature] = []
    afters: list[After] = []
    device: Any = _UNKNOWN
    for operand, name in zip(inputs, names):
        kind = OPERANDS.get(type(operand)) or find_operand_kind(operand, name)
        pointer, signature, place, after = kind.read(operand, name, handle)
        if place != device and place is not ANYWHERE:
            if device is not _UNKNOWN:
                first = next(n for n, one in zip(names, inputs) if one is x)
                raise different_devices(first, device, name, place)
            device = place
        pointers.append(pointer)
        signatures.append(signature)
        if after is not None:
            afters.append(after)
    if target is None:
        return tuple.__new__(
            Readings, (source, x, handle, device, pointers, tuple(signatures), UNALLOCATED, None, afters)
        )
    out_pointer, out_signature, place, after = target.read_out(out, out_name, handle)
    if place != device:
        first = next(n for n, one in zip(names, inputs) if one is x)
        raise different_devices(first, device, out_name, place)
    if after is not None:
        afters.append(after)
    return tuple.__new__(
        Readings, (source, x, handle, device, pointers, tuple(signatures), out_pointer, out_signature, afters)
    )


def call(
    operation: Operation,
    inputs: tuple[Any, ...],
    out: Any,
    stream: Any,
    options: Any = None,
    values: tuple[Any, ...] = (),
) -> Any:
    """Runs `operation` on `inputs`, an array each, a number or None where its plan takes that.

    `options` are what the plan depends on besides the arrays; `values` are passed to the C function as they are.
    Returns `out`, or where that is None a new array of the first array's kind; with a Listener as `stream` the plan as
    text.
    """
    readings = inspect(operation.names, inputs, out, stream)
    source, x, handle, device, pointers, signatures, out_pointer, out_signature, afters = readings
    function, arguments, out_shape, out_dtype, order, steps = operation.plan(signatures, out_signature, options)
    library = native.loaded.get(device) or native.for_device(device, _name_of(operation.names, inputs, x))
    if steps is not None:
        return steps(operation, inputs, out, stream, options, values, readings)
    if stream.__class__ is Listener:
        return plan_text(library, function, arguments(pointers, out_pointer, values))
    written = out
    if out is None:
        written, out_pointer = new_array(source, x, out_shape, out_dtype, order, device, handle)
    status = getattr(library, function)(*arguments(pointers, out_pointer, values), handle)
    if status:
        raise error_of(library, status)
    for after in afters:
        after(handle)
    return source.result(x, written) if out is None else out


def new_array(
    source: Any, x: Any, shape: tuple[int, ...], dtype: Any, order: tuple[int, ...] | None, device: Any, stream: int
) -> tuple[Any, int]:
    """A new array of x's kind `source`, and its address; `order` as in Plan."""
    if order is None:
        return source.empty(x, shape, dtype, device, stream)
    array, pointer = source.empty(x, tuple(shape[d] for d in order), dtype, device, stream)
    return source.transposed(array, tuple(order.index(d) for d in range(len(order)))), pointer


def plan_text(library: Any, function: str, arguments: tuple[Any, ...]) -> str:
    """The text that `function`_explain of the library writes for `arguments`."""
    text = ctypes.create_string_buffer(_TEXT_BYTES)
    status = getattr(library, function + "_explain")(*arguments, text, len(text))
    if status:
        raise error_of(library, status)
    return text.value.decode()


def require_arrays(names: tuple[str, ...], signatures: tuple[Signature, ...]) -> None:
    """TypeError where an input is a number or None. For plans of operations that take arrays only."""
    for name, signature in zip(names, signatures):
        if not isinstance(signature, tuple):
            raise no_array(name, signature)


def no_array(name: str, signature: Signature, wanted: str = "array") -> TypeError:
    """The exception for a number or None in parameter `name`."""
    kind = type(None) if signature is None else signature if isinstance(signature, type) else np.generic
    return TypeError(f"{name} is a {kind.__name__}, must be an {wanted}")


def _name_of(names: tuple[str, ...], inputs: tuple[Any, ...], x: Any) -> str:
    return next(name for name, operand in zip(names, inputs) if operand is x)


def _first_array(names: tuple[str, ...], inputs: tuple[Any, ...]) -> tuple[Any, Any]:
    """The first input that is an array, and its kind."""
    for name, operand in zip(names, inputs):
        kind = OPERANDS.get(type(operand)) or find_operand_kind(operand, name)
        if kind.is_array:
            return operand, kind
    if len(names) == 1:
        raise TypeError(f"{names[0]} is a {type(inputs[0]).__name__}, must be an array")
    raise TypeError(f"{', '.join(names[:-1])} and {names[-1]} are numbers, one at least must be an array")
