# SPDX-License-Identifier: Apache-2.0
"""The two transports: ways to move the parts of shards between ranks.

fused    every rank writes the permuted parts straight into the peers' results, which lie in symmetric memory: one
         launch of flowk_permute_many() between two barriers
staged   every rank packs the permuted parts for all peers, torch.distributed.all_to_all_single() moves them, and every
         rank puts its result together; in pieces, so that packing and moving overlap
"""

from __future__ import annotations

import math
import socket
import weakref
from collections.abc import Hashable, Iterable
from typing import Any, NamedTuple, TypeVar

import torch
import torch.distributed as dist

from .._operators.permute_many import permute_many
from .._operators.permute_many_plan import bind_many
from .._program import Memory, run
from .._torch.gate import current_raw_stream, mark_written
from .shard_layout import Chunk, ShardLayout

T = TypeVar("T")

# Larger exchanges are staged in pieces.
_PIECE_BYTES = 32 << 20
_MAX_PIECES = 8


class Exchange(NamedTuple):
    """The arguments of an exchange, without its tensors."""

    layout: ShardLayout
    rank: int
    group: dist.ProcessGroup
    dtype: torch.dtype
    scale: float


def gather_from_all(value: T, group: dist.ProcessGroup) -> list[T]:
    """Every rank's `value`. Collective."""
    values = [value] * group.size()
    dist.all_gather_object(values, value, group)
    return values


# ---- the choice -----------------------------------------------------------------------------------------------------


class Transport(NamedTuple):
    name: str  # "fused", "staged" or "local"
    reason: str


class _GroupState:
    """What is known of a process group, as long as it lives: transports by type of device, workspaces by device."""

    def __init__(self) -> None:
        self.transports: dict[str, Transport] = {}
        self.workspaces: dict[torch.device, torch.Tensor] = {}


_states: weakref.WeakKeyDictionary[dist.ProcessGroup, _GroupState] = weakref.WeakKeyDictionary()


def transport_of(group: dist.ProcessGroup, device: torch.device) -> Transport:
    """The transport of a group. The first call for a group is collective."""
    transports = _states.setdefault(group, _GroupState()).transports
    if device.type not in transports:
        transports[device.type] = _find_transport(group, device)
    return transports[device.type]


def _find_transport(group: dist.ProcessGroup, device: torch.device) -> Transport:
    """The fused transport, unless a rank objects; the first objection is the reason on every rank."""
    if device.type != "cuda":
        return Transport("staged", f"tensors are on {device.type}")
    places = gather_from_all((socket.gethostname(), device.index), group)
    objection = next(filter(None, gather_from_all(_objection(places, device.index), group)), None)
    return (
        Transport("staged", objection)
        if objection
        else Transport("fused", "all ranks' GPUs access each other's memory")
    )


def _objection(places: list[tuple[str, int]], own: int) -> str:
    """Why this rank cannot write into the memory of every other, or ""."""
    if len({host for host, _ in places}) > 1:
        return "the ranks are on several hosts"
    if len(set(places)) < len(places):
        return "ranks share a GPU, or number GPUs differently"
    for _, peer in places:
        if peer != own and not torch.cuda.can_device_access_peer(own, peer):
            return f"GPU {own} cannot access the memory of GPU {peer}"
    return ""


# ---- symmetric memory -----------------------------------------------------------------------------------------------

# The group and torch's handle of every tensor of empty() that lives, by the address of its storage.
_handles: dict[int, tuple[weakref.ref[dist.ProcessGroup], Any]] = {}
# Calls that may be made again, by everything that they depend on: redistribution.py. Emptied when memory comes or goes.
fused_calls: dict[Hashable, FusedCall] = {}
_MAX_FUSED_CALLS = 256


def symmetric_empty(num_bytes: int, group: dist.ProcessGroup, device: torch.device) -> torch.Tensor:
    """Uninitialised bytes in symmetric memory, the same number on every rank. Collective."""
    import torch.distributed._symmetric_memory as symmetric_memory

    memory = symmetric_memory.empty(max(num_bytes, 16), dtype=torch.uint8, device=device)
    storage = memory.untyped_storage()
    _handles[storage.data_ptr()] = (weakref.ref(group), symmetric_memory.rendezvous(memory, group))
    weakref.finalize(storage, _forget, storage.data_ptr()).atexit = False
    fused_calls.clear()
    return memory


def _forget(address: int) -> None:
    fused_calls.clear()  # which hold the handle too
    del _handles[address]


def remember(key: Hashable, exchange: Exchange, x: torch.Tensor, out: torch.Tensor) -> None:
    """Keeps a call into a tensor of empty() ready."""
    if transport_of(exchange.group, x.device).name == "fused" and _handle_of(out, exchange.group) is not None:
        if len(fused_calls) >= _MAX_FUSED_CALLS:
            fused_calls.clear()
        fused_calls[key] = FusedCall(exchange, x, out)


def _handle_of(out: torch.Tensor, group: dist.ProcessGroup) -> Any:
    """torch's handle of the symmetric memory of `out`; None if the peers cannot write into it."""
    owner, handle = _handles.get(out.untyped_storage().data_ptr(), (None, None))
    return handle if owner is not None and owner() is group and out.is_contiguous() else None


def describe_out(out: object, group: dist.ProcessGroup) -> str:
    """What all ranks must have in common of their `out`."""
    if not isinstance(out, torch.Tensor) or _handle_of(out, group) is None:
        return "a tensor of one rank"
    return f"a tensor of empty() from element {out.storage_offset()}"


def _workspace(num_bytes: int, exchange: Exchange, device: torch.device) -> torch.Tensor:
    workspaces = _states[exchange.group].workspaces
    memory = workspaces.get(device)
    if memory is None or memory.numel() < num_bytes:
        memory = workspaces[device] = symmetric_empty(num_bytes, exchange.group, device)
    return memory


def _timeout_ms(group: dist.ProcessGroup, device: torch.device) -> int:
    """The group's timeout, after which a barrier that waits for a rank ends the program's work on the GPU."""
    timeout = group._get_backend(device).options._timeout
    return max(1, min(int(timeout.total_seconds() * 1000), 2**31 - 1))


# ---- the transports -------------------------------------------------------------------------------------------------


def run_local(exchange: Exchange, x: torch.Tensor, out: torch.Tensor) -> None:
    _permute_all([(x, out)], exchange.layout.axes, exchange)


class FusedCall:
    """An exchange into the symmetric tensor `target` with all arguments ready. A call takes any x of the same shape,
    strides and type as the first."""

    def __init__(self, exchange: Exchange, x: torch.Tensor, target: torch.Tensor) -> None:
        layout, rank = exchange.layout, exchange.rank
        self._handle = _handle_of(target, exchange.group)
        self._device = x.device.index
        self._timeout_ms = _timeout_ms(exchange.group, x.device)
        src_chunk, joined = layout.src_chunks()[rank], layout.joined_dim
        # Not `target`: the caller may drop it, which gives its memory back; _forget() then drops this call.
        self._peers = []
        pairs = []
        for peer, chunk in _others_first(layout.dst_chunks(), rank):
            whole = target
            if peer != rank:
                shape = layout.dst_shape(peer)
                whole = self._handle.get_buffer(peer, shape, exchange.dtype, target.storage_offset())
                self._peers.append(whole)
            part = x.narrow(layout.cut_dim, chunk.start, chunk.length)
            pairs.append((part, whole.narrow(joined, src_chunk.start, src_chunk.length)))
        self._calls = []
        for srcs, dsts in _alike(pairs):
            bound = bind_many(srcs, layout.axes, exchange.dtype, exchange.scale, dsts, 0)
            # Not `bound`, which holds the tensors; the callers mark `out` as written.
            offsets = [pointer - x.data_ptr() for pointer in bound.operands]
            self._calls.append((bound.program, bound.library, offsets, bound.outputs))

    def __call__(self, x: torch.Tensor) -> None:
        stream = current_raw_stream(self._device)
        address = x.data_ptr()
        self._handle.barrier(0, self._timeout_ms)  # every rank's result may be written
        for program, library, offsets, outputs in self._calls:
            run(program, library, Memory([address + offset for offset in offsets], outputs), stream)
        self._handle.barrier(1, self._timeout_ms)  # every rank's result is whole


def run_fused(exchange: Exchange, x: torch.Tensor, out: torch.Tensor) -> None:
    target = out
    if _handle_of(out, exchange.group) is None:  # through a buffer that all ranks have, as large as the largest result
        num_bytes = math.prod(exchange.layout.dst_shape(0)) * exchange.dtype.itemsize
        memory = _workspace(num_bytes, exchange, x.device)
        target = memory[: out.numel() * exchange.dtype.itemsize].view(exchange.dtype).view(out.shape)
    FusedCall(exchange, x, target)(x)
    if target is out:
        mark_written(out)
    else:
        out.copy_(target)


def run_staged(exchange: Exchange, x: torch.Tensor, out: torch.Tensor, max_pieces: int = _MAX_PIECES) -> None:
    layout, rank = exchange.layout, exchange.rank
    joined = layout.joined_dim
    # For every peer: the part of x that it gets, and the part of `out` that it sends. Both have the result's order of
    # dimensions.
    parts = [x.narrow(layout.cut_dim, *chunk).permute(layout.axes) for chunk in layout.dst_chunks()]
    places = [out.narrow(joined, *chunk) for chunk in layout.src_chunks()]
    same_order = tuple(range(len(layout.axes)))
    moving: list[tuple[dist.Work, torch.Tensor, list[torch.Tensor], list[torch.Tensor]]] = []
    num_pieces, dim = _pieces(layout, exchange.dtype.itemsize, max_pieces)
    for piece in range(num_pieces):
        # This rank's own part is not sent.
        bounds = [(0, 0) if peer == rank else (piece, piece + 1) for peer in range(layout.num_ranks)]
        sent, targets = (
            [_pieces_of(whole, dim, *bound, num_pieces) for whole, bound in zip(wholes, bounds)]
            for wholes in (parts, places)
        )
        packed, packed_parts, send_bytes = _contiguous(sent, exchange.dtype, x)
        received, received_parts, receive_bytes = _contiguous(targets, exchange.dtype, x)
        _permute_all(zip(sent, packed_parts), same_order, exchange)
        work = dist.all_to_all_single(received, packed, receive_bytes, send_bytes, exchange.group, async_op=True)
        moving.append((work, packed, received_parts, targets))
    _permute_all([(parts[rank], places[rank])], same_order, exchange)  # while the parts of the other ranks move
    as_they_are = exchange._replace(scale=1.0)
    for work, _, received_parts, targets in moving:
        work.wait()
        _permute_all(zip(received_parts, targets), same_order, as_they_are)


def _others_first(chunks: list[Chunk], rank: int) -> list[tuple[int, Chunk]]:
    """The chunks of the other ranks, from the next rank on, and at last this rank's own."""
    order = [(rank + 1 + i) % len(chunks) for i in range(len(chunks))]
    return [(peer, chunks[peer]) for peer in order]


def _pieces(layout: ShardLayout, itemsize: int, max_pieces: int = _MAX_PIECES) -> tuple[int, int]:
    """The number of pieces of a staged exchange, and the dimension of the result that is cut: the longest one, without
    the dimension along which the parts of the ranks are joined. Every rank finds the same."""
    num_bytes = math.prod(layout.dst_shape(0)) * itemsize
    dims = [d for d in range(len(layout.axes)) if d != layout.joined_dim]
    dim = max(dims, key=lambda d: layout.dst_shape(0)[d])
    return max(1, min(num_bytes // _PIECE_BYTES, max_pieces, layout.dst_shape(0)[dim])), dim


def _pieces_of(whole: torch.Tensor, dim: int, first: int, end: int, num_pieces: int) -> torch.Tensor:
    """The pieces [first, end) of `num_pieces` along a dimension."""
    begin, end = (whole.shape[dim] * piece // num_pieces for piece in (first, end))
    return whole.narrow(dim, begin, end - begin)


def _contiguous(
    parts: list[torch.Tensor], dtype: torch.dtype, x: torch.Tensor
) -> tuple[torch.Tensor, list[torch.Tensor], list[int]]:
    """Memory for all parts, as bytes, because all_to_all_single() does not move every type; a view of it for each part;
    the sizes of the parts in bytes."""
    sizes = [part.numel() for part in parts]
    flat = x.new_empty(sum(sizes), dtype=dtype)
    views = [room.view(part.shape) for room, part in zip(torch.split(flat, sizes), parts)]
    return flat.view(torch.uint8), views, [size * dtype.itemsize for size in sizes]


def _alike(pairs: Iterable[tuple[torch.Tensor, torch.Tensor]]) -> list[tuple[list[torch.Tensor], list[torch.Tensor]]]:
    """The pairs that are not empty, in groups of equal shapes and strides."""
    groups: dict[Hashable, tuple[list[torch.Tensor], list[torch.Tensor]]] = {}
    for src, dst in pairs:
        if src.numel() > 0:
            srcs, dsts = groups.setdefault((src.shape, src.stride(), dst.stride()), ([], []))
            srcs.append(src)
            dsts.append(dst)
    return list(groups.values())


def _permute_all(pairs: Iterable[tuple[torch.Tensor, torch.Tensor]], axes: tuple[int, ...], exchange: Exchange) -> None:
    """Permutes every first tensor into the second."""
    for srcs, dsts in _alike(pairs):
        permute_many(srcs, axes, dtype=exchange.dtype, scale=exchange.scale, out=dsts)
