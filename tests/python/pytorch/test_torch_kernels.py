# SPDX-License-Identifier: Apache-2.0
"""The kernels of torch.ops.flowk: they give the values of plain calls, and their errors."""

from __future__ import annotations

import gc
import os
import weakref
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch_calls import DEVICES  # noqa: E402

import pyflowk  # noqa: E402


class _Dispatched:
    """The operators as overloads, which the dispatcher calls."""

    def __getattr__(self, name: str) -> Any:
        return getattr(torch.ops.flowk, name).default


flowk = _Dispatched()


def test_layouts() -> None:
    base = torch.arange(2 * 3 * 4 * 5.0).reshape(2, 3, 4, 5)
    views = [
        *(base, base.movedim(1, -1), base[:, :, ::2], base[..., :1], base.expand(2, 2, 3, 4, 5), base[1, 2, 3, 4]),
        *(base.mT, base.to(memory_format=torch.channels_last), base[:0], base[:, :1].expand(2, 3, 4, 5)),
    ]
    for x in views:
        for name in ("relu", "batch_transpose", "softmax", "prelu"):
            arguments = (x, torch.tensor([0.5])) if name == "prelu" else (x,)
            if x.dim() >= 2:
                own, plain = getattr(flowk, name)(*arguments), getattr(pyflowk, name)(*arguments)
                torch.testing.assert_close(own, plain, rtol=0, atol=0, check_stride=own.numel() > 0)
        for y in views:
            try:
                expected = torch.sub(x, y)
            except RuntimeError:
                with pytest.raises(ValueError, match=r"^shapes do not broadcast to one"):
                    flowk.subtract(x, y)
                continue
            torch.testing.assert_close(flowk.subtract(x, y), expected)


BAD_CALLS = {
    "add": (ValueError, lambda x: pyflowk.add(x, torch.ones(5)), "shapes do not broadcast to one"),
    "permute": (ValueError, lambda x: pyflowk.permute(x, (0, 0)), r"axes\[1\] = 0, but axes must name each dimension"),
    "prelu": (ValueError, lambda x: pyflowk.prelu(x, torch.ones(4)), r"alpha has shape \(4,\), must have one"),
    "softmax": (ValueError, lambda x: pyflowk.softmax(x.sum()), "x has no dimensions"),
    "subtract": (TypeError, lambda x: flowk.subtract(x > 0, x > 0), "x has dtype bool, must be integers or floats"),
    "dispatched": (ValueError, lambda x: flowk.permute(x, [0, 0]), r"axes\[1\] = 0, but axes must name each"),
}


@pytest.mark.parametrize("name", BAD_CALLS)
@pytest.mark.parametrize("requires_grad", [False, True])
def test_errors_are_those_of_a_plain_call(name: str, requires_grad: bool) -> None:
    error, call, text = BAD_CALLS[name]
    with pytest.raises(error, match=f"^{text}"):
        call(torch.ones(2, 3, requires_grad=requires_grad))


@pytest.mark.parametrize("device", DEVICES)
def test_no_memory_is_torch_s_own_error(device: str) -> None:
    """torch.OutOfMemoryError on a GPU, which those who look for a batch size catch."""
    x = torch.ones(1, device=device, requires_grad=True).expand(1 << 45)
    with pytest.raises(RuntimeError) as expected:
        torch.relu(x)
    for call in (lambda: pyflowk.relu(x), lambda: flowk.relu(x), lambda: torch.func.vmap(pyflowk.relu)(x[None])):
        with pytest.raises(expected.type) as caught:
            call()
        assert type(caught.value) is expected.type
        assert str(caught.value)[:60] == str(expected.value)[:60]


def test_errors_hold_no_tensors() -> None:
    x = torch.ones(2, 3)
    alive = weakref.ref(x)
    with torch.inference_mode(), pytest.raises(ValueError, match="must name each dimension once"):
        flowk.permute(x, [0, 0])
    del x
    gc.collect()
    assert alive() is None
    with pytest.raises(RuntimeError, match="expected at most"):
        flowk.relu(torch.ones(3), 1, 2, 3, 4)  # PyTorch's own error, and not the one before


def test_nothing_leaks() -> None:
    x, y = torch.ones(1000, 100), torch.ones(3)

    def call_all() -> None:
        flowk.relu(x)
        flowk.add(x, 2 * x.int())
        flowk.permute(x, [1, 0])
        with pytest.raises(ValueError, match="broadcast"):
            flowk.add(x, y)
        with pytest.raises(ValueError, match="axes"):
            flowk.permute(x, [0, 0])

    call_all()  # the first error of a kind loads PyTorch's tables of symbols
    before = resident_tensors()
    for _ in range(40):
        call_all()
    assert resident_tensors() - before < 20


def resident_tensors() -> int:
    """The memory of this process, in the results of the test above."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") // (1000 * 100 * 4)
