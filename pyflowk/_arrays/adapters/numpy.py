# SPDX-License-Identifier: Apache-2.0
"""numpy.ndarray: host memory."""

from __future__ import annotations

import numpy as np

from ..dtypes import contiguous_strides
from .base import ArrayAdapter, Extents, Maker, Reading


class NumpyAdapter(ArrayAdapter[np.ndarray]):
    def read(self, x: np.ndarray, name: str, stream: int) -> Reading:
        return x.ctypes.data, x.shape, x.strides, x.dtype, None, None

    def read_out(self, x: np.ndarray, name: str, stream: int) -> Reading:
        if not x.flags.writeable:
            raise ValueError(f"{name} is read-only, must be writable")
        return self.read(x, name, stream)

    def empty(
        self, x: np.ndarray, shape: Extents, dtype: np.dtype, device: int | None, stream: int
    ) -> tuple[np.ndarray, int]:
        array = np.empty(shape, dtype)
        return array, array.ctypes.data

    def stream_of(self, x: np.ndarray) -> int:
        return 0

    def maker(self, x: np.ndarray, shape: Extents, strides: Extents, dtype: np.dtype) -> Maker | None:
        return (np.empty, (shape, dtype), None) if strides == contiguous_strides(shape, 1) else None


NUMPY = NumpyAdapter()
