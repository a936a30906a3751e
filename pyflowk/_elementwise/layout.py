# SPDX-License-Identifier: Apache-2.0
"""Broadcasting: the shape of the output, its order in memory, and the strides of the operands over it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from .._arrays.adapters.base import Signature
from .._arrays.dtypes import contiguous_strides, element_strides, strides_in_order
from .._native.c_types import Int64Pointer, int64s


class Placement(NamedTuple):
    """The shape of out and the strides of all operands over it."""

    shape: tuple[int, ...]
    order: tuple[int, ...] | None  # of a new out, as in Buffer
    c_shape: Int64Pointer
    c_strides: tuple[Int64Pointer | None, ...]  # of out and of all operands; None is C order


def place_operands(names: Sequence[str], operands: Sequence[Signature], out: Signature | None) -> Placement:
    """Raises ValueError if shapes do not broadcast, or if a stride is not a multiple of the element."""
    shapes = [(name, tuple(operand[0])) for name, operand in zip(names, operands) if isinstance(operand, tuple)]
    if out is None:
        out_shape = broadcast_shape(shapes)
    else:
        out_shape = tuple(out[0])
        for name, shape in shapes:
            if not _broadcasts(shape, out_shape):
                raise ValueError(f"out has shape {out_shape}, to which {name} of shape {shape} does not broadcast")
    strides = [_strides(operand, name, out_shape) for operand, name in zip(operands, names)]
    order = memory_order(out_shape, strides)
    if out is None:
        strides.insert(0, strides_in_order(out_shape, order))
    else:
        strides.insert(0, element_strides(out[2], out_shape, tuple(out[1]), "out"))
    in_order = contiguous_strides(out_shape, 1)
    c_strides = tuple(None if each == in_order else int64s(each) for each in strides)
    return Placement(out_shape, order, int64s(out_shape), c_strides)


def memory_order(shape: tuple[int, ...], strides: Sequence[tuple[int, ...]]) -> tuple[int, ...] | None:
    """The dimensions from the outermost in memory to the innermost, as in the operands that have these strides; None is
    C order. If the operands agree, this is NumPy's order "K". If not, the first operand that moves along both of two
    dimensions decides which of them is outer; NumPy takes C order then. If no operand moves along both, C order
    decides."""
    order: list[int] = []
    for dimension in range(len(shape)):
        place = len(order)
        for index in range(len(order) - 1, -1, -1):
            outer = _outer_of(order[index], dimension, shape, strides)
            if outer == dimension:
                place = index
            elif outer is not None:
                break
        order.insert(place, dimension)
    return None if order == list(range(len(shape))) else tuple(order)


def _outer_of(first: int, second: int, shape: tuple[int, ...], strides: Sequence[tuple[int, ...]]) -> int | None:
    if shape[first] <= 1 or shape[second] <= 1:
        return None
    for each in strides:
        steps = abs(each[first]), abs(each[second])
        if 0 not in steps and steps[0] != steps[1]:
            return first if steps[0] > steps[1] else second
    return None


def broadcast_shape(shapes: Sequence[tuple[str, tuple[int, ...]]]) -> tuple[int, ...]:
    """NumPy's rule: shapes are aligned at the last dimension, and an extent of 1 is repeated. ValueError names the
    shapes."""
    result: list[int] = [1] * max((len(shape) for _, shape in shapes), default=0)
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
    """Strides in elements over the dimensions of out; 0 for a dimension in which the operand is broadcast. A number is
    broadcast in all of them."""
    if not isinstance(operand, tuple):
        return (0,) * len(out_shape)
    shape, strides, dtype = operand
    lead = len(out_shape) - len(shape)
    own = element_strides(dtype, tuple(shape), tuple(strides), name)
    return (0,) * lead + tuple(
        stride if extent == out_shape[lead + position] else 0
        for position, (extent, stride) in enumerate(zip(shape, own, strict=True))
    )
