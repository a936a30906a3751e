# SPDX-License-Identifier: Apache-2.0
"""A run as one page without other files: facts, plots as SVG, and a table to sort; page_template.html has its style."""

from __future__ import annotations

import html
import math
from pathlib import Path
from typing import Any

from .measure import Row
from .plot import COLORS, set_groups
from .report import kernel_of

WIDTH, HEIGHT, LEFT, RIGHT, BOTTOM = 520, 270, 42, 20, 30  # of the picture
FIGURES = ("us", "GB/s", "of a copy", "&plusmn;", "of peak")


def page_of(run: dict[str, Any]) -> str:
    """The HTML."""
    rows = [row for row in run["rows"] if "missing" not in row]
    named = {name for row in rows for name in row.get("fractions", {})}
    rivals = [name for name in COLORS if name in named and name != "flowk"]
    facts = "".join(f"<dt>{_text(name)}</dt><dd>{_text(value)}</dd>" for name, value in run["machine"].items())
    parts = {
        "TITLE": f"flowk on {_text(run['machine'].get('GPU', 'a GPU'))}",
        "FACTS": facts,
        "LEGEND": _legend(["flowk", *rivals]),
        "BARS": _bars(rows),
        "DOTS": _dots(rows, ["flowk", *rivals]),
        "HEAD": "<th>set<th>case<th>types<th>shape"
        + "".join(f'<th class="n">{name}' for name in (*FIGURES, *rivals))
        + "<th>kernel",
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


def _bars(rows: list[Row]) -> str:
    """Horizontal bars, one group per set; the line is the speed of a copy."""
    groups = set_groups(rows)
    one = 88 / max([1.1, *(value for _, means in groups for value in means.values())])  # % of the width
    parts = [f'<div class="sets" style="--one:{one:.1f}%">']
    for title, means in groups:
        bars = "".join(
            f'<div><i class="{name}" style="width:{value * one:.1f}%"></i><span>{value:.2f}</span></div>'
            for name, value in means.items()
        )
        parts.append(f'<b>{_text(title)}</b><div class="bars">{bars}</div>')
    return "".join(parts) + "</div>"


def _dots(rows: list[Row], names: list[str]) -> str:
    """GB/s over bytes, on a logarithmic scale of bytes."""
    timed = [row for row in rows if "us" in row]
    if not timed:
        return ""
    sizes = [row["read_bytes"] + row["written_bytes"] for row in timed]
    low, high = math.floor(math.log10(min(sizes))), math.ceil(math.log10(max(sizes) + 1))
    top = max(count / seconds * 1e-3 for row, count in zip(timed, sizes) for seconds in row["us"].values()) * 1.05

    def place(num_bytes: float, rate: float) -> tuple[float, float]:
        x = LEFT + (math.log10(num_bytes) - low) / (high - low) * (WIDTH - LEFT - RIGHT)
        return x, (HEIGHT - BOTTOM) * (1 - rate / top) + 6

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
        parts.append(f'<line class="grid" x1="{x:.0f}" x2="{WIDTH - RIGHT}" y1="{y:.0f}" y2="{y:.0f}"/>')
        parts.append(f'<text x="{x - 6:.0f}" y="{y + 4:.0f}" text-anchor="end">{rate}</text>')
    for name in reversed(names):
        for row, count in zip(timed, sizes):
            if name in row["us"]:
                x, y = place(count, count / row["us"][name] * 1e-3)
                label = _text(f"{name}: {row['op']} {row['kind']} {row['types']} {row['shape']}")
                parts.append(
                    f'<circle class="{name}" cx="{x:.1f}" cy="{y:.1f}" r="2.4"><title>{label}</title></circle>'
                )
    title = "<title>GB/s over the bytes read and written</title>"
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img">{title}{"".join(parts)}</svg>'


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
