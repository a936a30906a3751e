# SPDX-License-Identifier: Apache-2.0
"""The axes of permute as a pattern of names: "b q k -> b k q"."""

from __future__ import annotations

from .._arguments import count_of, shown


def axes_of_pattern(pattern: str, rank: int) -> tuple[int, ...]:
    """The axes that a pattern describes for an array of `rank` dimensions. ``...`` are all dimensions without a name.

    ValueError if it is no permutation of names, or has more or fewer names than `rank`.
    """
    sides = pattern.split("->")
    if len(sides) != 2:
        raise ValueError(f"axes = {shown(pattern)}, must be integers or a pattern such as 'b q k -> b k q'")
    if set(pattern) & set("()[]"):
        raise ValueError(
            f"axes = {shown(pattern)} groups dimensions: permute only reorders them; reshape before or after it"
        )
    left, right = (side.split() for side in sides)
    for name in (*left, *right):
        if name != "..." and not name.isidentifier():
            raise ValueError(f"axes = {shown(pattern)}: {name!r} is no name of a dimension")
    if len(set(left)) != len(left) or sorted(left) != sorted(right):
        raise ValueError(f"axes = {shown(pattern)}: each name must stand once on both sides")
    named = len(left) - ("..." in left)
    if named > rank or (named < rank and "..." not in left):
        raise ValueError(f"axes = {shown(pattern)} names {count_of(named, 'dimension')}, x has {rank}")
    positions: dict[str, tuple[int, ...]] = {}
    start = 0
    for name in left:
        num = rank - named if name == "..." else 1
        positions[name] = tuple(range(start, start + num))
        start += num
    return tuple(axis for name in right for axis in positions[name])
