# SPDX-License-Identifier: Apache-2.0
"""A small case for every kernel of PReLU and every type, for compute-sanitizer as sanitizing.py says."""

from __future__ import annotations

import ctypes
import itertools

import numpy as np
import sanitizing
from sanitizing import Memory

CASES = sanitizing.table_of("prelu")
KERNELS = {case["mechanism"] for case in CASES}
TYPES = (np.float16, np.float32, np.float64)


def run_case(library: ctypes.CDLL, case: dict, dtype: type) -> str:
    shape = (case["outer"], case["channels"], case["inner"])
    leads = [case.get(name, 0) for name in ("x_lead", "dy_lead", "out_lead")]
    wide, code = np.promote_types(dtype, np.float32), sanitizing.code_of(dtype)
    generator = np.random.default_rng(1)
    x, dy = (generator.standard_normal(shape).astype(dtype) for _ in range(2))
    alpha = generator.standard_normal(shape[1]).astype(dtype)
    wide_x, wide_dy, alphas = x.astype(wide), dy.astype(wide), alpha.astype(wide)[None, :, None]
    y = np.where(wide_x > 0, wide_x, alphas * wide_x).astype(dtype)
    dx = np.where(wide_x > 0, wide_dy, alphas * wide_dy).astype(dtype)
    terms = np.where(wide_x > 0, 0.0, x.astype(np.float64) * dy.astype(np.float64))
    sizes = (*shape, code, code)
    num_bytes = ctypes.c_size_t()
    sanitizing.check((library.flowk_prelu_backward_workspace_bytes(*sizes, ctypes.addressof(num_bytes)),))
    x_lead, dy_lead, out_lead = (lead * x.itemsize for lead in leads)
    inputs = [Memory(x, x_lead), Memory(dy, dy_lead), Memory(alpha)]
    outputs = [Memory(y, out_lead, upload=False), Memory(dx, out_lead, upload=False), Memory(alpha, upload=False)]
    workspace = Memory(np.empty(num_bytes.value, np.uint8), upload=False)
    px, pdy, palpha = (memory.pointer for memory in inputs)
    py, pdx, pdalpha = (memory.pointer for memory in outputs)
    sanitizing.run(library, "prelu", (px, palpha, py, *sizes))
    room = (workspace.pointer, ctypes.c_size_t(num_bytes.value))
    plan = sanitizing.run(library, "prelu_backward", (pdy, px, palpha, pdx, pdalpha, *sizes), room)
    found_y, found_dx, found_dalpha, *_ = (memory.fetch() for memory in (*outputs, *inputs))
    workspace.free()
    error = np.abs(found_dalpha.astype(np.float64) - terms.sum((0, 2)))
    bound = 1e-6 * np.abs(terms).sum((0, 2)) + float(np.finfo(dtype).eps) * np.abs(terms.sum((0, 2))) + 1e-7
    if found_y.tobytes() != y.tobytes() or found_dx.tobytes() != dx.tobytes() or (error > bound).any():
        raise RuntimeError(f"wrong: {shape} {leads} {dtype}\n{plan}")
    return plan


if __name__ == "__main__":
    sanitizing.run_all(run_case, (itertools.product(CASES, TYPES), KERNELS))
