# SPDX-License-Identifier: Apache-2.0
"""A run as one page without other files: facts, plots as SVG, and a table to sort; page_template.html has its style."""

from __future__ import annotations

import html
import math
from pathlib import Path
from typing import Any

from .measure import Row, summaries
from .plot import COLORS
from .report import kernel_of

WIDTH, ROW_HEIGHT, LABEL_WIDTH = 720, 13, 210
FIGURES = ("us", "GB/s", "of a copy", "&plusmn;", "of peak")


def page_of(run: dict[str, Any]) -> str:
    """The HTML."""
    rows = [row for row in run["rows"] if "missing" not in row]
    rivals = list(dict.fromkeys(name for row in rows for name in row.get("fractions", {}) if name != "flowk"))
    facts = "".join(f"<dt>{_text(name)}</dt><dd>{_text(value)}</dd>" for name, value in run["machine"].items())
    parts = {
        "TITLE": f"flowk on {_text(run['machine'].get('GPU', 'a GPU'))}",
        "FACTS": facts,
        "LEGEND": _legend(["flowk", *rivals]),
        "BARS": _bars(summaries(rows)),
        "DOTS": _dots(rows, ["flowk", *rivals]),
        "HEAD": "".join(f"<th>{name}</th>" for name in ("set", "case", "types", "shape", *FIGURES, *rivals, "kernel")),
        "BODY": "".join(_table_row(row, rivals) for row in rows),
        "COLORS": "".join(f".{name}{{fill:{color};background:{color}}}" for name, color in COLORS.items()),
    }
    page = (Path(__file__).parent / "page_template.html").read_text()
    for name, text in parts.items():
        page = page.replace(f"<!--{name}-->", text).replace(f"/*{name}*/", text)
    return page


def _text(value: Any) -> str:
    return html.escape(str(value))


def _legend(names: list[str]) -> str:
    return "".join(f'<span><i class="{name}"></i>{_text(name)}</span>' for name in names)


def _bars(sets: list[Row]) -> str:
    """Horizontal bars, one group per set; the line is the speed of a copy."""
    groups = [(row["set"], {"flowk": row["geomean"]} | row["rivals"]) for row in sets if not math.isnan(row["geomean"])]
    most = max([1.1, *(value for _, values in groups for value in values.values())])
    scale = (WIDTH - LABEL_WIDTH - 50) / most
    parts, y = [], 4
    for title, values in groups:
        middle = y + ROW_HEIGHT * len(values) / 2 + 4
        parts.append(f'<text x="{LABEL_WIDTH - 8}" y="{middle:.0f}" text-anchor="end">{_text(title)}</text>')
        for name, value in values.items():
            length = value * scale
            parts.append(
                f'<rect class="{name}" x="{LABEL_WIDTH}" y="{y}" width="{length:.1f}" height="{ROW_HEIGHT - 2}"/>'
            )
            parts.append(f'<text x="{LABEL_WIDTH + length + 4:.1f}" y="{y + 10}" class="value">{value:.2f}</text>')
            y += ROW_HEIGHT
        y += 8
    x = LABEL_WIDTH + scale
    parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{y}"/>')
    return _svg(y + 4, parts, "Geometric means by set, relative to a copy")


def _dots(rows: list[Row], names: list[str]) -> str:
    """GB/s over bytes, on a logarithmic scale of bytes."""
    timed = [row for row in rows if "us" in row]
    if not timed:
        return ""
    height, left, bottom = 320, 60, 36
    sizes = [row["read_bytes"] + row["written_bytes"] for row in timed]
    low, high = math.floor(math.log10(min(sizes))), math.ceil(math.log10(max(sizes) + 1))
    top = max(count / seconds * 1e-3 for row, count in zip(timed, sizes) for seconds in row["us"].values()) * 1.05

    def place(num_bytes: float, rate: float) -> tuple[float, float]:
        x = left + (math.log10(num_bytes) - low) / (high - low) * (WIDTH - left - 12)
        return x, (height - bottom) * (1 - rate / top) + 6

    parts = []
    for power in range(low, high + 1):
        x, y = place(10**power, 0)
        unit = {3: "kB", 6: "MB", 9: "GB"}.get(power // 3 * 3, "B")
        label = f"{10 ** (power % 3)} {unit}"
        parts.append(f'<line class="grid" x1="{x:.0f}" x2="{x:.0f}" y1="6" y2="{y:.0f}"/>')
        parts.append(f'<text x="{x:.0f}" y="{y + 16:.0f}" text-anchor="middle">{label}</text>')
    step = 10 ** math.floor(math.log10(top)) / (2 if top / 10 ** math.floor(math.log10(top)) < 3 else 1)
    for rate in range(0, int(top) + 1, max(1, int(step))):
        x, y = place(10**low, rate)
        parts.append(f'<line class="grid" x1="{x:.0f}" x2="{WIDTH - 12}" y1="{y:.0f}" y2="{y:.0f}"/>')
        parts.append(f'<text x="{x - 6:.0f}" y="{y + 4:.0f}" text-anchor="end">{rate}</text>')
    for name in reversed(names):
        for row, count in zip(timed, sizes):
            if name in row["us"]:
                x, y = place(count, count / row["us"][name] * 1e-3)
                label = _text(f"{name}: {row['op']} {row['kind']} {row['types']} {row['shape']}")
                parts.append(f'<circle class="{name}" cx="{x:.1f}" cy="{y:.1f}" r="3"><title>{label}</title></circle>')
    return _svg(height, parts, "GB/s over the bytes read and written")


def _svg(height: int, parts: list[str], title: str) -> str:
    body = "".join(parts)
    return f'<svg viewBox="0 0 {WIDTH} {height}" role="img"><title>{_text(title)}</title>{body}</svg>'


def _table_row(row: Row, rivals: list[str]) -> str:
    shape = _text(f"{row['shape']} {row['note']}".strip())
    cells = [_text(f"{row['op']} {row['set']}"), _text(row["kind"]), _text(row["types"]), shape]
    if "fractions" in row:
        own = row["fractions"]["flowk"]
        peak = f"{row['datasheet']:.0%}" if "datasheet" in row else ""
        numbers = [f"{row['us']['flowk']:.1f}", f"{row['gb_s']:.0f}", f"{own:.3f}", f"{row['spread']:.1%}", peak]
        numbers += [f"{row['fractions'][name]:.2f}" if name in row["fractions"] else "" for name in rivals]
    else:
        numbers = ["right" if row["right"] else "WRONG"] + [""] * (len(FIGURES) - 1 + len(rivals))
    marked = "".join(f'<td class="n">{number}</td>' for number in numbers)
    plan = f'<td title="{_text(row["plan"])}">{_text(kernel_of(row))}</td>'
    wrong = "" if row["right"] else ' class="wrong"'
    return f"<tr{wrong}>" + "".join(f"<td>{cell}</td>" for cell in cells) + marked + plan + "</tr>"
