# SPDX-License-Identifier: Apache-2.0
"""Lists beside NumPy arrays, and host arrays of rank 0 beside arrays on a GPU, for operations that take numbers."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from .._native.abi import DType
from .dtypes import number_type
from .kinds import ANYWHERE, ARRAYS, NUMPY, OPERANDS, OperandKind, Reading, find_operand_kind


class HostScalar(NamedTuple):
    """A host array of rank 0 beside arrays on a GPU: a number of the array's type."""

    value: float
    code: DType


class HostScalarKind(OperandKind):
    """HostScalar."""

    @staticmethod
    def read(x: HostScalar, name: str, stream: int) -> tuple[float, None, None, DType, Any, None]:
        return x.value, None, None, x.code, ANYWHERE, None


class ListKind(OperandKind):
    """A list or tuple of numbers beside NumPy arrays: it is read as NumPy's array of it."""

    @staticmethod
    def read(x: Any, name: str, stream: int) -> Reading:
        try:
            array = np.asarray(x)
            number_type(array.dtype, name)
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"{name} is a {type(x).__name__} of which NumPy makes no array of numbers: {error}"
            ) from None
        return (*NUMPY.read(array, name, stream)[:5], functools.partial(_keep, array))


def _keep(array: np.ndarray, stream: int) -> None:
    """As `after`, keeps the array until the work is enqueued, which on the host is done then."""


LIST = ListKind()
OPERANDS[HostScalar] = HostScalarKind()


def find_operand_or_list_kind(x: Any, name: str) -> Any:
    """find_operand_kind(), or the kind of a list or tuple."""
    return LIST if isinstance(x, (list, tuple)) and type(x) not in OPERANDS else find_operand_kind(x, name)


def host_scalar(x: Any, name: str) -> Any:
    """A host array of rank 0 as a HostScalar; any other operand as it is."""
    kind = ARRAYS.get(type(x))
    if kind is None or getattr(x, "shape", None) != ():
        return x
    *_, dtype, device, _ = kind.read(x, name, 0)
    if device is not None:
        return x
    code = number_type(dtype, name)
    if code == DType.BOOL:
        return HostScalar(bool(x), code)
    return HostScalar(int(x) if code < DType.FLOAT16 else float(x), code)
