# SPDX-License-Identifier: Apache-2.0
"""What the tune_*.py share: they check and time every candidate of a case, and the planner's pick.

`python bench/tune_OP.py SET ... [--json FILE]` takes the sets of `python -m pyflowk bench --op OP`, or one case in
quotes. $FLOWK_LIBRARY names a library that exports the candidates, bench/libflowk_candidates.so of a build folder:

    meson setup build && ninja -C build bench/libflowk_candidates.so
"""

from __future__ import annotations

import argparse
import ctypes
import json
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pyflowk._bench import machine as bench_machine
from pyflowk._bench.measure import Row, figures_of, geomean
from pyflowk._bench.runner import OPERATORS, copy_graphs, make_work, time_in_turn
from pyflowk._bench.tensors import words_of
from pyflowk._bench.work import Work, free_memory
from pyflowk._native import library

AT_ONCE = 24  # CUDA graphs that exist at a time
DOES_NOT_FIT = 1  # a candidate's status; other numbers than 0 are failures

Launch = Callable[[int], int]  # on buffer set i
Launches = Mapping[Any, Launch]  # by what names a candidate


def candidate_function(name: str, machine: Any) -> Callable[..., int]:
    """flowk_bench_NAME_candidate() without a prototype, so that every argument must be a C value. Its last argument is
    the machine's stream."""
    function, stream = getattr(library.open_backend("cuda"), f"flowk_bench_{name}_candidate"), machine.stream
    function.restype = ctypes.c_int
    return lambda *arguments: function(*arguments, ctypes.c_void_p(stream))


def fractions_of(
    machine: Any, work: Work, candidates: Launches, rounds: int = 5, *, check: bool = True
) -> tuple[Row, dict[Any, float]]:
    """The pick's row, and the fraction of a copy of every candidate that fits and is right, the fastest first."""
    right: list[tuple[Any, Launch]] = []
    for name, launch in candidates.items():
        work.poison()
        status = launch(0)
        if status == DOES_NOT_FIT:
            continue
        if status != 0 or (check and not work.check()):
            print(f"{'FAILED' if status else 'WRONG'} {work.row()} {name}", flush=True)
            continue
        right.append((name, launch))
    base = copy_graphs(machine, work) | {"flowk": machine.graph(work.run, work.num_sets)}
    times = time_in_turn(machine, base, work.num_sets, rounds)
    row = work.row() | {"plan": work.plan()} | figures_of(work.moved_bytes, times, machine.datasheet_gb_s())
    found: dict[Any, float] = {}
    for start in range(0, len(right), AT_ONCE):
        graphs = {name: machine.graph(launch, work.num_sets) for name, launch in right[start : start + AT_ONCE]}
        times = time_in_turn(machine, graphs, work.num_sets, rounds)
        found |= {name: row["copy_us"] * 1e-6 / sorted(seconds)[rounds // 2] for name, seconds in times.items()}
    return row, dict(sorted(found.items(), key=lambda item: -item[1]))


def works(machine: Any, op: str, sets: Sequence[str], only: Mapping[str, Collection[Any]]) -> Iterator[Work]:
    """Every case of the sets, one at a time; `only` has the values that an argument of a case may have."""
    cases = OPERATORS[op][0]
    for name in sets:
        for case in [cases.case_of_words(words_of(name))] if " " in name else cases.SETS.cases_of(name):
            if all(case.get(key) in values for key, values in only.items()):
                yield make_work(machine, op, case)
                free_memory()


def parser_of(doc: str | None) -> argparse.ArgumentParser:
    """A parser with the options that all tune_*.py have."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="+")
    parser.add_argument("--json")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--best", type=int, default=4, help="candidates printed per case")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no case after this time")
    return parser


def tune(
    op: str,
    options: argparse.Namespace,
    launches_of: Callable[[Any, Any], Launches | None],
    report: Callable[[Any, Row, dict[Any, float], Launches], None],
    only: Mapping[str, Collection[Any]] | None = None,
    check: bool = True,
) -> None:
    """Times the candidates of every case, and reports each case: its row with `pick` and `candidates`, and the fraction
    of each candidate. A case for which launches_of() returns None is left out."""
    machine, rows, end = bench_machine.Machine(), [], time.monotonic() + options.seconds
    for work in works(machine, op, options.sets, only or {}):
        if time.monotonic() > end:
            break
        launches = launches_of(machine, work)
        if launches is not None:
            row, found = fractions_of(machine, work, launches, options.rounds, check=check)
            rows.append(result_of(row, found))
            report(work, rows[-1], found, launches)
    finish(rows, options.json)


def best_of(row: Row, found: Mapping[Any, float], count: int) -> dict[str, float]:
    """The fractions of the pick and of the best candidates."""
    return {"pick": row["pick"]} | {str(name): fraction for name, fraction in list(found.items())[:count]}


def finish(rows: list[Row], path: str | None) -> None:
    """The means of the picks and of the best candidates; writes the rows."""
    picks = [row["pick"] for row in rows]
    bests = [max(row["pick"], *row["candidates"].values(), 0) for row in rows]
    print(f"== {len(rows)} cases: pick {geomean(picks):.3f} best {geomean(bests):.3f}")
    if path:
        Path(path).write_text(json.dumps(rows))


def result_of(row: Row, found: Mapping[Any, float]) -> Row:
    """The result of a case, as finish() takes it."""
    return row | {"pick": row["fractions"]["flowk"], "candidates": {str(name): value for name, value in found.items()}}
