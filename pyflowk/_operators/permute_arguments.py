# SPDX-License-Identifier: Apache-2.0
"""The arguments of permute's functions: their checks, and the plans of their calls."""

from __future__ import annotations

import functools
import operator
from ctypes import c_int, c_int32
from typing import Any

import numpy as np

from .._arguments import axis_of, count_of, number, shown
from .._arrays.adapters.base import Geometry, Signature
from .._arrays.dtypes import (
    ALL_TYPES,
    NUMBER_TYPES,
    contiguous_strides,
    dtype_like,
    dtype_name,
    element_strides,
    element_type,
    listed,
    named_type,
    type_of_elements,
    wrong_dtype,
)
from .._native.abi import DType, Status
from .._native.c_types import int32s, int64s
from .._native.errors import FlowkValueError
from .._pipeline import Operation, Request, require_arrays
from .._program import INPUT, NUMBER, OUTPUT, Arg, Buffer, Number, Program, Step

# What flowk_permute_convert() takes.
_CONVERTED = tuple(code for code in NUMBER_TYPES if code not in (DType.INT64, DType.UINT64))


def axes_tuple(axes: Any) -> tuple[int, ...]:
    """The axes as integers; TypeError if one is no integer."""
    try:
        return tuple(map(operator.index, axes))
    except (TypeError, NotImplementedError) as error:  # the second by a memoryview
        raise TypeError(f"axes is {shown(axes)}, must be integers, one per dimension of x") from error


def permute_request(x: Any, axes: tuple[int, ...] | None, dtype: Any, scale: Any) -> Request:
    """A permute of x; `axes` None swaps the last two."""
    factor = scale if type(scale) is float else number(scale, "scale")
    wanted, is_own = None, True
    if dtype is not None:
        own = getattr(x, "dtype", None)
        # A dtype of NumPy's, or its name, may be one that flowk does not name.
        is_own = isinstance(dtype, (str, np.dtype)) and isinstance(own, np.dtype) and _is_same_dtype(own, dtype)
        if not is_own:
            wanted = named_type(dtype, ALL_TYPES)
            is_own = wanted == type_of_elements(own)
    if is_own and factor == 1:
        return Request(_PERMUTE, (x,), (axes, None))
    return Request(_PERMUTE_CONVERT, (x,), (axes, wanted), (factor,))


def _is_same_dtype(own: np.dtype[Any], dtype: Any) -> bool:
    try:
        return bool(own == dtype)
    except TypeError:  # a name that NumPy does not know
        return False


def _plan(
    converts: bool,
    signatures: tuple[Signature, ...],
    outs: tuple[Geometry | None, ...],
    options: tuple[tuple[int, ...] | None, DType | None],
) -> Program:
    """`options` are the axes (None swaps the last two) and the type of the result (None is x's)."""
    (axes, wanted), (out,) = options, outs
    require_arrays(("x",), signatures)
    shape, strides, dtype = signatures[0]
    code = _converted_type(dtype, wanted) if converts else element_type(dtype, "x")[0]
    out_code = code if wanted is None else wanted
    out_dtype = dtype_like(out_code, dtype) if converts else dtype
    order = _last_two_swapped(len(shape)) if axes is None else _checked_axes(axes, len(shape))
    permuted = tuple(shape[axis] for axis in order)
    if out is None:
        dst_strides = contiguous_strides(permuted, 1)
    else:
        _check_out(permuted, out_dtype, out_code, out)
        dst_strides = element_strides(out[2], out[0], out[1], "out")
    src_strides = element_strides(dtype, shape, strides, "x")
    src, dst = (Arg(INPUT, 0), int64s(src_strides)), (Arg(OUTPUT, 0), int64s(dst_strides))
    extents = c_int32(len(shape)), int64s(shape), int32s(order)
    if converts:
        args = (*src, c_int(code), *dst, c_int(out_code), *extents, Arg(NUMBER, _SCALE))
        step = Step.of("flowk_permute_convert", args, ("x",))
    else:
        step = Step.of("flowk_permute", (*src, *dst, *extents, c_int(code)), ("x",))
    return Program((step,), (Buffer(permuted, out_dtype),))


_SCALE = Number(1, DType.FLOAT64, "scale")
_PERMUTE = Operation(("x",), functools.partial(_plan, False), operator="permute")
_PERMUTE_CONVERT = Operation(("x",), functools.partial(_plan, True), parameters=("scale",), operator="permute")


def _converted_type(dtype: Any, wanted: DType | None) -> DType:
    """The type of x; TypeError if flowk_permute_convert() does not take it or `wanted`."""
    code = type_of_elements(dtype)
    if code not in _CONVERTED:
        raise wrong_dtype("x", dtype, f"{listed(_CONVERTED)} to be converted or scaled")
    if wanted is not None and wanted not in _CONVERTED:
        raise TypeError(
            f"dtype = {dtype_name(wanted)}, must be x's own dtype {dtype} without a scale, or {listed(_CONVERTED)}"
        )
    return code


def _checked_axes(axes: tuple[int, ...], rank: int, name: str = "x") -> list[int]:
    if len(axes) != rank:
        raise FlowkValueError(
            Status.INVALID_ARGUMENT,
            f"axes has {count_of(len(axes), 'entry', 'entries')}, {name} has {count_of(rank, 'dimension')}",
        )
    order: list[int] = []
    for position, axis in enumerate(axes):
        if not -rank <= axis < rank:
            raise FlowkValueError(
                Status.INVALID_ARGUMENT, f"axes[{position}] = {shown(axis)}, must be in {-rank} ... {rank - 1}"
            )
        if axis % rank in order:
            raise FlowkValueError(
                Status.INVALID_ARGUMENT, f"axes[{position}] = {axis}, but axes must name each dimension once: {axes}"
            )
        order.append(axis % rank)
    return order


def _last_two_swapped(rank: int) -> list[int]:
    if rank < 2:
        raise FlowkValueError(Status.INVALID_ARGUMENT, f"x has {count_of(rank, 'dimension')}, must have >= 2")
    return [*range(rank - 2), rank - 1, rank - 2]


def _check_out(shape: tuple[int, ...], dtype: Any, code: DType, out: Geometry) -> None:
    out_shape, _, out_dtype = out
    if tuple(out_shape) != shape:
        raise ValueError(f"out has shape {tuple(out_shape)}, must be {shape}")
    same = dtype == out_dtype if type(dtype) is type(out_dtype) else element_type(out_dtype, "out")[0] == code
    if not same:
        raise TypeError(f"out has dtype {out_dtype}, must be {dtype}")


def swapped_axes(rank: int, axis1: Any, axis2: Any) -> tuple[int, ...]:
    """The axes of swapaxes() of an array of `rank` dimensions."""
    order = list(range(rank))
    first, second = axis_of(axis1, "axis1", rank), axis_of(axis2, "axis2", rank)
    order[first], order[second] = second, first
    return tuple(order)


def moved_axes(rank: int, source: Any, destination: Any) -> tuple[int, ...]:
    """The axes of moveaxis() of an array of `rank` dimensions."""
    sources, places = _axes_of(source, "source", rank), _axes_of(destination, "destination", rank)
    if len(sources) != len(places):
        entries = count_of(len(sources), "entry", "entries")
        raise ValueError(f"source has {entries} and destination has {len(places)}, must have the same number")
    order = [axis for axis in range(rank) if axis not in sources]
    for place, axis in sorted(zip(places, sources)):
        order.insert(place, axis)
    return tuple(order)


def _axes_of(axes: Any, name: str, rank: int) -> list[int]:
    try:
        given = list(axes)
    except TypeError:
        given = [axes]
    found = [axis_of(axis, name, rank) for axis in given]
    if len(set(found)) != len(found):
        raise ValueError(f"{name} = {shown(axes)}, but it must name each dimension once")
    return found
