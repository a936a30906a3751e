# SPDX-License-Identifier: Apache-2.0
"""Sinks, softcap and a scale per row of softmax, and their gradients, for compute-sanitizer as sanitizing.py says.

`bench/sanitize_softmax_terms.py [--portable-clusters] [WORD ...]` runs the cases with all the words in their names.
--portable-clusters is as in sanitize_softmax.py."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path
from typing import Any

import ml_dtypes  # noqa: F401  NumPy's bfloat16
import numpy as np
import sanitizing
from sanitizing import Memory, code_of

from pyflowk._native.abi import SoftmaxMask

sys.path.insert(0, str(Path(__file__).parents[1] / "tests/python/softmax"))
from softmax_cases import SoftmaxCase
from softmax_reference import Inputs, assert_within, lse_reference, softmax_reference, unmasked

# Rows of lanes, warps, blocks and clusters in registers, with and without tails; in shared memory; split; read twice.
COLUMNS = (5, 64, 77, 512, 1000, 4096, 5003, 20480, 32768, 70001, 300000)
TERMS = ({"sinks"}, {"row_scale"}, {"softcap"}, {"sinks", "row_scale", "softcap"})
SOFTCAP = 5.0


def cases() -> list[tuple[str, int, set[str], bool]]:
    return [
        (dtype, columns, terms, backward)
        for dtype in ("float16", "bfloat16", "float32", "float64")
        for columns in COLUMNS
        for terms in TERMS
        for backward in (False, True)
    ]


class Call:
    """The memory of a call, and its mask."""

    def __init__(self, dtype: str, columns: int, terms: set[str]) -> None:
        rng = np.random.default_rng(columns)
        self.rows = np.dtype("float64" if dtype == "float64" else "float32")
        rows = (2, 3, 2) if columns < 30000 else (1, 5, 1) if columns < 70000 else (1, 1, 1)
        shape = (*rows, columns)
        window = columns // 2 + 1 if columns < 5000 else None
        self.case = SoftmaxCase(shape, dtype, "", window=window, softcap=SOFTCAP * ("softcap" in terms))
        self.x = (3 * rng.standard_normal(shape)).astype(dtype)
        self.memories: dict[str, Memory] = {}
        self.strides = (ctypes.c_int64 * 3)(0, 1, 0)  # one number per head
        self.mask = SoftmaxMask(struct_bytes=ctypes.sizeof(SoftmaxMask), window=window or 0)
        self.mask.softcap = self.case.softcap
        self.numbers: dict[str, np.ndarray] = {}
        for name, values in (("sinks", rng.standard_normal(shape[1])), ("row_scale", rng.uniform(0.5, 1.5, shape[1]))):
            if name in terms:
                host = values.astype(self.rows)
                self.numbers[name] = np.broadcast_to(host[:, None], shape[:-1])
                self.put(name, host)
                setattr(self.mask, f"{name}_strides", ctypes.addressof(self.strides))
        self.inputs = Inputs(self.x, None, None, None, self.numbers.get("sinks"), self.numbers.get("row_scale"))

    def put(self, name: str, host: np.ndarray) -> None:
        self.memories[name] = Memory(host)
        setattr(self.mask, name, self.memories[name].pointer)

    def run(self, library: ctypes.CDLL, max_blocks: int, inputs: list[Memory], out: Memory) -> str | None:
        """The plan; None if its clusters are too large."""
        case = self.case
        pointers = [value for one in inputs for value in (one.pointer, None)]
        shape = (ctypes.c_int64 * len(case.shape))(*case.shape)
        arguments = (
            *(*pointers, code_of(case.dtype), out.pointer, None, code_of(case.dtype), len(shape), shape, 1.0),
            *(ctypes.addressof(self.mask), 0),
        )
        function = "masked_softmax_backward" if len(inputs) > 1 else "masked_softmax"
        if sanitizing.cluster_blocks(sanitizing.plan_of(library, function, arguments)) > max_blocks:
            return None
        return sanitizing.run(library, function, arguments)

    def free(self) -> None:
        for memory in self.memories.values():
            memory.free()


def run_case(library: ctypes.CDLL, max_blocks: int, dtype: str, columns: int, terms: set[str], backward: bool) -> Any:
    call = Call(dtype, columns, terms)
    case, nothing = call.case, np.zeros(call.x.shape, dtype)
    y, lse = softmax_reference(case, call.inputs), lse_reference(case, call.inputs)
    if not backward:
        call.put("lse", np.full(call.x.shape[:-1], np.nan, call.rows))
        x, out = Memory(call.x), Memory(nothing)
        plan = call.run(library, max_blocks, [x], out)
        if plan:
            assert_within(out.fetch(), y)
            assert_within(call.memories.pop("lse").fetch(), lse)
        x.free()
        call.free()
        return plan
    wide = np.dtype(np.float64)
    dy = np.random.default_rng(1).standard_normal(call.x.shape).astype(dtype)
    host_y, host_lse = y.values.astype(dtype), lse.values.astype(call.rows)
    if case.softcap:
        call.put("x", call.x)
    if "sinks" in terms:
        call.put("lse", host_lse)
        call.put("dsinks", np.full(call.x.shape[:-1], np.nan, call.rows))
    gradient, result, out = Memory(dy), Memory(host_y), Memory(nothing)
    plan = call.run(library, max_blocks, [gradient, result], out)
    if plan:
        factor = call.numbers["row_scale"][..., None].astype(wide) if "row_scale" in terms else np.array(1.0)
        slope = factor * (1 - np.tanh(factor * call.x / SOFTCAP) ** 2) if case.softcap else factor
        total = (host_y.astype(wide) * dy.astype(wide)).sum(-1, keepdims=True)
        expected = slope * host_y.astype(wide) * (dy.astype(wide) - total)
        tolerance = {"float64": 1e-10, "float32": 1e-5}.get(dtype, 2e-2)
        np.testing.assert_allclose(out.fetch().astype(wide), expected, rtol=tolerance, atol=tolerance * 1e-2)
        assert unmasked(case, call.inputs).any()
        if "sinks" in terms:
            parts = -np.exp(call.numbers["sinks"] - host_lse.astype(wide)) * total[..., 0]
            np.testing.assert_allclose(call.memories.pop("dsinks").fetch(), parts, rtol=1e-4, atol=1e-6)
    gradient.free()
    result.free()
    call.free()
    return plan


def main() -> None:
    library = sanitizing.open_library()
    words = [word for word in sys.argv[1:] if not word.startswith("--")]
    max_blocks = 8 if "--portable-clusters" in sys.argv else 16
    plans = []
    for dtype, columns, terms, backward in cases():
        name = f"{dtype} {columns} {' '.join(sorted(terms))} {'backward' if backward else 'forward'}"
        if all(word in name.split() for word in words):
            try:
                plans.append(run_case(library, max_blocks, dtype, columns, terms, backward))
            except AssertionError as error:
                raise RuntimeError(name) from error
    kernels = sorted({plan.split(":")[0] for plan in plans if plan})
    print(f"{sum(map(bool, plans))} cases right, kernels: {', '.join(kernels)}")


if __name__ == "__main__":
    main()
