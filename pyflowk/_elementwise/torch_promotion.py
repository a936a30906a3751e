# SPDX-License-Identifier: Apache-2.0
"""The type of a result where the first array is a torch tensor: PyTorch's rules (torch.result_type).

Operands come in three groups: tensors with dimensions; tensors without, NumPy scalars; Python numbers. Each group has
the type that holds its members. The group before decides, unless a later one is of a higher kind (bool < integers <
floats), which then promotes it: int32 + 1.5 gives the default dtype, float16 + a float64 tensor without dimensions
float16. Functions that only floats have compute integers and bool in the default dtype.

Two types: a float beside an integer gives the float; two integers the narrowest that holds both; float16 beside
bfloat16 float32. PyTorch does not promote float8, nor uint16, uint32 and uint64 with another integer or bool.

In a comparison or logical operation, a tensor without dimensions or a NumPy scalar of a wider float type is rounded to
the type that they all come to first, as PyTorch does: float16 tensors compare with float16 values.

Of PyTorch's own results these are not given: pow, neg, square and others of integers or bool where flowk.h has no such
operation. They raise TypeError.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterable

from .._arrays.dtypes import dtype_name, type_of_elements
from .._native.abi import DType
from .promotion import FLOATS, INTEGERS, promote

_WIDE_UNSIGNED = frozenset({DType.UINT16, DType.UINT32, DType.UINT64})
_FLOAT8 = frozenset({DType.FLOAT8_E4M3, DType.FLOAT8_E5M2})


def common_type(tensors: Iterable[DType], scalars: Iterable[DType], numbers: Iterable[type], default: DType) -> DType:
    """The type of an operation on tensors with and without dimensions and Python numbers; `default` is that of
    torch.get_default_dtype(). TypeError where PyTorch has none."""
    common: DType | None = None
    weak = [_type_of_number(number, default) for number in numbers]
    for group in (weak, scalars, tensors):
        own = functools.reduce(_promote, group) if group else None
        if own is not None:
            common = own if common is None or _kind(common) <= _kind(own) else _promote(own, common)
    assert common is not None
    return common


def default_dtype() -> DType:
    """torch.get_default_dtype()."""
    code = type_of_elements(sys.modules["torch"].get_default_dtype())
    assert code is not None
    return code


def _type_of_number(number: type, default: DType) -> DType:
    return DType.BOOL if issubclass(number, bool) else default if issubclass(number, float) else DType.INT64


def _kind(code: DType) -> int:
    return 2 if code in FLOATS else 1 if code in INTEGERS else 0


def _promote(first: DType, second: DType) -> DType:
    if first == second:
        return first
    if _FLOAT8.isdisjoint((first, second)):
        if 2 in (_kind(first), _kind(second)) and _kind(first) != _kind(second):
            return first if first in FLOATS else second
        if _WIDE_UNSIGNED.isdisjoint((first, second)):
            return promote(first, second)
    raise TypeError(f"PyTorch has no type for {dtype_name(first)} beside {dtype_name(second)}: cast one of them")
