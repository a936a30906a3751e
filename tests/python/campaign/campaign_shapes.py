# SPDX-License-Identifier: Apache-2.0
"""Shapes, strides and places that the campaign draws. `r` is a random.Random, hypothesis's or Python's own."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import numpy as np
from campaign_case import ALIGNMENT_BYTES, Tensor

WILD_STRIDES = (0, 1, -1, 7, 2**40, -(2**62), -(2**63), 2**63 - 1)  # of extents of 1, which no index multiplies


def chance(r: random.Random, percent: int) -> bool:
    return r.randrange(100) < percent


def generator(r: random.Random) -> np.random.Generator:
    """For values, which hypothesis need not shrink one by one."""
    return np.random.default_rng(r.randrange(2**32))


def shape(r: random.Random, min_rank: int = 0, max_rank: int = 32, room: int = 0) -> tuple[int, ...]:
    """Extents with a product of at most `room`: mostly of ranks up to 6, one in ten of any rank, now and then with an
    extent of 0."""
    room = room or r.choice((30, 300, 300, 3000, 3000, 3000, 12000, 60000))
    has_round_extents = chance(r, 35)  # whole vectors and tiles, as most programs have them
    rank = r.randrange(max(min_rank, 1), min(max_rank, 6) + 1)
    if chance(r, 3):
        rank = min_rank
    elif chance(r, 10):
        rank = r.randrange(min_rank, max_rank + 1)
    extents = []
    for _ in range(rank):
        most = min(room, r.choice((2, 5, 40, 40, 300, room)) if rank < 12 else 2)
        extent = r.randrange(1, most + 1)
        if has_round_extents and extent > 4:
            extent &= -(1 << (extent.bit_length() - r.randrange(1, 3)))
        extents.append(extent)
        room //= extents[-1]
    r.shuffle(extents)
    if rank and chance(r, 3):
        extents[r.randrange(rank)] = 0
    return tuple(extents)


def contiguous(extents: Sequence[int]) -> tuple[int, ...]:
    strides, stride = [], 1
    for extent in reversed(extents):
        strides.append(stride)
        stride *= max(extent, 1)
    return tuple(reversed(strides))


def separate_strides(r: random.Random, extents: Sequence[int], first: int = 1) -> tuple[int, ...]:
    """Strides of elements that share no memory, by flowk_permute()'s rule: any order, gaps, and directions. `first` is
    the least stride."""
    if first == 1 and chance(r, 50):
        return contiguous(extents)
    order = list(range(len(extents)))
    if chance(r, 60):
        r.shuffle(order)
    has_gaps, has_backward = chance(r, 50), chance(r, 30)
    strides, span = [0] * len(extents), first - 1  # what smaller strides reach
    for dimension in reversed(order):
        stride = span + 1
        if has_gaps and chance(r, 40):
            stride += r.choice((1, 2, 5, span, -stride % 8, -stride % 16))
        strides[dimension] = -stride if has_backward and chance(r, 50) else stride
        span += stride * max(extents[dimension] - 1, 0)
    return with_wild_strides(r, extents, strides)


def any_strides(r: random.Random, extents: Sequence[int], first: int = 1) -> tuple[int, ...]:
    """Strides of an input: as separate_strides(), or with repeated and overlapping elements."""
    if chance(r, 80):
        strides = list(separate_strides(r, extents, first))
        if chance(r, 30):
            strides = [0 if chance(r, 30) else stride for stride in strides]
        return tuple(strides)
    return with_wild_strides(r, extents, [_overlapping_stride(r, extent) for extent in extents])


def _overlapping_stride(r: random.Random, extent: int) -> int:
    """Small, or what is a block of a tile; smaller for long dimensions, so that a case has a few MB at most."""
    if extent > 1000:
        return r.randrange(-2, 4)
    if extent > 100 or chance(r, 60):
        return r.randrange(-9, 20)
    return r.choice((1, 2, 4, 8, 16, 32, 64, 128, -16, -64))


def with_wild_strides(r: random.Random, extents: Sequence[int], strides: list[int]) -> tuple[int, ...]:
    if not chance(r, 15):
        return tuple(strides)
    return tuple(r.choice(WILD_STRIDES) if extent == 1 else stride for extent, stride in zip(extents, strides))


def lead_bytes(r: random.Random, dtype: np.dtype) -> int:
    """How far past an aligned address a tensor begins: a multiple of what its type needs."""
    if chance(r, 50):
        return 0
    unit = alignment_bytes(dtype)
    return unit * r.randrange(ALIGNMENT_BYTES // unit)


def alignment_bytes(dtype: np.dtype) -> int:
    return dtype.itemsize // 2 if dtype.kind == "c" else dtype.itemsize


def tensor(
    r: random.Random,
    dtype: np.dtype,
    extents: tuple[int, ...],
    strides: tuple[int, ...],
    values: Callable[[tuple[int, ...]], np.ndarray] | None = None,
) -> Tensor:
    return Tensor(dtype, extents, strides, lead_bytes(r, dtype), values)


def shares_its_own_memory(tensor: Tensor) -> bool:
    """flowk_permute()'s rule."""
    span = 0
    for stride, extent in sorted((abs(s), e) for s, e in zip(tensor.strides, tensor.shape) if e > 1):
        if stride <= span:
            return True
        span += stride * (extent - 1)
    return False


def given_strides(r: random.Random, of: Tensor) -> tuple[int, ...] | None:
    """The strides as an argument: NULL now and then if they are C order."""
    return None if of.strides == contiguous(of.shape) and chance(r, 60) else of.strides


def given_pointer(r: random.Random, of: Tensor, is_empty: bool) -> Tensor | None:
    """The pointer as an argument: NULL now and then if there is nothing to do."""
    return None if is_empty and chance(r, 50) else of
