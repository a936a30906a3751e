# SPDX-License-Identifier: Apache-2.0
"""A small case for every kernel of permute and every element size, with conversion too, for compute-sanitizer:
`compute-sanitizer --tool memcheck|racecheck|initcheck|synccheck python bench/sanitize_permute.py`.

Fails if a result is wrong or a kernel is not reached. Each tensor is an allocation of its own, of its exact size.
"""

from __future__ import annotations

import ctypes
import json
import sys
from pathlib import Path

import numpy as np
from cuda.bindings import runtime as cudart

sys.path.insert(0, str(Path(__file__).parents[1]))
from pyflowk._native import library as _library

CASES = json.loads((Path(__file__).parents[1] / "tests/cases/permute_cases.json").read_text())
KERNELS = {case["mechanism"] for case in CASES}
CONVERT_KERNELS = KERNELS - {"copy_shifted_rows", "copy_reversed_rows", "byte_tile"}
CONVERT_PAIRS = [
    ("f4", "f2"), ("f2", "f4"), ("u1", "f2"), ("f4", "i1"), ("f2", "i2"), ("i1", "u1"),
    ("f8", "f4"), ("i4", "f8"), ("f8", "u1"), ("f8", "f8"), ("u2", "i4"),
]  # fmt: skip
DTYPES = {"i1": 2, "i2": 3, "i4": 4, "u1": 6, "u2": 7, "f2": 10, "f4": 12, "f8": 13}
# Those of 8 and 16 bytes are complex: they may lie at half their size.
TYPE_OF_SIZE = {1: 6, 2: 7, 4: 8, 8: 16, 16: 17}


def check(result: tuple) -> object:
    if int(result[0]) != 0:
        raise RuntimeError(result[0])
    return result[1] if len(result) > 1 else None


class Side:
    """One side of a case in host and device memory: `lead_bytes`, then the span of the strides and not a byte more."""

    def __init__(self, shape: list, strides: list | None, dtype: np.dtype, lead_bytes: int, draw: bool) -> None:
        strides = strides or [int(np.prod(shape[d + 1 :])) for d in range(len(shape))]
        reaches = [(n - 1) * s for n, s in zip(shape, strides)]
        count, first = 1 + sum(map(abs, reaches)), -sum(min(reach, 0) for reach in reaches)
        self.host = np.zeros(lead_bytes + count * dtype.itemsize, np.uint8)
        elements = self.host[lead_bytes:]
        values = np.random.default_rng(1)
        if draw and dtype.kind == "V":
            elements[...] = values.integers(0, 256, elements.size, dtype=np.uint8)
        elif draw:
            elements[...] = values.integers(0, 120, count).astype(dtype).view(np.uint8)
        offset = lead_bytes + first * dtype.itemsize
        self.view = np.ndarray(shape, dtype, self.host, offset, [s * dtype.itemsize for s in strides])
        self.memory = check(cudart.cudaMalloc(self.host.nbytes))
        self.pointer, self.strides = int(self.memory) + offset, (ctypes.c_int64 * len(shape))(*strides)
        kind = cudart.cudaMemcpyKind.cudaMemcpyHostToDevice
        check(cudart.cudaMemcpy(self.memory, self.host.ctypes.data, self.host.nbytes, kind))

    def fetch(self) -> bytes:
        """All bytes in device memory, which is freed."""
        out = np.empty_like(self.host)
        kind = cudart.cudaMemcpyKind.cudaMemcpyDeviceToHost
        check(cudart.cudaMemcpy(out.ctypes.data, self.memory, out.nbytes, kind))
        check(cudart.cudaFree(self.memory))
        return out.tobytes()


def run_case(library: ctypes.CDLL, case: dict, types: int | tuple[str, str]) -> str:
    """One call, permute() of elements of so many bytes or permute_convert() of two types; the name of its kernel."""
    shape, axes = case["shape"], case["axes"]
    names = (f"V{types}", f"V{types}") if isinstance(types, int) else types
    sides = []
    for side, dtype, extents in zip(("src", "dst"), map(np.dtype, names), (shape, [shape[axis] for axis in axes])):
        own_bytes = case["element_bytes"]  # leads are of elements, and of halves in a type that is of this size
        lead = case.get(f"{side}_lead_bytes", 0)
        lead = lead if dtype.itemsize == own_bytes else lead // own_bytes * dtype.itemsize
        sides.append(Side(extents, case.get(f"{side}_strides"), dtype, lead, side == "src"))
    src, dst = sides
    moved = src.view.transpose(axes)
    dst.view[...] = moved if isinstance(types, int) else moved.astype(np.float64) * 0.5
    rank = len(shape)
    geometry = (rank, (ctypes.c_int64 * rank)(*shape), (ctypes.c_int32 * rank)(*axes))
    text = ctypes.create_string_buffer(2048)
    if isinstance(types, int):
        arguments = (src.pointer, src.strides, dst.pointer, dst.strides, *geometry, TYPE_OF_SIZE[types])
        call, explain = library.flowk_permute, library.flowk_permute_explain
    else:
        codes = [DTYPES[name] for name in types]
        arguments = (src.pointer, src.strides, codes[0], dst.pointer, dst.strides, codes[1], *geometry, 0.5)
        call, explain = library.flowk_permute_convert, library.flowk_permute_convert_explain
    statuses = [explain(*arguments, text, len(text)), call(*arguments, None)]
    if statuses != [0, 0]:
        raise RuntimeError(library.flowk_last_error())
    check(cudart.cudaDeviceSynchronize())
    src.fetch()
    if dst.fetch() != dst.host.tobytes():
        raise RuntimeError(f"wrong: {case} {types}\n{text.value.decode()}")
    return text.value.decode().split(":")[0]


def calls() -> list[tuple[dict, int | tuple[str, str]]]:
    """Every case of the table with every type of those that it is for."""
    found: list = [
        (case, size) for case in CASES for size in (TYPE_OF_SIZE if "every_type" in case else [case["element_bytes"]])
    ]
    return found + [(case, pair) for case in CASES if "every_type" in case for pair in CONVERT_PAIRS]


def main() -> None:
    library = _library.open_backend("cuda")
    plans = [(types, run_case(library, case, types)) for case, types in calls()]
    reached = {plan for types, plan in plans if isinstance(types, int)}
    converted = {plan for types, plan in plans if not isinstance(types, int)}
    for found, kernels in ((reached, KERNELS), (converted, CONVERT_KERNELS)):
        if found != kernels:
            sys.exit(f"not reached: {sorted(kernels - found)}, unknown: {sorted(found - kernels)}")
    print(f"{len(plans)} cases right, {len(reached)} kernels reached")


if __name__ == "__main__":
    main()
