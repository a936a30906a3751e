# SPDX-License-Identifier: Apache-2.0
"""Times conversions with every number of packs per thread, beside the one that the plan chooses.

`python bench/tune_elementwise.py casts [--json FILE]`, with the library that candidates.py describes. Prints the
figures of each case as a row of bench/tuning/elementwise_h200.json has them.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import candidates
from tuning.generate_tuning import measured

from pyflowk._bench.machine import Machine
from pyflowk._bench.work import Work

PACKS = (1, 2)


def candidate_call(machine: Machine, work: Work, i: int, packs: int) -> int:
    (x,), out = work.operands[i], work.outs[i]
    pointers = ctypes.c_void_p(x.ptr), int(x.code), ctypes.c_void_p(out.ptr), int(out.code)
    function = candidates.candidate_function("elementwise")
    return function(*pointers, ctypes.c_int64(out.num_elements), packs, candidates.stream_of(machine))


def main() -> None:
    options = candidates.parser_of(__doc__).parse_args()
    machine, rows = Machine(), []
    for _, work in candidates.works(machine, "elementwise", options.sets, op=("copy",)):
        calls = {packs: functools.partial(candidate_call, machine, work, packs=packs) for packs in PACKS}
        row, found = candidates.fractions_of(machine, work, calls, options.rounds)
        rows.append(candidates.result_of(row, found))
        figures = {"pick": row["fractions"]["flowk"]} | {str(packs): value for packs, value in sorted(found.items())}
        print(measured(", ".join(work.types.split(",")), figures), flush=True)
    candidates.finish(rows, options.json)


if __name__ == "__main__":
    main()
