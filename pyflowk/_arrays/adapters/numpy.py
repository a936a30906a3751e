# SPDX-License-Identifier: Apache-2.0
"""numpy.ndarray: host memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..dtypes import contiguous_strides
from .base import ArrayAdapter, Extents, Reading


class NumpyAdapter(ArrayAdapter):
    def read(self, x: np.ndarray, name: str, stream: int) -> Reading:
        return x.ctypes.data, x.shape, x.strides, x.dtype, None, None

    def read_out(self, x: np.ndarray, name: str, stream: int) -> Reading:
        if not x.flags.writeable:
            raise ValueError(f"{name} is read-only, must be writable")
        return self.read(x, name, stream)

    def empty(self, x: Any, shape: Extents, dtype: Any, device: Any, stream: int) -> tuple[np.ndarray, int]:
        array = np.empty(shape, dtype)
        return array, array.ctypes.data

    def stream_of(self, x: Any) -> int:
        return 0

    def maker(self, x: Any, shape: Extents, strides: Extents, dtype: Any) -> Any:
        return (np.empty, (shape, dtype), None) if strides == contiguous_strides(shape, 1) else None


NUMPY = NumpyAdapter()
