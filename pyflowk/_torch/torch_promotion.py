# SPDX-License-Identifier: Apache-2.0
"""The types of elementwise operations on tensors: PyTorch's rules (torch.result_type).

Operands come in three groups: tensors with dimensions; tensors without, NumPy scalars; Python numbers. Each group has
the type that holds its members, by torch.promote_types. The group before decides, unless a later one is of a higher
kind (bool < integers < floats), which then promotes it: int32 + 1.5 gives the default dtype, float16 + a float64 tensor
without dimensions float16. Functions that only floats have compute integers and bool in the default dtype.

In a comparison or logical operation, a tensor without dimensions or a NumPy scalar of a wider float type is rounded to
the type that they all come to first, as PyTorch does: float16 tensors compare with float16 values.

Some of PyTorch's results are not given: pow, neg, square and others of integers or bool, for which flowk.h has no
operation. They raise TypeError.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import NamedTuple

import torch

from .._arrays.adapters.base import Signature
from .._arrays.dtypes import dtype_like, dtype_name, type_of_elements
from .._elementwise.promotion import FLOATS, INTEGERS
from .._elementwise.resolution import PROMOTIONS, Op, Resolution, resolved
from .._native.abi import DType
from .._native.operations import TernaryOp


class ZeroDim(NamedTuple):
    """The type of a tensor without dimensions."""

    code: DType


def default_dtype() -> DType:
    """torch.get_default_dtype()."""
    return _code_of(torch.get_default_dtype())


def resolve(
    op: Op,
    signatures: tuple[Signature, ...],
    types: tuple[DType | type, ...],
    parameters: tuple[DType | type, ...],
    names: tuple[str, ...],
    default: DType | None,
) -> Resolution | None:
    """How to compute `op` on operands of these types; without `default` None if the default dtype decides."""
    marked = tuple(
        ZeroDim(code) if isinstance(code, DType) and not (isinstance(operand, tuple) and operand[0]) else code
        for code, operand in zip(types, signatures)
    )
    of_default = functools.partial(resolve_marked, op, marked, parameters, names)
    resolution = of_default(default or DType.FLOAT32)
    return None if default is None and resolution != of_default(DType.FLOAT64) else resolution


@functools.lru_cache(maxsize=1024)
def resolve_marked(
    op: Op,
    operands: tuple[DType | ZeroDim | type, ...],
    parameters: tuple[DType | type, ...],
    names: tuple[str, ...],
    default: DType,
) -> Resolution:
    """resolve() of operands of which a DType is the type of a tensor with dimensions."""
    values = operands[1:] if op == TernaryOp.WHERE else operands
    tensors = tuple(one for one in values if isinstance(one, DType))
    scalars = tuple(one.code if isinstance(one, ZeroDim) else one for one in values if one not in tensors)
    codes = tuple(one for one in (*scalars, *parameters) if isinstance(one, DType))
    numbers = tuple(one for one in (*scalars, *parameters) if not isinstance(one, DType))
    common = _common_type(tensors, codes, numbers, default)
    types = tuple(one.code if isinstance(one, ZeroDim) else one for one in operands)
    return resolved(op, types, names, common, default)


def _common_type(tensors: Iterable[DType], scalars: Iterable[DType], numbers: Iterable[type], default: DType) -> DType:
    """The type of an operation on tensors with and without dimensions and Python numbers; TypeError if PyTorch has
    none."""
    common: DType | None = None
    weak = [_type_of_number(number, default) for number in numbers]
    for group in (weak, scalars, tensors):
        if group:
            code = functools.reduce(_promote, group)
            common = code if common is None or _rank(common) <= _rank(code) else _promote(code, common)
    assert common is not None
    return common


def _type_of_number(number: type, default: DType) -> DType:
    return DType.BOOL if issubclass(number, bool) else default if issubclass(number, float) else DType.INT64


def _rank(code: DType) -> int:
    return 2 if code in FLOATS else 1 if code in INTEGERS else 0


def _promote(first: DType, second: DType) -> DType:
    try:
        return _code_of(torch.promote_types(*(dtype_like(code, torch.float32) for code in (first, second))))
    except RuntimeError:
        raise TypeError(
            f"PyTorch has no type for {dtype_name(first)} beside {dtype_name(second)}: cast one of them"
        ) from None


def _code_of(dtype: torch.dtype) -> DType:
    code = type_of_elements(dtype)
    assert code is not None
    return code


def register() -> None:
    """Makes these the rules for arrays with dtypes of PyTorch."""
    PROMOTIONS[torch.dtype] = resolve
