# SPDX-License-Identifier: Apache-2.0
"""Softmax at the ends of the number range: no finite x overflows, at any scale; what a bias and tiny results do."""

from __future__ import annotations

from typing import Any

import ml_dtypes  # noqa: F401  NumPy's bfloat16
import numpy as np
import pytest
from softmax_cases import DTYPES

import pyflowk

# Rows for each mechanism: short and odd, short and even, in registers, in shared memory, in two passes.
COLUMNS = [1, 3, 17, 64, 300, 2048, 20000, 70000]
LARGEST = {"float16": 65504.0, "bfloat16": 3.3e38, "float32": 3.4e38, "float64": 1.7e308}
SCALES = [0, 2.0**-149, 1e-40, -1e-30, 2.0**-100, 0.5, 1, -8, 4096, 1e6, 2.0**100, 2.0**126]
FLOAT64_SCALES = [5e-324, 1e-300, 1e300, -1.7e308]


def extreme_rows(dtype: str, cols: int) -> np.ndarray:
    big = LARGEST[dtype]
    rng = np.random.default_rng(cols)
    x = np.zeros((6, cols))
    x[0] = rng.uniform(-1, 1, cols) * big
    x[1, 0], x[2, -1], x[3, 1:] = big, -big, -big
    x[3, 0], x[4], x[5] = big, rng.normal(0, 3, cols), big
    return x.astype(dtype)


@np.errstate(all="ignore")
def wide_softmax(x: np.ndarray, scale: float, log: bool) -> np.ndarray:
    """As float64, computed in NumPy's longdouble, which holds every scale * x."""
    z = x.astype(np.longdouble) * np.longdouble(scale)
    z -= z.max(axis=-1, keepdims=True)
    e = np.exp(z)
    total = e.sum(axis=-1, keepdims=True)
    return (z - np.log(total) if log else e / total).astype(np.float64)


@np.errstate(all="ignore")
def assert_right(y: np.ndarray, expected: np.ndarray, log: bool) -> None:
    relative, absolute = {2: (1.2e-2, 1e-2), 4: (4e-5, 1e-5), 8: (1e-12, 1e-12)}[y.dtype.itemsize]
    if not log:
        absolute = 1e-7 if y.dtype == np.float16 else 2.0**-125
    expected = expected.astype(y.dtype).astype(np.float64)
    got = y.astype(np.float64)
    right = (got == expected) | (np.abs(got - expected) <= absolute + relative * np.abs(expected))
    assert right.all(), (np.argwhere(~right)[0], got[~right][0], expected[~right][0])


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("cols", COLUMNS)
def test_no_finite_x_overflows_at_any_scale(arrays: Any, dtype: str, cols: int, log: bool) -> None:
    x = extreme_rows(dtype, cols)
    given = arrays.put(x)
    masks: list[dict[str, Any]] = [{}]
    if cols <= 2048:
        masks += [{"lengths": arrays.put(np.array(cols, np.int32).reshape(1))}]
        masks += [{"mask": arrays.put(np.zeros(cols, bool))}]
    for scale in SCALES + FLOAT64_SCALES * (dtype == "float64"):
        expected = wide_softmax(x, scale, log)
        for mask in masks:
            y = arrays.fetch(pyflowk.masked_softmax(given, **mask, scale=scale, log=log))
            assert_right(y, expected, log)
        if dtype in ("float16", "bfloat16"):
            y = arrays.fetch(pyflowk.masked_softmax(given, scale=scale, log=log, dtype="float32"))
            assert_right(y, expected, log)


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("cols", [3, 17, 64, 300, 5000])
def test_a_z_with_a_bias_that_overflows_is_infinite(arrays: Any, dtype: str, cols: int) -> None:
    x, bias = np.zeros((3, cols), dtype), arrays.put(np.zeros(cols, dtype))
    x[0, 0], x[1, 0] = 1e38, -1e38
    x[2, 0] = 3e37  # 8 times that is finite
    y = arrays.fetch(pyflowk.masked_softmax(arrays.put(x), bias=bias, scale=8)).astype(np.float64)
    expected = np.zeros((3, cols))
    expected[0], expected[1, 1:], expected[2, 0] = np.nan, 1 / (cols - 1), 1
    np.testing.assert_allclose(y, expected, rtol=1e-2)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("cols", [3, 17, 64, 300, 5000, 70000])
def test_results_below_the_least_normal_float32_are_right_or_0(arrays: Any, dtype: str, cols: int) -> None:
    x = np.zeros((64, cols), dtype)
    x[:, 0] = np.linspace(-150, -60, 64)
    y = arrays.fetch(pyflowk.softmax(arrays.put(x)))[:, 0].astype(np.float64)
    expected = wide_softmax(x, 1, False)[:, 0]
    if dtype == "float16":
        assert (y == 0).all()
        return
    is_tiny = expected < (2.0**-1022 if dtype == "float64" else 2.0**-125)
    near = np.abs(y - expected) <= np.maximum(2e-2 * expected, 2.0**-133)
    assert (near | (is_tiny & (y == 0))).all()
    assert near[~is_tiny].any()
    if dtype == "bfloat16":  # the exponential of the special function unit, and what the executor does in its place
        assert (y[np.exp(x[:, 0].astype(np.float64)) < 2.0**-127] == 0).all()


def test_a_scale_out_of_range_is_refused_by_its_bound(arrays: Any) -> None:
    for dtype in DTYPES:
        x = arrays.put(np.ones((2, 5), dtype))
        for scale in (np.inf, -np.inf, np.nan) if dtype == "float64" else (np.inf, 2.0**126 * 1.001, -1e39):
            with pytest.raises(pyflowk.FlowkValueError, match=r"scale = .*must be finite"):
                pyflowk.masked_softmax(x, scale=scale)
        if dtype != "float64":
            with pytest.raises(pyflowk.FlowkValueError, match=r"within \+-2\^126"):
                pyflowk.masked_softmax(x, scale=1e39)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("cols", [3, 64, 5000])
def test_infinities_and_nan_count_as_such_at_a_scale_of_0(arrays: Any, dtype: str, cols: int) -> None:
    x = np.zeros((4, cols), dtype)
    x[0, 0], x[1, 0], x[2, 0], x[3] = np.inf, np.nan, -np.inf, -np.inf
    y = arrays.fetch(pyflowk.masked_softmax(arrays.put(x), scale=0)).astype(np.float64)
    expected = np.full((4, cols), 1 / (cols - 1))
    expected[:2], expected[2, 0], expected[3] = np.nan, 0, 0
    np.testing.assert_allclose(y, expected, rtol=1e-2)
