# SPDX-License-Identifier: Apache-2.0
"""cupy.ndarray. CuPy itself is not imported: who passes its arrays has imported it."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..dlpack import exchange_api
from ..dtypes import contiguous_strides
from ..stream import LEGACY_DEFAULT, is_same_stream
from .base import BY_CUPY, ArrayAdapter, Extents, Maker, ProgramCache, Reading


class CupyAdapter(ArrayAdapter[Any]):
    def __init__(self) -> None:
        cupy = sys.modules["cupy"]
        self._ndarray, self._current_stream = cupy.ndarray, cupy.cuda.get_current_stream

    def read(self, x: Any, name: str, stream: int) -> Reading:
        data = x.data
        return data.ptr, x.shape, x.strides, x.dtype, data.device_id, None

    def empty(self, x: Any, shape: Extents, dtype: np.dtype, device: int | None, stream: int) -> tuple[Any, int]:
        assert device is not None
        with x.device if is_same_stream(stream, self.stream_of(x)) else _on_stream(stream, device):
            array = self._ndarray(shape, dtype)
        return array, array.data.ptr

    def stream_of(self, x: Any) -> int:
        return int(self._current_stream().ptr)

    def maker(self, x: Any, shape: Extents, strides: Extents, dtype: np.dtype) -> Maker | None:
        # On the current device, which is x's.
        return (self._ndarray, (shape, dtype), None) if strides == contiguous_strides(shape, 1) else None

    def register_type(self, array_type: type, cache: ProgramCache) -> None:
        if exchange_api(array_type) is not None:
            super().register_type(array_type, cache)
        else:
            cache.add_type(array_type, BY_CUPY, 0, False, self._current_stream)


@contextlib.contextmanager
def _on_stream(stream: int, device: int) -> Iterator[None]:
    """A block in which CuPy allocates on `stream`: it uses memory that is freed again after the work on that stream."""
    cuda = sys.modules["cupy"].cuda
    with cuda.Device(device), cuda.ExternalStream(0 if stream == LEGACY_DEFAULT else stream, device):
        yield


def adapter_of(x: object, name: str) -> CupyAdapter | None:
    """The adapter of an array, None for CuPy's other objects."""
    return CupyAdapter() if isinstance(x, sys.modules["cupy"].ndarray) else None


def allocate(num_bytes: int, device: int, stream: int) -> Any:
    """Memory from CuPy's pool, for a DeviceArray."""
    with _on_stream(stream, device):
        return sys.modules["cupy"].cuda.alloc(num_bytes)
