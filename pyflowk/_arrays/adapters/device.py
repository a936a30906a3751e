# SPDX-License-Identifier: Apache-2.0
"""pyflowk.DeviceArray."""

from __future__ import annotations

import numpy as np

from ..._native import driver
from ..device_array import DeviceArray, empty
from ..stream import LEGACY_DEFAULT
from .base import After, ArrayAdapter, Extents, Reading


class DeviceArrayAdapter(ArrayAdapter[DeviceArray]):
    follows_current_stream = False

    def read(self, x: DeviceArray, name: str, stream: int) -> Reading:
        after = None if (stream or LEGACY_DEFAULT) == x.stream else _join(x, stream)
        return x.ptr, x.shape, x.strides, x.dtype, x.device, after

    def empty(
        self, x: object, shape: Extents, dtype: np.dtype, device: int | None, stream: int
    ) -> tuple[DeviceArray, int]:
        array = empty(shape, dtype, device=device, stream=stream)
        return array, array.ptr

    def transposed(self, array: DeviceArray, axes: Extents) -> DeviceArray:
        shape, strides = (tuple(part[axis] for axis in axes) for part in (array.shape, array.strides))
        return array._view(0, shape, strides, array.dtype)

    def stream_of(self, x: DeviceArray) -> int:
        return x.stream


def _join(x: DeviceArray, stream: int) -> After:
    """Makes `stream` wait for the array's own stream. After the call, the array's stream waits for the
    call's work, so that the array's memory is not freed before it."""
    with driver.current(x.device):
        driver.make_wait(stream, x.stream)

    def after(stream: int) -> None:
        with driver.current(x.device):
            driver.make_wait(x.stream, stream)

    return after


DEVICE_ARRAY = DeviceArrayAdapter()
