# SPDX-License-Identifier: Apache-2.0
"""Programs on copies: C-contiguous temporaries instead of arrays in layouts that a C function does not take."""

from __future__ import annotations

import math
from collections.abc import Callable
from ctypes import c_int32
from typing import Any

import numpy as np

from ._arrays.adapters.base import Geometry, Signature
from ._arrays.dtypes import contiguous_strides, element_strides, element_type
from ._native.c_types import int32s, int64s
from ._program import INPUT, OUTPUT, TEMP, Arg, Program, Step


def on_copies(
    plan: Callable[[tuple[Signature, ...], tuple[Geometry | None, ...], Any], Program | None],
    signatures: tuple[Signature, ...],
    outs: tuple[Geometry | None, ...],
    options: Any,
    copied: dict[int, tuple[str, Geometry]],
    out_name: str | None,
) -> Program | None:
    """The Program of a call on copies, each made by flowk_permute. `copied` are the indices, names and geometries of
    the inputs to copy, as views of the shapes that the copies get. Unless `out_name` is None, the first output, which
    is called so, is written through a copy too. None if `plan` gives none."""
    inputs, targets = list(signatures), list(outs)
    arrays = {Arg(INPUT, index): named for index, named in copied.items()}
    if outs[0] is not None and out_name is not None:
        _check_no_repeats(outs[0], out_name)
        arrays[Arg(OUTPUT, 0)] = (out_name, outs[0])
    for array, (name, geometry) in arrays.items():
        (inputs if array.kind == INPUT else targets)[array.value] = in_c_order(geometry, name)
    inner = plan(tuple(inputs), tuple(targets), options)
    if inner is None:
        return None
    places = {array: Arg(TEMP, len(inner.temps) + index) for index, array in enumerate(arrays)}
    names = ", ".join(name for name, _ in arrays.values())
    heading = f"on contiguous copies of {names}, by flowk_permute; then"
    reason = f"{names} {'is' if len(arrays) == 1 else 'are'} copied because the kernel needs contiguous rows"
    copies = [_copy(array, copy, *arrays[array]) for array, copy in places.items()]
    steps = [*copies[: len(copied)], *(one.moved(places) for one in inner.steps), *copies[len(copied) :]]
    first = steps[0]
    steps[0] = first._replace(
        heading="\n".join(filter(None, (heading, first.heading))), extra_passes=(reason, *first.extra_passes)
    )
    sizes = (math.prod(shape) * element_type(dtype, name)[1] for name, (shape, _, dtype) in arrays.values())
    return inner._replace(steps=tuple(steps), temps=(*inner.temps, *sizes))


def in_c_order(geometry: Geometry, name: str) -> Geometry:
    """The geometry of a C-contiguous array of the same shape and dtype."""
    shape, _, dtype = geometry
    itemsize = element_type(dtype, name)[1] if isinstance(dtype, np.dtype) else 1
    return tuple(shape), contiguous_strides(shape, itemsize), dtype


def _copy(array: Arg, copy: Arg, name: str, geometry: Geometry) -> Step:
    """The copy between an array and C-contiguous memory: of an input to it, of an output from it."""
    shape, strides, dtype = geometry
    own = array, int64s(element_strides(dtype, shape, strides, name))
    packed = copy, int64s(contiguous_strides(shape, 1))
    src, dst = (own, packed) if array.kind == INPUT else (packed, own)
    extents = c_int32(len(shape)), int64s(shape), int32s(range(len(shape)))
    names = {"src": name, "dst": name, "rank": f"{name}.ndim"}
    step = Step.of("flowk_permute", (*src, *dst, *extents, element_type(dtype, name)[0]), names)
    return step._replace(is_explained=False)


def _check_no_repeats(geometry: Geometry, name: str) -> None:
    """ValueError if two elements may share memory, by flowk_permute's rule."""
    shape, strides, _ = geometry
    reach = 0
    for stride, extent in sorted((abs(stride), extent) for stride, extent in zip(strides, shape) if extent > 1):
        if stride <= reach or stride == 0:
            raise ValueError(f"{name} has strides of {tuple(strides)}: no two of its elements may share memory")
        reach += stride * (extent - 1)
