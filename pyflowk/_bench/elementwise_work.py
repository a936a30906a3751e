# SPDX-License-Identifier: Apache-2.0
"""Elementwise operations: every type and operation at 256 MB, casts, broadcasting, transposed operands, small sizes."""

from __future__ import annotations

import ctypes
import functools
import math
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from .._arrays.dtypes import numpy_dtype
from .._native.operations import OPERATIONS, BinaryOp, TernaryOp, UnaryOp
from .case_sets import Case, CaseSet, CaseSets
from .elementwise_formulas import LOSSES, PARAMETERS, numpy_formula, torch_formula
from .measure import log_uniform
from .tensors import BYTES, FLOATS, NAMES, Array, CaseError, Tensor, checked_kinds, extents_of, limits, longs
from .work import Work, by

RESULT_SETS = {
    "anchors": "torch", "types": "torch,compile", "casts": "torch", "broadcast": "torch", "transposed": "torch",
    "slices:7": "torch", "widths:7": "torch",
}  # fmt: skip
MB = 1 << 20
_BY_NAME: dict[str, UnaryOp | BinaryOp | TernaryOp] = {op.name.lower(): op for op in OPERATIONS}
# The C function, the number of operands, and the number of parameters.
_ARITIES: dict[type, tuple[str, int, int]] = {
    UnaryOp: ("unary", 1, 2),
    BinaryOp: ("binary", 2, 0),
    TernaryOp: ("ternary", 3, 1),
}
BASIC = ("u8", "f16", "f32", "f64")
ALL = ("bool", "i8", "i16", "i32", "i64", "u8", "f16", "bf16", "f32", "f64", "e4m3", "e5m2")
CASTS = (
    "f32,f16", "f16,f32", "f32,bf16", "bf16,f32", "f16,bf16", "f64,f32", "f32,f64", "f64,f16", "f16,f64", "f32,e4m3",
    "e4m3,f32", "f16,e4m3", "e4m3,f16", "bf16,e5m2", "e5m2,bf16", "u8,f32", "f32,u8", "i8,f16", "f16,i8", "i32,f32",
    "f32,i32", "i64,i32", "i32,i64", "i64,f16", "u8,f64", "f64,u8", "bool,f32", "f32,bool", "u8,i16", "i16,u8",
)  # fmt: skip
MISALIGNED = (("relu", "+1,"), ("relu", ",+1"), ("relu", "+1,+1"), ("relu", "+1,+3"), ("add", ",+1,"),
              ("add", "+1,+3,+5"))  # fmt: skip
ANCHORS = (("copy", "f32,f16", 4), ("relu", "f32", 4), ("multiply", "f16", 8), ("gelu", "f16", 8))
WIDTHS = (77, 257, 1000, 1023, 1024, 4096, 11008, 13824)
SMALL = (
    ("copy", "f32,f16"), ("copy", "f16,f32"), ("relu", "f32"), ("relu", "f16"), ("add", "f32"), ("multiply", "f16"),
    ("gelu", "f16"), ("gelu", "f32"), ("silu_mul", "bf16"), ("where", "f32"),
)  # fmt: skip


def kinds_of(op: str, kind: str) -> list[str]:
    """The types of the operands and of the result, if `kind` is the type of the values."""
    member = _BY_NAME[op]
    kinds = [kind] * _ARITIES[type(member)][1]
    return ["bool" if op == "where" else kind, *kinds[1:], "bool" if OPERATIONS[member].result == "BOOL" else kind]


def _case(op: str, types: str, size: Any, shapes: Any = None, layouts: Any = None, name: str = "", **more: Any) -> Case:
    """`types` are those of the operands and of the result, or the one of the values; `size` is the shape, or the MB
    that are read and written together."""
    kinds = types.split(",") if "," in types else kinds_of(op, types)
    if not isinstance(size, tuple):
        name, size = f"{op} {size:g}MB", (int(size * MB) // sum(BYTES[kind] for kind in kinds),)
    return {"name": name, "op": op, "kinds": kinds, "shape": size, "shapes": shapes, "layouts": layouts, **more}


def _types() -> Iterator[Case]:
    for kind in ALL:
        yield from (_case(op, kind, 256) for op in ("add", "relu", "less", "where") if kind != "bool" or op == "where")


def _operations(arity: str) -> Iterator[Case]:
    for op, member in _BY_NAME.items():
        if _ARITIES[type(member)][0] == arity and op != "copy":
            for kind in ("f16", "bf16", "f32", "f64") if "F" in OPERATIONS[member].takes else ("i32",):
                yield _case(op, kind, 256)


def _misaligned() -> Iterator[Case]:
    for kind in BASIC:
        for op, layouts in MISALIGNED:
            yield _case(op, kind, 256, layouts=layouts.split(","))
    for types in ("f32,f16", "f16,f32"):
        yield _case("copy", types, 256, layouts=["+1", ""])


def _broadcast() -> Iterator[Case]:
    for kind in BASIC:
        count = 128 * MB // BYTES[kind]
        square, channels = (count // 4096, 4096), (count // (64 * 56 * 56), 64, 56, 56)
        for cols in (4096, 4097, 64, 57, 7):
            shape = (count // cols, cols)
            yield _case("add", kind, shape, [shape, (1, cols)], name=f"row x{cols}")
            yield _case("multiply", kind, shape, [shape, (shape[0], 1)], name=f"column x{cols}")
        yield _case("multiply", kind, channels, [channels, (1, 64, 1, 1)], name="nchw scale")
        yield _case("add", kind, (count,), [(count,), (1,)], name="scalar")
        yield _case("add", kind, square, [(square[0], 1), (1, square[1])], name="outer")


def _transposed() -> Iterator[Case]:
    for kind in BASIC:
        side = int(math.sqrt(256 * MB / 3 / BYTES[kind])) // 256 * 256
        for shape in ((side, side), (side - 1, side + 1), (64, side // 8, side // 8)):
            yield _case("add", kind, shape, None, ["", "T", ""], "x + yT")
            yield _case("relu", kind, shape, None, ["T", ""], "relu(xT)")
        yield _case("add", kind, (side, side), None, ["T", "T", ""], "xT + yT")
    yield _case("copy", "f32,f16", (4096, 8192), None, ["T", ""], "cast(xT)")


def _widths_of(seed: int, count: int, most: int) -> tuple[int, ...]:
    generator = random.Random(seed)
    return (*WIDTHS, *(log_uniform(generator, 64, most) for _ in range(count)))


def _slices(seed: int = 7, count: int = 8) -> Iterator[Case]:
    for kind in ("f16", "bf16", "f32"):
        for op in ("add", "silu_mul"):
            for cols in _widths_of(seed, count, 16384):
                for out in ("", "left"):
                    shape = (64 * MB // BYTES[kind] // cols, cols)
                    yield _case(op, kind, shape, None, ["left", "right", out], part=f"{op} {kind}")


def _widths(seed: int = 0, count: int = 8) -> Iterator[Case]:
    """64 MB of rows of each number of columns, and few rows of 16 MB and more: the bias of such a row leaves the L2
    cache before the next one."""
    for kind in ("f16", "f32"):
        shapes = [(64 * MB // BYTES[kind] // cols, cols) for cols in (*_widths_of(seed, count, 131072), 50257)]
        shapes += [(rows, 1 << 23) for rows in (2, 3, 5)]
        for shape in shapes:
            for op, own in (("add", (1, shape[1])), ("multiply", (shape[0], 1))):
                name = "row" if op == "add" else "column"
                yield _case(op, kind, shape, [shape, own], name=name, part=f"{name} {kind}")


def _jit() -> Iterator[Case]:
    for kind in BASIC:
        square = (4096 * 16 // BYTES[kind], 4096)
        yield _case("relu", kind, 256, jit="z = x > (T)0 ? x : (T)0")
        yield _case("add", kind, 256, jit="z = x + y")
        yield _case("add", kind, square, [square, (1, square[1])], name="add a row", jit="z = x + y")
        yield _case("add", kind, (4096, 4096), None, ["", "T", ""], "x + yT", jit="z = x + y")
    for kind in ("f16", "f32"):
        yield _case("exp", kind, 256, jit="z = expf(x)")


SETS = CaseSets(
    anchors=CaseSet(
        "four common calls, in three sizes",
        lambda: [_case(op, types, mb * scale) for scale in (1, 8, 64) for op, types, mb in ANCHORS],
    ),
    types=CaseSet("every type, 256 MB", _types),
    **{arity: CaseSet("every operation", functools.partial(_operations, arity)) for arity, *_ in _ARITIES.values()},
    casts=CaseSet("every pair of widths", lambda: [_case("copy", types, 256) for types in CASTS]),
    misaligned=CaseSet("elements past an aligned address", _misaligned),
    broadcast=CaseSet("a row, a column, a scalar", _broadcast),
    transposed=CaseSet("operands that lie transposed", _transposed),
    slices=CaseSet("halves of rows, as a gated unit has them", _slices, "[:SEED[:COUNT]]"),
    widths=CaseSet(
        *(
            "a row bias and a factor per row, rows of models' and drawn numbers of columns",
            _widths,
            "[:SEED[:COUNT]]",
        )
    ),
    small=CaseSet("4 to 32 MB", lambda: [_case(op, types, mb) for mb in (4, 8, 16, 32) for op, types in SMALL]),
    jit=CaseSet("pyflowk.ElementwiseKernel, and the built-in operation", _jit),
)


def case_of_words(words: list[str]) -> Case:
    """`add f16,f16,f16 4096x1024 [SHAPE per input]`, the types of the inputs and of the result, or one for all."""
    op, types, *shapes = words
    checked_kinds(*types.split(","))
    if op not in _BY_NAME:
        raise CaseError(f"op = {op!r}, must be one of {', '.join(_BY_NAME)}")
    num_inputs = _ARITIES[type(_BY_NAME[op])][1]
    if types.count(",") not in (0, num_inputs) or len(shapes) not in (1, num_inputs + 1):
        raise CaseError(f"{op} takes {num_inputs + 1} types and {num_inputs} shapes of inputs, or none")
    shape, *inputs = map(extents_of, shapes)
    return _case(op, types, shape, inputs or None, name=op)


class ElementwiseWork(Work):
    """out = op(inputs). `shapes` are those of the inputs. `layouts` say how each input and out lie in memory: "T" is
    transposed, "+n" starts n elements past an aligned address, "left" and "right" are halves of rows that are twice as
    long. `jit` is the formula for pyflowk.ElementwiseKernel."""

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
        part: str = "",
        num_sets: int | None = None,
    ) -> None:
        shapes = shapes or [shape] * (len(kinds) - 1)
        layouts = layouts or [""] * len(kinds)
        self.operation, self.jit, self.part, self.parameters = op, jit, part, PARAMETERS.get(op, ())
        self.kind, self.types, self.shape_text = name, ",".join(kinds), by(shape)
        self.note = ",".join(layouts) if any(layouts) else ""
        self.transposes = "T" in layouts and layouts[-1] != "T"
        self.function, _, self._num_parameters = _ARITIES[type(_BY_NAME[op])]
        self.read_bytes = sum(math.prod(own) * BYTES[kind] for own, kind in zip(shapes, kinds))
        self.written_bytes = math.prod(shape) * BYTES[kinds[-1]]
        super().__init__(machine, self.moved_bytes, num_sets)
        inputs = [
            Tensor(machine, kind, own, _contents(kind), seed, **_where(own, where))
            for seed, (kind, own, where) in enumerate(zip(kinds[:-1], shapes, layouts))
        ]
        self.rotate(inputs, Tensor(machine, kinds[-1], shape, **_where(shape, layouts[-1])))

    def arguments_of(self, i: int) -> tuple[Any, ...]:
        out = self.outs[i]
        arguments: list[Any] = [_BY_NAME[self.operation].value]
        for tensor in (*self.operands[i], out):
            pointer, _, dtype = tensor.arguments()
            arguments += [pointer, longs(tensor.broadcast_strides()), dtype]
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
        """The result at a multi-index, in float64 if it is a float."""
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
        eps, least, most = limits(kind)
        wide, cut = got.astype(np.float64), self._inputs_at(index)
        if kind in ("e4m3", "e5m2"):
            expected = expected.clip(-most, most)
        # 1 ulp of the type; the bounds of CUDA's functions for float32 and float64.
        slack = (16 if kind in ("f32", "f64") else 1) * eps
        with np.errstate(all="ignore"):
            error = np.abs(wide - expected)
            close = error <= slack * np.abs(expected) + max(least * eps, 1e-38) * 4
            if self.operation.endswith("_backward"):
                close |= error <= slack * np.abs(cut[0]) * 0.5
            if self.operation in LOSSES and kind in ("f32", "f64"):
                close |= error <= eps * LOSSES[self.operation](*cut, *self.parameters)
            past = np.isinf(wide) & (np.abs(expected) > most) & (np.sign(wide) == np.sign(expected))
            same = close | past | (wide == expected) | (np.isnan(wide) & np.isnan(expected))
        return bool(same.all())

    def rival_operands(self, i: int) -> list[Tensor]:
        """The inputs, and out if a new result of PyTorch would lie in memory as a transposed input does."""
        return [*self.operands[i], self.outs[i]] if self.transposes else self.operands[i]

    def formula(self, torch: Any) -> Callable[..., Any]:
        if self.transposes:
            function = self._function(torch)
            return lambda *tensors: tensors[-1].copy_(function(*tensors[:-1]))
        return self._function(torch)

    def eager(self, torch: Any) -> Callable[..., Any]:
        """formula() in one kernel."""
        if not self.transposes or self.operation == "copy":
            return self.formula(torch)
        if self.operation == "relu":
            return lambda x, out: torch.clamp_min(x, 0, out=out)
        function = torch_formula(self.operation, torch)
        return lambda *tensors: function(*tensors[:-1], out=tensors[-1])

    def _function(self, torch: Any) -> Callable[..., Any]:
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
