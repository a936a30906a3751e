# SPDX-License-Identifier: Apache-2.0
"""The ranks of a test of pyflowk.distributed: `distributed_worker.py PART,... RANKS STORE`. Exits with 0 if the parts
hold on every rank. Ranks have a GPU each if there are enough of them, and otherwise the CPU."""

from __future__ import annotations

import multiprocessing
import os
import random
import sys
import time
from datetime import timedelta
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from distributed_rank import Rank, bits, drawn, raises, shard, strided
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

from pyflowk import distributed
from pyflowk.distributed import transports
from pyflowk.distributed.shard_layout import ShardLayout

TIMEOUT_SECONDS = 60
TIMEOUT_OF_DEAD_SECONDS = 8
RANKS_TIMEOUT_SECONDS = 300
TYPES = [
    *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.uint16, torch.int64),
    *(torch.float8_e4m3fn, torch.float8_e5m2, torch.float16, torch.bfloat16, torch.float32, torch.float64),
    *(torch.complex64, torch.complex128),
]
# from, to: exact in torch by way of float32 too
CONVERSIONS = [
    *((torch.float32, torch.float16), (torch.bfloat16, torch.float32), (torch.float16, torch.bfloat16)),
    *((torch.int8, torch.float32), (torch.float32, torch.float32), (torch.bool, torch.float16)),
]


def values(rank: Rank) -> None:
    """Drawn shapes, axes, splits and types; views, conversions, `out`, `extent`."""
    draw = random.Random(rank.ranks)
    for case in range(96 // rank.ranks):
        num_dims = draw.randint(1, 5)
        shape = tuple(draw.choice([0, 1, 2, 3, 4, 5, 8, 13, 16, 24]) for _ in range(num_dims))
        axes = tuple(draw.sample(range(num_dims), num_dims))
        src, dst = draw.randrange(num_dims), draw.randrange(num_dims)
        dtype, options = draw.choice(TYPES), dict[str, Any]()
        if draw.random() < 0.3:
            dtype, options["dtype"] = draw.choice(CONVERSIONS)
            options["scale"] = draw.choice([1.0, 0.5])
        whole = strided(
            drawn(shape, dtype, case, rank.device), draw.choice(["", "transposed", "every second", "repeated"])
        )
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
        if kind != "new":
            assert result is options["out"] and (result._version > 0 or result.numel() == 0)
            rank.check(whole.clone(), axes, src, dst, **options)  # again, with another x
    conjugated = drawn((5, 6), torch.complex64, 1, rank.device).conj()
    for _ in range(2):
        shape = shard(conjugated.t(), 0, rank.rank, rank.ranks).shape
        out = distributed.empty(shape, dtype=torch.complex64, device=rank.device)
        rank.check(conjugated.resolve_conj(), (1, 0), 0, 0, out=out, extent=5)
        rank.check(conjugated, (1, 0), 0, 0, out=out, extent=5)


def pieces(rank: Rank) -> None:
    """The staged transport in one piece and in several gives the same bits."""
    cases = [
        ((64, 48, 20), (1, 0, 2), 0, 0, torch.float32),
        ((70, 90), (1, 0), 0, 0, torch.float64),
        ((8, 32, 16, 4), (0, 1, 2, 3), 1, 2, torch.bfloat16),
        ((3, 5000), (1, 0), 0, 0, torch.uint8),
        ((rank.ranks + 1, 6, 800), (2, 0, 1), 0, 2, torch.float32),
    ]
    for piece_bytes in (1 << 30, 1 << 12, 1 << 9):
        with mock.patch.object(transports, "_PIECE_BYTES", piece_bytes), rank.staged():
            for shape, axes, src, dst, dtype in cases:
                whole = drawn(shape, dtype, 1, rank.device)
                text = distributed.explain(shard(whole, src, rank.rank, rank.ranks), axes, src, dst)
                assert text.startswith("staged: "), text
                rank.check(whole, axes, src, dst)
                if dtype == torch.float32:
                    rank.check(whole, axes, src, dst, dtype=torch.float16, scale=0.5)
    layout = ShardLayout((32768, 32768), (1, 0), 0, 0, 2)
    assert transports._pieces(layout, 4) == (8, 0)  # of 256 MiB
    assert transports._pieces(layout._replace(shape=(4096, 4096)), 4) == (1, 0)


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
    slab = distributed.transpose_slab(shard(cube, 0, rank.rank, rank.ranks))
    assert torch.equal(slab, shard(cube.permute(1, 0, 2), 0, rank.rank, rank.ranks))
    pencil = distributed.transpose_pencil(shard(cube, 1, rank.rank, rank.ranks))
    assert torch.equal(pencil, shard(cube.permute(0, 2, 1), 1, rank.rank, rank.ranks))

    text = distributed.explain(mine, (0, 1, 2, 3), 1, 2)
    sent = mine.numel() * 2 * (rank.ranks - 1) // rank.ranks
    assert f"sends {sent} bytes" in text and text.startswith(("fused: ", "staged: ")), text
    assert distributed.explain(mine, (1, 0, 2, 3), 1, 0).startswith("local: ")

    mesh = init_device_mesh(rank.device.type, (rank.ranks,))
    spread = distribute_tensor(matrix, mesh, [Shard(0)])
    turned = distributed.redistribute(spread, (1, 0), 0, 0)
    assert isinstance(turned, DTensor) and turned.placements == (Shard(0),)
    assert torch.equal(turned.full_tensor(), matrix.t())
    few = drawn((3, rank.ranks + 1), torch.float32, 7, rank.device)  # there are ranks without any of it
    turned = distributed.redistribute(distribute_tensor(few, mesh, [Shard(0)]), (1, 0), 0, 1, dtype=torch.float16)
    assert turned.placements == (Shard(1),) and torch.equal(turned.full_tensor(), few.t().half())
    even = matrix[:32, :48].contiguous()  # torch 2.11 replicates the gradient of a leaf with uneven shards
    leaf = distribute_tensor(even, mesh, [Shard(1)]).requires_grad_()
    (
        distributed.redistribute(leaf, (1, 0), 1, 1, scale=2.0)
        * distribute_tensor(even.t().contiguous(), mesh, [Shard(1)])
    ).sum().backward()
    assert leaf.grad.placements == (Shard(1),) and torch.equal(leaf.grad.full_tensor(), 2 * even)
    assert distributed.explain(spread, (1, 0), 0, 0).splitlines()[1].startswith("  array (37, 53) split along 0")
    raises("placements", lambda: distributed.redistribute(spread, (1, 0), 1, 0))
    raises("new DTensor", lambda: distributed.redistribute(spread, (1, 0), 0, 0, out=matrix))

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
    raises("autograd", lambda: distributed.redistribute(x, (2, 0, 1), 0, 2, out=torch.empty(1, device=rank.device)))


def inductor(rank: Rank) -> None:
    """torch.compile with its default backend, in one graph, forward and backward, and with `out`."""
    whole = drawn((6, 10, 8), torch.float32, 4, rank.device)
    x = shard(whole, 0, rank.rank, rank.ranks).clone().requires_grad_()

    def function(part: torch.Tensor) -> torch.Tensor:
        moved = distributed.redistribute(torch.sin(part) * 2, (2, 0, 1), 0, 2, extent=6, dtype=torch.float32, scale=0.5)
        return (moved.relu() * moved).sum()

    compiled = torch.compile(function, fullgraph=True)
    for _ in range(2):
        result = compiled(x)
        torch.testing.assert_close(result, function(x))
        (dx,) = torch.autograd.grad(result, x)
        torch.testing.assert_close(dx, torch.autograd.grad(function(x), x)[0])

    def into(part: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        return distributed.redistribute(part + 1, (2, 0, 1), 0, 2, extent=6, out=out) * 2

    wanted = shard((whole + 1).permute(2, 0, 1), 2, rank.rank, rank.ranks)
    out = distributed.empty(wanted.shape, dtype=torch.float32, device=rank.device)
    assert torch.equal(torch.compile(into, fullgraph=True)(x.detach(), out), wanted * 2) and torch.equal(out, wanted)


def graphs(rank: Rank) -> None:
    """On GPUs: a CUDA graph that holds the fused transport, and the memory of empty()."""
    for shape, axes, src, dst, dtype in [
        ((512, 384), (1, 0), 0, 0, torch.float32),
        ((2, 66, 5, 24), (0, 1, 2, 3), 1, 2, torch.bfloat16),
    ]:
        whole = drawn(shape, dtype, 1, rank.device)
        x = shard(whole, src, rank.rank, rank.ranks).clone()
        wanted = shard(whole.permute(axes), dst, rank.rank, rank.ranks)
        out = distributed.empty(wanted.shape, dtype=dtype, device=rank.device)
        options: dict[str, Any] = {"extent": shape[src], "out": out}
        assert distributed.explain(x, axes, src, dst, **options).startswith("fused: ")
        distributed.redistribute(x, axes, src, dst, **options)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            distributed.redistribute(x, axes, src, dst, **options)
            copied = out + 1
        for seed in range(2, 12):
            whole = drawn(shape, dtype, seed, rank.device)
            x.copy_(shard(whole, src, rank.rank, rank.ranks))
            graph.replay()
            wanted = shard(whole.permute(axes), dst, rank.rank, rank.ranks)
            assert torch.equal(bits(out), bits(wanted)) and torch.equal(copied, wanted + 1)
            if seed % 3 == 0:
                rank.check(whole, axes, src, dst, **options)  # calls between replays
        del graph

    matrix = torch.zeros(16384 // rank.ranks, 4096, dtype=torch.uint8, device=rank.device)
    torch.cuda.synchronize()
    dist.barrier()
    free, _ = torch.cuda.mem_get_info()
    for _ in range(16):
        out = distributed.empty((4096 // rank.ranks, 16384), dtype=torch.uint8, device=rank.device)
        distributed.redistribute(matrix, (1, 0), 0, 0, extent=16384, out=out)
        del out
    torch.cuda.synchronize()
    dist.barrier()
    kept = free - torch.cuda.mem_get_info()[0]
    assert kept < 4 * matrix.numel(), f"{kept} bytes of freed tensors of empty() are kept"


def faults(rank: Rank) -> None:
    """A rank that differs gives an error on every rank, and the group goes on."""
    last = rank.rank == rank.ranks - 1
    x = torch.zeros(4, 6, device=rank.device)
    result_shape = shard(torch.empty(6, 4 * rank.ranks), 0, rank.rank, rank.ranks).shape

    def wrong(what: str) -> Any:
        """An `out` that is wrong on the last rank alone."""
        out = torch.empty(result_shape, device=rank.device, dtype=torch.complex64 if what == "conj" else None)
        bad = {"shape": out[:, 1:], "dtype": out.to(torch.float64), "type": [], "conj": out.conj()}
        return bad[what] if last else out

    calls: list[tuple[str, Any]] = [
        ("axes", lambda: distributed.redistribute(x, (0, 1) if last else (1, 0), 0, 0)),
        ("shape", lambda: distributed.redistribute(torch.zeros(4, 5 + last, device=rank.device), (1, 0), 0, 0)),
        ("types", lambda: distributed.redistribute(x.double() if last else x, (1, 0), 0, 0)),
        ("scale", lambda: distributed.redistribute(x, (1, 0), 0, 0, scale=2.0 + last)),
        ("must be in -2 ... 1", lambda: distributed.redistribute(x, (1, 0), 0, 7 if last else 0)),
        ("must be bool", lambda: distributed.redistribute(x.to(torch.complex64), (1, 0), 0, 0, dtype=torch.float32)),
        ("out has shape", lambda: distributed.redistribute(x, (1, 0), 0, 0, out=wrong("shape"))),
        ("out has dtype", lambda: distributed.redistribute(x, (1, 0), 0, 0, out=wrong("dtype"))),
        ("out is a list", lambda: distributed.redistribute(x, (1, 0), 0, 0, out=wrong("type"))),
        ("conjugated", lambda: distributed.redistribute(x + 0j, (1, 0), 0, 0, out=wrong("conj"))),
        ("must be torch.chunk's", lambda: distributed.redistribute(torch.zeros(4 + last, 6), (1, 0), 0, 0)),
    ]
    for words, call in calls:
        raises(words, call)
        rank.check(drawn((8, 6), torch.float32, 6, rank.device), (1, 0), 0, 0)
    raises("scale = nan, must be finite", lambda: distributed.redistribute(x, (1, 0), 0, 0, scale=float("nan")))
    raises("group is 'x', must be a process group", lambda: distributed.redistribute(x, (1, 0), 0, 0, "x"))
    raises("group is 'x', must be a process group", lambda: distributed.empty((2,), device=rank.device, group="x"))
    raises("shape is (-1, 2) on rank ", lambda: distributed.empty((-1, 2), device=rank.device))
    raises("shape is (1.5, 2), must be integers", lambda: distributed.empty((1.5, 2), device=rank.device))  # type: ignore[arg-type]
    raises("shape is 3, must be integers", lambda: distributed.empty(3, device=rank.device))  # type: ignore[arg-type]
    raises("extent is 1.5", lambda: distributed.redistribute(x, (1, 0), 0, 0, extent=1.5))
    raises("must be (", lambda: distributed.redistribute(x, (1, 0), 0, 0, extent=4 * rank.ranks + 8))


def transport_choice(rank: Rank) -> None:
    """All ranks take the transport that the first objection of a rank leaves, and the memory of a group is its own."""
    gpu = torch.device("cuda", rank.rank)
    for access, transport in [
        (lambda own, peer: True, ("fused", "all ranks' GPUs access each other's memory")),
        (lambda own, peer: own != 1, ("staged", "GPU 1 cannot access the memory of GPU 0")),
    ]:
        with mock.patch.object(torch.cuda, "can_device_access_peer", access):
            assert transports._find_transport(dist.group.WORLD, gpu) == transport
            assert transports._find_transport(dist.group.WORLD, torch.device("cuda", 0)).name == "staged"
        with mock.patch("socket.gethostname", lambda: str(rank.rank)):
            assert transports._find_transport(dist.group.WORLD, gpu).reason == "the ranks are on several hosts"


def dies(rank: Rank) -> None:
    """If a rank is gone, the others get an error when the group's timeout is over, not later."""
    dist.distributed_c10d._set_pg_timeout(timedelta(seconds=TIMEOUT_OF_DEAD_SECONDS))
    whole = drawn((8, 6 * rank.ranks), torch.float32, 6, rank.device)
    x, extent = shard(whole, 1, rank.rank, rank.ranks), whole.shape[1]
    out = distributed.empty(shard(whole, 0, rank.rank, rank.ranks).shape, dtype=torch.float32, device=rank.device)
    distributed.redistribute(x, (0, 1), 1, 0, extent=extent, out=out)
    rank.synchronize()
    if rank.rank == rank.ranks - 1:
        os._exit(0)
    begin = time.monotonic()
    try:
        distributed.redistribute(x, (0, 1), 1, 0, extent=extent, out=out)
        rank.synchronize()
    except RuntimeError:  # torch's distributed and CUDA errors
        assert time.monotonic() - begin < TIMEOUT_OF_DEAD_SECONDS + 10
        os._exit(0)  # a group that lost a rank cannot be taken down in order
    raise AssertionError("no error without a rank")


PARTS = {
    part.__name__: part for part in (values, pieces, forms, gradients, inductor, faults, transport_choice, graphs, dies)
}


def run_rank(parts: list[str], rank: int, ranks: int, store: str) -> None:
    one = Rank(rank, ranks)
    if one.device.type == "cuda":
        torch.cuda.set_device(one.device)
    else:
        torch.set_num_threads(1)
    backend = "cpu:gloo,cuda:nccl" if one.device.type == "cuda" else "gloo"
    dist.init_process_group(
        backend, init_method=f"file://{store}", rank=rank, world_size=ranks, timeout=timedelta(seconds=TIMEOUT_SECONDS)
    )
    for name in parts:
        PARTS[name](one)
        dist.barrier()
    dist.destroy_process_group()


def main(parts: list[str], ranks: int, store: str) -> None:
    """Forks the ranks, so that what takes seconds to import is imported once."""
    if {"gradients", "inductor"}.intersection(parts):
        import torch._inductor.compile_fx  # noqa: F401
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=run_rank, args=(parts, rank, ranks, store)) for rank in range(ranks)]
    for process in processes:
        process.start()
    end = time.monotonic() + RANKS_TIMEOUT_SECONDS
    for process in processes:
        process.join(max(0.0, end - time.monotonic()))
    statuses = [process.exitcode for process in processes]
    for process in processes:
        process.kill()
    if statuses != [0] * ranks:
        sys.exit(f"the exit statuses of the ranks (None: killed after {RANKS_TIMEOUT_SECONDS} s): {statuses}")


if __name__ == "__main__":
    main(sys.argv[1].split(","), int(sys.argv[2]), sys.argv[3])
