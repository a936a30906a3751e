# SPDX-License-Identifier: Apache-2.0
"""The plan of a call as calls.c takes it: the C function, its arguments as words, and what makes a new result."""

from __future__ import annotations

import ctypes
import functools
import struct
import sys
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from .._arrays import kinds
from .._arrays.dtypes import contiguous_strides
from .._native import library as native
from .._native.abi import FUNCTIONS, DType, SoftmaxMask
from .._pipeline import Recorded, Recorder, new_array

C_FUNCTIONS = tuple(FUNCTIONS)  # by their numbers in c_functions.h
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


def planned(recorded: Recorded, arrays: dict[str, int], numbers: dict[str, tuple[int, float]]) -> Planned:
    """The call with addresses and numbers to be filled in: their indices by the names of `arrays` and `numbers`. A
    number has its value too, as an object of its own, by which it is found in the call.

    Raises NotPlain where one of `numbers` is neither an argument nor an operand of float32 or float64.
    """
    kept: list[Any] = [recorded.plan, recorded.arguments]
    words, missing = [], dict(numbers)
    operands = iter([(name, code) for _, code, name in sorted(getattr(recorded.plan, "numbers", ()))])

    def word_of(argument: Any, is_double: bool) -> bytes:
        for name, (index, value) in missing.items():
            if argument is value:
                del missing[name]
                return _word(_NUMBER, index)
        if isinstance(argument, bytes):  # an operand that is a number
            name, code = next(operands)
            if name in missing and code in _FLOATS:
                return _word(_FLOATS[code], missing.pop(name)[0])
            kept.append(ctypes.create_string_buffer(argument, 16))
            return _word(_LITERAL, ctypes.addressof(kept[-1]))
        if isinstance(getattr(argument, "_obj", None), SoftmaxMask):  # byref()
            return _word(_MASK, _mask_address(argument._obj, recorded.names, arrays, kept))
        value = getattr(argument, "value", argument)  # of a ctypes object
        if value in recorded.names:
            return _word(_POINTER, arrays[recorded.names[value]])
        return _word(_LITERAL, _double_bits(value)) if is_double else _word(_LITERAL, int(value or 0))

    for argument, argument_type in zip(recorded.arguments, FUNCTIONS[recorded.function][1]):
        words.append(word_of(argument, argument_type is ctypes.c_double))
    if missing:
        raise NotPlain
    words.append(_word(_STREAM, 0))
    address = ctypes.cast(native.function_of(recorded.library, recorded.function), ctypes.c_void_p).value or 0
    return Planned(C_FUNCTIONS.index(recorded.function), address, b"".join(words), kept)


def _double_bits(value: float) -> int:
    return int(struct.unpack("=q", struct.pack("=d", value))[0])


def _mask_address(mask: SoftmaxMask, names: dict[int, str], arrays: dict[str, int], kept: list[Any]) -> int:
    """A copy of the struct, which has indices of arrays plus 1 in place of their addresses."""
    own = SoftmaxMask.from_buffer_copy(mask)
    for field in ("dense", "lengths", "bias"):
        address = getattr(mask, field)
        setattr(own, field, None if address is None else arrays[names[address]] + 1)
    kept.append(own)
    return ctypes.addressof(own)


# ---- what calls.c learns --------------------------------------------------------------------------------------------


def learned(
    call: Callable[..., Any], names: Sequence[str], roles: str, arguments: tuple[Any, ...]
) -> tuple[Any, ...] | None:
    """The plan of a call with these arguments, which was made, as plan_of() of calls.c takes it; None where the call is
    Python's."""
    given = list(arguments)
    arrays: dict[str, int] = {}
    numbers: dict[str, tuple[int, float]] = {}
    for position, (name, role) in enumerate(zip((*names, "out"), roles)):
        if role in "av" and type(given[position]) is float:
            given[position] = value = struct.unpack("=d", struct.pack("=d", given[position]))[0]  # another object
            numbers[name] = (len(numbers), value)
        if role in "aw":
            arrays[name] = len(arrays)
    recorded = call(*given[:-1], Recorder())
    if recorded is None:
        return None
    try:
        plan = planned(recorded, arrays, numbers)
    except NotPlain:
        return None
    # Options, and the dtypes of arrays, are parts of the key by address.
    plan.kept.extend(one.dtype if type(one) in kinds.ARRAYS else one for one in arguments)
    made: tuple[Any, ...] = (None, None, None, 0)
    if recorded.out_like is not None:
        kind, x, shape, dtype, order = recorded.out_like
        made = _maker(kind, x, shape, dtype, order, plan.kept)
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
