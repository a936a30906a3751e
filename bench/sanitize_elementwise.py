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

sys.path.insert(0, str(Path(__file__).parent))
import sanitizing

CASES = sanitizing.table_of("elementwise")
KERNELS = {case["mechanism"] for case in CASES}
CODES = {
    "?": 1, "i1": 2, "i2": 3, "i4": 4, "i8": 5, "u1": 6, "u2": 7, "u4": 8, "u8": 9, "f2": 10, "f4": 12, "f8": 13,
}  # fmt: skip
Call = Callable[[np.ndarray, np.ndarray], np.ndarray]
OPERATIONS: dict[str, Call] = {"max": np.maximum, "less": np.less}
COPIES = [("f4", "f2"), ("f2", "f4"), ("f8", "f4"), ("u1", "f4"), ("f4", "u1"), ("i8", "i4"), ("i2", "f8"), ("?", "i4")]


def tensor_of(kind: str, shape: list[int], operand: dict) -> sanitizing.Strided:
    dtype = np.dtype(kind)
    return sanitizing.Strided(dtype, shape, operand.get("strides"), operand.get("lead_elements", 0) * dtype.itemsize)


def operation_of(library: ctypes.CDLL, arity: str, name: str) -> int:
    name_of = getattr(library, f"flowk_{arity}_op_name")
    value = 1
    while name_of(value) != name.encode():
        value += 1
    return value


def run_case(library: ctypes.CDLL, operation: str, kinds: list[str], shape: list, operands: list) -> str:
    arity = "unary" if operation == "copy" else "binary"
    out, *inputs = (tensor_of(kind, shape, operand) for kind, operand in zip(kinds, operands))
    views = [tensor.view for tensor in inputs]
    out.view[...] = views[0].astype(kinds[0]) if operation == "copy" else OPERATIONS[operation](*views)
    arguments: list = [operation_of(library, arity, operation)]
    for tensor, kind in zip((*inputs, out), (*kinds[1:], kinds[0])):
        arguments += [tensor.first, tensor.strides, CODES[kind]]
    arguments += [len(shape), (ctypes.c_int64 * len(shape))(*shape)]
    arguments += [0.0] * (2 if arity == "unary" else 0)
    plan = sanitizing.run(library, arity, arguments)
    if not all([tensor.is_right() for tensor in (*inputs, out)]):
        raise RuntimeError(f"wrong: {operation} {kinds} {shape} {operands}\n{plan}")
    return plan


def cases() -> Iterator[tuple[str, list[str], list, list]]:
    for case in CASES:
        shape, operands = case["shape"], case["operands"]
        for kind in CODES if "big" not in case else ["f2", "f8"]:
            yield "max", [kind, kind, kind], shape, operands
            yield "less", ["?", kind, kind], shape, operands
        for source, target in COPIES:
            yield "copy", [target, source], shape, [operands[0], operands[2]]


def main() -> None:
    library = sanitizing.open_library()
    plans = [run_case(library, *case) for case in cases()]
    sanitizing.require_all(plans, KERNELS)
    print(f"{len(plans)} cases right, {len(KERNELS)} kernels reached")


if __name__ == "__main__":
    main()
