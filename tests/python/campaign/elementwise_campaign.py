# SPDX-License-Identifier: Apache-2.0
"""Random calls of flowk_unary, flowk_binary and flowk_ternary: every operation, type, number, layout and aliasing."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
from campaign_case import DTYPE_CODES, Case, Outputs, Tensor
from campaign_shapes import (
    any_strides,
    chance,
    contiguous,
    generator,
    given_pointer,
    given_strides,
    separate_strides,
    shape,
    tensor,
)
from elementwise_cases import (
    BOOL,
    DTYPES,
    FLOAT_DTYPES,
    INTEGER_DTYPES,
    Call,
    converted,
    reference,
    tolerance,
    values_for,
)
from permute_campaign import assert_same
from test_elementwise import compare, special_values

from pyflowk._native.abi import HOST_SCALAR
from pyflowk._native.operations import OPERATIONS, BinaryOp, TernaryOp, UnaryOp

NARROW_FLOATS = tuple(dtype for dtype in FLOAT_DTYPES if dtype != np.float64)
_KINDS = {"B": (BOOL,), "I": INTEGER_DTYPES, "F": FLOAT_DTYPES}
_ARITIES = (UnaryOp, BinaryOp, TernaryOp)
# Formulas of several steps, which may overflow or vanish if the formula's value does not: ordinary values only.
IN_STEPS = {
    *(UnaryOp.GELU_TANH, BinaryOp.GELU_BACKWARD, BinaryOp.GELU_TANH_BACKWARD, BinaryOp.SILU_BACKWARD),
    *(BinaryOp.SILU_MUL, BinaryOp.SIGMOID_BACKWARD, BinaryOp.TANH_BACKWARD, TernaryOp.ELU_BACKWARD),
    BinaryOp.SOFTPLUS_BACKWARD,
    *(TernaryOp.LERP, TernaryOp.ADD_MULTIPLY, TernaryOp.FMA, UnaryOp.SCALE),
}


def accepted(op: Any) -> tuple[np.dtype, ...]:
    """The types that flowk/elementwise_ops.h lists for the values of an operation."""
    return tuple(dtype for kind in OPERATIONS[op].takes for dtype in _KINDS[kind])


def elementwise_case(r: random.Random, room: int = 0) -> Case:
    operations = r.choice(_ARITIES)
    op = r.choice(tuple(operations))
    row = OPERATIONS[op]
    names = ("x", "y", "z")[: 1 + _ARITIES.index(operations)]
    dtypes = _types(r, op, len(names))
    compute = dtypes[-1]
    out_dtype = _out_type(r, row.result, compute)
    given, parameters = _parameters(r, compute, row.num_parameters)
    call = Call(op.name.lower(), op, (), parameters)
    extents = shape(r, room=room)
    rng = generator(r)
    kinds = r.choice(("ordinary", "ordinary", "special", "bits"))
    inputs: dict[str, Tensor | np.generic] = {}
    for index, (name, dtype) in enumerate(zip(names, dtypes)):
        values = _values(call, index, dtype, kinds, rng)
        if chance(r, 12):
            inputs[name] = values((1,))[0]
            continue
        if index and chance(r, 10):
            same = inputs[names[0]]
            if isinstance(same, Tensor) and same.dtype == dtype:
                inputs[name] = same  # both operands are one array
                continue
        inputs[name] = tensor(r, dtype, extents, any_strides(r, extents), values)
    in_place = [one for one in inputs.values() if isinstance(one, Tensor) and one.dtype.itemsize == out_dtype.itemsize]
    out = tensor(r, out_dtype, extents, separate_strides(r, extents))
    if in_place and chance(r, 25):
        taken = r.choice(in_place)
        taken.strides = out.strides  # for every operand that is this array
        out = Tensor(out_dtype, extents, out.strides, alias_of=taken)
    arrays = {name: one for name, one in inputs.items() if isinstance(one, Tensor)}

    def check(before: Outputs, after: Outputs) -> None:
        typed = [np.broadcast_to(before.get(name, inputs[name]), extents) for name in names]
        check_row(call, typed, compute, after["out"])

    empty = 0 in extents
    arguments: dict[str, Any] = {"op": op.value}
    for name, dtype in zip(names, dtypes):
        one = inputs[name]
        if isinstance(one, Tensor):
            arguments |= {name: given_pointer(r, one, empty), f"{name}_strides": given_strides(r, one)}
            arguments[f"{name}_dtype"] = DTYPE_CODES[dtype]
        else:
            arguments |= {name: one, f"{name}_strides": r.choice((None, contiguous(extents)))}
            arguments[f"{name}_dtype"] = DTYPE_CODES[dtype] | HOST_SCALAR
    arguments |= {"out": given_pointer(r, out, empty), "out_strides": given_strides(r, out)}
    arguments |= {"out_dtype": DTYPE_CODES[out_dtype], "rank": len(extents), "shape": extents}
    a, b = (*given, 0.5, -1.5)[:2]  # an operation without parameters ignores them
    arguments |= {UnaryOp: {"a": a, "b": b}, BinaryOp: {}, TernaryOp: {"a": a}}[operations]
    function = f"flowk_{operations.__name__.removesuffix('Op').lower()}"
    return Case(function, arguments, {**arrays, "out": out}, ("out",), check)


def _types(r: random.Random, op: Any, count: int) -> list[np.dtype]:
    """Of each operand. The last one's is the type that is computed in, or a narrow float."""
    dtype = r.choice(accepted(op))
    dtypes = [dtype] * count
    if dtype in NARROW_FLOATS and chance(r, 40):
        dtypes = [r.choice(NARROW_FLOATS) for _ in dtypes]
    if OPERATIONS[op].result == "BOOL" and count == 2 and dtype.kind in "iu" and dtype.itemsize == 8 and chance(r, 50):
        dtypes = r.sample((np.dtype(np.int64), np.dtype(np.uint64)), 2)
    if op == TernaryOp.WHERE:
        dtypes[0] = BOOL
    return dtypes


def _out_type(r: random.Random, result: str, dtype: np.dtype) -> np.dtype:
    if result == "ANY":
        return r.choice(DTYPES)
    if result == "BOOL":
        return BOOL
    return r.choice(NARROW_FLOATS) if dtype in NARROW_FLOATS and chance(r, 40) else dtype


def _parameters(r: random.Random, dtype: np.dtype, count: int) -> tuple[tuple[float, ...], tuple[Any, ...]]:
    """Parameters as they are given, and as the header says that an operation on `dtype` reads them."""
    some = (0.0, 1.0, -1.0, 0.25, 2.0, 3.5, -100.0, 1e6, -3e10, 2.0**53, 1e300)
    if dtype in FLOAT_DTYPES:
        given = tuple(r.choice(some[:7]) for _ in range(count))  # float32 numbers
        return given, given
    given = tuple(r.choice(some) for _ in range(count))
    bounds = np.iinfo(dtype) if dtype != BOOL else None
    return given, tuple(min(max(int(one), bounds.min), bounds.max) if bounds else one for one in given)


def _values(
    call: Call, index: int, dtype: np.dtype, kinds: str, rng: np.random.Generator
) -> Callable[[tuple[int, ...]], np.ndarray]:
    """What fills an operand. "special": infinities, NaN, the ends of the range; "bits": any."""

    def values(shape: tuple[int, ...]) -> np.ndarray:
        if kinds == "ordinary" or dtype == BOOL or call.op in IN_STEPS:
            return values_for(call, index, shape, dtype, rng)
        if kinds == "bits":
            count = int(np.prod(shape, dtype=np.int64))
            return np.frombuffer(rng.bytes(count * dtype.itemsize), dtype).reshape(shape)
        if dtype in FLOAT_DTYPES:
            return rng.choice(special_values(dtype), shape)
        info = np.iinfo(dtype)
        some = [info.min, info.min + 1, info.max, info.max - 1, 0, 1, 2, 7] + [-1, -7] * (info.min < 0)
        return rng.choice(np.array(some).astype(dtype), shape)

    return values


@np.errstate(all="ignore")
def check_row(call: Call, typed: list[np.ndarray], compute: np.dtype, actual: np.ndarray) -> None:
    """`actual` is the row's result for operands of these types."""
    if call.op == UnaryOp.COPY:
        assert_same(actual, converted(typed[0], actual.dtype), any_nan=typed[0].dtype != actual.dtype)
        return
    exact = np.asarray(reference(call, typed, compute))
    if call.op == UnaryOp.SIGNBIT:  # a narrow NaN may lose its sign
        exact = np.where(np.isnan(typed[0]) & (typed[0].dtype.itemsize < 4), actual, exact)
    if actual.dtype not in FLOAT_DTYPES:
        np.testing.assert_array_equal(actual, exact)
        return
    exact = exact if exact.dtype == np.longdouble else exact.astype(np.float64)
    wide = [operand.astype(np.float64) for operand in typed]
    if call.op == BinaryOp.COPYSIGN and typed[1].dtype.itemsize < 4:  # a narrow NaN may lose its sign
        exact = np.where(np.isnan(wide[1]), np.copysign(exact, actual.astype(np.float64)), exact)
    compare(actual, exact, tolerance(call, exact, wide, compute, actual.dtype))
