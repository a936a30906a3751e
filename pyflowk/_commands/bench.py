# SPDX-License-Identifier: Apache-2.0
"""`python -m pyflowk bench`: the speed of flowk, of a copy and of other libraries on this GPU, case by case."""

from __future__ import annotations

import argparse
import datetime
import json
import shlex
import sys
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from .._bench import articles, page, plot, report
from .._bench.machine import Machine
from .._bench.measure import SLOWER, SLOWER_IN_ONE_RUN, Row, case_key, slowdowns, summaries, without_folders
from .._bench.rivals import OLD_LIBRARY, RIVALS, is_installed
from .._bench.runner import OPERATORS, ROUNDS, Case, run_cases
from .._bench.tensors import case_of, form_of
from .._native import driver, library
from .._native.abi import Status
from .._native.errors import FlowkError

FORMAT = 1  # of --json
EXAMPLES = """examples:
  python -m pyflowk bench permute                                     the first set of permute
  python -m pyflowk bench permute float16 32x512x16x64 0,2,1,3        one case, also with f16
  python -m pyflowk bench permute u8>f16 256x224x224x3 0,3,1,2 --rivals torch
  python -m pyflowk bench --op softmax --set plain,dense --rivals torch,compile --html page.html
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of the command."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.description, parser.epilog = _description(), EXAMPLES
    parser.add_argument("case", nargs="*", help="an operator, for its first set, or one case")
    parser.add_argument("--op", default="all", help=f"with commas, by default all: {', '.join(OPERATORS)}")
    parser.add_argument(
        "--set",
        default="main",
        help="sets with commas; main: the first of each operator; results: those of bench/RESULTS.md",
    )
    parser.add_argument(
        "--rivals",
        default="",
        help=f"with commas, or all: {', '.join(RIVALS)}; by default none, and those of each set for results; "
        f"old: the libflowk that ${OLD_LIBRARY} names, as fast or the command fails",
    )
    parser.add_argument("--articles", action="store_true", help="what the articles published, and the same here")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of each contender; 0: checks results only")
    parser.add_argument("--json", metavar="FILE", help="writes every row, for --compare")
    parser.add_argument("--plot", metavar="FILE.svg", help="writes a picture (needs matplotlib)")
    parser.add_argument("--html", metavar="FILE", help="writes one page with plots and a table to sort")
    parser.add_argument("--compare", metavar="OLD.json", help=f"fails where a case got {SLOWER * 100:.0f} %% slower")
    parser.add_argument("--quiet", action="store_true", help="no line per case")


def _description() -> str:
    lines = [
        "Speed relative to a copy of the same bytes (the faster of cudaMemcpyAsync and flowk's own): higher is better.",
        "Every result is checked before it is timed; contenders run in turn, in CUDA graphs, on buffers past the L2.",
        "",
        "The sets:",
    ]
    for op, (module, _) in OPERATORS.items():
        lines += [f"  {op:12} {name:32} {text}" for name, text in module.SETS.lines()]
    lines += ["", "A case on the line:"]
    lines += [f"  {op:12} {form_of(module)}" for op, (module, _) in OPERATORS.items()]
    return "\n".join(lines)


def run_bench(options: argparse.Namespace, machine: Any = None) -> int:
    """0 if all results are right and, with --compare or the rival `old`, none is slower."""
    cases = _cases(options)
    old = _old_run(options.compare) if options.compare else None
    if options.plot:
        plot.require()
    for path in filter(None, (options.json, options.plot, options.html)):
        if not Path(path).parent.is_dir():  # found before the run, not after it
            raise ValueError(f"{path} cannot be written: there is no folder {Path(path).parent}")
    machine = machine or _machine()
    absent = [name for name in RIVALS if any(name in case.rivals for case in cases) and not is_installed(name)]
    cases = [case._replace(rivals=tuple(name for name in case.rivals if name not in absent)) for case in cases]
    facts = machine.describe() | ({"not here": ", ".join(absent)} if absent else {})
    facts |= {"date": datetime.date.today().isoformat(), "command": _command_line()}
    for name, text in facts.items():
        print(f"{name:9} {text}")
    rows: list[Row] = []
    start = time.monotonic()
    try:
        for row in report.shown(run_cases(machine, cases, options.rounds), len(cases), quiet=options.quiet):
            rows.append(row)
    finally:  # Ctrl-C keeps what is done
        facts["at the end"] = f"{machine.clocks()}; {time.monotonic() - start:.0f} s"
        _write(options, {"format": FORMAT, "machine": facts, "rows": rows})
    print(f"at the end: {facts['at the end']}")
    for line in report.summary_lines(summaries(row for row in rows if "missing" not in row)):
        print(line)
    if options.articles:
        print("\n".join(articles.table(rows)))
    of_old = [
        row | {"fractions": {"flowk": row["fractions"]["old"]}} for row in rows if "old" in row.get("fractions", ())
    ]
    in_one_run = {"machine": {"date": "the old library"}, "rows": of_old} if of_old else None
    slower = [_slower(rows, old, SLOWER), _slower(rows, in_one_run, SLOWER_IN_ONE_RUN)]
    failed = any(not row.get("right", True) for row in rows)
    return 1 if any(slower) or failed else 0


def _old_run(path: str) -> dict[str, Any]:
    """What --compare names; ValueError or OSError names the file."""
    try:
        run: dict[str, Any] = json.loads(Path(path).read_text())
        _ = run["machine"].get("date")
        for row in run["rows"]:
            if "fractions" in row:
                _ = case_key(row), row["fractions"]["flowk"]
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"--compare {path}: not a file that `bench --json` wrote ({error!r})") from error
    return run


def _write(options: argparse.Namespace, run: dict[str, Any]) -> None:
    if options.json:
        Path(options.json).write_text(json.dumps(run, indent=1))
    if options.plot:
        plot.write(options.plot, run)
    if options.html:
        Path(options.html).write_text(page.page_of(run))


def _slower(rows: list[Row], old: dict[str, Any] | None, limit: float) -> bool:
    """Whether a case got slower than in an old run, or none of the old run's was run."""
    if old is None:
        return False
    present = [row for row in rows if "missing" not in row]
    keys = {case_key(row) for row in old["rows"] if "fractions" in row}
    common, found = sum(case_key(row) in keys for row in present), slowdowns(present, old["rows"], limit)
    for name, before, now in found:
        print(f"SLOWER {name}: {before:.3f} of a copy before, {now:.3f} now")
    date = old["machine"].get("date", "an older run")
    print(f"compared with {date}: {len(found)} of {common} cases more than {limit:.0%} slower")
    return bool(found) or not common


def _machine() -> Machine:
    if driver.device_count() == 0 or library.allowed_backend() == "simt":
        raise FlowkError(
            Status.NO_DEVICE,
            "a bench needs libflowk and a GPU. The executor libflowk_simt runs the same kernels thread by thread, for "
            "checking: its times say nothing of a GPU's, so nothing is timed on it",
        )
    return Machine()


def _cases(options: argparse.Namespace) -> list[Case]:
    rivals = _chosen("--rivals", options.rivals, RIVALS)
    if options.articles:
        return [Case(op, "articles", case, rivals or articles.RIVALS) for op, case in articles.cases()]
    if options.case:
        op, *words = options.case
        if op not in OPERATORS:
            raise ValueError(f"a case begins with one of {', '.join(OPERATORS)}, not with {op!r}")
        if not words:
            return list(_cases_of_set(options.set, (op,), rivals))
        return [Case(op, "case", case_of(" ".join(words), OPERATORS[op][0], op), rivals)]
    operators = _chosen("--op", options.op, OPERATORS)
    found: list[Case] = []
    for name in options.set.split(","):
        of_name = list(_cases_of_set(name, operators, rivals))
        if not of_name:
            raise ValueError(f"--set {name}: no set of {', '.join(operators)} (python -m pyflowk bench --help)")
        found += of_name
    return found


def _chosen(option: str, text: str, known: Collection[str]) -> tuple[str, ...]:
    """The names in the value of an option; ValueError for an unknown one."""
    names = tuple(known) if text == "all" else _named(text)
    for name in names:
        if name not in known:
            raise ValueError(f"{option} {name}: must be all or of {', '.join(known)}")
    return names


def _named(text: str) -> tuple[str, ...]:
    return tuple(filter(None, text.split(",")))


def _cases_of_set(name: str, operators: tuple[str, ...], rivals: tuple[str, ...]) -> Iterator[Case]:
    for operator in operators:
        module, _ = OPERATORS[operator]
        results = list(module.RESULT_SETS)
        for own in {"results": results, "main": results[:1]}.get(name, [name]):
            try:
                cases = module.SETS.cases_of(own)
            except (KeyError, TypeError):  # there is no such set, or it takes no such arguments
                continue
            by_default = _named(module.RESULT_SETS[own]) if name == "results" else ("jit",) if own == "jit" else ()
            for case in cases:
                yield Case(operator, own, case, rivals or by_default)


def _command_line() -> str:
    return without_folders("python -m pyflowk " + shlex.join(sys.argv[1:]))
