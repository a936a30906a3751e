# SPDX-License-Identifier: Apache-2.0
"""Permutes of arrays that are split over the ranks of a process group: a permute and an all-to-all in one step.

The tensors are torch's, the groups torch.distributed's. `redistribute` moves the split of an array from one dimension
to another and permutes the dimensions on the way:

    x       this rank's shard of a global array, split along `src_dim`
    result  this rank's shard of permute(global array, axes), split along its dimension `dst_dim`

Splits are torch.chunk's. If the GPUs of all ranks access each other's memory, every rank writes straight into the
others' results (the fused transport). If not, parts are packed, exchanged by all_to_all_single and put in place (the
staged transport). Calls are collective: every rank of the group makes the same calls in the same order, on one stream.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist

from .._arguments import shown as _shown
from . import transports as _transports
from .rank_agreement import group_or_default as _group_or_default
from .redistribution import explain, redistribute

# fmt: off
__all__ = [
    "empty", "explain", "gather_heads", "redistribute", "scatter_heads", "transpose", "transpose_pencil",
    "transpose_slab",
]
# fmt: on


def empty(
    shape: Iterable[int],
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
    group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    """An uninitialised tensor that `redistribute` can write into without a copy, as its `out`. Collective.

    Parameters
    ----------
    shape : iterable of int
        Of this rank's tensor. Ranks may have different shapes; each gets the memory of the largest.
    dtype : torch.dtype, optional
        By default torch.get_default_dtype().
    device : optional
        By default the current CUDA device if torch has one, else the CPU.
    group : process group, optional
        By default the default group.

    On a group without the fused transport the tensor is a plain one. Memory is given back when no tensor has it: keep
    the tensor for as long as a CUDA graph writes into it.

    Raises
    ------
    ValueError, TypeError
        Without a process group, or for a shape that is not of integers >= 0. A negative extent is an error on every
        rank of a group with the fused transport.
    """
    group = _group_or_default(group)
    extents, dtype = _checked_shape(shape), dtype or torch.get_default_dtype()
    device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    if device.type == "cuda" and device.index is None:
        device = torch.device("cuda", torch.cuda.current_device())
    if _transports.transport_of(group, device).name != "fused":
        _check_extents(extents, group.rank())
        return torch.empty(extents, dtype=dtype, device=device)
    num_bytes = math.prod(extents) * dtype.itemsize
    gathered = _transports.gather_from_all((extents, num_bytes), group)
    for rank, (extents_of_rank, _) in enumerate(gathered):
        _check_extents(extents_of_rank, rank)
    memory = _transports.symmetric_empty(max(size for _, size in gathered), group, device)
    return memory[:num_bytes].view(dtype).view(extents)


def _checked_shape(shape: Iterable[int]) -> tuple[int, ...]:
    try:
        return tuple(map(operator.index, shape))
    except TypeError as error:
        raise TypeError(f"shape is {_shown(shape)}, must be integers") from error


def _check_extents(shape: tuple[int, ...], rank: int) -> None:
    if any(extent < 0 for extent in shape):
        raise ValueError(f"shape is {shape} on rank {rank}, must have extents >= 0")


def scatter_heads(x: torch.Tensor, group: dist.ProcessGroup | None = None, **options: Any) -> torch.Tensor:
    """(batch, sequence / ranks, heads, size) -> (batch, sequence, heads / ranks, size): before Ulysses attention.

    `options` are those of `redistribute`, as of all that follow: `extent` (here the global length of the sequence),
    `dtype`, `scale`, `out`; so are the errors. Extents that the number of ranks does not divide are split as
    torch.chunk splits.
    """
    return redistribute(x, (0, 1, 2, 3), 1, 2, group, **options)


def gather_heads(x: torch.Tensor, group: dist.ProcessGroup | None = None, **options: Any) -> torch.Tensor:
    """(batch, sequence, heads / ranks, size) -> (batch, sequence / ranks, heads, size): after Ulysses attention."""
    return redistribute(x, (0, 1, 2, 3), 2, 1, group, **options)


def transpose(x: torch.Tensor, group: dist.ProcessGroup | None = None, **options: Any) -> torch.Tensor:
    """(m / ranks, n) -> (n / ranks, m): the transpose of a matrix that is split by rows."""
    return redistribute(x, (1, 0), 0, 0, group, **options)


def transpose_slab(x: torch.Tensor, group: dist.ProcessGroup | None = None, **options: Any) -> torch.Tensor:
    """(i / ranks, j, k) -> (j / ranks, i, k): between the 2-D and the 1-D part of a 3-D FFT on slabs."""
    return redistribute(x, (1, 0, 2), 0, 0, group, **options)


def transpose_pencil(x: torch.Tensor, group: dist.ProcessGroup | None = None, **options: Any) -> torch.Tensor:
    """(i, j / ranks, k) -> (i, k / ranks, j): between two 1-D parts of a 3-D FFT on pencils, in one row of the grid of
    ranks; `i` is split over the other rows."""
    return redistribute(x, (0, 2, 1), 1, 1, group, **options)


def __dir__() -> list[str]:
    return sorted(__all__)
