# SPDX-License-Identifier: Apache-2.0
"""softmax_merge: results against extended precision, all-masked halves, in place, bad input."""

from __future__ import annotations

from typing import Any

import ml_dtypes  # noqa: F401  NumPy's bfloat16
import numpy as np
import pytest
from softmax_cases import DTYPES

import pyflowk

# Vectors of one row, of two, and rows of less than a vector; a last vector that is not whole.
SHAPES = [(3, 1), (5, 3), (4, 8), (3, 2, 64), (7, 77), (3, 1001), (2, 4096), (9,)]
EPS = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
Longdouble = np.longdouble


@np.errstate(all="ignore")
def reference(y1: np.ndarray, lse1: np.ndarray, y2: np.ndarray, lse2: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    one, two = lse1.astype(Longdouble), lse2.astype(Longdouble)
    lse = np.logaddexp(one, two)
    lse = np.where(np.isposinf(one) | np.isposinf(two), np.nan, lse)
    y = np.zeros(y1.shape, Longdouble)
    for half, of_half in ((y1, one), (y2, two)):
        is_used = ~np.isneginf(of_half)[..., None]
        y = y + np.where(is_used, np.exp(of_half - lse)[..., None] * half.astype(Longdouble), 0)
    return y, lse


def drawn(dtype: str, shape: tuple[int, ...]) -> list[np.ndarray]:
    rng = np.random.default_rng(sum(shape))
    wide = "float64" if dtype == "float64" else "float32"
    halves = []
    for _ in range(2):
        lse = np.asarray(30 * rng.standard_normal(shape[:-1]))
        halves += [(3 * rng.standard_normal(shape)).astype(dtype), lse.astype(wide)]
    return halves


def assert_right(arrays: Any, results: Any, host: list[np.ndarray], dtype: str) -> None:
    y, lse = (arrays.fetch(one) for one in results)
    expected = reference(*host)
    unit = EPS["float64" if dtype == "float64" else "float32"]
    assert y.dtype == host[0].dtype and lse.dtype == host[1].dtype
    size = np.nanmax(np.abs(np.stack([host[0], host[2]]).astype(np.float64)))
    error = np.abs(y.astype(Longdouble) - expected[0])
    bound = EPS[dtype] / 2 * np.abs(expected[0]) + 8 * unit * size + (2.0**-25 if dtype == "float16" else 0)
    assert (~(error > bound) | np.isnan(expected[0])).all()
    np.testing.assert_allclose(lse.astype(np.float64), expected[1].astype(np.float64), rtol=4 * unit, atol=4 * unit)
    assert (np.isnan(y.astype(np.float64)) == np.isnan(expected[0])).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_results(arrays: Any, shape: tuple[int, ...], dtype: str) -> None:
    host = drawn(dtype, shape)
    given = [arrays.put(one) for one in host]
    assert_right(arrays, pyflowk.softmax_merge(*given), host, dtype)
    out = given[2] if shape[0] % 2 else given[0]
    y, lse = pyflowk.softmax_merge(*given, out=out)
    assert y is out
    assert_right(arrays, (y, lse), host, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_results_of_halves_that_are_all_masked(arrays: Any, dtype: str) -> None:
    """Rows: neither, the first, the second, both, a NaN, a +infinity; what a masked half has is not used."""
    for columns in (3, 16, 77):
        y1, lse1, y2, lse2 = drawn(dtype, (6, columns))
        lse1[[1, 3]], lse2[[2, 3]], lse1[4], lse2[5] = -np.inf, -np.inf, np.nan, np.inf
        y1[[1, 3]], y2[[2, 3]] = np.nan, np.nan
        host = [y1, lse1, y2, lse2]
        results = pyflowk.softmax_merge(*map(arrays.put, host))
        y, lse = map(arrays.fetch, results)
        assert (y[1] == y2[1]).all() and lse[1] == lse2[1]
        assert (y[2] == y1[2]).all() and lse[2] == lse1[2]
        assert (y[3] == 0).all() and lse[3] == -np.inf
        assert np.isnan(y[4:].astype(np.float64)).all() and np.isnan(lse[4:]).all()
        assert_right(arrays, (results[0], results[1]), host, dtype)


def test_it_is_the_softmax_over_all_columns(arrays: Any) -> None:
    rng = np.random.default_rng(3)
    x, values = rng.standard_normal((2, 5, 12)), rng.standard_normal((12, 6))
    whole, whole_lse = pyflowk.masked_softmax(arrays.put(x), return_lse=True)
    parts = []
    for part in (slice(0, 5), slice(5, 12)):
        y, lse = map(arrays.fetch, pyflowk.masked_softmax(arrays.put(x[..., part]), return_lse=True))
        parts += [y @ values[part], lse]
    y, lse = map(arrays.fetch, pyflowk.softmax_merge(*map(arrays.put, parts)))
    np.testing.assert_allclose(y, arrays.fetch(whole) @ values, rtol=1e-13, atol=1e-14)
    np.testing.assert_allclose(lse, arrays.fetch(whole_lse), rtol=1e-14)


def test_misaligned_and_strided_arrays(arrays: Any) -> None:
    host = drawn("float16", (4, 24))
    memory = arrays.put(np.concatenate([np.zeros(1, np.float16), host[0].ravel()]).view(np.uint8))
    y1 = arrays.view(memory, 2, (4, 24), (48, 2), np.dtype(np.float16))
    rest = [arrays.put(one) for one in host[1:]]
    assert_right(arrays, pyflowk.softmax_merge(y1, *rest), host, "float16")
    assert "an element" in str(pyflowk.explain(pyflowk.softmax_merge, y1, *rest))
    turned = arrays.view(arrays.put(host[0].T.copy().view(np.uint8)), 0, (4, 24), (2, 8), np.dtype(np.float16))
    assert_right(arrays, pyflowk.softmax_merge(turned, *rest), host, "float16")


BAD: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "shape": ({"y2": ((3, 5), "float32")}, ValueError, "y2 has shape"),
    "dtype": ({"y2": ((3, 4), "float16")}, TypeError, "y2 has dtype float16, must be float32"),
    "integers": ({"y1": ((3, 4), "int32")}, TypeError, "y1 has dtype int32"),
    "rows": ({"lse1": ((4,), "float32")}, ValueError, r"lse1 has shape \(4,\), must be \(3,\)"),
    "type of lse": ({"lse2": ((3,), "float64")}, TypeError, "lse2 has dtype float64, must be float32"),
    "out": ({"out": ((4, 3), "float32")}, ValueError, "out has shape"),
    "no columns": ({"y1": ((3, 0), "float32"), "y2": ((3, 0), "float32")}, ValueError, "columns"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input(arrays: Any, name: str) -> None:
    changed, error, text = BAD[name]
    given = {"y1": ((3, 4), "float32"), "lse1": ((3,), "float32"), "y2": ((3, 4), "float32"), "lse2": ((3,), "float32")}
    made = {key: arrays.put(np.zeros(*one)) for key, one in (given | changed).items()}
    with pytest.raises(error, match=text):
        pyflowk.softmax_merge(**made)


def test_lse_may_not_be_an_input(arrays: Any) -> None:
    y1, lse1, y2, lse2 = map(arrays.put, drawn("float32", (3, 4)))
    with pytest.raises(ValueError, match="lse1"):
        pyflowk.softmax_merge(y1, lse1, y2, lse2, lse_out=lse1)
    empty = [arrays.put(np.zeros(shape, np.float32)) for shape in ((0, 4), (0,))] * 2
    y, lse = pyflowk.softmax_merge(*empty)
    assert y.shape == (0, 4) and lse.shape == (0,)
