# SPDX-License-Identifier: Apache-2.0
"""The types that an elementwise operation computes in: NumPy's rules, on top of the C library's list of operations."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import NamedTuple

from .._arguments import kind_named
from .._arrays.dtypes import dtype_name
from .._native.abi import DType
from .._native.operations import OPERATIONS, BinaryOp, TernaryOp, UnaryOp
from .promotion import FLOATS, INTEGERS, MIXED_FLOATS, common_type, float_of, integer_bounds, promote

Op = UnaryOp | BinaryOp | TernaryOp

# What NumPy computes if the library has no such operation. On bool, + is "or", * is "and", ~ is "not", and abs does
# nothing; rounding does nothing to integers.
OF_BOOL: dict[Op, Op] = {
    BinaryOp.ADD: BinaryOp.MAXIMUM,
    BinaryOp.MULTIPLY: BinaryOp.MINIMUM,
    UnaryOp.ABS: UnaryOp.COPY,
    UnaryOp.BITWISE_INVERT: UnaryOp.LOGICAL_NOT,
}
OF_INTEGERS: dict[Op, Op] = {op: UnaryOp.COPY for op in (UnaryOp.FLOOR, UnaryOp.CEIL, UnaryOp.ROUND, UnaryOp.TRUNC)}

COMPARISONS = frozenset(BinaryOp(value) for value in range(BinaryOp.EQUAL.value, BinaryOp.GREATER_EQUAL.value + 1))
# These, and the logical operations of two operands.
TO_BOOL = frozenset(op for op, row in OPERATIONS.items() if isinstance(op, BinaryOp) and row.result == "BOOL")


class Resolution(NamedTuple):
    """The operation, the type that each operand must have, and the type of the result."""

    op: Op
    operand_types: tuple[DType, ...]
    result: DType


# The rules of a framework that does not promote as NumPy does. Arguments: op, the operands' signatures and types, the
# parameters' types, the operands' names, the default dtype or None. It returns None if it needs the default dtype and
# has none.
Promotion = Callable[..., Resolution | None]
# By the type of the framework's dtypes.
PROMOTIONS: dict[type, Promotion] = {}


@functools.lru_cache(maxsize=1024)
def resolve(
    op: Op,
    operands: tuple[DType | type, ...],
    parameters: tuple[DType | type, ...] = (),
    names: tuple[str, ...] = ("x", "y", "z"),
) -> Resolution:
    """How to compute `op`. A DType is the type of an array or a NumPy scalar, a Python type that of a weak number.
    Raises TypeError if op does not take these types; `names` are the names of the operands."""
    values = operands[1:] if op == TernaryOp.WHERE else operands
    scalars = [kind for kind in (*values, *parameters) if not isinstance(kind, DType)]
    codes = [kind for kind in (*values, *parameters) if isinstance(kind, DType)]
    if not codes:  # where(mask, 1, 0): the numbers decide
        codes, scalars = [_type_of_number(kind) for kind in scalars], []
    if op in TO_BOOL and INTEGERS.issuperset(codes) and common_type(codes) not in INTEGERS:
        # A signed integer with uint64, which no type holds: the library compares int64 with uint64.
        return Resolution(op, tuple(DType.UINT64 if code >= DType.UINT8 else DType.INT64 for code in codes), DType.BOOL)
    common = common_type(codes, scalars)
    return resolved(op, operands, names, common, None)


def resolved(
    op: Op,
    operands: tuple[DType | type, ...],
    names: tuple[str, ...],
    common: DType,
    default: DType | None,
) -> Resolution:
    """How to compute `op` if the types of its operands come to `common`."""
    computed = computed_as(op, common, default)
    if computed is None:
        raise _wrong_types(OPERATIONS[op].takes, operands, names, common)
    op, compute = computed
    condition, values = (operands[:1], operands[1:]) if op == TernaryOp.WHERE else ((), operands)
    needed = [DType.BOOL for _ in condition]
    for kind in values:
        direct = kind == compute or (kind in MIXED_FLOATS and compute in MIXED_FLOATS) or op == UnaryOp.COPY
        if (
            direct and op in TO_BOOL and isinstance(kind, DType)
        ):  # a torch tensor without dimensions that has a wider type is rounded first
            direct = promote(kind, compute) == compute
        needed.append(kind if direct and isinstance(kind, DType) else compute)
    result = DType.BOOL if OPERATIONS[op].result == "BOOL" else compute
    return Resolution(op, tuple(needed), result)


def _kind_of(code: DType) -> str:
    return "F" if code in FLOATS else "I" if code in INTEGERS else "B"


def computed_as(op: Op, common: DType, default: DType | None) -> tuple[Op, DType] | None:
    """The operation and the type that it computes in; `default` is the float in which torch computes integers."""
    takes, kind = OPERATIONS[op].takes, _kind_of(common)
    if kind in takes:
        return op, common
    if kind == "B" and op in OF_BOOL:
        return OF_BOOL[op], common
    if kind == "F":
        return None
    if op in OF_INTEGERS:
        return OF_INTEGERS[op], common
    if takes != "F":
        return None
    of_numpy = DType.FLOAT64 if op == BinaryOp.DIVIDE else float_of(common)
    return op, of_numpy if default is None else default


def types_in_words(takes: str) -> str:
    """The types that an operation takes."""
    return " or ".join({"B": "bool", "I": "integers", "F": "floats"}[letter] for letter in takes)


def _wrong_types(takes: str, operands: tuple[DType | type, ...], names: tuple[str, ...], common: DType) -> TypeError:
    """The exception for types that op does not take. It names the first operand of such a type; if op takes each type
    but not their common type, it names all operands."""
    wanted = types_in_words(takes)
    codes = [kind if isinstance(kind, DType) else _type_of_number(kind) for kind in operands]
    texts = [
        f"{name} {'has dtype ' + dtype_name(kind) if isinstance(kind, DType) else 'is ' + kind_named(kind.__name__)}"
        for kind, name in zip(operands, names)
    ]
    for code, text in zip(codes, texts):
        if _kind_of(code) not in takes:
            return TypeError(f"{text}, must be {wanted}")
    return TypeError(f"{', '.join(texts)}: they come to {dtype_name(common)}, must come to {wanted}")


def _type_of_number(kind: type) -> DType:
    if issubclass(kind, bool):
        return DType.BOOL
    return DType.FLOAT64 if issubclass(kind, float) else DType.INT64


def takes_out(op: Op, result: DType, out: DType) -> bool:
    """Whether a result of this type may be written as `out`."""
    if OPERATIONS[op].result == "ANY":
        return out in FLOATS or out in INTEGERS or out == DType.BOOL
    return out == result or (OPERATIONS[op].result == "SAME" and {out, result} <= MIXED_FLOATS)


def compared_past_bounds(op: BinaryOp, number: int, index: int, code: DType) -> tuple[BinaryOp, int]:
    """A comparison that gives the answer of `op` for a number at `index` that type `code` does not hold. The answer is
    the same for all elements: `x <= high` and `low <= y` are true, `x > high` and `low > y` are false."""
    low, high = integer_bounds(code)
    x_is_less = (number > 0) == (index == 1)
    is_true = op in (_TRUE_OF_LESS if x_is_less else _TRUE_OF_GREATER)
    return BinaryOp.LESS_EQUAL if is_true else BinaryOp.GREATER, high if index == 1 else low


def within_bounds(op: BinaryOp, number: int, index: int, code: DType) -> tuple[BinaryOp, int]:
    """`op` with a number at `index`; if type `code` does not hold the number, the comparison that answers for it."""
    low, high = integer_bounds(code)
    return (op, number) if low <= number <= high else compared_past_bounds(op, number, index, code)


_TRUE_OF_LESS = (BinaryOp.LESS, BinaryOp.LESS_EQUAL, BinaryOp.NOT_EQUAL)
_TRUE_OF_GREATER = (BinaryOp.GREATER, BinaryOp.GREATER_EQUAL, BinaryOp.NOT_EQUAL)
