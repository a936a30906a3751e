# SPDX-License-Identifier: Apache-2.0
"""The CUDA driver calls that pyflowk makes itself, by ctypes: without cuda-python, and at little cost per call.

Nothing is loaded before the first call. Streams and events are handles as int; a stream of 0 or 1 is the legacy default
stream, 2 the per-thread one.
"""

from __future__ import annotations

import ctypes
import functools
from ctypes import POINTER, c_char_p, c_float, c_int, c_size_t, c_uint, c_uint64, c_void_p
from typing import Any

from .abi import Status
from .errors import FlowkError

_FUNCTIONS = {
    "cuInit": [c_uint],
    "cuGetErrorString": [c_int, POINTER(c_char_p)],
    "cuDriverGetVersion": [POINTER(c_int)],
    "cuDeviceGetCount": [POINTER(c_int)],
    "cuDeviceGetName": [c_char_p, c_int, c_int],
    "cuDeviceGetAttribute": [POINTER(c_int), c_int, c_int],
    "cuDevicePrimaryCtxRetain": [POINTER(c_void_p), c_int],
    "cuCtxGetDevice": [POINTER(c_int)],
    "cuCtxPushCurrent_v2": [c_void_p],
    "cuCtxPopCurrent_v2": [POINTER(c_void_p)],
    "cuStreamIsCapturing": [c_void_p, POINTER(c_int)],
    "cuStreamSynchronize": [c_void_p],
    "cuStreamWaitEvent": [c_void_p, c_void_p, c_uint],
    "cuEventCreate": [POINTER(c_void_p), c_uint],
    "cuEventRecord": [c_void_p, c_void_p],
    "cuEventQuery": [c_void_p],
    "cuEventSynchronize": [c_void_p],
    "cuEventElapsedTime": [POINTER(c_float), c_void_p, c_void_p],
    "cuEventDestroy_v2": [c_void_p],
    "cuLaunchKernel": [c_void_p, *[c_uint] * 7, c_void_p, c_void_p, c_void_p],
    "cuKernelSetAttribute": [c_int, c_int, c_void_p, c_int],
    "cuMemGetInfo_v2": [POINTER(c_size_t), POINTER(c_size_t)],
    "cuMemcpyAsync": [c_uint64, c_uint64, c_size_t, c_void_p],
    "cuMemPoolSetAttribute": [c_void_p, c_int, c_void_p],
    "cuMemPoolTrimTo": [c_void_p, c_size_t],
    "cuPointerGetAttribute": [c_void_p, c_int, c_uint64],
    "cuCtxSynchronize": [],
    "cuMemcpyHtoDAsync_v2": [c_uint64, c_void_p, c_size_t, c_void_p],
    "cuMemcpyDtoHAsync_v2": [c_void_p, c_uint64, c_size_t, c_void_p],
}
_TwoAddresses = c_char_p * 2  # takes an address as int, and bytes, whose address it stores
_NOT_READY = 600
_EVENT_DISABLE_TIMING = 2


@functools.cache
def _opened() -> tuple[ctypes.CDLL | None, str]:
    """libcuda, initialised; or None, and why no GPU can be used."""
    try:
        library = ctypes.CDLL("libcuda.so.1")
        for name, argtypes in _FUNCTIONS.items():
            function = getattr(library, name)
            function.restype = c_int
            function.argtypes = argtypes
    except OSError:
        return None, "no NVIDIA driver (libcuda.so.1) is found"
    except AttributeError:
        return None, f"the NVIDIA driver is too old: its libcuda.so.1 has no {name}"
    error = library.cuInit(0)
    return (library, "") if error == 0 else (None, f"the NVIDIA driver finds no GPU: cuInit returned {error}")


def _driver() -> ctypes.CDLL | None:
    return _opened()[0]


def why_no_gpu() -> str:
    """Why device_count() is 0, in words."""
    return _opened()[1] or "the NVIDIA driver finds no GPU"


def _call(name: str, *arguments: object) -> None:
    library = _driver()
    if library is None:
        raise FlowkError(Status.NO_DEVICE, f"this needs a GPU: {why_no_gpu()}")
    error = getattr(library, name)(*arguments)
    if error != 0:
        text = c_char_p()
        library.cuGetErrorString(error, ctypes.byref(text))
        raise FlowkError(Status.CUDA_ERROR, f"{name} returned {error}: {(text.value or b'?').decode()}")


def _value_of(c_type: type[Any], name: str, *arguments: object) -> Any:
    """The value that a function of the driver writes to its first argument."""
    value = c_type()
    _call(name, ctypes.byref(value), *arguments)
    return value.value


def address_of(name: str) -> int:
    """The address of a function of libcuda; the driver must be loaded."""
    return ctypes.cast(getattr(_driver(), name), c_void_p).value or 0


@functools.cache
def device_count() -> int:
    """How many GPUs the driver shows; 0 without a driver."""
    return 0 if _driver() is None else int(_value_of(c_int, "cuDeviceGetCount"))


def device_name(device: int) -> str:
    """The product name of a GPU and its compute capability: `NVIDIA H200 (sm_90)`."""
    name = ctypes.create_string_buffer(256)
    _call("cuDeviceGetName", name, len(name), device)
    return f"{name.value.decode()} ({architecture(device)})"


@functools.cache
def architecture(device: int) -> str:
    """The name that nvcc has for a GPU's architecture: sm_90."""
    major, minor = (_attribute(attribute, device) for attribute in (75, 76))  # COMPUTE_CAPABILITY_MAJOR, _MINOR
    return f"sm_{major}{minor}"


def _attribute(attribute: int, device: int) -> int:
    return int(_value_of(c_int, "cuDeviceGetAttribute", attribute, device))


def memory_bytes() -> tuple[int, int]:
    """(Free bytes, all bytes) of the current device."""
    free, total = c_size_t(), c_size_t()
    _call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    return free.value, total.value


def driver_version() -> str:
    """The newest CUDA version that the driver speaks, as major.minor."""
    version = _value_of(c_int, "cuDriverGetVersion")
    return f"{version // 1000}.{version % 1000 // 10}"


def current_device() -> int | None:
    """The device of this thread's current context; None if it has none."""
    device = c_int()
    library = _driver()
    return device.value if library is not None and library.cuCtxGetDevice(ctypes.byref(device)) == 0 else None


@functools.cache
def _primary_context(device: int) -> int:
    return int(_value_of(c_void_p, "cuDevicePrimaryCtxRetain", device))  # kept for the life of the process


class current:
    """`with current(device):` makes it current for this thread if it is not, and afterwards what was current before."""

    # A class, because contextlib's generator takes 1 us more.

    __slots__ = ("_device", "_is_pushed")

    def __init__(self, device: int) -> None:
        self._device = device

    def __enter__(self) -> None:
        self._is_pushed = current_device() != self._device
        if self._is_pushed:
            _call("cuCtxPushCurrent_v2", _primary_context(self._device))

    def __exit__(self, *exception: object) -> None:
        if self._is_pushed:
            _call("cuCtxPopCurrent_v2", ctypes.byref(c_void_p()))


def is_capturing(stream: int) -> bool:
    """Whether `stream` is being captured into a CUDA graph, or work on it would break a capture."""
    status = c_int()
    library = _driver()
    # The default stream returns an error instead of a status while a stream that it waits for is captured.
    return library is not None and (library.cuStreamIsCapturing(stream, ctypes.byref(status)) != 0 or status.value != 0)


def make_wait(stream: int, other: int) -> None:
    """Orders later work on `stream` after all work that is on `other` now. Does nothing if one of them is being
    captured: a wait would break the capture or tie it to work outside it."""
    if (stream or 1) == (other or 1) or is_capturing(stream) or is_capturing(other):
        return
    event = create_event()
    try:
        record_event(event, other)
        _call("cuStreamWaitEvent", stream, event, 0)
    finally:
        destroy_event(event)


def synchronize(stream: int) -> None:
    """Waits until all work on `stream` is done."""
    _call("cuStreamSynchronize", stream)


def synchronize_device() -> None:
    """Waits until all work on the current device is done."""
    _call("cuCtxSynchronize")


def keep_pool_memory(pool: int) -> None:
    """Makes a CUmemoryPool keep what is freed; by default it gives all back whenever a stream is waited for."""
    _call("cuMemPoolSetAttribute", pool, 4, ctypes.byref(c_uint64(2**64 - 1)))  # RELEASE_THRESHOLD


def trim_pool(pool: int, num_bytes_kept: int) -> None:
    """Gives the unused memory of a CUmemoryPool back, except that many bytes."""
    _call("cuMemPoolTrimTo", pool, num_bytes_kept)


def is_pinned(host_pointer: int) -> bool:
    """Whether a host address is in page-locked memory."""
    kind, library = c_uint(), _driver()
    memory_type, host = 2, 1
    return (
        library is not None
        and library.cuPointerGetAttribute(ctypes.byref(kind), memory_type, host_pointer) == 0
        and kind.value == host
    )


def enqueue_copy(to_pointer: int, from_pointer: int, num_bytes: int, stream: int) -> None:
    """Copies after the work on `stream`, and returns at once; host memory must be page-locked."""
    _call("cuMemcpyAsync", to_pointer, from_pointer, num_bytes, stream)


def create_event(*, timing: bool = False) -> int:
    """A new event of the current device; destroy_event() ends it."""
    return int(_value_of(c_void_p, "cuEventCreate", 0 if timing else _EVENT_DISABLE_TIMING))


def record_event(event: int, stream: int) -> None:
    """Records `event` after all work that is on `stream` now."""
    _call("cuEventRecord", event, stream)


def event_is_done(event: int) -> bool:
    """Whether the recorded work has ended, with or without an error."""
    library = _driver()
    return library is None or library.cuEventQuery(event) != _NOT_READY


def elapsed_ms(start: int, end: int) -> float:
    """Milliseconds between two timing events; waits for the second."""
    _call("cuEventSynchronize", end)
    return float(_value_of(c_float, "cuEventElapsedTime", start, end))


def destroy_event(event: int) -> None:
    """Ends an event; a wait that is already enqueued stays good."""
    _call("cuEventDestroy_v2", event)


def allow_shared_memory(kernel: int, device: int) -> None:
    """Allows a CUkernel the device's largest dynamic shared memory per block; by default it is 48 KB."""
    most = _attribute(97, device)  # MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
    _call("cuKernelSetAttribute", 8, most, kernel, device)  # MAX_DYNAMIC_SHARED_SIZE_BYTES


def launch(
    kernel: int, num_blocks: int, num_threads: int, shared_bytes: int, stream: int, params: int, factory: bytes
) -> None:
    """Enqueues a CUkernel of two parameters: what is at the address `params`, and the bytes of `factory`."""
    arguments = _TwoAddresses(params, factory)  # type: ignore[misc, unused-ignore]
    _call("cuLaunchKernel", kernel, num_blocks, 1, 1, num_threads, 1, 1, shared_bytes, stream, arguments, None)


def copy_to_device(device_pointer: int, host_pointer: int, num_bytes: int, stream: int) -> None:
    """Copies after the work on `stream`, and returns when both are done."""
    _call("cuMemcpyHtoDAsync_v2", device_pointer, host_pointer, num_bytes, stream)
    synchronize(stream)


def copy_to_host(host_pointer: int, device_pointer: int, num_bytes: int, stream: int) -> None:
    """Copies after the work on `stream`, and returns when both are done."""
    _call("cuMemcpyDtoHAsync_v2", host_pointer, device_pointer, num_bytes, stream)
    synchronize(stream)
