# SPDX-License-Identifier: Apache-2.0
"""Python numbers, NumPy scalars, lists and host arrays of rank 0 with arrays; the types of three operands."""

from __future__ import annotations

import itertools
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from elementwise_cases import BOOL, DTYPES, FLOAT_DTYPES, numpy_type, spacing

import pyflowk
from pyflowk._arrays import registry
from pyflowk._arrays.adapters.numpy import NUMPY, NumpyAdapter
from pyflowk._arrays.dtypes import number_type
from pyflowk._elementwise.promotion import common_type
from pyflowk._native import driver
from pyflowk._native import library as native

CODES = tuple(number_type(dtype, "x") for dtype in DTYPES)
NARROW = (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))
E4M3, E5M2 = np.dtype(ml_dtypes.float8_e4m3fn), np.dtype(ml_dtypes.float8_e5m2)


# ---- numbers keep their digits --------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_a_number_beside_16_bit_floats_is_rounded_to_float32_alone(arrays: Any, dtype: np.dtype) -> None:
    x, y = (np.random.default_rng(seed).normal(0, 50, 500).astype(dtype) for seed in (1, 2))
    wide_x, wide_y = x.astype(np.float64), y.astype(np.float64)
    weight, tenth = float(np.float32(0.4)), float(np.float32(0.1))
    for actual, exact in (
        (pyflowk.add(arrays.put(x), 0.1), wide_x + tenth),
        (pyflowk.multiply(0.1, arrays.put(x)), wide_x * tenth),
        (pyflowk.subtract(arrays.put(x), 1 / 3), wide_x - float(np.float32(1 / 3))),
        (pyflowk.lerp(arrays.put(x), arrays.put(y), 0.4), wide_x + weight * (wide_y - wide_x)),
        (pyflowk.fma(arrays.put(x), 0.1, arrays.put(y)), wide_x * tenth + wide_y),
        (pyflowk.where(arrays.put(x > 0), 0.1, arrays.put(x)), np.where(x > 0, tenth, wide_x)),
    ):
        fetched = arrays.fetch(actual)
        assert fetched.dtype == dtype
        # Half a unit by the last rounding, and what float32 lost before it.
        allowed = 0.5 * spacing(exact, dtype) + 2.0**-22 * (np.abs(wide_x) + np.abs(wide_y) + 1)
        assert (np.abs(fetched.astype(np.float64) - exact) <= allowed).all()


def test_a_number_past_the_arrays_type_scales_into_it(arrays: Any) -> None:
    x = np.array([0.001, -0.5], np.float16)
    expected = (x.astype(np.float64) * 1e5).astype(np.float16)
    np.testing.assert_array_equal(arrays.fetch(pyflowk.multiply(arrays.put(x), 1e5)), expected)


@pytest.mark.parametrize("dtype", [d for d in FLOAT_DTYPES if d != np.float64], ids=str)
def test_a_comparison_rounds_a_number_to_the_arrays_type(arrays: Any, dtype: np.dtype) -> None:
    x = np.full(3, 0.1).astype(dtype)
    assert arrays.fetch(pyflowk.equal(arrays.put(x), 0.1)).all()
    assert not arrays.fetch(pyflowk.less(arrays.put(x), 0.1)).any()
    assert not arrays.fetch(pyflowk.greater(0.1, arrays.put(x))).any()


WITH_NUMBER = {
    "add": lambda x, number: pyflowk.add(x, number),
    "multiply": lambda x, number: pyflowk.multiply(number, x),
    "lerp": lambda x, number: pyflowk.lerp(x, x, number),
    "clamp": lambda x, number: pyflowk.clamp(x, number, number),
    "clamp, one bound": lambda x, number: pyflowk.clamp(x, number),
    "clamp, mixed": lambda x, number: pyflowk.clamp(x, number, x),
    "scale": lambda x, number: pyflowk.scale(x, number),
    "leaky_relu": lambda x, number: pyflowk.leaky_relu(x, number),
    "elu": lambda x, number: pyflowk.elu(x, number),
    "add_multiply": lambda x, number: pyflowk.add_multiply(x, x, x, number),
    "where": lambda x, number: pyflowk.where(True, x, number),
}


@pytest.mark.parametrize("function", WITH_NUMBER)
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32", "int8"])
def test_a_numpy_scalar_has_its_own_type_everywhere(arrays: Any, function: str, dtype: str) -> None:
    for scalar in (np.float16(0.5), np.float32(0.5), np.float64(0.5), np.int8(1), np.int64(1)):
        result = WITH_NUMBER[function](arrays.put(np.ones(3, dtype)), scalar)
        expected = np.result_type(np.dtype(dtype), scalar)
        if function in ("leaky_relu", "elu", "lerp") and expected.kind == "i":
            expected = np.sin(np.ones(1, expected)).dtype  # these are computed in floats
        assert result.dtype == expected, scalar


def test_a_numpy_scalar_gives_what_an_array_of_it_gives(arrays: Any) -> None:
    x = np.array([-3.0, 0.25, 7.0], np.float16)
    third = np.float64(1) / 3
    wide = x.astype(np.float64)
    scaled = arrays.fetch(pyflowk.scale(arrays.put(x), third, 1))
    np.testing.assert_allclose(scaled, third * wide + 1, rtol=0, atol=2.0**-52)
    np.testing.assert_array_equal(arrays.fetch(pyflowk.clamp(arrays.put(x), -third, third)), wide.clip(-third, third))
    leaky = arrays.fetch(pyflowk.leaky_relu(arrays.put(x), third))
    np.testing.assert_array_equal(leaky, np.where(wide > 0, wide, third * wide))


def test_a_parameter_that_is_no_number_is_named(arrays: Any) -> None:
    x = arrays.put(np.ones(3, np.float32))
    with pytest.raises(TypeError, match="slope is a str, must be a number"):
        pyflowk.leaky_relu(x, "0.1")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="a is a list, must be a number"):
        pyflowk.add_multiply(x, x, x, [1])  # type: ignore[arg-type]


@pytest.mark.parametrize("huge", [10**400, -(10**5000)], ids=["past float64", "past 4300 digits"])
def test_an_int_past_float64_is_an_overflow_error_that_names_the_operand(arrays: Any, huge: int) -> None:
    for dtype in ("float16", "float32", "float64"):
        x = arrays.put(np.ones(3, dtype))
        for call, name in (
            (lambda x: pyflowk.add(x, huge), "y"),
            (lambda x: pyflowk.add(huge, x), "x"),
            (lambda x: pyflowk.lerp(x, x, huge), "weight"),
            (lambda x: pyflowk.clamp(x, 0, huge), "max"),
            (lambda x: pyflowk.add_multiply(x, x, x, huge), "a"),
            (lambda x: pyflowk.elu(x, huge), "alpha"),
        ):
            bits = abs(huge).bit_length()
            with pytest.raises(
                OverflowError, match=rf"^{name}: Python integer of {bits} bits must be in -1\.79.*e\+308"
            ):
                call(x)
    with pytest.raises(
        OverflowError, match=r"^y: Python integer of \d+ bits out of bounds for int8, must be in -128 ... 127"
    ):
        pyflowk.add(arrays.put(np.ones(3, np.int8)), huge)


COMPARISONS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d.kind in "iu"], ids=str)
def test_a_comparison_with_an_int_past_the_type_is_exact(arrays: Any, dtype: np.dtype) -> None:
    bounds = np.iinfo(dtype)
    x = np.array([bounds.min, 0, 1, bounds.max], dtype)
    for number in (int(bounds.min) - 1, int(bounds.max) + 1, -(10**30), 10**30, 10**5000, int(bounds.max)):
        for name in COMPARISONS:
            function, reference = getattr(pyflowk, name), getattr(np, name)
            np.testing.assert_array_equal(arrays.fetch(function(arrays.put(x), number)), reference(x, number))
            np.testing.assert_array_equal(arrays.fetch(function(number, arrays.put(x))), reference(number, x))
    with pytest.raises(OverflowError, match=f"^y: .* out of bounds for {dtype}"):
        pyflowk.add(arrays.put(x), 10**30)


def test_a_comparison_of_bool_with_any_int_is_exact(arrays: Any) -> None:
    x = np.array([False, True])
    assert arrays.fetch(pyflowk.less(arrays.put(x), 2**70)).tolist() == [True, True]
    assert arrays.fetch(pyflowk.less_equal(2**70, arrays.put(x))).tolist() == [False, False]
    assert arrays.fetch(pyflowk.greater(1, arrays.put(x))).tolist() == [True, False]


# ---- lists and host arrays of rank 0 --------------------------------------------------------------------------------


def test_a_list_beside_numpy_arrays_is_taken_as_numpy_takes_it(host_library: None) -> None:
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    for actual, expected in (
        (pyflowk.add([1, 2], x), np.add([1, 2], x)),
        (pyflowk.add(x, (1.5, 2.5)), np.add(x, (1.5, 2.5))),
        (pyflowk.subtract([[1], [2], [3]], x.astype(np.int64)), np.subtract([[1], [2], [3]], x.astype(np.int64))),
        (pyflowk.where([True, False], x, 0), np.where([True, False], x, 0)),
        (pyflowk.fma(x, [1.0, 2.0], [3, 4]), x * [1.0, 2.0] + [3, 4]),
        (pyflowk.less(x.astype(np.int64), [3, 4]), np.less(x.astype(np.int64), [3, 4])),
        (pyflowk.clamp(x, [1, 2], [3, 4]), np.clip(x, [1, 2], [3, 4])),
    ):
        assert type(actual) is np.ndarray
        assert actual.dtype == expected.dtype
        np.testing.assert_array_equal(actual, expected)
    assert "x is converted to float64 first:" in pyflowk.explain(pyflowk.add, [1, 2], x)


def test_a_list_that_is_no_array_of_numbers_is_named() -> None:
    x = np.ones(2, np.float32)
    for thing in ([[1, 2], [3]], ["a", "b"], [None, 1]):
        with pytest.raises(TypeError, match="y is a list of which NumPy makes no array of numbers"):
            pyflowk.add(x, thing)
        with pytest.raises(TypeError, match="x is a list of which NumPy makes no array of numbers"):
            pyflowk.add(thing, x)
    with pytest.raises(TypeError, match="x and y are numbers or lists, one at least must be an array"):
        pyflowk.add([1, 2], 3)
    with pytest.raises(TypeError, match="x is a list, must be"):
        pyflowk.relu([1, 2])  # type: ignore[type-var]


class OnGpu(np.ndarray):
    """Host memory that says it is on device 0."""


class OnGpuAdapter(NumpyAdapter):
    @staticmethod
    def read(x: Any, name: str, stream: int) -> Any:
        return (*NUMPY.read(x, name, stream)[:4], 0, None)

    @staticmethod
    def empty(x: Any, shape: Any, dtype: Any, device: Any, stream: int) -> Any:
        array = np.empty(shape, dtype).view(OnGpu)
        return array, array.ctypes.data


@pytest.fixture
def on_gpu(host_library: None, monkeypatch: pytest.MonkeyPatch) -> Any:
    if driver.device_count() > 0:
        pytest.skip("device 0 is a real GPU, which would be given pointers to host memory")
    monkeypatch.setitem(registry.ARRAYS, OnGpu, OnGpuAdapter())
    monkeypatch.setitem(registry.OPERANDS, OnGpu, OnGpuAdapter())
    monkeypatch.setitem(native.loaded, 0, native.for_device(None, "x"))
    return lambda values: np.array(values).view(OnGpu)


def test_a_host_array_of_rank_0_beside_a_gpu_array_is_a_number_of_its_type(on_gpu: Any) -> None:
    x = on_gpu(np.array([1.0, 2.0], np.float32))
    for actual, expected in (
        (pyflowk.add(x, np.array(0.5, np.float32)), np.float32([1.5, 2.5])),
        (pyflowk.subtract(np.array(0.5, np.float32), x), np.float32([-0.5, -1.5])),
        (pyflowk.multiply(x, np.array(2, np.int8)), np.float32([2, 4])),
        (pyflowk.lerp(np.array(0, np.float32), x, np.array(0.5, np.float16)), np.float32([0.5, 1])),
        (pyflowk.where(np.array(True), x, 0), np.float32([1, 2])),
    ):
        assert type(actual) is OnGpu
        assert actual.dtype == expected.dtype
        np.testing.assert_array_equal(actual, expected)


def test_other_host_operands_beside_a_gpu_array_are_refused(on_gpu: Any) -> None:
    x = on_gpu(np.array([1.0, 2.0], np.float32))
    with pytest.raises(TypeError, match="x is on device 0 and y is a host array"):
        pyflowk.add(x, np.ones(2, np.float32))
    with pytest.raises(TypeError, match="x is a host array and y is on device 0"):
        pyflowk.add(np.ones(1, np.float32), x)
    for call in (lambda: pyflowk.add(x, [1, 2]), lambda: pyflowk.add([1, 2], x)):
        with pytest.raises(TypeError, match="is a list, which is taken with NumPy arrays only"):
            call()
    with pytest.raises(TypeError, match="x is on device 0 and alpha is a host array"):
        pyflowk.prelu(on_gpu(np.ones((2, 3), np.float32)), np.array(0.5, np.float32))


# ---- the type of three operands -------------------------------------------------------------------------------------


def test_the_common_type_depends_on_the_set_of_types_alone() -> None:
    for codes in itertools.combinations_with_replacement(CODES, 3):
        results = {common_type(order) for order in itertools.permutations(codes)}
        assert len(results) == 1
        assert common_type((*codes, codes[0])) in results
        if all(numpy_type(code).isbuiltin == 1 for code in codes):
            assert numpy_type(results.pop()) == np.result_type(*map(numpy_type, codes)), codes


@pytest.mark.parametrize("function", [pyflowk.fma, pyflowk.lerp, pyflowk.add_multiply], ids=lambda f: f.__name__)
@pytest.mark.parametrize(
    "dtypes",
    [(BOOL, E4M3, E5M2), (np.dtype(np.int8), E5M2, E4M3), (np.dtype(np.int16), np.dtype(np.uint16), NARROW[0])],
    ids=str,
)
def test_the_type_of_a_result_does_not_depend_on_shapes_or_order(arrays: Any, function: Any, dtypes: Any) -> None:
    shapes = ((2, 1), (2, 2), (1, 2), ())
    found = set()
    for order in itertools.permutations(dtypes):
        for chosen in itertools.product(shapes, repeat=3):
            operands = [np.ones(shape, dtype) for shape, dtype in zip(chosen, order, strict=True)]
            found.add(function(*map(arrays.put, operands)).dtype)
    assert found == {numpy_type(common_type([number_type(dtype, "x") for dtype in dtypes]))}
