# SPDX-License-Identifier: Apache-2.0
"""The same tests run on either library: FLOWK_TEST_LIBRARY=simt (default) or cuda says which."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

import pyflowk

TEST_LIBRARY = os.environ.get("FLOWK_TEST_LIBRARY", "simt")
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

    def put(self, host: np.ndarray) -> Any:
        return pyflowk.asarray(host, device=0)

    def fetch(self, array: Any) -> np.ndarray:
        return array.to_numpy()

    def view(self, memory: Any, offset_bytes: int, shape: Any, strides: Any, dtype: Any) -> Any:
        return memory._view(offset_bytes, tuple(shape), tuple(strides), dtype)

    def pointer(self, array: Any) -> int:
        return array.ptr
