# SPDX-License-Identifier: Apache-2.0
"""The type of a result by NumPy's rules, for the element types of flowk.h and the arrays of all frameworks that have no
rules in PROMOTIONS of resolution.py.

It depends only on the types of the operands, not on their shapes or their order.

The type of a result of two types:
  - bool and another type: the other type;
  - two integers: the narrowest type that holds both; float64 for uint64 with a signed integer;
  - an integer and a float: the wider of the float and the float that NumPy gives for the integer (float16 for 8 bits,
    float32 for 16, float64 for more); an integer of 8 bits leaves every float as it is;
  - two floats: the narrowest type that holds both, except that float16 with float8_e5m2 gives float32, as in ml_dtypes.
Of more than two types, first those drop out that another type holds (bool always does); then all floats are promoted to
one type, then this type and the integers.

A Python number is weak: it takes the arrays' type, except that a float with integers or bool gives float64, and an int
with bool gives int64. NumPy promotes bfloat16 and float8 with a Python float to float32; pyflowk does not. A NumPy
scalar keeps its type, as in NumPy 2, as a parameter too; this includes np.float64, which is also a Python float. A host
array of rank 0 with arrays on a GPU also keeps its type.

A number with floats of 8 and 16 bits is not rounded to their type: the formula is computed in float32, to which the
number is rounded, and the result is rounded once. In a comparison the number is first rounded to the arrays' type, as
NumPy and torch do. An int that an integer type does not hold is compared by its value.
"""

from __future__ import annotations

import functools
import math
import struct
import sys
from collections.abc import Iterable
from typing import Any

from .._native.abi import DType

INTEGERS = frozenset(DType(code) for code in range(DType.INT8, DType.UINT64 + 1))
FLOATS = frozenset({DType.FLOAT16, DType.BFLOAT16, DType.FLOAT32, DType.FLOAT64, DType.FLOAT8_E4M3, DType.FLOAT8_E5M2})
# The C functions mix these in one call; operands of any other type must all have that type.
MIXED_FLOATS = FLOATS - {DType.FLOAT64}

# The library takes parameters as float64, which holds every integer up to this one.
LARGEST_PARAMETER = 2**53

_BITS = {code: 8 << (code - DType.INT8) % 4 for code in INTEGERS}
_SIGNED = {8: DType.INT8, 16: DType.INT16, 32: DType.INT32, 64: DType.INT64}
_FLOAT_OF_BITS = {8: DType.FLOAT16, 16: DType.FLOAT32, 32: DType.FLOAT64, 64: DType.FLOAT64}
_NARROW_PAIRS = {
    frozenset({DType.FLOAT16, DType.BFLOAT16}): DType.FLOAT32,
    frozenset({DType.FLOAT16, DType.FLOAT8_E4M3}): DType.FLOAT16,
    frozenset({DType.FLOAT16, DType.FLOAT8_E5M2}): DType.FLOAT32,
    frozenset({DType.BFLOAT16, DType.FLOAT8_E4M3}): DType.BFLOAT16,
    frozenset({DType.BFLOAT16, DType.FLOAT8_E5M2}): DType.BFLOAT16,
    frozenset({DType.FLOAT8_E4M3, DType.FLOAT8_E5M2}): DType.FLOAT16,
}


def promote(first: DType, second: DType) -> DType:
    """The type that a value of either becomes."""
    if first == second or second == DType.BOOL:
        return first
    if first == DType.BOOL:
        return second
    if first in INTEGERS and second in INTEGERS:
        return _promote_integers(first, second)
    if first in INTEGERS:
        first, second = second, first
    if second in INTEGERS:
        return first if _BITS[second] == 8 else promote(first, _FLOAT_OF_BITS[_BITS[second]])
    pair = frozenset((first, second))
    for wide in (DType.FLOAT64, DType.FLOAT32):
        if wide in pair:
            return wide
    return _NARROW_PAIRS[pair]


def _promote_integers(first: DType, second: DType) -> DType:
    if (first < DType.UINT8) == (second < DType.UINT8):
        return max(first, second)
    signed, unsigned = sorted((first, second))
    bits = max(_BITS[signed], 2 * _BITS[unsigned])
    return DType.FLOAT64 if bits > 64 else _SIGNED[bits]


def float_of(code: DType) -> DType:
    """The type in which NumPy computes a function that only floats have, sqrt for example."""
    if code in FLOATS:
        return code
    return DType.FLOAT16 if code == DType.BOOL else _FLOAT_OF_BITS[_BITS[code]]


@functools.cache
def _common_type(codes: frozenset[DType]) -> DType:
    lasting = [code for code in codes if not any(promote(code, other) == other for other in codes - {code})]
    return functools.reduce(promote, sorted(lasting, key=lambda code: (code not in FLOATS, code)))


def common_type(codes: Iterable[DType], scalars: Iterable[type] = ()) -> DType:
    """The type of an operation on arrays of `codes` and Python numbers of the types `scalars`."""
    common = _common_type(frozenset(codes))
    for scalar in scalars:
        if issubclass(scalar, float) and common not in FLOATS:
            common = DType.FLOAT64
        elif not issubclass(scalar, (bool, float)) and common == DType.BOOL:
            common = DType.INT64
    return common


# Digits of the significand, exponent of the least normal value, largest value.
_FLOAT_FORMS = {
    DType.FLOAT16: (11, -14, 65504.0),
    DType.BFLOAT16: (8, -126, float.fromhex("0x1.fep127")),
    DType.FLOAT32: (24, -126, float.fromhex("0x1.fffffep127")),
    DType.FLOAT8_E4M3: (4, -6, 448.0),
    DType.FLOAT8_E5M2: (3, -14, 57344.0),
}
_FLOAT32, _pack_float32 = DType.FLOAT32, struct.Struct("=f").pack
_INTEGER_FORMATS = dict(zip(range(DType.INT8, DType.UINT64 + 1), "bhiqBHIQ", strict=True))


def round_to(value: float, code: DType) -> float:
    """`value` as an element of a float type: rounded to the nearest, ties to even; past the largest value infinity, in
    float8 the largest value."""
    if code == DType.FLOAT64 or value == 0 or math.isnan(value):
        return value
    digits, least_exponent, largest = _FLOAT_FORMS[code]
    past = math.copysign(largest if code in (DType.FLOAT8_E4M3, DType.FLOAT8_E5M2) else math.inf, value)
    if math.isinf(value):
        return past
    exponent = max(math.frexp(value)[1] - 1, least_exponent)
    quantum = math.ldexp(1.0, exponent - digits + 1)
    rounded = math.copysign(round(value / quantum) * quantum, value)
    return rounded if abs(rounded) <= largest else past


def integer_bounds(code: DType) -> tuple[int, int]:
    """The least and the largest value of an integer type."""
    low = -(2 ** (_BITS[code] - 1)) if code in _SIGNED.values() else 0
    return low, low + 2 ** _BITS[code] - 1


def number_as(code: DType) -> DType:
    """The type as which number_bytes() passes a number of type `code`."""
    return DType.FLOAT32 if code in MIXED_FLOATS else code


def number_bytes(value: Any, code: DType, name: str) -> bytes:
    """The number in parameter `name`, rounded to type `code`, as an element of type number_as(code).

    OverflowError, as in NumPy 2, for an int that an integer type or float64 does not hold.
    """
    if code is _FLOAT32:  # the common case, several times as fast as the others
        try:
            return _pack_float32(value)  # rounds as round_to() does
        except (OverflowError, struct.error):
            return _pack_float32(round_to(float_from(value, name), code))
    if code in INTEGERS:
        try:
            return struct.pack("=" + _INTEGER_FORMATS[code], value)
        except struct.error:
            low, high = integer_bounds(code)
            raise OverflowError(
                f"{name}: Python integer {_shown(value)} out of bounds for {code.name.lower()}, must be in "
                f"{low} ... {high}"
            ) from None
    if code == DType.BOOL:
        return struct.pack("=?", value)
    if code == DType.FLOAT64:
        return struct.pack("=d", float_from(value, name))
    return _pack_float32(round_to(float_from(value, name), code))


def parameter_value(value: Any, code: DType, name: str) -> float:
    """A parameter of a result of type `code`; OverflowError, as in NumPy 2, if an integer type does not hold it."""
    if code in INTEGERS:
        value = int(value)
        number_bytes(value, code, name)
        if abs(value) > LARGEST_PARAMETER:
            raise OverflowError(f"{name}: Python integer {value} is past 2**53, the largest parameter")
    return value if value.__class__ is float else float_from(value, name)


def float_from(value: Any, name: str) -> float:
    """The number in parameter `name` as a float."""
    try:
        return float(value)
    except OverflowError:
        bound = float(sys.float_info.max)
        raise OverflowError(f"{name}: Python integer {_shown(value)} must be in {-bound} ... {bound}") from None


def _shown(value: int) -> str:
    return str(value) if value.bit_length() <= 128 else f"of {value.bit_length()} bits"
