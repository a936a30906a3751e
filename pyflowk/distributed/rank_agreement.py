# SPDX-License-Identifier: Apache-2.0
"""What all ranks check together before anything moves, so that an error is one on every rank."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import torch
import torch.distributed as dist

from .._arguments import number, shown
from .._operators.permute_many_plan import bind_many
from .shard_layout import ShardLayout, checked_axes, checked_dim, checked_integer, chunks_of, with_extent
from .transports import Exchange, describe_out, gather_from_all


class Call(NamedTuple):
    """The arguments of redistribute() on this rank, but its group."""

    x: torch.Tensor
    axes: Iterable[int]
    src_dim: int
    dst_dim: int
    extent: int | None
    dtype: torch.dtype | None
    scale: float
    out: torch.Tensor | None


class _Arguments(NamedTuple):
    """The arguments that a rank sends to the others. `shape` is of its own x; all other values must agree."""

    error: str  # the text of this rank's own error, or ""
    shape: tuple[int, ...]
    axes: tuple[int, ...]
    src_dim: int
    dst_dim: int
    types: tuple[str, str]
    device: str
    scale: float
    out: str
    out_shape: tuple[int, ...] | None


def group_or_default(group: dist.ProcessGroup | None) -> dist.ProcessGroup:
    """`group` or the default group; TypeError if it is no group, ValueError if this process is in none."""
    if not dist.is_initialized():
        raise ValueError("group: torch.distributed.init_process_group() was not called")
    chosen: object = dist.group.WORLD if group is None else group
    if chosen == dist.GroupMember.NON_GROUP_MEMBER:
        raise ValueError("group: this process is not one of its ranks")
    if not isinstance(chosen, dist.ProcessGroup):
        raise TypeError(f"group is {shown(group)}, must be a process group of torch.distributed")
    return chosen


def agreed(call: Call, group: dist.ProcessGroup) -> Exchange:
    """The exchange; without `extent` after all ranks have told each other their arguments."""
    x, extent, rank, num_ranks = call.x, call.extent, group.rank(), group.size()
    error: Exception | None = None
    arguments = _Arguments("", (), (), 0, 0, ("", ""), "", 1.0, "", None)
    try:
        extent = None if extent is None else checked_integer(extent, "extent")
        arguments = _checked(call, group)
    except (TypeError, ValueError) as caught:
        error = caught
    if extent is None:
        gathered = gather_from_all(arguments._replace(error=str(error or "")), group)
        error = error or _disagreement(gathered)
        extent = sum(one.shape[one.src_dim] for one in gathered) if error is None else 0
    if error is not None:
        raise error
    shape = with_extent(arguments.shape, arguments.src_dim, extent)
    layout = ShardLayout(shape, arguments.axes, arguments.src_dim, arguments.dst_dim, num_ranks)
    if tuple(x.shape) != layout.src_shape(rank):
        shapes = f"{tuple(x.shape)} on rank {rank}, must be {layout.src_shape(rank)}"
        raise ValueError(f"x has shape {shapes}, torch.chunk's part of extent = {extent}")
    if arguments.out_shape not in (None, layout.dst_shape(rank)):
        raise ValueError(f"out has shape {arguments.out_shape} on rank {rank}, must be {layout.dst_shape(rank)}")
    return Exchange(layout, rank, group, call.dtype or x.dtype, arguments.scale)


def _checked(call: Call, group: dist.ProcessGroup) -> _Arguments:
    x, axes, src_dim, dst_dim, _, dtype, scale, out = call
    if not isinstance(x, torch.Tensor):
        raise TypeError(f"x is a {type(x).__name__}, must be a torch.Tensor")
    if dtype is not None and not isinstance(dtype, torch.dtype):
        raise TypeError(f"dtype is {dtype!r}, must be a torch.dtype")
    if x.dim() == 0:
        raise ValueError("x has no dimensions, must have >= 1")
    if out is not None:
        _check_out(out, x, dtype or x.dtype)
    order, factor = checked_axes(axes, x.dim()), number(scale, "scale")
    if not math.isfinite(factor):
        raise ValueError(f"scale = {shown(scale)}, must be finite")
    if not torch.compiler.is_compiling():  # whether the types are permute's, also on ranks without elements
        element = torch.empty((1,) * x.dim(), dtype=x.dtype, device=x.device)
        bind_many([element], order, dtype, factor, None, 0)
    return _Arguments(
        error="",
        shape=tuple(x.shape),
        axes=order,
        src_dim=checked_dim(src_dim, "src_dim", x.dim()),
        dst_dim=checked_dim(dst_dim, "dst_dim", x.dim()),
        types=(str(x.dtype), str(dtype or x.dtype)),
        device=x.device.type,
        scale=factor,
        out=describe_out(out, group),
        out_shape=None if out is None else tuple(out.shape),
    )


def _check_out(out: torch.Tensor, x: torch.Tensor, dtype: torch.dtype) -> None:
    if not isinstance(out, torch.Tensor):
        raise TypeError(f"out is a {type(out).__name__}, must be a torch.Tensor")
    if torch.is_grad_enabled() and (x.requires_grad or out.requires_grad):
        raise TypeError("out takes no part in autograd: leave it out, or call under torch.no_grad()")
    if out.is_conj() or out.is_neg():
        raise ValueError("out is a lazily negated or conjugated tensor: resolve_neg() and resolve_conj() first")
    for what, value, must in (("dtype", out.dtype, dtype), ("device", out.device, x.device)):
        if value != must:
            raise ValueError(f"out has {what} {value}, must be {must}")


def _disagreement(gathered: list[_Arguments]) -> Exception | None:
    """The exception that every rank raises, or None if all agree."""
    for rank, one in enumerate(gathered):
        if one.error:
            return ValueError(f"rank {rank}: {one.error}")
    first = gathered[0]
    for rank, one in enumerate(gathered):
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
    extents = [one.shape[one.src_dim] for one in gathered]
    expected = [chunk.length for chunk in chunks_of(sum(extents), len(gathered))]
    if extents != expected:
        return ValueError(f"x has extents {extents} along src_dim, must be torch.chunk's {expected}")
    shape = with_extent(first.shape, first.src_dim, sum(extents))
    layout = ShardLayout(shape, first.axes, first.src_dim, first.dst_dim, len(gathered))
    for rank, one in enumerate(gathered):
        if one.out_shape not in (None, layout.dst_shape(rank)):
            return ValueError(f"out has shape {one.out_shape} on rank {rank}, must be {layout.dst_shape(rank)}")
    return None
