# SPDX-License-Identifier: Apache-2.0
"""Types of the elementwise functions: every conversion bit for bit, NumPy's promotion, Python numbers."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from elementwise_cases import BOOL, DTYPES, FLOAT_DTYPES, INTEGER_DTYPES, converted, numpy_type, rounded

import pyflowk
from pyflowk._arrays.dtypes import number_type
from pyflowk._elementwise.promotion import number_bytes, promote, round_to
from pyflowk._native.abi import DType

# NumPy warns of the values that these tests are about.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

CODES = tuple(number_type(dtype, "x") for dtype in DTYPES)

# ---- conversion -----------------------------------------------------------------------------------------------------


def bit_patterns(dtype: np.dtype) -> np.ndarray:
    """All values of a type of 8 or 16 bits; edges of the others and 3000 at random."""
    if dtype == BOOL:
        return np.array([False, True])
    if dtype.itemsize <= 2:
        return np.arange(256**dtype.itemsize, dtype=np.uint32).astype(f"u{dtype.itemsize}").view(dtype)
    rng = np.random.default_rng(11)
    bits = rng.integers(0, 256, 1500 * dtype.itemsize, dtype=np.uint8).view(dtype)
    edges: list[Any] = []
    for other in DTYPES:
        if other == BOOL:
            continue
        if other in INTEGER_DTYPES:
            info = np.iinfo(other)
            near = [info.min, info.max]
        else:
            limits = ml_dtypes.finfo(other)
            ulp = float(limits.max) - float(np.nextafter(limits.max, limits.dtype.type(0)))
            near = [float(limits.max), float(limits.max) + ulp / 2, float(limits.smallest_subnormal) / 2]
            near += [-value for value in near] + [float(limits.tiny)]
        if dtype in INTEGER_DTYPES:
            own = np.iinfo(dtype)
            near = [int(value) + step for value in near if abs(value) < 2**70 for step in (-1, 0, 1)]
            edges += [value for value in near if own.min <= value <= own.max]
        else:
            with np.errstate(all="ignore"):
                typed = np.array(near, np.float64).astype(dtype)
                edges += [*typed, *np.nextafter(typed, dtype.type(0)), *np.nextafter(typed, dtype.type(np.inf))]
    if dtype in FLOAT_DTYPES:
        normal = rng.normal(0, 300, 1500)
        edges += [*normal, *(normal * 1e-5), 0.0, -0.0, np.inf, -np.inf, np.nan]
    else:
        edges += [*rng.integers(-3000 if dtype.kind == "i" else 0, 3000, 1500)]
    with np.errstate(all="ignore"):
        return np.concatenate([bits, np.array(edges, dtype)])


@pytest.mark.parametrize("to", DTYPES, ids=str)
@pytest.mark.parametrize("source", DTYPES, ids=str)
def test_every_conversion_is_right_bit_for_bit(arrays: Any, source: np.dtype, to: np.dtype) -> None:
    x = bit_patterns(source)
    actual = arrays.fetch(pyflowk.cast(arrays.put(x), to))
    assert actual.dtype == to
    expected = converted(x, to)
    if source == to:
        assert actual.tobytes() == x.tobytes()
        return
    if to in FLOAT_DTYPES and source in FLOAT_DTYPES:
        nan = np.isnan(x.astype(np.float64))
        np.testing.assert_array_equal(np.isnan(actual.astype(np.float64)), nan)
        actual, expected = actual[~nan], expected[~nan]
    wrong = np.flatnonzero(actual.view(f"u{to.itemsize}") != expected.view(f"u{to.itemsize}"))
    assert not wrong.size, (x[wrong[:5]], actual[wrong[:5]], expected[wrong[:5]])


def test_cast_takes_a_dtype_in_any_form_or_that_of_out(arrays: Any) -> None:
    x = np.array([1.5, -2.5, 300.0], np.float32)
    for dtype in (np.float16, "float16", np.dtype("float16"), DType.FLOAT16):
        np.testing.assert_array_equal(arrays.fetch(pyflowk.cast(arrays.put(x), dtype)), x.astype(np.float16))
    out = arrays.put(np.zeros(3, np.int8))
    assert pyflowk.cast(arrays.put(x), out=out) is out
    np.testing.assert_array_equal(arrays.fetch(out), [1, -2, 127])
    with pytest.raises(TypeError, match="dtype is None: pass one, or an out"):
        pyflowk.cast(arrays.put(x))
    with pytest.raises(TypeError, match="out has dtype int8, must be float16"):
        pyflowk.cast(arrays.put(x), np.float16, out=out)
    with pytest.raises(TypeError, match=r"dtype = .*complex64.*, must name one of bool, int8, .*float8_e5m2"):
        pyflowk.cast(arrays.put(x), np.complex64)


# ---- promotion ------------------------------------------------------------------------------------------------------


def numpy_promotion(first: np.dtype, second: np.dtype) -> np.dtype | None:
    """What NumPy answers in one order at least; ml_dtypes' types have no answer for some pairs."""
    for pair in ((first, second), (second, first)):
        try:
            return np.promote_types(*pair)
        except TypeError:
            continue
    return None


@pytest.mark.parametrize(("first", "second"), list(itertools.product(CODES, CODES)))
def test_types_promote_as_in_numpy(first: DType, second: DType) -> None:
    result = promote(first, second)
    assert result == promote(second, first)
    answer = numpy_promotion(numpy_type(first), numpy_type(second))
    if answer is not None:
        assert numpy_type(result) == answer
        return
    for code in (first, second):  # NumPy has none: the narrowest that holds both, as far as float64 does
        values = bit_patterns(numpy_type(code))
        np.testing.assert_array_equal(
            converted(values, numpy_type(result)).astype(np.float64), values.astype(np.float64)
        )


_AS_NUMPY = {"abs": "absolute"}
_NOT_AS_NUMPY = {
    "square": (BOOL,),  # NumPy makes int8
    "reciprocal": (BOOL, *INTEGER_DTYPES),  # NumPy divides integers
    "pow": (BOOL, *INTEGER_DTYPES),  # NumPy multiplies integers
    "round": (),
}


@pytest.mark.parametrize(
    "name", ["abs", "negative", "square", "sqrt", "reciprocal", "exp", "log", "sin", "cos", "tanh"]
)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_unary_function_has_the_result_type_of_numpy_s(arrays: Any, name: str, dtype: np.dtype) -> None:
    check_result_type(arrays, name, [dtype])


@pytest.mark.parametrize("name", ["floor", "ceil"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rounding_leaves_the_type(arrays: Any, name: str, dtype: np.dtype) -> None:
    check_result_type(arrays, name, [dtype])
    assert pyflowk.round(arrays.put(np.ones(3).astype(dtype))).dtype == dtype


@pytest.mark.parametrize(
    "name", ["add", "subtract", "multiply", "divide", "minimum", "maximum", "less", "equal", "bitwise_and", "pow"]
)
@pytest.mark.parametrize("first", DTYPES, ids=str)
def test_a_binary_function_has_the_result_type_of_numpy_s(arrays: Any, name: str, first: np.dtype) -> None:
    for second in DTYPES:
        check_result_type(arrays, name, [first, second])


def check_result_type(arrays: Any, name: str, dtypes: list[np.dtype]) -> None:
    if all(dtype in _NOT_AS_NUMPY.get(name, ()) for dtype in dtypes):
        return
    operands = [np.ones(2).astype(dtype) for dtype in dtypes]
    ufunc = getattr(np, _AS_NUMPY.get(name, {"pow": "power"}.get(name, name)))
    if len(dtypes) == 2 and numpy_promotion(*dtypes) is None:
        return
    try:
        expected = ufunc(*operands).dtype
    except TypeError:
        try:
            expected = ufunc(*operands[::-1]).dtype
        except TypeError:
            if name == "bitwise_and" or BOOL in dtypes:
                with pytest.raises(TypeError, match=r"must be|must come to"):
                    getattr(pyflowk, name)(*map(arrays.put, operands))
            return
    assert getattr(pyflowk, name)(*map(arrays.put, operands)).dtype == expected


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("number", [True, 3, 1.5])
def test_a_python_number_is_weak_as_in_numpy(arrays: Any, dtype: np.dtype, number: Any) -> None:
    x = np.arange(5).astype(dtype)
    keeps = dtype in FLOAT_DTYPES and isinstance(number, float)  # NumPy makes float32 of bfloat16 and float8
    expected = dtype if keeps else np.add(x, number).dtype
    for result in (pyflowk.maximum(arrays.put(x), number), pyflowk.maximum(number, arrays.put(x))):
        assert result.dtype == expected
        wanted = np.maximum(x.astype(np.float64), float(converted(np.array([number]), expected)[0]))
        np.testing.assert_array_equal(arrays.fetch(result).astype(np.float64), wanted)


def test_numbers_keep_their_bits() -> None:
    for value in (0.1, -0.0, 1e30, 1e-30, 65519.0, 65520.0, 448.1, 1e39, np.inf, -np.inf, np.nan, 5e-324, 3.3e-8):
        for dtype in FLOAT_DTYPES:
            code = number_type(dtype, "x")
            expected = rounded(np.array([value]), dtype).astype(np.float64)
            np.testing.assert_array_equal(np.array([round_to(value, code)]), expected)
            assert np.signbit(round_to(value, code)) == np.signbit(value)
    for dtype in INTEGER_DTYPES:
        info = np.iinfo(dtype)
        for value in (int(info.min), int(info.max)):
            assert number_bytes(value, number_type(dtype, "x"), "x") == np.array([value], dtype).tobytes()
        for value in (int(info.min) - 1, int(info.max) + 1):
            with pytest.raises(OverflowError, match=f"Python integer {value} out of bounds for {dtype}"):
                number_bytes(value, number_type(dtype, "x"), "x")


def test_numbers_are_operands_everywhere(arrays: Any) -> None:
    x = np.array([-2.0, 0.5, 3.0], np.float32)
    for actual, expected in (
        (pyflowk.subtract(1, arrays.put(x)), 1 - x),
        (pyflowk.divide(arrays.put(x), 3), x / np.float32(3)),
        (pyflowk.less(arrays.put(x), 0.5), x < 0.5),
        (pyflowk.where(arrays.put(x > 0), arrays.put(x), 0), np.where(x > 0, x, 0)),
        (pyflowk.where(arrays.put(x > 0), 1, 0), np.where(x > 0, 1, 0)),
        (pyflowk.where(True, arrays.put(x), 7), x),
        (pyflowk.add(arrays.put(x), np.float64(1)), x + np.float64(1)),
        (pyflowk.add(arrays.put(x), np.float16(1)), x + np.float16(1)),
        (pyflowk.clamp(arrays.put(x), -1, arrays.put(x * 0 + 1)), np.clip(x, -1, 1)),
        (pyflowk.clamp(arrays.put(x), min=0), np.maximum(x, 0)),
        (pyflowk.clamp(arrays.put(x), max=0), np.minimum(x, 0)),
        (pyflowk.fma(arrays.put(x), 2, 1), 2 * x + 1),
    ):
        fetched = arrays.fetch(actual)
        assert fetched.dtype == expected.dtype
        np.testing.assert_array_equal(fetched, expected)


def test_large_integers_are_exact_parameters(arrays: Any) -> None:
    x = np.array([-(2**62), 0, 2**62 + 1], np.int64)
    bound = 2**61 + 1
    np.testing.assert_array_equal(arrays.fetch(pyflowk.clamp(arrays.put(x), -bound, bound)), np.clip(x, -bound, bound))
    np.testing.assert_array_equal(arrays.fetch(pyflowk.scale(arrays.put(x), 1, bound)), x + bound)
