# SPDX-License-Identifier: Apache-2.0
"""The CUDA driver calls that a piece of code makes, and their streams.

libflowk has the CUDA runtime inside it, so that a preloaded libcudart or cudaLaunchKernel would see none of its calls.
CUPTI's callbacks are in the driver: they see the calls of everybody in the process.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

_DRIVER_API = 1  # CUPTI_CB_DOMAIN_DRIVER_API
_ENTER = 0  # CUPTI_API_ENTER
DEFAULT_STREAMS = (0, 1, 2)  # NULL, and the handles of the legacy and the per-thread default stream

# Where a call's parameters have its stream: the offset in the struct NAME_params of generated_cuda_meta.h. The launch
# with attributes has it in a CUlaunchConfig, which its first parameter points to.
_STREAM_AT = {
    "cuLaunchKernel": 40,
    "cuLaunchCooperativeKernel": 40,
    "cuMemcpyAsync": 24,
    "cuMemcpyHtoDAsync": 24,
    "cuMemcpyDtoHAsync": 24,
    "cuMemcpyDtoDAsync": 24,
    "cuMemsetD8Async": 24,
    "cuMemsetD32Async": 24,
    "cuMemAllocAsync": 16,
    "cuMemAllocFromPoolAsync": 24,
    "cuMemFreeAsync": 8,
}
_CONFIG_STREAM_AT = 32
# Calls without a stream that do work on the default one, or stop the program.
_FORBIDDEN = ("cuMemcpy", "cuMemset", "cuMemAlloc", "cuMemFree", "Synchronize")


class _CallbackData(ctypes.Structure):
    """The first members of CUpti_CallbackData."""

    _fields_ = (
        ("site", ctypes.c_int),
        ("function", ctypes.c_char_p),
        ("params", ctypes.c_void_p),
    )


class DriverCall(NamedTuple):
    """A call without its version's suffix; `stream` is None if it has none."""

    name: str
    stream: int | None

    @property
    def is_launch(self) -> bool:
        return self.name.startswith("cuLaunch")

    @property
    def is_on_default_stream(self) -> bool:
        if self.stream is None:
            return any(word in self.name for word in _FORBIDDEN)
        return self.stream in DEFAULT_STREAMS


def call_of(function: str, params: int) -> DriverCall:
    """What a callback was told; `params` is the address of the call's parameters."""
    name = function.removesuffix("_ptsz").removesuffix("_ptds")
    name = name[: name.index("_v")] if "_v" in name else name
    if name == "cuLaunchKernelEx":
        config = ctypes.c_void_p.from_address(params).value
        return DriverCall(name, ctypes.c_void_p.from_address(config + _CONFIG_STREAM_AT).value or 0)
    if name in _STREAM_AT:
        return DriverCall(name, ctypes.c_void_p.from_address(params + _STREAM_AT[name]).value or 0)
    return DriverCall(name, None)


def _cupti() -> ctypes.CDLL:
    folders = [Path(entry) / "nvidia" for entry in sys.path]
    found = [path for folder in folders for path in folder.glob("*/lib/libcupti.so.*")]
    for root in (os.environ.get("CUDA_HOME"), "/usr/local/cuda"):
        if root:
            found += Path(root).glob("extras/CUPTI/lib64/libcupti.so*")
    if not found:
        raise FileNotFoundError("no libcupti.so: install the nvidia-cuda-cupti wheel, or set CUDA_HOME to a toolkit")
    return ctypes.CDLL(str(max(found, key=lambda path: [int(digits) for digits in re.findall(r"\d+", path.name)])))


class DriverCalls:
    """Records the calls of one thread at a time. Nobody is called back between recordings."""

    def __init__(self) -> None:
        self._library = _cupti()
        self._calls: list[DriverCall] = []
        self._thread = 0
        kind = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.POINTER(_CallbackData))
        self._callback = kind(self._called)
        self._subscriber = ctypes.c_void_p()
        self._check(self._library.cuptiSubscribe(ctypes.byref(self._subscriber), self._callback, None))

    def close(self) -> None:
        self._check(self._library.cuptiUnsubscribe(self._subscriber))

    @contextlib.contextmanager
    def recorded(self) -> Iterator[list[DriverCall]]:
        """The calls of this thread while the block runs."""
        calls: list[DriverCall] = []
        self._calls, self._thread = calls, threading.get_ident()
        self._check(self._library.cuptiEnableDomain(1, self._subscriber, _DRIVER_API))
        try:
            yield calls
        finally:
            self._check(self._library.cuptiEnableDomain(0, self._subscriber, _DRIVER_API))

    def _called(self, _: Any, domain: int, callback_id: int, data: Any) -> None:
        if data[0].site == _ENTER and threading.get_ident() == self._thread:
            self._calls.append(call_of(data[0].function.decode(), data[0].params))

    def _check(self, status: int) -> None:
        if status != 0:
            raise RuntimeError(f"CUPTI returned {status}: is a profiler or a sanitizer attached to this process?")
