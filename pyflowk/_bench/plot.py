# SPDX-License-Identifier: Apache-2.0
"""A run as a picture: bars of the contenders by case or by set, and GB/s over bytes. Needs matplotlib."""

from __future__ import annotations

import math
import textwrap
from importlib import import_module
from typing import Any

from .measure import Row, summaries

MAX_CASES = 40  # with more cases the bars are the means of their sets
COLORS = {
    "flowk": "#3a9d40", "torch": "#d9601a", "compile": "#e0a030", "cupy": "#9467bd", "cutensor": "#4a90d9",
    "quack": "#d6487e", "jit": "#6fbf73", "plain": "#8a8a8a",
}  # fmt: skip
BAR, GAP = 0.15, 0.1  # inches


def require() -> Any:
    """matplotlib's pyplot, without a display; ImportError if it is missing."""
    try:
        import_module("matplotlib").use("Agg")
        return import_module("matplotlib.pyplot")
    except ImportError as error:
        raise ImportError(f"--plot needs matplotlib (pip install matplotlib): {error}") from error


def set_groups(rows: list[Row]) -> list[tuple[str, dict[str, float]]]:
    """(set, the mean of each contender), contenders in the order of COLORS."""
    found = [(row["set"], {"flowk": row["geomean"]} | row["rivals"]) for row in summaries(rows)]
    return [
        (title, {name: means[name] for name in COLORS if name in means})
        for title, means in found
        if not math.isnan(means["flowk"])
    ]


def groups_of(rows: list[Row]) -> list[tuple[str, dict[str, float]]]:
    """(title, the fraction of a copy of each contender), by case, or by set if there are many cases."""
    timed = [row for row in rows if "fractions" in row]
    if len(timed) > MAX_CASES:
        return set_groups(timed)
    titles = (" ".join(filter(None, (row["kind"], row["types"], row["shape"], row["note"]))) for row in timed)
    return [(title, row["fractions"]) for title, row in zip(titles, timed)]


def write(path: str, run: dict[str, Any]) -> None:
    """Writes a PNG."""
    pyplot = require()
    groups = groups_of(run["rows"])
    names = [name for name in COLORS if any(name in fractions for _, fractions in groups)]
    height = max(1.0, sum(len(fractions) * BAR + GAP for _, fractions in groups))
    figure, (bars, dots) = pyplot.subplots(
        2, 1, figsize=(9, height + 4.6), height_ratios=(height, 3.6), layout="constrained"
    )
    y, middles = 0.0, []
    for _, fractions in groups:
        middles.append(y + (len(fractions) - 1) * BAR / 2)
        for name, value in fractions.items():
            bars.barh(y, value, BAR * 0.9, color=COLORS[name])
            bars.text(value + 0.006, y, f"{value:.2f}", va="center", fontsize=6)
            y += BAR
        y += GAP
    bars.set_yticks(middles, [title for title, _ in groups], fontsize=8)
    bars.set_ylim(y, -BAR)
    bars.axvline(1, color="black", linewidth=0.8, zorder=0)
    bars.set_xlabel("speed relative to a copy (higher is better)")
    figure.suptitle(f"{run['machine'].get('GPU', '')}, {run['machine'].get('date', '')}", fontsize=10)
    for name in reversed(names):
        timed = [row for row in run["rows"] if name in row.get("us", {})]
        moved = [row["read_bytes"] + row["written_bytes"] for row in timed]
        rates = [count / row["us"][name] * 1e-3 for count, row in zip(moved, timed)]
        dots.scatter([count / 1e6 for count in moved], rates, s=9, label=name, color=COLORS[name])
    dots.set_xscale("log")
    dots.set_xlabel("MB read and written")
    dots.set_ylabel("GB/s")
    dots.set_ylim(bottom=0)
    dots.grid(alpha=0.3)
    if names:
        handles, labels = dots.get_legend_handles_labels()
        figure.legend(handles[::-1], labels[::-1], loc="outside lower center", ncols=len(names), fontsize=8)
    figure.savefig(path, dpi=90, pil_kwargs={"optimize": True})
    pyplot.close(figure)


def write_pairs(path: str, gpu: str, pairs: list[tuple[str, float, str, float]]) -> None:
    """A PNG of (work, flowk's speed, another library, its speed): a pair of bars per work."""
    pyplot = require()
    figure, axes = pyplot.subplots(figsize=(8.4, 0.3 + 0.62 * len(pairs)), layout="constrained")
    other = "#7c8794"
    for index, (_, own, name, theirs) in enumerate(pairs):
        for place, speed, label, color in ((-0.18, own, "flowk", COLORS["flowk"]), (0.18, theirs, name, other)):
            axes.barh(index + place, speed, 0.32, color=color)
            text = f"{label} {speed:.2f} "
            axes.text(speed, index + place, text, va="center", ha="right", fontsize=8, color="white")
    titles = ["\n".join(textwrap.wrap(work, 28)) for work, *_ in pairs]
    axes.set_yticks(range(len(pairs)), titles, fontsize=8)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.05)
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xlabel(f"speed relative to a plain copy of the same bytes, {gpu}: higher is better", fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=110, pil_kwargs={"optimize": True})
    pyplot.close(figure)
