# SPDX-License-Identifier: Apache-2.0
"""The fast path of numba.cuda's DeviceNDArrays: stand-ins with the attributes and the memory's classes of Numba's
source, over host memory that says it is on a GPU."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from ctypes import c_size_t
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import pyflowk
from pyflowk._arrays import registry
from pyflowk._arrays.adapters.numba import NumbaAdapter
from pyflowk._calls import call_path
from pyflowk._native import library

pytestmark = pytest.mark.skipif(call_path.program_cache() is None, reason="no program cache")
MATRIX = np.arange(24, dtype=np.float32).reshape(4, 6)
DEVICE = 97  # that no machine has: operations remember the C function of a device


class Context:
    device = SimpleNamespace(id=DEVICE)


CONTEXT = Context()


class MemoryPointer:
    """Memory of anyone."""

    def __init__(self, pointer: int) -> None:
        self.context, self.device_pointer = weakref.proxy(CONTEXT), pointer

    @property
    def device_ctypes_pointer(self) -> c_size_t:
        return c_size_t(int(self.device_pointer))


class OwnedPointer:
    """Memory with a count of its users, which Numba keeps."""

    def __init__(self, memory: MemoryPointer) -> None:
        self._view = memory
        self.device_ctypes_pointer = memory.device_ctypes_pointer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._view, name)


class Stream:
    def __int__(self) -> int:
        return 7


class DeviceNDArray:
    __module__ = "numba_stand_in.devicearray"

    def __init__(self, array: np.ndarray, stream: Any = 0, is_owned: bool = True) -> None:
        memory = MemoryPointer(array.ctypes.data)
        self.array, self.stream = array, stream
        self.gpu_data = OwnedPointer(memory) if is_owned else memory
        self.shape, self.strides, self.dtype = array.shape, array.strides, array.dtype


class StandInAdapter(NumbaAdapter):
    """Its adapter, which counts the arrays that Python reads."""

    num_read = 0

    @classmethod
    def read(cls, x: Any, name: str, stream: int) -> Any:
        cls.num_read += 1
        return x.gpu_data.device_ctypes_pointer.value, x.shape, x.strides, x.dtype, DEVICE, None

    read_out = read

    @staticmethod
    def empty(x: Any, shape: Any, dtype: Any, device: int, stream: int) -> tuple[Any, int]:
        made = np.empty(shape, dtype)
        return made, made.ctypes.data


@pytest.fixture(autouse=True)
def numba_stand_in(monkeypatch: pytest.MonkeyPatch, host_library: None) -> None:
    module = ModuleType(DeviceNDArray.__module__)
    module._driver = SimpleNamespace(OwnedPointer=OwnedPointer)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(registry.ARRAYS, DeviceNDArray, StandInAdapter())
    monkeypatch.setitem(registry.OPERANDS, DeviceNDArray, StandInAdapter())
    host = library.for_device(None, "x")
    monkeypatch.setattr(library, "for_device", lambda device, name: host)
    call_path.program_cache().forget()


def num_read(call: Callable[[], Any]) -> int:
    before = StandInAdapter.num_read
    call()
    return StandInAdapter.num_read - before


@pytest.mark.parametrize("x", [MATRIX, MATRIX[::2, 1:], np.asfortranarray(MATRIX), MATRIX.astype(np.float64)])
def test_python_reads_no_array_once_there_is_a_plan(x: np.ndarray) -> None:
    out = np.zeros(x.shape[::-1], x.dtype)
    given, target = DeviceNDArray(x), DeviceNDArray(out)
    for _ in range(3):
        pyflowk.permute(given, (1, 0), out=target)
    out[:] = 0
    assert num_read(lambda: pyflowk.permute(given, (1, 0), out=target)) == 0
    np.testing.assert_array_equal(out, x.T)
    other = np.zeros_like(out)
    assert num_read(lambda: pyflowk.permute(DeviceNDArray(x), (1, 0), out=DeviceNDArray(other))) == 0
    np.testing.assert_array_equal(other, x.T)


@pytest.mark.parametrize(
    "options",
    [{"is_owned": False}, {"stream": Stream()}, {"stream": 7}, {"stream": None}],
    ids=["memory of another framework", "stream", "number of a stream", "no stream"],
)
@pytest.mark.parametrize("is_out", [False, True])
def test_python_reads_what_needs_its_care(options: dict[str, Any], is_out: bool) -> None:
    out = np.zeros((6, 4), np.float32)
    x, target = DeviceNDArray(MATRIX), DeviceNDArray(out)
    for _ in range(3):
        pyflowk.permute(x, (1, 0), out=target)
    if is_out:
        target = DeviceNDArray(out, **options)
    else:
        x = DeviceNDArray(MATRIX, **options)
    for _ in range(3):
        out[:] = 0
        assert num_read(lambda: pyflowk.permute(x, (1, 0), out=target)) == 2
        np.testing.assert_array_equal(out, MATRIX.T)


def test_new_results_and_streams_of_the_caller_are_python_s() -> None:
    x, out = DeviceNDArray(MATRIX), DeviceNDArray(np.zeros_like(MATRIX))
    for _ in range(4):
        assert num_read(lambda: np.testing.assert_array_equal(pyflowk.relu(x), MATRIX)) == 1
        assert num_read(lambda: pyflowk.relu(x, out=out, stream=7)) == 2


def test_errors_are_the_function_s() -> None:
    x = DeviceNDArray(MATRIX)
    for _ in range(3):
        pyflowk.permute(x, (1, 0), out=DeviceNDArray(np.zeros((6, 4), np.float32)))
    with pytest.raises(pyflowk.FlowkValueError, match="overlaps x"):
        pyflowk.permute(x, (1, 0), out=DeviceNDArray(MATRIX.reshape(6, 4)))
    with pytest.raises(ValueError, match="out has shape"):
        pyflowk.permute(x, (1, 0), out=DeviceNDArray(np.zeros((4, 6), np.float32)))
