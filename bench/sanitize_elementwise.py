# SPDX-License-Identifier: Apache-2.0
"""Small elementwise calls on every kernel, layout and element type, for compute-sanitizer as sanitizing.py says."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator

import numpy as np
import sanitizing

CASES = sanitizing.table_of("elementwise")
KERNELS = {case["mechanism"] for case in CASES}
KINDS = ("?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8")
Call = Callable[[np.ndarray, np.ndarray], np.ndarray]
OPERATIONS: dict[str, Call] = {"maximum": np.maximum, "less": np.less}
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
        arguments += [tensor.first, tensor.strides, sanitizing.code_of(kind)]
    arguments += [len(shape), (ctypes.c_int64 * len(shape))(*shape)]
    arguments += [0.0] * (2 if arity == "unary" else 0)
    plan = sanitizing.run(library, arity, arguments)
    if not all([tensor.is_right() for tensor in (*inputs, out)]):
        raise RuntimeError(f"wrong: {operation} {kinds} {shape} {operands}\n{plan}")
    return plan


def cases() -> Iterator[tuple[str, list[str], list, list]]:
    for case in CASES:
        shape, operands = case["shape"], case["operands"]
        for kind in KINDS if "big" not in case else ["f2", "f8"]:
            yield "maximum", [kind, kind, kind], shape, operands
            yield "less", ["?", kind, kind], shape, operands
        for source, target in COPIES:
            yield "copy", [target, source], shape, [operands[0], operands[2]]


if __name__ == "__main__":
    sanitizing.run_all(run_case, (cases(), KERNELS))
