# SPDX-License-Identifier: Apache-2.0
"""A run as lines: one per case as it is done, with a progress bar if rich is installed, and one per set."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from typing import Any

from .measure import MIN_TOUCHED, Row

HEADER = (
    f"{'case':22} {'types':18} {'shape':30} {'us':>8} {'GB/s':>6} {'of copy':>7} {'+-':>5} "
    f"{'of peak':>7}  rivals; kernel"
)


def kernel_of(row: Row) -> str:
    """The mechanism that explain() names first."""
    return str(row["plan"]).split(":")[0]


def line_of(row: Row) -> str:
    """One case."""
    if "missing" in row:
        return f"{row['op']} {row['set']}: left out, {row['missing']}"
    case = f"{row['kind'][:22]:22} {row['types']:18} {row['shape']:30}"
    if not row["right"]:
        return f"{case} WRONG {row['note']} {kernel_of(row)}"
    if "fractions" not in row:
        return f"{case} right {row['note']} {kernel_of(row)}"
    figures = f"{row['us']['flowk']:8.1f} {row['gb_s']:6.0f} {row['fractions']['flowk']:7.3f} {row['spread']:5.1%}"
    figures += f" {row['datasheet']:7.1%}" if "datasheet" in row else f" {'':7}"
    figures += f" ({row['touched_bytes'] >> 20} MB touched: may be in L2)" if row["touched_bytes"] < MIN_TOUCHED else ""
    rivals = " ".join(f"{name} {value:.2f}" for name, value in row["fractions"].items() if name != "flowk")
    skipped = "".join(f" (no {name}: {why})" for name, why in row["skipped"].items())
    return f"{case} {figures}  {rivals}{skipped}; {kernel_of(row)} {row['note']}".rstrip()


def summary_lines(sets: Iterable[Row]) -> Iterator[str]:
    """One line per set."""
    yield f"\n{'set':34} {'right':>9} {'geomean':>8} {'worst':>6}  rivals (of a copy, higher is better)"
    for row in sets:
        rivals = " ".join(f"{name} {value:.2f}" for name, value in row["rivals"].items())
        right = f"{row['right']}/{row['cases']}"
        yield f"{row['set']:34} {right:>9} {row['geomean']:8.3f} {row['worst']:6.3f}  {rivals}".rstrip()


def shown(rows: Iterable[Row], count: int, *, quiet: bool = False) -> Iterator[Row]:
    """The rows, each printed when it is done; with `quiet` only those that are wrong."""
    with _progress(count) as (advance, write):
        if not quiet:
            write(HEADER)
        for row in rows:
            if not quiet or not row.get("right", True):
                write(line_of(row))
            advance()
            yield row


@contextlib.contextmanager
def _progress(count: int) -> Iterator[tuple[Callable[[], Any], Callable[[str], Any]]]:
    """(advance, write): a bar below the lines on a terminal with rich, lines alone elsewhere."""
    try:
        rich: Any = import_module("rich.progress") if sys.stdout.isatty() else None
    except ImportError:
        rich = None
    if rich is None:
        yield (lambda: None), (lambda line: print(line, flush=True))
        return
    with rich.Progress(*rich.Progress.get_default_columns(), rich.MofNCompleteColumn(), transient=True) as bar:
        task = bar.add_task("cases", total=count)
        yield (
            (lambda: bar.advance(task)),
            (lambda line: bar.console.print(line, markup=False, highlight=False, soft_wrap=True)),
        )
