# SPDX-License-Identifier: Apache-2.0
"""The arguments of the cross-entropy functions in C, except pointers, from shapes, strides and dtypes, checked."""

from __future__ import annotations

import functools
from ctypes import addressof, c_int32, c_int64, sizeof
from typing import Any, NamedTuple

from .._arguments import integer_in, number, shown
from .._arrays.adapters.base import Geometry, Signature
from .._arrays.dtypes import (
    contiguous_strides,
    dtype_name,
    element_strides,
    float_type,
    listed,
    type_of_elements,
    wrong_dtype,
)
from .._native.abi import CrossEntropyOptions, DType
from .._native.c_types import CrossEntropyOptionsPointer, Int64Pointer

TARGET_TYPES = (DType.INT32, DType.INT64)
_INT64_BOUNDS = (-(2**63), 2**63 - 1)


class Options(NamedTuple):
    """The members of flowk_cross_entropy_options in its order; vocab_size is None for the logits' own columns."""

    scale: float = 1.0
    softcap: float = 0.0
    label_smoothing: float = 0.0
    z_loss: float = 0.0
    ignore_index: int = -100
    vocab_start: int = 0
    vocab_size: int | None = None

    def struct(self) -> CrossEntropyOptions:
        return CrossEntropyOptions(sizeof(CrossEntropyOptions), *self[:-1], self.vocab_size or 0)


@functools.lru_cache(maxsize=4096, typed=True)
def _checked(**named: Any) -> Options:
    given = Options(**named)
    numbers = {name: number(getattr(given, name), name) for name in Options._fields[:4]}
    for name in ("softcap", "z_loss"):
        if not 0 <= numbers[name] < float("inf"):
            raise ValueError(f"{name} = {shown(numbers[name])}, must be finite and >= 0")
    if not 0 <= numbers["label_smoothing"] <= 1:
        raise ValueError(f"label_smoothing = {shown(numbers['label_smoothing'])}, must be in 0 ... 1")
    if not abs(numbers["scale"]) < float("inf"):
        raise ValueError(f"scale = {shown(numbers['scale'])}, must be finite")
    size = given.vocab_size
    return Options(
        **numbers,
        ignore_index=integer_in(given.ignore_index, "ignore_index", *_INT64_BOUNDS, "2**63 - 1"),
        vocab_start=integer_in(given.vocab_start, "vocab_start", 0, 2**62, "2**62"),
        vocab_size=None if size is None else integer_in(size, "vocab_size", 1, 2**62, "2**62"),
    )


def checked_options(**named: Any) -> Options:
    """The caller's options, equal for equal plans. ValueError or TypeError names an option that is wrong."""
    try:
        return _checked(**named)
    except (TypeError, ValueError):  # an option that cannot be hashed fails in the cache: the call below names it
        return _checked.__wrapped__(**named)


def result_type(code: DType) -> DType:
    """The type of the loss, for logits of type `code`."""
    return DType.FLOAT64 if code == DType.FLOAT64 else DType.FLOAT32


def check_logits(
    shape: tuple[int, ...], dtype: Any, targets_shape: tuple[int, ...], targets_dtype: Any, options: Options
) -> DType:
    """The type of the logits. ValueError or TypeError if they, the targets and the options do not fit together."""
    code = float_type(dtype, "logits")
    if not shape:
        raise ValueError("logits has no dimensions, must have >= 1")
    if targets_shape != shape[:-1]:
        raise ValueError(f"targets has shape {targets_shape}, must be {shape[:-1]}, that of logits without the last")
    check_targets(targets_dtype)
    end = options.vocab_start + shape[-1]
    if options.vocab_size is not None and options.vocab_size < end:
        raise ValueError(f"vocab_size = {options.vocab_size}, must be >= {end}, the end of the logits' columns")
    if code != DType.FLOAT64 and abs(options.scale) > 2.0**126:
        raise ValueError(f"scale = {options.scale}, must be within +-2**126 for logits of {dtype}")
    return code


def check_targets(dtype: Any) -> None:
    if type_of_elements(dtype) not in TARGET_TYPES:
        raise wrong_dtype("targets", dtype, listed(TARGET_TYPES))


def check_per_row(name: str, shape: tuple[int, ...], dtype: Any, rows: tuple[int, ...], code: DType) -> None:
    """ValueError or TypeError if an array is not one of `code` with an element per row."""
    if tuple(shape) != rows:
        raise ValueError(f"{name} has shape {tuple(shape)}, must be {rows}")
    if type_of_elements(dtype) != code:
        raise wrong_dtype(name, dtype, dtype_name(code))


class Arguments:
    """C values of a call. Their addresses are valid as long as this lives."""

    def __init__(self, shape: tuple[int, ...], options: Options) -> None:
        self._struct = options.struct()
        self._keep: list[Any] = []
        self.options = CrossEntropyOptionsPointer(addressof(self._struct))
        self.shape = c_int32(len(shape)), self._pointer(shape)

    def strides_of(self, geometry: Geometry, name: str) -> Int64Pointer:
        shape, strides, dtype = geometry
        return self._pointer(element_strides(dtype, shape, strides, name))

    def contiguous(self, shape: tuple[int, ...]) -> Int64Pointer:
        return self._pointer(contiguous_strides(shape, 1))

    def _pointer(self, numbers: tuple[int, ...]) -> Int64Pointer:
        self._keep.append((c_int64 * max(len(numbers), 1))(*numbers))
        return Int64Pointer(addressof(self._keep[-1]))


def copied_inputs(
    names: tuple[str, ...], signatures: tuple[Signature, ...], rows: int = 0
) -> dict[int, tuple[str, Geometry]]:
    """The inputs that on_copies() is to copy: those that are not contiguous. Input `rows` needs contiguous rows only;
    -1: there is no such input."""
    copied: dict[int, tuple[str, Geometry]] = {}
    for index, (name, signature) in enumerate(zip(names, signatures)):
        if isinstance(signature, tuple) and 0 not in signature[0]:
            shape, strides, dtype = signature
            if not (has_contiguous_rows if index == rows else is_contiguous)(signature, name):
                copied[index] = (name, (tuple(shape), tuple(strides), dtype))
    return copied


def has_contiguous_rows(geometry: Geometry, name: str) -> bool:
    shape, strides, dtype = geometry
    return not shape or shape[-1] <= 1 or element_strides(dtype, shape[-1:], strides[-1:], name) == (1,)


def is_contiguous(geometry: Geometry, name: str) -> bool:
    shape, strides, dtype = geometry
    packed = contiguous_strides(shape, 1)
    in_elements = element_strides(dtype, shape, strides, name)
    return 0 in shape or all(a == b or n == 1 for a, b, n in zip(in_elements, packed, shape))
