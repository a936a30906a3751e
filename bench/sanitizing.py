# SPDX-License-Identifier: Apache-2.0
"""What the sanitize_*.py share: an operator's case table, allocations of exact sizes, and calls with their plans.

`compute-sanitizer --tool memcheck|racecheck|initcheck|synccheck python bench/sanitize_OP.py` runs small cases. It fails
if a result is wrong or a kernel is not reached. Each tensor is an allocation of its own, of its exact size.
"""

from __future__ import annotations

import ctypes
import json
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from cuda.bindings import runtime as cudart

sys.path.insert(0, str(Path(__file__).parents[1]))
from pyflowk._arrays.dtypes import numpy_dtype, type_of_elements
from pyflowk._native import library as _library

RANDOM = np.random.default_rng(1)


def table_of(op: str) -> list[dict[str, Any]]:
    """The rows of tests/cases/OP_cases.json."""
    return json.loads((Path(__file__).parents[1] / f"tests/cases/{op}_cases.json").read_text())


def code_of(dtype: Any) -> int:
    """flowk's type of a dtype of NumPy or ml_dtypes, or of its name."""
    return int(type_of_elements(numpy_dtype(dtype)))


def check(result: tuple) -> Any:
    if int(result[0]) != 0:
        raise RuntimeError(result[0])
    return result[1] if len(result) > 1 else None


class Memory:
    """One allocation that ends with the bytes of `host`, `lead_bytes` after its start. fetch() frees it."""

    def __init__(self, host: np.ndarray, lead_bytes: int = 0, *, upload: bool = True) -> None:
        self.host = np.ascontiguousarray(host)
        self._base = check(cudart.cudaMalloc(max(1, lead_bytes + self.host.nbytes)))
        self.pointer = int(self._base) + lead_bytes
        if lead_bytes:  # initcheck: kernels read them with the first 16 bytes of the values, and do not use them
            check(cudart.cudaMemset(self._base, 0, lead_bytes))
        if upload:
            kind = cudart.cudaMemcpyKind.cudaMemcpyHostToDevice
            check(cudart.cudaMemcpy(self.pointer, self.host.ctypes.data, self.host.nbytes, kind))

    def fetch(self) -> np.ndarray:
        out = np.empty_like(self.host)
        kind = cudart.cudaMemcpyKind.cudaMemcpyDeviceToHost
        check(cudart.cudaMemcpy(out.ctypes.data, self.pointer, out.nbytes, kind))
        self.free()
        return out

    def free(self) -> None:
        """Instead of fetch() if not every byte is written: reading the others is a fault for initcheck."""
        check(cudart.cudaFree(self._base))


class Strided(Memory):
    """A strided tensor of random values: `lead_bytes`, then the span of its strides and not a byte more. is_right()
    expects what was assigned to `view`."""

    def __init__(self, dtype: np.dtype, shape: Sequence[int], strides: Sequence[int] | None, lead_bytes: int) -> None:
        strides = strides or [int(np.prod(shape[d + 1 :])) for d in range(len(shape))]
        reaches = [(n - 1) * s for n, s in zip(shape, strides)]
        count, first = 1 + sum(map(abs, reaches)), -sum(min(reach, 0) for reach in reaches)
        if dtype.kind == "V":
            values = RANDOM.integers(0, 256, count * dtype.itemsize, dtype=np.uint8)
        else:
            values = RANDOM.integers(0, 2 if dtype.kind == "b" else 100, count).astype(dtype).view(np.uint8)
        super().__init__(np.concatenate([np.zeros(lead_bytes, np.uint8), values]))
        offset = lead_bytes + first * dtype.itemsize
        self.view = np.ndarray(shape, dtype, self.host, offset, [s * dtype.itemsize for s in strides])
        self.first, self.strides = self.pointer + offset, (ctypes.c_int64 * len(shape))(*strides)

    def is_right(self) -> bool:
        return bool(np.array_equal(self.fetch(), self.host))


def synchronize() -> None:
    check(cudart.cudaDeviceSynchronize())


def open_library() -> ctypes.CDLL:
    return _library.open_backend("cuda")


def plan_of(library: ctypes.CDLL, function: str, arguments: Iterable[Any]) -> str:
    """The plan of flowk_FUNCTION as text."""
    text = ctypes.create_string_buffer(2048)
    if getattr(library, f"flowk_{function}_explain")(*arguments, text, len(text)):
        raise RuntimeError(library.flowk_last_error())
    return text.value.decode()


def cluster_blocks(plan: str) -> int:
    """The blocks per cluster of a plan of softmax; 1 if there are no clusters."""
    found = re.search(r"threads of a block, (\d+) blocks", plan)
    return int(found[1]) if found else 1


def run(library: ctypes.CDLL, function: str, arguments: Iterable[Any], workspace: tuple[Any, ...] = ()) -> str:
    """Calls flowk_FUNCTION, waits for it, and returns its plan as text."""
    plan = plan_of(library, function, arguments)
    if getattr(library, f"flowk_{function}")(*arguments, *workspace, None):
        raise RuntimeError(library.flowk_last_error())
    synchronize()
    return plan


def require_all(plans: Iterable[str], kernels: set[str]) -> None:
    """Exits if the plans' kernels are not these."""
    reached = {plan.split(":")[0] for plan in plans}
    if reached != kernels:
        sys.exit(f"not reached: {sorted(kernels - reached)}, unknown: {sorted(reached - kernels)}")


def run_all(run_case: Callable[..., str], *parts: tuple[Iterable[tuple[Any, ...]], set[str]]) -> None:
    """Runs the cases of each part: run_case(library, *case) checks its results and returns its plan. The plans of a
    part must have its kernels."""
    library, num_cases = open_library(), 0
    for cases, kernels in parts:
        plans = [run_case(library, *case) for case in cases]
        require_all(plans, kernels)
        num_cases += len(plans)
    reached = set().union(*(kernels for _, kernels in parts))
    print(f"{num_cases} cases right, {len(reached)} kernels reached")
