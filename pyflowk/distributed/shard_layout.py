# SPDX-License-Identifier: Apache-2.0
"""Which part of which shard goes where: numbers only, the same on every rank.

A global array is split along dimension `src_dim`, its permute along dimension `dst_dim`, both as torch.chunk splits:
every chunk has ceil(extent / ranks) indices, the last one fewer, and there may be empty ones behind it.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import NamedTuple

from .._arguments import count_of


class Chunk(NamedTuple):
    """The indices [start, start + length) of a dimension."""

    start: int
    length: int


def chunks_of(extent: int, num_ranks: int) -> list[Chunk]:
    """The chunk of every rank."""
    size = -(-extent // num_ranks)
    starts = [min(rank * size, extent) for rank in range(num_ranks)]
    return [Chunk(start, min(size, extent - start)) for start in starts]


class ShardLayout(NamedTuple):
    """One redistribution. The source's dimensions are those of the global array, the result's those of its permute."""

    shape: tuple[int, ...]  # of the global array
    axes: tuple[int, ...]
    src_dim: int  # of the array, split in the source
    dst_dim: int  # of the permute, split in the result
    num_ranks: int

    @property
    def cut_dim(self) -> int:
        """The dimension of the array that is split in the result."""
        return self.axes[self.dst_dim]

    @property
    def joined_dim(self) -> int:
        """The dimension of the permute along which a result is put together from all ranks' parts."""
        return self.axes.index(self.src_dim)

    @property
    def is_local(self) -> bool:
        """Whether every rank keeps its elements: if both splits are of one dimension."""
        return self.cut_dim == self.src_dim

    def src_chunks(self) -> list[Chunk]:
        return chunks_of(self.shape[self.src_dim], self.num_ranks)

    def dst_chunks(self) -> list[Chunk]:
        return chunks_of(self.shape[self.cut_dim], self.num_ranks)

    def src_shape(self, rank: int) -> tuple[int, ...]:
        """The shape of a rank's source."""
        return with_extent(self.shape, self.src_dim, self.src_chunks()[rank].length)

    def dst_shape(self, rank: int) -> tuple[int, ...]:
        """The shape of a rank's result."""
        permuted = tuple(self.shape[axis] for axis in self.axes)
        return with_extent(permuted, self.dst_dim, self.dst_chunks()[rank].length)

    def inverse(self) -> ShardLayout:
        """The redistribution that undoes this one."""
        permuted = tuple(self.shape[axis] for axis in self.axes)
        inverse_axes = tuple(self.axes.index(d) for d in range(len(self.axes)))
        return ShardLayout(permuted, inverse_axes, self.dst_dim, self.src_dim, self.num_ranks)


def with_extent(shape: tuple[int, ...], dim: int, extent: int) -> tuple[int, ...]:
    """`shape` with another extent in one dimension."""
    return (*shape[:dim], extent, *shape[dim + 1 :])


def checked_integer(value: int, name: str) -> int:
    try:
        return operator.index(value)
    except TypeError as error:
        raise TypeError(f"{name} is {value!r}, must be an integer") from error


def checked_dim(value: int, name: str, rank: int) -> int:
    """A dimension counted from 0; TypeError or ValueError if it is none."""
    dim = checked_integer(value, name)
    if not -rank <= dim < rank:
        raise ValueError(f"{name} = {dim}, must be in {-rank} ... {rank - 1}")
    return dim % rank


def checked_axes(axes: Iterable[int], rank: int) -> tuple[int, ...]:
    """The axes counted from 0; TypeError or ValueError if they are no permutation of x's dimensions."""
    order = tuple(checked_dim(axis, "axes", rank) for axis in axes)
    if sorted(order) != list(range(rank)):
        raise ValueError(f"axes = {order}, must name each of x's {count_of(rank, 'dimension')} once")
    return order
