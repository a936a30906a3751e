# SPDX-License-Identifier: Apache-2.0
"""Values at the edges of the formulas: comparisons of int64 with uint64, cancellation, overflow, denormal results."""

from __future__ import annotations

import itertools
from ctypes import c_int64
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from elementwise_cases import rounded, spacing

import pyflowk
from pyflowk._native.abi import DType, Status
from pyflowk._native.operations import BinaryOp

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
NARROW = (np.dtype(np.float16), BFLOAT16)
WIDE = (np.dtype(np.float32), np.dtype(np.float64))


def ulps(actual: np.ndarray, exact: np.ndarray) -> np.ndarray:
    """The distance of results from the exact values, which are longdouble, in units of the correctly rounded one."""
    correct = rounded(exact, actual.dtype).astype(np.float64)
    same = (actual.astype(np.float64) == correct) | (np.isnan(actual.astype(np.float64)) & np.isnan(correct))
    unit = spacing(np.where(np.isfinite(correct), correct, 1.0), actual.dtype)
    return np.where(same, 0.0, np.abs(actual.astype(np.float64) - correct) / unit)


def silu(x: Any) -> Any:
    wide = np.asarray(x).astype(np.longdouble)
    return wide / (1 + np.exp(-wide))


def gelu_tanh(x: Any) -> Any:
    wide = np.asarray(x).astype(np.longdouble)
    return wide / (1 + np.exp(-2 * np.sqrt(2 / np.longdouble(np.pi)) * (wide + np.longdouble("0.044715") * wide**3)))


# ---- int64 with uint64 ----------------------------------------------------------------------------------------------

SIGNED = [-(2**63), -(2**63) + 1, -(2**53) - 1, -1, 0, 1, 2**53, 2**53 + 1, 2**63 - 2, 2**63 - 1]
UNSIGNED = [0, 1, 2**53, 2**53 + 1, 2**63 - 2, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 2, 2**64 - 1]
COMPARISONS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")


@pytest.mark.parametrize("name", COMPARISONS)
@pytest.mark.parametrize("layout", ["contiguous", "broadcast", "transposed", "number"])
def test_int64_and_uint64_compare_exactly(arrays: Any, thread_order: str, name: str, layout: str) -> None:
    x, y = (np.array(part) for part in zip(*itertools.product(SIGNED, UNSIGNED)))
    x, y = x.astype(np.int64), y.astype(np.uint64)
    compare = getattr(pyflowk, name)
    for left, right in ((x, y), (y, x)):
        expected = getattr(np, name)(left.astype(object), right.astype(object)).astype(bool)
        if layout == "contiguous":
            actual = compare(arrays.put(left), arrays.put(right))
        elif layout == "number":
            pairs = zip(left, right)
            actual = [arrays.fetch(compare(arrays.put(left[i : i + 1]), b))[0] for i, (_, b) in enumerate(pairs)]
            np.testing.assert_array_equal(actual, expected)
            continue
        else:
            rows, columns = left.reshape(10, 10), right.reshape(10, 10)
            if layout == "broadcast":
                columns = columns[:1]
            expected = getattr(np, name)(rows.astype(object), columns.astype(object)).astype(bool)
            turned = arrays.put(np.ascontiguousarray(rows.T))
            turned = arrays.view(turned, 0, (10, 10), (8, 80), rows.dtype) if arrays.device is None else None
            actual = compare(
                arrays.put(rows) if layout == "broadcast" or turned is None else turned, arrays.put(columns)
            )
        np.testing.assert_array_equal(arrays.fetch(actual), expected)


@pytest.mark.parametrize("name", COMPARISONS)
def test_narrow_signed_integers_compare_exactly_with_uint64(arrays: Any, name: str) -> None:
    for dtype in (np.int8, np.int16, np.int32):
        info = np.iinfo(dtype)
        x = np.array([info.min, -1, 0, 1, info.max], dtype)
        y = np.array([2**64 - 1, 2**64 - 1, 0, 2**53 + 1, info.max], np.uint64)
        for left, right in ((x, y), (y, x)):
            expected = getattr(np, name)(left.astype(object), right.astype(object)).astype(bool)
            actual = getattr(pyflowk, name)(arrays.put(left), arrays.put(right))
            np.testing.assert_array_equal(arrays.fetch(actual), expected)


def test_the_library_takes_int64_with_uint64_in_comparisons_alone(arrays: Any, library: Any) -> None:
    x, y = arrays.put(np.array([-1, 5], np.int64)), arrays.put(np.array([0, 5], np.uint64))
    out = arrays.put(np.full(2, 7, np.uint8))

    def status(op: int, out_dtype: DType) -> int:
        operands = (arrays.pointer(x), None, DType.INT64, arrays.pointer(y), None, DType.UINT64)
        return library.flowk_binary(op, *operands, arrays.pointer(out), None, out_dtype, 1, (c_int64 * 1)(2), None)

    for op in (BinaryOp.MINIMUM, BinaryOp.ADD, BinaryOp.BITWISE_AND):
        assert status(op.value, DType.INT64) == Status.UNSUPPORTED_DTYPE
        assert library.flowk_last_error().decode().startswith("y_dtype = uint64, must be int64")
    np.testing.assert_array_equal(arrays.fetch(out), 7)
    assert status(BinaryOp.LESS.value, DType.BOOL) == Status.SUCCESS
    np.testing.assert_array_equal(arrays.fetch(out), [1, 0])


def test_other_functions_of_int64_and_uint64_give_float64(arrays: Any) -> None:
    x, y = arrays.put(np.ones(3, np.int64)), arrays.put(np.ones(3, np.uint64))
    assert pyflowk.add(x, y).dtype == np.float64
    assert pyflowk.maximum(x, y).dtype == np.float64


# ---- formulas of three operands -------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_add_multiply_that_cancels_is_within_one_unit(arrays: Any, dtype: np.dtype) -> None:
    rng = np.random.default_rng(4)
    y, z = (rng.uniform(0.5, 4, 20000).astype(dtype) for _ in range(2))
    for a in (0.1, 1 / 3, 1.7):
        wide_a = np.longdouble(np.float32(a))
        product = wide_a * y.astype(np.longdouble) * z.astype(np.longdouble)
        x = rounded(-product, dtype)
        exact = x.astype(np.longdouble) + product
        actual = arrays.fetch(pyflowk.add_multiply(arrays.put(x), arrays.put(y), arrays.put(z), a))
        assert ulps(actual, exact).max() <= 1


@pytest.mark.parametrize("dtype", (BFLOAT16, *WIDE), ids=str)
def test_add_multiply_overflows_only_where_its_result_does(arrays: Any, dtype: np.dtype) -> None:
    large, small = (2.0**1000, 2.0**-1000) if dtype == np.float64 else (2.0**120, 2.0**-120)
    cases = [
        (1.0, large, large, small),
        (1.0, large, -large, small / 2**5),
        (0.0, small, small, large),
        (3.0, small, large, large),
        (1.0, large, small, large),
        (3.0, small, 1.5, large),
        (-np.inf, large, large, 8.0),
        (0.0, large, large, 8.0),
        (0.0, 0.0, large, large),
        (1.0, np.inf, 1.0, 0.5),
        (1.0, np.inf, small / 2**10, 2.0),
        (1.0, -small, -np.inf, -2.0),
        (1.0, np.inf, np.inf, 0.5),
        (1.0, np.inf, 0.0, 2.0),
    ]
    for x, y, z, a in cases:
        one = [arrays.put(np.full(5, value).astype(dtype)) for value in (x, y, z)]
        actual = arrays.fetch(pyflowk.add_multiply(*one, a)).astype(np.float64)
        exact = np.longdouble(x) + np.longdouble(a) * np.longdouble(y) * np.longdouble(z)
        expected = rounded(np.full(5, exact), dtype).astype(np.float64)
        np.testing.assert_array_equal(actual, expected, str((x, y, z, a)))


@pytest.mark.parametrize("dtype", WIDE, ids=str)
def test_lerp_between_ends_of_the_range_does_not_overflow(arrays: Any, dtype: np.dtype) -> None:
    end = dtype.type(0.9) * np.finfo(dtype).max
    x, y = np.array([end, -end, end, end], dtype), np.array([-end, end, -end, -end], dtype)
    z = np.array([0.5, 0.25, 0, 1], dtype)
    actual = arrays.fetch(pyflowk.lerp(*map(arrays.put, (x, y, z))))
    exact = x.astype(np.longdouble) * (1 - z.astype(np.longdouble)) + z.astype(np.longdouble) * y
    np.testing.assert_allclose(actual, exact.astype(dtype), rtol=2 * float(np.finfo(dtype).eps))
    twice = arrays.fetch(pyflowk.lerp(*map(arrays.put, (x, y, np.full(4, 2, dtype)))))
    np.testing.assert_array_equal(twice, np.copysign(np.inf, y))


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_lerp_that_cancels_is_within_one_unit(arrays: Any, dtype: np.dtype) -> None:
    rng = np.random.default_rng(5)
    x = rng.uniform(1, 100, 20000).astype(dtype)
    y = (rng.uniform(1, 100, 20000) * 2.0 ** -rng.integers(0, 20, 20000)).astype(dtype)
    for z in (np.ones(20000), x.astype(np.float64) / (x.astype(np.float64) - y.astype(np.float64) + 0.001)):
        weight = z.astype(dtype)
        exact = x + weight.astype(np.longdouble) * (y.astype(np.longdouble) - x.astype(np.longdouble))
        actual = arrays.fetch(pyflowk.lerp(*map(arrays.put, (x, y, weight))))
        finite = np.isfinite(exact)
        assert ulps(actual[finite], exact[finite]).max() <= 1


# ---- small results --------------------------------------------------------------------------------------------------


def test_silu_and_gelu_tanh_keep_their_bounds_to_the_least_result(arrays: Any) -> None:
    x = -np.concatenate([np.linspace(0, 110, 20001), np.linspace(80, 110, 20001)]).astype(np.float32)
    eps, least = float(np.finfo(np.float32).eps), float(np.finfo(np.float32).smallest_subnormal)
    exact = silu(x)
    error = np.abs(arrays.fetch(pyflowk.silu(arrays.put(x))) - exact)
    assert (error <= (8 + np.abs(x)) * eps * np.abs(exact) + 0.51 * least).all()
    x = -np.linspace(0, 12, 40001).astype(np.float32)
    exact = gelu_tanh(x)
    argument = np.abs(2 * np.sqrt(2 / np.pi) * (x.astype(np.float64) + 0.044715 * x.astype(np.float64) ** 3))
    error = np.abs(arrays.fetch(pyflowk.gelu(arrays.put(x), "tanh")) - exact)
    assert (error <= (8 + 8 * argument) * eps * np.abs(exact) + 0.51 * least).all()


@pytest.mark.parametrize("dtype", [np.dtype(np.float32), BFLOAT16], ids=str)
def test_silu_mul_raises_a_small_silu_without_loss(arrays: Any, dtype: np.dtype) -> None:
    x = -np.linspace(60, 215, 7001).astype(dtype)
    for factor in (3.3e38, 1e38, -2.5e20, 1e-3):
        y = np.full(x.shape, factor).astype(dtype)
        exact = silu(x) * y.astype(np.longdouble)
        actual = arrays.fetch(pyflowk.silu_mul(arrays.put(x), arrays.put(y)))
        if dtype == BFLOAT16:
            assert ulps(actual, exact).max() <= 1
            continue
        least = float(np.finfo(np.float32).smallest_subnormal)
        allowed = (8 + np.abs(x.astype(np.float64))) * float(np.finfo(np.float32).eps) * np.abs(exact) + least / 2
        assert (np.abs(actual - exact) <= allowed).all()


@pytest.mark.parametrize("dtype", [np.dtype(np.float32), np.dtype(np.float64)], ids=str)
def test_silu_mul_keeps_its_bound_where_silu_is_denormal(arrays: Any, dtype: np.dtype) -> None:
    info = np.finfo(dtype)
    rng = np.random.default_rng(8)
    least, end = float(np.log2(info.smallest_subnormal)), float(np.log2(info.max))
    magnitudes = 2.0 ** rng.uniform(least, least / 3, 4000).astype(np.longdouble)
    x = np.concatenate([magnitudes, -magnitudes, [info.smallest_subnormal, -info.smallest_subnormal]]).astype(dtype)
    for exponent in (end - 1, end * 0.8, end / 3, 0.0, least / 4, least * 0.8):
        y = (2.0 ** rng.uniform(exponent - 1, exponent, x.size)).astype(dtype)
        exact = silu(x) * y.astype(np.longdouble)
        actual = arrays.fetch(pyflowk.silu_mul(arrays.put(x), arrays.put(y)))
        allowed = 8 * np.longdouble(info.eps) * np.abs(exact) + np.longdouble(info.smallest_subnormal) / 2
        assert (np.abs(actual.astype(np.longdouble) - exact) <= allowed).all()
    if dtype == np.float32:  # with a result of 16 bits
        out = arrays.put(np.zeros(1, BFLOAT16))
        operands = (arrays.put(np.array([value], dtype)) for value in (-1.4e-45, 4.27e29))
        pyflowk.silu_mul(*operands, out=out)
        assert ulps(arrays.fetch(out), silu(np.float32(-1.4e-45)) * np.longdouble(np.float32(4.27e29))) <= 1


@pytest.mark.parametrize("dtype", (*NARROW, *WIDE), ids=str)
def test_silu_mul_of_an_infinity_is_infinite_but_at_0_and_minus_infinity(arrays: Any, dtype: np.dtype) -> None:
    x = np.array([-np.inf, -6e4, -2000, -256, -90, -79, -1, -1e-7, -0.0, 0.0, 1e-7, 3, 6e4, np.inf]).astype(dtype)
    sign = np.array([np.nan, *[-1] * 7, np.nan, np.nan, *[1] * 4])
    for y in (np.inf, -np.inf):
        actual = arrays.fetch(pyflowk.silu_mul(arrays.put(x), arrays.put(np.full(x.shape, y).astype(dtype))))
        np.testing.assert_array_equal(actual.astype(np.float64), sign * y)


def test_float64_gelu_keeps_its_bound_to_the_least_result(arrays: Any) -> None:
    x = -np.concatenate([np.linspace(30, 38.6, 4001), np.linspace(35.99, 36.01, 401), np.linspace(37.5, 39, 4001)])
    # gelu(x) = x Phi(x) = -phi(x) sum of (-1)^n (2 n - 1)!! / x^(2 n), to its least term.
    wide = x.astype(np.longdouble)
    series, term = np.ones_like(wide), np.ones_like(wide)
    for n in range(1, 60):
        term = term * -(2 * n - 1) / wide**2
        series += term
    exact = -np.exp(-wide * wide / 2) / np.sqrt(2 * np.longdouble("3.14159265358979323846")) * series
    info = np.finfo(np.float64)
    allowed = (8 + 2 * wide * wide) * info.eps * np.abs(exact) + np.longdouble(info.smallest_subnormal) / 2
    actual = arrays.fetch(pyflowk.gelu(arrays.put(x)))
    assert (np.abs(actual.astype(np.longdouble) - exact) <= allowed).all()
    ends = arrays.fetch(pyflowk.gelu(arrays.put(np.array([-np.inf, -1e200, -40, np.inf, np.nan]))))
    np.testing.assert_array_equal(ends, [0, 0, 0, np.inf, np.nan])


@pytest.mark.parametrize("name", ["gelu_backward", "silu_backward"])
def test_gradients_at_infinity_are_their_limits(arrays: Any, name: str) -> None:
    x = np.array([np.inf, -np.inf, 3, np.inf, -np.inf, 3])
    y = np.array([-np.inf, -np.inf, -np.inf, np.inf, np.inf, np.inf])
    expected = [np.nan, np.nan, 0, np.inf, -np.inf, 3]
    for dtype in (ml_dtypes.float8_e5m2, *NARROW, *WIDE):
        operands = [arrays.put(values.astype(dtype)) for values in (x, y)]
        for approximate in ((), ("tanh",)) if name == "gelu_backward" else ((),):
            actual = arrays.fetch(getattr(pyflowk, name)(*operands, *approximate)).astype(np.float64)
            if dtype == ml_dtypes.float8_e5m2:  # rounded to it, an infinity is the largest number
                actual[3:5] = np.copysign(np.inf, actual[3:5])
            np.testing.assert_array_equal(actual, expected, str(dtype))


@pytest.mark.parametrize("dtype", (*NARROW, *WIDE), ids=str)
def test_pow_of_any_nan_and_0_is_1(arrays: Any, dtype: np.dtype) -> None:
    # Quiet and signaling NaN, of both signs.
    bits = {2: np.uint16, 4: np.uint32, 8: np.uint64}[dtype.itemsize]
    quiet = np.array([np.nan], dtype).view(bits)[0]
    last = bits(2 ** int(ml_dtypes.finfo(dtype).nmant - 1))
    nan = np.array([quiet, quiet ^ last | bits(1)], bits)
    nan = np.concatenate([nan, nan | bits(1 << (8 * dtype.itemsize - 1))]).view(dtype)
    assert np.isnan(nan.astype(np.float64)).all()
    for zero in (0.0, -0.0):
        result = arrays.fetch(pyflowk.pow(arrays.put(nan), arrays.put(np.full(4, zero).astype(dtype))))
        np.testing.assert_array_equal(result.astype(np.float64), 1)
    result = arrays.fetch(pyflowk.pow(arrays.put(np.ones(4).astype(dtype)), arrays.put(nan)))
    np.testing.assert_array_equal(result.astype(np.float64), 1)
