# SPDX-License-Identifier: Apache-2.0
"""How pyflowk reads and makes the arrays of NumPy, torch, CuPy, its own, and those that have DLPack or
`__cuda_array_interface__` (CAI).

The kind of an array is looked up by the array's type. It has

  read(x, name, stream)       -> (pointer, shape, strides, dtype, device, after), for work on `stream` (a handle)
  read_out(x, name, stream)   the same for an array that will be written; ValueError where it is read-only
  empty(x, shape, dtype, device, stream)  -> (a new C-contiguous array, its pointer). Its memory is allocated on
                              `stream`, and given back in the order of that stream
  transposed(array, axes)     a view of an array that empty() made, with its dimensions in the order `axes`
  result(x, array)            what the caller gets for an array that empty() made
  stream_of(x)                handle of the stream for work on x when the caller names none
  follows_current_stream      stream_of() is the stream that the caller has made current in that framework
  is_array                    False for numbers and None, which have read() alone

`strides` are bytes where `dtype` is NumPy's and elements where it is torch's; `device` is None for the host. `after` is
None or a function to be called with the stream once the work is enqueued, and only then. Every call takes this path,
hence plain tuples.
torch, CuPy and JAX are never imported here: a caller who passes their arrays has imported them.

A framework that must see calls has an `interceptor` too, a function that gives what makes and plans these calls: an
object with by_operator() and bind_plan(), for torch the module pyflowk/_torch/road.py. It is asked for where
is_intercepted(), for the first array, or must_see(x), for each, is true.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import Any

import numpy as np

from .._native import driver
from .._native.abi import DType
from .device_array import DeviceArray, empty
from .dtypes import contiguous_strides, number_type
from .frameworks import is_instance_of, operator_calls
from .stream import LEGACY_DEFAULT, hold_until_done, is_same_stream, on_cupy_stream, on_torch_stream

After = Callable[[int], None]
Geometry = tuple[tuple[int, ...], tuple[int, ...], Any]  # shape, strides, dtype
# What a plan sees of an input: an array's geometry, a Python number's type, a NumPy scalar's DType, None for None.
Signature = Any  # Geometry | type | DType | None, which type checkers cannot narrow by position
Reading = tuple[int, tuple[int, ...], tuple[int, ...], Any, "int | None", "After | None"]

_HOST_DEVICE_TYPES = (1, 3, 11)  # DLDeviceType: CPU, CUDA pinned host, ROCm pinned host
ANYWHERE = object()  # the device of a number


class OperandKind:
    """What the kinds of numbers and None have in common."""

    is_array = False
    interceptor: Callable[[], Any] | None = None


class ArrayKind(OperandKind):
    """What most kinds of arrays have in common."""

    is_array = True
    follows_current_stream = True

    @staticmethod
    def result(x: Any, array: Any) -> Any:
        return array

    @staticmethod
    def transposed(array: Any, axes: tuple[int, ...]) -> Any:
        return array.transpose(axes)


class NumpyKind(ArrayKind):
    """numpy.ndarray: host memory."""

    @staticmethod
    def read(x: np.ndarray, name: str, stream: int) -> Reading:
        return x.ctypes.data, x.shape, x.strides, x.dtype, None, None

    @classmethod
    def read_out(cls, x: np.ndarray, name: str, stream: int) -> Reading:
        if not x.flags.writeable:
            raise ValueError(f"{name} is read-only, must be writable")
        return cls.read(x, name, stream)

    @staticmethod
    def empty(x: Any, shape: tuple[int, ...], dtype: Any, device: Any, stream: int) -> tuple[np.ndarray, int]:
        array = np.empty(shape, dtype)
        return array, array.ctypes.data

    @staticmethod
    def stream_of(x: Any) -> int:
        return 0


class TorchKind(ArrayKind):
    """torch.Tensor and torch.nn.Parameter, on the host or a GPU."""

    def __init__(self, torch: Any) -> None:
        from .._torch import gate  # for torch alone, which is imported here

        self._current_stream = gate.current_raw_stream
        self.is_intercepted, self._mark_written = gate.is_intercepted, gate.mark_written
        self.interceptor = operator_calls
        self._require_plain_memory = gate.require_plain_memory
        self._is_grad_enabled, self._in_kernel = torch.is_grad_enabled, gate.in_kernel

    @functools.cached_property
    def _has_one_device(self) -> bool:
        return driver.device_count() == 1  # get_device() would be a tenth of a read

    def read(self, x: Any, name: str, stream: int) -> Reading:
        dtype = x.dtype
        if x.is_neg() or (dtype.is_complex and x.is_conj()):  # its memory holds other values than the tensor
            raise ValueError(f"{name} is a lazily negated or conjugated tensor: resolve_neg() and resolve_conj() first")
        try:
            if x.is_cuda:
                device = 0 if self._has_one_device else x.get_device()
                return x.data_ptr(), x.shape, x.stride(), dtype, device, None
            if x.is_cpu:
                return x.data_ptr(), x.shape, x.stride(), dtype, None, None
        except RuntimeError:
            self._require_plain_memory(x, name)
            raise
        raise TypeError(f"{name} is a tensor on {x.device}, must be on the host or a CUDA device")

    def must_see(self, x: Any) -> bool:
        return bool(x.requires_grad and self._is_grad_enabled() and not self._in_kernel.now)

    def read_out(self, x: Any, name: str, stream: int) -> Reading:
        return (*self.read(x, name, stream)[:5], lambda stream: self._mark_written(x))

    def empty(self, x: Any, shape: tuple[int, ...], dtype: Any, device: Any, stream: int) -> tuple[Any, int]:
        if device is None or is_same_stream(stream, self._current_stream(device)):
            array = x.new_empty(shape, dtype=dtype)
        else:
            with on_torch_stream(stream, device):
                array = x.new_empty(shape, dtype=dtype)
        return array, array.data_ptr()

    @staticmethod
    def transposed(array: Any, axes: tuple[int, ...]) -> Any:
        return array.permute(axes).data  # without `data` autograd would take the result for a view of another tensor

    def stream_of(self, x: Any) -> int:
        return self._current_stream(0 if self._has_one_device else x.get_device()) if x.is_cuda else 0


class TorchSubclassKind(TorchKind):
    """Any other subclass of torch.Tensor: FakeTensor, DTensor, those of users."""

    def must_see(self, x: Any) -> bool:
        return not self._in_kernel.now


class CupyKind(ArrayKind):
    """cupy.ndarray."""

    def __init__(self, cupy: Any) -> None:
        self._ndarray = cupy.ndarray
        self._current_stream = cupy.cuda.get_current_stream

    @staticmethod
    def read(x: Any, name: str, stream: int) -> Reading:
        data = x.data
        return data.ptr, x.shape, x.strides, x.dtype, data.device_id, None

    read_out = read

    def empty(self, x: Any, shape: tuple[int, ...], dtype: Any, device: int, stream: int) -> tuple[Any, int]:
        with x.device if is_same_stream(stream, self.stream_of(x)) else on_cupy_stream(stream, device):
            array = self._ndarray(shape, dtype)
        return array, array.data.ptr

    def stream_of(self, x: Any) -> int:
        return int(self._current_stream().ptr)


class DeviceArrayKind(ArrayKind):
    """pyflowk.DeviceArray."""

    follows_current_stream = False

    @staticmethod
    def read(x: DeviceArray, name: str, stream: int) -> Reading:
        after = None if (stream or LEGACY_DEFAULT) == x.stream else _join(x, stream)
        return x.ptr, x.shape, x.strides, x.dtype, x.device, after

    read_out = read

    @staticmethod
    def empty(x: Any, shape: tuple[int, ...], dtype: Any, device: int, stream: int) -> tuple[DeviceArray, int]:
        array = empty(shape, dtype, device=device, stream=stream)
        return array, array.ptr

    @staticmethod
    def transposed(array: DeviceArray, axes: tuple[int, ...]) -> DeviceArray:
        shape, strides = (tuple(part[axis] for axis in axes) for part in (array.shape, array.strides))
        return array._view(0, shape, strides, array.dtype)

    @staticmethod
    def stream_of(x: DeviceArray) -> int:
        return x.stream


def _join(x: DeviceArray, stream: int) -> After:
    """Makes `stream` wait for the array's; the array's will wait for the work, so that its memory is freed after it."""
    with driver.current(x.device):
        driver.make_wait(stream, x.stream)

    def after(stream: int) -> None:
        with driver.current(x.device):
            driver.make_wait(x.stream, stream)

    return after


class ProtocolKind(ArrayKind):
    """Any other object with `__dlpack__` or `__cuda_array_interface__`: JAX, Numba, cuda.core's StridedMemoryView ...

    cuda.core reads those on a GPU, and makes the stream wait for their work; NumPy reads those on the host.
    """

    follows_current_stream = False

    @staticmethod
    def read(x: Any, name: str, stream: int) -> Reading:
        if _is_on_host(x):
            return NumpyKind.read(_host_view(x, name), name, stream)
        return ProtocolKind._reading(strided_memory_view(x, name, stream))

    @staticmethod
    def read_out(x: Any, name: str, stream: int) -> Reading:
        if type(x).__module__.startswith("jax"):  # JAX's arrays are immutable, and no attribute says so
            raise ValueError(f"{name} is a JAX array, which is read-only, must be writable")
        if _is_on_host(x):
            return NumpyKind.read_out(_host_view(x, name), name, stream)
        view = strided_memory_view(x, name, stream)
        if view.readonly:
            raise ValueError(f"{name} is read-only, must be writable")
        return ProtocolKind._reading(view)

    @staticmethod
    def _reading(view: Any) -> Reading:
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

    @staticmethod
    def empty(x: Any, shape: tuple[int, ...], dtype: Any, device: int | None, stream: int) -> tuple[Any, int]:
        if device is None:
            return NumpyKind.empty(x, shape, dtype, device, stream)
        return DeviceArrayKind.empty(x, shape, dtype, device, stream)

    @staticmethod
    def transposed(array: Any, axes: tuple[int, ...]) -> Any:
        return (DeviceArrayKind if isinstance(array, DeviceArray) else ArrayKind).transposed(array, axes)

    @staticmethod
    def result(x: Any, array: Any) -> Any:
        module = type(x).__module__.partition(".")[0]
        if module in ("jax", "jaxlib"):
            if isinstance(array, np.ndarray) and array.dtype.isbuiltin == 2:  # of ml_dtypes
                return sys.modules["jax"].device_put(array, next(iter(x.devices())))
            return sys.modules["jax.numpy"].from_dlpack(array)
        if module in ("numba", "numba_cuda") and isinstance(array, DeviceArray):
            return sys.modules["numba.cuda"].as_cuda_array(array)
        return array

    @staticmethod
    def stream_of(x: Any) -> int:
        return LEGACY_DEFAULT


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


class NumberKind(OperandKind):
    """A Python number. It is weak: its type gives way to the arrays'. Its pointer is the number."""

    @staticmethod
    def read(x: float, name: str, stream: int) -> tuple[float, None, None, type, Any, None]:
        return x, None, None, x.__class__, ANYWHERE, None


class ScalarKind(OperandKind):
    """A NumPy scalar, or an instance of a subclass of Python's numbers."""

    @staticmethod
    def read(x: Any, name: str, stream: int) -> tuple[Any, None, None, type | DType, Any, None]:
        if isinstance(x, np.generic):
            code = number_type(x.dtype, name)
            return x.item() if x.dtype.kind in "biu" else float(x), None, None, code, ANYWHERE, None
        return x, None, None, int if isinstance(x, int) else float, ANYWHERE, None


class NoneKind(OperandKind):
    """None, for an operand that may be left out."""

    @staticmethod
    def read(x: None, name: str, stream: int) -> tuple[None, None, None, None, Any, None]:
        return None, None, None, None, ANYWHERE, None


NUMPY = NumpyKind()
PROTOCOL = ProtocolKind()
_NUMBER = NumberKind()
ARRAYS: dict[type, Any] = {np.ndarray: NUMPY, DeviceArray: DeviceArrayKind()}
# The kinds of all operands: arrays, numbers and None.
OPERANDS: dict[type, Any] = {**ARRAYS, float: _NUMBER, int: _NUMBER, bool: _NUMBER, type(None): NoneKind()}


def find_array_kind(x: Any, name: str) -> Any:
    """The kind of the array in parameter `name`, remembered for its type; TypeError where it is not an array."""
    kind = ARRAYS.get(type(x))
    if kind is None:
        kind = ARRAYS[type(x)] = OPERANDS[type(x)] = _kind_of_array(x, name)
    return kind


def interceptor_of(arrays: Iterable[Any]) -> Any:
    """What makes a call that the framework of one of these arrays must see; None if there is none."""
    for index, array in enumerate(arrays):
        try:
            kind = find_array_kind(array, "")
        except TypeError:  # the error of the call itself names the array
            return None
        if kind.interceptor is not None and ((index == 0 and kind.is_intercepted()) or kind.must_see(array)):
            return kind.interceptor()
    return None


def find_operand_kind(x: Any, name: str) -> Any:
    """find_array_kind(), or the kind of a number."""
    kind = OPERANDS.get(type(x))
    if kind is None and isinstance(x, (int, float, np.generic)):
        kind = OPERANDS[type(x)] = ScalarKind()
    return kind or find_array_kind(x, name)


def _kind_of_array(x: Any, name: str) -> Any:
    if isinstance(x, np.ma.MaskedArray):
        raise TypeError(f"{name} is a masked array: pass its data and its mask one by one")
    if isinstance(x, np.ndarray):
        return NUMPY
    if is_instance_of(x, "torch", "Tensor"):
        torch = sys.modules["torch"]
        from .._torch.gate import is_plain_type  # for torch alone, which is imported here

        return TorchKind(torch) if is_plain_type(type(x)) else TorchSubclassKind(torch)
    if is_instance_of(x, "cupy", "ndarray"):
        return CupyKind(sys.modules["cupy"])
    if is_instance_of(x, "jax", "core.Tracer"):
        raise TypeError(f"{name} is traced by JAX: under jit, grad, vmap and their kin call pyflowk.jax's functions")
    if hasattr(x, "__cuda_array_interface__") or (hasattr(x, "__dlpack__") and hasattr(x, "__dlpack_device__")):
        return PROTOCOL
    text = f"{name} is a {type(x).__name__}, must be a NumPy array or have __dlpack__ or __cuda_array_interface__"
    if isinstance(x, (memoryview, bytearray)):
        text += f": pass np.asarray({name})"
    raise TypeError(text)
