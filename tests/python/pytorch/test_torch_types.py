# SPDX-License-Identifier: Apache-2.0
"""The types of results are PyTorch's for all pairs of types, with and without dimensions, and numbers."""

from __future__ import annotations

import itertools

import pytest

torch = pytest.importorskip("torch")

import pyflowk  # noqa: E402

TYPES = [
    *(torch.bool, torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.uint8, torch.uint16, torch.uint32, torch.uint64),
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.float8_e4m3fn, torch.float8_e5m2),
]
SHAPES = [(2,), ()]
NUMBERS = [True, 1, 1.5]


@pytest.fixture(params=[torch.float32, torch.float64], ids=str)
def default_dtype(request: pytest.FixtureRequest) -> torch.dtype:
    before = torch.get_default_dtype()
    torch.set_default_dtype(request.param)
    yield request.param
    torch.set_default_dtype(before)


def assert_same_type(x: object, y: object) -> None:
    try:
        expected = torch.result_type(x, y)
    except RuntimeError:
        with pytest.raises(TypeError, match="PyTorch has no type for"):
            pyflowk.maximum(x, y)
    else:
        result = pyflowk.maximum(x, y)
        assert result.dtype == expected, (x, y)
        has_fraction = isinstance(x, float) or isinstance(y, float)
        assert result.to(torch.float64).max() == (1.5 if has_fraction else 1)


@pytest.mark.usefixtures("default_dtype")
@pytest.mark.parametrize("first", TYPES, ids=str)
def test_two_tensors(first: torch.dtype) -> None:
    for second, shape, other in itertools.product(TYPES, SHAPES, SHAPES):
        assert_same_type(torch.ones(shape).to(first), torch.ones(other).to(second))


@pytest.mark.usefixtures("default_dtype")
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_a_tensor_and_a_number(dtype: torch.dtype) -> None:
    for number, shape in itertools.product(NUMBERS, SHAPES):
        tensor = torch.ones(shape).to(dtype)
        assert_same_type(tensor, number)
        assert_same_type(number, tensor)


def test_three_operands(default_dtype: torch.dtype) -> None:
    condition = torch.tensor([True, False])
    assert pyflowk.where(condition, 1.0, 0).dtype == torch.where(condition, 1.0, 0).dtype == default_dtype
    assert pyflowk.where(condition, 1, 0).dtype == torch.int64
    half, weight = torch.ones(2, dtype=torch.float16), torch.ones(2, dtype=torch.int32)
    assert pyflowk.fma(half, weight, torch.tensor(2.0, dtype=torch.float64)).dtype == torch.float16
    assert pyflowk.clamp(weight, 0, 1.5).dtype == torch.clamp(weight, 0, 1.5).dtype == default_dtype
    assert pyflowk.scale(weight, 2).dtype == torch.int32


def test_functions_of_floats_compute_integers_in_the_default_dtype(default_dtype: torch.dtype) -> None:
    for dtype in (torch.bool, torch.uint8, torch.int64):
        x = torch.ones(3).to(dtype)
        for name in ("sqrt", "exp", "sigmoid", "reciprocal", "tanh"):
            assert getattr(pyflowk, name)(x).dtype == getattr(torch, name)(x).dtype == default_dtype
        assert pyflowk.divide(x, x).dtype == torch.div(x, x).dtype == default_dtype


def test_types_that_pytorch_computes_and_flowk_does_not_are_refused() -> None:
    integers = torch.tensor([3])
    with pytest.raises(TypeError, match="x has dtype float32, must be integers"):
        pyflowk.bitwise_left_shift(integers.float(), integers)
    with pytest.raises(TypeError, match="x has dtype bool, must be integers or floats"):
        pyflowk.subtract(integers > 0, integers > 0)


def test_numpy_arrays_keep_numpy_s_rules() -> None:
    integers = torch.ones(3, dtype=torch.int32).numpy()
    assert pyflowk.multiply(integers, 1.5).dtype == "float64"
