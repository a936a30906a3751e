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
Call = Callable[..., np.ndarray]
OPERATIONS: dict[str, Call] = {"maximum": np.maximum, "less": np.less}
# The gradients of activations, in float64. softplus_backward is the one that is not exact on integers.
GRADIENTS: dict[str, Call] = {
    "sigmoid_backward": lambda x, y: x * y * (1 - y),
    "tanh_backward": lambda x, y: x * (1 - y * y),
    "softplus_backward": lambda x, y: x / (1 + np.exp(-y)),
    "leaky_relu_backward": lambda x, y, z: np.where(y > 0, x, z * x),
    "elu_backward": lambda x, y, z: np.where(y > 0, x, x * z),
}
TERNARY = ("leaky_relu_backward", "elu_backward")
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
    arity = "unary" if operation == "copy" else "ternary" if operation in TERNARY else "binary"
    out, *inputs = (tensor_of(kind, shape, operand) for kind, operand in zip(kinds, operands))
    views = [tensor.view for tensor in inputs]
    if operation in GRADIENTS:
        with np.errstate(over="ignore"):
            out.view[...] = GRADIENTS[operation](*(view.astype(np.float64) for view in views))
    else:
        out.view[...] = views[0].astype(kinds[0]) if operation == "copy" else OPERATIONS[operation](*views)
    arguments: list = [operation_of(library, arity, operation)]
    for tensor, kind in zip((*inputs, out), (*kinds[1:], kinds[0])):
        arguments += [tensor.first, tensor.strides, sanitizing.code_of(kind)]
    arguments += [len(shape), (ctypes.c_int64 * len(shape))(*shape)]
    arguments += [0.0] * {"unary": 2, "binary": 0, "ternary": 1}[arity]
    plan = sanitizing.run(library, arity, arguments)
    is_exact = operation != "softplus_backward"
    if not is_exact:
        out.free()
    if not all([tensor.is_right() for tensor in (*inputs, *[out] * is_exact)]):
        raise RuntimeError(f"wrong: {operation} {kinds} {shape} {operands}\n{plan}")
    return plan


def cases() -> Iterator[tuple[str, list[str], list, list]]:
    for case in CASES:
        shape, operands = case["shape"], case["operands"]
        for kind in KINDS if "big" not in case else ["f2", "f8"]:
            yield "maximum", [kind, kind, kind], shape, operands
            yield "less", ["?", kind, kind], shape, operands
        for operation in GRADIENTS if "big" not in case else ():
            for kind in ("f2", "f4"):
                inputs = operands[1:] + operands[2:] * (operation in TERNARY)
                yield operation, [kind] * (1 + len(inputs)), shape, [operands[0], *inputs]
        for source, target in COPIES:
            yield "copy", [target, source], shape, [operands[0], operands[2]]


if __name__ == "__main__":
    sanitizing.run_all(run_case, (cases(), KERNELS))
