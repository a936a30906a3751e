# SPDX-License-Identifier: Apache-2.0
"""The log-sum-exp of masked_softmax, and its gradient, by pyflowk. The cases of softmax_cases.py have their values."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from softmax_cases import DTYPES

import pyflowk

RNG = np.random.default_rng(5)


def inputs(dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    return (3 * RNG.standard_normal(shape)).astype(dtype)


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("columns", [1, 5, 16, 64, 77, 256, 1000, 2048, 5003, 20480])
def test_the_other_result_is_the_same(arrays: Any, dtype: str, columns: int, log: bool) -> None:
    x = arrays.put(inputs(dtype, (3, 4, columns)))
    for options in ({}, {"causal": True, "window": 3}, {"lengths": arrays.put(np.array([columns, 1, 0]))}):
        y, lse = pyflowk.masked_softmax(x, return_lse=True, log=log, **options)
        alone = pyflowk.masked_softmax(x, log=log, **options)
        one, other = (arrays.fetch(each).astype(np.float64) for each in (y, alone))
        np.testing.assert_allclose(one, other, rtol=4 * float(ml_dtypes.finfo(dtype).eps), atol=1e-6)
        assert arrays.fetch(lse).shape == (3, 4)


@pytest.mark.parametrize("columns", [1, 7, 64, 3000])
@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_without_a_column_and_with_nan(arrays: Any, thread_order: str, dtype: str, columns: int) -> None:
    x = inputs(dtype, (5, columns))
    x[1], x[2, -1], x[3, -1] = -np.inf, np.nan, np.inf
    for options in ({}, {"bias": arrays.put(np.zeros(columns, dtype))}):
        lengths = arrays.put(np.array([0, columns, columns, columns, columns]))
        y, lse = pyflowk.masked_softmax(arrays.put(x), lengths=lengths, return_lse=True, **options)
        found = arrays.fetch(lse)
        assert (found[:2] == -np.inf).all() and np.isnan(found[2:4]).all() and np.isfinite(found[4])
        assert (arrays.fetch(y)[:2] == 0).all()


def test_scores_past_the_type_are_an_infinite_lse(arrays: Any) -> None:
    x = arrays.put(np.full((2, 40), 3e38, np.float32))
    y, lse = pyflowk.masked_softmax(x, scale=4.0, return_lse=True)
    assert (arrays.fetch(lse) == np.inf).all()
    np.testing.assert_allclose(arrays.fetch(y), 1 / 40, rtol=1e-6)


@pytest.mark.parametrize("shape", [(9,), (2, 9), (2, 3, 2, 9)])
def test_it_has_the_leading_shape(arrays: Any, shape: tuple[int, ...]) -> None:
    x = inputs("float32", shape)
    y, lse = pyflowk.masked_softmax(arrays.put(x), return_lse=True)
    expected = np.log(np.exp(x.astype(np.float64)).sum(-1))
    np.testing.assert_allclose(arrays.fetch(lse), expected, rtol=1e-6, atol=1e-6)
    dlse, dy = np.ones(shape[:-1], np.float32), np.zeros(shape, np.float32)
    dx = pyflowk.masked_softmax_backward(arrays.put(dy), y, dlse=arrays.put(dlse))
    np.testing.assert_allclose(arrays.fetch(dx), arrays.fetch(y), rtol=1e-6)


@pytest.mark.parametrize("strides", ["transposed", "flipped", "repeated"])
def test_any_strides(arrays: Any, strides: str) -> None:
    x, dlse = inputs("float32", (4, 6, 33)), inputs("float32", (4, 6))
    layouts = {
        "transposed": lambda a: np.ascontiguousarray(a.swapaxes(0, 1)).swapaxes(0, 1),
        "flipped": lambda a: np.ascontiguousarray(a[::-1])[::-1],
        "repeated": lambda a: np.broadcast_to(a[:1], a.shape),
    }
    x, dlse = layouts[strides](x), layouts[strides](dlse)
    y, lse = pyflowk.masked_softmax(x, return_lse=True)
    np.testing.assert_allclose(lse, np.log(np.exp(x.astype(np.float64)).sum(-1)), rtol=1e-6, atol=1e-6)
    expected = y * (x - (y * x).sum(-1, keepdims=True) + dlse[..., None])
    np.testing.assert_allclose(pyflowk.masked_softmax_backward(x, y, dlse=dlse), expected, rtol=1e-5, atol=1e-6)


def test_rows_in_another_order_and_in_l2_tiles() -> None:
    out = np.empty((3, 4, 50), np.float32).swapaxes(0, 1)
    x = inputs("float32", (4, 3, 50))
    expected = np.log(np.exp(x.astype(np.float64)).sum(-1))
    np.testing.assert_allclose(pyflowk.masked_softmax(x, out=out, return_lse=True)[1], expected, rtol=1e-6, atol=1e-6)
    x, mask = inputs("float16", (2, 3, 1100, 8192)), np.zeros((1100, 8192), bool)
    mask[:, 7] = True
    lse = pyflowk.masked_softmax(x, mask, return_lse=True)[1]
    assert "L2 tiles" in pyflowk.explain(pyflowk.masked_softmax, x, mask, return_lse=True)
    some = x[1, 2, ::300].astype(np.float64)
    some[:, 7] = -np.inf
    np.testing.assert_allclose(lse[1, 2, ::300], np.log(np.exp(some).sum(-1)), rtol=1e-6)


def test_later_calls_give_the_same(arrays: Any) -> None:
    x, mask = arrays.put(inputs("float32", (4, 9))), arrays.put(np.arange(9) % 2 == 0)
    first = None
    for _ in range(3):
        out, lse_out = (arrays.put(np.zeros(shape, np.float32)) for shape in ((4, 9), (4,)))
        results = pyflowk.masked_softmax(x, mask, return_lse=True, out=out, lse_out=lse_out)
        assert results[0] is out and results[1] is lse_out
        new = pyflowk.masked_softmax(x, mask, return_lse=True)
        found = [arrays.fetch(one) for one in (*results, *new)]
        first = first or found
        for one, expected in zip(found, (*first[:2], *first[:2])):
            assert np.array_equal(one, expected)
    np.testing.assert_allclose(arrays.fetch(pyflowk.masked_softmax(x, mask)), first[0], rtol=1e-6)


BAD = {
    "lse_out alone": ({"lse_out": np.empty(3, np.float32)}, TypeError, "lse_out is given without return_lse"),
    "its shape": ({"return_lse": True, "lse_out": np.empty(4, np.float32)}, ValueError, r"lse_out has shape \(4,\)"),
    "its dtype": ({"return_lse": True, "lse_out": np.empty(3)}, TypeError, "lse_out has dtype float64"),
    "its strides": ({"return_lse": True, "lse_out": np.empty(6, np.float32)[::2]}, ValueError, "lse_out has strides"),
    "no bool": ({"return_lse": 1}, TypeError, "return_lse"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_arguments(name: str) -> None:
    options, kind, text = BAD[name]
    for _ in range(2):
        with pytest.raises(kind, match=text):
            pyflowk.masked_softmax(np.zeros((3, 5), np.float32), **options)


def test_bad_gradients() -> None:
    x = np.zeros((3, 5), np.float32)
    with pytest.raises(ValueError, match=r"dlse has shape \(4,\), must be \(3,\)"):
        pyflowk.masked_softmax_backward(x, x, dlse=np.zeros(4, np.float32))
    with pytest.raises(TypeError, match="dlse has dtype float64"):
        pyflowk.masked_softmax_backward(x, x, dlse=np.zeros(3))
    memory = np.zeros(16, np.float32)
    with pytest.raises(ValueError, match="lse_out"):
        pyflowk.masked_softmax(memory[:15].reshape(3, 5), return_lse=True, lse_out=memory[13:])
    with pytest.raises(ValueError, match=r"shape\[1\] = 0"):
        pyflowk.masked_softmax(x[:, :0], return_lse=True)
