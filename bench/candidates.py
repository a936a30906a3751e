# SPDX-License-Identifier: Apache-2.0
"""What the tune_*.py share: a library that exports candidates, times of candidates beside the planner's pick.

The library, which $FLOWK_LIBRARY names, is bench/libflowk_candidates.so of a build folder:

    meson setup build && ninja -C build bench/libflowk_candidates.so
"""

from __future__ import annotations

import argparse
import ctypes
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pyflowk._bench.machine import Machine
from pyflowk._bench.measure import Row, figures_of, geomean
from pyflowk._bench.runner import OPERATORS, copy_graphs, make_work, time_in_turn
from pyflowk._bench.work import Work, free_memory
from pyflowk._native import library

AT_ONCE = 24  # graphs that are kept
FITS_NOT = 1  # a candidate's status; other numbers than 0 are failures

Call = Callable[[int], int]  # on buffer set i


def candidate_function(name: str) -> Any:
    """flowk_bench_NAME_candidate() without a prototype: every argument must be a C value."""
    function = getattr(library.open_backend("cuda"), f"flowk_bench_{name}_candidate")
    function.restype = ctypes.c_int
    return function


def stream_of(machine: Machine) -> ctypes.c_void_p:
    return ctypes.c_void_p(machine.stream)


def fractions_of(
    machine: Machine, work: Work, candidates: dict[Any, Call], rounds: int = 5, *, check: bool = True
) -> tuple[Row, dict[Any, float]]:
    """The pick's row, and the fraction of a copy of every candidate that fits and is right."""
    right: dict[Any, Call] = {}
    for name, call in candidates.items():
        work.poison()
        status = call(0)
        if status == FITS_NOT:
            continue
        if status != 0 or (check and not work.check()):
            print(f"{'FAILED' if status else 'WRONG'} {work.row()} {name}", flush=True)
            continue
        right[name] = call
    base = copy_graphs(machine, work) | {"flowk": machine.graph(work.run, work.num_sets)}
    times = time_in_turn(machine, base, work.num_sets, rounds)
    row = work.row() | {"plan": work.plan()} | figures_of(work.moved_bytes, times, machine.datasheet_gb_s())
    found: dict[Any, float] = {}
    names = list(right)
    for start in range(0, len(names), AT_ONCE):
        graphs = {str(name): machine.graph(right[name], work.num_sets) for name in names[start : start + AT_ONCE]}
        times = time_in_turn(machine, graphs, work.num_sets, rounds)
        found |= {
            name: row["copy_us"] * 1e-6 / sorted(times[str(name)])[rounds // 2] for name in names if str(name) in times
        }
    return row, dict(sorted(found.items(), key=lambda item: -item[1]))


def works(machine: Machine, op: str, sets: Sequence[str], /, **only: Any) -> Iterator[tuple[str, Work]]:
    """(set, work) of every case of the sets, one at a time; `only` are arguments that a case must have. A set may be
    one case, its words as `python -m pyflowk bench OP` takes them."""
    cases = OPERATORS[op][0]
    for name in sets:
        for case in [cases.case_of_words(name.split())] if " " in name else cases.cases_of(name):
            if all(case.get(key) in values for key, values in only.items()):
                yield name, make_work(machine, op, case)
                free_memory()


def parser_of(doc: str | None) -> argparse.ArgumentParser:
    """The options that all have."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="+")
    parser.add_argument("--json")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--best", type=int, default=4, help="candidates printed per case")
    return parser


def finish(rows: list[Row], path: str | None) -> None:
    """The means of the picks and of the best candidates; writes the rows."""
    picks = [row["pick"] for row in rows]
    bests = [max(row["pick"], *row["candidates"].values()) if row["candidates"] else row["pick"] for row in rows]
    print(f"== {len(rows)} cases: pick {geomean(picks):.3f} best {geomean(bests):.3f}")
    if path:
        Path(path).write_text(json.dumps(rows))


def result_of(row: Row, found: dict[Any, float]) -> Row:
    """What finish() takes."""
    return row | {"pick": row["fractions"]["flowk"], "candidates": {str(name): value for name, value in found.items()}}
