# SPDX-License-Identifier: Apache-2.0
"""Redistributions between the GPUs of one host, by flowk, NCCL and PyTorch: milliseconds, and GB/s that a rank sends.

    python bench/bench_redistribute.py

One process per GPU. Each contender is timed alone with CUDA events, 20 times, from a barrier on, as 8 calls in a row; a
time is the slowest rank's, and the median of the 20 is printed, per call. Results are compared with the permuted
array's shard before.

  fused       pyflowk.distributed.redistribute into a tensor of pyflowk.distributed.empty
  staged      the same by the transport for ranks without access to each other's memory, in pieces that overlap
  in turn     the same in one piece: flowk's permute, all_to_all_single, flowk's permute
  all-to-all  NCCL's all_to_all_single of the same bytes, without any permute
  torch       PyTorch's permute().contiguous(), all_to_all_single, and permute().contiguous() again
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
import torch.multiprocessing

from pyflowk import distributed
from pyflowk.distributed import rank_agreement, transports

NUM_ROUNDS = 20
NUM_CALLS = 8


class Case(NamedTuple):
    shape: tuple[int, ...]
    axes: tuple[int, ...]
    src_dim: int
    dst_dim: int
    dtype: torch.dtype
    out_dtype: torch.dtype | None = None


CASES = [
    Case((32768, 32768), (1, 0), 0, 0, torch.float32),
    Case((32766, 31234), (1, 0), 0, 0, torch.float32),
    Case((65536, 65536), (1, 0), 0, 0, torch.uint8),
    Case((1024, 1024, 512), (1, 0, 2), 0, 0, torch.float64),
    Case((4, 32768, 32, 128), (0, 1, 2, 3), 1, 2, torch.float16),
    Case((1, 4096, 32, 128), (0, 1, 2, 3), 1, 2, torch.float16),
    Case((32768, 32768), (1, 0), 0, 0, torch.float32, torch.bfloat16),
]


def milliseconds(call: Callable[[], object]) -> float:
    """The median over rounds of the slowest rank's time."""
    times = []
    for _ in range(3):
        call()
    for _ in range(NUM_ROUNDS):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        dist.barrier()
        start.record()
        for _ in range(NUM_CALLS):
            call()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / NUM_CALLS)
    slowest = torch.tensor(times, device="cuda")
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    return statistics.median(slowest.tolist())


def by_torch(case: Case, x: torch.Tensor, ranks: int) -> torch.Tensor:
    """permute, all-to-all, permute; both extents are multiples of the number of ranks."""
    permuted = x.permute(case.axes).to(case.out_dtype or case.dtype)
    parts = torch.stack(permuted.chunk(ranks, case.dst_dim))
    received = torch.empty_like(parts)
    dist.all_to_all_single(received, parts)
    return torch.cat(tuple(received), case.axes.index(case.src_dim))


def bench(case: Case, rank: int, ranks: int) -> None:
    shard_shape = list(case.shape)
    shard_shape[case.src_dim] //= ranks
    generator = torch.Generator("cuda").manual_seed(rank)
    if case.dtype == torch.uint8:
        x = torch.randint(0, 256, shard_shape, generator=generator, device="cuda", dtype=torch.uint8)
    else:
        x = torch.randn(shard_shape, generator=generator, device="cuda", dtype=torch.float32).to(case.dtype)
    options: dict[str, Any] = {"extent": case.shape[case.src_dim], "dtype": case.out_dtype}
    arguments = (x, case.axes, case.src_dim, case.dst_dim, dist.group.WORLD, None, case.out_dtype, 1.0, None)
    exchange = rank_agreement.agreed(*arguments)
    out_shape = exchange.layout.dst_shape(rank)
    out = distributed.empty(out_shape, dtype=exchange.dtype)
    out.view(-1).view(torch.uint8).fill_(0xA5)
    staged = torch.empty_like(out)

    def fused() -> torch.Tensor:
        return distributed.redistribute(x, case.axes, case.src_dim, case.dst_dim, out=out, **options)

    fused()
    wanted = by_torch(case, x, ranks)
    assert torch.equal(out, wanted), "fused is wrong"
    for max_pieces in (8, 1):
        staged.view(-1).view(torch.uint8).fill_(0xA5)
        transports.run_staged(exchange, x, staged, max_pieces)
        assert torch.equal(staged, wanted), f"staged in at most {max_pieces} pieces is wrong"
    del wanted
    sent = x.numel() * exchange.dtype.itemsize * (ranks - 1) / ranks
    flat = x.view(-1).to(exchange.dtype)
    received = torch.empty_like(flat)
    contenders = {
        "fused": fused,
        "staged": lambda: transports.run_staged(exchange, x, staged),
        "in turn": lambda: transports.run_staged(exchange, x, staged, 1),
        "all-to-all": lambda: dist.all_to_all_single(received, flat),
        "torch": lambda: by_torch(case, x, ranks),
    }
    times = {name: milliseconds(call) for name, call in contenders.items()}
    if rank == 0:
        types = [str(dtype)[6:] for dtype in (case.dtype, case.out_dtype) if dtype]
        name = f"{' to '.join(types)} {case.shape} {case.axes}"
        cells = "".join(f"{time:>9.3f} {sent / time / 1e6:>4.0f}" for time in times.values())
        print(f"{name:<48}{cells}", flush=True)
    torch.cuda.empty_cache()


def run(rank: int, ranks: int, store: str) -> None:
    torch.cuda.set_device(rank)
    dist.init_process_group("cpu:gloo,cuda:nccl", init_method=f"file://{store}", rank=rank, world_size=ranks)
    if rank == 0:
        header = "".join(f"{name:>14}" for name in ("fused", "staged", "in turn", "all-to-all", "torch"))
        print(f"{ranks} x {torch.cuda.get_device_name()}, torch {torch.__version__}; ms, GB/s\n{'':<48}{header}")
    for case in CASES:
        bench(case, rank, ranks)
    dist.destroy_process_group()


if __name__ == "__main__":
    num_ranks = torch.cuda.device_count()
    if num_ranks < 2:
        raise SystemExit("needs 2 GPUs at least")
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(run, (num_ranks, f"{folder}/store"), num_ranks)
