# SPDX-License-Identifier: Apache-2.0
"""What an elementwise call passes to the library besides pointers, numbers and the stream: worked out once for operands
of the same shapes, strides and types, and remembered."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence
from ctypes import c_int, c_int32, c_int64
from dataclasses import dataclass
from typing import Any, NamedTuple

from ._abi import NUMBER, DType, Int64Pointer
from ._dtypes import dtype_like, dtype_name, element_strides, number_type
from ._elementwise_ops import OPERATIONS, Op, resolve, takes_out
from ._memory import contiguous_strides
from ._promotion import number_as

# An operand: (shape, strides, dtype) of an array, the type of a Python number, or the DType of a NumPy scalar.
Signature = tuple[tuple[int, ...], tuple[int, ...], Any] | type | DType


@dataclass(frozen=True, eq=False)  # compared and hashed by identity: a function makes it once
class Request:
    """What a function of pyflowk computes.

    op              the operation
    names           what the function's signature calls the operands
    result          the type of the result, for COPY; None: what the operands' types come to
    exact_integers  as in resolve()
    """

    op: Op
    names: tuple[str, ...]
    result: DType | None = None
    exact_integers: bool = False


class Layout(NamedTuple):
    """See above. What the library takes is there as C values, which pass in half the time of an int that ctypes has to
    convert; `keep` keeps what they point to."""

    op: c_int
    result: str  # what the operation gives: a result of Operation
    strides: tuple[Int64Pointer | None, ...]  # of the operands; None is C order
    types: tuple[c_int, ...]  # of the operands: with NUMBER for those that are numbers
    number_types: tuple[DType, ...]  # to which numbers are rounded
    out_and_extents: tuple[Int64Pointer | None, c_int, c_int32, Int64Pointer | None]  # strides, type, rank, shape
    out_type: DType
    out_shape: tuple[int, ...]
    out_dtype: Any
    conversions: tuple[tuple[int, DType], ...]  # the arrays to convert first, and to what
    keep: Any


@functools.lru_cache(maxsize=4096)  # an entry is about 2 KB
def layout_of(
    request: Request,
    operands: tuple[Signature, ...],
    out: tuple[tuple[int, ...], tuple[int, ...], Any] | None,
    parameters: tuple[type, ...] = (),
) -> Layout:
    """The layout of a call; `parameters` are the types of the numbers a and b of its formula.

    ValueError where shapes do not broadcast, TypeError where types do not fit.
    """
    names = request.names
    arrays = [index for index, operand in enumerate(operands) if isinstance(operand, tuple)]
    kinds = tuple(
        number_type(operand[2], name) if isinstance(operand, tuple) else operand
        for operand, name in zip(operands, names, strict=True)
    )
    op, needed, result = resolve(request.op, kinds, parameters, exact_integers=request.exact_integers)
    result = result if request.result is None else request.result
    out_type = result
    if out is not None:
        out_type = number_type(out[2], "out")
        fits = takes_out(op, result, out_type) if request.result is None else out_type == result
        if not fits:
            raise TypeError(f"out has dtype {out[2]}, must be {dtype_name(result)}")
    out_shape, shape_address, addresses, keep = place_operands(names, operands, out)
    return Layout(
        op=c_int(op.value),
        result=OPERATIONS[op].result,
        strides=tuple(map(_pointer, addresses[1:])),
        types=tuple(c_int(code if index in arrays else number_as(code) | NUMBER) for index, code in enumerate(needed)),
        number_types=needed,
        out_and_extents=(
            _pointer(addresses[0]),
            c_int(out_type),
            c_int32(len(out_shape)),
            _pointer(shape_address),
        ),
        out_type=out_type,
        out_shape=out_shape,
        out_dtype=dtype_like(out_type, operands[arrays[0]][2]) if out is None else out[2],
        conversions=tuple((index, needed[index]) for index in arrays if kinds[index] != needed[index]),
        keep=keep,
    )


def place_operands(
    names: Sequence[str], operands: Sequence[Signature], out: Signature | None
) -> tuple[tuple[int, ...], int | None, tuple[int | None, ...], Any]:
    """(Out's shape, its address, the addresses of the strides of out and all operands, what keeps addresses good).

    ValueError where shapes do not broadcast, or strides are not of whole elements. An address of strides in C order is
    None.
    """
    shapes = [(name, tuple(operand[0])) for name, operand in zip(names, operands) if isinstance(operand, tuple)]
    if out is None:
        out_shape = broadcast_shape(shapes)
        in_order = out_strides = contiguous_strides(out_shape, 1)
    else:
        out_shape = tuple(out[0])
        for name, shape in shapes:
            if not _broadcasts(shape, out_shape):
                raise ValueError(f"out has shape {out_shape}, to which {name} of shape {shape} does not broadcast")
        in_order = contiguous_strides(out_shape, 1)
        out_strides = element_strides(out[2], out_shape, tuple(out[1]), "out")
    keep: list[Any] = []
    strides = [out_strides, *(_strides(operand, name, out_shape) for operand, name in zip(operands, names))]
    addresses = tuple(None if each == in_order else _address_of(each, keep) for each in strides)
    return out_shape, _address_of(out_shape, keep), addresses, keep


def broadcast_shape(shapes: Sequence[tuple[str, tuple[int, ...]]]) -> tuple[int, ...]:
    """NumPy's: aligned at the last dimension, an extent of 1 gives way to the other's. ValueError, with the names that
    stand beside the shapes."""
    result: list[int] = [1] * max(len(shape) for _, shape in shapes)
    for _, shape in shapes:
        for position, extent in enumerate(shape, start=len(result) - len(shape)):
            if extent != 1 and result[position] not in (1, extent):
                listed = ", ".join(f"{name} of {shape}" for name, shape in shapes)
                raise ValueError(f"shapes do not broadcast to one: {listed}")
            if extent != 1:
                result[position] = extent
    return tuple(result)


def _broadcasts(shape: tuple[int, ...], out_shape: tuple[int, ...]) -> bool:
    aligned = out_shape[len(out_shape) - len(shape) :]
    return len(shape) <= len(out_shape) and all(extent in (1, other) for extent, other in zip(shape, aligned))


def _strides(operand: Signature, name: str, out_shape: tuple[int, ...]) -> tuple[int, ...]:
    """In elements, over the dimensions of out: 0 where the operand is broadcast, as a number is everywhere."""
    if not isinstance(operand, tuple):
        return (0,) * len(out_shape)
    shape, strides, dtype = operand
    lead = len(out_shape) - len(shape)
    own = element_strides(dtype, tuple(shape), tuple(strides), name)
    return (0,) * lead + tuple(
        stride if extent == out_shape[lead + position] else 0
        for position, (extent, stride) in enumerate(zip(shape, own, strict=True))
    )


def _pointer(address: int | None) -> Int64Pointer | None:
    return None if address is None else Int64Pointer(address)


def _address_of(values: Sequence[int], keep: list[Any]) -> int | None:
    if not values:
        return None
    array = (c_int64 * len(values))(*values)
    keep.append(array)
    return ctypes.addressof(array)
