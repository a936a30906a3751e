# SPDX-License-Identifier: Apache-2.0
"""A run as a picture: contenders beside each other, by case or by set, and GB/s over bytes. Needs matplotlib."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from .measure import Row, summaries

MOST_CASES = 40  # shown one by one; more are shown as the means of their sets
COLORS = {
    "flowk": "#2f7d32", "torch": "#d9601a", "compile": "#e0a030", "cupy": "#7a5195", "cutensor": "#3f7fbf",
    "quack": "#b03060", "jit": "#58a55c", "plain": "#8a8a8a",
}  # fmt: skip


def require() -> Any:
    """matplotlib's pyplot, without a display; ImportError where it is missing."""
    try:
        import_module("matplotlib").use("Agg")
        return import_module("matplotlib.pyplot")
    except ImportError as error:
        raise ImportError(f"--plot needs matplotlib (pip install matplotlib): {error}") from error


def groups_of(rows: list[Row]) -> list[tuple[str, dict[str, float]]]:
    """(title, the fraction of a copy of each contender), by case or where there are many by set."""
    timed = [row for row in rows if "fractions" in row]
    if len(timed) <= MOST_CASES:
        return [
            (f"{row['kind']} {row['types']} {row['shape']} {row['note']}".strip(), row["fractions"]) for row in timed
        ]
    return [(row["set"], {"flowk": row["geomean"]} | row["rivals"]) for row in summaries(timed)]


def write(path: str, run: dict[str, Any]) -> None:
    """Writes a PNG."""
    pyplot = require()
    groups = groups_of(run["rows"])
    names = list(dict.fromkeys(name for _, fractions in groups for name in fractions))
    height = max(3.0, 0.22 * len(groups) * max(1, len(names)) + 1.5)
    figure, (bars, dots) = pyplot.subplots(
        2, 1, figsize=(10, height + 4.5), height_ratios=(height, 4.5), layout="constrained"
    )
    thickness = 0.85 / max(1, len(names))
    for place, name in enumerate(names):
        found = [(y, fractions[name]) for y, (_, fractions) in enumerate(groups) if name in fractions]
        centers = [y + (place - (len(names) - 1) / 2) * thickness for y, _ in found]
        bars.barh(centers, [value for _, value in found], thickness, label=name, color=COLORS.get(name))
    bars.set_yticks(range(len(groups)), [title for title, _ in groups], fontsize=7)
    bars.margins(y=0.01)
    bars.invert_yaxis()
    bars.axvline(1, color="black", linewidth=0.8)
    bars.set_xlabel("speed relative to a copy (higher is better)")
    bars.set_title(f"{run['machine'].get('GPU', '')}, {run['machine'].get('date', '')}")
    if names:
        bars.legend(fontsize=8)
    for name in names:
        timed = [row for row in run["rows"] if name in row.get("us", {})]
        moved = [row["read_bytes"] + row["written_bytes"] for row in timed]
        rates = [count / row["us"][name] * 1e-3 for count, row in zip(moved, timed)]
        dots.scatter([count / 1e6 for count in moved], rates, s=10, label=name, color=COLORS.get(name))
    dots.set_xscale("log")
    dots.set_xlabel("MB read and written")
    dots.set_ylabel("GB/s")
    dots.set_ylim(bottom=0)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
