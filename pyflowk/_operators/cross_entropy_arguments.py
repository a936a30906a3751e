# SPDX-License-Identifier: Apache-2.0
"""The arguments of the cross-entropy functions in C, except pointers, from shapes, strides and dtypes, checked."""

from __future__ import annotations

from ctypes import sizeof
from typing import Any, NamedTuple

from .._arguments import integer_in, non_negative, number, shown
from .._arrays.adapters.base import Geometry
from .._arrays.dtypes import element_strides, float_type
from .._arrays.frameworks import cached
from .._native.abi import CrossEntropyOptions, DType
from .._native.c_types import CrossEntropyOptionsPointer, Int64Pointer, int64s
from .array_checks import check_type

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

    def pointer(self) -> CrossEntropyOptionsPointer:
        return CrossEntropyOptionsPointer.to(self.struct())


@cached(4096)
def checked_options(**named: Any) -> Options:
    """The caller's options, equal for equal plans. ValueError or TypeError names an option that is wrong."""
    given = Options(**named)
    numbers = {name: number(getattr(given, name), name) for name in Options._fields[:4]}
    for name in ("softcap", "z_loss"):
        non_negative(numbers[name], name)
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


def check_logits(
    shape: tuple[int, ...], dtype: Any, targets_shape: tuple[int, ...], targets_dtype: Any, options: Options
) -> DType:
    """The type of the logits. ValueError or TypeError if they, the targets and the options do not fit together."""
    code = float_type(dtype, "logits")
    if not shape:
        raise ValueError("logits has no dimensions, must have >= 1")
    if targets_shape != shape[:-1]:
        raise ValueError(f"targets has shape {targets_shape}, must be {shape[:-1]}, that of logits without the last")
    check_type("targets", targets_dtype, TARGET_TYPES)
    end = options.vocab_start + shape[-1]
    if options.vocab_size is not None and options.vocab_size < end:
        raise ValueError(f"vocab_size = {options.vocab_size}, must be >= {end}, the end of the logits' columns")
    if code != DType.FLOAT64 and abs(options.scale) > 2.0**126:
        raise ValueError(f"scale = {options.scale}, must be within +-2**126 for logits of {dtype}")
    return code


def c_strides(geometry: Geometry, name: str) -> Int64Pointer:
    """The strides of an array for C."""
    shape, strides, dtype = geometry
    return int64s(element_strides(dtype, shape, strides, name))
