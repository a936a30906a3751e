# SPDX-License-Identifier: Apache-2.0
"""Softmax of more than 2^31 elements, and of more than 2^31 rows, on a GPU with PyTorch.

`FLOWK_TEST_LARGE=1 FLOWK_TEST_LIBRARY=cuda pytest tests -k large_softmax` takes up to 20 GB of device memory
and a few seconds.
"""

from __future__ import annotations

import os
from typing import Any

import pytest

import pyflowk

torch = pytest.importorskip("torch") if os.environ.get("FLOWK_TEST_LARGE") == "1" else None
pytestmark = pytest.mark.skipif(torch is None, reason="FLOWK_TEST_LARGE is not 1")

CASES = [
    ("float16", (2200, 1000, 1024)),
    ("float16", (2_900_000, 777)),
    ("bfloat16", (2100, 2**20)),
    ("float16", (2**31 + 33, 1)),
    ("float16", (2**30 + 7, 3)),
]


@pytest.mark.parametrize(("dtype", "shape"), CASES)
def test_more_than_2_to_the_31_elements_are_right(dtype: str, shape: tuple[int, ...]) -> None:
    x = torch.empty(shape, dtype=getattr(torch, dtype), device="cuda")
    for part in slices(shape[0]):
        x[part].normal_()
    mask = torch.rand(shape[1:], device="cuda") < 0.25 if len(shape) > 2 else torch.zeros(shape[-1:], device="cuda") > 0
    assert x.numel() > 2**31
    y = pyflowk.masked_softmax(x, mask, scale=0.5)
    dx = pyflowk.masked_softmax_backward(x, y, scale=0.5)  # x stands for dy
    for part in slices(shape[0]):
        scores = (x[part].float() * 0.5).masked_fill(mask, -torch.inf)
        expected = torch.softmax(scores, dim=-1).nan_to_num(0)
        torch.testing.assert_close(y[part].float(), expected, rtol=1e-2, atol=1e-6)
        terms = y[part].float() * x[part].float()
        gradient = 0.5 * (terms - y[part].float() * terms.sum(dim=-1, keepdim=True))
        torch.testing.assert_close(dx[part].float(), gradient, rtol=2e-2, atol=1e-5)


@pytest.mark.parametrize(("dtype", "shape"), [("float16", (2_900_000, 777)), ("float16", (2**31 + 33, 1))])
def test_lengths_of_more_than_2_to_the_31_elements_are_right(dtype: str, shape: tuple[int, ...]) -> None:
    rows, columns = shape
    x = torch.empty(shape, dtype=getattr(torch, dtype), device="cuda").normal_()
    lengths = torch.empty(rows, dtype=torch.int32, device="cuda").random_(0, columns + 1)
    y = pyflowk.masked_softmax(x, lengths=lengths, scale=0.5)
    dx = pyflowk.masked_softmax_backward(x, y, lengths=lengths, scale=0.5)
    for part in slices(rows):
        masked = torch.arange(columns, device="cuda") >= lengths[part, None]
        expected = torch.softmax((x[part].float() * 0.5).masked_fill(masked, -torch.inf), dim=-1).nan_to_num(0)
        torch.testing.assert_close(y[part].float(), expected, rtol=1e-2, atol=1e-6)
        terms = y[part].float() * x[part].float()
        gradient = 0.5 * (terms - y[part].float() * terms.sum(dim=-1, keepdim=True))
        torch.testing.assert_close(dx[part].float(), gradient, rtol=2e-2, atol=1e-5)


def slices(extent: int) -> list[Any]:
    """Ranges that cover `extent`, to spare memory."""
    step = max(1, extent // 16)
    return [slice(first, first + step) for first in range(0, extent, step)]
