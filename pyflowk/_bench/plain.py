# SPDX-License-Identifier: Apache-2.0
"""The kernels of plain_kernels.cu, which the articles start from, as contenders."""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from .._native import driver
from .tensors import Tensor
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


def launch_of(work: Work, i: int) -> tuple[str, tuple[int, int, int], int, list[Any]]:
    """Kernel, blocks, threads and parameters (ctypes values) of buffer set i; TypeError if there is no kernel."""
    (x, *side), out = work.operands[i], work.outs[i]
    count = math.prod(out.shape)
    if not out.is_contiguous() or not (work.op == "permute" or x.is_contiguous()):
        raise TypeError("no plain kernel for strides")
    blocks = (min(-(-count // THREADS), MAX_BLOCKS), 1, 1)
    pointers = [ctypes.c_uint64(tensor.ptr) for tensor in (x, *side, out)]
    if work.op == "permute" and work.function == "permute" and len(x.shape) <= MAX_RANK and count < 2**31:
        strides = [x.strides[axis] for axis in work.axes]  # type: ignore[attr-defined]
        ints = ctypes.c_int32 * MAX_RANK
        return (
            f"permute_{x.itemsize}",
            blocks,
            THREADS,
            [*pointers, PermuteIndex(len(x.shape), count, ints(*out.shape), ints(*strides))],
        )
    if work.op == "elementwise" and work.function == "unary" and work.types == "f32,f16":
        return "cast_to_half", blocks, THREADS, [*pointers, ctypes.c_int64(count)]
    if work.op == "prelu" and work.function == "prelu" and work.types == "f32" and count < 2**31:
        alpha: Tensor = work.alpha  # type: ignore[attr-defined]
        _, channels, inner = x.shape
        sizes = [ctypes.c_int32(number) for number in (count, channels, inner)]
        return "prelu", blocks, THREADS, [pointers[0], ctypes.c_uint64(alpha.ptr), pointers[1], *sizes]
    if work.op == "softmax" and work.kind in ("dense", "lengths") and work.types == "f32":
        name = "softmax_by_mask" if work.kind == "dense" else "softmax_by_length"
        *rows, columns = x.shape
        numbers = [ctypes.c_int32(columns), ctypes.c_float(work.scale)]  # type: ignore[attr-defined]
        return name, (rows[0], rows[1], rows[2]), 32, [*pointers, *numbers]
    raise TypeError("no plain kernel for it")


def plain_call(machine: Any, work: Work) -> Callable[[int], None]:
    """work(i), a launch on buffer set i."""
    launches = [launch_of(work, i) for i in range(work.num_sets)]
    kernel = int(_kernels().get_kernel(launches[0][0]).handle)

    def arrays(parameters: list[Any]) -> Any:
        return (ctypes.c_void_p * len(parameters))(*(ctypes.addressof(one) for one in parameters))

    ready = [(blocks, threads, arrays(parameters)) for _, blocks, threads, parameters in launches]

    def call(i: int) -> None:
        blocks, threads, parameters = ready[i]
        driver._call("cuLaunchKernel", kernel, *blocks, threads, 1, 1, 0, machine.stream, parameters, None)

    call.launches = launches  # type: ignore[attr-defined]  # keeps the parameters alive
    return call
