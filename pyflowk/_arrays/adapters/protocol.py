# SPDX-License-Identifier: Apache-2.0
"""Any other object with `__dlpack__` or `__cuda_array_interface__`: Numba's, JAX's, cuda.core's StridedMemoryView ...

cuda.core reads those on a GPU, and makes the stream wait for their work; NumPy reads those on the host.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np

from ..._native import driver
from ..dtypes import contiguous_strides
from ..stream import LEGACY_DEFAULT, hold_until_done
from .base import ArrayAdapter, Extents, Reading
from .device import DEVICE_ARRAY
from .numpy import NUMPY

_HOST_DEVICE_TYPES = (1, 3, 11)  # DLDeviceType: CPU, CUDA pinned host, ROCm pinned host


class ProtocolAdapter(ArrayAdapter[Any]):
    follows_current_stream = False

    def read(self, x: Any, name: str, stream: int) -> Reading:
        if _is_on_host(x):
            return NUMPY.read(_host_view(x, name), name, stream)
        return reading_of(strided_memory_view(x, name, stream))

    def read_out(self, x: Any, name: str, stream: int) -> Reading:
        if _is_on_host(x):
            return NUMPY.read_out(_host_view(x, name), name, stream)
        view = strided_memory_view(x, name, stream)
        if view.readonly:
            raise ValueError(f"{name} is read-only, must be writable")
        return reading_of(view)

    def empty(self, x: Any, shape: Extents, dtype: np.dtype, device: int | None, stream: int) -> tuple[Any, int]:
        if device is None:
            return NUMPY.empty(x, shape, dtype, device, stream)
        return DEVICE_ARRAY.empty(x, shape, dtype, device, stream)

    def stream_of(self, x: Any) -> int:
        return LEGACY_DEFAULT


def reading_of(view: Any) -> Reading:
    """What cuda.core has read of an array, which is kept until the work on it has ended."""
    shape, itemsize = tuple(view.shape), view.dtype.itemsize
    if view.strides is None:
        strides = contiguous_strides(shape, itemsize)
    else:
        strides = tuple(stride * itemsize for stride in view.strides)
    device = view.device_id

    def after(stream: int) -> None:
        with driver.current(device):
            hold_until_done(stream, view)

    return view.ptr, shape, strides, view.dtype, device, after


def _is_on_host(x: Any) -> bool:
    return hasattr(x, "__dlpack_device__") and x.__dlpack_device__()[0] in _HOST_DEVICE_TYPES


def _host_view(x: Any, name: str) -> np.ndarray:
    try:
        if getattr(getattr(x, "dtype", None), "isbuiltin", 1) == 2:  # of ml_dtypes, for which NumPy has no DLPack
            return np.asarray(x)
        return np.from_dlpack(x)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise TypeError(f"{name} is a {type(x).__name__} that NumPy cannot take by DLPack: {error}") from error


def strided_memory_view(x: Any, name: str, stream: int) -> Any:
    try:
        views: Any = import_module("cuda.core.utils").StridedMemoryView
    except Exception as error:  # a broken cuda-python raises more than ImportError
        raise ImportError(
            f"{name} is a {type(x).__name__}: reading it needs cuda.core (pip install cuda-core): {error}"
        ) from error
    # A capture must not wait for a stream outside it. In DLPack and in CAI, 0 does not name the default stream.
    consumer = -1 if driver.is_capturing(stream) else stream or LEGACY_DEFAULT
    try:
        view = views.from_any_interface(x, stream_ptr=consumer)
    except (BufferError, NotImplementedError, TypeError, ValueError) as error:
        raise TypeError(f"{name} is a {type(x).__name__} that cuda.core cannot read: {error}") from error
    if view.dtype is None:
        raise TypeError(f"{name} is a {type(x).__name__} of a type that NumPy does not know")
    return view


PROTOCOL = ProtocolAdapter()
