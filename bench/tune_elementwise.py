# SPDX-License-Identifier: Apache-2.0
"""Times conversions with every number of packs per thread, and the number that the plan chooses.

`python bench/tune_elementwise.py casts [--json FILE]`, with the library that candidates.py describes. Prints the
figures of each case as a row of bench/tuning/elementwise_h200.json has them.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import candidates
from tuning.generate_tuning import measured

PACKS = (1, 2)


def launches_of(machine: Any, work: Any) -> candidates.Launches:
    function = candidates.candidate_function("elementwise", machine)

    def launch(i: int, packs: int) -> int:
        (x,), out = work.operands[i], work.outs[i]
        pointers = ctypes.c_void_p(x.ptr), int(x.code), ctypes.c_void_p(out.ptr), int(out.code)
        return function(*pointers, ctypes.c_int64(out.num_elements), packs)

    return {packs: functools.partial(launch, packs=packs) for packs in PACKS}


def report(work: Any, row: dict[str, Any], found: dict[int, float], launches: candidates.Launches) -> None:
    figures = candidates.best_of(row, dict(sorted(found.items())), len(found))
    print(measured(", ".join(work.types.split(",")), figures), flush=True)


if __name__ == "__main__":
    options = candidates.parser_of(__doc__).parse_args()
    candidates.tune("elementwise", options, launches_of, report, only={"op": ("copy",)})
