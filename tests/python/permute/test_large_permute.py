# SPDX-License-Identifier: Apache-2.0
"""More than 2^31 elements, on a GPU with PyTorch.

`FLOWK_TEST_LARGE=1 FLOWK_TEST_LIBRARY=cuda pytest tests -k large_permute` takes up to 20 GB of device memory
and a few seconds.
"""

from __future__ import annotations

import os

import pytest

import pyflowk

torch = pytest.importorskip("torch") if os.environ.get("FLOWK_TEST_LARGE") == "1" else None
pytestmark = pytest.mark.skipif(torch is None, reason="FLOWK_TEST_LARGE is not 1")

CASES = [
    ("float16", (46349, 46351), (1, 0), "general_tile"),
    ("float16", (46400, 46400), (1, 0), "aligned_tile"),
    ("float16", (3, 715_827_904), (1, 0), "channels"),
    ("float32", (2, 33_000, 33_000), (2, 0, 1), "aligned_tile"),
    ("uint8", (7, 3, 150_000_001), (1, 0, 2), "copy_shifted_rows"),
    ("uint8", (4_400_000_000,), (0,), "copy_rows"),
]


@pytest.mark.parametrize(("dtype", "shape", "axes", "kernel"), CASES)
def test_more_than_2_to_the_31_elements_are_right(dtype: str, shape: tuple, axes: tuple, kernel: str) -> None:
    x = torch.empty(shape, dtype=getattr(torch, dtype), device="cuda")
    x.view(torch.uint8).random_(0, 256)
    assert x.numel() > 2**31
    assert pyflowk.explain(pyflowk.permute, x, axes).startswith(kernel)
    result = pyflowk.permute(x, axes)
    expected = x.permute(axes)
    for first in range(0, shape[axes[0]], max(1, shape[axes[0]] // 16)):  # in slices, to spare memory
        part = slice(first, first + max(1, shape[axes[0]] // 16))
        same = result[part].contiguous().view(torch.uint8) == expected[part].contiguous().view(torch.uint8)
        assert bool(same.all())


@pytest.mark.parametrize(
    ("dtype", "out_dtype", "shape", "axes"),
    [
        ("float16", "float8_e4m3fn", (46349, 46351), (1, 0)),
        ("uint8", "float16", (2_200_000_000,), (0,)),
        ("uint8", "bfloat16", (7, 3, 110_000_001), (1, 0, 2)),
    ],
)
def test_more_than_2_to_the_31_elements_are_converted_right(
    dtype: str, out_dtype: str, shape: tuple, axes: tuple
) -> None:
    x = torch.empty(shape, dtype=getattr(torch, dtype), device="cuda").random_(0, 16)  # exact in every type
    assert x.numel() > 2**31
    result = pyflowk.permute(x, axes, dtype=out_dtype)
    expected = x.permute(axes)
    step = max(1, shape[axes[0]] // 16)
    for first in range(0, shape[axes[0]], step):
        part = slice(first, first + step)
        wanted = expected[part].to(result.dtype).contiguous()
        assert torch.equal(result[part].contiguous().view(torch.uint8), wanted.view(torch.uint8))


def test_more_than_2_to_the_31_elements_are_transposed_in_a_batch() -> None:
    x = torch.empty((3, 27_001, 27_003), dtype=torch.uint8, device="cuda").random_(0, 256)
    assert x.numel() > 2**31
    result = pyflowk.batch_transpose(x)
    assert all(torch.equal(result[batch], x[batch].t()) for batch in range(3))
