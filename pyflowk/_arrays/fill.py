# SPDX-License-Identifier: Apache-2.0
"""Writes one value to every element of an array."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._native.abi import HOST_SCALAR, DType
from .._native.c_types import Library, int64s
from .._native.errors import error_of
from .._native.operations import UnaryOp
from .dtypes import element_strides
from .views import Extents

_BITS = {1: DType.UINT8, 2: DType.UINT16, 4: DType.UINT32, 8: DType.UINT64}


def fill_memory(
    library: Library, pointer: int, shape: Extents, strides: Extents, dtype: np.dtype, value: Any, stream: int
) -> None:
    """Writes `value`, as NumPy converts it to the dtype, to all elements; strides are in bytes.

    One kernel copies the number's bits; two of them, for the halves of an element of 16 bytes.
    """
    if np.ndim(value):
        raise TypeError("value is an array, must be a number")
    bits = np.full((), value, dtype).tobytes()
    part = min(dtype.itemsize, 8)
    steps = [step * (dtype.itemsize // part) for step in element_strides(dtype, shape, strides, "the array")]
    extents, c_steps, code = int64s(shape), int64s(steps), _BITS[part]
    for first in range(0, dtype.itemsize, part):
        status = library.flowk_unary(
            *(UnaryOp.COPY.value, bits[first : first + part], None, code | HOST_SCALAR),
            *(pointer + first, c_steps, code, len(shape), extents, 0.0, 0.0, stream),
        )
        if status:
            raise error_of(library, status)
