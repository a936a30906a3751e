# SPDX-License-Identifier: Apache-2.0
"""Programs as calls.c takes them: the C function, its arguments as words, and what makes a new result."""

from __future__ import annotations

import ctypes
import functools
import struct
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

from .._arrays import kinds
from .._arrays.dtypes import contiguous_strides
from .._elementwise.promotion import INTEGERS, parameter_value
from .._native import library as native
from .._native.abi import FUNCTIONS, DType, SoftmaxMask
from .._pipeline import Bound, new_array
from .._program import MASK, NUMBER, NUMBER_BYTES, OP, Arg, bytes_of, op_of

# By their numbers in c_call.c.
C_FUNCTIONS = (
    *("flowk_permute", "flowk_permute_convert", "flowk_unary", "flowk_binary", "flowk_ternary", "flowk_prelu"),
    *("flowk_prelu_backward", "flowk_masked_softmax", "flowk_masked_softmax_backward"),
)
# The kinds of words in c_call.h.
_LITERAL, _POINTER, _STREAM, _NUMBER, _FLOAT32, _FLOAT64, _MASK = range(7)
_FLOATS = {DType.FLOAT32: _FLOAT32, DType.FLOAT64: _FLOAT64}
_word = struct.Struct("=qq").pack


class Planned(NamedTuple):
    """A call as planned_call() of calls.c reads it."""

    function: int
    address: int
    words: bytes
    kept: list[Any]  # what the words point to


class NotPlain(Exception):
    """A number of the call is passed as Python makes it from its value."""


def array_names(bound: Bound) -> dict[Arg, str]:
    """The names of the arrays of a Program of one step; a temporary is the workspace."""
    operation, step = bound.request.operation, bound.program.steps[0]
    names = (operation.names, operation.out_names, ("workspace",))
    args = [arg for arg in step.args if arg.__class__ is Arg]
    arrays = [array for arg in args for array in (arg.value[1:] if arg.kind == MASK else (arg,))]
    return {array: names[array.kind][array.value] for array in arrays if array is not None and array.kind < len(names)}


def planned(bound: Bound, arrays: dict[str, int], numbers: dict[str, int]) -> Planned:
    """A Program of one step with addresses and numbers to be filled in: their indices by the names of `arrays` and
    `numbers`. The other numbers are those of the call.

    Raises NotPlain where one of `numbers` is neither an argument nor an operand of float32 or float64.
    """
    operation, step = bound.request.operation, bound.program.steps[0]
    kept: list[Any] = [bound.program]
    operand_names = (*operation.names, *operation.parameters)
    array_of = {arg: arrays[name] for arg, name in array_names(bound).items()}
    used = set()

    def word_of(arg: Any, is_double: bool) -> bytes:
        if arg.__class__ is not Arg:
            value = getattr(arg, "value", arg)  # of a ctypes object
            return _word(_LITERAL, _double_bits(value)) if is_double else _word(_LITERAL, int(value or 0))
        kind, value = arg
        if kind == MASK:
            return _word(_MASK, _mask_address(value, array_of, kept))
        if kind == OP:
            return _word(_LITERAL, op_of(value, bound.operands).value)
        if kind not in (NUMBER, NUMBER_BYTES):
            return _word(_POINTER, array_of[arg])
        name = operand_names[value.at]
        if name in numbers:
            used.add(name)
            if value.code in INTEGERS if kind == NUMBER else value.code not in _FLOATS:
                raise NotPlain
            return _word(_NUMBER if kind == NUMBER else _FLOATS[value.code], numbers[name])
        if kind == NUMBER:
            number = parameter_value(bound.operands[value.at], value.code, value.name)
            return _word(_LITERAL, _double_bits(number))
        kept.append(ctypes.create_string_buffer(bytes_of(value, bound.operands), 16))
        return _word(_LITERAL, ctypes.addressof(kept[-1]))

    argument_types = FUNCTIONS[step.function][1]
    words = [word_of(arg, each is ctypes.c_double) for arg, each in zip(step.args, argument_types)]
    if used != set(numbers):
        raise NotPlain
    words.append(_word(_STREAM, 0))
    address = ctypes.cast(native.function_of(bound.library, step.function), ctypes.c_void_p).value or 0
    return Planned(C_FUNCTIONS.index(step.function), address, b"".join(words), kept)


def _double_bits(value: float) -> int:
    return int(struct.unpack("=q", struct.pack("=d", value))[0])


def _mask_address(mask: Any, array_of: dict[Arg, int], kept: list[Any]) -> int:
    """A copy of the struct, which has indices of arrays plus 1 in place of their addresses."""
    own = SoftmaxMask.from_buffer_copy(mask.struct)
    for field in ("dense", "lengths", "bias"):
        array = getattr(mask, field)
        setattr(own, field, None if array is None else array_of[array] + 1)
    kept.append(own)
    return ctypes.addressof(own)


# ---- what calls.c learns --------------------------------------------------------------------------------------------


def learned(bound: Bound, names: Sequence[str], roles: str, arguments: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """The Program of a call with these arguments as plan_of() of calls.c takes it; None where the call is Python's."""
    program = bound.program
    if len(program.steps) != 1 or program.temps or program.context is not None or len(bound.outs) != 1:
        return None
    arrays: dict[str, int] = {}
    numbers: dict[str, int] = {}
    for argument, name, role in zip(arguments, (*names, "out"), roles):
        if role in "av" and type(argument) is float:
            numbers[name] = len(numbers)
        if role in "aw":
            arrays[name] = len(arrays)
    try:
        plan = planned(bound, arrays, numbers)
    except NotPlain:
        return None
    # Options, and the dtypes of arrays, are parts of the key by address.
    plan.kept.extend(one.dtype if type(one) in kinds.ARRAYS else one for one in arguments)
    made: tuple[Any, ...] = (None, None, None, 0)
    buffer = program.results[0]
    if bound.outs[0] is None and buffer is not None:
        made = _maker(bound.source, bound.x, buffer.shape, buffer.dtype, buffer.order, plan.kept)
    return (*plan, *made)


def _maker(
    kind: Any, x: Any, shape: tuple[int, ...], dtype: Any, order: tuple[int, ...] | None, kept: list[Any]
) -> tuple[Any, ...]:
    """What makes a new result: a function, its arguments (None: the first array) and options; or the address of its
    rank, shape and strides, for the exchange API's allocator.

    Not that allocator for torch: the storage of its tensors cannot be resized, and record_stream() does nothing there.
    """
    in_order = contiguous_strides(shape if order is None else tuple(shape[d] for d in order), 1)
    strides = in_order if order is None else tuple(in_order[order.index(d)] for d in range(len(order)))
    if isinstance(kind, kinds.TorchKind):
        torch = sys.modules["torch"]
        if (tuple(x.shape), x.stride(), x.dtype) == (shape, strides, dtype):
            return torch.empty_like, None, None, 0
        return torch.empty_strided, (shape, strides), {"dtype": dtype, "device": x.device}, 0
    if order is None and dtype == x.dtype and hasattr(type(x), "__dlpack_c_exchange_api__"):
        kept.append((ctypes.c_int64 * (1 + 2 * len(shape)))(len(shape), *shape, *strides))
        return None, None, None, ctypes.addressof(kept[-1])
    return functools.partial(_new, kind, shape, dtype, order), None, None, 0


def _new(kind: Any, shape: tuple[int, ...], dtype: Any, order: tuple[int, ...] | None, x: Any) -> Any:
    *_, device, _ = kind.read(x, "x", kind.stream_of(x))
    return new_array(kind, x, shape, dtype, order, device, kind.stream_of(x))[0]
