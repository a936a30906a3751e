# SPDX-License-Identifier: Apache-2.0
"""A rank of distributed_worker.py, and the tensors that it draws, cuts and compares."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch

from pyflowk import distributed
from pyflowk.distributed import transports


def shard(whole: torch.Tensor, dim: int, rank: int, ranks: int) -> torch.Tensor:
    """torch.chunk's part of a rank, which may be empty."""
    chunks = whole.chunk(ranks, dim)
    return chunks[rank] if rank < len(chunks) else whole.narrow(dim, 0, 0)


def drawn(shape: tuple[int, ...], dtype: torch.dtype, seed: int, device: Any) -> torch.Tensor:
    """The same array on every rank."""
    generator = torch.Generator().manual_seed(seed)
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(shape, generator=generator, dtype=torch.float32).to(dtype).to(device)
    high = 2 if dtype == torch.bool else 127
    return torch.randint(0, high, shape, generator=generator).to(dtype).to(device)


def strided(whole: torch.Tensor, kind: str) -> torch.Tensor:
    """The same values in another order in memory."""
    if kind == "transposed":
        order = tuple(reversed(range(whole.dim())))
        return whole.permute(order).contiguous().permute(order)
    if kind == "every second":
        return whole.new_empty(*whole.shape, 2)[..., 1].copy_(whole)
    if kind == "repeated":
        return whole.narrow(0, 0, 1).expand(whole.shape) if whole.shape[0] > 0 else whole
    return whole


def raises(words: str, call: Callable[[], object]) -> None:
    try:
        call()
    except (TypeError, ValueError) as error:
        assert words in str(error), error
    else:
        raise AssertionError(f"{words}: no error")


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes of the elements in C order."""
    return torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device).copy_(tensor).view(-1).view(torch.uint8)


class Rank:
    def __init__(self, rank: int, ranks: int) -> None:
        self.rank, self.ranks = rank, ranks
        self.device = torch.device("cuda", rank) if torch.cuda.device_count() >= ranks else torch.device("cpu")

    def check(self, whole: torch.Tensor, axes: tuple[int, ...], src: int, dst: int, **options: Any) -> torch.Tensor:
        """Redistributes this rank's shard and compares with the shard of the permuted array, bit for bit."""
        x = shard(whole, src, self.rank, self.ranks)
        wanted = whole.permute(axes)
        if "dtype" in options or "scale" in options:
            scale = torch.tensor(options.get("scale", 1.0), dtype=torch.float32, device=whole.device)
            wanted = (wanted.float() * scale).to(options.get("dtype", whole.dtype))
        wanted = shard(wanted, dst, self.rank, self.ranks)
        result = distributed.redistribute(x, axes, src, dst, **options)
        assert result.shape == wanted.shape, (result.shape, wanted.shape)
        assert result.dtype == wanted.dtype
        assert torch.equal(bits(result), bits(wanted))
        return result

    def synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    @contextmanager
    def staged(self) -> Iterator[None]:
        """As if no GPU could access another's memory."""
        transports._states.clear()
        with mock.patch.object(torch.cuda, "can_device_access_peer", lambda own, peer: False):
            yield
        transports._states.clear()
