# SPDX-License-Identifier: Apache-2.0
"""Softmax of rows of any stride, and of masks and biases that broadcast over the row."""

from __future__ import annotations

from typing import Any

import ml_dtypes  # noqa: F401  NumPy's bfloat16
import numpy as np
import pytest
from softmax_cases import DTYPES

import pyflowk


def spread(arrays: Any, values: np.ndarray, order: tuple[int, ...], step: int) -> tuple[Any, Any]:
    """A view that holds `values`, and all of its memory: its dimensions lie in `order`, and each element has `step` - 1
    unused ones after it."""
    shape, itemsize = values.shape, values.dtype.itemsize
    strides, reach = [0] * values.ndim, itemsize * step
    for d in reversed(order):
        strides[d] = reach
        reach *= shape[d]
    host = np.zeros(reach, np.uint8)
    np.ndarray(shape, values.dtype, host, 0, tuple(strides))[...] = values
    memory = arrays.put(host)
    return arrays.view(memory, 0, shape, tuple(strides), values.dtype), memory


def drawn(shape: tuple[int, ...], dtype: str, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 2, shape).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("order", "step"), [((0, 2, 1), 1), ((2, 1, 0), 1), ((0, 1, 2), 3), ((1, 2, 0), 2)])
def test_a_last_dimension_of_any_stride_is_taken(arrays: Any, dtype: str, order: tuple[int, ...], step: int) -> None:
    shape = (3, 5, 40)
    x, mask, bias = drawn(shape, dtype), drawn(shape, "float32") > 1, drawn(shape, dtype, 2)
    dense = [arrays.put(values) for values in (x, mask, bias)]
    strided = [spread(arrays, values, order, step)[0] for values in (x, mask, bias)]
    expected = pyflowk.masked_softmax(dense[0], dense[1], bias=dense[2], scale=0.5)
    dy = drawn(shape, dtype, 3)
    everything = {"window": 100}  # a mask
    gradient = arrays.fetch(pyflowk.masked_softmax_backward(arrays.put(dy), expected, **everything))
    expected = arrays.fetch(expected)
    y = pyflowk.masked_softmax(strided[0], strided[1], bias=strided[2], scale=0.5)
    assert type(y) is type(pyflowk.softmax(dense[0]))
    np.testing.assert_array_equal(arrays.fetch(y), expected)
    # Out alone, then in place.
    out, memory = spread(arrays, np.zeros(shape, x.dtype), order, step)
    assert pyflowk.masked_softmax(dense[0], dense[1], bias=dense[2], scale=0.5, out=out) is out
    np.testing.assert_array_equal(arrays.fetch(memory), arrays.fetch(spread(arrays, expected, order, step)[1]))
    pyflowk.masked_softmax(strided[0], strided[1], bias=strided[2], scale=0.5, out=strided[0])
    np.testing.assert_array_equal(arrays.fetch(strided[0]), expected)
    of_rows = [spread(arrays, values, order, step)[0] for values in (dy, expected)]
    dx = pyflowk.masked_softmax_backward(*of_rows, **everything)
    np.testing.assert_array_equal(arrays.fetch(dx), gradient)


@pytest.mark.parametrize("shape", [(), (1,), (5, 1), (2, 1, 1), (3, 1, 5, 1), (1, 2, 1, 1)])
def test_a_mask_and_a_bias_broadcast_over_the_row(arrays: Any, shape: tuple[int, ...]) -> None:
    x = drawn((3, 2, 5, 40), "float32")
    mask, bias = drawn(shape, "float32", 2) > 0, drawn(shape, "float32", 3)
    whole = [np.ascontiguousarray(np.broadcast_to(values, x.shape)) for values in (mask, bias)]
    expected = pyflowk.masked_softmax(arrays.put(x), arrays.put(whole[0]), bias=arrays.put(whole[1]))
    y = pyflowk.masked_softmax(arrays.put(x), arrays.put(np.asarray(mask)), bias=arrays.put(np.asarray(bias)))
    np.testing.assert_array_equal(arrays.fetch(y), arrays.fetch(expected))


def test_a_mask_that_repeats_one_element_is_taken(arrays: Any) -> None:
    x = arrays.put(drawn((3, 7, 40), "float32"))
    for masked in (False, True):
        one = arrays.put(np.array([masked]))
        mask = arrays.view(one, 0, (3, 7, 40), (0, 0, 0), np.bool_)
        y = arrays.fetch(pyflowk.masked_softmax(x, mask))
        np.testing.assert_array_equal(y, 0 if masked else arrays.fetch(pyflowk.softmax(x)))


def test_the_plan_names_the_copies_of_strided_rows_beside_a_mask(arrays: Any) -> None:
    x, _ = spread(arrays, drawn((6, 40), "float32"), (1, 0), 1)
    out, memory = spread(arrays, np.zeros((6, 40), np.float32), (1, 0), 1)
    assert pyflowk.explain(pyflowk.softmax, x, out=out).startswith("strided_rows: ")
    text = pyflowk.explain(pyflowk.masked_softmax, x, causal=True, out=out)
    assert text.startswith("on contiguous copies of x, out, by flowk_permute; then\n")
    dense = arrays.put(np.zeros((6, 40), np.float32))
    *plan, verdict = pyflowk.explain(pyflowk.masked_softmax, dense, causal=True).splitlines()
    copied = "verdict: extra pass: x, out are copied because the kernel needs contiguous rows"
    assert text.splitlines()[1:] == [*plan, copied] and verdict == "verdict: fast"
    np.testing.assert_array_equal(arrays.fetch(memory), 0)


def test_empty_rows_and_rows_of_one_column_take_any_strides(arrays: Any) -> None:
    memory = arrays.put(np.zeros(64, np.uint8))
    for shape in ((0, 4), (3, 0), (3, 1)):
        x = arrays.view(memory, 0, shape, (4, 8), np.float32)
        y = pyflowk.masked_softmax(x, arrays.put(np.zeros((1, 1), bool)))
        np.testing.assert_array_equal(arrays.fetch(y), np.ones(shape))
