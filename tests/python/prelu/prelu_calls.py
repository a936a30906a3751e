# SPDX-License-Identifier: Apache-2.0
"""Calls of prelu and prelu_backward on arrays with watched bytes around them, and the checks of their results."""

from __future__ import annotations

from typing import Any

import numpy as np
from library_under_test import MARGIN_BYTES
from prelu_cases import Data, PreluCase, dalpha_bound

import pyflowk

CANARY = 0xA5


class Placed:
    """An array of a case inside a buffer of canaries, where the library can reach it."""

    def __init__(self, arrays: Any, values: np.ndarray, order: tuple[int, ...] = (), lead: int = 0) -> None:
        self._arrays, self._dtype, self._shape = arrays, values.dtype, values.shape
        order = order or tuple(range(values.ndim))
        stride = values.dtype.itemsize
        strides = [0] * values.ndim
        for d in reversed(order):
            strides[d] = stride
            stride *= max(values.shape[d], 1)
        self._strides, self._offset = tuple(strides), MARGIN_BYTES + lead * values.dtype.itemsize
        size = self._offset + values.nbytes + MARGIN_BYTES
        # The host's buffer at a multiple of 16; a device's is at one of 256.
        room = np.full(size + 16, CANARY, np.uint8)
        start = -room.ctypes.data % 16
        self._host = room[start : start + size]
        np.ndarray(self._shape, self._dtype, self._host, self._offset, self._strides)[...] = values
        self._memory = arrays.put(self._host) if arrays.device is not None else self._host
        self._before = self._host.copy()
        self.array = arrays.view(self._memory, self._offset, self._shape, self._strides, self._dtype)

    def check_margins(self) -> None:
        """Nothing around the array has changed."""
        fetched, end = self._arrays.fetch(self._memory), self._offset + self._span()
        assert (fetched[: self._offset] == CANARY).all()
        assert (fetched[end:] == CANARY).all()

    def check_unchanged(self) -> None:
        np.testing.assert_array_equal(self._arrays.fetch(self._memory), self._before)

    def values(self) -> np.ndarray:
        return np.ndarray(
            self._shape, self._dtype, self._arrays.fetch(self._memory), self._offset, self._strides
        ).copy()

    def _span(self) -> int:
        return int(np.prod(self._shape, dtype=np.int64)) * self._dtype.itemsize


def bits(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).reshape(array.shape).view(f"u{array.dtype.itemsize}")


def check_forward(arrays: Any, case: PreluCase, data: Data) -> None:
    x, alpha = Placed(arrays, data.x, case.order, case.leads[0]), Placed(arrays, data.alpha)
    out = Placed(arrays, np.full_like(data.x, 7), case.order, case.leads[2])
    assert pyflowk.prelu(x.array, alpha.array, case.channel_axis, out=out.array) is out.array
    np.testing.assert_array_equal(bits(out.values()), bits(data.y))
    out.check_margins()
    x.check_unchanged()
    assert pyflowk.prelu(x.array, alpha.array, case.channel_axis, out=x.array) is x.array
    np.testing.assert_array_equal(bits(x.values()), bits(data.y))
    x.check_margins()


def check_backward(arrays: Any, case: PreluCase, data: Data) -> None:
    x, alpha = Placed(arrays, data.x, case.order, case.leads[0]), Placed(arrays, data.alpha)
    dy = Placed(arrays, data.dy, case.order, case.leads[1])
    dx, dalpha = Placed(arrays, np.full_like(data.x, 7), case.order, case.leads[2]), Placed(arrays, data.alpha + 1)
    result = pyflowk.prelu_backward(
        *(dy.array, x.array, alpha.array, case.channel_axis), dx_out=dx.array, dalpha_out=dalpha.array
    )
    assert result[0] is dx.array and result[1] is dalpha.array
    np.testing.assert_array_equal(bits(dx.values()), bits(data.dx))
    error = np.abs(dalpha.values().astype(np.float64) - data.dalpha)
    assert (error <= dalpha_bound(data)).all(), (error.max(), data.dalpha)
    for written in (dx, dalpha):
        written.check_margins()
    for read in (x, dy, alpha):
        read.check_unchanged()
