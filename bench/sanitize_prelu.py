# SPDX-License-Identifier: Apache-2.0
"""A small case for every kernel of PReLU and every type, for compute-sanitizer:
`compute-sanitizer --tool memcheck|racecheck|initcheck|synccheck python bench/sanitize_prelu.py`.

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

CASES = json.loads((Path(__file__).parents[1] / "tests/cases/prelu_cases.json").read_text())
KERNELS = {case["mechanism"] for case in CASES}
TYPES = {10: np.float16, 12: np.float32, 13: np.float64}


def check(result: tuple) -> object:
    if int(result[0]) != 0:
        raise RuntimeError(result[0])
    return result[1] if len(result) > 1 else None


class Memory:
    """An allocation that ends with `values`, `lead` elements after its start."""

    def __init__(self, values: np.ndarray, lead: int = 0) -> None:
        self.values = values
        self.num_bytes = max(1, values.nbytes + lead * values.itemsize)
        self.base = check(cudart.cudaMalloc(self.num_bytes))
        self.pointer = int(self.base) + lead * values.itemsize

    def upload(self) -> Memory:
        # What lies before the values in their first 16 bytes is read with them, and not used: no fault for initcheck.
        check(cudart.cudaMemset(self.base, 0, self.num_bytes))
        kind = cudart.cudaMemcpyKind.cudaMemcpyHostToDevice
        check(cudart.cudaMemcpy(self.pointer, self.values.ctypes.data, self.values.nbytes, kind))
        return self

    def fetch(self) -> np.ndarray:
        out = np.empty_like(self.values)
        kind = cudart.cudaMemcpyKind.cudaMemcpyDeviceToHost
        check(cudart.cudaMemcpy(out.ctypes.data, self.pointer, out.nbytes, kind))
        return out

    def free(self) -> None:
        check(cudart.cudaFree(self.base))


def run_case(library: ctypes.CDLL, case: dict, code: int) -> str:
    shape = (case["outer"], case["channels"], case["inner"])
    leads = [case.get(name, 0) for name in ("x_lead", "dy_lead", "out_lead")]
    dtype = TYPES[code]
    wide = np.float64 if code == 13 else np.float32
    generator = np.random.default_rng(1)
    x, dy = (generator.standard_normal(shape).astype(dtype) for _ in range(2))
    alpha = generator.standard_normal(shape[1]).astype(dtype)
    wide_x, wide_dy, alphas = x.astype(wide), dy.astype(wide), alpha.astype(wide)[None, :, None]
    y = np.where(wide_x > 0, wide_x, alphas * wide_x).astype(dtype)
    dx = np.where(wide_x > 0, wide_dy, alphas * wide_dy).astype(dtype)
    terms = np.where(wide_x > 0, 0.0, x.astype(np.float64) * dy.astype(np.float64))
    sizes = (*shape, code, code)
    num_bytes = ctypes.c_size_t()
    statuses = [library.flowk_prelu_backward_workspace_bytes(*sizes, ctypes.addressof(num_bytes))]
    inputs = [Memory(x, leads[0]).upload(), Memory(dy, leads[1]).upload(), Memory(alpha).upload()]
    outputs = [Memory(y, leads[2]), Memory(dx, leads[2]), Memory(alpha)]
    workspace = Memory(np.empty(num_bytes.value, np.uint8))
    px, pdy, palpha = (memory.pointer for memory in inputs)
    py, pdx, pdalpha = (memory.pointer for memory in outputs)
    text = ctypes.create_string_buffer(2048)
    statuses += [
        library.flowk_prelu(px, palpha, py, *sizes, None),
        library.flowk_prelu_backward_explain(pdy, px, palpha, pdx, pdalpha, *sizes, text, len(text)),
        library.flowk_prelu_backward(
            pdy, px, palpha, pdx, pdalpha, *sizes, workspace.pointer, ctypes.c_size_t(num_bytes.value), None
        ),
    ]
    if any(statuses):
        raise RuntimeError(library.flowk_last_error())
    check(cudart.cudaDeviceSynchronize())
    found_y, found_dx, found_dalpha = (memory.fetch() for memory in outputs)
    error = np.abs(found_dalpha.astype(np.float64) - terms.sum((0, 2)))
    bound = 1e-6 * np.abs(terms).sum((0, 2)) + float(np.finfo(dtype).eps) * np.abs(terms.sum((0, 2))) + 1e-7
    if found_y.tobytes() != y.tobytes() or found_dx.tobytes() != dx.tobytes() or (error > bound).any():
        raise RuntimeError(f"wrong: {shape} {leads} {dtype}\n{text.value.decode()}")
    for memory in (*inputs, *outputs, workspace):
        memory.free()
    return text.value.decode().split(":")[0]


def main() -> None:
    library = _library.open_backend("cuda")
    reached = {run_case(library, case, code) for case in CASES for code in TYPES}
    if reached != KERNELS:
        sys.exit(f"not reached: {sorted(KERNELS - reached)}, unknown: {sorted(reached - KERNELS)}")
    print(f"{len(CASES) * len(TYPES)} cases right, {len(reached)} kernels reached")


if __name__ == "__main__":
    main()
