# SPDX-License-Identifier: Apache-2.0
"""`python -m pyflowk demo`: the main job on real arrays, checked against NumPy bit for bit, and timed."""

from __future__ import annotations

import math
import os
import textwrap
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from .. import asarray, empty, explain, permute
from .._arrays.stream import LEGACY_DEFAULT
from .._native import driver, library
from .._native.abi import Status
from .._native.errors import FlowkError


class Case(NamedTuple):
    """One permutation: `device_shape` is well past a GPU's L2, `host_shape` under a second of CPU."""

    title: str
    dtype: str
    axes: tuple[int, ...]
    device_shape: tuple[int, ...]
    host_shape: tuple[int, ...]


CASES = (
    Case("images, NHWC to NCHW", "uint8", (0, 3, 1, 2), (256, 512, 512, 3), (16, 384, 384, 3)),
    Case("attention heads, (B,S,H,D) to (B,H,S,D)", "float16", (0, 2, 1, 3), (32, 2048, 16, 64), (4, 1024, 16, 64)),
    Case("a large 2-D transpose", "float32", (1, 0), (8192, 8192), (1500, 1503)),
    Case("a rank-6 permutation", "float32", (4, 2, 0, 5, 3, 1), (32, 16, 24, 8, 15, 40), (8, 16, 12, 8, 15, 10)),
)


def run_demo(*, verbose: bool = False) -> bool:
    """Runs every case on the first GPU, or on the CPU if there is none; returns whether all results were right. If
    `verbose`, prints the plan of each call."""
    on_device = _has_usable_device()
    if not on_device and library.allowed_backend() == "cuda":
        choice = os.environ["FLOWK_LIBRARY"]
        raise FlowkError(Status.NO_DEVICE, f"FLOWK_LIBRARY={choice} takes device arrays only, and no GPU can be used")
    library.for_device(0 if on_device else None, "the demo's x")
    opened = library.open_backend("cuda" if on_device else "simt")
    print(f"{opened._name}: {opened.flowk_build_info().decode()}")
    if on_device:
        print(f"On {driver.device_name(0)}. GB/s: bytes read and written. A copy: flowk's own, of the same bytes.")
    else:
        print("On the CPU: the same kernels, thread by thread, on an executor: it checks results, not speed.")
    return all([_run_case(case, on_device, verbose) for case in CASES])


def _has_usable_device() -> bool:
    if driver.device_count() == 0 or library.allowed_backend() == "simt":
        return False
    try:
        permute(asarray(np.zeros((2, 2), np.float32), device=0), (1, 0)).to_numpy()
    except (FlowkError, ImportError, MemoryError) as error:
        print(f"A GPU is found but cannot be used: {error}")
        return False
    return True


def _run_case(case: Case, on_device: bool, verbose: bool) -> bool:
    shape = case.device_shape if on_device else case.host_shape
    host = _any_bits(shape, np.dtype(case.dtype))
    x: Any = asarray(host, device=0) if on_device else host
    result: Any = permute(x, case.axes)
    fetched = result.to_numpy() if on_device else result
    unsigned = np.dtype(f"u{host.itemsize}")  # compares bits, so that a NaN equals itself
    right = np.array_equal(fetched.view(unsigned), host.transpose(case.axes).view(unsigned))

    print(f"{case.title}: {case.dtype} {shape}, axes {case.axes}, {host.nbytes / 1e6:.1f} MB")
    if verbose:
        print(textwrap.indent(explain(permute, x, case.axes, out=result).rstrip(), "  "))
    speed = f"  {_speed(x, case, result)}" if on_device else ""
    verdict = "equal to NumPy's, bit for bit" if right else "WRONG: not equal to NumPy's"
    print(f"  {verdict}{speed}")
    return bool(right)


def _any_bits(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    bits = np.random.default_rng(7).integers(0, 256, math.prod(shape) * dtype.itemsize, dtype=np.uint8)
    return bits.view(dtype).reshape(shape)


def _speed(x: Any, case: Case, result: Any) -> str:
    """Milliseconds, bandwidth, and the time of a copy of the same bytes over this time."""
    ms = _time_ms(lambda: permute(x, case.axes, out=result))
    flat, flat_copy = (empty(math.prod(x.shape), case.dtype, device=0) for _ in range(2))
    fraction = _time_ms(lambda: permute(flat, (0,), out=flat_copy)) / ms
    return f"{ms:8.3f} ms  {2 * x.nbytes / ms / 1e6:7.1f} GB/s  {fraction:5.2f} of a copy"


def _time_ms(call: Callable[[], Any], num_calls: int = 20) -> float:
    with driver.current(0):
        start_event, end_event = driver.create_event(timing=True), driver.create_event(timing=True)
        call()
        driver.record_event(start_event, LEGACY_DEFAULT)
        for _ in range(num_calls):
            call()
        driver.record_event(end_event, LEGACY_DEFAULT)
        ms = driver.elapsed_ms(start_event, end_event) / num_calls
        driver.destroy_event(start_event)
        driver.destroy_event(end_event)
    return ms
