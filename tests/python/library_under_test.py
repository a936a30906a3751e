# SPDX-License-Identifier: Apache-2.0
"""The same tests run on either library: FLOWK_TEST_LIBRARY=simt (default) or cuda says which.

With FLOWK_TEST_MEMORY=exact each array is an allocation of its own, without canaries around it: compute-sanitizer sees
every access past its ends.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

import numpy as np

import pyflowk

TEST_LIBRARY = os.environ.get("FLOWK_TEST_LIBRARY", "simt")
HAS_EXACT_MEMORY = os.environ.get("FLOWK_TEST_MEMORY") == "exact"
MARGIN_BYTES = 0 if HAS_EXACT_MEMORY else 64  # of canaries on both sides of an array; a multiple of every alignment
THREAD_ORDERS = ("forward", "reverse") if TEST_LIBRARY == "simt" else ("forward",)


class HostArrays:
    """Memory that libflowk_simt works on."""

    device = None

    def put(self, host: np.ndarray) -> Any:
        """A copy of `host` where the library can reach it."""
        return host.copy()

    def fetch(self, array: Any) -> np.ndarray:
        """The array as NumPy's."""
        return array

    def view(self, memory: Any, offset_bytes: int, shape: Any, strides: Any, dtype: Any) -> Any:
        """An array over `memory` (1-D bytes), strides in bytes."""
        return np.ndarray(shape, dtype, buffer=memory, offset=offset_bytes, strides=strides)

    def pointer(self, array: Any) -> int:
        """The address of the element with all indices 0."""
        return array.ctypes.data


class DeviceArrays(HostArrays):
    """Memory that libflowk works on."""

    device = 0

    def __init__(self) -> None:
        if HAS_EXACT_MEMORY:
            pyflowk.memory.set_allocator(lambda num_bytes, device, stream: _Allocation(num_bytes))

    def put(self, host: np.ndarray) -> Any:
        return pyflowk.asarray(host, device=0)

    def fetch(self, array: Any) -> np.ndarray:
        return array.to_numpy()

    def view(self, memory: Any, offset_bytes: int, shape: Any, strides: Any, dtype: Any) -> Any:
        return memory._view(offset_bytes, tuple(shape), tuple(strides), dtype)

    def pointer(self, array: Any) -> int:
        return array.ptr


class _Allocation:
    """Memory of cudaMalloc(), which no pool has rounded up."""

    def __init__(self, num_bytes: int) -> None:
        self._runtime = import_module("cuda.bindings.runtime")
        error, self.ptr = self._runtime.cudaMalloc(num_bytes)
        if int(error):
            raise MemoryError(f"cudaMalloc returned {error!r}")

    def __del__(self) -> None:
        self._runtime.cudaFree(self.ptr)
