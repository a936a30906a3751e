# SPDX-License-Identifier: Apache-2.0
"""The order in memory of a new result: NumPy's order "K"."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import pyflowk
from pyflowk._arrays.adapters.protocol import PROTOCOL
from pyflowk._arrays.device_array import DeviceArray
from pyflowk._arrays.dtypes import strides_in_order
from pyflowk._elementwise.layout import memory_order


def in_order(arrays: Any, values: np.ndarray, order: tuple[int, ...]) -> Any:
    """An array with its dimensions in memory in this order, from the outermost to the innermost."""
    memory = np.ascontiguousarray(values.transpose(order))
    strides = strides_in_order(values.shape, order, values.itemsize)
    return arrays.view(arrays.put(memory.reshape(-1).view(np.uint8)), 0, values.shape, strides, values.dtype)


SHAPE = (2, 3, 4, 5)
VALUES = np.arange(120, dtype=np.float32).reshape(SHAPE) - 60


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))), ids=str)
def test_a_unary_result_has_the_order_of_its_operand(arrays: Any, order: tuple[int, ...]) -> None:
    x = in_order(arrays, VALUES, order)
    for result, expected in (
        (pyflowk.relu(x), np.maximum(VALUES, 0)),
        (pyflowk.cast(x, "int8"), VALUES.astype(np.int8)),
        (pyflowk.multiply(2, x), 2 * VALUES),
        (pyflowk.add(x, x), 2 * VALUES),
        (pyflowk.less(x, 3), VALUES < 3),
        (pyflowk.add(x, arrays.put(np.ones(5, np.float32))), VALUES + 1),
        (pyflowk.add(x, arrays.put(np.ones(SHAPE, np.int64)[:, :1])), VALUES + 1.0),
    ):
        assert result.strides == strides_in_order(SHAPE, order, result.dtype.itemsize)
        np.testing.assert_array_equal(arrays.fetch(result), expected)


def test_channels_last_stays_channels_last(arrays: Any) -> None:
    x = in_order(arrays, VALUES, (0, 2, 3, 1))
    bias = arrays.put(np.arange(3, dtype=np.float32).reshape(3, 1, 1))
    for result in (pyflowk.relu(x), pyflowk.add(x, bias), pyflowk.add(bias, x), pyflowk.fma(x, bias, bias)):
        assert result.strides == (4 * 60, 4, 4 * 15, 4 * 3)
    np.testing.assert_array_equal(arrays.fetch(pyflowk.add(bias, x)), VALUES + np.arange(3).reshape(3, 1, 1))


def test_the_first_operand_that_moves_along_two_dimensions_decides(arrays: Any) -> None:
    values = VALUES.reshape(6, 20)
    first, second = arrays.put(values), in_order(arrays, values, (1, 0))
    assert pyflowk.add(first, second).strides == (80, 4)
    assert pyflowk.add(second, first).strides == (4, 24)
    assert pyflowk.fma(2, second, first).strides == (4, 24)
    assert pyflowk.add(arrays.put(values[:, :1]), second).strides == (4, 24)


def test_a_converted_operand_does_not_change_the_order(arrays: Any) -> None:
    values = VALUES.reshape(6, 20)
    turned, column = in_order(arrays, values, (1, 0)), arrays.put(np.ones((6, 1), np.int32))
    for operands in ((turned, column), (column, turned), (in_order(arrays, np.int32(values), (1, 0)), turned)):
        result = pyflowk.add(*operands)
        assert result.strides == (8, 48)
        assert "converted" in pyflowk.explain(pyflowk.add, *operands)
    expanded = arrays.view(arrays.put(np.ones(1, np.int32)), 0, (6, 20), (0, 0), np.dtype(np.int32))
    assert pyflowk.add(expanded, turned).strides == (8, 48)


def test_steps_and_backward_strides_leave_the_order(arrays: Any) -> None:
    memory = arrays.put(np.arange(240, dtype=np.float32).view(np.uint8))
    x = arrays.view(memory, 4 * 239, (6, 10), (-4, -4 * 24), np.dtype(np.float32))
    result = pyflowk.negative(x)
    assert result.strides == (4, 24)
    expected = -np.arange(240, dtype=np.float32).reshape(10, 24)[::-1, ::-1][:, :6].T
    np.testing.assert_array_equal(arrays.fetch(result), expected)


def test_one_operand_has_numpy_s_order(host_library: None) -> None:
    rng = np.random.default_rng(6)
    for _ in range(300):
        rank = rng.integers(1, 5)
        shape = tuple(int(extent) for extent in rng.integers(1, 4, rank))
        x = np.zeros(shape, np.float32).transpose(rng.permutation(rank))
        expected, result = np.negative(x), pyflowk.negative(x)
        moving = [d for d in range(rank) if x.shape[d] > 1]
        assert [expected.strides[d] for d in moving] == [result.strides[d] for d in moving]


def test_memory_order_of_dimensions_that_do_not_move_is_c_s() -> None:
    assert memory_order((), []) is None
    assert memory_order((2, 3), [(0, 0)]) is None
    assert memory_order((1, 3), [(1, 9)]) is None
    assert memory_order((2, 3, 4), [(1, 0, 0), (0, 2, 0)]) is None
    assert memory_order((2, 3, 4), [(0, 1, 3), (1, 8, 2)]) == (2, 1, 0)


def test_explain_plans_for_the_order_of_the_result(arrays: Any) -> None:
    x = in_order(arrays, VALUES, (0, 2, 3, 1))
    assert "contiguous" in pyflowk.explain(pyflowk.relu, x)


def test_a_protocol_array_s_result_keeps_its_order(host_library: None) -> None:
    class Wrapped:
        def __init__(self, array: np.ndarray) -> None:
            self.array = array

        def __dlpack__(self, **options: Any) -> Any:
            return self.array.__dlpack__(**options)

        def __dlpack_device__(self) -> Any:
            return self.array.__dlpack_device__()

    result = pyflowk.relu(Wrapped(VALUES.transpose(0, 3, 1, 2)))
    assert result.strides == VALUES.transpose(0, 3, 1, 2).strides
    view = DeviceArray(None, 0, (2, 3), (12, 4), np.dtype(np.float32), 0, 0)
    assert PROTOCOL.transposed(view, (1, 0)).strides == (4, 12)
