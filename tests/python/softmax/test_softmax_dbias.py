# SPDX-License-Identifier: Apache-2.0
"""The gradient of a bias that rows share."""

from __future__ import annotations

import functools
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from softmax_calls import Placed, place, result_of
from softmax_cases import DTYPES

import pyflowk

RNG = np.random.default_rng(11)
Longdouble = np.longdouble
INFINITY = np.inf


def wide_of(dtype: str) -> str:
    return "float64" if dtype == "float64" else "float32"


def gradients(dtype: str, shape: tuple[int, ...], log: bool = False, masked: Any = False) -> list[np.ndarray]:
    """dy and y; y is 0, or -infinity, where `masked`."""
    z = np.where(masked, -np.inf, 2 * RNG.standard_normal(shape))
    top = z.max(-1, keepdims=True, initial=-np.inf)
    e = np.exp(z - np.where(top == -np.inf, 0, top))
    y = e / np.maximum(e.sum(-1, keepdims=True), 1e-300)
    with np.errstate(divide="ignore"):
        y = np.log(y) if log else y
    return [RNG.standard_normal(shape).astype(dtype), y.astype(dtype)]


@np.errstate(all="ignore")
def reference(
    dy: np.ndarray, y: np.ndarray, bias_shape: tuple[int, ...], log: bool = False, dlse: Any = None, keep: Any = True
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """dz and dbias in extended precision, and the sum of |dz|, which errors are relative to."""
    dy, y = dy.astype(Longdouble), y.astype(Longdouble)
    keep = np.broadcast_to(keep, y.shape) & ((y != -np.inf) if log else True)
    total = np.where(keep, dy if log else y * dy, 0).sum(-1, keepdims=True)
    total = total - (0 if dlse is None else dlse.astype(Longdouble)[..., None])
    dz = np.where(keep, dy - np.exp(y) * total if log else y * (dy - total), 0)
    size = np.where(keep, np.abs(dy) + np.abs(total) if log else y * (np.abs(dy) + np.abs(total)), 0)
    axes = tuple(range(y.ndim - len(bias_shape)))
    axes += tuple(d for d in range(len(axes), y.ndim) if bias_shape[d - len(axes)] != y.shape[d])
    return dz, *(one.sum(axes).reshape(bias_shape) for one in (dz, size))


def assert_right(found: np.ndarray, want: np.ndarray, size: np.ndarray, computed: str) -> None:
    """Rounded once from a value whose error is a few units of `computed` per term."""
    eps = float(ml_dtypes.finfo(found.dtype).eps)
    bound = eps * np.abs(want) + 60 * float(np.finfo(computed).eps) * (size + 1e-3) + (found.dtype == "f2") * 2.0**-25
    assert (np.abs(found.astype(Longdouble) - want) <= bound).all()


SHAPES = {
    "one row": ((5,), (5,)),
    "rows without a batch": ((7, 33), (33,)),
    "heads": ((3, 2, 4, 40), (2, 1, 40)),
    "all but the batch": ((9, 2, 3, 24), (2, 3, 24)),
    "a batch and columns": ((2, 3, 5, 17), (2, 1, 1, 17)),
    "the middle": ((2, 70, 3, 8), (2, 1, 3, 8)),
    "chunks": ((150, 3, 65), (3, 65)),
    "the whole shape": ((2, 3, 16), (2, 3, 16)),
    "one column": ((6, 4, 1), (4, 1)),
    "rows that start at different elements of a vector": ((18, 3, 131), (3, 131)),
    "a block per row": ((3, 2, 2100), (2, 2100)),
    "a block per row, at different elements": ((5, 3, 2051), (3, 2051)),
    "vectors held and loaded twice": ((2, 2, 17000), (1, 2, 17000)),
}


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("log", [False, True])
def test_results(arrays: Any, thread_order: str, name: str, dtype: str, log: bool) -> None:
    shape, bias_shape = SHAPES[name]
    keep = RNG.random(shape) < 0.8  # as a dense mask of the forward call leaves them
    dy, y = gradients(dtype, shape, log, ~keep)
    dlse = RNG.standard_normal(shape[:-1]).astype(wide_of(dtype))
    for bias_dtype in dict.fromkeys((dtype, wide_of(dtype))):
        bias = arrays.put(np.zeros(bias_shape, bias_dtype))
        given = [arrays.put(one) for one in (dy, y)]
        for options in ({}, {"dlse": arrays.put(dlse)}):
            dx, dbias = pyflowk.masked_softmax_backward_dbias(*given, bias, log=log, scale=0.25, **options)
            dz, want, size = reference(dy, y, bias_shape, log, dlse if options else None)
            found = arrays.fetch(dbias)
            assert found.dtype == bias_dtype and found.shape == bias_shape
            assert_right(found, want, size, wide_of(dtype))
            assert_right(arrays.fetch(dx), dz / 4, np.abs(dz) + 1, wide_of(dtype))
            again = pyflowk.masked_softmax_backward_dbias(*given, bias, log=log, need_dx=False, **options)
            assert again[0] is None and np.array_equal(arrays.fetch(again[1]), found)


MASKS: dict[str, dict[str, Any]] = {
    "lengths": {"lengths": np.array([9, 0, 40, 23])},
    "lengths from the right": {"lengths": np.array([[9], [0], [31], [23]]), "lengths_from_right": True},
    "causal": {"causal": True, "causal_offset": 3},
    "window": {"window": 4},
    "all": {"lengths": np.array([20, 3, 40, 0]), "causal": True, "window": 7, "causal_offset": -2},
}


@pytest.mark.parametrize("columns", [24, 31])
@pytest.mark.parametrize("name", MASKS)
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_columns_that_are_masked_are_not_read(
    arrays: Any, thread_order: str, name: str, dtype: str, columns: int
) -> None:
    shape, options = (4, 3, 5, columns), MASKS[name]
    kept = pyflowk.masked_softmax(np.zeros(shape), **options) != 0
    dy, y = gradients(dtype, shape, masked=~kept)
    dz, want, size = reference(dy, y, (3, 1, columns), keep=kept)
    dy[~kept] = y[~kept] = np.nan
    put = {key: arrays.put(one) if isinstance(one, np.ndarray) else one for key, one in options.items()}
    bias = arrays.put(np.zeros((3, 1, columns), dtype))
    dx, dbias = pyflowk.masked_softmax_backward_dbias(arrays.put(dy), arrays.put(y), bias, **put)
    assert_right(arrays.fetch(dbias), want, size, "float32")
    assert_right(arrays.fetch(dx), dz, np.abs(dz) + 1, "float32")
    assert (arrays.fetch(dx)[~kept] == 0).all()


def test_a_nan_stays_in_its_row_and_its_columns(arrays: Any) -> None:
    for columns in (8, 11):
        dy, y = gradients("float32", (3, 2, columns))
        dy[1, 0, 2], y[1, 0, 5] = np.nan, 0
        lengths = np.array([columns, 6, columns])
        given = [arrays.put(one) for one in (dy, y, np.zeros((2, columns), np.float32))]
        dx, dbias = map(arrays.fetch, pyflowk.masked_softmax_backward_dbias(*given, lengths=arrays.put(lengths)))
        assert np.isnan(dx[1, 0, :6]).all() and np.isfinite(dx[[0, 2]]).all() and (dx[1, :, 6:] == 0).all()
        assert np.isnan(dbias[0, :6]).all() and np.isfinite(dbias[0, 6:]).all() and np.isfinite(dbias[1]).all()
        # In the logarithm a masked column adds nothing, even beside an infinite sum.
        y[1, 0], dy[1, 0, 2] = -INFINITY, INFINITY
        dx, dbias = pyflowk.masked_softmax_backward_dbias(arrays.put(dy), arrays.put(y), given[2], log=True)
        assert (arrays.fetch(dx)[1, 0] == 0).all() and np.isfinite(arrays.fetch(dbias)).all()


@pytest.mark.parametrize("columns", [40, 37])
@pytest.mark.parametrize("dtype", DTYPES)
def test_batch_invariant_bits_depend_on_no_address_stride_or_batch(arrays: Any, dtype: str, columns: int) -> None:
    shape = (12, 2, 3, columns)
    values = gradients(dtype, shape)
    results = []
    for lead, padded in ((0, False), (1, False), (3, True)):
        dy, y = (place(arrays, one, shape, dtype, lead, padded) for one in values)
        dx = place(arrays, None, shape, dtype, lead + 1, padded)
        dbias = place(arrays, None, (2, 1, columns), dtype, lead)
        for _ in range(2):
            found = pyflowk.masked_softmax_backward_dbias(
                *(dy.array, y.array, arrays.put(np.zeros((2, 1, columns), dtype))),
                batch_invariant=True,
                dx_out=dx.array,
                dbias_out=dbias.array,
            )
            assert found[0] is dx.array and found[1] is dbias.array
            results.append([result_of(arrays, one).tobytes() for one in (dx, dbias)])
    assert all(one == results[0] for one in results)
    # A row of dx has the same bits in a smaller batch.
    one, other = (arrays.put(each[5:6].copy()) for each in values)
    bias = arrays.put(np.zeros(columns, dtype))
    dx = arrays.fetch(pyflowk.masked_softmax_backward_dbias(one, other, bias, batch_invariant=True)[0])
    whole = np.frombuffer(results[0][0], dtype).reshape(shape)
    assert dx.tobytes() == whole[5:6].tobytes()


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_other_layouts(dtype: str) -> None:
    shape = (4, 6, 33)
    dy, y = gradients(dtype, shape)
    bias = np.zeros((6, 33), dtype)
    gradients_of = functools.partial(pyflowk.masked_softmax_backward_dbias, batch_invariant=True)
    dx, dbias = gradients_of(dy, y, bias)
    layouts = {
        "transposed": lambda a: np.ascontiguousarray(a.swapaxes(0, 1)).swapaxes(0, 1),
        "flipped": lambda a: np.ascontiguousarray(a[::-1])[::-1],
        "columns apart": lambda a: np.ascontiguousarray(a.swapaxes(1, 2)).swapaxes(1, 2),
    }
    for name, layout in layouts.items():
        out = np.zeros_like(layout(dy))
        found = gradients_of(layout(dy), layout(y), bias, dx_out=out)
        assert np.array_equal(out, dx) and np.array_equal(found[1], dbias), name
    for taken in (0, 1):  # dx is dy or y
        given = [dy.copy(), y.copy()]
        found = gradients_of(*given, bias, dx_out=given[taken])
        assert found[0] is given[taken] and np.array_equal(given[taken], dx) and np.array_equal(found[1], dbias)
    repeated = [np.broadcast_to(one[:1], shape) for one in (dy, y)]
    found = gradients_of(*repeated, bias, need_dx=False)[1]
    np.testing.assert_allclose(found.astype("f8"), 4 * dx[0].astype("f8"), rtol=1e-2, atol=1e-3)


def test_dtypes_of_dx_and_bias() -> None:
    for of_y, of_x, of_bias in (("float32", "float16", "float16"), ("float16", "float32", "float32")):
        dy, y = gradients(of_y, (5, 4, 40))
        dx, dbias = pyflowk.masked_softmax_backward_dbias(dy, y, np.zeros((4, 40), of_bias), dtype=of_x)
        dz, want, size = reference(dy, y, (4, 40))
        assert dx.dtype == of_x and dbias.dtype == of_bias
        assert_right(dx, dz, np.abs(dz) + 1, "float32")
        assert_right(dbias, want, size, "float32")


def test_a_difference_quotient() -> None:
    x, bias, dy = (RNG.standard_normal(shape) for shape in ((5, 3, 9), (3, 9), (5, 3, 9)))
    dlse = RNG.standard_normal((5, 3))

    def value(b: np.ndarray) -> float:
        y, lse = pyflowk.masked_softmax(x, bias=b, causal=True, causal_offset=5, return_lse=True, scale=0.5)
        return float((y * dy).sum() + (lse * dlse).sum())

    y = pyflowk.masked_softmax(x, bias=bias, causal=True, causal_offset=5, scale=0.5)
    dbias = pyflowk.masked_softmax_backward_dbias(dy, y, bias, dlse=dlse, causal=True, causal_offset=5, scale=0.5)[1]
    for at in np.ndindex(bias.shape):
        step = np.zeros_like(bias)
        step[at] = 1e-6
        assert abs((value(bias + step) - value(bias - step)) / 2e-6 - dbias[at]) < 1e-8


def test_sizes_of_zero() -> None:
    for shape, bias_shape in (((0, 3, 4), (3, 4)), ((2, 0, 4), (1, 4)), ((0, 5, 2, 9), (2, 9))):
        empty, out = np.zeros(shape, np.float16), np.full(bias_shape, 7, np.float16)
        dx, dbias = pyflowk.masked_softmax_backward_dbias(empty, empty, np.zeros(bias_shape, np.float16), dbias_out=out)
        assert dx.shape == shape and dbias is out and (out == 0).all()
        assert pyflowk.masked_softmax_backward_dbias_workspace_bytes(empty, out) == 0
        assert "zeros" in pyflowk.explain(pyflowk.masked_softmax_backward_dbias, empty, empty, out)
    for shape, bias_shape in (((3, 0, 4), (0, 4)), ((3, 2, 0), (2, 0)), ((0, 0, 4), (1, 0, 4))):
        empty = np.zeros(shape, np.float32)
        dbias = pyflowk.masked_softmax_backward_dbias(empty, empty, np.zeros(bias_shape, np.float32))[1]
        assert dbias.shape == bias_shape


def test_a_workspace_of_the_caller(arrays: Any) -> None:
    dy, y = gradients("float32", (3000, 20))
    bias = arrays.put(np.zeros(20, np.float32))
    given = [arrays.put(dy), arrays.put(y)]
    num_bytes = pyflowk.masked_softmax_backward_dbias_workspace_bytes(given[1], bias)
    assert num_bytes > 0
    expected = arrays.fetch(pyflowk.masked_softmax_backward_dbias(*given, bias)[1])
    workspace: Placed = place(arrays, np.zeros(num_bytes, np.uint8), (num_bytes,), np.uint8)
    found = pyflowk.masked_softmax_backward_dbias(*given, bias, workspace=workspace.array)[1]
    assert np.array_equal(arrays.fetch(found), expected)
    result_of(arrays, workspace)  # nothing beside it was written
    with pytest.raises(ValueError, match=f"workspace.* = {num_bytes - 16}, must be >= {num_bytes}"):
        pyflowk.masked_softmax_backward_dbias(*given, bias, workspace=workspace.array[:-16])


BAD_PYTHON: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "the bias's shape": ({"bias": np.zeros((3, 5), "f4")}, ValueError, r"bias has shape \(3, 5\), must broadcast"),
    "a bias per row": ({"bias": np.zeros((2, 1), "f4")}, ValueError, r"bias has shape \(2, 1\), must have 5 as"),
    "the bias's dtype": ({"bias": np.zeros(5, "i4")}, TypeError, "bias has dtype int32"),
    "y's shape": ({"y": np.zeros((2, 4), "f4")}, ValueError, r"y has shape \(2, 4\), must be \(2, 5\) as dy"),
    "dx_out without dx": ({"need_dx": False, "dx_out": np.zeros((2, 5), "f4")}, ValueError, "dx_out is given"),
    "need_dx": ({"need_dx": 1}, TypeError, "need_dx = 1, must be True or False"),
    "dbias_out's shape": ({"dbias_out": np.zeros(4, "f4")}, ValueError, r"dbias_out has shape \(4,\), must be \(5,\)"),
    "dbias_out's dtype": ({"dbias_out": np.zeros(5, "f8")}, TypeError, "dbias_out has dtype float64"),
    "dbias_out's strides": ({"dbias_out": np.zeros(10, "f4")[::2]}, ValueError, "dbias_out has strides"),
    "workspace": ({"workspace": np.zeros(9, object)}, TypeError, "workspace has dtype object"),
    "scale": ({"scale": float("nan")}, ValueError, "scale = nan, must be finite"),
}


@pytest.mark.parametrize("name", BAD_PYTHON)
def test_bad_arguments(name: str) -> None:
    changes, kind, text = BAD_PYTHON[name]
    given = {"dy": np.zeros((2, 5), "f4"), "y": np.zeros((2, 5), "f4"), "bias": np.zeros(5, "f4"), **changes}
    for _ in range(2):
        with pytest.raises(kind, match=text):
            pyflowk.masked_softmax_backward_dbias(**given)
