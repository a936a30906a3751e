# SPDX-License-Identifier: Apache-2.0
"""Programs as calls.c takes them: the C functions, their arguments as words, and what makes new arrays."""

from __future__ import annotations

import ctypes
import functools
import struct
import sys
from collections.abc import Sequence
from typing import Any

from .._arrays.adapters.base import AnyAdapter
from .._arrays.dtypes import dtype_like, strides_in_order
from .._arrays.registry import ARRAYS
from .._elementwise.promotion import INTEGERS, integer_bounds, parameter_value
from .._native import driver
from .._native import library as native
from .._native.abi import FUNCTIONS, DType, SoftmaxMask
from .._pipeline import Bound, new_array
from .._program import (
    INPUT,
    MASK,
    MEMBER,
    NUMBER,
    NUMBER_BYTES,
    OP,
    OUTPUT,
    TEMP,
    Arg,
    Buffer,
    Number,
    Step,
    bytes_of,
    op_of,
)

C_FUNCTIONS = tuple(FUNCTIONS)  # by their numbers in c_functions.h
_LAUNCH_FUNCTOR = -1  # of c_call.h, and the kinds of its words
_LITERAL, _POINTER, _STREAM, _NUMBER, _FLOAT, _INTEGER, _FLOAT32_PTR, _FLOAT64_PTR, _MASK = range(9)
# The kind of a number's word, by how it is passed and the type that it is rounded to.
_FLOATS = {
    (NUMBER_BYTES, DType.FLOAT32): _FLOAT32_PTR,
    (NUMBER_BYTES, DType.FLOAT64): _FLOAT64_PTR,
    (MEMBER, DType.FLOAT32): _FLOAT,
    (MEMBER, DType.FLOAT64): _NUMBER,
}
_word = struct.Struct("=qq").pack


class NotCacheable(Exception):
    """A number of the call needs Python to become an argument, or a result is of another kind than the first array."""


def array_names(bound: Bound) -> dict[Arg, str]:
    """The names of the arrays of a Program of one step; a temporary is the workspace."""
    operation, step = bound.request.operation, bound.program.steps[0]
    names = (operation.names, operation.out_names, ("workspace",))
    args = [arg for arg in step.args if arg.__class__ is Arg]
    arrays = [array for arg in args for array in (arg.value.arrays.values() if arg.kind == MASK else (arg,))]
    return {array: names[array.kind][array.value] for array in arrays if array.kind < len(names)}


def step_words(
    bound: Bound, step: Step, arrays: dict[Arg, int], numbers: dict[str, int], keep: list[Any]
) -> tuple[int, int, bytes]:
    """A step as take_step() of plan_cache.c reads it. `arrays` and `numbers` are the indices of what each call fills
    in: addresses of arrays, and numbers by their names. The other numbers are those of this call. `keep` gets what the
    words point to. Raises NotCacheable.
    """
    operation = bound.request.operation
    operand_names = (*operation.names, *operation.parameters)

    def number_word(kind: int, number: Number) -> bytes:
        index = numbers.get(operand_names[number.at])
        if index is None:
            return _literal_number(kind, number, bound.operands, keep)
        if kind == MEMBER and number.code in INTEGERS:
            low, high = integer_bounds(number.code)
            return _word(_INTEGER, index | (high - low).bit_length() << 8 | (low == 0) << 16)
        word = _FLOATS.get((kind, number.code))
        if kind == NUMBER and number.code not in INTEGERS:
            word = _NUMBER
        if word is None:
            raise NotCacheable
        return _word(word, index)

    def word_of(arg: Any, is_double: bool) -> bytes:
        if arg.__class__ is not Arg:
            value = getattr(arg, "value", arg)  # of a ctypes object
            return _word(_LITERAL, _bits(struct.pack("=d", value)) if is_double else int(value or 0))
        kind, value = arg
        if kind == MASK:
            return _word(_MASK, _mask_address(value, arrays, keep))
        if kind == OP:
            return _word(_LITERAL, op_of(value, bound.operands).value)
        return number_word(kind, value) if kind in (NUMBER, NUMBER_BYTES, MEMBER) else _word(_POINTER, arrays[arg])

    function, words = C_FUNCTIONS.index(step.function), b""
    if step.kernels is not None:
        assert bound.device is not None  # of a host array the call has raised an exception
        table = step.kernels.table(bound.device)
        keep.append(table)
        function = _LAUNCH_FUNCTOR
        words = _word(_LITERAL, driver.address_of("cuLaunchKernel")) + _word(_LITERAL, ctypes.addressof(table))
    is_double = [each is ctypes.c_double for each in FUNCTIONS[step.function][1]]
    is_double += [False] * (len(step.args) - len(is_double))  # a launch has more arguments
    words += b"".join(map(word_of, step.args, is_double))
    address = ctypes.cast(native.function_of(bound.library, step.function), ctypes.c_void_p).value or 0
    return function, address, words + _word(_STREAM, 0)


def _literal_number(kind: int, number: Number, operands: Sequence[Any], keep: list[Any]) -> bytes:
    if kind == NUMBER:
        value = parameter_value(operands[number.at], number.code, number.name)
        return _word(_LITERAL, _bits(struct.pack("=d", value)))
    if kind == MEMBER:
        return _word(_LITERAL, _bits(bytes_of(number, operands)))
    keep.append(ctypes.create_string_buffer(bytes_of(number, operands), 16))
    return _word(_LITERAL, ctypes.addressof(keep[-1]))


def _bits(value: bytes) -> int:
    return int.from_bytes(value.ljust(8, b"\0"), sys.byteorder, signed=True)


def _mask_address(mask: Any, arrays: dict[Arg, int], keep: list[Any]) -> int:
    """The address of a copy of the struct that has indices of arrays plus 1 instead of addresses."""
    copy = SoftmaxMask.from_buffer_copy(mask.struct)
    for field, array in mask.arrays.items():
        setattr(copy, field, arrays[array] + 1)
    keep.append(copy)
    return ctypes.addressof(copy)


def is_number_of_call(role: str, argument: Any) -> bool:
    """Whether the argument is a number whose value is not in the key of a plan: only its type is."""
    return (role in "avn" and type(argument) is float) or (role == "n" and type(argument) is int)


# ---- the whole plan -------------------------------------------------------------------------------------------------


def plan_of(bound: Bound, names: Sequence[str], roles: str, arguments: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """The Program of a call with these arguments as add_plan() of plan_cache.c takes it; None if such calls run in
    Python every time. `roles` has one letter for each of `names`, for each `out` and for the stream.
    """
    operation, program = bound.request.operation, bound.program
    if not program.steps or bound.unwraps:
        return None
    given = dict(zip(names, arguments))
    if any(given.get(name, one) is not one for name, one in zip(operation.names, bound.request.inputs)):
        return None  # an array that was made of an argument, such as lengths of a list
    first = next((one for one in arguments if type(one) in ARRAYS), None)
    if (type(first), getattr(first, "dtype", None)) != (type(bound.x), bound.x.dtype):
        return None  # calls.c would make results of another kind: like the call's first array, not the operation's
    outs = operation.out_names
    positions: dict[str, int] = {}
    numbers: dict[str, int] = {}
    for argument, name, role in zip(arguments, (*names, *outs), roles):
        if is_number_of_call(role, argument):
            numbers[name] = len(numbers)
        if role in "anw":
            positions[name] = len(positions)
    arrays = {Arg(INPUT, index): positions[name] for index, name in enumerate(operation.names) if name in positions}
    arrays |= {Arg(OUTPUT, index): positions[name] for index, name in enumerate(outs) if name in positions}
    arrays |= {Arg(TEMP, index): len(positions) + index for index in range(len(program.temps))}
    operand_names = (*operation.names, *operation.parameters)
    slots = [slot for step in program.steps for slot in step.slots]
    if set(numbers) - {operand_names[number.at] for _, kind, number in slots if kind in (NUMBER, NUMBER_BYTES, MEMBER)}:
        return None
    # The key has the addresses of options and of the arrays' dtypes.
    keep: list[Any] = [program, *(value.dtype if type(value) in ARRAYS else value for value in arguments)]
    try:
        steps = tuple(step_words(bound, step, arrays, numbers, keep) for step in program.steps)
        made = _new_arrays(bound, arrays, keep)
    except NotCacheable:
        return None
    default = None if program.context is None else bound.source.default_dtype()
    return steps, made, operation.num_results, default, operation.operator, keep


def _new_arrays(bound: Bound, arrays: dict[Arg, int], keep: list[Any]) -> tuple[tuple[Any, ...], ...]:
    """The arrays that a call makes: (index of the address, index of the result or -1, what makes it)."""
    source, x = bound.source, bound.x
    made = []
    for index, buffer in enumerate(bound.program.results):
        if buffer is not None and bound.outs[index] is None:
            like = x if buffer.like is None else bound.request.inputs[buffer.like]
            if type(ARRAYS[type(like)]) is not type(source):
                raise NotCacheable
            made.append((arrays[Arg(OUTPUT, index)], index, *_maker(source, x, buffer, keep)))
    for index, num_bytes in enumerate(bound.program.temps):
        buffer = Buffer(((num_bytes + 3) // 4,), dtype_like(DType.FLOAT32, x.dtype))
        made.append((arrays[Arg(TEMP, index)], -1, *_maker(source, x, buffer, keep)))
    return tuple(made)


def _maker(adapter: AnyAdapter, x: Any, buffer: Buffer, keep: list[Any]) -> tuple[Any, ...]:
    """What makes a new array: a function, its arguments (None: the first array) and options; or for the exchange API's
    allocator the address of its rank, shape and strides."""
    shape, dtype, order, _ = buffer
    strides = strides_in_order(shape, order)
    maker = adapter.maker(x, shape, strides, dtype)
    if maker is not None:
        return (*maker, 0)
    if order is None and dtype == x.dtype and hasattr(type(x), "__dlpack_c_exchange_api__"):
        keep.append((ctypes.c_int64 * (1 + 2 * len(shape)))(len(shape), *shape, *strides))
        return None, None, None, ctypes.addressof(keep[-1])
    return functools.partial(_new, adapter, buffer), None, None, 0


def _new(adapter: AnyAdapter, buffer: Buffer, x: Any) -> Any:
    stream = adapter.stream_of(x)
    *_, device, _ = adapter.read(x, "x", stream)
    return new_array(adapter, x, buffer, device, stream)[0]
