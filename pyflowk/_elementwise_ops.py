# SPDX-License-Identifier: Apache-2.0
"""The operations of flowk_unary(), flowk_binary() and flowk_ternary(), and which types each works in.

OPERATIONS is flowk/elementwise_ops.h, row by row: tests/test_abi.py holds one against the other. What Python adds to
it, so that results have NumPy's types, stands below the table.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

from ._abi import BinaryOp, DType, TernaryOp, UnaryOp
from ._dtypes import dtype_name
from ._promotion import FLOATS, INTEGERS, MIXED_FLOATS, common_type, float_of

Op = UnaryOp | BinaryOp | TernaryOp


class Operation(NamedTuple):
    """One row.

    takes           types of the operands: B bool, I integers, F floats
    result          SAME as the operands', BOOL, or ANY that the caller asks for
    num_parameters  how many of the numbers a, b the formula has
    """

    takes: str
    result: str
    num_parameters: int
    formula: str


OPERATIONS: dict[Op, Operation] = {
    UnaryOp.COPY: Operation("BIF", "ANY", 0, "x, converted to the output's type"),
    UnaryOp.ABS: Operation("IF", "SAME", 0, "|x|"),
    UnaryOp.NEG: Operation("IF", "SAME", 0, "-x"),
    UnaryOp.SQUARE: Operation("IF", "SAME", 0, "x * x"),
    UnaryOp.SQRT: Operation("F", "SAME", 0, "sqrt(x)"),
    UnaryOp.RSQRT: Operation("F", "SAME", 0, "1 / sqrt(x)"),
    UnaryOp.RECIPROCAL: Operation("F", "SAME", 0, "1 / x"),
    UnaryOp.EXP: Operation("F", "SAME", 0, "e^x"),
    UnaryOp.LOG: Operation("F", "SAME", 0, "ln(x)"),
    UnaryOp.SIN: Operation("F", "SAME", 0, "sin(x)"),
    UnaryOp.COS: Operation("F", "SAME", 0, "cos(x)"),
    UnaryOp.TANH: Operation("F", "SAME", 0, "tanh(x)"),
    UnaryOp.SIGMOID: Operation("F", "SAME", 0, "1 / (1 + e^-x)"),
    UnaryOp.RELU: Operation("IF", "SAME", 0, "max(x, 0)"),
    UnaryOp.LEAKY_RELU: Operation("F", "SAME", 1, "x > 0 ? x : a * x"),
    UnaryOp.ELU: Operation("F", "SAME", 1, "x > 0 ? x : a * (e^x - 1)"),
    UnaryOp.GELU: Operation("F", "SAME", 0, "x * (1 + erf(x / sqrt(2))) / 2"),
    UnaryOp.GELU_TANH: Operation("F", "SAME", 0, "x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3))) / 2"),
    UnaryOp.SILU: Operation("F", "SAME", 0, "x / (1 + e^-x)"),
    UnaryOp.SOFTPLUS: Operation("F", "SAME", 0, "ln(1 + e^x)"),
    UnaryOp.FLOOR: Operation("F", "SAME", 0, "the largest integer <= x"),
    UnaryOp.CEIL: Operation("F", "SAME", 0, "the smallest integer >= x"),
    UnaryOp.ROUND: Operation("F", "SAME", 0, "the nearest integer, half to even"),
    UnaryOp.CLAMP: Operation("IF", "SAME", 2, "min(max(x, a), b)"),
    UnaryOp.SCALE: Operation("IF", "SAME", 2, "a * x + b"),
    UnaryOp.IS_NAN: Operation("F", "BOOL", 0, "x != x"),
    UnaryOp.LOGICAL_NOT: Operation("BIF", "BOOL", 0, "x == 0"),
    BinaryOp.ADD: Operation("IF", "SAME", 0, "x + y"),
    BinaryOp.SUB: Operation("IF", "SAME", 0, "x - y"),
    BinaryOp.MUL: Operation("IF", "SAME", 0, "x * y"),
    BinaryOp.DIV: Operation("IF", "SAME", 0, "x / y"),
    BinaryOp.POW: Operation("F", "SAME", 0, "x^y"),
    BinaryOp.MIN: Operation("BIF", "SAME", 0, "min(x, y)"),
    BinaryOp.MAX: Operation("BIF", "SAME", 0, "max(x, y)"),
    BinaryOp.EQUAL: Operation("BIF", "BOOL", 0, "x == y"),
    BinaryOp.NOT_EQUAL: Operation("BIF", "BOOL", 0, "x != y"),
    BinaryOp.LESS: Operation("BIF", "BOOL", 0, "x < y"),
    BinaryOp.LESS_EQUAL: Operation("BIF", "BOOL", 0, "x <= y"),
    BinaryOp.GREATER: Operation("BIF", "BOOL", 0, "x > y"),
    BinaryOp.GREATER_EQUAL: Operation("BIF", "BOOL", 0, "x >= y"),
    BinaryOp.BITWISE_AND: Operation("BI", "SAME", 0, "x & y, bit by bit"),
    BinaryOp.BITWISE_OR: Operation("BI", "SAME", 0, "x | y, bit by bit"),
    BinaryOp.BITWISE_XOR: Operation("BI", "SAME", 0, "x ^ y, bit by bit"),
    BinaryOp.RELU_GRAD: Operation("F", "SAME", 0, "y > 0 ? x : 0, with x = dL/drelu(y)"),
    BinaryOp.GELU_GRAD: Operation("F", "SAME", 0, "x * gelu'(y), with x = dL/dgelu(y)"),
    BinaryOp.GELU_TANH_GRAD: Operation("F", "SAME", 0, "x * gelu_tanh'(y), with x = dL/dgelu_tanh(y)"),
    BinaryOp.SILU_GRAD: Operation("F", "SAME", 0, "x * silu'(y), with x = dL/dsilu(y)"),
    BinaryOp.SILU_MUL: Operation("F", "SAME", 0, "silu(x) * y"),
    TernaryOp.FMA: Operation("IF", "SAME", 0, "x * y + z, rounded once"),
    TernaryOp.WHERE: Operation("BIF", "SAME", 0, "x ? y : z, with x of type bool"),
    TernaryOp.CLAMP_BY: Operation("IF", "SAME", 0, "min(max(x, y), z)"),
    TernaryOp.LERP: Operation("F", "SAME", 0, "x + z * (y - x)"),
    TernaryOp.ADD_MULTIPLY: Operation("IF", "SAME", 1, "x + a * y * z"),
}

# What NumPy computes where the table has no row of it: with bool + is or and * is and; rounding leaves integers alone.
OF_BOOL: dict[Op, Op] = {BinaryOp.ADD: BinaryOp.MAX, BinaryOp.MUL: BinaryOp.MIN}
OF_INTEGERS: dict[Op, Op] = {op: UnaryOp.COPY for op in (UnaryOp.FLOOR, UnaryOp.CEIL, UnaryOp.ROUND)}
# Of integers these are computed in float64, not in the float of float_of().
IN_FLOAT64 = frozenset({BinaryOp.DIV, BinaryOp.POW})


class Resolution(NamedTuple):
    """What a call comes to: the operation, the type that each operand must have, and the type of the result."""

    op: Op
    operand_types: tuple[DType, ...]
    result: DType


def name_of(op: Op) -> str:
    """The operation as a function's text says it: `silu_mul`."""
    return op.name.lower()


@functools.lru_cache(maxsize=1024)
def resolve(
    op: Op, operands: tuple[DType | type, ...], parameters: tuple[type, ...] = (), *, exact_integers: bool = False
) -> Resolution:
    """How to compute `op` of operands of these types: a DType is an array's, a Python type that of a number, which is
    weak, as those of `parameters` are. With `exact_integers` DIV stays with integers. TypeError where op takes no such
    types."""
    condition, values = (operands[:1], operands[1:]) if op == TernaryOp.WHERE else ((), operands)
    scalars = [kind for kind in values if not isinstance(kind, DType)] + list(parameters)
    codes = [kind for kind in values if isinstance(kind, DType)]
    if not codes:  # where(mask, 1, 0)
        codes, scalars = [_type_of_number(kind) for kind in scalars[: len(values)]], []
    common = common_type(codes, scalars)
    op, compute = _computed_as(op, common, exact_integers)
    needed = [DType.BOOL for _ in condition]
    for kind in values:
        direct = kind == compute or (kind in MIXED_FLOATS and compute in MIXED_FLOATS)
        needed.append(kind if direct and isinstance(kind, DType) else compute)
    if op == UnaryOp.COPY:
        needed = [operands[0]]
    result = DType.BOOL if OPERATIONS[op].result == "BOOL" else compute
    return Resolution(op, tuple(needed), result)


def _computed_as(op: Op, common: DType, exact_integers: bool) -> tuple[Op, DType]:
    takes = OPERATIONS[op].takes
    kind = "F" if common in FLOATS else "I" if common in INTEGERS else "B"
    if kind in takes and (kind == "F" or op not in IN_FLOAT64 or exact_integers):
        return op, common
    if kind == "F":
        pass
    elif kind == "B" and op in OF_BOOL:
        return OF_BOOL[op], common
    elif op in OF_INTEGERS:
        return OF_INTEGERS[op], common
    elif op in IN_FLOAT64:
        return op, DType.FLOAT64
    elif takes == "F":
        return op, float_of(common)
    words = {"B": "bool", "I": "integers", "F": "floats"}
    raise TypeError(
        f"{name_of(op)} takes {' and '.join(words[letter] for letter in takes)}, not {dtype_name(common)}, "
        "which its operands come to"
    )


def _type_of_number(kind: type) -> DType:
    if issubclass(kind, bool):
        return DType.BOOL
    return DType.FLOAT64 if issubclass(kind, float) else DType.INT64


def takes_out(op: Op, result: DType, out: DType) -> bool:
    """Whether a result of this type may be written as `out`."""
    if OPERATIONS[op].result == "ANY":
        return out in FLOATS or out in INTEGERS or out == DType.BOOL
    return out == result or (OPERATIONS[op].result == "SAME" and {out, result} <= MIXED_FLOATS)
