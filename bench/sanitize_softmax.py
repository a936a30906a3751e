# SPDX-License-Identifier: Apache-2.0
"""The cases of tests/cases/softmax_cases.json: every kernel, type and mask, and clusters, with compute-sanitizer:
`bench/sanitize_softmax.py [--portable-clusters] [--part=I/N] [WORD ...]`, as sanitizing.py says.

With words, such as `float16 1x32768`, it runs only the cases with all of them in their names, and with a part only
every N-th case from the I-th on. Then it does not ask for every kernel.

racecheck takes half a minute per case of persistent_rows: give it words or parts. Its rows exchange their values
through two buffers alternately, so that a value written too early shows at a cluster's third row: an H200 has 15
clusters of 8 blocks at a time, or 7 of 16.

synccheck needs --portable-clusters, which leaves out clusters of 16 blocks: the synccheck of CUDA 13.0 ends with an
illegal memory access in every such cluster with an mbarrier, even if its threads only wait for one arrival of their own
block.
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

import numpy as np
import sanitizing
from sanitizing import Memory, code_of

sys.path.insert(0, str(Path(__file__).parents[1] / "tests/python/softmax"))
from softmax_calls import dlse_of, gradients_of
from softmax_cases import TABLE, SoftmaxCase, TableCase
from softmax_reference import (
    assert_within,
    backward_reference,
    inputs_of,
    lse_reference,
    row_strides,
    softmax_reference,
    unmasked,
)

from pyflowk._native import abi as _abi

KERNELS = {row.mechanism for row in TABLE if row.mechanism}


def strides_over(shape: tuple[int, ...], of: tuple[int, ...]) -> ctypes.Array:
    """The strides in elements of a contiguous tensor of shape `of` that broadcasts to `shape`."""
    strides = [0 if extent == 1 else stride for extent, stride in zip(of, row_strides(of, 1, 0))]
    return (ctypes.c_int64 * len(shape))(*[0] * (len(shape) - len(of)), *strides)


def in_memory(values: np.ndarray, case: SoftmaxCase) -> tuple[np.ndarray, ctypes.Array]:
    """An array of the case's shape as it lies in memory, and its strides in elements."""
    strides = row_strides(case.shape, 1, 0, case.strided)
    order = sorted(range(values.ndim), key=lambda d: -strides[d])
    return values.transpose(order), (ctypes.c_int64 * values.ndim)(*strides)


def run_case(library: ctypes.CDLL, max_blocks: int, row: TableCase) -> str:
    """Runs a case unless its clusters have more than max_blocks blocks, checks the result and returns the plan."""
    case = row.case
    host = inputs_of(case)
    inputs, in_dtype, out_dtype = [host.x], case.dtype, case.y_dtype
    if row.backward:
        host = host._replace(mask=None, bias=None)
        inputs, in_dtype, out_dtype = list(gradients_of(case, host)), out_dtype, in_dtype
    layout = in_memory(inputs[0], case)[1]
    memories = [Memory(in_memory(values, case)[0], case.x_lead * values.itemsize) for values in inputs]
    mask = _abi.SoftmaxMask(struct_bytes=ctypes.sizeof(_abi.SoftmaxMask), causal=case.causal, window=case.window or 0)
    strides = []
    for name, values in (("dense", host.mask), ("lengths", host.lengths), ("bias", host.bias)):
        if values is not None:
            memories.append(Memory(values))
            strides.append(strides_over(case.shape[:-1] if name == "lengths" else case.shape, values.shape))
            setattr(mask, name, memories[-1].pointer)
            setattr(mask, f"{name}_strides", ctypes.addressof(strides[-1]))
    mask.lengths_dtype, mask.bias_dtype = code_of(case.lengths_dtype), code_of(case.dtype)
    mask.lengths_from_right = case.lengths_from_right
    rows = np.dtype("float64" if case.dtype == "float64" else "float32")
    dlse = dlse_of(case) if row.backward else None
    lse = Memory(np.full(case.shape[:-1], np.nan, rows)) if case.lse and not row.backward else None
    if lse is not None:
        mask.lse = lse.pointer
    if dlse is not None:
        memories.append(Memory(dlse))
        mask.dlse = memories[-1].pointer
    nan = np.full(case.shape, np.nan, out_dtype)
    out = Memory(in_memory(nan, case)[0], case.out_lead * nan.itemsize)
    tensors = [argument for memory in memories[: len(inputs)] for argument in (memory.pointer, layout)]
    shape = (ctypes.c_int64 * len(case.shape))(*case.shape)
    sizes = (len(shape), shape, case.scale, None if case.strided else ctypes.addressof(mask), int(case.log))
    arguments = (*tensors, code_of(in_dtype), out.pointer, layout, code_of(out_dtype), *sizes)
    function = "masked_softmax_backward" if row.backward else "masked_softmax"
    plan = sanitizing.plan_of(library, function, arguments)
    is_run = sanitizing.cluster_blocks(plan) <= max_blocks
    if is_run:
        sanitizing.run(library, function, arguments)
    flat = out.fetch().reshape(-1)
    actual = np.lib.stride_tricks.as_strided(flat, case.shape, [stride * flat.itemsize for stride in layout])
    for memory in memories:
        memory.fetch()
    if not is_run:
        return plan
    if row.backward:
        expected = backward_reference(case, unmasked(case, host), *inputs, dlse)
    else:
        expected = softmax_reference(case, host)
    try:
        assert_within(actual, expected)
        if lse is not None:
            assert_within(lse.fetch(), lse_reference(case, host))
    except AssertionError as error:
        raise RuntimeError(f"{case.id}: {plan}") from error
    return plan


def main() -> None:
    library = sanitizing.open_library()
    words = [word for word in sys.argv[1:] if not word.startswith("--")]
    parts = [word.removeprefix("--part=").split("/") for word in sys.argv if word.startswith("--part=")]
    max_blocks = 8 if "--portable-clusters" in sys.argv else 16
    rows = [
        row
        for row in TABLE
        if all(word in f"{'backward ' * row.backward}{row.mechanism} {row.case.why} {row.case.id}" for word in words)
    ]
    for first, step in parts:
        rows = rows[int(first) - 1 :: int(step)]
    plans = [run_case(library, max_blocks, row) for row in rows]
    kernels = [plan.split(":")[0] for plan in plans]
    missed = [row.case.id for row, kernel in zip(rows, kernels) if row.mechanism not in ("", kernel)]
    if missed:
        sys.exit(f"not by the mechanism that the table names: {missed}")
    if not (words or parts):
        sanitizing.require_all(plans, KERNELS)
    clusters = sum(sanitizing.cluster_blocks(plan) > 1 for plan in plans)
    print(f"{len(plans)} cases right, {clusters} of them in clusters, kernels: {', '.join(sorted(set(kernels)))}")


if __name__ == "__main__":
    main()
