# SPDX-License-Identifier: Apache-2.0
"""Small elementwise calls on every kernel, layout and element type, for compute-sanitizer:
`compute-sanitizer --tool memcheck|racecheck|initcheck|synccheck python bench/sanitize_elementwise.py`.

Fails if a result is wrong or a kernel is not reached. Each tensor is an allocation of its own, of its exact size.
"""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from cuda.bindings import runtime as cudart

sys.path.insert(0, str(Path(__file__).parents[1]))
from pyflowk._native import library as _library

CASES = json.loads((Path(__file__).parents[1] / "tests/cases/elementwise_cases.json").read_text())
KERNELS = {case["mechanism"] for case in CASES}
CODES = {
    "?": 1, "i1": 2, "i2": 3, "i4": 4, "i8": 5, "u1": 6, "u2": 7, "u4": 8, "u8": 9, "f2": 10, "f4": 12, "f8": 13,
}  # fmt: skip
Call = Callable[[np.ndarray, np.ndarray], np.ndarray]
OPERATIONS: dict[str, Call] = {"max": np.maximum, "less": np.less}
COPIES = [("f4", "f2"), ("f2", "f4"), ("f8", "f4"), ("u1", "f4"), ("f4", "u1"), ("i8", "i4"), ("i2", "f8"), ("?", "i4")]


def check(result: tuple) -> object:
    if int(result[0]) != 0:
        raise RuntimeError(result[0])
    return result[1] if len(result) > 1 else None


class Tensor:
    """A view of an array in host memory and the same bytes in device memory."""

    def __init__(self, kind: str, shape: list[int], operand: dict, seed: int) -> None:
        strides, lead = operand.get("strides"), operand.get("lead_elements", 0)
        itemsize = np.dtype(kind).itemsize
        if strides is None:
            strides = tuple(int(np.prod(shape[d + 1 :])) for d in range(len(shape)))
        reaches = [(n - 1) * s for n, s in zip(shape, strides)]
        span = lead + 1 + sum(map(abs, reaches))
        lead -= sum(min(reach, 0) for reach in reaches)
        self.host = np.random.default_rng(seed).integers(0, 2 if kind == "?" else 100, span).astype(kind)
        self.view = np.lib.stride_tricks.as_strided(self.host[lead:], shape, [s * itemsize for s in strides])
        self.device = int(check(cudart.cudaMalloc(self.host.nbytes)))
        self.arguments = (self.device + lead * itemsize, (ctypes.c_int64 * len(shape))(*strides), CODES[kind])
        direction = cudart.cudaMemcpyKind.cudaMemcpyHostToDevice
        check(cudart.cudaMemcpy(self.device, self.host.ctypes.data, self.host.nbytes, direction))

    def fetch(self) -> None:
        direction = cudart.cudaMemcpyKind.cudaMemcpyDeviceToHost
        check(cudart.cudaMemcpy(self.host.ctypes.data, self.device, self.host.nbytes, direction))
        check(cudart.cudaFree(self.device))


def operation_of(library: ctypes.CDLL, arity: str, name: str) -> int:
    name_of = getattr(library, f"flowk_{arity}_op_name")
    value = 1
    while name_of(value) != name.encode():
        value += 1
    return value


def run_case(library: ctypes.CDLL, operation: str, kinds: list[str], shape: list, operands: list) -> str:
    arity = "unary" if operation == "copy" else "binary"
    inputs = [Tensor(kind, shape, operand, k) for k, (kind, operand) in enumerate(zip(kinds[1:], operands[1:]))]
    out = Tensor(kinds[0], shape, operands[0], 7)
    if operation == "copy":
        expected = inputs[0].view.astype(kinds[0])
    else:
        expected = OPERATIONS[operation](inputs[0].view, inputs[1].view)
    arguments: list = [operation_of(library, arity, operation)]
    for tensor in (*inputs, out):
        arguments += tensor.arguments
    arguments += [len(shape), (ctypes.c_int64 * len(shape))(*shape)]
    arguments += [0.0] * (2 if arity == "unary" else 0)
    text = ctypes.create_string_buffer(2048)
    explained = getattr(library, f"flowk_{arity}_explain")(*arguments, text, len(text))
    statuses = [explained, getattr(library, f"flowk_{arity}")(*arguments, None)]
    if statuses != [0, 0]:
        raise RuntimeError(library.flowk_last_error())
    check(cudart.cudaDeviceSynchronize())
    for tensor in (*inputs, out):
        tensor.fetch()
    if not np.array_equal(out.view, expected):
        raise RuntimeError(f"wrong: {operation} {kinds} {shape} {operands}\n{text.value.decode()}")
    return text.value.decode().split(":")[0]


def cases() -> Iterator[tuple[str, list[str], list, list]]:
    for case in CASES:
        shape, operands = case["shape"], case["operands"]
        for kind in CODES if "big" not in case else ["f8"]:
            yield "max", [kind, kind, kind], shape, operands
            yield "less", ["?", kind, kind], shape, operands
        for source, target in COPIES:
            yield "copy", [target, source], shape, [operands[0], operands[2]]


def main() -> None:
    library = _library.open_backend("cuda")
    reached = [run_case(library, *case) for case in cases()]
    if set(reached) != KERNELS:
        sys.exit(f"not reached: {sorted(KERNELS - set(reached))}, unknown: {sorted(set(reached) - KERNELS)}")
    print(f"{len(reached)} cases right, {len(KERNELS)} kernels reached")


if __name__ == "__main__":
    main()
