# SPDX-License-Identifier: Apache-2.0
"""The one path of every call, with arrays of a made-up framework on a made-up device: streams, devices, numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import pyflowk
from pyflowk._arrays import registry
from pyflowk._arrays.adapters.base import ArrayAdapter
from pyflowk._native import library

MATRIX = np.arange(24, dtype=np.float32).reshape(4, 6)
CURRENT_STREAM = 7
DEVICE = 99  # that no machine has: operations remember the C function of a device


class Framed:
    """An array of the framework: host memory that says it is on a GPU."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array


class FramedAdapter(ArrayAdapter):
    """Its adapter; `waits` lists (parameter, stream) of the arrays that waited for the work."""

    follows_current_stream = False

    def __init__(self) -> None:
        self.waits: list[tuple[str, int]] = []

    def read(self, x: Framed, name: str, stream: int) -> Any:
        array = x.array
        after = lambda stream: self.waits.append((name, stream))  # noqa: E731
        return array.ctypes.data, array.shape, array.strides, array.dtype, DEVICE, after

    read_out = read

    @staticmethod
    def empty(x: Framed, shape: Any, dtype: Any, device: int, stream: int) -> tuple[Framed, int]:
        made = Framed(np.empty(shape, dtype))
        return made, made.array.ctypes.data

    @staticmethod
    def transposed(made: Framed, axes: tuple[int, ...]) -> Framed:
        return Framed(made.array.transpose(axes))

    @staticmethod
    def stream_of(x: Framed) -> int:
        return CURRENT_STREAM


@pytest.fixture
def adapter(monkeypatch: pytest.MonkeyPatch, host_library: None) -> FramedAdapter:
    adapter = FramedAdapter()
    monkeypatch.setitem(registry.ARRAYS, Framed, adapter)
    monkeypatch.setitem(registry.OPERANDS, Framed, adapter)
    host = library.for_device(None, "x")
    monkeypatch.setattr(library, "for_device", lambda device, name: host)
    return adapter


def test_the_stream_is_the_array_s_unless_the_caller_names_one(adapter: FramedAdapter) -> None:
    x, out = Framed(MATRIX), Framed(np.empty_like(MATRIX))
    np.testing.assert_array_equal(pyflowk.add(x, x).array, 2 * MATRIX)
    assert adapter.waits == [("x", CURRENT_STREAM), ("y", CURRENT_STREAM)]
    adapter.waits.clear()
    assert pyflowk.multiply(x, 3.0, out=out, stream=9) is out
    np.testing.assert_array_equal(out.array, 3 * MATRIX)
    assert adapter.waits == [("x", 9), ("out", 9)]


def test_every_array_of_every_operator_waits_once(adapter: FramedAdapter) -> None:
    x, alpha = Framed(MATRIX), Framed(np.ones(6, np.float32))
    dalpha = Framed(np.empty(6, np.float32))
    memory = np.empty(1 << 20, np.uint8)
    workspace = Framed(memory[-memory.ctypes.data % 16 :])
    calls = {
        ("x",): lambda: pyflowk.permute(x, (1, 0)),
        ("x", "alpha"): lambda: pyflowk.prelu(x, alpha),
        ("x", "dy", "alpha", "dalpha_out", "workspace"): lambda: pyflowk.prelu_backward(
            x, x, alpha, dalpha_out=dalpha, workspace=workspace
        ),
        ("x", "lengths", "bias"): lambda: pyflowk.masked_softmax(x, lengths=Framed(np.ones(4, np.int32)), bias=x),
        ("y", "z"): lambda: pyflowk.fma(2.0, x, x),
    }
    for names, call in calls.items():
        adapter.waits.clear()
        call()
        assert tuple(name for name, _ in adapter.waits) == names


def test_a_new_array_lies_in_memory_as_x_does(adapter: FramedAdapter) -> None:
    result = pyflowk.prelu(Framed(np.asfortranarray(MATRIX)), Framed(np.ones(1, np.float32)))
    assert result.array.flags.f_contiguous
    np.testing.assert_array_equal(result.array, MATRIX)


def test_numbers_may_stand_before_the_first_array(adapter: FramedAdapter) -> None:
    x = Framed(MATRIX)
    np.testing.assert_array_equal(pyflowk.subtract(1.0, x).array, 1 - MATRIX)
    np.testing.assert_array_equal(pyflowk.fma(np.int8(2), 3, x).array, 6 + MATRIX)
    assert pyflowk.add(np.float32(1), x).array.dtype == np.float32


def test_arrays_on_two_devices_are_refused(adapter: FramedAdapter) -> None:
    with pytest.raises(TypeError, match="x is on device 99 and y is a host array, must be on the same device"):
        pyflowk.add(Framed(MATRIX), MATRIX)
    with pytest.raises(TypeError, match="y is a host array and z is on device 99"):
        pyflowk.fma(1.0, MATRIX, Framed(MATRIX))
    with pytest.raises(TypeError, match="x is on device 99 and out is a host array"):
        pyflowk.permute(Framed(MATRIX), (1, 0), out=np.empty((6, 4), np.float32))
    assert not adapter.waits


def test_an_explained_call_leaves_the_arrays_alone(adapter: FramedAdapter) -> None:
    x, out = Framed(MATRIX), Framed(np.zeros((6, 4), np.float32))
    assert pyflowk.explain(pyflowk.permute, x, (1, 0), out=out)
    assert pyflowk.explain("prelu_backward", x, x, Framed(np.ones(6, np.float32)))
    assert not adapter.waits
    assert not out.array.any()
