# SPDX-License-Identifier: Apache-2.0
"""More than 2^31 elements, on a GPU with PyTorch.

`FLOWK_TEST_LARGE=1 FLOWK_TEST_LIBRARY=cuda pytest tests -k large_elementwise` takes up to 20 GB of device memory and a
few seconds.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

import pyflowk

torch = pytest.importorskip("torch") if os.environ.get("FLOWK_TEST_LARGE") == "1" else None
pytestmark = pytest.mark.skipif(torch is None, reason="FLOWK_TEST_LARGE is not 1")

COUNT = 2**31 + 4099
ROWS, COLUMNS = 46_349, 46_351


def some(dtype: str, *shape: int) -> Any:
    return torch.empty(shape, dtype=getattr(torch, dtype), device="cuda").random_(0, 100)


def check_parts(result: Any, expected: Callable[[slice], Any]) -> None:
    """result[part] == expected(part), in parts of the first dimension to spare memory."""
    step = -(-result.shape[0] // 32)
    for first in range(0, result.shape[0], step):
        part = slice(first, first + step)
        assert torch.equal(result[part], expected(part)), part


def test_more_than_2_to_the_31_elements_of_one_operand_are_right() -> None:
    x = some("int8", COUNT)
    result = pyflowk.negative(x)
    check_parts(result, lambda part: -x[part])
    pyflowk.relu(result, out=result)
    check_parts(result, lambda part: torch.relu(-x[part]))
    check_parts(pyflowk.cast(x, "float16"), lambda part: x[part].half())


def test_more_than_2_to_the_31_elements_of_two_operands_are_right() -> None:
    x, y = some("uint8", COUNT), some("uint8", COUNT)
    check_parts(pyflowk.add(x, y), lambda part: x[part] + y[part])
    check_parts(pyflowk.less(x, y), lambda part: x[part] < y[part])
    check_parts(pyflowk.multiply(x, 3), lambda part: x[part] * 3)


@pytest.mark.parametrize("shape", [(1, COLUMNS), (ROWS, 1)])
def test_more_than_2_to_the_31_elements_of_a_broadcast_are_right(shape: tuple[int, int]) -> None:
    x, y = some("float16", ROWS, COLUMNS), some("float16", *shape)
    result = pyflowk.subtract(x, y)
    check_parts(result, lambda part: x[part] - (y[part] if shape[1] == 1 else y))


def test_more_than_2_to_the_31_elements_of_a_transposed_operand_are_right() -> None:
    x, y = some("uint8", ROWS, COLUMNS), some("uint8", COLUMNS, ROWS)
    check_parts(pyflowk.maximum(x, y.t()), lambda part: torch.maximum(x[part], y.t()[part]))


def test_more_than_2_to_the_31_elements_of_three_operands_are_right() -> None:
    x, y, z = (some("uint8", COUNT) for _ in range(3))
    check_parts(pyflowk.fma(x, y, z), lambda part: x[part] * y[part] + z[part])
    mask = pyflowk.less(x, y)
    check_parts(pyflowk.where(mask, y, z), lambda part: torch.where(mask[part], y[part], z[part]))
