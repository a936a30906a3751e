# SPDX-License-Identifier: Apache-2.0
"""DeviceArray: an n-dimensional array in GPU memory that cuda.core allocates and frees in stream order."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from . import _dlpack, _driver
from ._abi import Status
from ._dtypes import element_type, numpy_dtype
from ._errors import FlowkError
from ._stream import LEGACY_DEFAULT, stream_handle


class DeviceArray:
    """An array of GPU memory. `empty()` and `asarray()` make one; CuPy, torch, JAX and Numba take it as it is, by
    `__dlpack__` or `__cuda_array_interface__` (`torch.from_dlpack(a)`, `cupy.asarray(a)`).

    An array belongs to one stream: its memory is given and freed in that stream's order, so the stream must outlive it.
    Where flowk works on it in another stream, that stream waits for the array's, and the array's for the work.

    Attributes:
      ptr      address of the element with all indices 0; 0 where the array has no elements
      shape    extents
      strides  bytes from one element to the next, one for each dimension
      dtype    a NumPy dtype
      device   ordinal of the GPU
      stream   handle of the stream it belongs to; 1 is the legacy default stream
    """

    __slots__ = ("__weakref__", "_buffer", "device", "dtype", "ptr", "shape", "stream", "strides")

    def __init__(
        self,
        buffer: Any,
        ptr: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        dtype: np.dtype,
        device: int,
        stream: int,
    ) -> None:
        self._buffer = buffer
        self.ptr = ptr
        self.shape = shape
        self.strides = strides
        self.dtype = dtype
        self.device = device
        self.stream = stream

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.size * self.dtype.itemsize

    def __repr__(self) -> str:
        return f"<pyflowk.DeviceArray shape={self.shape} dtype={self.dtype} device={self.device}>"

    def to_numpy(self) -> np.ndarray:
        """A copy in host memory, C-contiguous; waits for the work on the array's stream."""
        if self.strides != contiguous_strides(self.shape, self.dtype.itemsize):
            from ._permute import permute

            return permute(self, range(self.ndim), stream=self.stream).to_numpy()
        host = np.empty(self.shape, self.dtype)
        if host.nbytes:
            with _driver.current(self.device):
                _driver.copy_to_host(host.ctypes.data, self.ptr, host.nbytes, self.stream)
        return host

    def _view(self, offset_bytes: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: Any) -> DeviceArray:
        """An array over the same memory, strides in bytes; nothing is checked."""
        pointer = self.ptr + offset_bytes
        return DeviceArray(self._buffer, pointer, shape, strides, np.dtype(dtype), self.device, self.stream)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (_dlpack.CUDA, self.device)

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """A capsule of this memory, ready for work on `stream` (None: the legacy default stream, -1: no wait)."""
        if copy or dl_device not in (None, self.__dlpack_device__()):
            raise BufferError("a DeviceArray is exported without a copy, on its own device only")
        if stream == 0:
            raise BufferError("stream = 0 is ambiguous in DLPack: pass 1 (legacy default) or 2 (per thread)")
        strides = tuple(stride // self.dtype.itemsize for stride in self.strides)
        versioned = max_version is not None and max_version[0] >= 1
        capsule = _dlpack.make_capsule(
            self._buffer, self.ptr, self.shape, strides, self.dtype, self.__dlpack_device__(), versioned=versioned
        )
        if stream != -1:
            with _driver.current(self.device):
                _driver.make_wait(LEGACY_DEFAULT if stream is None else stream, self.stream)
        return capsule

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if self.dtype.name in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
            raise AttributeError(f"__cuda_array_interface__ has no type for dtype {self.dtype}: use DLPack")
        return {
            "version": 3,
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.ptr, False),
            "strides": self.strides,
            "stream": self.stream,
        }


def contiguous_strides(shape: Sequence[int], itemsize: int) -> tuple[int, ...]:
    """Strides of C order, in units of which `itemsize` make an element."""
    strides = [itemsize] * len(shape)
    for dimension in range(len(shape) - 1, 0, -1):
        strides[dimension - 1] = strides[dimension] * max(shape[dimension], 1)
    return tuple(strides)


def empty(shape: int | Sequence[int], dtype: Any, *, device: int | None = None, stream: Any = None) -> DeviceArray:
    """A new C-contiguous array whose elements hold anything.

    shape   extents, each >= 0
    dtype   what np.dtype() takes; "bfloat16", "float8_e4m3fn" and "float8_e5m2" where ml_dtypes is installed
    device  ordinal of the GPU; None: this thread's current one
    stream  the stream that the array belongs to, in any form that permute() takes; None: the legacy default stream

    Raises ValueError (a negative extent), TypeError (a dtype not of 1, 2, 4, 8 or 16 bytes), FlowkError (NO_DEVICE: no
    driver, no such GPU, no cuda.core), and cuda.core's own error when memory runs out.
    """
    extents = tuple(map(operator.index, shape if isinstance(shape, (Sequence, np.ndarray)) else (shape,)))
    if min(extents, default=0) < 0:
        raise ValueError(f"shape = {extents}, each extent must be >= 0")
    numpy_type = numpy_dtype(dtype)
    element_type(numpy_type, "the array")
    ordinal = _choose_device(device)
    handle = LEGACY_DEFAULT if stream is None else stream_handle(stream) or LEGACY_DEFAULT
    strides = contiguous_strides(extents, numpy_type.itemsize)
    num_bytes = math.prod(extents) * numpy_type.itemsize
    buffer, pointer = _allocate(num_bytes, ordinal, handle) if num_bytes else (None, 0)
    return DeviceArray(buffer, pointer, extents, strides, numpy_type, ordinal, handle)


def asarray(a: Any, *, device: int | None = None, stream: Any = None) -> DeviceArray:
    """A new DeviceArray with a copy of `a`, anything np.asarray() takes; returns when the copy is done.

    `device`, `stream` and what is raised: as empty().
    """
    host = np.ascontiguousarray(a).reshape(np.shape(a))  # ascontiguousarray makes rank 0 rank 1
    array = empty(host.shape, host.dtype, device=device, stream=stream)
    if host.nbytes:
        with _driver.current(array.device):
            _driver.copy_to_device(array.ptr, host.ctypes.data, host.nbytes, array.stream)
    return array


def _choose_device(device: int | None) -> int:
    ordinal = (_driver.current_device() or 0) if device is None else operator.index(device)
    count = _driver.device_count()
    if count == 0:
        raise FlowkError(Status.NO_DEVICE, "a DeviceArray needs a GPU: no CUDA driver, or no GPU, is found")
    if not 0 <= ordinal < count:
        raise FlowkError(Status.NO_DEVICE, f"device = {ordinal}, must be in 0 ... {count - 1}")
    return ordinal


def _allocate(num_bytes: int, device: int, stream: int) -> tuple[Any, int]:
    """(the cuda.core Buffer, its address)."""
    try:
        import cuda.core as core  # when it is needed: 0.2 s, and pyflowk works without it on other people's arrays

        default_streams = {1: core.LEGACY_DEFAULT_STREAM, 2: core.PER_THREAD_DEFAULT_STREAM}
    except Exception as error:  # a broken cuda-python raises more than ImportError
        raise FlowkError(
            Status.NO_DEVICE, f"a DeviceArray needs cuda.core 1.0 or newer (pip install cuda-core): {error}"
        ) from error
    with _driver.current(device):
        core_device = core.Device(device)
        core_device.set_current()
        core_stream = default_streams.get(stream) or core.Stream.from_handle(stream)
        buffer = core_device.allocate(num_bytes, stream=core_stream)
        return buffer, int(buffer.handle)
