# SPDX-License-Identifier: Apache-2.0
"""Small cases for every softmax kernel, type and mask, and for clusters, with compute-sanitizer:
`compute-sanitizer --tool memcheck|racecheck|initcheck|synccheck python bench/sanitize_softmax.py
[--portable-clusters] [WORD ...]`.

Fails if a result is wrong or a kernel is not reached. Each tensor is one allocation of its exact size. With words, such
as `float16 1x32768`, it runs only the cases whose name has all of them and does not ask for every kernel.

racecheck takes half a minute per case of persistent_rows: give it words. synccheck needs --portable-clusters, which
leaves out clusters of 16 blocks: the synccheck of CUDA 13.0 ends with an illegal memory access in every such cluster
with an mbarrier, even if its threads only wait for one arrival of their own block.
"""

from __future__ import annotations

import ctypes
import re
import sys
from pathlib import Path

import numpy as np
from cuda.bindings import runtime as cudart

sys.path.insert(0, str(Path(__file__).parents[1]))
from pyflowk._native import abi as _abi
from pyflowk._native import library as _library

KERNELS = {
    "row_in_registers",
    "row_in_shared",
    "split_row",
    "staged_rows",
    "two_pass_row",
    "rows_by_vectors",
    "rows_in_lanes",
    "persistent_rows",
}
# NumPy type, number, and the largest error in units in the last place: float32 arithmetic and one rounding.
TYPES = {"float16": (np.float16, 10, 0.51), "float32": (np.float32, 12, 4.0), "float64": (np.float64, 13, 8.0)}
DTYPE_BOOL, DTYPE_INT32 = 1, 4
# rows, columns: as few as the kernels and clusters need, because a tool may take a microsecond per access
SHAPES = [
    (130, 8), (70, 32), (33, 77), (33, 100), (9, 128), (5, 333), (3, 1000), (3, 1001), (2, 4096), (1, 8193),
    (3, 16384), (1, 32768), (200, 32768), (1, 50257), (2, 131072), (1, 262144),
    (9, 262144), (1, 1 << 20),
]  # fmt: skip
KINDS = ["plain", "dense", "lengths", "causal", "bias", "log", "to float32", "backward", "backward of lengths"]
# kind, type, rows, columns: persistent_rows with three rows per cluster. Rows exchange their values through two places
# alternately, so that a value written too early shows at the third row. An H200 has 15 clusters of 8 blocks at a time
# (the first two cases) or 7 of 16; shared memory does not hold the rows of the last two. Rows are as short as possible.
PERSISTENT = [
    ("log", "float16", 41, 327689), ("backward", "float32", 41, 131076), ("plain", "float32", 19, 327684),
    ("plain", "float32", 19, 917509), ("backward", "float32", 19, 458757),
]  # fmt: skip


def check(result: tuple) -> object:
    if int(result[0]) != 0:
        raise RuntimeError(result[0])
    return result[1] if len(result) > 1 else None


class DeviceCopy:
    """A host array in device memory of its exact size."""

    def __init__(self, host: np.ndarray) -> None:
        self.host = np.ascontiguousarray(host)
        self.pointer = int(check(cudart.cudaMalloc(self.host.nbytes)))
        kind = cudart.cudaMemcpyKind.cudaMemcpyHostToDevice
        check(cudart.cudaMemcpy(self.pointer, self.host.ctypes.data, self.host.nbytes, kind))

    def fetch(self) -> np.ndarray:
        kind = cudart.cudaMemcpyKind.cudaMemcpyDeviceToHost
        check(cudart.cudaMemcpy(self.host.ctypes.data, self.pointer, self.host.nbytes, kind))
        check(cudart.cudaFree(self.pointer))
        return self.host


def softmax64(z: np.ndarray, unmasked: np.ndarray) -> np.ndarray:
    z = np.where(unmasked, z, -np.inf)
    largest = z.max(-1, keepdims=True)
    p = np.exp(z - np.where(np.isfinite(largest), largest, 0))
    total = p.sum(-1, keepdims=True)
    return p / np.where(total > 0, total, 1)


def run_case(library: ctypes.CDLL, most_blocks: int, kind: str, type_name: str, rows: int, columns: int) -> str:
    """Runs a case unless its clusters have more than most_blocks blocks, checks the result and returns the plan."""
    dtype, code, _ = TYPES[type_name]
    out_dtype, out_code, bound = TYPES["float32"] if kind == "to float32" else TYPES[type_name]
    draw = np.random.default_rng(columns)
    x = draw.normal(0, 2, (rows, columns)).astype(dtype)
    unmasked = np.ones(x.shape, bool)
    mask = _abi.SoftmaxMask(struct_bytes=ctypes.sizeof(_abi.SoftmaxMask))
    copies = []

    def put(host: np.ndarray) -> int:
        copies.append(DeviceCopy(host))
        return copies[-1].pointer

    bias = np.zeros(x.shape, dtype)
    if kind == "dense":
        unmasked = draw.random(x.shape) > 0.3
        mask.dense = put(~unmasked)
    if "lengths" in kind:
        lengths = draw.integers(0, columns + 1, rows).astype(np.int32)
        mask.lengths, mask.lengths_dtype = put(lengths), DTYPE_INT32
        unmasked = np.arange(columns) < lengths[:, None]
    if kind == "causal":
        mask.causal = 1
        unmasked = np.arange(columns) <= np.arange(rows)[:, None] + columns - rows
    if kind == "bias":
        bias = draw.normal(0, 1, x.shape).astype(dtype)
        mask.bias, mask.bias_dtype = put(bias), code
    is_backward = kind.startswith("backward")
    y = softmax64(draw.normal(0, 2, x.shape), unmasked).astype(dtype)
    exact_x, exact_y = x.astype(np.float64), y.astype(np.float64)
    if is_backward:
        expected = 0.5 * exact_y * (exact_x - (exact_x * exact_y).sum(-1, keepdims=True))
        scale_of_error = np.abs(exact_y).max(-1, keepdims=True) * 4
    else:
        z = 0.5 * exact_x + bias.astype(np.float64)
        expected = softmax64(z, unmasked)
        scale_of_error = expected.max(-1, keepdims=True)
        if kind == "log":
            expected = z - z.max(-1, keepdims=True)
            expected -= np.log(np.exp(expected).sum(-1, keepdims=True))
            scale_of_error = np.abs(expected).max(-1, keepdims=True)
    out = DeviceCopy(np.full(x.shape, np.nan, out_dtype))
    inputs = (put(x), None) + ((put(y), None) if is_backward else ())
    shape = (ctypes.c_int64 * 2)(rows, columns)
    arguments = (*inputs, code, out.pointer, None, out_code, 2, shape, 0.5, ctypes.addressof(mask), int(kind == "log"))
    text = ctypes.create_string_buffer(2048)
    function = "flowk_masked_softmax_backward" if is_backward else "flowk_masked_softmax"
    statuses = [getattr(library, function + "_explain")(*arguments, text, len(text))]
    blocks = re.search(r"threads of a block, (\d+) blocks", text.value.decode())
    if blocks and int(blocks[1]) > most_blocks:
        return text.value.decode()
    statuses.append(getattr(library, function)(*arguments, None))
    if statuses != [0, 0]:
        raise RuntimeError(library.flowk_last_error())
    check(cudart.cudaDeviceSynchronize())
    actual = out.fetch().astype(np.float64)
    for copy in copies:
        copy.fetch()
    allowed = bound * np.spacing(np.maximum(scale_of_error, 1e-30).astype(out_dtype)).astype(np.float64)
    if kind == "bias":  # the sum is rounded, which is an error of the exponent
        rounding = np.finfo(np.float64 if dtype is np.float64 else np.float32).eps
        allowed = allowed + rounding * np.abs(z).max(-1, keepdims=True) * expected
    if not (np.abs(actual - expected) <= allowed).all():
        worst = (np.abs(actual - expected) / allowed).max()
        raise RuntimeError(f"{worst} times the bound: {kind} {type_name} {rows}x{columns}\n{text.value.decode()}")
    return text.value.decode()


def main() -> None:
    library = _library.open_backend("cuda")
    cases = [(kind, name, *shape) for shape in SHAPES for name in TYPES for kind in KINDS]
    # From float16 only, and not the longest: racecheck would take seconds.
    cases = [case for case in cases if case[0] != "to float32" or (case[1] == "float16" and case[3] <= 8193)]
    cases += PERSISTENT
    words = [word for word in sys.argv[1:] if word != "--portable-clusters"]
    most_blocks = 8 if "--portable-clusters" in sys.argv else 16
    cases = [case for case in cases if all(word in f"{case[0]} {case[1]} {case[2]}x{case[3]}" for word in words)]
    plans = [run_case(library, most_blocks, *case) for case in cases]
    missed = [case for case, plan in zip(cases, plans) if case in PERSISTENT and "persistent_rows" not in plan]
    if missed:
        sys.exit(f"not by persistent_rows: {missed}")
    reached = {plan.split(":")[0] for plan in plans}
    if not words and reached != KERNELS:
        sys.exit(f"not reached: {sorted(KERNELS - reached)}, unknown: {sorted(reached - KERNELS)}")
    clusters = sum(re.search(r"threads of a block, \d+ blocks", plan) is not None for plan in plans)
    print(f"{len(plans)} cases right, {clusters} of them in clusters, kernels: {', '.join(sorted(reached))}")


if __name__ == "__main__":
    main()
