# SPDX-License-Identifier: Apache-2.0
"""Drawings of the page on speed, as SVG: how a tile passes through shared memory, and a call's way to its kernel."""

from __future__ import annotations

import html
from typing import Any

import numpy as np

_CELL = 16
_ARROW = (
    '<marker id="head" viewBox="0 0 6 6" refX="5" refY="3" markerWidth="6" markerHeight="6" orient="auto">'
    '<path class="head" d="M0 0L6 3L0 6z"/></marker>'
)


def _text(x: float, y: float, text: str, kind: str = "label") -> str:
    return f'<text class="{kind}" x="{x}" y="{y}">{html.escape(text)}</text>'


def _arrow(x0: float, y0: float, x1: float, y1: float) -> str:
    return f'<line class="arrow" x1="{x0}" y1="{y0}" x2="{x1}" y2="{y1}" marker-end="url(#head)"/>'


def _figure(caption: str, width: int, height: int, body: str) -> str:
    label = html.escape(caption)
    return (
        f'<figure><svg role="img" aria-label="{label}" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}">{_ARROW}{body}</svg><figcaption>{label}</figcaption></figure>'
    )


def _grid(x: int, y: int, numbers: np.ndarray[Any, Any], run: int = -1) -> str:
    """A matrix: elements with a number >= 0 are of the tile; those of row `run` have a frame, as one run of memory."""
    cells = []
    for (i, j), number in np.ndenumerate(numbers):
        left, top = x + j * _CELL, y + i * _CELL
        kind = "cell unmasked" if number >= 0 else "cell"
        cells.append(f'<rect class="{kind}" x="{left}" y="{top}" width="{_CELL}" height="{_CELL}"/>')
        if number >= 0:
            cells.append(_text(left + _CELL / 2, top + 12, str(number), "number"))
    if run >= 0:
        columns = np.flatnonzero(numbers[run] >= 0)
        left, width = x + int(columns[0]) * _CELL, len(columns) * _CELL
        cells.append(f'<rect class="run" x="{left}" y="{y + run * _CELL}" width="{width}" height="{_CELL}"/>')
    return "".join(cells)


def tile() -> str:
    """A tile of 4 by 4 elements of a transpose: src, shared memory, dst."""
    src = np.full((6, 8), -1)
    src[1:5, 2:6] = np.arange(16).reshape(4, 4)
    body = _text(10, 14, "src, 6 x 8") + _grid(10, 24, src, run=1)
    body += _text(196, 14, "shared memory") + _grid(206, 40, src[1:5, 2:6])
    body += _text(336, 14, "dst, 8 x 6") + _grid(336, 24, src.T, run=2)
    body += f'<rect class="run" x="206" y="40" width="{_CELL}" height="{4 * _CELL}"/>'
    body += _arrow(108, 48, 202, 48) + _arrow(272, 64, 332, 64)
    body += _text(142, 43, "reads rows", "axis") + _text(274, 59, "writes rows", "axis")
    return _figure("A tile through shared memory: the framed elements are neighbours in src and in dst", 436, 156, body)


def path() -> str:
    """A call's way to its kernel."""
    steps = [
        ("flowk_permute(src, ..., stream)", "pyflowk.permute(x, axes) calls it"),
        ("check the arguments", "an error names the parameter; nothing is written"),
        ("look for a plan", "of the last 32 of this thread"),
        ("merge dimensions that lie side by side", "(n, h, w, c) to (n, c, h, w): h and w are one dimension"),
        ("choose a mechanism", "copy_rows, channels, aligned_tile, ..."),
        ("choose its tile", "by the estimated time, or by measurement: tune"),
        ("launch on the stream", "one kernel; nothing waits"),
    ]
    body, top, height, width = "", 4, 40, 330
    for index, (title, detail) in enumerate(steps):
        y = top + index * (height + 16)
        body += f'<rect class="box" x="4" y="{y}" width="{width}" height="{height}" rx="6"/>'
        body += _text(14, y + 16, title) + _text(14, y + 32, detail, "axis")
        if index + 1 < len(steps):
            body += _arrow(4 + width / 2, y + height, 4 + width / 2, y + height + 14)
    found, launch = (top + index * (height + 16) + height / 2 for index in (2, 6))
    side, turned = 4 + width, f"translate({4 + width + 24} {(found + launch) / 2 - 30}) rotate(90)"
    body += f'<path class="arrow" d="M{side} {found}H{side + 18}V{launch}H{side + 2}" marker-end="url(#head)"/>'
    body += f'<text class="axis" transform="{turned}">it is there</text>'
    return _figure("A call's way to its kernel", side + 40, top + len(steps) * (height + 16), body)


DIAGRAMS = {"tile": tile, "path": path}
