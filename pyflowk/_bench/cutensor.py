# SPDX-License-Identifier: Apache-2.0
"""cuTENSOR's permutation, by ctypes; the wheels cutensor-cu12 and cutensor-cu13 hold it."""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, files
from typing import Any

from .work import Work

DATA_TYPES = {"f32": 0, "f64": 1, "f16": 2, "bf16": 14}  # cutensorDataType_t
IDENTITY, DEFAULT_ALGORITHM, NO_JIT, MAX_ALIGNMENT = 1, -1, 0, 128
_Pointer = ctypes.c_void_p


@functools.cache
def library() -> Any:
    """libcutensor.so.2; ImportError if it is missing."""
    paths = ["libcutensor.so.2"]
    for package in ("cutensor-cu13", "cutensor-cu12"):
        with contextlib.suppress(PackageNotFoundError):
            found = [file for file in files(package) or () if file.name == "libcutensor.so.2"]
            paths = [*(str(file.locate()) for file in found), *paths]
    for path in paths:
        with contextlib.suppress(OSError):
            return ctypes.CDLL(path)
    raise ImportError("no libcutensor.so.2 (pip install cutensor-cu13)")


def _call(name: str, *arguments: Any) -> None:
    status = getattr(library(), name)(*arguments)
    if status:
        raise RuntimeError(f"{name} returned {status}")


@functools.cache
def _handle() -> Any:
    handle = _Pointer()
    _call("cutensorCreate", ctypes.byref(handle))
    return handle


def cutensor_call(machine: Any, work: Work) -> Callable[[int], None]:
    """work(i), a cutensorPermute() on buffer set i."""
    axes: list[int] = work.axes  # type: ignore[attr-defined]
    (x,), out = work.operands[0], work.outs[0]
    if x.kind not in DATA_TYPES:
        raise TypeError(f"no type {x.kind}")
    rank, handle = len(axes), _handle()
    aligned = all(tensor.ptr % MAX_ALIGNMENT == 0 for tensor in (*(x for (x,) in work.operands), *work.outs))
    alignment = MAX_ALIGNMENT if aligned else x.itemsize
    compute = _Pointer.in_dll(library(), f"CUTENSOR_COMPUTE_DESC_{'64F' if x.kind == 'f64' else '32F'}")

    def descriptor(tensor: Any) -> Any:
        made = _Pointer()
        longs = ctypes.c_int64 * rank
        _call(
            "cutensorCreateTensorDescriptor", handle, ctypes.byref(made), ctypes.c_uint32(rank), longs(*tensor.shape),
            longs(*tensor.strides), DATA_TYPES[tensor.kind], ctypes.c_uint32(alignment),
        )  # fmt: skip
        return made

    modes = ctypes.c_int32 * rank
    operation, preference, plan = _Pointer(), _Pointer(), _Pointer()
    _call(
        "cutensorCreatePermutation", handle, ctypes.byref(operation), descriptor(x), modes(*range(rank)), IDENTITY,
        descriptor(out), modes(*axes), compute,
    )  # fmt: skip
    _call("cutensorCreatePlanPreference", handle, ctypes.byref(preference), DEFAULT_ALGORITHM, NO_JIT)
    _call("cutensorCreatePlan", handle, ctypes.byref(plan), operation, preference, ctypes.c_uint64(0))
    one = ctypes.c_double(1) if x.kind == "f64" else ctypes.c_float(1)
    pairs = [(_Pointer(src.ptr), _Pointer(dst.ptr)) for (src,), dst in zip(work.operands, work.outs)]
    stream = _Pointer(machine.stream)
    return lambda i: _call("cutensorPermute", handle, plan, ctypes.byref(one), *pairs[i], stream)
