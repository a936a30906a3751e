# SPDX-License-Identifier: Apache-2.0
"""Element types that permute converts, what every value becomes in each of them."""

from __future__ import annotations

import functools

import ml_dtypes
import numpy as np

INTEGERS = ("int8", "int16", "int32", "uint8", "uint16", "uint32")
FLOATS = ("float16", "bfloat16", "float32", "float64", "float8_e4m3fn", "float8_e5m2")
CONVERTIBLE = ("bool", *INTEGERS, *FLOATS)

# Pairs of every size on either side, computed in float32 and in float64.
PAIRS = (
    *(("float32", "float16"), ("float16", "float32"), ("float32", "bfloat16"), ("bfloat16", "float16")),
    *(("float32", "float8_e4m3fn"), ("float8_e5m2", "float32"), ("float16", "float8_e5m2")),
    *(("float8_e4m3fn", "float16"), ("int8", "float16"), ("uint8", "float32"), ("uint8", "int8")),
    *(("float32", "float32"), ("bool", "float8_e4m3fn"), ("float64", "float32"), ("float32", "float64")),
    *(("float64", "uint8"), ("int8", "float64"), ("float64", "float64"), ("float64", "bfloat16")),
    *(("int16", "float64"), ("int32", "float32"), ("float32", "int32"), ("int32", "int16")),
    *(("uint32", "uint8"), ("int8", "uint32"), ("uint16", "int32")),
)


def dtype_of(name: str) -> np.dtype:
    """NumPy's or ml_dtypes' type of this name."""
    return np.dtype(getattr(ml_dtypes, name) if hasattr(ml_dtypes, name) else name)


def values_of(name: str, count: int, seed: int = 0) -> np.ndarray:
    """`count` values of a type: its special ones first, then random bits (for half of them), then ordinary numbers."""
    draw = np.random.default_rng([seed, count])
    dtype = dtype_of(name)
    if name == "bool":
        return draw.integers(0, 2, count).astype(bool)
    bits = draw.integers(0, 256, count * dtype.itemsize, dtype=np.uint8).view(dtype)
    if name in INTEGERS:
        low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
        special = np.array([0, 1, high, high - 1, low, low + 1, high // 2], dtype)
        ordinary = draw.integers(max(low, -300), min(high, 300), count).astype(dtype)
    else:
        with np.errstate(all="ignore"):
            special = np.array(
                [0.0, -0.0, 1.0, np.nan, np.inf, -np.inf, 448, 464, 465, 57344, 61440, 65504, 65519, 65520,
                 3.4028235e38, 1e-3, 2**-9, 2**-10, 3 * 2**-10, 2**-24, 2**-25, 2**-149, 1e300, 127.5, 128, -128.9,
                 255.99, 256, -0.9, 2147483648.0, 4294967295.0, 4294967296.0, -2147483649.0,
                 1 + 2**-11, 1 + 3 * 2**-11, 1 + 2**-8,
                 1 + 2**-11 + 2**-40, 1 + 2**-8 + 2**-45, 1.0625, 1.1875, 1.0625 + 2**-30],
                np.float64,
            ).astype(dtype)  # fmt: skip
            ordinary = (draw.standard_normal(count) * 100).astype(dtype)
    values = np.where(np.arange(count) % 2 == 0, bits, ordinary)
    values[: special.size] = special[:count]
    return values


def computed_in(src: str, dst: str) -> type:
    """The type of the product."""
    wide = ("float64", "int32", "uint32")
    return np.float64 if src in wide or dst in wide else np.float32


def converted(values: np.ndarray, src: str, dst: str, scale: float = 1.0) -> np.ndarray:
    """Each value as flowk.h says that it is converted."""
    if scale == 1 and src == dst:
        return values
    if scale == 1 and dst in INTEGERS and src in (*INTEGERS, "bool"):
        return values.astype(dst)  # NumPy wraps as C does
    compute = computed_in(src, dst)
    with np.errstate(all="ignore"):
        product = values.astype(compute) * compute(scale)
        if dst in ("float32", "float64"):
            return product.astype(dst)  # rounded once, by the hardware
    wide = product.astype(np.float64)  # exact
    if dst == "bool":
        return wide != 0
    if dst in INTEGERS:
        bounds = np.iinfo(dst)
        return np.clip(np.trunc(np.nan_to_num(wide, nan=0.0)), bounds.min, bounds.max).astype(dst)
    return rounded_to_narrow_float(wide, dst)


@functools.cache
def _magnitudes(name: str) -> np.ndarray:
    """The finite values >= 0 of a float of 8 or 16 bits, ascending: those of the bit patterns from 0 on."""
    dtype = dtype_of(name)
    unsigned = np.dtype(f"u{dtype.itemsize}")
    with np.errstate(invalid="ignore"):
        patterns = np.arange(2 ** (8 * dtype.itemsize - 1)).astype(unsigned).view(dtype).astype(np.float64)
    return patterns[: np.flatnonzero(~np.isfinite(patterns))[0]]


def rounded_to_narrow_float(values: np.ndarray, name: str) -> np.ndarray:
    """float64 to a float of 8 or 16 bits, to the nearest of the values that it has, ties to the even bit pattern; in
    one step, where NumPy's casts to ml_dtypes' types go by way of float32."""
    dtype = dtype_of(name)
    table = _magnitudes(name)
    magnitude = np.minimum(np.abs(np.nan_to_num(values, nan=0.0)), 1e300)
    above = np.clip(np.searchsorted(table, magnitude), 1, table.size - 1)
    low, high = table[above - 1], table[above]
    middle = low + (high - low) / 2  # exact
    pattern = np.where((magnitude > middle) | ((magnitude == middle) & (above % 2 == 0)), above, above - 1)
    if "float8" not in name:
        # Past the largest value as far as half a step, the next bit pattern: infinity.
        end = table[-1] + (table[-1] - table[-2]) / 2
        pattern = np.where(magnitude >= end, table.size, pattern)
    unsigned = np.dtype(f"u{dtype.itemsize}")
    sign = np.signbit(values).astype(np.uint64) << np.uint64(8 * dtype.itemsize - 1)
    result = (pattern.astype(np.uint64) | sign).astype(unsigned).view(dtype)
    result[np.isnan(values)] = np.nan
    return result
