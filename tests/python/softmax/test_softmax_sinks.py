# SPDX-License-Identifier: Apache-2.0
"""Sinks, softcap and a scale per row of masked_softmax, and their gradients, by pyflowk."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes  # noqa: F401  NumPy's bfloat16
import numpy as np
import pytest
from library_under_test import TEST_LIBRARY
from softmax_calls import skip_large_clusters
from softmax_cases import DTYPES

import pyflowk

RNG = np.random.default_rng(9)
TOLERANCE = {"float64": 1e-12, "float32": 1e-5, "float16": 3e-3, "bfloat16": 2e-2}
COLUMNS = [1, 5, 16, 64, 77, 128, 333, 1000, 4096, 20480]
COLUMNS += [32768, 70001, 300000] if TEST_LIBRARY == "cuda" else []  # of clusters, split rows, and rows read twice
Longdouble = np.longdouble


def wide_of(dtype: str) -> str:
    return "float64" if dtype == "float64" else "float32"


def drawn(dtype: str, shape: tuple[int, ...], size: float = 3, generator: np.random.Generator = RNG) -> np.ndarray:
    return (size * generator.standard_normal(shape)).astype(dtype)


@np.errstate(all="ignore")
def reference(x: np.ndarray, masked: Any = False, **given: Any) -> tuple[np.ndarray, np.ndarray]:
    """y and lse in extended precision."""
    options = {"sinks": None, "row_scale": None, "softcap": 0.0, "scale": 1.0, "bias": None, "log": False, **given}
    z = x.astype(Longdouble) * options["scale"]
    if options["row_scale"] is not None:
        z = z * np.asarray(options["row_scale"], Longdouble)[..., None]
    if options["softcap"]:
        z = options["softcap"] * np.tanh(z / options["softcap"])
    if options["bias"] is not None:
        z = z + options["bias"].astype(Longdouble)
    z = np.where(masked, -np.inf, z)
    sinks = np.asarray(-np.inf if options["sinks"] is None else options["sinks"], Longdouble)
    sinks = np.broadcast_to(sinks, x.shape[:-1])[..., None]
    top = np.maximum(z.max(-1, keepdims=True), sinks)
    top = np.where(top == -np.inf, 0, top)
    total = np.exp(z - top).sum(-1, keepdims=True) + np.exp(sinks - top)
    lse = top + np.log(total)
    y = z - lse if options["log"] else np.exp(z - lse)
    return np.where(total == 0, -np.inf if options["log"] else 0, y), lse[..., 0]


def assert_close(found: np.ndarray, expected: np.ndarray, tolerance: float) -> None:
    """Equal infinities, and close numbers: 0.1 of the tolerance is absolute."""
    found, expected = found.astype(np.float64), expected.astype(np.float64)
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance / 10)


MASKS: dict[str, dict[str, Any]] = {
    "none": {},
    "dense": {"mask": True},
    "bias": {"bias": True},
    "causal": {"causal": True, "window": 9},
    "all": {"mask": True, "bias": True, "lengths": True},
}


def options_of(arrays: Any, x: np.ndarray, kind: str) -> tuple[dict[str, Any], dict[str, Any], np.ndarray]:
    """The options of a call, those of its reference, and which columns are masked."""
    q, k = x.shape[-2:]
    wanted, given, of_reference = MASKS[kind], {}, {}
    masked = np.zeros(x.shape, bool)
    if "mask" in wanted:
        dense = RNG.random((q, k)) < 0.5
        dense[0] = True
        given["mask"], masked = arrays.put(dense), masked | dense
    if "lengths" in wanted:
        lengths = RNG.integers(0, k + 1, x.shape[:1])
        given["lengths"] = arrays.put(lengths)
        masked = masked | (np.arange(k) >= lengths[:, None, None, None])
    if "bias" in wanted:
        bias = drawn(str(x.dtype), (k,), 1)
        given["bias"], of_reference["bias"] = arrays.put(bias), bias
    if "causal" in wanted:
        given |= wanted
        diagonal = np.arange(q)[:, None] + k - q
        masked = masked | (np.arange(k) > diagonal) | (np.arange(k) <= diagonal - wanted["window"])
    return given, of_reference, masked


SETS = [names for count in (1, 2, 3) for names in itertools.combinations(("sinks", "row_scale", "softcap"), count)]


def terms_of(x: np.ndarray, names: tuple[str, ...], size: float = 1) -> dict[str, Any]:
    wide = wide_of(str(x.dtype))
    values = {
        "sinks": drawn(wide, (x.shape[1], 1), size),
        "row_scale": RNG.uniform(0.5, 1.5, (x.shape[0], 1, x.shape[2])).astype(wide),
        "softcap": 5.0,
    }
    return {name: values[name] for name in names}


def put(arrays: Any, terms: dict[str, Any]) -> dict[str, Any]:
    return {name: arrays.put(value) if isinstance(value, np.ndarray) else value for name, value in terms.items()}


@pytest.mark.parametrize("kind", MASKS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("columns", COLUMNS)
def test_results(arrays: Any, dtype: str, columns: int, kind: str) -> None:
    x = drawn(dtype, (2, 3, 4, columns) if columns < 5000 else (2, 1, 1, columns))
    for names, log in itertools.product(SETS, (False, True)):
        if columns > 1000 and log:
            continue
        terms = terms_of(x, names, 60 if log or columns == 64 else 1)
        given, of_reference, masked = options_of(arrays, x, kind)
        options = {**given, **put(arrays, terms), "log": log, "scale": -0.7}
        skip_large_clusters("masked_softmax", x=arrays.put(x), return_lse=True, **options)
        y, lse = pyflowk.masked_softmax(arrays.put(x), return_lse=True, **options)
        expected, expected_lse = reference(x, masked, **terms, **of_reference, log=log, scale=-0.7)
        assert_close(arrays.fetch(y), expected, TOLERANCE[dtype] * (10 if log else 1))
        assert_close(arrays.fetch(lse), expected_lse, 1e-4 if dtype != "float64" else 1e-12)
        alone = pyflowk.masked_softmax(arrays.put(x), **options)
        assert_close(arrays.fetch(alone), expected, TOLERANCE[dtype] * (10 if log else 1))


@pytest.mark.parametrize("columns", [5, 77, 1000])
@pytest.mark.parametrize("dtype", DTYPES)
def test_both_thread_orders(arrays: Any, thread_order: str, dtype: str, columns: int) -> None:
    x = drawn(dtype, (2, 3, 4, columns))
    terms = terms_of(x, SETS[-1])
    y, lse = pyflowk.masked_softmax(arrays.put(x), return_lse=True, **put(arrays, terms))
    assert_close(arrays.fetch(y), reference(x, **terms)[0], TOLERANCE[dtype])
    dy = drawn(dtype, x.shape)
    of_call = {**put(arrays, terms), "scores": arrays.put(x), "lse": lse, "return_dsinks": True}
    dx, dsinks = pyflowk.masked_softmax_backward(arrays.put(dy), y, **of_call)
    check_gradients(arrays, x, dy, y, lse, None, terms, {}, dx, dsinks)


def check_gradients(
    arrays: Any,
    x: np.ndarray,
    dy: np.ndarray,
    y: Any,
    lse: Any,
    dlse: np.ndarray | None,
    terms: dict[str, Any],
    options: dict[str, Any],
    dx: Any,
    dsinks: Any,
) -> None:
    """By the formulas of flowk.h, in extended precision."""
    y, dy_, log = arrays.fetch(y).astype(Longdouble), dy.astype(Longdouble), options.get("log", False)
    factor = Longdouble(options.get("scale", 1.0))
    if "row_scale" in terms:
        factor = factor * terms["row_scale"][..., None].astype(Longdouble)
    slope = factor
    if "softcap" in terms:
        slope = factor * (1 - np.tanh(factor * x.astype(Longdouble) / terms["softcap"]) ** 2)
    unmasked = y != -np.inf
    p = np.exp(np.where(unmasked, y, -np.inf)) if log else y
    total = (np.where(unmasked, dy_, 0) if log else y * dy_).sum(-1, keepdims=True)
    if dlse is not None:
        total = total - dlse[..., None]
    expected = slope * (np.where(unmasked, dy_ - p * total, 0) if log else y * (dy_ - total))
    tolerance = TOLERANCE[str(x.dtype)]
    found = arrays.fetch(dx).astype(np.float64)
    np.testing.assert_allclose(found, expected.astype(np.float64), rtol=2 * tolerance, atol=2 * tolerance)
    if dsinks is not None:
        expected = -np.exp(terms["sinks"] - arrays.fetch(lse).astype(Longdouble)) * total[..., 0]
        np.testing.assert_allclose(arrays.fetch(dsinks), expected.astype(np.float64), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("columns", COLUMNS)
def test_gradients(arrays: Any, dtype: str, columns: int, log: bool) -> None:
    x = drawn(dtype, (2, 3, 4, columns) if columns < 5000 else (2, 1, 1, columns))
    dy = drawn(dtype, x.shape)
    for names, mask, has_dlse in itertools.product(SETS, ({}, {"window": max(columns // 2, 1)}), (False, True)):
        terms, options = terms_of(x, names), {"log": log, "scale": -0.7}
        y, lse = pyflowk.masked_softmax(arrays.put(x), return_lse=True, **put(arrays, terms), **mask, **options)
        dlse = drawn(wide_of(dtype), x.shape[:-1]) if has_dlse else None
        of_call = {**put(arrays, terms), **mask, **options, "return_dsinks": "sinks" in names}
        of_call |= {"scores": arrays.put(x)} if "softcap" in names else {}
        of_call |= {"lse": lse} if "sinks" in names else {}
        of_call |= {} if dlse is None else {"dlse": arrays.put(dlse)}
        skip_large_clusters("masked_softmax_backward", dy=arrays.put(dy), y=y, **of_call)
        results = pyflowk.masked_softmax_backward(arrays.put(dy), y, **of_call)
        dx, dsinks = results if "sinks" in names else (results, None)
        check_gradients(arrays, x, dy, y, lse, dlse, terms, options, dx, dsinks)


def test_the_same_call_gives_the_same_bits(arrays: Any) -> None:
    for dtype, columns in itertools.product(("float16", "float32"), (77, 20480)):
        x, dy = drawn(dtype, (2, 3, 2, columns)), drawn(dtype, (2, 3, 2, columns))
        terms, scores = put(arrays, terms_of(x, SETS[-1])), arrays.put(x)
        y, lse = pyflowk.masked_softmax(scores, return_lse=True, **terms)
        outs = {"out": arrays.put(dy), "dsinks_out": arrays.put(np.empty((2, 3, 2), np.float32))}
        gradient, found = arrays.put(dy), set()
        for _ in range(3):
            results = pyflowk.masked_softmax_backward(
                gradient, y, scores=scores, lse=lse, return_dsinks=True, **terms, **outs
            )
            found.add(tuple(arrays.fetch(one).tobytes() for one in results))
        assert len(found) == 1


def test_gradients_by_finite_differences(arrays: Any) -> None:
    x, step = drawn("float64", (2, 3, 7), 1), 1e-6
    sinks, weights = drawn("float64", (3,), 1), drawn("float64", x.shape, 1)
    options: dict[str, Any] = {"softcap": 2.0, "row_scale": np.array([0.8, 1.1, 1.3]), "scale": 0.9}

    def loss(x: np.ndarray, sinks: np.ndarray) -> float:
        y = pyflowk.masked_softmax(arrays.put(x), sinks=arrays.put(sinks), **put(arrays, options))
        return float((arrays.fetch(y) * weights).sum())

    of_call = {**put(arrays, options), "sinks": arrays.put(sinks)}
    y, lse = pyflowk.masked_softmax(arrays.put(x), return_lse=True, **of_call)
    gradients = {"lse": lse, "scores": arrays.put(x), "return_dsinks": True}
    dx, dsinks = pyflowk.masked_softmax_backward(arrays.put(weights), y, **of_call, **gradients)
    for i in np.ndindex(x.shape):
        moved = np.zeros_like(x)
        moved[i] = step
        slope = (loss(x + moved, sinks) - loss(x - moved, sinks)) / (2 * step)
        assert abs(arrays.fetch(dx)[i] - slope) < 1e-8
    for i in range(3):
        moved = step * (np.arange(3) == i)
        slope = (loss(x, sinks + moved) - loss(x, sinks - moved)) / (2 * step)
        assert abs(arrays.fetch(dsinks)[:, i].sum() - slope) < 1e-8


@pytest.mark.parametrize("columns", [1, 7, 64, 512, 3000])
@pytest.mark.parametrize("dtype", DTYPES)
def test_special_rows(arrays: Any, dtype: str, columns: int) -> None:
    """A row without a column, of -infinity, with a NaN, with infinity; sinks of -infinity, infinity and NaN."""
    x = drawn(dtype, (8, columns))
    x[1], x[2, -1], x[3, -1] = -np.inf, np.nan, np.inf
    sinks = np.array([2.5, -1, 0, 0, 700, -np.inf, np.inf, np.nan], wide_of(dtype))
    lengths = arrays.put(np.array([0] + [columns] * 7))
    for options in ({}, {"bias": arrays.put(np.zeros(columns, dtype))}, {"log": True}):
        call = {"lengths": lengths, "sinks": arrays.put(sinks), "return_lse": True, **options}
        y, lse = (arrays.fetch(one).astype(np.float64) for one in pyflowk.masked_softmax(arrays.put(x), **call))
        nothing = -np.inf if "log" in options else 0
        assert (y[:2] == nothing).all() and (lse[:2] == sinks[:2]).all()
        assert np.isnan(y[2:4]).all() and np.isnan(lse[2:4]).all()
        assert lse[4] == 700 and (y[4] < (-600 if "log" in options else 1e-37)).all()
        plain = pyflowk.masked_softmax(arrays.put(x[5:6]), log="log" in options)
        assert_close(y[5:6], arrays.fetch(plain), TOLERANCE[dtype])
        assert lse[6] == np.inf and np.isnan(lse[7]) and np.isnan(y[7]).all()


def test_an_infinite_score_under_a_softcap_is_the_softcap(arrays: Any) -> None:
    for dtype in DTYPES:
        x = np.array([[np.inf, -np.inf, 0, np.nan]], dtype)
        mask = arrays.put(np.array([False, False, False, True]))
        y = arrays.fetch(pyflowk.masked_softmax(arrays.put(x), mask, softcap=2.0)).astype(np.float64)
        expected = np.exp([2.0, -2.0, 0.0, -np.inf])
        np.testing.assert_allclose(y[0], expected / expected.sum(), rtol=TOLERANCE[dtype])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("columns", [24, 128, 333, 1999, 2048, 9001])
def test_a_scale_per_row_of_any_size(arrays: Any, dtype: str, columns: int) -> None:
    sizes = np.array([0, 1e-40, 1e-30, 1e-6, 1, 300, 5000, 1e6, 1e11], wide_of(dtype))
    scales = np.concatenate([sizes, -sizes])
    # The same numbers in every order of the tests: where scores are large, an error of their last bit is one of y.
    generator = np.random.default_rng(columns)
    for size, log in itertools.product((3, 0.01, 1000), (False, True)):
        x = drawn(dtype, (scales.size, columns), size, generator)
        y, lse = pyflowk.masked_softmax(arrays.put(x), row_scale=arrays.put(scales), log=log, return_lse=True)
        expected, expected_lse = reference(x, row_scale=scales, log=log)
        tolerance = TOLERANCE[dtype] * (10 if log else 1)
        np.testing.assert_allclose(arrays.fetch(lse), expected_lse.astype(np.float64), 1e-4, 1e-5)
        with np.errstate(over="ignore"):
            expected = expected.astype(np.float64).astype(dtype).astype(np.float64)
        assert_close(arrays.fetch(y), expected, tolerance)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("columns", [5, 77, 1000, 4096])
def test_a_scale_of_0_under_a_softcap_gives_equal_results(arrays: Any, dtype: str, columns: int) -> None:
    x = np.random.default_rng(columns).normal(size=(3, columns)).astype(dtype)
    zero = np.zeros(3, np.float64 if dtype == "float64" else np.float32)
    for options in ({"scale": 0.0}, {"row_scale": arrays.put(zero)}):
        y = arrays.fetch(pyflowk.masked_softmax(arrays.put(x), softcap=3.0, **options)).astype(np.float64)
        np.testing.assert_allclose(y, 1 / columns, rtol=2e-3 if dtype == "float16" else 1e-6)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("columns", [3, 24, 200, 1001])
def test_an_infinite_x_with_a_scale_of_0_and_scores_is_nan(arrays: Any, dtype: str, columns: int) -> None:
    numbers = arrays.put(np.full(1, 0.5, np.float64 if dtype == "float64" else np.float32))
    for first, infinity, log in itertools.product((0, 1), (np.inf, -np.inf), (False, True)):
        for options in ({"row_scale": numbers}, {"softcap": 3.0}, {"causal": True, "row_scale": numbers}):
            flat = np.random.default_rng(columns).normal(size=4 * columns + 1).astype(dtype)
            flat[first + 2 * columns + columns // 2 - 1] = infinity
            x = arrays.put(flat)[first : first + 4 * columns].reshape(4, columns)
            y = arrays.fetch(pyflowk.masked_softmax(x, scale=0.0, log=log, out=x, **options)).astype(np.float64)
            unmasked = np.tri(4, columns, columns - 4 if "causal" in options else columns, bool)
            is_row_of_it = (np.arange(4) == 2)[:, None]
            assert (np.isnan(y) == (unmasked & is_row_of_it)).all(), (first, infinity, log, options)


def test_no_column_and_no_row() -> None:
    x = np.zeros((2, 3, 0), np.float32)
    sinks = np.zeros(3, np.float32)
    assert pyflowk.masked_softmax(x, sinks=sinks, softcap=2.0).shape == x.shape
    empty = np.zeros((0, 3, 5), np.float32)
    y, lse = pyflowk.masked_softmax(empty, sinks=sinks, return_lse=True)
    dx, dsinks = pyflowk.masked_softmax_backward(y, y, sinks=sinks, lse=lse, return_dsinks=True)
    assert dx.shape == (0, 3, 5) and dsinks.shape == (0, 3)


def test_another_scale_per_row(arrays: Any) -> None:
    x = arrays.put(drawn("float32", (3, 40)))
    for _ in range(2):
        for temperature in (0.5, 2.0):
            row_scale = arrays.put(np.full(1, temperature, np.float32))
            y = pyflowk.masked_softmax(x, row_scale=row_scale, scale=0.3)
            expected = pyflowk.masked_softmax(x, scale=0.3 * temperature)
            np.testing.assert_allclose(arrays.fetch(y), arrays.fetch(expected), rtol=1e-5)


def test_a_later_call_reads_the_same_memory_again() -> None:
    x, temperature, out = drawn("float32", (3, 40)), np.ones((), np.float32), np.empty((3, 40), np.float32)
    for value in (1.0, 0.25, 3.0):
        temperature[...] = value
        pyflowk.masked_softmax(x, row_scale=temperature, out=out)
        np.testing.assert_allclose(out, pyflowk.masked_softmax(x, scale=value), rtol=1e-5)


def test_strides_and_orders() -> None:
    x = drawn("float32", (4, 3, 50))
    sinks, row_scale = drawn("float32", (3, 4), 1).T, np.broadcast_to(np.float32(0.5), (4, 1))
    out, scores = np.empty((3, 4, 50), np.float32).swapaxes(0, 1), np.ascontiguousarray(x.swapaxes(0, 1)).swapaxes(0, 1)
    options = {"sinks": sinks[::-1], "row_scale": row_scale, "softcap": 3.0}
    y, lse = pyflowk.masked_softmax(scores, out=out, return_lse=True, **options)
    expected, expected_lse = reference(x, **options)
    assert_close(y, expected, 1e-5)
    assert_close(lse, expected_lse, 1e-5)
    dy = drawn("float32", x.shape)
    of_call = {**options, "lse": lse, "return_dsinks": True}
    plain = pyflowk.masked_softmax_backward(dy, np.ascontiguousarray(y), scores=x, **of_call)
    strided = np.empty((4, 3, 100), np.float32)[..., ::2]
    strided[...] = x
    others = pyflowk.masked_softmax_backward(np.asfortranarray(dy), y, scores=strided, **of_call)
    for one, other in zip(plain, others):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_l2_tiles(arrays: Any) -> None:
    x, mask = drawn("float16", (2, 3, 1100, 8192)), np.zeros((1100, 8192), bool)
    mask[:, 7] = True
    sinks, row_scale = drawn("float32", (2, 3, 1)), RNG.uniform(0.5, 1, (1100,)).astype(np.float32)
    y = pyflowk.masked_softmax(x, mask, sinks=sinks, row_scale=row_scale)
    assert "L2 tiles" in pyflowk.explain(pyflowk.masked_softmax, x, mask, sinks=sinks, row_scale=row_scale)
    some = (slice(None), slice(None), slice(None, None, 300))
    expected, _ = reference(x[some], mask[::300], sinks=sinks, row_scale=row_scale[::300])
    assert_close(y[some], expected, 3e-3)


def test_explain_names_them() -> None:
    x, sinks = np.zeros((2, 3, 512), np.float16), np.zeros(3, np.float32)
    text = pyflowk.explain(pyflowk.masked_softmax, x, sinks=sinks, row_scale=sinks, softcap=2.0)
    assert "; scale per row; softcap; sinks" in text and "bias" not in text
    options = {"sinks": sinks, "lse": np.zeros((2, 3), np.float32), "return_dsinks": True}
    assert "gradient of the sinks" in pyflowk.explain(pyflowk.masked_softmax_backward, x, x, **options)


F32 = np.zeros(3, np.float32)
BAD: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "shape": ({"sinks": np.zeros(5, np.float32)}, ValueError, r"sinks has shape \(5,\), must broadcast to \(2, 4, 3\)"),
    "heads": ({"sinks": np.zeros(4, np.float32)}, ValueError, r"pass sinks\[:, None\]"),
    "dtype": ({"sinks": np.zeros(3)}, TypeError, "sinks has dtype float64, must be float32"),
    "scale's shape": ({"row_scale": np.zeros((3, 1), np.float32)}, ValueError, "row_scale has shape"),
    "scale's dtype": ({"row_scale": np.zeros(3, np.float16)}, TypeError, "row_scale has dtype float16"),
    "negative": ({"softcap": -1.0}, ValueError, "softcap = -1.0, must be finite and >= 0"),
    "nan": ({"softcap": float("nan")}, ValueError, "softcap = nan"),
    "too small": ({"softcap": 1e-300}, ValueError, r"softcap = 1e-300, must be 0 or in 2\^-126"),
    "no number": ({"softcap": "2"}, TypeError, "softcap is '2'"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_arguments(name: str) -> None:
    options, kind, text = BAD[name]
    out = np.full((2, 4, 3, 5), 7, np.float32)
    for _ in range(2):
        with pytest.raises(kind, match=text):
            pyflowk.masked_softmax(np.zeros((2, 4, 3, 5), np.float32), out=out, **options)
    assert (out == 7).all()


BAD_GRADIENTS: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "no scores": ({"softcap": 2.0}, TypeError, "scores is missing: softcap needs it"),
    "no sinks": ({"return_dsinks": True, "lse": F32}, TypeError, "sinks is missing: return_dsinks needs it"),
    "no lse": ({"return_dsinks": True, "sinks": F32}, TypeError, "lse is missing"),
    "scores' dtype": ({"softcap": 2.0, "scores": np.zeros((3, 5))}, TypeError, "scores has dtype float64"),
    "scores' shape": ({"softcap": 2.0, "scores": F32}, ValueError, "scores has shape"),
    "dsinks_out alone": ({"dsinks_out": F32}, TypeError, "dsinks_out is given without return_dsinks"),
    "overlap": (
        {"return_dsinks": True, "sinks": F32, "lse": F32[::1], "dsinks_out": F32},
        ValueError,
        "(sinks|lse).*dsinks_out|dsinks_out.*(sinks|lse)",
    ),
}


@pytest.mark.parametrize("name", BAD_GRADIENTS)
def test_bad_gradients(name: str) -> None:
    options, kind, text = BAD_GRADIENTS[name]
    x = np.zeros((3, 5), np.float32)
    with pytest.raises(kind, match=text):
        pyflowk.masked_softmax_backward(x, x, **options)
