# SPDX-License-Identifier: Apache-2.0
"""redistribute(): checks that all ranks make the same call, then takes a road; autograd, torch.compile and DTensor."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from .._arguments import number
from .._operators.permute_many_plan import plan_many
from .._torch.gate import mark_written
from .exchange_roads import (
    Exchange,
    Road,
    describe_out,
    fused_calls,
    remember,
    road_of,
    run_fused,
    run_local,
    run_staged,
)
from .shard_layout import ShardLayout, checked_axes, checked_dim, checked_integer, chunks_of, with_extent


def redistribute(
    x: torch.Tensor,
    axes: Iterable[int],
    src_dim: int,
    dst_dim: int,
    group: Any = None,
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
        Any strides and any type that `permute` takes, on the CPU or a CUDA device. Along `src_dim` it has
        ``torch.chunk``'s part of the global extent: ceil(extent / ranks) indices, fewer on the last ranks. A DTensor
        with one Shard(src_dim) placement brings its own group and extent, and the result is a DTensor.
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
        Where to write, of the result's shape and type. On the fused road a contiguous tensor of `empty` is written by
        all ranks directly; any other one, and a new result, by way of a buffer, which costs one copy on this GPU.

    Returns
    -------
    torch.Tensor
        `out` or a new tensor, on x's current stream. Its gradient with respect to x is the inverse redistribution.

    Raises
    ------
    ValueError, TypeError
        On every rank, where a rank's arguments are wrong or differ from another's (unless `extent` is given).
    """
    key = None
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
    if _is_dtensor(x):
        return _redistribute_dtensor(x, axes, src_dim, dst_dim, group, dtype, scale, out)
    process_group = group_or_default(group)
    exchange = _agreed(x, axes, src_dim, dst_dim, process_group, extent, dtype, scale, out)
    layout = exchange.layout
    if torch.compiler.is_compiling():
        return torch.ops.flowk_distributed.redistribute(
            x,
            layout.shape,
            layout.axes,
            layout.src_dim,
            layout.dst_dim,
            process_group.group_name,
            exchange.dtype,
            scale,
        )
    if x.requires_grad and torch.is_grad_enabled():
        return _Redistribute.apply(x, exchange)
    if key is not None and not layout.is_local:
        remember(key, exchange, x, out)
    return _run(exchange, x, out)


def explain(
    x: torch.Tensor,
    axes: Iterable[int],
    src_dim: int,
    dst_dim: int,
    group: Any = None,
    *,
    extent: int | None = None,
    dtype: torch.dtype | None = None,
    scale: float = 1.0,
    out: torch.Tensor | None = None,
) -> str:
    """The road that `redistribute` takes with these arguments, why, and what this rank sends. Collective."""
    if _is_dtensor(x):
        source = checked_dim(src_dim, "src_dim", x.dim())
        x, group, extent = x.to_local(), x.device_mesh.get_group(), x.shape[source]
    process_group = group_or_default(group)
    exchange = _agreed(x, axes, src_dim, dst_dim, process_group, extent, dtype, scale, out)
    layout, rank = exchange.layout, exchange.rank
    road = _road(exchange, x)
    row = x.numel() // max(x.shape[layout.cut_dim], 1)
    kept = 0 if layout.is_local else layout.dst_chunks()[rank].length
    sent = 0 if layout.is_local else (layout.shape[layout.cut_dim] - kept) * row
    return (
        f"{road.name}: {road.reason}\n"
        f"  array {layout.shape} split along {layout.src_dim}; axes {layout.axes}, split along {layout.dst_dim}\n"
        f"  rank {rank} of {layout.num_ranks}: {tuple(x.shape)} to {layout.dst_shape(rank)}, "
        f"sends {sent * exchange.dtype.itemsize} bytes\n"
    )


# ---- the call -------------------------------------------------------------------------------------------------------


class _Arguments(NamedTuple):
    """What a rank tells the others: `shape` is that of its x; all other values must agree."""

    error: str  # of this rank's own checks, or ""
    shape: tuple[int, ...]
    axes: tuple[int, ...]
    src_dim: int
    dst_dim: int
    types: tuple[str, str]
    device: str
    scale: float
    out: str
    out_shape: tuple[int, ...] | None


def group_or_default(group: Any) -> Any:
    """`group` or the default group; ValueError where this process is in none."""
    if not dist.is_initialized():
        raise ValueError("group: torch.distributed.init_process_group() was not called")
    chosen = dist.group.WORLD if group is None else group
    if chosen == dist.GroupMember.NON_GROUP_MEMBER:
        raise ValueError("group: this process is not one of its ranks")
    return chosen


def _agreed(
    x: Any, axes: Any, src_dim: Any, dst_dim: Any, group: Any, extent: int | None, dtype: Any, scale: Any, out: Any
) -> Exchange:
    """The exchange; without `extent` after all ranks have told each other their arguments."""
    rank, num_ranks = group.rank(), group.size()
    error: Exception | None = None
    arguments = _Arguments("", (), (), 0, 0, ("", ""), "", 1.0, "", None)
    try:
        extent = None if extent is None else checked_integer(extent, "extent")
        arguments = _checked(x, axes, src_dim, dst_dim, dtype, scale, out, group)
    except (TypeError, ValueError) as own:
        error = own
    if extent is None:
        told: list[Any] = [None] * num_ranks
        dist.all_gather_object(told, arguments._replace(error=str(error or "")), group)
        error = error or _disagreement(told)
        extent = sum(one.shape[one.src_dim] for one in told) if error is None else 0
    if error is not None:
        raise error
    layout = ShardLayout(
        with_extent(arguments.shape, arguments.src_dim, extent),
        *(arguments.axes, arguments.src_dim, arguments.dst_dim, num_ranks),
    )
    if tuple(x.shape) != layout.src_shape(rank):
        shapes = f"{tuple(x.shape)} on rank {rank}, must be {layout.src_shape(rank)}"
        raise ValueError(f"x has shape {shapes}, torch.chunk's part of extent = {extent}")
    if arguments.out_shape not in (None, layout.dst_shape(rank)):
        raise ValueError(f"out has shape {arguments.out_shape} on rank {rank}, must be {layout.dst_shape(rank)}")
    return Exchange(layout, rank, group, dtype or x.dtype, arguments.scale)


def _checked(x: Any, axes: Any, src_dim: Any, dst_dim: Any, dtype: Any, scale: Any, out: Any, group: Any) -> _Arguments:
    if not isinstance(x, torch.Tensor):
        raise TypeError(f"x is a {type(x).__name__}, must be a torch.Tensor")
    if dtype is not None and not isinstance(dtype, torch.dtype):
        raise TypeError(f"dtype is {dtype!r}, must be a torch.dtype")
    if x.dim() == 0:
        raise ValueError("x has no dimensions, must have >= 1")
    if out is not None:
        _check_out(out, x, dtype or x.dtype)
    order, factor = checked_axes(axes, x.dim()), number(scale, "scale")
    if not torch.compiler.is_compiling():  # whether the types are permute's, also on ranks without elements
        element = torch.empty((1,) * x.dim(), dtype=x.dtype, device=x.device)
        plan_many([element], order, dtype, factor, None, 0)
    return _Arguments(
        *("", tuple(x.shape), order),
        *(checked_dim(src_dim, "src_dim", x.dim()), checked_dim(dst_dim, "dst_dim", x.dim())),
        *((str(x.dtype), str(dtype or x.dtype)), x.device.type, factor),
        *(describe_out(out, group), None if out is None else tuple(out.shape)),
    )


def _check_out(out: Any, x: torch.Tensor, dtype: torch.dtype) -> None:
    if not isinstance(out, torch.Tensor):
        raise TypeError(f"out is a {type(out).__name__}, must be a torch.Tensor")
    if torch.is_grad_enabled() and (x.requires_grad or out.requires_grad):
        raise TypeError("out takes no part in autograd: leave it out, or call under torch.no_grad()")
    if out.is_conj() or out.is_neg():
        raise ValueError("out is a lazily negated or conjugated tensor: resolve_neg() and resolve_conj() first")
    for what, value, must in (("dtype", out.dtype, dtype), ("device", out.device, x.device)):
        if value != must:
            raise ValueError(f"out has {what} {value}, must be {must}")


def _disagreement(told: list[_Arguments]) -> Exception | None:
    """The exception that every rank raises, or None where all agree."""
    for rank, one in enumerate(told):
        if one.error:
            return ValueError(f"rank {rank}: {one.error}")
    first = told[0]
    for rank, one in enumerate(told):
        for field in ("axes", "src_dim", "dst_dim", "types", "device", "scale", "out"):
            if getattr(one, field) != getattr(first, field):
                return ValueError(
                    f"{field} is {getattr(first, field)} on rank 0 and {getattr(one, field)} on rank {rank}, must agree"
                )
        others = [shape[: one.src_dim] + shape[one.src_dim + 1 :] for shape in (first.shape, one.shape)]
        if others[0] != others[1]:
            return ValueError(
                f"x has shape {first.shape} on rank 0 and {one.shape} on rank {rank}, must agree but for src_dim"
            )
    extents = [one.shape[one.src_dim] for one in told]
    wanted = [chunk.length for chunk in chunks_of(sum(extents), len(told))]
    if extents != wanted:
        return ValueError(f"x has extents {extents} along src_dim, must be torch.chunk's {wanted}")
    layout = ShardLayout(
        *(with_extent(first.shape, first.src_dim, sum(extents)), first.axes, first.src_dim, first.dst_dim, len(told)),
    )
    for rank, one in enumerate(told):
        if one.out_shape not in (None, layout.dst_shape(rank)):
            return ValueError(f"out has shape {one.out_shape} on rank {rank}, must be {layout.dst_shape(rank)}")
    return None


def _road(exchange: Exchange, x: torch.Tensor) -> Road:
    if exchange.layout.is_local or exchange.layout.num_ranks == 1:
        return Road("local", "no element changes its rank")
    return road_of(exchange.group, x.device)


def _run(exchange: Exchange, x: torch.Tensor, out: torch.Tensor | None) -> torch.Tensor:
    result = out
    if result is None:
        result = x.new_empty(exchange.layout.dst_shape(exchange.rank), dtype=exchange.dtype)
    with torch.no_grad():
        x = x.resolve_conj().resolve_neg()
        run = {"local": run_local, "fused": run_fused, "staged": run_staged}[_road(exchange, x).name]
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
            return _Redistribute.apply(dy, ctx.exchange), None
        return _run(ctx.exchange, dy, None), None


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
    group = dist.distributed_c10d._resolve_process_group(group_name)
    layout = ShardLayout(tuple(shape), tuple(axes), src_dim, dst_dim, group.size())
    return _run(Exchange(layout, group.rank(), group, dtype, scale), x, None)


@_operator.register_fake
def _(
    x: torch.Tensor,
    shape: list[int],
    axes: list[int],
    src_dim: int,
    dst_dim: int,
    group_name: str,
    dtype: torch.dtype,
    scale: float,
) -> torch.Tensor:
    group = dist.distributed_c10d._resolve_process_group(group_name)
    layout = ShardLayout(tuple(shape), tuple(axes), src_dim, dst_dim, group.size())
    return x.new_empty(layout.dst_shape(group.rank()), dtype=dtype)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    x, *ctx.arguments = inputs
    ctx.dtype = x.dtype


def _backward(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    shape, axes, src_dim, dst_dim, group_name, _, scale = ctx.arguments
    inverse = ShardLayout(tuple(shape), tuple(axes), src_dim, dst_dim, 1).inverse()
    dx = torch.ops.flowk_distributed.redistribute(
        dy, inverse.shape, inverse.axes, inverse.src_dim, inverse.dst_dim, group_name, ctx.dtype, scale
    )
    return (dx, *(None for _ in ctx.arguments))


_operator.register_autograd(_backward, setup_context=_setup_context)


def _is_dtensor(x: Any) -> bool:
    return type(x).__name__ == "DTensor" and type(x).__module__.startswith("torch.distributed")


def _redistribute_dtensor(
    x: Any, axes: Any, src_dim: Any, dst_dim: Any, group: Any, dtype: Any, scale: Any, out: Any
) -> Any:
    from torch.distributed.tensor import DTensor, Shard

    mesh, rank = x.device_mesh, x.dim()
    order = checked_axes(axes, rank)
    source, target = checked_dim(src_dim, "src_dim", rank), checked_dim(dst_dim, "dst_dim", rank)
    if mesh.ndim != 1 or x.placements != (Shard(source),):
        raise ValueError(
            f"x is a DTensor with placements {x.placements}, must have one: Shard({source}), as src_dim says"
        )
    if group is not None and group != mesh.get_group():
        raise ValueError("group is not that of x's device mesh")
    if out is not None:
        raise TypeError("out: the result of a DTensor is a new DTensor")
    local = redistribute(
        x.to_local(), order, source, target, mesh.get_group(), extent=x.shape[source], dtype=dtype, scale=scale
    )
    shape = torch.Size(x.shape[axis] for axis in order)
    strides = torch.empty(shape, device="meta").stride()
    return DTensor.from_local(local, mesh, [Shard(target)], run_check=False, shape=shape, stride=strides)
