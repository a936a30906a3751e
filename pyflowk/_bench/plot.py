# SPDX-License-Identifier: Apache-2.0
"""A run as a picture: bars of the contenders by case or by set, and a curve per contender over its cases, sorted by
speed. Needs matplotlib. An SVG has no background, and its text is light where the reader prefers dark."""

from __future__ import annotations

import math
import textwrap
from importlib import import_module
from pathlib import Path
from typing import Any

from .measure import Row, summaries

MAX_CASES = 40  # with more cases the bars are the means of their sets
COLORS = {
    "flowk": "#3a9d40", "torch": "#d9601a", "compile": "#e0a030", "cupy": "#9467bd", "cutensor": "#4a90d9",
    "quack": "#d6487e", "jit": "#6fbf73", "plain": "#8a8a8a",
}  # fmt: skip
BAR, GAP = 0.15, 0.1  # inches
INK, LIGHT_INK = "#22272e", "#dde1e6"  # the colour of text and axes; the same on a dark background


def require() -> Any:
    """matplotlib's pyplot, without a display; ImportError if it is missing."""
    try:
        matplotlib = import_module("matplotlib")
        matplotlib.use("Agg")
        pyplot = import_module("matplotlib.pyplot")
    except ImportError as error:
        raise ImportError(f"--plot needs matplotlib (pip install matplotlib): {error}") from error
    inks = ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color")
    matplotlib.rcParams.update(dict.fromkeys(inks, INK) | {"svg.fonttype": "none", "svg.hashsalt": "flowk"})
    return pyplot


def save(figure: Any, path: str) -> None:
    """Writes a PNG, or an SVG that follows the reader's colour scheme."""
    if Path(path).suffix != ".svg":
        figure.savefig(path, dpi=110)
        return
    figure.savefig(path, transparent=True, metadata={"Date": None})
    text = Path(path).read_text().replace(INK, "currentColor")
    style = f"svg {{color: {INK}}} @media (prefers-color-scheme: dark) {{svg {{color: {LIGHT_INK}}}}}"
    Path(path).write_text(text.replace("<defs>", f"<style>{style}</style>\n <defs>", 1))


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


def sorted_fractions(rows: list[Row]) -> dict[str, list[float]]:
    """The fractions of a copy of each contender, from the slowest case to the fastest."""
    taken = [row["fractions"] for row in rows if "fractions" in row]
    found = {name: sorted(one[name] for one in taken if name in one) for name in COLORS}
    return {name: values for name, values in found.items() if values}


def write(path: str, run: dict[str, Any]) -> None:
    """Writes a picture of a run: PNG or SVG."""
    pyplot = require()
    groups = groups_of(run["rows"])
    height = max(1.0, sum(len(fractions) * BAR + GAP for _, fractions in groups))
    figure, (bars, curves) = pyplot.subplots(
        2, 1, figsize=(6.4, height + 4.4), height_ratios=(height, 3.6), layout="constrained"
    )
    y, middles = 0.0, []
    for _, fractions in groups:
        middles.append(y + (len(fractions) - 1) * BAR / 2)
        for name, value in fractions.items():
            bars.barh(y, value, BAR * 0.9, color=COLORS[name])
            bars.text(value + 0.006, y, f"{value:.2f}", va="center", fontsize=7)
            y += BAR
        y += GAP
    bars.set_yticks(middles, [title for title, _ in groups], fontsize=8)
    bars.set_ylim(y, -BAR)
    bars.set_xlim(0, 1.1 * max((value for _, fractions in groups for value in fractions.values()), default=1))
    bars.axvline(1, color=INK, linewidth=0.8, zorder=0)
    bars.set_xlabel("speed relative to a copy (higher is better)")
    figure.suptitle(f"{run['machine'].get('GPU', '')}, {run['machine'].get('date', '')}", fontsize=10)
    fractions_of = sorted_fractions(run["rows"])
    for name, values in fractions_of.items():
        shares = [100 * (index + 0.5) / len(values) for index in range(len(values))]
        marker = "o" if len(values) == 1 else None
        curves.plot(shares, values, marker=marker, label=f"{name} ({len(values)})", color=COLORS[name], zorder=2)
    curves.axhline(1, color=INK, linewidth=0.8, zorder=0)
    curves.set_xlim(0, 100)
    curves.set_ylim(bottom=0)
    curves.set_xlabel("% of a library's cases, the slowest first; the legend has their number")
    curves.set_ylabel("speed relative to a copy")
    curves.grid(alpha=0.3)
    if fractions_of:
        figure.legend(loc="outside lower center", ncols=len(fractions_of), fontsize=8, framealpha=0)
    save(figure, path)
    pyplot.close(figure)


def write_pairs(path: str, gpu: str, pairs: list[tuple[str, float, str, float]]) -> None:
    """A picture of (work, flowk's speed, another library, its speed): a pair of bars per work."""
    pyplot = require()
    figure, axes = pyplot.subplots(figsize=(6.4, 0.3 + 0.6 * len(pairs)), layout="constrained")
    other = "#7c8794"
    for index, (_, own, name, theirs) in enumerate(pairs):
        for place, speed, label, color in ((-0.18, own, "flowk", COLORS["flowk"]), (0.18, theirs, name, other)):
            axes.barh(index + place, speed, 0.32, color=color)
            text = f"{label} {speed:.2f} "
            axes.text(speed, index + place, text, va="center", ha="right", fontsize=8, color="white")
    titles = ["\n".join(textwrap.wrap(work, 24)) for work, *_ in pairs]
    axes.set_yticks(range(len(pairs)), titles, fontsize=8)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.05)
    axes.axvline(1, color=INK, linewidth=0.8)
    axes.set_xlabel(f"speed relative to a plain copy of the same bytes, {gpu}: higher is better", fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    save(figure, path)
    pyplot.close(figure)
