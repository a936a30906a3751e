# SPDX-License-Identifier: Apache-2.0
"""Small elementwise calls on every kernel, layout and element type, for compute-sanitizer:
`compute-sanitizer --tool memcheck|racecheck|initcheck|synccheck python bench/sanitize_elementwise.py`.

Fails if a result is wrong or a kernel is not reached. Each tensor is an allocation of its own, of its exact size.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from cuda.bindings import runtime as cudart

sys.path.insert(0, str(Path(__file__).parents[1]))
from pyflowk._native import library as _library

KERNELS = {"contiguous", "broadcast", "strided", "aligned_tiles", "shifted_tiles", "broadcast_rows"}
CODES = {
    "?": 1, "i1": 2, "i2": 3, "i4": 4, "i8": 5, "u1": 6, "u2": 7, "u4": 8, "u8": 9, "f2": 10, "f4": 12, "f8": 13,
}  # fmt: skip
# The shape of out, and each operand's strides in elements (None: C order) and elements before its first: out, x, y.
LAYOUTS: list[tuple[tuple[int, ...], list[tuple[tuple[int, ...] | None, int]]]] = [
    ((4096,), [(None, 0), (None, 0), (None, 0)]),
    ((1003,), [(None, 0), (None, 1), (None, 3)]),
    ((1003,), [(None, 3), (None, 3), ((0,), 0)]),
    ((37, 64), [(None, 0), (None, 0), ((0, 1), 0)]),
    ((37, 57), [(None, 1), (None, 0), ((0, 1), 1)]),
    ((37, 57), [(None, 0), (None, 0), ((1, 0), 0)]),
    ((90, 3), [(None, 0), (None, 0), ((0, 1), 0)]),
    ((5, 4099), [(None, 1), (None, 0), ((0, 1), 1)]),
    ((5, 9, 7), [(None, 1), ((0, 1, 0), 1), ((0, 7, 1), 0)]),
    ((7, 5, 6), [(None, 0), ((1, 0, 7), 0), (None, 1)]),
    ((20, 45), [((50, 1), 1), (None, 0), ((135, 3), 0)]),
    ((20, 45), [((90, 2), 0), (None, 0), (None, 1)]),
    ((64, 96), [(None, 0), (None, 0), ((1, 64), 0)]),
    ((144, 272), [(None, 0), ((1, 144), 0), ((1, 160), 0)]),
    ((2, 65, 97), [(None, 0), ((6305, 1, 65), 1), ((0, 1, 65), 0)]),
]
Call = Callable[[np.ndarray, np.ndarray], np.ndarray]
OPERATIONS: dict[str, Call] = {"max": np.maximum, "less": np.less}
COPIES = [("f4", "f2"), ("f2", "f4"), ("f8", "f4"), ("u1", "f4"), ("f4", "u1"), ("i8", "i4"), ("i2", "f8"), ("?", "i4")]


def check(result: tuple) -> object:
    if int(result[0]) != 0:
        raise RuntimeError(result[0])
    return result[1] if len(result) > 1 else None


class Tensor:
    """A view of an array in host memory and the same bytes in device memory."""

    def __init__(self, kind: str, shape: tuple[int, ...], layout: tuple, seed: int) -> None:
        strides, lead = layout
        itemsize = np.dtype(kind).itemsize
        if strides is None:
            strides = tuple(int(np.prod(shape[d + 1 :])) for d in range(len(shape)))
        span = lead + 1 + sum((n - 1) * s for n, s in zip(shape, strides))
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


def run_case(library: ctypes.CDLL, operation: str, kinds: list[str], shape: tuple, layouts: list) -> str:
    arity = "unary" if operation == "copy" else "binary"
    inputs = [Tensor(kind, shape, layout, k) for k, (kind, layout) in enumerate(zip(kinds[1:], layouts[1:]))]
    out = Tensor(kinds[0], shape, layouts[0], 7)
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
        raise RuntimeError(f"wrong: {operation} {kinds} {shape} {layouts}\n{text.value.decode()}")
    return text.value.decode().split(":")[0]


def cases() -> Iterator[tuple[str, list[str], tuple, list]]:
    for shape, layouts in LAYOUTS:
        for kind in CODES:
            yield "max", [kind, kind, kind], shape, layouts
            yield "less", ["?", kind, kind], shape, layouts
        for source, target in COPIES:
            yield "copy", [target, source], shape, [layouts[0], layouts[2]]
    # Enough elements for broadcast_rows: 264 of 8 x 512 packs, on 132 multiprocessors.
    yield "max", ["f8"] * 3, (2112, 1024), [(None, 0), ((1, 0), 0), ((0, 1), 0)]


def main() -> None:
    library = _library.open_backend("cuda")
    reached = [run_case(library, *case) for case in cases()]
    if set(reached) != KERNELS:
        sys.exit(f"not reached: {sorted(KERNELS - set(reached))}, unknown: {sorted(set(reached) - KERNELS)}")
    print(f"{len(reached)} cases right, {len(KERNELS)} kernels reached")


if __name__ == "__main__":
    main()
