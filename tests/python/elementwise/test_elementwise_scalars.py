# SPDX-License-Identifier: Apache-2.0
"""NumPy scalars without an array: operands as they are in NumPy's functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pyflowk

pytestmark = pytest.mark.usefixtures("host_library")
TWO, THREE = np.float32(2), np.float32(3)

# A call, and what NumPy gives.
CALLS: dict[str, tuple[Callable[[], Any], Any]] = {
    "two scalars": (lambda: pyflowk.add(TWO, THREE), np.add(TWO, THREE)),
    "scalars of two types": (lambda: pyflowk.multiply(np.float16(2), np.float64(3)), np.float64(6)),
    "integers": (lambda: pyflowk.subtract(np.int8(3), np.int16(5)), np.int16(-2)),
    "one operand": (lambda: pyflowk.square(THREE), np.square(THREE)),
    "one operand of another type": (lambda: pyflowk.sqrt(np.int16(4)), np.sqrt(np.int16(4))),
    "a number after": (lambda: pyflowk.add(TWO, 1.5), np.add(TWO, 1.5)),
    "a number before": (lambda: pyflowk.subtract(1, TWO), np.subtract(1, TWO)),
    "a weak number": (lambda: pyflowk.add(np.int8(1), 1.5), np.add(np.int8(1), 1.5)),
    "a float64, which is a float too": (lambda: pyflowk.add(np.float64(1), 2), np.float64(3)),
    "a comparison": (lambda: pyflowk.less(TWO, THREE), np.True_),
    "bool": (lambda: pyflowk.logical_and(np.True_, np.False_), np.False_),
    "three operands": (lambda: pyflowk.fma(TWO, THREE, np.float32(1)), np.float32(7)),
    "a condition alone": (lambda: pyflowk.where(np.True_, 1, 2), np.int64(1)),
    "bounds": (lambda: pyflowk.clip(np.float32(5), 0, 2), np.float32(2)),
    "parameters": (lambda: pyflowk.leaky_relu(np.float32(-2), 0.5), np.float32(-1)),
    "a conversion": (lambda: pyflowk.cast(np.float32(2.5), "int32"), np.int32(2)),
    "a list": (lambda: pyflowk.add(TWO, [1, 2]), np.add(TWO, [1, 2])),
}


@pytest.mark.parametrize("name", CALLS)
def test_the_result_is_numpy_s(name: str) -> None:
    call, expected = CALLS[name]
    for _ in range(3):
        result = call()
        assert type(result) is type(expected)
        assert result.dtype == expected.dtype
        np.testing.assert_array_equal(result, expected)


def test_out_is_written() -> None:
    out = np.zeros((2, 3), np.float32)
    assert pyflowk.add(TWO, THREE, out=out) is out
    np.testing.assert_array_equal(out, 5)


def test_a_plan_of_scalars() -> None:
    of_arrays = pyflowk.explain(pyflowk.add, np.asarray(TWO), np.asarray(THREE))
    assert pyflowk.explain(pyflowk.add, TWO, THREE) == of_arrays


def test_what_is_no_operand_is_refused() -> None:
    with pytest.raises(TypeError, match="x and y are numbers, one at least must be an array"):
        pyflowk.add(1, 2.0)
    with pytest.raises(TypeError, match="y is a NoneType, must be an array or a number"):
        pyflowk.add(TWO, None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="x "):
        pyflowk.add(np.datetime64("2020-01-01"), TWO)  # type: ignore[type-var]
    with pytest.raises(TypeError, match="x is a float32, must be an array"):
        pyflowk.permute(TWO, ())  # type: ignore[type-var]
    with pytest.raises(TypeError, match="must be an array"):
        pyflowk.softmax(TWO)  # type: ignore[type-var]
