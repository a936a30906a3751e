# SPDX-License-Identifier: Apache-2.0
"""Numbers, None, and lists in calls on NumPy arrays."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from ..._native.abi import DType
from ..dtypes import number_type
from .base import ANYWHERE, Adapter, NumberReading, Reading
from .numpy import NUMPY


class NumberAdapter(Adapter[float]):
    """A Python number. It is weak: its type gives way to the arrays'."""

    def read(self, x: float, name: str, stream: int) -> NumberReading:
        return x, None, None, x.__class__, ANYWHERE, None


class ScalarAdapter(Adapter[Any]):
    """A NumPy scalar, or an instance of a subclass of Python's numbers."""

    def read(self, x: Any, name: str, stream: int) -> NumberReading:
        if isinstance(x, np.generic):
            code = number_type(x.dtype, name)
            return x.item() if x.dtype.kind in "biu" else float(x), None, None, code, ANYWHERE, None
        return x, None, None, int if isinstance(x, int) else float, ANYWHERE, None


class NoneAdapter(Adapter[None]):
    """None, for an operand that may be left out."""

    def read(self, x: None, name: str, stream: int) -> NumberReading:
        return None, None, None, None, ANYWHERE, None


class HostScalar(NamedTuple):
    """A host array of rank 0 in a call on arrays on a GPU: a number of the array's type."""

    value: float
    code: DType


class HostScalarAdapter(Adapter[HostScalar]):
    """HostScalar."""

    def read(self, x: HostScalar, name: str, stream: int) -> NumberReading:
        return x.value, None, None, x.code, ANYWHERE, None


class ListAdapter(Adapter[object]):
    """A list or tuple of numbers in a call on NumPy arrays: it is read as NumPy's array of it."""

    def read(self, x: object, name: str, stream: int) -> Reading:
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


LIST = ListAdapter()
