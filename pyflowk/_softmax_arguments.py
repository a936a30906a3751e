# SPDX-License-Identifier: Apache-2.0
"""What the softmax functions of the library take besides pointers: from shapes, strides and dtypes, checked, and
remembered, because it costs ten times the call itself."""

from __future__ import annotations

import functools
import operator
import sys
from ctypes import addressof, c_int64, sizeof
from typing import Any, NamedTuple

import numpy as np

from ._abi import DType, SoftmaxMask
from ._array import Geometry
from ._dtypes import element_strides, element_type, numpy_dtype
from ._memory import contiguous_strides

_FLOATS = {
    "float16": DType.FLOAT16,
    "bfloat16": DType.BFLOAT16,
    "float32": DType.FLOAT32,
    "float64": DType.FLOAT64,
}
_BYTES = {"bool": DType.BOOL, "uint8": DType.UINT8}
_INTEGERS = {"int32": DType.INT32, "int64": DType.INT64}


class Arguments(NamedTuple):
    """Strides and shape are addresses, good as long as this lives."""

    first_strides: int
    second_strides: int | None
    code: DType  # of x, or of dy and y
    out_strides: int
    out_code: DType
    rank: int
    shape: int
    mask: SoftmaxMask  # without its tensors' pointers
    mask_pointer: int | None  # None: nothing is masked, nothing added
    out_like: tuple[tuple[int, ...], Any]  # shape and dtype of a new out
    keep_alive: Any


@functools.lru_cache(maxsize=4096)  # an entry is about 2 KB
def arguments_of(
    first: Geometry,
    second: Geometry | None,
    operands: tuple[Geometry | None, Geometry | None, Geometry | None],
    out: Geometry | None,
    options: tuple[str, bool, int, int | None, Any],
) -> Arguments:
    """`operands` are mask, lengths and bias, `options` side, causal, causal_offset, window and dtype.

    Raises ValueError or TypeError for what the library cannot see or would name otherwise.
    """
    mask, lengths, bias = operands
    side, causal, causal_offset, window, dtype = options
    name = "x" if second is None else "dy"
    shape = tuple(first[0])
    if not shape:
        raise ValueError(f"{name} has no dimensions, must have >= 1")
    code = _code_of(first[2], name, _FLOATS)
    if second is not None:
        _check_same(second, "y", shape, first[2], code)
    out_dtype = first[2] if dtype is None else _dtype_like(dtype, first[2])
    out_code = _code_of(out_dtype, "out", _FLOATS)
    if out is not None:
        if dtype is not None:
            _check_same(out, "out", shape, out_dtype, out_code)
        elif tuple(out[0]) != shape:
            raise ValueError(f"out has shape {tuple(out[0])}, must be {shape}")
        out_code = _code_of(out[2], "out", _FLOATS)
    keep_alive: list[Any] = []

    def address_of(numbers: tuple[int, ...]) -> int:
        keep_alive.append((c_int64 * max(len(numbers), 1))(*numbers))
        return addressof(keep_alive[-1])

    def strides_of(geometry: Geometry, name: str) -> int:
        return address_of(element_strides(geometry[2], geometry[0], geometry[1], name))

    struct = _mask_without_arrays(side, causal, causal_offset, window)
    if mask is not None:
        _code_of(mask[2], "mask", _BYTES)
        struct.dense_strides = address_of(_broadcast(mask, "mask", shape))
    if lengths is not None:
        struct.lengths_dtype = _code_of(lengths[2], "lengths", _INTEGERS)
        struct.lengths_strides = address_of(_broadcast_lengths(lengths, shape))
    if bias is not None:
        struct.bias_dtype = _code_of(bias[2], "bias", _FLOATS)
        struct.bias_strides = address_of(_broadcast(bias, "bias", shape))
    masks = struct.causal or struct.window or operands != (None, None, None)
    return Arguments(
        first_strides=strides_of(first, name),
        second_strides=None if second is None else strides_of(second, "y"),
        code=code,
        out_strides=address_of(contiguous_strides(shape, 1)) if out is None else strides_of(out, "out"),
        out_code=out_code,
        rank=len(shape),
        shape=address_of(shape),
        mask=struct,
        mask_pointer=addressof(struct) if masks else None,
        out_like=(shape, out_dtype),
        keep_alive=keep_alive,
    )


def _mask_without_arrays(side: str, causal: bool, causal_offset: int, window: int | None) -> SoftmaxMask:
    if side not in ("left", "right"):
        raise ValueError(f"side = {side!r}, must be 'left' or 'right'")
    if causal not in (True, False):
        raise ValueError(f"causal = {causal!r}, must be True or False (causal_offset moves the diagonal)")
    struct = SoftmaxMask(struct_bytes=sizeof(SoftmaxMask), lengths_from_right=side == "right", causal=bool(causal))
    struct.causal_offset = _index(causal_offset, "causal_offset", -(2**62))
    struct.window = 0 if window is None else _index(window, "window", 1)
    return struct


def _index(value: Any, name: str, smallest: int) -> int:
    try:
        number = operator.index(value)
    except TypeError as error:
        raise TypeError(f"{name} is {value!r}, must be an integer") from error
    if not smallest <= number <= 2**62:
        raise ValueError(f"{name} = {number}, must be in {smallest} ... 2**62")
    return number


def _code_of(dtype: Any, name: str, allowed: dict[str, DType]) -> DType:
    code = allowed.get(str(dtype).removeprefix("torch."))
    if code is None:
        *others, last = allowed
        raise TypeError(f"{name} has dtype {dtype}, must be {', '.join(others)} or {last}")
    return code


def _check_same(geometry: Geometry, name: str, shape: tuple[int, ...], dtype: Any, code: DType) -> None:
    if tuple(geometry[0]) != shape:
        raise ValueError(f"{name} has shape {tuple(geometry[0])}, must be {shape}")
    if _code_of(geometry[2], name, _FLOATS) != code:
        raise TypeError(f"{name} has dtype {geometry[2]}, must be {dtype}")


def _dtype_like(dtype: Any, like: Any) -> Any:
    """`dtype`, a name or what NumPy or torch take, as a dtype of the framework that `like` is of."""
    try:
        if isinstance(like, np.dtype):
            return numpy_dtype(dtype)
        if type(dtype) is type(like):
            return dtype
        return getattr(sys.modules["torch"], dtype if isinstance(dtype, str) else numpy_dtype(dtype).name)
    except (TypeError, AttributeError, ImportError) as error:
        raise TypeError(f"dtype = {dtype!r}, must name one of {', '.join(_FLOATS)}") from error


def _broadcast(geometry: Geometry, name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides over `shape`: dimensions stand under its last ones, 0 where an extent of 1 is repeated."""
    extents, _, dtype = geometry
    strides = element_strides(dtype, geometry[0], geometry[1], name)
    missing = len(shape) - len(extents)
    fits = missing >= 0 and all(own in (1, all_) for own, all_ in zip(extents, shape[missing:]))
    if not fits or extents[-1:] != shape[-1:]:
        raise ValueError(
            f"{name} has shape {tuple(extents)}, must broadcast to {shape} with {shape[-1]} as its last extent"
        )
    return (0,) * missing + tuple(0 if own == 1 else stride for own, stride in zip(extents, strides))


def _broadcast_lengths(geometry: Geometry, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides over shape[:-1]: dimensions stand under its first ones, 0 where an extent of 1 is repeated."""
    extents, _, dtype = geometry
    strides = element_strides(dtype, geometry[0], geometry[1], "lengths")
    missing = len(shape) - 1 - len(extents)
    if missing < 0 or not all(own in (1, all_) for own, all_ in zip(extents, shape)):
        raise ValueError(
            f"lengths has shape {tuple(extents)}, must have the first dimensions of {shape[:-1]}, or 1 in place of any"
        )
    return tuple(0 if own == 1 else stride for own, stride in zip(extents, strides)) + (0,) * missing


def address_past(pointers: tuple[int | None, ...], geometries: tuple[Geometry | None, ...]) -> int:
    """An address past all that the arrays span, and aligned as that of a new one: to plan for one that is not there."""
    end = 0
    for pointer, geometry in zip(pointers, geometries):
        if pointer is not None and geometry is not None:
            shape, strides, dtype = geometry
            in_elements = element_strides(dtype, shape, strides, "x")
            reach = sum(max(stride, 0) * max(extent - 1, 0) for extent, stride in zip(shape, in_elements))
            end = max(end, pointer + (reach + 1) * element_type(dtype, "x")[1])
    return (end + 255) // 256 * 256
