# SPDX-License-Identifier: Apache-2.0
"""NumPy's and PyTorch's names reach the same functions, and do what their namesakes do."""

from __future__ import annotations

import inspect
import itertools
from typing import Any

import numpy as np
import pytest
from elementwise_cases import BOOL, DTYPES, FLOAT_DTYPES, INTEGER_DTYPES

import pyflowk

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

# The aliases and functions that bear the name of a ufunc of NumPy, except reciprocal: PyTorch's, which is float.
UFUNCS = sorted(name for name in pyflowk.__all__ if isinstance(getattr(np, name, None), np.ufunc))
UFUNCS.remove("reciprocal")
FLOATS = (0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, 7.25, -7.25, 1e30, -1e-30, np.inf, -np.inf, np.nan)
INTEGERS = (0, 1, 2, 3, 7, 8, 31, 32, 63, 64, 100, -1, -2, -3, -7, -8, -31, -32, -63, -64, -128)
NUMPY_DTYPES = tuple(dtype for dtype in DTYPES if type(dtype).__module__ == "numpy.dtypes")


def values_of(dtype: np.dtype) -> np.ndarray:
    if dtype == BOOL:
        return np.array([False, True])
    if dtype in FLOAT_DTYPES:
        return np.array(FLOATS).astype(dtype)
    info = np.iinfo(dtype)
    return np.array([v for v in (*INTEGERS, info.max, info.min) if info.min <= v <= info.max], dtype)


def test_every_alias_is_the_function_that_it_names() -> None:
    assert len(pyflowk._ALIASES) >= 25
    for alias, name in pyflowk._ALIASES.items():
        assert getattr(pyflowk, alias) is getattr(pyflowk, name)
        assert alias in pyflowk.__all__
        assert alias not in pyflowk._MODULE_OF
    assert {"left_shift", "power", "invert", "arctan2", "absolute", "true_divide", "mod"} <= set(pyflowk._ALIASES)
    assert {"subtract", "multiply", "divide", "negative", "isnan", "isinf", "isfinite"} <= set(pyflowk._MODULE_OF)


@pytest.mark.parametrize("name", UFUNCS)
def test_a_namesake_of_numpy_s_computes_the_same(arrays: Any, name: str) -> None:
    ufunc = getattr(np, name)
    tested = 0
    for dtype in NUMPY_DTYPES:
        values = values_of(dtype)
        operands = [values] if ufunc.nin == 1 else [part.copy() for part in np.meshgrid(values, values)]
        if name in ("pow", "power") and dtype.kind == "i":
            operands[1] = np.abs(operands[1])
            operands[1] = np.where(operands[1] < 0, 0, operands[1]).astype(dtype)
        try:
            expected = ufunc(*operands)
            actual = arrays.fetch(getattr(pyflowk, name)(*map(arrays.put, operands)))
        except TypeError:  # a type that one of the two does not take
            continue
        tested += 1
        assert actual.dtype == expected.dtype, (name, dtype)
        if expected.dtype.kind != "f":
            np.testing.assert_array_equal(actual, expected)
            continue
        np.testing.assert_array_equal(np.isnan(actual), np.isnan(expected))
        np.testing.assert_allclose(
            actual.astype(np.float64), expected.astype(np.float64), rtol=4 * float(np.finfo(expected.dtype).eps)
        )
        if name in ("maximum", "minimum"):  # either zero
            continue
        same = np.signbit(actual) == np.signbit(expected)
        assert np.all(same | np.isnan(expected)), (name, dtype, [o[~same][:5] for o in operands])
    assert tested


def test_out_is_a_keyword_of_every_function() -> None:
    functions = [getattr(pyflowk, name) for name in pyflowk._MODULE_OF]
    signatures = [inspect.signature(one) for one in functions if inspect.isfunction(one)]
    outs = [one.parameters[name] for one in signatures for name in ("out", "dx_out") if name in one.parameters]
    assert len(outs) > 90
    assert {parameter.kind for parameter in outs} == {inspect.Parameter.KEYWORD_ONLY}


@pytest.mark.parametrize("name", UFUNCS)
def test_out_of_a_ufunc_s_namesake_takes_the_result(arrays: Any, name: str) -> None:
    ufunc, function = getattr(np, name), getattr(pyflowk, name)
    for dtype in (np.float32, np.int32, BOOL):
        operands = [np.ones(7, dtype)] * ufunc.nin
        try:
            expected = arrays.fetch(function(*map(arrays.put, operands)))
        except TypeError:
            continue
        out = arrays.put(np.zeros_like(expected))
        assert function(*map(arrays.put, operands), out=out) is out
        np.testing.assert_array_equal(arrays.fetch(out), expected)


@pytest.mark.parametrize("dtype", INTEGER_DTYPES, ids=str)
def test_integer_powers_are_exact_modulo_their_bits(arrays: Any, dtype: np.dtype) -> None:
    values = values_of(dtype)
    x, y = (np.array(part, dtype) for part in zip(*itertools.product(values, values)))
    actual = arrays.fetch(pyflowk.pow(arrays.put(x), arrays.put(y)))
    bits = 8 * dtype.itemsize
    for base, exponent, result in zip(x.tolist(), y.tolist(), actual.tolist()):
        below = int(base in (1, -1)) * (base if exponent % 2 else 1)
        expected = below if exponent < 0 else pow(base, exponent, 2**bits)
        assert result % 2**bits == expected % 2**bits, (base, exponent)


def exact_quotient(x: float, y: float) -> int:
    """floor(x / y) of finite numbers, y != 0."""
    (a, b), (c, d) = x.as_integer_ratio(), y.as_integer_ratio()
    return (a * d) // (b * c)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_floor_divide_is_within_two_units_of_the_exact_floor(arrays: Any, dtype: Any) -> None:
    rng = np.random.default_rng(4)
    x = (rng.normal(size=4000) * 2.0 ** rng.integers(-30, 30, 4000)).astype(dtype)
    y = (rng.normal(size=4000) * 2.0 ** rng.integers(-30, 10, 4000)).astype(dtype)
    x[:500] = (y[:500] * rng.integers(-50, 50, 500)).astype(dtype)  # quotients that are integers, or close to one
    quotient = arrays.fetch(pyflowk.floor_divide(arrays.put(x), arrays.put(y))).astype(np.float64)
    rest = arrays.fetch(pyflowk.remainder(arrays.put(x), arrays.put(y))).astype(np.float64)
    digits = np.finfo(dtype).nmant + 1
    for a, b, q, r in zip(x.tolist(), y.tolist(), quotient.tolist(), rest.tolist()):
        exact = exact_quotient(a, b)
        assert abs(int(q) - exact) <= (0 if abs(exact) < 2 ** (digits - 2) else abs(exact) * 2.0 ** (2 - digits))
        (n, d), (m, e) = a.as_integer_ratio(), b.as_integer_ratio()
        remainder = (n * e - exact * m * d) / (d * e)
        assert abs(r - remainder) <= abs(remainder) * 2.0**-digits, (a, b)


def test_clip_has_the_bounds_of_numpy_s(arrays: Any) -> None:
    x = np.linspace(-3, 3, 30, dtype=np.float32)
    for bounds in ({"min": -1, "max": 2}, {"min": 0.5}, {"max": 0}, {"min": 2, "max": -2}):
        np.testing.assert_array_equal(arrays.fetch(pyflowk.clip(arrays.put(x), **bounds)), np.clip(x, **bounds))
    out = arrays.put(np.zeros_like(x))
    assert pyflowk.clip(arrays.put(x), -1, 1, out=out) is out
    np.testing.assert_array_equal(arrays.fetch(out), np.clip(x, -1, 1))


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d.itemsize == 2 and d in FLOAT_DTYPES], ids=str)
def test_every_16_bit_value_is_classified_as_numpy_does(arrays: Any, dtype: np.dtype) -> None:
    x = np.arange(2**16, dtype=np.uint32).astype(np.uint16).view(dtype)
    for name in ("isnan", "isinf", "isfinite", "signbit"):
        actual = arrays.fetch(getattr(pyflowk, name)(arrays.put(x)))
        expected = getattr(np, name)(x)
        unsigned = np.isnan(x) & (name == "signbit")  # the sign of a NaN is any
        np.testing.assert_array_equal(actual | unsigned, expected | unsigned, err_msg=name)
