# SPDX-License-Identifier: Apache-2.0
"""A small case for every kernel of permute and every element size, with conversion too, for compute-sanitizer:
`compute-sanitizer --tool memcheck|racecheck|initcheck|synccheck python bench/sanitize_permute.py`.

Fails if a result is wrong or a kernel is not reached. Each tensor is an allocation of its own, of its exact size.
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

import numpy as np
from cuda.bindings import runtime as cudart

sys.path.insert(0, str(Path(__file__).parents[1]))
from pyflowk._native import library as _library

KERNELS = {
    "copy_rows", "copy_shifted_rows", "copy_reversed_rows", "aligned_tile", "general_tile", "byte_tile", "strided_tile",
    "channels",
}  # fmt: skip
CONVERT_KERNELS = KERNELS - {"copy_shifted_rows", "copy_reversed_rows", "byte_tile"}
CONVERT_PAIRS = [
    ("f4", "f2"), ("f2", "f4"), ("u1", "f2"), ("f4", "i1"), ("f2", "i2"), ("i1", "u1"),
    ("f8", "f4"), ("i4", "f8"), ("f8", "u1"), ("f8", "f8"), ("u2", "i4"),
]  # fmt: skip
DTYPES = {"i1": 2, "i2": 3, "i4": 4, "u1": 6, "u2": 7, "f2": 10, "f4": 12, "f8": 13}
UNSIGNED = {1: 6, 2: 7, 4: 8, 8: 9, 16: 17}
# shape, axes, and the source's strides in elements (None: contiguous)
CASES = [
    ((4096,), (0,), None), ((1023,), (0,), None), ((8, 5, 64), (1, 0, 2), None),
    ((5, 7, 129), (1, 0, 2), None),
    ((96, 160), (1, 0), None), ((3, 96, 160), (0, 2, 1), None), ((97, 161), (1, 0), None), ((300, 75), (1, 0), None),
    ((3, 2048), (1, 0), None), ((2048, 3), (1, 0), None), ((2, 2048, 4), (0, 2, 1), None),
    ((2, 2, 2048), (0, 2, 1), None),
    ((3, 5, 7, 11, 4), (4, 2, 0, 3, 1), None), ((200, 5, 7), (0, 2, 1), None),
    ((2,) * 10, tuple(range(9, -1, -1)), None),
    ((64, 48), (1, 0), (200, 3)), ((7, 9, 5), (2, 0, 1), (90, 10, 2)), ((40, 64), (1, 0), (0, 1)),
    ((5, 300), (0, 1), (301, -1)), ((96, 160), (1, 0), (-160, 1)),
]  # fmt: skip


def check(result: tuple) -> object:
    if int(result[0]) != 0:
        raise RuntimeError(result[0])
    return result[1] if len(result) > 1 else None


def run_case(library: ctypes.CDLL, shape: tuple, axes: tuple, strides: tuple | None, itemsize: int) -> str:
    raw = np.random.default_rng(1).integers(0, 256, span_of(shape, strides) * itemsize, dtype=np.uint8)
    x = strided(raw.view(f"V{itemsize}"), shape, strides)
    return run(library, raw, strides, np.ascontiguousarray(x.transpose(axes)), shape, axes, UNSIGNED[itemsize])


def run_convert_case(
    library: ctypes.CDLL, shape: tuple, axes: tuple, strides: tuple | None, src_type: str, dst_type: str
) -> str:
    numbers = np.random.default_rng(1).integers(0, 120, span_of(shape, strides)).astype(src_type)
    scaled = strided(numbers, shape, strides).transpose(axes).astype(np.float64) * 0.5
    types = DTYPES[src_type], DTYPES[dst_type]
    return run(library, numbers, strides, np.ascontiguousarray(scaled.astype(dst_type)), shape, axes, types)


def span_of(shape: tuple, strides: tuple | None) -> int:
    return 1 + sum((n - 1) * abs(s) for n, s in zip(shape, strides)) if strides else int(np.prod(shape))


def lead_of(shape: tuple, strides: tuple | None) -> int:
    """Elements before the one with all indices 0: what negative strides reach."""
    return sum((n - 1) * max(-s, 0) for n, s in zip(shape, strides or (0,) * len(shape)))


def strided(host: np.ndarray, shape: tuple, strides: tuple | None) -> np.ndarray:
    if strides is None:
        return host.reshape(shape)
    first = host[lead_of(shape, strides) :]
    return np.lib.stride_tricks.as_strided(first, shape, [s * host.itemsize for s in strides])


def run(
    library: ctypes.CDLL,
    raw: np.ndarray,
    strides: tuple | None,
    expected: np.ndarray,
    shape: tuple,
    axes: tuple,
    types: int | tuple[int, int],
) -> str:
    """One call, permute() of a type or permute_convert() of two; the name of its kernel."""
    src, dst = check(cudart.cudaMalloc(raw.nbytes)), check(cudart.cudaMalloc(expected.nbytes))
    check(cudart.cudaMemcpy(src, raw.ctypes.data, raw.nbytes, cudart.cudaMemcpyKind.cudaMemcpyHostToDevice))
    rank = len(shape)
    longs, ints = ctypes.c_int64 * rank, ctypes.c_int32 * rank
    geometry = (rank, longs(*shape), ints(*axes))
    src_strides = longs(*strides) if strides else None
    x = int(src) + lead_of(shape, strides) * (raw.nbytes // span_of(shape, strides))
    text = ctypes.create_string_buffer(2048)
    if isinstance(types, tuple):
        arguments = (x, src_strides, types[0], int(dst), None, types[1], *geometry, 0.5)
        call, explain = library.flowk_permute_convert, library.flowk_permute_convert_explain
    else:
        arguments = (x, src_strides, int(dst), None, *geometry, types)
        call, explain = library.flowk_permute, library.flowk_permute_explain
    statuses = [explain(*arguments, text, len(text)), call(*arguments, None)]
    if statuses != [0, 0]:
        raise RuntimeError(library.flowk_last_error())
    check(cudart.cudaDeviceSynchronize())
    out = np.empty_like(expected)
    check(cudart.cudaMemcpy(out.ctypes.data, dst, out.nbytes, cudart.cudaMemcpyKind.cudaMemcpyDeviceToHost))
    check(cudart.cudaFree(src))
    check(cudart.cudaFree(dst))
    if out.tobytes() != expected.tobytes():
        raise RuntimeError(f"wrong: {shape} {axes} {strides} {types}\n{text.value.decode()}")
    return text.value.decode().split(":")[0]


def main() -> None:
    library = _library.open_backend("cuda")
    reached = {run_case(library, *case, itemsize) for case in CASES for itemsize in UNSIGNED}
    converted = {run_convert_case(library, *case, *pair) for case in CASES for pair in CONVERT_PAIRS}
    for found, kernels in ((reached, KERNELS), (converted, CONVERT_KERNELS)):
        if found != kernels:
            sys.exit(f"not reached: {sorted(kernels - found)}, unknown: {sorted(found - kernels)}")
    print(f"{len(CASES) * (len(UNSIGNED) + len(CONVERT_PAIRS))} cases right, {len(reached)} kernels reached")


if __name__ == "__main__":
    main()
