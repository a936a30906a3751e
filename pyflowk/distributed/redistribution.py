# SPDX-License-Identifier: Apache-2.0
"""redistribute(): the choice of a transport; autograd, torch.compile and DTensor."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeGuard

import torch
import torch.distributed as dist

from .._torch.gate import mark_written, private
from .rank_agreement import Call, agreed, group_or_default
from .shard_layout import ShardLayout, checked_axes, checked_dim
from .transports import Exchange, Transport, fused_calls, remember, run_fused, run_local, run_staged, transport_of

if TYPE_CHECKING:
    from torch.distributed.tensor import DTensor


def redistribute(
    x: torch.Tensor,
    axes: Iterable[int],
    src_dim: int,
    dst_dim: int,
    group: dist.ProcessGroup | None = None,
    *,
    extent: int | None = None,
    dtype: torch.dtype | None = None,
    scale: float = 1.0,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Move the split of an array to another dimension, and permute its dimensions on the way.

    x is this rank's shard of a global array that is split along `src_dim`. The result is this rank's shard of
    ``permute(global array, axes)`` split along its dimension `dst_dim`. Elements are moved bit for bit, or converted as
    `permute` converts.

    Parameters
    ----------
    x : torch.Tensor
        Any strides and any type that `permute` takes, on the CPU or a CUDA device. Extents may be 0. Along
        `src_dim` it has ``torch.chunk``'s part of the global extent: ceil(extent / ranks) indices, fewer on the last
        ranks. A DTensor with one Shard(src_dim) placement brings its own group and extent; the result is a DTensor.
    axes : iterable of int
        Every dimension once: ``result dimension i = dimension axes[i] of x``.
    src_dim : int
        The dimension of x that is split.
    dst_dim : int
        The dimension of the result that is split.
    group : process group, optional
        By default the default group.
    extent : int, optional
        The global extent of `src_dim`. By default the ranks tell each other their extents, and check that shapes, types
        and arguments agree: an exchange of a few bytes by the host. With it nothing is exchanged or checked, which a
        CUDA graph's capture and torch.compile need.
    dtype, scale : optional
        As in `permute`.
    out : torch.Tensor, optional
        Where to write, of the result's shape and type. With the fused transport all ranks write a contiguous tensor of
        `empty` directly. Any other tensor, and a new result, is written by way of a buffer, which costs one copy on
        this GPU. It must not overlap x.

    Returns
    -------
    torch.Tensor
        `out` or a new tensor, on x's current stream. Its gradient with respect to x is the inverse redistribution.

    Raises
    ------
    ValueError, TypeError
        On every rank before anything moves, if a rank's arguments are wrong or differ from another's: shape, axes,
        dimensions, types, kind of device, scale, `out`. With `extent` on this rank alone, for its own arguments.
    RuntimeError
        Of torch, when the group's timeout is over, if a rank does not take part. With the fused transport the GPU
        waits: the error comes when the program next waits for the GPU, which then takes no more work of this process.

    Notes
    -----
    A call with `out` of `empty` and with `extent` can be captured in a CUDA graph, after the same call was made once.
    The graph needs x, `out` and the group alive, and all ranks replay it together. Under torch.compile with `extent` it
    is one operator of the graph.

    Examples
    --------
    In a program that torchrun starts::

        dist.init_process_group("nccl")
        x = torch.randn(1024 // dist.get_world_size(), 768, device="cuda")  # rows of a matrix (1024, 768)
        y = pyflowk.distributed.redistribute(x, (1, 0), 0, 0)  # rows of its transpose: (768 / ranks, 1024)
    """
    key: tuple[Any, ...] | None = None
    if out is not None and torch.compiler.is_compiling():
        return out.copy_(redistribute(x, axes, src_dim, dst_dim, group, extent=extent, dtype=dtype, scale=scale))
    if (out is not None and extent is not None and type(x) is torch.Tensor) and not (
        x.requires_grad or out.requires_grad or x.is_conj() or x.is_neg()
    ):
        group = dist.group.WORLD if group is None else group
        key = (
            *(x.shape, x.stride(), x.dtype, x.device, out.data_ptr(), out.shape, out.stride(), out.dtype),
            *(tuple(axes), src_dim, dst_dim, group, extent, dtype, scale),
        )
        ready = fused_calls.get(key)
        if ready is not None:
            ready(x)
            mark_written(out)
            return out
        axes = key[8]
    call = Call(x, axes, src_dim, dst_dim, extent, dtype, scale, out)
    if _is_dtensor(x):
        return _redistribute_dtensor(x, call, group)
    process_group = group_or_default(group)
    exchange = agreed(call, process_group)
    layout = exchange.layout
    if torch.compiler.is_compiling():
        return _dispatched(x, layout, process_group.group_name, exchange.dtype, scale)
    if x.requires_grad and torch.is_grad_enabled():
        return _differentiable(x, exchange)
    if key is not None and out is not None and not layout.is_local:
        remember(key, exchange, x, out)
    return _run(exchange, x, out)


def explain(
    x: torch.Tensor,
    axes: Iterable[int],
    src_dim: int,
    dst_dim: int,
    group: dist.ProcessGroup | None = None,
    *,
    extent: int | None = None,
    dtype: torch.dtype | None = None,
    scale: float = 1.0,
    out: torch.Tensor | None = None,
) -> str:
    """Which transport `redistribute` uses with these arguments, why, and what this rank sends. Collective."""
    if _is_dtensor(x):
        source = checked_dim(src_dim, "src_dim", x.dim())
        group, extent, x = x.device_mesh.get_group(), x.shape[source], x.to_local()
    process_group = group_or_default(group)
    exchange = agreed(Call(x, axes, src_dim, dst_dim, extent, dtype, scale, out), process_group)
    layout, rank = exchange.layout, exchange.rank
    transport = _transport(exchange, x)
    row = x.numel() // max(x.shape[layout.cut_dim], 1)
    kept = 0 if layout.is_local else layout.dst_chunks()[rank].length
    sent = 0 if layout.is_local else (layout.shape[layout.cut_dim] - kept) * row
    return (
        f"{transport.name}: {transport.reason}\n"
        f"  array {layout.shape} split along {layout.src_dim}; axes {layout.axes}, split along {layout.dst_dim}\n"
        f"  rank {rank} of {layout.num_ranks}: {tuple(x.shape)} to {layout.dst_shape(rank)}, "
        f"sends {sent * exchange.dtype.itemsize} bytes\n"
    )


# ---- the call -------------------------------------------------------------------------------------------------------


def _transport(exchange: Exchange, x: torch.Tensor) -> Transport:
    if exchange.layout.is_local or exchange.layout.num_ranks == 1:
        return Transport("local", "no element changes its rank")
    return transport_of(exchange.group, x.device)


def _run(exchange: Exchange, x: torch.Tensor, out: torch.Tensor | None) -> torch.Tensor:
    result = out
    if result is None:
        result = x.new_empty(exchange.layout.dst_shape(exchange.rank), dtype=exchange.dtype)
    with torch.no_grad():
        x = x.resolve_conj().resolve_neg()
        run = {"local": run_local, "fused": run_fused, "staged": run_staged}[_transport(exchange, x).name]
        run(exchange, x, result)
    return result


# ---- autograd, torch.compile, DTensor -------------------------------------------------------------------------------


def _inverse(exchange: Exchange, dtype: torch.dtype) -> Exchange:
    """Of the gradients: dx is the inverse redistribution of dy, times the same scale."""
    return exchange._replace(layout=exchange.layout.inverse(), dtype=dtype)


class _Redistribute(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, exchange: Exchange) -> torch.Tensor:
        ctx.exchange = _inverse(exchange, x.dtype)
        return _run(exchange, x, None)

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor, None]:
        if dy.requires_grad and torch.is_grad_enabled():
            return _differentiable(dy, ctx.exchange), None
        return _run(ctx.exchange, dy, None), None


_differentiable: Callable[[torch.Tensor, Exchange], torch.Tensor] = _Redistribute.apply


@torch.library.custom_op("flowk_distributed::redistribute", mutates_args=())
def _operator(
    x: torch.Tensor,
    shape: list[int],
    axes: list[int],
    src_dim: int,
    dst_dim: int,
    group_name: str,
    dtype: torch.dtype,
    scale: float,
) -> torch.Tensor:
    return _run(_exchange_of(shape, axes, src_dim, dst_dim, group_name, dtype, scale), x, None)


@_operator.register_fake
def _(x: torch.Tensor, *arguments: Any) -> torch.Tensor:
    exchange = _exchange_of(*arguments)
    return x.new_empty(exchange.layout.dst_shape(exchange.rank), dtype=exchange.dtype)


def _exchange_of(
    shape: list[int], axes: list[int], src_dim: int, dst_dim: int, name: str, dtype: torch.dtype, scale: float
) -> Exchange:
    """The exchange of the operator's arguments; `name` is the process group's."""
    group = _group_named(name)
    layout = ShardLayout(tuple(shape), tuple(axes), src_dim, dst_dim, group.size())
    return Exchange(layout, group.rank(), group, dtype, scale)


_group_named: Callable[[str], dist.ProcessGroup]
_group_named = private("torch.distributed.distributed_c10d", "_resolve_process_group")


def _dispatched(
    x: torch.Tensor, layout: ShardLayout, group_name: str, dtype: torch.dtype, scale: float
) -> torch.Tensor:
    result: torch.Tensor = torch.ops.flowk_distributed.redistribute(x, *layout[:4], group_name, dtype, scale)
    return result


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    x, *ctx.arguments = inputs
    ctx.dtype = x.dtype


def _backward(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    shape, axes, src_dim, dst_dim, group_name, _, scale = ctx.arguments
    inverse = ShardLayout(tuple(shape), tuple(axes), src_dim, dst_dim, 1).inverse()
    dx = _dispatched(dy, inverse, group_name, ctx.dtype, scale)
    return (dx, *(None for _ in ctx.arguments))


_operator.register_autograd(_backward, setup_context=_setup_context)


def _is_dtensor(x: torch.Tensor) -> TypeGuard[DTensor]:
    return type(x).__name__ == "DTensor" and type(x).__module__.startswith("torch.distributed")


def _redistribute_dtensor(x: DTensor, call: Call, group: dist.ProcessGroup | None) -> DTensor:
    from torch.distributed.tensor import DTensor, Shard

    mesh, rank = x.device_mesh, x.dim()
    order = checked_axes(call.axes, rank)
    source, target = checked_dim(call.src_dim, "src_dim", rank), checked_dim(call.dst_dim, "dst_dim", rank)
    if mesh.ndim != 1 or x.placements != (Shard(source),):
        raise ValueError(
            f"x is a DTensor with placements {x.placements}, must have one: Shard({source}), as src_dim says"
        )
    if group is not None and group != mesh.get_group():
        raise ValueError("group is not that of x's device mesh")
    if call.out is not None:
        raise TypeError("out: the result of a DTensor is a new DTensor")
    extent, dtype, scale = x.shape[source], call.dtype, call.scale
    local = redistribute(x.to_local(), order, source, target, mesh.get_group(), extent=extent, dtype=dtype, scale=scale)
    shape = torch.Size(x.shape[axis] for axis in order)
    strides = torch.empty(shape, device="meta").stride()
    return DTensor.from_local(local, mesh, [Shard(target)], run_check=False, shape=shape, stride=strides)
