# SPDX-License-Identifier: Apache-2.0
"""The layouts of tests/cases/elementwise_cases.json, which C++ and bench read too: in every type, against NumPy."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from source_tree import ROOT

import pyflowk

CASES = json.loads((ROOT / "tests/cases/elementwise_cases.json").read_text())
DTYPES = (
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "float32",
    "float64",
)
CANARY = 0x2A


class Operand:
    """An operand of a case, in memory of its exact size."""

    def __init__(self, arrays: Any, case: dict, k: int, dtype: str) -> None:
        shape, size = case["shape"], np.dtype(dtype).itemsize
        strides = case["operands"][k].get("strides") or [int(np.prod(shape[d + 1 :])) for d in range(len(shape))]
        reaches = [(n - 1) * s for n, s in zip(shape, strides)]
        lead = case["operands"][k].get("lead_elements", 0)
        place = (lead - sum(min(reach, 0) for reach in reaches)) * size, [s * size for s in strides]
        self.host = np.full((lead + 1 + sum(map(abs, reaches))) * size, CANARY, np.uint8)
        self.view = np.ndarray(shape, dtype, self.host, *place)
        if k > 0:
            self.view[...] = np.random.default_rng(k).integers(0, 2 if dtype == "bool" else 100, shape)
        self.memory = arrays.put(self.host.copy())
        self.array = arrays.view(self.memory, place[0], tuple(shape), tuple(place[1]), dtype)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["why"])
def test_every_layout_is_right_in_every_type(arrays: Any, thread_order: str, case: dict) -> None:
    for dtype in ["float64"] if "big" in case else DTYPES:
        x, y = Operand(arrays, case, 1, dtype), Operand(arrays, case, 2, dtype)
        for function, expected in ((pyflowk.maximum, np.maximum), (pyflowk.less, np.less)):
            out = Operand(arrays, case, 0, "bool" if function is pyflowk.less else dtype)
            out.view[...] = expected(x.view, y.view)
            function(x.array, y.array, out=out.array)
            np.testing.assert_array_equal(arrays.fetch(out.memory), out.host)


def test_every_kernel_is_reached_by_a_row_of_the_table() -> None:
    header = (ROOT / "cuda/elementwise/elementwise.h").read_text().partition("enum class ElementwiseKernel")[2]
    kernels = [line.split(",")[0].strip() for line in header.partition("{\n")[2].partition("}")[0].splitlines()]
    assert {case["mechanism"] for case in CASES} == set(kernels) - {""}
