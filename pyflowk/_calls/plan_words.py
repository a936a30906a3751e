# SPDX-License-Identifier: Apache-2.0
"""Programs as calls.c takes them: the C functions, their arguments as words, and what makes new arrays."""

from __future__ import annotations

import ctypes
import functools
import struct
from collections.abc import Sequence
from typing import Any

from .._arrays.adapters.base import AnyAdapter
from .._arrays.dtypes import contiguous_strides, dtype_like
from .._arrays.registry import ARRAYS
from .._elementwise.promotion import INTEGERS, parameter_value
from .._native import library as native
from .._native.abi import FUNCTIONS, DType, SoftmaxMask
from .._pipeline import Bound, new_array
from .._program import INPUT, MASK, NUMBER, NUMBER_BYTES, OP, OUTPUT, TEMP, Arg, Buffer, Step, bytes_of, op_of

C_FUNCTIONS = tuple(FUNCTIONS)  # by their numbers in c_functions.h
# The kinds of words in c_call.h.
_LITERAL, _POINTER, _STREAM, _NUMBER, _FLOAT32, _FLOAT64, _MASK = range(7)
_FLOATS = {DType.FLOAT32: _FLOAT32, DType.FLOAT64: _FLOAT64}
_word = struct.Struct("=qq").pack


class NotPlain(Exception):
    """A number of the call is passed as Python makes it from its value, or an array is of another kind."""


def array_names(bound: Bound) -> dict[Arg, str]:
    """The names of the arrays of a Program of one step; a temporary is the workspace."""
    operation, step = bound.request.operation, bound.program.steps[0]
    names = (operation.names, operation.out_names, ("workspace",))
    args = [arg for arg in step.args if arg.__class__ is Arg]
    arrays = [array for arg in args for array in (arg.value.arrays.values() if arg.kind == MASK else (arg,))]
    return {array: names[array.kind][array.value] for array in arrays if array.kind < len(names)}


def step_words(
    bound: Bound, step: Step, arrays: dict[Arg, int], numbers: dict[str, int], kept: list[Any]
) -> tuple[int, int, bytes]:
    """A step as take_step() of calls.c reads it, with addresses and numbers to be filled in: their indices by the Args
    of `arrays` and the names of `numbers`. The other numbers are those of the call. `kept` gets what the words point
    to. Raises NotPlain where one of `numbers` is neither an argument nor an operand of float32 or float64.
    """
    operation = bound.request.operation
    operand_names = (*operation.names, *operation.parameters)

    def word_of(arg: Any, is_double: bool) -> bytes:
        if arg.__class__ is not Arg:
            value = getattr(arg, "value", arg)  # of a ctypes object
            return _word(_LITERAL, _double_bits(value)) if is_double else _word(_LITERAL, int(value or 0))
        kind, value = arg
        if kind == MASK:
            return _word(_MASK, _mask_address(value, arrays, kept))
        if kind == OP:
            return _word(_LITERAL, op_of(value, bound.operands).value)
        if kind not in (NUMBER, NUMBER_BYTES):
            return _word(_POINTER, arrays[arg])
        index = numbers.get(operand_names[value.at])
        if index is not None:
            if value.code in INTEGERS if kind == NUMBER else value.code not in _FLOATS:
                raise NotPlain
            return _word(_NUMBER if kind == NUMBER else _FLOATS[value.code], index)
        if kind == NUMBER:
            number = parameter_value(bound.operands[value.at], value.code, value.name)
            return _word(_LITERAL, _double_bits(number))
        kept.append(ctypes.create_string_buffer(bytes_of(value, bound.operands), 16))
        return _word(_LITERAL, ctypes.addressof(kept[-1]))

    argument_types = FUNCTIONS[step.function][1]
    words = [word_of(arg, each is ctypes.c_double) for arg, each in zip(step.args, argument_types)]
    address = ctypes.cast(native.function_of(bound.library, step.function), ctypes.c_void_p).value or 0
    return C_FUNCTIONS.index(step.function), address, b"".join((*words, _word(_STREAM, 0)))


def _double_bits(value: float) -> int:
    return int(struct.unpack("=q", struct.pack("=d", value))[0])


def _mask_address(mask: Any, arrays: dict[Arg, int], kept: list[Any]) -> int:
    """A copy of the struct, which has indices of arrays plus 1 in place of their addresses."""
    own = SoftmaxMask.from_buffer_copy(mask.struct)
    for field, array in mask.arrays.items():
        setattr(own, field, arrays[array] + 1)
    kept.append(own)
    return ctypes.addressof(own)


# ---- what calls.c remembers -----------------------------------------------------------------------------------------


def plan_of(bound: Bound, names: Sequence[str], roles: str, arguments: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """The Program of a call with these arguments as fill_plan() of calls.c takes it; None where the call is Python's.

    `roles` are those of `names`, of what the caller gives to be written and of the stream.
    """
    operation, program = bound.request.operation, bound.program
    if not program.steps or bound.unwraps:
        return None
    outs = operation.out_names
    positions: dict[str, int] = {}
    numbers: dict[str, int] = {}
    for argument, name, role in zip(arguments, (*names, *outs), roles):
        if role in "av" and type(argument) is float:
            numbers[name] = len(numbers)
        if role in "aw":
            positions[name] = len(positions)
    arrays = {Arg(INPUT, index): positions[name] for index, name in enumerate(operation.names) if name in positions}
    arrays |= {Arg(OUTPUT, index): positions[name] for index, name in enumerate(outs)}
    arrays |= {Arg(TEMP, index): len(positions) + index for index in range(len(program.temps))}
    operand_names = (*operation.names, *operation.parameters)
    slots = [slot for step in program.steps for slot in step.slots]
    if set(numbers) - {operand_names[number.at] for _, kind, number in slots if kind in (NUMBER, NUMBER_BYTES)}:
        return None
    # Options, and the dtypes of arrays, are parts of the key by address.
    kept: list[Any] = [program, *(one.dtype if type(one) in ARRAYS else one for one in arguments)]
    try:
        steps = tuple(step_words(bound, step, arrays, numbers, kept) for step in program.steps)
        made = _new_arrays(bound, arrays, kept)
    except NotPlain:
        return None
    default = None if program.context is None else bound.source.default_dtype()
    return steps, made, operation.num_results, default, kept


def _new_arrays(bound: Bound, arrays: dict[Arg, int], kept: list[Any]) -> tuple[tuple[Any, ...], ...]:
    """The arrays that a call makes: (index of the address, index of the result or -1, what makes it)."""
    source, x = bound.source, bound.x
    made = []
    for index, buffer in enumerate(bound.program.results):
        if buffer is not None and bound.outs[index] is None:
            like = x if buffer.like is None else bound.request.inputs[buffer.like]
            if type(like) is not type(x):
                raise NotPlain
            made.append((arrays[Arg(OUTPUT, index)], index, *_maker(source, x, buffer, kept)))
    for index, num_bytes in enumerate(bound.program.temps):
        buffer = Buffer(((num_bytes + 3) // 4,), dtype_like(DType.FLOAT32, x.dtype))
        made.append((arrays[Arg(TEMP, index)], -1, *_maker(source, x, buffer, kept)))
    return tuple(made)


def _maker(adapter: AnyAdapter, x: Any, buffer: Buffer, kept: list[Any]) -> tuple[Any, ...]:
    """What makes a new array: a function, its arguments (None: the first array) and options; or the address of its
    rank, shape and strides, for the exchange API's allocator."""
    shape, dtype, order, _ = buffer
    in_order = contiguous_strides(shape if order is None else tuple(shape[d] for d in order), 1)
    strides = in_order if order is None else tuple(in_order[order.index(d)] for d in range(len(order)))
    maker = adapter.maker(x, shape, strides, dtype)
    if maker is not None:
        return (*maker, 0)
    if order is None and dtype == x.dtype and hasattr(type(x), "__dlpack_c_exchange_api__"):
        kept.append((ctypes.c_int64 * (1 + 2 * len(shape)))(len(shape), *shape, *strides))
        return None, None, None, ctypes.addressof(kept[-1])
    return functools.partial(_new, adapter, buffer), None, None, 0


def _new(adapter: AnyAdapter, buffer: Buffer, x: Any) -> Any:
    stream = adapter.stream_of(x)
    *_, device, _ = adapter.read(x, "x", stream)
    return new_array(adapter, x, buffer, device, stream)[0]
