# SPDX-License-Identifier: Apache-2.0
"""Elementwise operations: every type and operation at 256 MB, casts, broadcasting, transposed operands, small sizes."""

from __future__ import annotations

import ctypes
import math
import random
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

from .._arrays.dtypes import numpy_dtype
from .._native.operations import OPERATIONS, BinaryOp, TernaryOp, UnaryOp
from .elementwise_formulas import LOSSES, PARAMETERS, numpy_formula, torch_formula
from .measure import log_uniform
from .tensors import BYTES, FLOATS, NAMES, Array, Tensor, checked_kinds, longs
from .work import Work, by

SETS = {
    "anchors": "four common calls, in three sizes",
    "types": "every type, 256 MB",
    "unary, binary, ternary": "every operation",
    "casts": "every pair of widths",
    "misaligned": "elements past an aligned address",
    "broadcast": "a row, a column, a scalar",
    "transposed": "operands that lie transposed",
    "slices": "halves of rows, as a gated unit has them",
    "small": "4 to 32 MB",
    "jit": "pyflowk.ElementwiseKernel beside the built-in operation",
}
RESULT_SETS = {
    "anchors": "torch", "types": "torch,compile", "casts": "torch", "broadcast": "torch", "transposed": "torch",
}  # fmt: skip
MB = 1 << 20
_BY_NAME: dict[str, UnaryOp | BinaryOp | TernaryOp] = {op.name.lower(): op for op in OPERATIONS}
_ARITIES: dict[type, tuple[str, int, int]] = {
    UnaryOp: ("unary", 1, 2),
    BinaryOp: ("binary", 2, 0),
    TernaryOp: ("ternary", 3, 1),
}
BASIC = ("u8", "f16", "f32", "f64")
Case = dict[str, Any]


def kinds_of(op: str, kind: str) -> list[str]:
    """The types of the operands and of the result, if `kind` is the type of the values."""
    member = _BY_NAME[op]
    kinds = [kind] * _ARITIES[type(member)][1]
    return ["bool" if op == "where" else kind, *kinds[1:], "bool" if OPERATIONS[member].result == "BOOL" else kind]


def _flat(op: str, kinds: str, megabytes: float, layouts: list[str] | None = None) -> Case:
    """`megabytes` are read and written together. A single type is that of the values."""
    names = kinds.split(",") if "," in kinds else kinds_of(op, kinds)
    count = int(megabytes * MB) // sum(BYTES[name] for name in names)
    return {"name": f"{op} {megabytes:g}MB", "op": op, "kinds": names, "shape": (count,), "layouts": layouts}


def _case(
    name: str, op: str, kinds: list[str], shape: tuple[int, ...], shapes: Any = None, layouts: Any = None
) -> Case:
    return {"name": name, "op": op, "kinds": kinds, "shape": shape, "shapes": shapes, "layouts": layouts}


def _anchors() -> list[Case]:
    table = (("copy", "f32,f16", 4), ("relu", "f32", 4), ("mul", "f16", 8), ("gelu", "f16", 8))
    return [_flat(op, kinds, size * scale) for scale in (1, 8, 64) for op, kinds, size in table]


def _types() -> list[Case]:
    kinds = ("bool", "i8", "i16", "i32", "i64", "u8", "f16", "bf16", "f32", "f64", "e4m3", "e5m2")
    operations = ("add", "relu", "less", "where")
    return [_flat(op, kind, 256) for kind in kinds for op in operations if kind != "bool" or op == "where"]


def _operations(arity: str) -> list[Case]:
    return [
        _flat(op, kind, 256)
        for op, member in _BY_NAME.items()
        if _ARITIES[type(member)][0] == arity and op != "copy"
        for kind in (("f16", "bf16", "f32", "f64") if "F" in OPERATIONS[member].takes else ("i32",))
    ]


def _casts() -> list[Case]:
    pairs = [
        "f32,f16", "f16,f32", "f32,bf16", "bf16,f32", "f16,bf16", "f64,f32", "f32,f64", "f64,f16", "f16,f64",
        "f32,e4m3", "e4m3,f32", "f16,e4m3", "e4m3,f16", "bf16,e5m2", "e5m2,bf16", "u8,f32", "f32,u8", "i8,f16",
        "f16,i8", "i32,f32", "f32,i32", "i64,i32", "i32,i64", "i64,f16", "u8,f64", "f64,u8", "bool,f32", "f32,bool",
        "u8,i16", "i16,u8",
    ]  # fmt: skip
    return [_flat("copy", pair, 256) for pair in pairs]


def _misaligned() -> list[Case]:
    layouts = [("relu", "+1,"), ("relu", ",+1"), ("relu", "+1,+1"), ("relu", "+1,+3"), ("add", ",+1,"),
               ("add", "+1,+3,+5")]  # fmt: skip
    cases = [_flat(op, kind, 256, where.split(",")) for kind in BASIC for op, where in layouts]
    return cases + [_flat("copy", pair, 256, ["+1", ""]) for pair in ("f32,f16", "f16,f32")]


def _broadcast() -> list[Case]:
    cases = []
    for kind in BASIC:
        count, kinds = 128 * MB // BYTES[kind], [kind] * 3
        square, channels = (count // 4096, 4096), (count // (64 * 56 * 56), 64, 56, 56)
        for cols in (4096, 4097, 64, 57, 7):
            shape = (count // cols, cols)
            cases.append(_case(f"row x{cols}", "add", kinds, shape, [shape, (1, cols)]))
            cases.append(_case(f"column x{cols}", "mul", kinds, shape, [shape, (shape[0], 1)]))
        cases.append(_case("nchw scale", "mul", kinds, channels, [channels, (1, 64, 1, 1)]))
        cases.append(_case("scalar", "add", kinds, (count,), [(count,), (1,)]))
        cases.append(_case("outer", "add", kinds, square, [(square[0], 1), (1, square[1])]))
    return cases


def _transposed() -> list[Case]:
    cases = []
    for kind in BASIC:
        side = int(math.sqrt(256 * MB / 3 / BYTES[kind])) // 256 * 256
        for shape in ((side, side), (side - 1, side + 1), (64, side // 8, side // 8)):
            cases.append(_case("x + yT", "add", [kind] * 3, shape, None, ["", "T", ""]))
            cases.append(_case("relu(xT)", "relu", [kind] * 2, shape, None, ["T", ""]))
        cases.append(_case("xT + yT", "add", [kind] * 3, (side, side), None, ["T", "T", ""]))
    return cases + [_case("cast(xT)", "copy", ["f32", "f16"], (4096, 8192), None, ["T", ""])]


def _slices() -> list[Case]:
    generator = random.Random(7)
    drawn = [log_uniform(generator, 64, 16384) for _ in range(8)]
    return [
        _case(op, op, [kind] * 3, (192 * MB // 3 // BYTES[kind] // cols, cols), None, ["left", "right", out])
        for kind in ("f16", "bf16", "f32")
        for op in ("add", "silu_mul")
        for cols in (77, 257, 1000, 1023, 1024, 4096, 11008, 13824, *drawn)
        for out in ("", "left")
    ]


def _small() -> list[Case]:
    table = (
        ("copy", "f32,f16"), ("copy", "f16,f32"), ("relu", "f32"), ("relu", "f16"), ("add", "f32"), ("mul", "f16"),
        ("gelu", "f16"), ("gelu", "f32"), ("silu_mul", "bf16"), ("where", "f32"),
    )  # fmt: skip
    return [_flat(op, kinds, megabytes) for megabytes in (4, 8, 16, 32) for op, kinds in table]


def _jit() -> list[Case]:
    cases = []
    for kind in BASIC:
        square = (4096 * 16 // BYTES[kind], 4096)
        cases.append(_flat("relu", kind, 256) | {"jit": "z = x > (T)0 ? x : (T)0"})
        others = [
            _flat("add", kind, 256),
            _case("add a row", "add", [kind] * 3, square, [square, (1, square[1])]),
            _case("x + yT", "add", [kind] * 3, (4096, 4096), None, ["", "T", ""]),
        ]
        cases += [case | {"jit": "z = x + y"} for case in others]
    return cases + [_flat("exp", kind, 256) | {"jit": "z = expf(x)"} for kind in ("f16", "f32")]


def cases_of(name: str) -> list[Case]:
    """Keyword arguments of ElementwiseWork; KeyError if there is no such set."""
    if name in ("unary", "binary", "ternary"):
        return _operations(name)
    sets: dict[str, Callable[[], list[Case]]] = {
        "anchors": _anchors, "types": _types, "casts": _casts, "misaligned": _misaligned, "broadcast": _broadcast,
        "transposed": _transposed, "slices": _slices, "small": _small, "jit": _jit,
    }  # fmt: skip
    return sets[name]()


def case_of_words(words: list[str]) -> Case:
    """`add f16,f16,f16 4096x1024 [SHAPE per input]`, the types of the inputs and of the result, or one for all."""
    op, types, shape, *shapes = words
    extents = [tuple(int(extent) for extent in word.split("x")) for word in (shape, *shapes)]
    kinds = [*checked_kinds(*types.split(","))]
    if op not in _BY_NAME:
        raise ValueError(f"op = {op!r}, must be one of {', '.join(_BY_NAME)}")
    num_inputs = _ARITIES[type(_BY_NAME[op])][1]
    kinds = kinds_of(op, kinds[0]) if len(kinds) == 1 else kinds
    if len(kinds) != num_inputs + 1 or len(shapes) not in (0, num_inputs):
        raise ValueError(f"{op} takes {num_inputs + 1} types and {num_inputs} shapes of inputs, or none")
    return _case(op, op, kinds, extents[0], extents[1:] or None)


class ElementwiseWork(Work):
    """out = op(inputs): `shapes` holds each input's own shape, `layouts` how it lies in memory: "T" transposed, "+n"
    n elements past an aligned address, "left" and "right" in one half of rows that are twice as long. `jit` is the same
    formula for pyflowk.ElementwiseKernel."""

    op = "elementwise"

    def __init__(
        self,
        machine: Any,
        name: str,
        op: str,
        kinds: list[str],
        shape: tuple[int, ...],
        shapes: list[tuple[int, ...]] | None = None,
        layouts: list[str] | None = None,
        jit: str = "",
        num_sets: int | None = None,
    ) -> None:
        shapes = shapes or [shape] * (len(kinds) - 1)
        layouts = layouts or [""] * len(kinds)
        self.operation, self.jit, self.parameters = op, jit, PARAMETERS.get(op, ())
        self.kind, self.types, self.shape_text = name, ",".join(kinds), by(shape)
        self.note = ",".join(layouts) if any(layouts) else ""
        self.function, _, self._num_parameters = _ARITIES[type(_BY_NAME[op])]
        self.read_bytes = sum(math.prod(own) * BYTES[kind] for own, kind in zip(shapes, kinds))
        self.written_bytes = math.prod(shape) * BYTES[kinds[-1]]
        super().__init__(machine, self.moved_bytes, num_sets)
        inputs = [
            Tensor(machine, kind, own, _contents(kind), seed, **_where(own, where))
            for seed, (kind, own, where) in enumerate(zip(kinds[:-1], shapes, layouts))
        ]
        self.rotate(inputs, Tensor(machine, kinds[-1], shape, **_where(shape, layouts[-1])))
        self.prepare()

    def arguments_of(self, i: int) -> tuple[Any, ...]:
        out = self.outs[i]
        arguments: list[Any] = [_BY_NAME[self.operation].value]
        for tensor in (*self.operands[i], out):
            pointer, _, dtype = tensor.arguments()
            strides = [0 if own == 1 else stride for own, stride in zip(tensor.shape, tensor.strides)]
            arguments += [pointer, longs(strides), dtype]
        arguments += [len(out.shape), longs(out.shape)]
        numbers = (*self.parameters, 0.0, 0.0)[: self._num_parameters]
        return (*arguments, *(ctypes.c_double(number) for number in numbers))

    def _inputs_at(self, index: list[Array]) -> list[Array]:
        inputs = []
        any_float = any(tensor.kind in FLOATS for tensor in self.operands[0])
        for tensor in self.operands[0]:
            values = np.broadcast_to(tensor.known(index), index[0].shape)
            inputs.append(values if values.dtype == bool or not any_float else values.astype(np.float64))
        return inputs

    def expected(self, index: list[Array]) -> Array:
        """In float64 for floats."""
        with np.errstate(all="ignore"):
            found: Array = np.asarray(numpy_formula(self.operation)(*self._inputs_at(index), *self.parameters))
        out = self.outs[0].kind
        if out not in FLOATS:
            dtype = numpy_dtype(NAMES[out])
            if found.dtype.kind == "f" and out != "bool":
                bounds = np.iinfo(dtype)
                found = np.where(np.isnan(found), 0, np.trunc(found)).clip(bounds.min, bounds.max)
            return found.astype(dtype)
        return found.astype(np.float64)

    def is_close(self, got: Array, expected: Array, index: list[Array]) -> bool:
        kind = self.outs[0].kind
        if kind not in FLOATS:
            return super().is_close(got, expected, index)
        eps, least, most = _limits(kind)
        wide, cut = got.astype(np.float64), self._inputs_at(index)
        if kind in ("e4m3", "e5m2"):
            expected = expected.clip(-most, most)
        # 1 ulp of the type; the bounds of CUDA's functions for float32 and float64.
        slack = (16 if kind in ("f32", "f64") else 1) * eps
        with np.errstate(all="ignore"):
            error = np.abs(wide - expected)
            close = error <= slack * np.abs(expected) + max(least * eps, 1e-38) * 4
            if self.operation.endswith("_grad"):
                close |= error <= slack * np.abs(cut[0]) * 0.5
            if self.operation in LOSSES and kind in ("f32", "f64"):
                close |= error <= eps * LOSSES[self.operation](*cut, *self.parameters)
            past = np.isinf(wide) & (np.abs(expected) > most) & (np.sign(wide) == np.sign(expected))
            same = close | past | (wide == expected) | (np.isnan(wide) & np.isnan(expected))
        return bool(same.all())

    def formula(self, torch: Any) -> Callable[..., Any]:
        if self.operation == "copy":
            dtype = getattr(torch, NAMES[self.outs[0].kind])
            return lambda *tensors: tensors[0].to(dtype)
        function, parameters = torch_formula(self.operation, torch), self.parameters
        return lambda *tensors: function(*tensors, *parameters)


def _contents(kind: str) -> str:
    return "0.5" if kind == "bool" else "normal" if kind in FLOATS else "bits"


def _where(shape: tuple[int, ...], text: str) -> dict[str, Any]:
    if text == "T":
        rank = len(shape)
        return {"order": [*range(rank - 2), rank - 1, rank - 2]}
    if text in ("left", "right"):
        return {"pads": {len(shape) - 1: shape[-1]}, "lead": shape[-1] if text == "right" else 0}
    return {"lead": int(text or 0)}


def _limits(kind: str) -> tuple[float, float, float]:
    """eps, the least normal number and the largest of a float type."""
    dtype = numpy_dtype(NAMES[kind])
    info: Any = np.finfo(dtype) if dtype.isbuiltin == 1 else import_module("ml_dtypes").finfo(dtype)
    return float(info.eps), float(info.smallest_normal), float(info.max)
