# SPDX-License-Identifier: Apache-2.0
"""prelu and prelu_backward against NumPy: outputs bit for bit, dalpha against float64, all bytes around watched."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from prelu_calls import Placed, bits, check_backward, check_forward
from prelu_cases import CASES, CODES, DTYPES, EMPTY_SHAPES, TABLE, PreluCase, dalpha_bound, data_of, make_data
from source_tree import ROOT

import pyflowk


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_every_case_of_the_table_is_right_forward_and_in_place(arrays: Any, thread_order: str, case: PreluCase) -> None:
    check_forward(arrays, case, make_data(case))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_every_case_of_the_table_is_right_backward(arrays: Any, thread_order: str, case: PreluCase) -> None:
    check_backward(arrays, case, make_data(case))


def test_every_portable_kernel_is_reached_by_a_row_of_the_table(arrays: Any) -> None:
    header = (ROOT / "cuda" / "prelu" / "prelu.h").read_text()
    enum = re.search(r"enum class PreluBackwardKernel[^{]*{(.*?)};", header, re.DOTALL)
    assert enum
    kernels = set(re.findall(r"^\s*(\w+),", enum[1], re.MULTILINE))
    assert kernels == {row["mechanism"] for row in TABLE}
    planned = set()
    for case in CASES:
        data = make_data(case)
        x, alpha, dy = (
            Placed(arrays, values, order, lead)
            for values, order, lead in (
                (data.x, case.order, case.leads[0]), (data.alpha, (), 0), (data.dy, case.order, case.leads[1])
            )
        )  # fmt: skip
        text = pyflowk.explain("prelu_backward", dy.array, x.array, alpha.array, case.channel_axis)
        planned.add(text.partition(":")[0])
        assert pyflowk.explain("prelu", x.array, alpha.array, case.channel_axis).startswith("forward: ")
    assert kernels - {"no_elements"} <= planned


def assert_same_values(actual: np.ndarray, expected: np.ndarray) -> None:
    """Any NaN is like any other; zeros have signs."""
    actual, expected = actual.astype(np.float64), expected.astype(np.float64)
    np.testing.assert_array_equal(actual, expected)
    is_number = ~np.isnan(expected)
    np.testing.assert_array_equal(np.signbit(actual[is_number]), np.signbit(expected[is_number]))


@pytest.mark.parametrize("dtype", DTYPES)
def test_zeros_nan_and_infinities_take_the_side_that_torch_gives_them(arrays: Any, dtype: str) -> None:
    values = np.array([0.0, -0.0, np.nan, np.inf, -np.inf, 1.5, -1.5, 2.0**-14, -(2.0**-14)] * 3, DTYPES[dtype])
    for slope in (0.25, -0.25, 0.0, np.inf, np.nan):
        alpha = np.array([slope], DTYPES[dtype])
        data = data_of(values, values[::-1].copy(), alpha, 0)
        y = arrays.fetch(pyflowk.prelu(arrays.put(values), arrays.put(alpha)))
        assert_same_values(y, data.y)
        dx, dalpha = pyflowk.prelu_backward(arrays.put(data.dy), arrays.put(values), arrays.put(alpha))
        assert_same_values(arrays.fetch(dx), data.dx)
        assert np.isnan(arrays.fetch(dalpha).astype(np.float32)).all()  # x holds NaN, and NaN is not > 0


def test_an_element_above_zero_adds_nothing_to_dalpha_whatever_its_gradient(arrays: Any) -> None:
    x, dy = np.array([1.0, 2.0, -3.0, 4.0], np.float32), np.array([np.nan, np.inf, 0.5, -np.inf], np.float32)
    dx, dalpha = pyflowk.prelu_backward(arrays.put(dy), arrays.put(x), arrays.put(np.ones(1, np.float32)))
    assert arrays.fetch(dalpha)[0] == -1.5
    np.testing.assert_array_equal(arrays.fetch(dx), dy)


@pytest.mark.parametrize("shape", [(8, 64, 28, 28), (300, 7, 7, 128), (40, 100, 3, 3), (3, 1, 50000)], ids=str)
def test_equal_calls_give_equal_bits(arrays: Any, shape: tuple[int, ...]) -> None:
    case = PreluCase(shape, 1 if shape[-1] != 128 else 3, "float32", "")
    data = make_data(case)
    x, dy, alpha = map(arrays.put, (data.x, data.dy, data.alpha))
    first = arrays.fetch(pyflowk.prelu_backward(dy, x, alpha, case.channel_axis)[1]).copy()
    for _ in range(5):
        again = arrays.fetch(pyflowk.prelu_backward(dy, x, alpha, case.channel_axis)[1])
        assert again.tobytes() == first.tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
def test_either_gradient_alone_is_that_of_both(arrays: Any, dtype: str) -> None:
    for shape in ((4, 5, 9, 9), (70, 24)):
        data = make_data(PreluCase(shape, 1, dtype, ""))
        arguments = [arrays.put(values) for values in (data.dy, data.x, data.alpha)]
        dx, dalpha = pyflowk.prelu_backward(*arguments)
        only_dx, nothing = pyflowk.prelu_backward(*arguments, need_dalpha=False)
        assert nothing is None
        assert arrays.fetch(only_dx).tobytes() == arrays.fetch(dx).tobytes()
        nothing, only_dalpha = pyflowk.prelu_backward(*arguments, need_dx=False)
        assert nothing is None
        assert arrays.fetch(only_dalpha).tobytes() == arrays.fetch(dalpha).tobytes()
        assert pyflowk.prelu_backward(*arguments, need_dx=False, need_dalpha=False) == (None, None)


@pytest.mark.parametrize("shape", [(4, 5, 9, 9), (70, 24), (3, 5, 64)], ids=str)
def test_dx_may_be_written_over_dy_or_over_x(arrays: Any, shape: tuple[int, ...]) -> None:
    data = make_data(PreluCase(shape, 1, "float16", ""))
    for over in (0, 1):
        arguments = [arrays.put(values) for values in (data.dy, data.x, data.alpha)]
        dx, dalpha = pyflowk.prelu_backward(*arguments, dx_out=arguments[over])
        assert dx is arguments[over]
        np.testing.assert_array_equal(bits(arrays.fetch(dx)), bits(data.dx))
        assert (np.abs(arrays.fetch(dalpha).astype(np.float64) - data.dalpha) <= dalpha_bound(data)).all()


def test_the_workspace_may_be_the_callers_and_holds_anything_before(arrays: Any) -> None:
    data = make_data(PreluCase((6, 10, 33, 33), 1, "float32", ""))
    dy, x, alpha = (arrays.put(values) for values in (data.dy, data.x, data.alpha))
    num_bytes = pyflowk.prelu_backward_workspace_bytes(x, alpha)
    assert 0 < num_bytes < data.x.nbytes / 10
    for fill in (0.0, np.nan):
        workspace = arrays.put(np.full((num_bytes + 7) // 8 + 2, fill, np.float64))
        start = -arrays.pointer(workspace) % 16
        aligned = arrays.view(workspace, start, ((num_bytes + 7) // 8,), (8,), np.float64)
        _, dalpha = pyflowk.prelu_backward(dy, x, alpha, workspace=aligned)
        assert (np.abs(arrays.fetch(dalpha) - data.dalpha) <= dalpha_bound(data)).all()


@pytest.mark.parametrize("shape", EMPTY_SHAPES, ids=str)
def test_no_elements_give_no_output_and_a_gradient_of_zeros(arrays: Any, shape: tuple[int, ...]) -> None:
    x, alpha = arrays.put(np.zeros(shape, np.float16)), arrays.put(np.ones(shape[1], np.float16))
    assert pyflowk.prelu(x, alpha).shape == shape
    dx, dalpha = pyflowk.prelu_backward(x, x, alpha)
    assert dx.shape == shape
    np.testing.assert_array_equal(arrays.fetch(dalpha), np.zeros(shape[1], np.float16))


def test_a_sum_of_very_many_terms_keeps_its_digits(arrays: Any) -> None:
    size = 1 << 22
    x = np.full(size, -0.1, np.float32)
    dy = np.full(size, 0.3, np.float32)
    for shape in ((size,), (size // 4, 4)):
        alpha = np.ones(4 if len(shape) == 2 else 1, np.float32)
        _, dalpha = pyflowk.prelu_backward(*(arrays.put(a) for a in (dy.reshape(shape), x.reshape(shape), alpha)))
        exact = float(x[0]) * float(dy[0]) * (size // alpha.size)
        assert (np.abs(arrays.fetch(dalpha) / exact - 1) < 1e-6).all()


def test_a_new_output_lies_in_memory_as_x_does(arrays: Any) -> None:
    data = make_data(PreluCase((2, 7, 6, 5), 1, "float32", ""))
    x, alpha = Placed(arrays, data.x, (0, 2, 3, 1)), arrays.put(data.alpha)
    y = pyflowk.prelu(x.array, alpha)
    dx, dalpha = pyflowk.prelu_backward(x.array, x.array, alpha)
    assert y.shape == dx.shape == x.array.shape
    assert y.strides == dx.strides == x.array.strides
    assert type(y) is type(dx) is type(x.array) and type(dalpha) is type(alpha)


def test_the_codes_of_the_cases_are_those_of_the_library() -> None:
    assert {name: pyflowk.DType[name.upper()] for name in CODES} == CODES
