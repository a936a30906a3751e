# SPDX-License-Identifier: Apache-2.0
"""The fast path of ElementwiseKernel launches what the path through Python launches. Stand-ins for the compiler and for
the driver's launch need no GPU: they keep what is launched."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import struct
import weakref
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
from framed_arrays import DEVICE, Framed, register_framed_arrays

import pyflowk
from pyflowk import ElementwiseKernel
from pyflowk._calls import call_path
from pyflowk._elementwise import kernel as kernel_module
from pyflowk._native import driver, library

pytestmark = pytest.mark.skipif(call_path.program_cache() is None, reason="no program cache")
MATRIX = np.arange(24, dtype=np.float32).reshape(4, 6)
FUSED = ("T x, T y, float32 a", "T z", "z = a * x * y")
_PARAMS_BYTES = {2: 132, 3: 188, 4: 244}  # of the contiguous kernel, by the number of arrays, without its padding


class Launch(NamedTuple):
    """A launch of the contiguous kernel."""

    kernel: int
    size: tuple[int, int, int]  # blocks, threads, bytes of shared memory
    stream: int
    params: bytes
    members: bytes


class Launches:
    """The launches that were made, each with its path."""

    def __init__(self) -> None:
        self.in_python: list[Launch] = []
        self.in_c: list[Launch] = []
        self.compiled: list[tuple[str, int]] = []
        self.params_bytes, self.members_bytes = _PARAMS_BYTES[3], 8
        self.error = 0
        unsigned, pointer = ctypes.c_uint, ctypes.c_void_p
        prototype = ctypes.CFUNCTYPE(
            *(ctypes.c_int, pointer, *[unsigned] * 7, pointer, ctypes.POINTER(pointer), ctypes.POINTER(pointer))
        )
        self.entry = prototype(self._launch_from_c)

    def _launch_from_c(self, kernel: int, *rest: Any) -> int:
        blocks, one_y, one_z, threads, two_y, two_z, shared_bytes, stream, parameters, extra = rest
        assert (one_y, one_z, two_y, two_z) == (1, 1, 1, 1) and not extra
        params, members = parameters[0], parameters[1]
        self.in_c.append(self._launch(kernel, (blocks, threads, shared_bytes), stream or 0, params, members))
        return self.error

    def launch(self, kernel: int, blocks: int, threads: int, shared: int, stream: int, params: int, factory: bytes):
        """driver.launch()."""
        kept = ctypes.create_string_buffer(factory)
        members = ctypes.addressof(kept)
        self.in_python.append(self._launch(kernel, (blocks, threads, shared), stream, params, members))

    def _launch(self, kernel: int, size: tuple[int, int, int], stream: int, params: int, members: int) -> Launch:
        read = ctypes.string_at
        return Launch(kernel, size, stream, read(params, self.params_bytes), read(members, self.members_bytes))

    def compile(self, formula: Any, name: str, pack_elements: int, architecture: str) -> Any:
        """Stands in for jit.compile_kernel()."""
        self.compiled.append((name, pack_elements))
        handle = 1000 + len(self.compiled)
        return SimpleNamespace(get_kernel=lambda expression: SimpleNamespace(handle=handle))


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch, host_library: None) -> Iterator[Launches]:
    host = library.for_device(None, "x")
    monkeypatch.setitem(library.loaded, DEVICE, library._open(host._name))  # another object than the host's
    register_framed_arrays(monkeypatch)
    launches = Launches()
    monkeypatch.setattr(kernel_module, "compile_kernel", launches.compile)
    monkeypatch.setattr(driver, "launch", launches.launch)
    monkeypatch.setattr(driver, "current", lambda device: contextlib.nullcontext())
    monkeypatch.setattr(driver, "architecture", lambda device: "sm_90")
    monkeypatch.setattr(driver, "allow_shared_memory", lambda kernel, device: None)
    address = ctypes.cast(launches.entry, ctypes.c_void_p).value
    monkeypatch.setattr(driver, "address_of", lambda name: address if name == "cuLaunchKernel" else 0)
    monkeypatch.setattr(call_path, "_check_device", lambda: None)
    yield launches
    call_path.program_cache().forget()


def aligned(shape: tuple[int, ...], dtype: Any = np.float32, offset: int = 0) -> Framed:
    """An array at a multiple of 256 bytes and `offset` more."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    memory = np.zeros(size + 512, np.uint8)
    start = -memory.ctypes.data % 256 + offset
    return Framed(memory[start : start + size].view(dtype).reshape(shape))


def test_the_second_call_launches_the_same_from_c(launches: Launches) -> None:
    kernel, x, y, out = ElementwiseKernel(*FUSED), aligned((4, 6)), aligned((4, 6)), aligned((4, 6))
    calls = [(0.5, 0), (0.5, 0), (2.0, 7), (1e39, 0)]
    for number, stream in calls:
        assert kernel(x, y, number, out, stream=stream) is out
    (first,) = launches.in_python
    assert launches.compiled == [("elementwise_contiguous", 4)]
    assert first.members[:4] == struct.pack("=f", 0.5)
    for launch, (number, stream) in zip(launches.in_c, calls[1:], strict=True):
        assert struct.unpack("=f", launch.members[:4]) == (number if number < 1e38 else float("inf"),)
        assert launch == first._replace(stream=stream, members=launch.members)


def test_the_addresses_are_those_of_the_call(launches: Launches) -> None:
    kernel = ElementwiseKernel(*FUSED)
    arrays = [[aligned((4, 6)) for _ in range(3)] for _ in range(3)]
    for x, y, out in arrays:
        kernel(x, y, 2.0, out=out)
    for launch, (x, y, out) in zip(launches.in_python + launches.in_c, arrays):
        words = struct.unpack("=" + "Q" * (len(launch.params) // 8), launch.params[: len(launch.params) // 8 * 8])
        assert {out.data.ptr, x.data.ptr, y.data.ptr} <= set(words)


def test_a_new_result_is_made_for_each_call(launches: Launches) -> None:
    kernel, x = ElementwiseKernel("T x, float64 a, int8 b", "int16 z", "z = a * x + b"), aligned((4, 6))
    launches.params_bytes, launches.members_bytes = _PARAMS_BYTES[2], 16
    results = [kernel(x, number, -3) for number in (0.1, 0.2, 0.3)]
    assert len(launches.in_python) == 1 and len(launches.in_c) == 2
    assert len({result.data.ptr for result in results}) == 3
    assert all((result.shape, result.dtype) == ((4, 6), np.int16) for result in results)
    for launch, result, number in zip(launches.in_python + launches.in_c, results, (0.1, 0.2, 0.3)):
        assert result.data.ptr in struct.unpack("=16Q", launch.params[:128])
        assert struct.unpack("=db", launch.members[:9]) == (number, -3)


@pytest.mark.parametrize(("dtype", "text"), [(np.float16, "=f"), (np.float32, "=f"), (np.float64, "=d")])
def test_numbers_have_the_type_that_the_formula_computes_in(launches: Launches, dtype: Any, text: str) -> None:
    kernel, x = ElementwiseKernel("T x, T a", "T z", "z = a * x"), aligned((4, 6), dtype)
    launches.params_bytes = _PARAMS_BYTES[2]
    for number in (0.1, 0.3, 7.0):
        kernel(x, number)
    for launch, number in zip(launches.in_python + launches.in_c, (0.1, 0.3, 7.0), strict=True):
        assert launch.members[: struct.calcsize(text)] == struct.pack(text, number)
    assert len(launches.in_c) == 2


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.uint32, np.int64, np.uint64])
def test_an_int_is_a_number_of_the_call(launches: Launches, dtype: Any) -> None:
    kernel = ElementwiseKernel(f"float32 x, {np.dtype(dtype)} a, float32 b", "float32 z", "z = a * x + b")
    x, launches.params_bytes, launches.members_bytes = aligned((4, 6)), _PARAMS_BYTES[2], 16
    bounds = np.iinfo(dtype)
    for number in (1, int(bounds.min), int(bounds.max), 7):
        kernel(x, number, 3)
        launch = (launches.in_c or launches.in_python)[-1] if number < 2**63 else launches.in_python[-1]
        assert launch.members[: bounds.dtype.itemsize] == np.array(number, dtype).tobytes()
        assert struct.unpack("=f", launch.members[8:12]) == (3.0,)
    assert len(launches.in_c) == (3 if bounds.max < 2**63 else 2)
    for number in (int(bounds.min) - 1, int(bounds.max) + 1):
        with pytest.raises(OverflowError, match=r"a: Python integer .* out of bounds"):
            kernel(x, number, 3)
    assert call_path.program_cache().num_plans() == 1


def test_another_alignment_is_another_kernel_which_python_compiles(launches: Launches) -> None:
    kernel, out = ElementwiseKernel("T x", "T z", "z = x"), aligned((30,), np.int8)
    launches.params_bytes, launches.members_bytes = _PARAMS_BYTES[2], 0
    rows = aligned((4, 30), np.int8)
    for _ in range(3):
        kernel(rows, out=aligned((4, 30), np.int8))
    num_in_python, num_compiled = len(launches.in_python), len(launches.compiled)
    assert (num_in_python, num_compiled) == (1, 1)
    for _ in range(3):  # of other shapes: the same formula's table
        kernel(aligned((30,), np.int8), out=out)
    assert len(launches.compiled) == num_compiled
    step = kernel._kernels[next(iter(kernel._kernels))]
    table = step.table(DEVICE)
    index = next(index for index, handle in enumerate(table) if handle)
    table[index] = None  # as if no call had needed it
    before = len(launches.in_python), len(launches.in_c)
    kernel(aligned((30,), np.int8), out=out)
    assert (len(launches.in_python), len(launches.in_c)) == (before[0] + 1, before[1])
    kernel(aligned((30,), np.int8), out=out)
    assert (len(launches.in_python), len(launches.in_c)) == (before[0] + 1, before[1] + 1)


def test_no_element_is_no_launch(launches: Launches) -> None:
    kernel, x = ElementwiseKernel(*FUSED), aligned((0, 6))
    for _ in range(3):
        assert kernel(x, x, 1.5).shape == (0, 6)
    assert not launches.in_python and not launches.in_c and not launches.compiled


def test_errors_are_python_s(launches: Launches) -> None:
    kernel, memory = ElementwiseKernel("T first, T second", "T z", "z = first"), aligned((64,))
    good = Framed(memory.array[:12]), Framed(memory.array[20:32]), Framed(memory.array[40:52])
    for _ in range(3):
        kernel(good[0], good[1], out=good[2])
    with pytest.raises(pyflowk.FlowkValueError, match="overlaps second"):
        kernel(good[0], good[1], out=Framed(memory.array[22:34]))
    with pytest.raises(TypeError, match="shift is a float, must be an integer: its type is int32"):
        ElementwiseKernel("T x, int32 shift", "T z", "z = x + shift")(good[0], 2.5)
    with pytest.raises(OverflowError, match="shift: Python integer 1099511627776 out of bounds for int32"):
        ElementwiseKernel("T x, int32 shift", "T z", "z = x + shift")(good[0], 2**40)
    launches.error = 1  # of the driver: the call is made again in Python, where it succeeds
    num_in_python = len(launches.in_python)
    kernel(good[0], good[1], out=good[2])
    assert len(launches.in_python) == num_in_python + 1


def test_a_kernel_with_more_inputs_than_the_call_path_takes_runs_in_python(launches: Launches) -> None:
    numbers = [f"float64 a{index}" for index in range(20)]
    kernel, x = ElementwiseKernel(", ".join(("T x", *numbers)), "T z", "z = x + a19"), aligned((4, 6))
    launches.params_bytes, launches.members_bytes = _PARAMS_BYTES[2], 160
    for _ in range(3):
        kernel(x, *map(float, range(20)))
    assert len(launches.in_python) == 3
    assert struct.unpack("=20d", launches.in_python[0].members) == tuple(map(float, range(20)))
    fits = ElementwiseKernel(", ".join(("T x", *numbers[:13])), "T z", "z = x + a12")
    launches.members_bytes = 104
    for _ in range(3):
        fits(x, *map(float, range(13)))
    assert len(launches.in_c) == 2
    assert struct.unpack("=13d", launches.in_c[0].members) == tuple(map(float, range(13)))


def test_a_kernel_and_its_plans_end_together(launches: Launches) -> None:
    kernel, x = ElementwiseKernel(*FUSED), aligned((4, 6))
    for _ in range(3):
        kernel(x, x, 2.0)
    assert call_path.program_cache().num_plans() == 1
    alive = weakref.ref(kernel)
    del kernel
    gc.collect()
    assert alive() is None
    assert call_path.program_cache().num_plans() == 0
