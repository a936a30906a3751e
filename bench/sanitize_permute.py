# SPDX-License-Identifier: Apache-2.0
"""A small case for every kernel of permute and every element size, with conversion too, for compute-sanitizer as
sanitizing.py says."""

from __future__ import annotations

import ctypes

import numpy as np
import sanitizing

CASES = sanitizing.table_of("permute")
KERNELS = {case["mechanism"] for case in CASES}
CONVERT_KERNELS = KERNELS - {"copy_shifted_rows", "byte_tile"}
CONVERT_PAIRS = [
    ("f4", "f2"), ("f2", "f4"), ("u1", "f2"), ("f4", "i1"), ("f2", "i2"), ("i1", "u1"),
    ("f8", "f4"), ("i4", "f8"), ("f8", "u1"), ("f8", "f8"), ("u2", "i4"),
]  # fmt: skip
# Elements of 8 and 16 bytes are complex, because these may be aligned to half their size.
TYPE_OF_SIZE = {1: 6, 2: 7, 4: 8, 8: 16, 16: 17}


def run_case(library: ctypes.CDLL, case: dict, types: int | tuple[str, str]) -> str:
    """One call, permute() of elements of `types` bytes, or permute_convert() of two types; its plan."""
    shape, axes = case["shape"], case["axes"]
    names = (f"V{types}", f"V{types}") if isinstance(types, int) else types
    tensors = []
    for name, dtype, extents in zip(("src", "dst"), map(np.dtype, names), (shape, [shape[axis] for axis in axes])):
        own_bytes = case["element_bytes"]  # leads are of elements, and of halves in a type that is of this size
        lead = case.get(f"{name}_lead_bytes", 0)
        lead = lead if dtype.itemsize == own_bytes else lead // own_bytes * dtype.itemsize
        tensors.append(sanitizing.Strided(dtype, extents, case.get(f"{name}_strides"), lead))
    src, dst = tensors
    moved = src.view.transpose(axes)
    dst.view[...] = moved if isinstance(types, int) else moved.astype(np.float64) * 0.5
    rank = len(shape)
    geometry = (rank, (ctypes.c_int64 * rank)(*shape), (ctypes.c_int32 * rank)(*axes))
    if isinstance(types, int):
        arguments = (src.first, src.strides, dst.first, dst.strides, *geometry, TYPE_OF_SIZE[types])
        plan = sanitizing.run(library, "permute", arguments)
    else:
        codes = [sanitizing.code_of(name) for name in types]
        arguments = (src.first, src.strides, codes[0], dst.first, dst.strides, codes[1], *geometry, 0.5)
        plan = sanitizing.run(library, "permute_convert", arguments)
    if not src.is_right() or not dst.is_right():
        raise RuntimeError(f"wrong: {case} {types}\n{plan}")
    return plan


def moves() -> list[tuple[dict, int]]:
    """Every case of the table, with each of its element sizes."""
    return [
        (case, size) for case in CASES for size in (TYPE_OF_SIZE if "every_type" in case else [case["element_bytes"]])
    ]


def conversions() -> list[tuple[dict, tuple[str, str]]]:
    return [(case, pair) for case in CASES if "every_type" in case for pair in CONVERT_PAIRS]


if __name__ == "__main__":
    sanitizing.run_all(run_case, (moves(), KERNELS), (conversions(), CONVERT_KERNELS))
