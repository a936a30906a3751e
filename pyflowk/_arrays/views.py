# SPDX-License-Identifier: Apache-2.0
"""The geometry of views: shapes, strides in bytes and offsets, by NumPy's rules. No memory is touched."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Sequence
from typing import Any, SupportsIndex

import numpy as np

from .._arguments import axis_of, shown
from .dtypes import contiguous_strides

Extents = tuple[int, ...]


def indexed(shape: Extents, strides: Extents, index: Any) -> tuple[int, Extents, Extents]:
    """(Offset, shape, strides) of a[index], with `index` of integers, slices, None and Ellipsis.

    IndexError if it is outside or has too many entries, TypeError if it is of arrays or bool.
    """
    entries = index if isinstance(index, tuple) else (index,)
    num_used = sum(entry is not None and entry is not Ellipsis for entry in entries)
    if num_used > len(shape):
        raise IndexError(f"an index of {num_used} dimensions, but the array has {len(shape)}")
    if sum(entry is Ellipsis for entry in entries) > 1:
        raise IndexError("an index can have one Ellipsis ('...') only")
    if not any(entry is Ellipsis for entry in entries):
        entries = (*entries, Ellipsis)
    offset, axis = 0, 0
    extents: list[int] = []
    steps: list[int] = []
    for entry in entries:
        if entry is None:
            extents.append(1)
            steps.append(0)
        elif entry is Ellipsis:
            end = axis + len(shape) - num_used
            extents += shape[axis:end]
            steps += strides[axis:end]
            axis = end
        elif isinstance(entry, slice):
            places = range(*_slice_indices(entry, shape[axis]))
            offset += places.start * strides[axis] if places else 0
            extents.append(len(places))
            steps.append(strides[axis] * places.step)
            axis += 1
        else:
            offset += _place(entry, axis, shape[axis]) * strides[axis]
            axis += 1
    return offset, tuple(extents), tuple(steps)


def _slice_indices(entry: slice, extent: int) -> tuple[int, int, int]:
    try:
        return entry.indices(extent)
    except TypeError as error:
        raise TypeError(f"{shown(entry)} must have integers or None") from error


def _place(entry: Any, axis: int, extent: int) -> int:
    if isinstance(entry, (bool, np.bool_)) or not hasattr(entry, "__index__") or getattr(entry, "shape", ()) != ():
        raise TypeError(f"an index is {shown(entry)}, must be integers, slices, None or Ellipsis")
    place = operator.index(entry)
    if not -extent <= place < extent:
        raise IndexError(f"index {shown(place)} of dimension {axis}, must be in {-extent} ... {extent - 1}")
    return place % extent


def wanted_shape(size: int, shape: Sequence[SupportsIndex]) -> Extents:
    """The shape given to reshape(), with the extent that -1 stands for; ValueError if `size` elements do not fit."""
    try:
        extents = tuple(int(operator.index(extent)) for extent in shape)
    except TypeError as error:
        raise TypeError(f"shape is {shown(shape)}, must be integers") from error
    rest = math.prod(extent for extent in extents if extent != -1)
    if min(extents, default=0) < -1 or extents.count(-1) > 1:
        raise ValueError(f"shape = {shown(extents)}, each extent must be >= 0, one may be -1")
    if -1 in extents and rest and size % rest == 0:
        extents = tuple(size // rest if extent == -1 else extent for extent in extents)
    if -1 in extents or math.prod(extents) != size:
        raise ValueError(f"shape = {shown(extents)}, the array has {size} elements")
    return extents


def reshaped_strides(shape: Extents, strides: Extents, new: Extents, itemsize: int) -> Extents | None:
    """Strides of all elements in another shape of the same size; None if they need a copy."""
    if 0 in new:
        return contiguous_strides(new, itemsize)
    old = [(extent, stride) for extent, stride in zip(shape, strides) if extent != 1]
    result = [itemsize] * len(new)
    first = 0  # of the new dimensions that have no stride yet
    while old:
        # The fewest old and new dimensions that hold the same elements.
        num_old, num_new = 1, 1
        while True:
            inside = math.prod(extent for extent, _ in old[:num_old])
            outside = math.prod(new[first : first + num_new])
            if inside == outside:
                break
            num_old, num_new = (num_old, num_new + 1) if outside < inside else (num_old + 1, num_new)
        group, old = old[:num_old], old[num_old:]
        if any(outer[1] != inner[0] * inner[1] for outer, inner in itertools.pairwise(group)):
            return None
        stride = group[-1][1]
        for axis in reversed(range(first, first + num_new)):
            result[axis] = stride
            stride *= new[axis]
        first += num_new
    return tuple(result)


def squeezed(shape: Extents, strides: Extents, axis: int | tuple[int, ...] | None) -> tuple[Extents, Extents]:
    """The shape and strides without the dimensions `axis`, each of extent 1; None: without all of extent 1."""
    rank = len(shape)
    if axis is None:
        axes = [d for d in range(rank) if shape[d] == 1]
    else:
        axes = [axis_of(one, "axis", rank) for one in (axis if isinstance(axis, tuple) else (axis,))]
    for d in axes:
        if shape[d] != 1:
            raise ValueError(f"axis = {shown(axis)}, but dimension {d} has extent {shape[d]}, must be 1")
    kept = [d for d in range(rank) if d not in axes]
    return tuple(shape[d] for d in kept), tuple(strides[d] for d in kept)


def broadcast_strides(shape: Extents, strides: Extents, target: Extents) -> Extents:
    """Strides of the elements repeated to the shape `target`; ValueError if they do not broadcast to it."""
    lead = len(target) - len(shape)
    if lead < 0 or any(extent not in (1, wanted) for extent, wanted in zip(shape, target[lead:])):
        raise ValueError(f"shape {shape} does not broadcast to {target}")
    own = (0 if extent == 1 and wanted != 1 else s for extent, s, wanted in zip(shape, strides, target[lead:]))
    return (0,) * lead + tuple(own)
