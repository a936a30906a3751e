# SPDX-License-Identifier: Apache-2.0
"""bench/sanitize_*.py on the executor, with host memory instead of the CUDA runtime's."""

from __future__ import annotations

import ctypes
import runpy
import sys
import types
from typing import Any

import numpy as np
import pytest
from host_machine import HostMemory
from source_tree import ROOT, tool_at

from pyflowk._native import library


def host_runtime(memories: dict[int, HostMemory]) -> Any:
    """What the scripts call of cuda.bindings.runtime. No byte outside of an allocation is taken."""

    def malloc(num_bytes: int) -> tuple[int, int]:
        memory = HostMemory(num_bytes)
        memories[memory.ptr] = memory
        return 0, memory.ptr

    def free(pointer: int) -> tuple[int]:
        del memories[pointer]
        return (0,)

    def device_bytes(pointer: int, num_bytes: int) -> None:
        assert any(start <= pointer and pointer + num_bytes <= start + one.host.size for start, one in memories.items())

    def copy(dst: int, src: int, num_bytes: int, kind: int) -> tuple[int]:
        device_bytes((src, dst)[kind], num_bytes)
        ctypes.memmove(dst, src, num_bytes)
        return (0,)

    def fill(pointer: int, byte: int, num_bytes: int) -> tuple[int]:
        device_bytes(pointer, num_bytes)
        ctypes.memset(pointer, byte, num_bytes)
        return (0,)

    kinds = types.SimpleNamespace(cudaMemcpyDeviceToHost=0, cudaMemcpyHostToDevice=1)
    names = {"cudaMalloc": malloc, "cudaFree": free, "cudaMemcpy": copy, "cudaMemset": fill, "cudaMemcpyKind": kinds}
    return types.SimpleNamespace(**names, cudaDeviceSynchronize=lambda: (0,))


@pytest.fixture
def memories(monkeypatch: pytest.MonkeyPatch) -> dict[int, HostMemory]:
    """The allocations of the runtime that the scripts import."""
    found: dict[int, HostMemory] = {}
    bindings = types.ModuleType("cuda.bindings")
    bindings.runtime = host_runtime(found)  # type: ignore[attr-defined]
    simt = library.open_backend("simt")
    monkeypatch.setitem(sys.modules, "cuda.bindings", bindings)
    monkeypatch.setattr(library, "open_backend", lambda backend: simt)
    monkeypatch.syspath_prepend(ROOT / "bench")
    monkeypatch.setitem(sys.modules, "sanitizing", None)
    monkeypatch.delitem(sys.modules, "sanitizing")  # each test imports it with its own runtime
    return found


@pytest.mark.parametrize(
    ("operator", "arguments", "kernels"),
    [
        ("permute", [], "7 kernels"),
        ("elementwise", [], "6 kernels"),
        ("prelu", [], "6 kernels"),
        ("softmax", ["staged_rows"], "staged_rows"),
        ("softmax_terms", ["float32", "1000"], "row_in_registers"),
    ],
)
def test_a_script_reaches_every_kernel_with_right_results(
    operator: str,
    arguments: list[str],
    kernels: str,
    memories: dict[int, HostMemory],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    script = ROOT / "bench" / f"sanitize_{operator}.py"
    monkeypatch.setattr(sys, "argv", [str(script), *arguments])
    runpy.run_path(str(script), run_name="__main__")
    text = capsys.readouterr().out
    assert "cases right" in text and kernels in text and not memories


def test_a_wrong_byte_between_the_elements_is_found(memories: dict[int, HostMemory]) -> None:
    tools = tool_at("bench/sanitizing.py")
    for wrong in (False, True):
        tensor = tools.Strided(np.dtype("f4"), [3, 4], [5, 1], 4)
        next(iter(memories.values())).host[4 + 4 * 4] ^= wrong  # after the first row
        assert tensor.is_right() is not wrong
