# SPDX-License-Identifier: Apache-2.0
"""libpyflowk_torch, the kernels in C: they give the values of the kernels in Python, and their errors."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

import pytest
from source_tree import ROOT

torch = pytest.importorskip("torch")

from torch_calls import DEVICES, calls, label  # noqa: E402

import pyflowk  # noqa: E402
from pyflowk._torch import kernels  # noqa: E402
from pyflowk._torch.operators import NAMES  # noqa: E402

IN_PYTHON = {"prelu_backward", "masked_softmax", "masked_softmax_backward", "trunc_div"}


class _Dispatched:
    """The operators without the way past the dispatcher that torch.ops.flowk.NAME takes for plain calls."""

    def __getattr__(self, name: str) -> Any:
        return getattr(torch.ops.flowk, name).default


flowk = _Dispatched()
needs_library = pytest.mark.skipif(kernels._library() is None, reason="libpyflowk_torch is not built")


@needs_library
def test_which_operators_have_a_kernel_in_c() -> None:
    assert {name for name in NAMES if not hasattr(flowk, f"_{name}")} == IN_PYTHON


@needs_library
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("number", range(len(calls())), ids=[label(call) for call in calls()])
def test_values_and_strides_are_those_of_the_python_kernel(number: int, device: str) -> None:
    call = calls(device)[number]
    if call.name in IN_PYTHON:
        return
    for dtype in (torch.float16, torch.float32, torch.float64):
        arguments = [
            one.to(dtype) if isinstance(one, torch.Tensor) and one.is_floating_point() else one
            for one in call.arguments
        ]
        own = call.operator(*arguments, **call.options)
        python = getattr(flowk, f"_{call.name}")(*arguments, **call.options)
        torch.testing.assert_close(own, python, rtol=0, atol=0, equal_nan=True, check_stride=True)


@needs_library
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
                own, python = getattr(flowk, name)(*arguments), getattr(flowk, f"_{name}")(*arguments)
                torch.testing.assert_close(own, python, rtol=0, atol=0, check_stride=own.numel() > 0)
        for y in views:
            try:
                expected = torch.sub(x, y)
            except RuntimeError:
                with pytest.raises(ValueError, match=r"^shapes do not broadcast to one"):
                    flowk.sub(x, y)
                continue
            torch.testing.assert_close(flowk.sub(x, y), expected)


BAD_CALLS = {
    "add": (ValueError, lambda x: pyflowk.add(x, torch.ones(5)), "shapes do not broadcast to one"),
    "permute": (ValueError, lambda x: pyflowk.permute(x, (0, 0)), r"axes\[1\] = 0, but axes must name each dimension"),
    "prelu": (ValueError, lambda x: pyflowk.prelu(x, torch.ones(4)), r"alpha has shape \(4,\), must have one"),
    "softmax": (ValueError, lambda x: pyflowk.softmax(x.sum()), "x has no dimensions"),
    "sub": (TypeError, lambda x: flowk.sub(x > 0, x > 0), "x has dtype bool, must be integers or floats"),
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
    with torch.inference_mode(), pytest.raises(RuntimeError, match="must name each dimension once"):
        flowk.permute(x, [0, 0])  # below autograd the error has no caller in Python that takes it
    del x
    gc.collect()
    assert alive() is None
    with pytest.raises(RuntimeError, match="expected at most"):
        flowk.relu(torch.ones(3), 1, 2, 3, 4)  # PyTorch's own error, and not the one before


@needs_library
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


def test_a_pytorch_that_lacks_a_function_is_named(tmp_path: Path) -> None:
    compiler = shutil.which("cc")
    library = next(filter(os.path.isfile, kernels._paths([os.environ.get("FLOWK_LIBRARY", "")])), None)
    if library is None or compiler is None:
        pytest.skip("no C compiler or no libpyflowk_torch")
    empty = tmp_path / "empty.so"
    subprocess.run([compiler, "-shared", "-x", "c", "/dev/null", "-o", str(empty)], check=True)
    code = f"""
import ctypes
ctypes.CDLL({str(empty)!r})
find = ctypes.CDLL({str(library)!r}).pyflowk_torch_find
find.restype = ctypes.c_char_p
print(find(b"/nowhere.so").decode(), find({str(empty)!r}.encode()).decode())
"""
    result = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert result.stdout.split() == ["torch._C", "aoti_torch_abi_version"]


def test_the_sources_include_nothing_of_pytorch_or_python() -> None:
    for path in (ROOT / "pyflowk" / "_torch").glob("*.[ch]"):
        for line in path.read_text().splitlines():
            assert not line.startswith("#include") or ("Python.h" not in line and "<torch" not in line), path
