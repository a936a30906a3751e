# SPDX-License-Identifier: Apache-2.0
"""The C road of arrays that are read by their attributes: one made up as CuPy's, over host memory that says it is on a
GPU."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import pyflowk
from pyflowk._arrays import kinds
from pyflowk._calls import roads
from pyflowk._native import library

pytestmark = pytest.mark.skipif(roads.program_cache() is None, reason="no program cache")
MATRIX = np.arange(24, dtype=np.float32).reshape(4, 6)
DEVICE = 98  # that no machine has: operations remember the C function of a device
BY_CUPY_ATTRIBUTES = 1


class Framed:
    """What cupy.ndarray has."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        self.data = SimpleNamespace(ptr=array.ctypes.data, device_id=DEVICE)
        self.shape, self.strides, self.dtype = array.shape, array.strides, array.dtype


class FramedKind(kinds.ArrayKind):
    """Its kind, which counts the arrays that Python reads."""

    num_read = 0

    @classmethod
    def read(cls, x: Framed, name: str, stream: int) -> Any:
        cls.num_read += 1
        return x.data.ptr, x.shape, x.strides, x.dtype, DEVICE, None

    read_out = read

    @staticmethod
    def empty(x: Framed, shape: Any, dtype: Any, device: int, stream: int) -> tuple[Framed, int]:
        made = Framed(np.empty(shape, dtype))
        return made, made.data.ptr

    @staticmethod
    def transposed(made: Framed, axes: tuple[int, ...]) -> Framed:
        return Framed(made.array.transpose(axes))

    @staticmethod
    def stream_of(x: Framed) -> int:
        return 0


@pytest.fixture
def kind(monkeypatch: pytest.MonkeyPatch, host_library: None) -> type[FramedKind]:
    monkeypatch.setitem(kinds.ARRAYS, Framed, FramedKind())
    monkeypatch.setitem(kinds.OPERANDS, Framed, FramedKind())
    host = library.for_device(None, "x")
    monkeypatch.setattr(library, "for_device", lambda device, name: host)
    roads.program_cache().forget()
    if Framed not in roads._noticed:
        roads._noticed.add(Framed)
        stream = SimpleNamespace(ptr=0)
        assert roads.program_cache().add_type(Framed, BY_CUPY_ATTRIBUTES, 0, False, lambda: stream)
    return FramedKind


def num_read_by_python(kind: type[FramedKind], call: Any) -> int:
    before = kind.num_read
    call()
    return kind.num_read - before


def test_python_reads_no_array_once_there_is_a_plan(kind: type[FramedKind]) -> None:
    x, out = Framed(MATRIX), Framed(np.zeros((6, 4), np.float32))
    for _ in range(3):
        assert pyflowk.permute(x, (1, 0), out=out) is out
        np.testing.assert_array_equal(out.array, MATRIX.T)
        out.array[:] = 0
    assert num_read_by_python(kind, lambda: pyflowk.permute(x, (1, 0), out=out)) == 0
    np.testing.assert_array_equal(out.array, MATRIX.T)


def test_a_new_result_is_of_the_array_s_kind_and_layout(kind: type[FramedKind]) -> None:
    for x in (MATRIX, np.asfortranarray(MATRIX), MATRIX[:, ::2], MATRIX.astype(np.float64)):
        for _ in range(4):
            result = pyflowk.relu(Framed(x))
            np.testing.assert_array_equal(result.array, x)
            assert result.dtype == x.dtype
    assert roads.program_cache().num_plans() == 4


def test_errors_are_the_function_s(kind: type[FramedKind]) -> None:
    x = Framed(MATRIX)
    for _ in range(3):
        pyflowk.permute(x, (1, 0), out=Framed(np.zeros((6, 4), np.float32)))
    with pytest.raises(pyflowk.FlowkValueError, match="overlaps x"):
        pyflowk.permute(x, (1, 0), out=Framed(MATRIX.reshape(6, 4)))
