# SPDX-License-Identifier: Apache-2.0
"""The fast path of arrays that are read by their attributes, and of NumPy's arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from framed_arrays import Framed, FramedAdapter, register_framed_arrays

import pyflowk
from pyflowk._calls import call_path
from pyflowk._native import library

pytestmark = pytest.mark.skipif(call_path.program_cache() is None, reason="no program cache")
MATRIX = np.arange(24, dtype=np.float32).reshape(4, 6)


@pytest.fixture
def adapter(monkeypatch: pytest.MonkeyPatch, host_library: None) -> type[FramedAdapter]:
    host = library.for_device(None, "x")
    monkeypatch.setattr(library, "for_device", lambda device, name: host)
    return register_framed_arrays(monkeypatch)


def num_read_by_python(adapter: type[FramedAdapter], call: Any) -> int:
    before = adapter.num_read
    call()
    return adapter.num_read - before


def test_python_reads_no_array_once_there_is_a_plan(adapter: type[FramedAdapter]) -> None:
    x, out = Framed(MATRIX), Framed(np.zeros((6, 4), np.float32))
    for _ in range(3):
        assert pyflowk.permute(x, (1, 0), out=out) is out
        np.testing.assert_array_equal(out.array, MATRIX.T)
        out.array[:] = 0
    assert num_read_by_python(adapter, lambda: pyflowk.permute(x, (1, 0), out=out)) == 0
    np.testing.assert_array_equal(out.array, MATRIX.T)


def test_a_new_result_is_of_the_array_s_kind_and_layout(adapter: type[FramedAdapter]) -> None:
    for x in (MATRIX, np.asfortranarray(MATRIX), MATRIX[:, ::2], MATRIX.astype(np.float64)):
        for _ in range(4):
            result = pyflowk.relu(Framed(x))
            np.testing.assert_array_equal(result.array, x)
            assert result.dtype == x.dtype
    assert call_path.program_cache().num_plans() == 4


def test_errors_are_the_function_s(adapter: type[FramedAdapter]) -> None:
    x = Framed(MATRIX)
    for _ in range(3):
        pyflowk.permute(x, (1, 0), out=Framed(np.zeros((6, 4), np.float32)))
    with pytest.raises(pyflowk.FlowkValueError, match="overlaps x"):
        pyflowk.permute(x, (1, 0), out=Framed(MATRIX.reshape(6, 4)))


# ---- NumPy ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def num_plans(host_library: None) -> Any:
    call_path.program_cache().forget()
    yield call_path.program_cache().num_plans
    call_path.program_cache().forget()


@pytest.mark.parametrize("x", [MATRIX, np.asfortranarray(MATRIX), MATRIX[1:, ::-2], MATRIX.astype(">f4"), MATRIX[:0]])
def test_numpy_s_arrays_are_read_in_c(x: np.ndarray, num_plans: Any) -> None:
    if not x.dtype.isnative:
        for _ in range(3):
            with pytest.raises(TypeError, match="x has dtype >f4"):
                pyflowk.multiply(x, 1.5)
        assert num_plans() == 0
        return
    for factor in (1.5, 2.5, 0.25):
        result = pyflowk.multiply(x, factor)
        np.testing.assert_array_equal(result, x * np.float32(factor))
        assert type(result) is np.ndarray and result.dtype == x.dtype and result.flags.writeable
        assert result.flags.f_contiguous == (x * 1).flags.f_contiguous
    assert num_plans() == 1


def test_an_out_that_is_read_only_is_refused_where_a_plan_is_there(num_plans: Any) -> None:
    out = np.zeros_like(MATRIX)
    for _ in range(3):
        assert pyflowk.relu(MATRIX, out=out) is out
    assert num_plans() == 1
    out.flags.writeable = False
    with pytest.raises(ValueError, match="out is read-only"):
        pyflowk.relu(MATRIX, out=out)
    frozen = MATRIX.copy()
    frozen.flags.writeable = False
    np.testing.assert_array_equal(pyflowk.relu(frozen), MATRIX)
