# SPDX-License-Identifier: Apache-2.0
"""`python -m pyflowk tune`: measures the plans of permutes, and keeps them in a file."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .._arrays.creation import zeros
from .._arrays.dtypes import numpy_dtype
from .._bench import permute_work
from .._bench.tensors import NAMES, case_of, layout
from .._devices import is_available
from .._operators.permute import permute
from .._tuning import load_plans, save_plans, tune

DESCRIPTION = """Measures several plans of each permute and keeps the fastest in FILE, which later programs load by
FLOWK_PLANS=FILE or pyflowk.load_plans. What FILE has already is kept.

A case is three words in quotation marks: a type, the shape, the axes; with two types and a scale it converts. Arrays
that are not contiguous have src=STRIDES or out=STRIDES, in elements; +N after them, or alone, says how many elements
the first lies past a multiple of 128 bytes. A program that runs with FLOWK_LOG_SHAPES=LOG in its environment writes
its cases to LOG, one per line.
"""
EXAMPLES = """examples:
  python -m pyflowk tune --plans plans.txt 'f16 32x512x16x64 0,2,1,3'
  python -m pyflowk tune --plans plans.txt 'u8>f16 256x224x224x3 0,3,1,2 0.00392' 'u8 37x38x9x357 3,2,0,1'
  FLOWK_LOG_SHAPES=log.txt python program.py; python -m pyflowk tune --plans plans.txt --from-log log.txt
"""
ADDRESSES = 128  # a plan holds for addresses modulo this


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description, parser.epilog = DESCRIPTION, EXAMPLES
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("cases", nargs="*", metavar="CASE")
    parser.add_argument("--from-log", type=Path, metavar="LOG", help="a file with a case per line")
    parser.add_argument("--plans", type=Path, required=True, metavar="FILE")
    parser.add_argument("--trials", type=int, default=12, help="plans per case (default 12)")


def run_tune(given: argparse.Namespace) -> int:
    cases = [*given.cases, *(given.from_log.read_text().splitlines() if given.from_log else ())]
    if not cases:
        raise ValueError("there is no case: name one, or a log that has one")
    parsed = {words: case_of(words, permute_work, "permute") for words in cases}
    if given.plans.exists():
        loaded, ignored = load_plans(given.plans)
        print(f"{given.plans}: {loaded} plans, {ignored} of another GPU or version")
        if ignored:
            raise ValueError(f"--plans {given.plans} has plans that would be lost: name another file")
    for words, case in parsed.items():
        modelled, measured = _tuned(case, given.trials)
        print(f"{words}: {modelled:.2f} us by the model, {measured:.2f} us measured", flush=True)
        save_plans(given.plans)
    return 0


def _tuned(case: dict[str, Any], max_trials: int) -> tuple[float, float]:
    kind, out_kind = case["kind"], case.get("out_kind", case["kind"])
    x: Any = _zeros(case["shape"], kind, case.get("src_layout", ""))
    out = _zeros([case["shape"][axis] for axis in case["axes"]], out_kind, case.get("out_layout", ""))
    options = {"dtype": out.dtype, "scale": case["scale"]} if "out_kind" in case else {}
    return tune(permute, x, case["axes"], out=out, max_trials=max_trials, **options)


def _zeros(shape: Sequence[int], kind: str, layout_text: str) -> Any:
    """An array of zeros on the GPU; without a GPU on the CPU, where only tests run."""
    dtype = numpy_dtype(NAMES[kind])
    strides, first, num_elements = layout(shape, **permute_work.layout_of(layout_text))
    byte_strides = tuple(stride * dtype.itemsize for stride in strides)
    num_bytes = ADDRESSES + num_elements * dtype.itemsize
    if is_available():
        memory = zeros(num_bytes, "uint8")
        start = -memory.ptr % ADDRESSES + first * dtype.itemsize
        return memory._view(start, tuple(shape), byte_strides, dtype)
    host = np.zeros(num_bytes, np.uint8)
    start = -host.ctypes.data % ADDRESSES + first * dtype.itemsize
    return np.ndarray(shape, dtype, host.data, start, byte_strides)
