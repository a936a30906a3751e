# SPDX-License-Identifier: Apache-2.0
"""Pictures of the masks of masked_softmax: SVG drawn from masks that NumPy computes. A test compares each with the
columns that masked_softmax sets to 0."""

from __future__ import annotations

import html
from typing import Any, NamedTuple

import numpy as np

_CELL = 18


class Picture(NamedTuple):
    """Scores of shape (q, k), or (batch, q, k) for one panel per batch."""

    caption: str
    masked: np.ndarray[Any, Any]
    options: dict[str, Any]  # of masked_softmax, that mask the same columns
    values: np.ndarray[Any, Any] | None = None  # written into the unmasked cells


def _causal(q: int, k: int, offset: int = 0) -> np.ndarray[Any, Any]:
    """True where j > d, with d = i + (k - q) + offset."""
    i, j = np.arange(q)[:, None], np.arange(k)[None, :]
    return j > i + (k - q) + offset


def _band(q: int, k: int, window: int, both_sides: bool) -> np.ndarray[Any, Any]:
    """True outside the window around, or before, the diagonal d = i + (k - q)."""
    i, j = np.arange(q)[:, None], np.arange(k)[None, :]
    d = i + (k - q)
    return (j <= d - window) | ((j >= d + window) if both_sides else (j > d))


def _beyond(lengths: list[int], k: int, side: str = "left") -> np.ndarray[Any, Any]:
    """(batch, 1, k): True behind the first `lengths` columns, or before the last ones."""
    columns = np.arange(k) if side == "left" else np.arange(k)[::-1]
    return columns >= np.array(lengths)[:, None, None]


def pictures() -> dict[str, Picture]:
    q, k = 4, 8
    documents = np.array([0, 0, 0, 1, 1, 2, 2, 2])
    same = documents[:, None] != documents[None, :]
    key_padding = np.zeros((2, 1, k), bool)
    key_padding[0, :, 6:] = key_padding[1, :, 3:] = True
    lengths = np.array([6, 3])
    rows = np.array([[3, 4, 5, 6], [1, 2, 2, 1]])
    slope = np.arange(8, dtype=np.float32)
    both = np.broadcast_to(key_padding, (2, q, k))
    return {
        "dense": Picture("mask of shape (8, 8): three documents", same, {"mask": same}),
        "key_padding": Picture("mask of shape (2, 1, 8): one row per batch", both, {"mask": key_padding}),
        "lengths": Picture("lengths=[6, 3]", np.broadcast_to(_beyond([6, 3], k), (2, q, k)), {"lengths": lengths}),
        "lengths_right": Picture(
            'lengths=[6, 3], side="right"',
            np.broadcast_to(_beyond([6, 3], k, "right"), (2, q, k)),
            {"lengths": lengths, "side": "right"},
        ),
        "lengths_per_row": Picture(
            "lengths of shape (2, 4): one per row", np.arange(k) >= rows[..., None], {"lengths": rows}
        ),
        "causal": Picture("causal=True, q = k", _causal(8, 8), {"causal": True}),
        "causal_longer": Picture("causal=True, q = 4, k = 8", _causal(q, k), {"causal": True}),
        "causal_offset": Picture(
            "causal=True, causal_offset=-4, q = 4, k = 8",
            _causal(q, k, -4),
            {"causal": True, "causal_offset": -4},
        ),
        "window": Picture("causal=True, window=3", _band(8, 8, 3, False), {"causal": True, "window": 3}),
        "band": Picture("window=3", _band(8, 8, 3, True), {"window": 3}),
        "together": Picture(
            "causal=True, window=4, lengths=[8, 3]",
            _band(8, 8, 4, False)[None] | _beyond([8, 3], 8),
            {"causal": True, "window": 4, "lengths": np.array([8, 3])},
        ),
        "bias": Picture(
            "causal=True, bias=slope * j; the numbers are j", _causal(8, 8), {"causal": True, "bias": slope}, slope
        ),
    }


def _panel(picture: Picture, masked: np.ndarray[Any, Any], name: str) -> str:
    q, k = masked.shape
    left, top = 20, 16
    cells = []
    for i in range(q):
        for j in range(k):
            x, y = left + j * _CELL, top + i * _CELL
            kind = "cell" if masked[i, j] else "cell unmasked"
            cells.append(f'<rect class="{kind}" x="{x}" y="{y}" width="{_CELL}" height="{_CELL}"/>')
            if masked[i, j]:
                ends = f'x1="{x + 5}" y1="{y + _CELL - 5}" x2="{x + _CELL - 5}" y2="{y + 5}"'
                cells.append(f'<line class="cross" {ends}/>')
            elif picture.values is not None:
                number = f"{picture.values[j]:g}"
                cells.append(f'<text class="number" x="{x + _CELL // 2}" y="{y + 12}">{number}</text>')
    width, height = left + k * _CELL + 2, top + q * _CELL + 2
    axes = f'<text class="axis" x="20" y="11">{f"{name}: " if name else ""}column j →</text>'
    axes += f'<text class="axis" transform="translate(5 {top}) rotate(90)">row i →</text>'
    label = html.escape(f"{picture.caption} {name}: {int((~masked).sum())} of {masked.size} columns are unmasked")
    return (
        f'<svg role="img" aria-label="{label}" width="{width}" height="{height}" viewBox="0 0 {width} {height}">'
        f"{axes}{''.join(cells)}</svg>"
    )


def picture(name: str) -> str:
    """A figure: one panel per batch."""
    drawn = pictures()[name]
    masked = drawn.masked if drawn.masked.ndim == 3 else drawn.masked[None]
    names = [f"batch {b}" if len(masked) > 1 else "" for b in range(len(masked))]
    panels = "".join(f"<div>{_panel(drawn, panel, which)}</div>" for panel, which in zip(masked, names))
    return f"<figure><div>{panels}</div><figcaption>{html.escape(drawn.caption)}</figcaption></figure>"
