# SPDX-License-Identifier: Apache-2.0
"""Random calls of flowk_permute, flowk_batch_transpose and flowk_permute_convert."""

from __future__ import annotations

import random

import numpy as np
from campaign_case import DTYPE_CODES, Case, Int32s, Outputs
from campaign_shapes import (
    any_strides,
    chance,
    contiguous,
    given_pointer,
    given_strides,
    separate_strides,
    shape,
    tensor,
)
from permute_convert_cases import CONVERTIBLE, INTEGERS, converted, dtype_of, values_of

ALL_DTYPES = tuple(DTYPE_CODES)
SCALES = (1.0, 1.0, 0.5, -3.0, 1 / 255, 0.0, -0.0, 1e-3, 448.0, 1e30, 2.0**-149, 1e-200)


def permute_case(r: random.Random, room: int = 0) -> Case:
    extents = shape(r, room=room)
    axes = list(range(len(extents)))
    if chance(r, 85):
        r.shuffle(axes)
    dtype = r.choice(ALL_DTYPES)
    out_extents = tuple(extents[axis] for axis in axes)
    src = tensor(r, dtype, extents, any_strides(r, extents))
    dst = tensor(r, dtype, out_extents, separate_strides(r, out_extents))

    def check(before: Outputs, after: Outputs) -> None:
        assert after["dst"].tobytes() == np.ascontiguousarray(before["src"].transpose(axes)).tobytes()

    arguments = {
        "src": given_pointer(r, src, src.is_empty),
        "src_strides": given_strides(r, src),
        "dst": given_pointer(r, dst, dst.is_empty),
        "dst_strides": given_strides(r, dst),
        "rank": len(extents),
        "shape": extents,
        "axes": Int32s(axes),
        "dtype": DTYPE_CODES[dtype],
    }
    return Case("flowk_permute", arguments, {"src": src, "dst": dst}, ("dst",), check)


def batch_transpose_case(r: random.Random, room: int = 0) -> Case:
    extents = (1, 1, 1, *shape(r, max_rank=3, room=room))[-3:]
    dtype = r.choice(ALL_DTYPES)
    out_extents = (extents[0], extents[2], extents[1])
    src = tensor(r, dtype, extents, contiguous(extents))
    dst = tensor(r, dtype, out_extents, contiguous(out_extents))

    def check(before: Outputs, after: Outputs) -> None:
        assert after["dst"].tobytes() == np.ascontiguousarray(before["src"].transpose(0, 2, 1)).tobytes()

    arguments = {
        "src": given_pointer(r, src, src.is_empty),
        "dst": given_pointer(r, dst, dst.is_empty),
        **dict(zip(("batch", "rows", "cols"), extents)),
        "dtype": DTYPE_CODES[dtype],
    }
    return Case("flowk_batch_transpose", arguments, {"src": src, "dst": dst}, ("dst",), check)


def permute_convert_case(r: random.Random, room: int = 0) -> Case:
    extents = shape(r, room=room)
    axes = list(range(len(extents)))
    if chance(r, 75):
        r.shuffle(axes)
    src_name, dst_name = r.choice(CONVERTIBLE), r.choice(CONVERTIBLE)
    scale, seed = r.choice(SCALES), r.randrange(2**32)
    out_extents = tuple(extents[axis] for axis in axes)

    def values(shape: tuple[int, ...]) -> np.ndarray:
        return values_of(src_name, int(np.prod(shape, dtype=np.int64)), seed).reshape(shape)

    src = tensor(r, dtype_of(src_name), extents, any_strides(r, extents), values)
    dst = tensor(r, dtype_of(dst_name), out_extents, separate_strides(r, out_extents))
    moves_bits = scale == 1 and (
        src_name == dst_name or ({src_name, dst_name} <= set(INTEGERS) and src.dtype.itemsize == dst.dtype.itemsize)
    )

    def check(before: Outputs, after: Outputs) -> None:
        x = np.array(before["src"].transpose(axes), order="C")
        expected = converted(x.reshape(-1), src_name, dst_name, scale).reshape(x.shape)
        assert_same(after["dst"], expected, any_nan=not moves_bits)

    arguments = {
        "src": given_pointer(r, src, src.is_empty),
        "src_strides": given_strides(r, src),
        "src_dtype": DTYPE_CODES[src.dtype],
        "dst": given_pointer(r, dst, dst.is_empty),
        "dst_strides": given_strides(r, dst),
        "dst_dtype": DTYPE_CODES[dst.dtype],
        "rank": len(extents),
        "shape": extents,
        "axes": Int32s(axes),
        "scale": scale,
    }
    return Case("flowk_permute_convert", arguments, {"src": src, "dst": dst}, ("dst",), check)


def assert_same(actual: np.ndarray, expected: np.ndarray, any_nan: bool = True) -> None:
    """Equal bits; with `any_nan` a NaN for a NaN."""
    expected = expected.astype(actual.dtype, copy=False)
    bits, wanted = (np.array(array, order="C").reshape(-1) for array in (actual, expected))
    wrong = (bits.view(np.uint8) != wanted.view(np.uint8)).reshape(bits.size, bits.itemsize).any(axis=1)
    if any_nan and actual.dtype.kind not in "biu" and wrong.any():
        with np.errstate(invalid="ignore"):  # raised by ml_dtypes' isnan
            wrong &= ~(np.isnan(bits) & np.isnan(wanted))
    at = np.flatnonzero(wrong)[:8]
    assert at.size == 0, f"{wrong.sum()} of {wrong.size} are wrong at {at}: {bits[at]} in place of {wanted[at]}"
