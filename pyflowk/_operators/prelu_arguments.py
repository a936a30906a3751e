# SPDX-License-Identifier: Apache-2.0
"""The arguments of prelu and its gradient in C, except pointers, from shapes, strides and dtypes, checked."""

from __future__ import annotations

import functools
import math
from ctypes import c_int, c_int64
from typing import Any

from .._arguments import shown
from .._arrays.adapters.base import Geometry, Signature
from .._arrays.dtypes import (
    coefficient_types,
    contiguous_strides,
    element_strides,
    element_type,
    float_type,
    have_same_strides,
    is_contiguous,
    listed,
    wrong_dtype,
)
from .._native.abi import Status
from .._native.errors import FlowkValueError

# (outer, channels, inner, x's dtype, alpha's dtype) as C values; the dimensions of x from the outermost in memory to
# the innermost, None for C order.
Sizes = tuple[tuple[Any, ...], "tuple[int, ...] | None"]


def copied_arrays(
    names: tuple[str, ...], signatures: tuple[Signature, ...], out: Geometry | None, out_name: str
) -> tuple[dict[int, tuple[str, Geometry]], str | None]:
    """What on_copies() is to copy: alpha if it is not contiguous. If the arrays of x's shape are not laid out alike, or
    have gaps, also each of these arrays that is not C-contiguous."""
    x, index = signatures[0], names.index("alpha")
    alpha = {} if is_contiguous(signatures[index], "alpha") else {index: ("alpha", signatures[index])}
    arrays: dict[int | None, tuple[str, Geometry]] = {
        number: (name, signature) for number, (name, signature) in enumerate(zip(names, signatures)) if name != "alpha"
    }
    if out is not None:
        arrays[None] = (out_name, out)
    alike = all([check_same_type("x", x, name, geometry) for name, geometry in arrays.values()])
    strides = element_strides(x[2], x[0], x[1], "x")
    if (alike and _memory_order(x[0], strides) is not _HAS_GAPS) or 0 in x[0]:
        return alpha, None
    copied = {number: named for number, named in arrays.items() if not is_contiguous(named[1], named[0])}
    others = {n: named for n, named in copied.items() if n is not None}
    return {**others, **alpha}, out_name if None in copied else None


def sizes_of(x: Geometry, alpha: Geometry, channel_axis: int) -> Sizes:
    """x, an array without gaps, as (outer, channels, inner) in memory."""
    (shape, strides, dtype), (a_shape, _, a_dtype) = x, alpha
    axis = alpha_axis(tuple(shape), dtype, tuple(a_shape), a_dtype, channel_axis)
    codes = c_int(float_type(dtype, "x")), c_int(float_type(a_dtype, "alpha"))
    order = _memory_order(shape, element_strides(dtype, shape, strides, "x"))
    assert order is not _HAS_GAPS
    if axis is None:
        return (c_int64(1), c_int64(1), c_int64(math.prod(shape)), *codes), order
    in_memory = order or tuple(range(len(shape)))
    depth = in_memory.index(axis)
    outer = math.prod(shape[d] for d in in_memory[:depth])
    inner = math.prod(shape[d] for d in in_memory[depth + 1 :])
    return (c_int64(outer), c_int64(shape[axis]), c_int64(inner), *codes), order


def alpha_axis(
    shape: tuple[int, ...], dtype: Any, a_shape: tuple[int, ...], a_dtype: Any, channel_axis: int
) -> int | None:
    """The dimension of x that alpha runs along, None if alpha has one element. An error if the shapes and dtypes do not
    fit together."""
    allowed = coefficient_types(float_type(dtype, "x"))
    if float_type(a_dtype, "alpha") not in allowed:
        raise wrong_dtype("alpha", a_dtype, f"{listed(allowed)} beside x of {dtype}")
    if math.prod(a_shape) == 1:
        return None
    rank = len(shape)
    if not rank:
        raise ValueError(f"x has no dimensions: alpha has shape {a_shape}, must have one element")
    if not -rank <= channel_axis < rank:
        raise FlowkValueError(
            Status.INVALID_ARGUMENT, f"channel_axis = {shown(channel_axis)}, must be in {-rank} ... {rank - 1}"
        )
    axis = channel_axis % rank
    if a_shape != (shape[axis],):
        raise ValueError(
            f"alpha has shape {a_shape}, must have one element or the shape ({shape[axis]},) of x along "
            f"channel_axis = {axis}"
        )
    return axis


_HAS_GAPS = (-1,)


def _memory_order(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, ...] | None:
    """The dimensions of an array from the outermost in memory to the innermost; None for C order; _HAS_GAPS if its
    elements do not lie without gaps, or repeat."""
    if tuple(strides) == contiguous_strides(shape, 1) or 0 in shape:
        return None
    order = tuple(sorted(range(len(shape)), key=lambda d: (-strides[d], shape[d] == 1, d)))
    expected = 1
    for d in reversed(order):
        if shape[d] > 1 and strides[d] != expected:
            return _HAS_GAPS
        expected *= shape[d]
    kept = [d for d in order if shape[d] > 1]
    return None if kept == sorted(kept) else order


@functools.lru_cache(maxsize=4096)
def check_same_type(name: str, first: Geometry, other_name: str, other: Geometry) -> bool:
    """Whether the strides of two arrays are the same. An error if their shapes or dtypes are not."""
    (shape, strides, dtype), (other_shape, other_strides, other_dtype) = first, other
    if tuple(shape) != tuple(other_shape):
        raise ValueError(f"{other_name} has shape {tuple(other_shape)}, must be {tuple(shape)} as {name}")
    same = (
        dtype == other_dtype
        if type(dtype) is type(other_dtype)
        else element_type(dtype, name) == element_type(other_dtype, other_name)
    )
    if not same:
        raise TypeError(f"{other_name} has dtype {other_dtype}, must be {dtype} as {name}")
    in_elements = element_strides(dtype, shape, strides, name)
    return have_same_strides(shape, in_elements, element_strides(other_dtype, shape, other_strides, other_name))
