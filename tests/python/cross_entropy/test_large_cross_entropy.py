# SPDX-License-Identifier: Apache-2.0
"""Cross-entropy of more than 2^31 logits on a GPU with PyTorch.

`FLOWK_TEST_LARGE=1 FLOWK_TEST_LIBRARY=cuda pytest tests -k large_cross_entropy` takes up to 5 GB of device memory and
a few seconds.
"""

from __future__ import annotations

import os

import pytest

import pyflowk

torch = pytest.importorskip("torch") if os.environ.get("FLOWK_TEST_LARGE") == "1" else None
pytestmark = pytest.mark.skipif(torch is None, reason="FLOWK_TEST_LARGE is not 1")


@pytest.mark.parametrize("shape", [(16_400, 131_072), (42_800, 50_257)])
def test_more_than_2_to_the_31_logits_are_right(shape: tuple[int, int]) -> None:
    rows, columns = shape
    logits = torch.empty(shape, dtype=torch.bfloat16, device="cuda")
    for row in range(0, rows, 1024):
        logits[row : row + 1024].normal_()
    assert logits.numel() > 2**31
    targets = torch.randint(0, columns, (rows,), device="cuda")
    targets[0] = columns - 1
    loss, lse = pyflowk.cross_entropy(logits, targets)
    checked = [0, 1, rows // 2, rows - 1]
    rows_checked = [logits[row].float() for row in checked]
    expected = torch.stack([one.logsumexp(-1) for one in rows_checked])
    torch.testing.assert_close(lse[checked], expected, rtol=1e-5, atol=1e-5)
    of_target = torch.stack([one[targets[row]] for one, row in zip(rows_checked, checked)])
    torch.testing.assert_close(loss[checked], expected - of_target, rtol=1e-5, atol=1e-5)
    dloss = torch.ones(rows, device="cuda")
    gradient = pyflowk.cross_entropy_backward(logits, targets, lse, dloss, out=logits)
    for row, one, total in zip(checked, rows_checked, expected):
        slope = torch.exp(one - total)
        slope[targets[row]] -= 1
        torch.testing.assert_close(gradient[row].float(), slope, rtol=1e-2, atol=1e-10)
