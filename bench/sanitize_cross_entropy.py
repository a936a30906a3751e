# SPDX-License-Identifier: Apache-2.0
"""A small case for every kernel of cross-entropy and every type, for compute-sanitizer as sanitizing.py says."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

import numpy as np
import sanitizing
from sanitizing import Memory

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "python" / "cross_entropy"))
from cross_entropy_reference import gradient, reference

from pyflowk._arrays.dtypes import numpy_dtype
from pyflowk._native.abi import PARTIAL_VALUES, CrossEntropyOptions

CASES = sanitizing.table_of("cross_entropy")
KERNELS = {"loss_slices", "merge_partials", "logits_gradient"}
NUMBERS = {"scale": 1.0, "softcap": 0.0, "label_smoothing": 0.0, "z_loss": 0.0}


def run_case(library: ctypes.CDLL, case: dict) -> str:
    rows, columns, lead = case["rows"], case["columns"], case.get("lead", 0)
    numbers = {name: case.get(name, value) for name, value in NUMBERS.items()}
    dtype = numpy_dtype(case["dtype"])
    wide = np.float64 if case["dtype"] == "float64" else np.float32
    generator = np.random.default_rng(1)
    pitch = columns + case.get("padding", 0)
    padded = (2 * generator.standard_normal((rows, pitch))).astype(dtype)
    logits = padded[:, :columns]
    targets = generator.integers(0, columns, rows)
    targets[-1] = -100 if rows > 3 else targets[-1]
    dloss, dlse, dentropy = generator.standard_normal((3, rows)).astype(wide)
    known = reference(logits.astype(np.longdouble), targets, **numbers)
    shape, strides = (ctypes.c_int64 * 2)(rows, columns), (ctypes.c_int64 * 2)(pitch, 1)
    options = CrossEntropyOptions(ctypes.sizeof(CrossEntropyOptions), *numbers.values(), -100, 0, 0)
    codes = sanitizing.code_of(dtype), sanitizing.code_of(np.int64)
    num_bytes = ctypes.c_size_t()
    query = (2, ctypes.addressof(shape), codes[0], ctypes.addressof(num_bytes))
    sanitizing.check((library.flowk_cross_entropy_workspace_bytes(*query),))
    x, t, *grads = Memory(padded, lead * padded.itemsize), *map(Memory, (targets, dloss, dlse, dentropy))
    loss, lse, entropy = (Memory(dloss, upload=False) for _ in range(3))
    partials = Memory(np.empty((rows, PARTIAL_VALUES), wide), upload=False)
    workspace = Memory(np.empty(max(num_bytes.value, 1), np.uint8), upload=False)
    dlogits = Memory(np.empty((rows, columns), dtype), lead * padded.itemsize, upload=False)
    room = (workspace.pointer, ctypes.c_size_t(num_bytes.value))
    first = (x.pointer, ctypes.addressof(strides), codes[0], t.pointer, codes[1])
    last = (2, ctypes.addressof(shape), ctypes.addressof(options))
    plan = sanitizing.run(
        library, "cross_entropy", (*first, loss.pointer, lse.pointer, entropy.pointer, None, *last), room
    )
    given = (lse.pointer, entropy.pointer, *(one.pointer for one in grads), dlogits.pointer, None)
    plan += sanitizing.run(library, "cross_entropy_backward", (*first, *given, *last))
    found = [one.fetch() for one in (loss, lse, entropy, dlogits)]
    options.vocab_size = columns
    plan += sanitizing.run(library, "cross_entropy", (*first, None, None, None, partials.pointer, *last), room)
    merged = [Memory(dloss, upload=False) for _ in range(3)]
    outs = (one.pointer for one in merged)
    code = sanitizing.code_of(wide)
    arguments = (partials.pointer, 1, t.pointer, codes[1], *outs, rows, code, ctypes.addressof(options))
    plan += sanitizing.run(library, "cross_entropy_merge", arguments)
    again = [one.fetch() for one in merged]
    for one in (x, t, *grads, partials, workspace):
        one.free()
    expected = gradient(logits.astype(np.longdouble), targets, dloss, dlse, dentropy, **numbers)
    bound = {"float16": 1e-3, "bfloat16": 1e-2}.get(case["dtype"], 1e-4)
    errors = [np.abs(a - b).max() for a, b in zip((*found[:3], *again), (*known[:3], *known[:3]))]
    if max(errors) > 1e-4 or np.abs(found[3].astype(np.longdouble) - expected).max() > 10 * bound:
        raise RuntimeError(f"wrong: {case} {errors}\n{plan}")
    return plan


if __name__ == "__main__":
    library = sanitizing.open_library()
    plans = [run_case(library, case) for case in CASES]
    sanitizing.require_all((line for plan in plans for line in plan.splitlines() if line[0] != " "), KERNELS)
    print(f"{len(plans)} cases right, {len(KERNELS)} kernels reached")
