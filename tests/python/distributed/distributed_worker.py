# SPDX-License-Identifier: Apache-2.0
"""One rank of the tests of pyflowk.distributed: `distributed_worker.py PART RANK RANKS STORE`. Exits with 0 if the part
holds on this rank. Ranks have a GPU each where there are enough of them, and the CPU otherwise."""

from __future__ import annotations

import random
import sys
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from pyflowk import distributed
from pyflowk.distributed import exchange_roads

TYPES = [torch.uint8, torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64]


def shard(whole: torch.Tensor, dim: int, rank: int, ranks: int) -> torch.Tensor:
    """torch.chunk's part of a rank, which may be empty."""
    chunks = whole.chunk(ranks, dim)
    return chunks[rank] if rank < len(chunks) else whole.narrow(dim, 0, 0)


def drawn(shape: tuple[int, ...], dtype: torch.dtype, seed: int, device: Any) -> torch.Tensor:
    """The same array on every rank."""
    generator = torch.Generator().manual_seed(seed)
    if dtype.is_floating_point or dtype.is_complex:
        return torch.randn(shape, generator=generator, dtype=torch.float32).to(dtype).to(device)
    return torch.randint(0, 255, shape, generator=generator).to(dtype).to(device)


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


def values(rank: Rank) -> None:
    """Drawn shapes, axes, splits and types; views, conversions, `out`, `extent`."""
    draw = random.Random(rank.ranks)
    for case in range(80 // rank.ranks):
        num_dims = draw.randint(1, 5)
        shape = tuple(draw.choice([1, 2, 3, 4, 5, 8, 13, 16, 24]) for _ in range(num_dims))
        axes = tuple(draw.sample(range(num_dims), num_dims))
        src, dst = draw.randrange(num_dims), draw.randrange(num_dims)
        whole = drawn(shape, draw.choice(TYPES), case, rank.device)
        options: dict[str, Any] = {}
        if draw.random() < 0.3:
            whole = whole.flip(0).expand(shape) if num_dims < 2 else whole.transpose(0, 1).contiguous().transpose(0, 1)
        if draw.random() < 0.3 and whole.dtype == torch.float32:
            options = {"dtype": torch.float16, "scale": 0.5}
        if draw.random() < 0.5:
            options["extent"] = shape[src]
        kind = draw.choice(["new", "out", "slice", "empty"])
        if kind != "new":
            result_shape = list(shard(whole.permute(axes), dst, rank.rank, rank.ranks).shape)
            dtype = options.get("dtype", whole.dtype)
            if kind == "empty":
                options["out"] = distributed.empty(result_shape, dtype=dtype, device=rank.device)
            elif kind == "slice":
                result_shape[-1] += 3
                options["out"] = torch.zeros(result_shape, dtype=dtype, device=rank.device)[..., 3:]
            else:
                options["out"] = torch.zeros(result_shape, dtype=dtype, device=rank.device)
        result = rank.check(whole, axes, src, dst, **options)
        assert "out" not in options or result is options["out"]
    exchange_roads._PIECE_BYTES = 1 << 12  # several pieces
    for shape, axes, src, dst in [
        ((64, 48, 20), (1, 0, 2), 0, 0),
        ((70, 90), (1, 0), 0, 0),
        ((8, 32, 16, 4), (0, 1, 2, 3), 1, 2),
    ]:
        rank.check(drawn(shape, torch.float32, 1, rank.device), axes, src, dst)


def forms(rank: Rank) -> None:
    """The named redistributions, subgroups, DTensor, and the text of explain()."""
    heads = drawn((2, 6 * rank.ranks, 4 * rank.ranks, 8), torch.float16, 1, rank.device)
    mine = shard(heads, 1, rank.rank, rank.ranks)
    scattered = distributed.scatter_heads(mine)
    assert torch.equal(scattered, shard(heads, 2, rank.rank, rank.ranks))
    assert torch.equal(distributed.gather_heads(scattered), mine)
    matrix = drawn((37, 53), torch.float64, 2, rank.device)
    assert torch.equal(
        distributed.transpose(shard(matrix, 0, rank.rank, rank.ranks)), shard(matrix.t(), 0, rank.rank, rank.ranks)
    )
    cube = drawn((9, 10, 11), torch.complex64, 3, rank.device)
    slab = distributed.turn_slab(shard(cube, 0, rank.rank, rank.ranks))
    assert torch.equal(slab, shard(cube.permute(1, 0, 2), 0, rank.rank, rank.ranks))
    pencil = distributed.turn_pencil(shard(cube, 1, rank.rank, rank.ranks))
    assert torch.equal(pencil, shard(cube.permute(0, 2, 1), 1, rank.rank, rank.ranks))

    text = distributed.explain(mine, (0, 1, 2, 3), 1, 2)
    sent = mine.numel() * 2 * (rank.ranks - 1) // rank.ranks
    assert f"sends {sent} bytes" in text and text.startswith(("fused: ", "staged: ")), text
    assert distributed.explain(mine, (1, 0, 2, 3), 1, 0).startswith("local: ")

    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Shard, distribute_tensor

    mesh = init_device_mesh(rank.device.type, (rank.ranks,))
    spread = distribute_tensor(matrix, mesh, [Shard(0)])
    turned = distributed.redistribute(spread, (1, 0), 0, 0)
    assert isinstance(turned, DTensor) and turned.placements == (Shard(0),)
    assert torch.equal(turned.full_tensor(), matrix.t())

    halves = [dist.new_group(list(range(rank.ranks // 2))), dist.new_group(list(range(rank.ranks // 2, rank.ranks)))]
    half, in_half = halves[rank.rank * 2 // rank.ranks], rank.rank % (rank.ranks // 2)
    part = shard(matrix, 0, in_half, rank.ranks // 2)
    assert torch.equal(distributed.transpose(part, half), shard(matrix.t(), 0, in_half, rank.ranks // 2))


def gradients(rank: Rank) -> None:
    """The gradient is the inverse redistribution, twice too; torch.compile keeps it in one graph."""
    whole = drawn((6, 10, 7), torch.float64, 4, rank.device)
    weight = drawn((7, 6, 10), torch.float64, 5, rank.device)
    x = shard(whole, 0, rank.rank, rank.ranks).clone().requires_grad_()
    own_weight = shard(weight, 2, rank.rank, rank.ranks)

    def loss(part: torch.Tensor, **options: Any) -> torch.Tensor:
        return (distributed.redistribute(part, (2, 0, 1), 0, 2, scale=3.0, **options) * own_weight).sum()

    (dx,) = torch.autograd.grad(loss(x), x)
    wanted = 3 * shard(weight.permute(1, 2, 0), 0, rank.rank, rank.ranks)
    torch.testing.assert_close(dx, wanted)
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    for _ in range(2):
        result = compiled(x, extent=6)
        torch.testing.assert_close(result, loss(x))
        torch.testing.assert_close(torch.autograd.grad(result, x)[0], wanted)
    try:
        distributed.redistribute(x, (2, 0, 1), 0, 2, out=torch.empty(1, device=rank.device))
    except (TypeError, ValueError):
        pass
    else:
        raise AssertionError("out of a wrong shape was taken")


def faults(rank: Rank) -> None:
    """A rank that differs gives an error on every rank, and the group goes on."""
    last = rank.rank == rank.ranks - 1
    x = torch.zeros(4, 6, device=rank.device)
    calls: list[tuple[str, Any]] = [
        ("axes", lambda: distributed.redistribute(x, (0, 1) if last else (1, 0), 0, 0)),
        ("shape", lambda: distributed.redistribute(torch.zeros(4, 5 + last, device=rank.device), (1, 0), 0, 0)),
        ("types", lambda: distributed.redistribute(x.double() if last else x, (1, 0), 0, 0)),
        ("scale", lambda: distributed.redistribute(x, (1, 0), 0, 0, scale=2.0 + last)),
        ("must be in -2 ... 1", lambda: distributed.redistribute(x, (1, 0), 0, 7 if last else 0)),
        ("must be torch.chunk's", lambda: distributed.redistribute(torch.zeros(4 + last, 6), (1, 0), 0, 0)),
    ]
    for words, call in calls:
        try:
            call()
        except (TypeError, ValueError) as error:
            assert words in str(error), error
        else:
            raise AssertionError(f"{words}: no error on rank {rank.rank}")
        whole = drawn((8, 6), torch.float32, 6, rank.device)
        rank.check(whole, (1, 0), 0, 0)


PARTS = {part.__name__: part for part in (values, forms, gradients, faults)}


def main(part: str, rank: int, ranks: int, store: str) -> None:
    one = Rank(rank, ranks)
    if one.device.type == "cuda":
        torch.cuda.set_device(one.device)
    else:
        torch.set_num_threads(1)
    backend = "cpu:gloo,cuda:nccl" if one.device.type == "cuda" else "gloo"
    dist.init_process_group(
        backend, init_method=f"file://{store}", rank=rank, world_size=ranks, timeout=timedelta(seconds=60)
    )
    for name in part.split(","):
        PARTS[name](one)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
