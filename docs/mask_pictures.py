# SPDX-License-Identifier: Apache-2.0
"""Pictures of the masks of masked_softmax: SVG drawn from masks that NumPy computes. A test compares each with the
columns that masked_softmax sets to 0."""

from __future__ import annotations

import html
from typing import Any, NamedTuple

import numpy as np

_CELL = 18


class Picture(NamedTuple):
    """Scores of shape (q, k), or (batch, q, k) for one panel per batch, and the options of masked_softmax."""

    caption: str
    shape: tuple[int, ...]
    options: dict[str, Any]
    values: np.ndarray[Any, Any] | None = None  # written into the unmasked cells

    @property
    def masked(self) -> np.ndarray[Any, Any]:
        """True where a column is masked out."""
        return _masked(self.shape, **self.options)


def _masked(
    shape: tuple[int, ...],
    mask: Any = False,
    lengths: Any = None,
    lengths_from_right: bool = False,
    causal: bool = False,
    causal_offset: int = 0,
    window: int | None = None,
    bias: Any = None,
) -> np.ndarray[Any, Any]:
    """What masked_softmax masks out, in NumPy. `lengths` are of shape (batch,) or (batch, q)."""
    q, k = shape[-2:]
    j = np.arange(k)
    diagonal = np.arange(q)[:, None] + (k - q) + causal_offset
    masked = np.broadcast_to(mask, shape).copy()
    if lengths is not None:
        masked |= (j[::-1] if lengths_from_right else j) >= lengths.reshape(shape[0], -1, 1)
    if causal:
        masked |= j > diagonal
    if window is not None:
        masked |= (j <= diagonal - window) | ((j >= diagonal + window) & (not causal))
    return masked


def pictures() -> dict[str, Picture]:
    documents = np.array([0, 0, 0, 1, 1, 2, 2, 2])
    key_padding = np.zeros((2, 1, 8), bool)
    key_padding[0, :, 6:] = key_padding[1, :, 3:] = True
    lengths, per_row = np.array([6, 3]), np.array([[3, 4, 5, 6], [1, 2, 2, 1]])
    slope = np.arange(8, dtype=np.float32)
    square, wide, batches = (8, 8), (4, 8), (2, 4, 8)
    offset = {"causal": True, "causal_offset": -4}
    together = {"causal": True, "window": 4, "lengths": np.array([8, 3])}
    return {
        "dense": Picture("mask of shape (8, 8): three documents", square, {"mask": documents[:, None] != documents}),
        "key_padding": Picture("mask of shape (2, 1, 8): one row per batch", batches, {"mask": key_padding}),
        "lengths": Picture("lengths=[6, 3]", batches, {"lengths": lengths}),
        "lengths_right": Picture(
            "lengths=[6, 3], lengths_from_right=True", batches, {"lengths": lengths, "lengths_from_right": True}
        ),
        "lengths_per_row": Picture("lengths of shape (2, 4): one per row", batches, {"lengths": per_row}),
        "causal": Picture("causal=True, q = k", square, {"causal": True}),
        "causal_longer": Picture("causal=True, q = 4, k = 8", wide, {"causal": True}),
        "causal_offset": Picture("causal=True, causal_offset=-4, q = 4, k = 8", wide, offset),
        "window": Picture("causal=True, window=3", square, {"causal": True, "window": 3}),
        "band": Picture("window=3", square, {"window": 3}),
        "together": Picture("causal=True, window=4, lengths=[8, 3]", (2, 8, 8), together),
        "bias": Picture(
            "causal=True, bias=slope * j; the numbers are j", square, {"causal": True, "bias": slope}, slope
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
    masked = drawn.masked.reshape(-1, *drawn.shape[-2:])
    names = [f"batch {b}" if len(masked) > 1 else "" for b in range(len(masked))]
    panels = "".join(f"<div>{_panel(drawn, panel, which)}</div>" for panel, which in zip(masked, names))
    return f"<figure><div>{panels}</div><figcaption>{html.escape(drawn.caption)}</figcaption></figure>"
