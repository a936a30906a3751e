# SPDX-License-Identifier: Apache-2.0
"""The kernels that the articles start from, of plain_kernels.cu, as contenders."""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from .._native import driver
from .work import Work

THREADS, MAX_BLOCKS = 256, 1 << 16
MAX_RANK = 8  # of struct PermuteIndex


class PermuteIndex(ctypes.Structure):
    """`PermuteIndex` of plain_kernels.cu."""

    _fields_ = [
        ("rank", ctypes.c_int32),
        ("count", ctypes.c_int32),
        ("dst_extents", ctypes.c_int32 * MAX_RANK),
        ("src_strides", ctypes.c_int32 * MAX_RANK),
    ]


@functools.cache
def _kernels() -> Any:
    core = import_module("cuda.core")
    source = (Path(__file__).parent / "plain_kernels.cu").read_text()
    options = core.ProgramOptions(std="c++17", arch=driver.architecture(0))
    return core.Program(source, "c++", options).compile("cubin")


def launch_of(work: Work, i: int) -> tuple[str, tuple[int, ...], int, list[Any]]:
    """Kernel, blocks, threads and parameters (ctypes values) of buffer set i; TypeError if there is no kernel."""
    (x, *others), out = work.operands[i], work.outs[i]
    count = math.prod(out.shape)
    if not out.is_contiguous() or not (work.op == "permute" or x.is_contiguous()):
        raise TypeError("no plain kernel for strides")
    blocks = (min(-(-count // THREADS), MAX_BLOCKS), 1, 1)
    pointers = [ctypes.c_uint64(tensor.ptr) for tensor in (x, *others, out)]
    case: Any = work
    if work.function == "permute" and len(x.shape) <= MAX_RANK and count < 2**31:
        ints = ctypes.c_int32 * MAX_RANK
        strides = ints(*(x.strides[axis] for axis in case.axes))
        index = PermuteIndex(len(x.shape), count, ints(*out.shape), strides)
        return f"permute_{x.itemsize}", blocks, THREADS, [*pointers, index]
    if work.function == "unary" and work.types == "f32,f16":
        return "cast_to_half", blocks, THREADS, [*pointers, ctypes.c_int64(count)]
    if work.function == "prelu" and work.types == "f32" and count < 2**31:
        sizes = [ctypes.c_int32(number) for number in (count, *x.shape[1:])]
        return "prelu", blocks, THREADS, [pointers[0], ctypes.c_uint64(case.alpha.ptr), pointers[1], *sizes]
    if work.op == "softmax" and work.kind in ("dense", "lengths") and work.types == "f32":
        name = "softmax_by_mask" if work.kind == "dense" else "softmax_by_length"
        *rows, columns = x.shape
        return name, tuple(rows), 32, [*pointers, ctypes.c_int32(columns), ctypes.c_float(case.scale)]
    raise TypeError("no plain kernel for it")


def plain_call(machine: Any, work: Work) -> Callable[[int], None]:
    """work(i), a launch on buffer set i."""
    launches = [launch_of(work, i) for i in range(work.num_sets)]
    kernel = int(_kernels().get_kernel(launches[0][0]).handle)

    def call(i: int) -> None:
        _, blocks, threads, parameters = launches[i]
        addresses = (ctypes.c_void_p * len(parameters))(*map(ctypes.addressof, parameters))
        driver._call("cuLaunchKernel", kernel, *blocks, threads, 1, 1, 0, machine.stream, addresses, None)

    return call
