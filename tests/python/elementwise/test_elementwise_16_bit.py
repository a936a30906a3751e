# SPDX-License-Identifier: Apache-2.0
"""Unary functions of every float16 and bfloat16 value: within one unit of the correctly rounded result. And of float32
values of every exponent: within the bound of test_elementwise.py."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from elementwise_cases import CALLS, Call, reference, rounded
from test_elementwise import check

import pyflowk
from pyflowk._native.operations import OPERATIONS, UnaryOp

DTYPES = (np.dtype(np.float16), np.dtype(ml_dtypes.bfloat16))
UNARY = [
    call
    for call in CALLS
    if isinstance(call.op, UnaryOp) and OPERATIONS[call.op].result == "SAME" and "F" in OPERATIONS[call.op].takes
]


def ordinals(values: np.ndarray) -> np.ndarray:
    """The place of 16-bit floats among all of their type; both zeros are at 0."""
    bits = values.view(np.int16).astype(np.int32)
    return np.where(bits < 0, -(bits & 0x7FFF), bits)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("call", UNARY, ids=lambda call: call.id)
def test_every_value_is_within_one_unit_of_the_correctly_rounded_result(
    arrays: Any, call: Call, dtype: np.dtype
) -> None:
    x = np.arange(2**16, dtype=np.uint32).astype(np.uint16).view(dtype)
    actual = arrays.fetch(call(arrays.put(x)))
    assert actual.dtype == dtype
    expected = rounded(np.asarray(reference(call, [x], np.dtype(np.float32)), np.float64), dtype)
    nan = np.isnan(expected.astype(np.float64))
    np.testing.assert_array_equal(np.isnan(actual.astype(np.float64)), nan)
    distance = np.where(nan, 0, np.abs(ordinals(actual) - ordinals(expected)))
    worst = np.flatnonzero(distance > 1)[:5]
    assert not worst.size, (x[worst], actual[worst], expected[worst])


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("factor", [1.0, -1e-3, 6e4, 2.5e20, -3e38])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_silu_mul_of_every_value_is_within_one_unit(arrays: Any, dtype: np.dtype, factor: float) -> None:
    x = np.arange(2**16, dtype=np.uint32).astype(np.uint16).view(dtype)
    x = x[np.isfinite(x.astype(np.float32))]
    y = np.full(x.shape, factor).astype(dtype)
    if not np.isfinite(y[0]):
        return
    wide = x.astype(np.longdouble)
    expected = rounded((wide / (1 + np.exp(-wide)) * y.astype(np.longdouble)).astype(np.float64), dtype)
    # Alone, and in packs in which one of eight is below -80, where the formula is another one.
    for places in (slice(None), np.random.default_rng(3).permutation(x.size)):
        actual = arrays.fetch(pyflowk.silu_mul(arrays.put(x[places]), arrays.put(y)))
        distance = np.abs(ordinals(actual) - ordinals(expected[places]))
        worst = np.flatnonzero(distance > 1)[:5]
        assert not worst.size, (x[places][worst], actual[worst], expected[places][worst])


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("call", UNARY, ids=lambda call: call.id)
def test_float32_of_every_exponent_is_within_its_bound(arrays: Any, call: Call) -> None:
    fractions = np.random.default_rng(8).integers(0, 2**23, (256, 30), dtype=np.uint32)
    fractions = np.concatenate([fractions, np.broadcast_to(np.uint32([0, 2**23 - 1]), (256, 2))], axis=1)
    bits = (np.arange(256, dtype=np.uint32)[:, np.newaxis] << 23 | fractions).ravel()
    x = np.concatenate([bits, bits | np.uint32(1 << 31)]).view(np.float32)
    check(call, [x], arrays.fetch(call(arrays.put(x))))
