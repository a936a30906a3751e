# SPDX-License-Identifier: Apache-2.0
"""PReLU of more than 2^31 elements, forward and backward, on a GPU with PyTorch.

`FLOWK_TEST_LARGE=1 FLOWK_TEST_LIBRARY=cuda pytest tests -k large_prelu` takes up to 40 GB of device memory
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
    ((3, 1, 2**30), 1),
    ((1_370_000, 32, 49), 1),
    ((45_000, 1000, 49), 1),
    ((2**26 + 1, 64), 1),
    ((43_000_001, 50), 1),
    ((1, 2**31 + 33), 1),
]


# The gradient of the first case's alpha sums 3 * 2^29 products of normal numbers: its standard deviation is 40132 times
# dy's. float16 ends at 65504, 6.5 standard deviations away; those of dy = 1 would pass it in one run of ten.
DY_DEVIATION = 0.25


@pytest.mark.parametrize(("shape", "axis"), CASES)
def test_more_than_2_to_the_31_elements_are_right(shape: tuple[int, ...], axis: int) -> None:
    torch.manual_seed(1)
    x, dy = (torch.empty(shape, dtype=torch.float16, device="cuda") for _ in range(2))
    alpha = torch.rand(shape[axis], device="cuda").half()
    assert x.numel() > 2**31
    parts = slices(shape)
    for part in parts:
        x[part].normal_()
        dy[part].normal_(std=DY_DEVIATION)
    y = pyflowk.prelu(x, alpha, axis)
    alphas = alpha.float().view([-1 if d == axis else 1 for d in range(len(shape))])
    for part in parts:
        assert torch.equal(y[part], gated(x[part], x[part], alphas, part))
    dx, dalpha = pyflowk.prelu_backward(dy, x, alpha, axis, dx_out=y)
    slices_channels = shape.index(max(shape)) == axis
    exact = magnitude = 0
    for part in parts:
        assert torch.equal(dx[part], gated(x[part], dy[part], alphas, part))
        terms = torch.where(x[part] > 0, 0.0, x[part].double() * dy[part].double())
        others = [d for d in range(len(shape)) if d != axis]
        if slices_channels:
            assert_is_sum(dalpha[part[axis]], terms.sum(others), terms.abs().sum(others))
        else:
            exact, magnitude = exact + terms.sum(others), magnitude + terms.abs().sum(others)
    if not slices_channels:
        assert_is_sum(dalpha, exact, magnitude)


def assert_is_sum(dalpha: Any, exact: Any, magnitude: Any) -> None:
    error = (dalpha.double() - exact).abs()
    assert bool((error <= 1e-6 * magnitude + 2.0**-11 * exact.abs() + 2.0**-25).all())


def gated(x: Any, kept: Any, alphas: Any, part: tuple[slice, ...]) -> Any:
    """x > 0 ? kept : alpha * kept"""
    own = alphas[tuple(place if extent > 1 else slice(None) for place, extent in zip(part, alphas.shape, strict=False))]
    return torch.where(x > 0, kept.float(), own * kept.float()).half()


def slices(shape: tuple[int, ...]) -> list[tuple[slice, ...]]:
    """Parts of an array along its longest dimension, to spare memory."""
    d = shape.index(max(shape))
    step = -(-shape[d] // 32)
    return [(slice(None),) * d + (slice(first, first + step),) for first in range(0, shape[d], step)]
