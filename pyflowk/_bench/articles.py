# SPDX-License-Identifier: Apache-2.0
"""What the four articles published, and the same comparison on this GPU."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from . import permute_work
from .measure import Row, case_key

Case = dict[str, Any]
RIVALS = ("torch", "plain")
INSIGHTFACE = ((96, 64, 112, 112), (96, 64, 56, 56), (96, 128, 28, 28), (96, 256, 14, 14), (96, 512, 7, 7))
ATTENTION = ((64, 12, 128, 128), (16, 16, 512, 512), (8, 16, 1024, 1024))


class Claim(NamedTuple):
    """A published comparison and the cases that repeat it; the ratio is a rival's time over flowk's."""

    title: str
    published: str
    op: str
    cases: list[Case]


def claims() -> list[Claim]:
    """All claims. The last two are masked softmaxes of the same shapes, with a dense mask and with lengths."""
    a100, copied = "A100 40GB", "1.24 to 1.4 times PyTorch's speed, near a copy"
    seeds = permute_work.SETS.cases_of("seeds")

    def prelus(shapes: Iterable[tuple[int, ...]]) -> list[Case]:
        return [{"layout": "nchw", "shape": shape, "kind": "f32", "direction": "forward"} for shape in shapes]

    def softmaxes(kind: str) -> list[Case]:
        return [{"kind": kind, "types": "f32", "shape": shape} for shape in ATTENTION]

    swaps = [
        Claim(
            *(f"permute {name}, {kind}, 16-128 MB", f"{a100}: {ratio}", "permute"),
            [case for case in seeds if (case["axes"], case["kind"]) == (axes, kind)],
        )
        for name, axes, kind, ratio in (
            ("(1,0,2)", [1, 0, 2], "f32", copied),
            ("(1,0,2)", [1, 0, 2], "f16", copied),
            ("(0,2,1)", [0, 2, 1], "f32", "3 to 3.2 times PyTorch's speed"),
            ("(0,2,1)", [0, 2, 1], "f16", "up to 6.3 times PyTorch's speed"),
        )
    ]
    sizes = [(1 << power) // 6 for power in (24, 25, 26, 27)]
    casts = [{"name": "cast", "op": "copy", "kinds": ["f32", "f16"], "shape": (size,)} for size in sizes]
    fast, same = f"{a100}: about 3 times PyTorch's speed", f"{a100}: on a par with PyTorch"
    share, gain = "15 % of attention's time instead of 19 %", "2.5 times the speed of the dense mask's kernel"
    return [
        *swaps,
        Claim("cast f32 to f16", f"{a100}: 80 to 90 % faster than PyTorch", "elementwise", casts),
        Claim("PReLU, InsightFace's shapes, f32", fast, "prelu", prelus(INSIGHTFACE[:4])),
        Claim("PReLU, planes of 7x7, f32", same, "prelu", prelus(INSIGHTFACE[4:])),
        Claim("masked softmax, dense mask, f32", f"unnamed GPU: {share}", "softmax", softmaxes("dense")),
        Claim("masked softmax, lengths, f32", f"unnamed GPU: {gain}", "softmax", softmaxes("lengths")),
    ]


def cases() -> Iterator[tuple[str, Case]]:
    """(operator, case) of every claim."""
    for claim in claims():
        for case in claim.cases:
            yield claim.op, case


def table(rows: Iterable[Row]) -> Iterator[str]:
    """One line per claim and one per case. The rows are the results of cases(), in the same order."""
    rest = iter(rows)
    yield "\nThe articles: the time of PyTorch, and of the plain kernel that the article starts from, over flowk's"
    times: dict[str, dict[str, float]] = {}
    for claim in claims():
        found = [next(rest) for _ in claim.cases]
        yield f"{claim.title}\n    published  {claim.published}"
        for row in found:
            if "us" not in row:
                yield f"    {case_key(row)}: wrong or not timed" if "missing" not in row else f"    {row['missing']}"
                continue
            us = row["us"]
            times.setdefault(row["shape"], {})[row["kind"]] = us.get("plain", 0)
            ratios = ", ".join(f"{name} {us[name] / us['flowk']:.2f}x" for name in RIVALS if name in us)
            absent = "".join(f", no {name}" for name in RIVALS if name not in us)
            megabytes = row["read_bytes"] / 1e6
            copied = f"{row['fractions']['flowk']:.2f} of a copy"
            yield f"    {row['shape']:24} {megabytes:6.1f} MB read: {us['flowk']:7.1f} us, {copied}; {ratios}{absent}"
    steps = [of["dense"] / of["lengths"] for of in times.values() if of.get("dense") and of.get("lengths")]
    if steps:
        yield f"plain kernels, dense mask over lengths: {min(steps):.2f} to {max(steps):.2f}x (published 2.5x)"
