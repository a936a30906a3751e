# SPDX-License-Identifier: Apache-2.0
"""`python -m pyflowk tune`: measures the plans of permutes, and keeps them in a file."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from .._arrays.creation import zeros
from .._arrays.dtypes import numpy_dtype
from .._bench import permute_work
from .._bench.tensors import NAMES
from .._devices import is_available
from .._operators.permute import permute
from .._tuning import load_plans, save_plans, tune

DESCRIPTION = """Measures several plans of each permute and keeps the fastest in FILE, which later programs load by
FLOWK_PLANS=FILE or pyflowk.load_plans. What FILE has already is kept.

A case is three words in quotation marks: a type, the shape, the axes; with two types and a scale it converts.
"""
EXAMPLES = """examples:
  python -m pyflowk tune --plans plans.txt 'f16 32x512x16x64 0,2,1,3'
  python -m pyflowk tune --plans plans.txt 'u8>f16 256x224x224x3 0,3,1,2 0.00392' 'u8 37x38x9x357 3,2,0,1'
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description, parser.epilog = DESCRIPTION, EXAMPLES
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("cases", nargs="+", metavar="CASE")
    parser.add_argument("--plans", type=Path, required=True, metavar="FILE")
    parser.add_argument("--trials", type=int, default=12, help="plans per case (default 12)")


def run_tune(given: argparse.Namespace) -> int:
    if given.plans.exists():
        loaded, ignored = load_plans(given.plans)
        print(f"{given.plans}: {loaded} plans, {ignored} of another GPU or version")
        if ignored:
            raise ValueError(f"--plans {given.plans} has plans that would be lost: name another file")
    for words in given.cases:
        modelled, measured = _tuned(words, given.trials)
        print(f"{words}: {modelled:.2f} us by the model, {measured:.2f} us measured", flush=True)
        save_plans(given.plans)
    return 0


def _tuned(words: str, max_trials: int) -> tuple[float, float]:
    case = permute_work.case_of_words(words.split())
    x: Any = _zeros(case["shape"], case["kind"])
    out = _zeros([case["shape"][axis] for axis in case["axes"]], case.get("out_kind", case["kind"]))
    options = {"dtype": out.dtype, "scale": case["scale"]} if "out_kind" in case else {}
    return tune(permute, x, case["axes"], out=out, max_trials=max_trials, **options)


def _zeros(shape: list[int], kind: str) -> Any:
    """On the GPU, or without one on the CPU, to check."""
    dtype = numpy_dtype(NAMES[kind])
    return zeros(shape, dtype) if is_available() else np.zeros(shape, dtype)
