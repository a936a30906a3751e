# SPDX-License-Identifier: Apache-2.0
"""Broadcasting: the shape of the output and the strides of the operands over it."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import c_int64
from typing import Any

from .._arrays.dtypes import contiguous_strides, element_strides
from .._arrays.kinds import Signature


def place_operands(
    names: Sequence[str], operands: Sequence[Signature], out: Signature | None
) -> tuple[tuple[int, ...], int | None, tuple[int | None, ...], Any]:
    """(Out's shape, its address, the addresses of the strides of out and of all operands, what keeps them alive).

    The address of strides in C order is None. ValueError where shapes do not broadcast, or a stride is not a multiple
    of the element.
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
    """NumPy's rule: shapes are aligned at the last dimension, and an extent of 1 is repeated. ValueError names the
    shapes."""
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


def _address_of(values: Sequence[int], keep: list[Any]) -> int | None:
    if not values:
        return None
    array = (c_int64 * len(values))(*values)
    keep.append(array)
    return ctypes.addressof(array)
