# SPDX-License-Identifier: Apache-2.0
"""permute_many."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from .._arrays.kinds import NeedsOperator, find_array_kind
from .._arrays.stream import stream_handle
from .._calls import roads
from .._pipeline import Listener, new_array
from .permute import permute
from .permute_arguments import axes_tuple
from .permute_many_plan import plan_many

if TYPE_CHECKING:
    from .._typing import Array, ArrayT, DTypeLike, Stream


def permute_many(
    xs: Sequence[ArrayT],
    axes: Iterable[int],
    *,
    dtype: DTypeLike | None = None,
    scale: float = 1.0,
    out: Sequence[Array] | None = None,
    stream: Stream | None = None,
) -> list[ArrayT]:
    """Reorder the dimensions of many arrays at once: ``[permute(x, axes) for x in xs]`` in one launch for every 16.

    On a GPU the blocks of a launch take the tiles of all arrays in turn. Small arrays cost one launch in place of many,
    and writes to other GPUs' memory overlap with writes to this one's. Under PyTorch's autograd, transforms and tracing
    each tensor is permuted by a call of its own.

    Parameters
    ----------
    xs : sequence of arrays
        At most 1,024, of the kinds that `permute` takes, all of the same shape, strides, dtype and device.
    axes : iterable of int
        The dimension of each array that each dimension of its result is, as a tuple for `permute`.
    dtype, scale, stream : optional
        As in `permute`.
    out : sequence of arrays, optional
        Where to write, one per array of `xs`, all of the same strides. None may share memory with another or with an
        array of `xs`. By default new C-contiguous arrays.

    Returns
    -------
    list of arrays
        Those of `out`, or the new ones.

    Raises
    ------
    FlowkValueError, FlowkError, ValueError, TypeError
        As in `permute`; ValueError also where the arrays differ, or `out` has another number of them.
    """
    arrays, outs = _listed(xs, "xs"), None if out is None else _listed(out, "out")
    if outs is not None and len(outs) != len(arrays):
        raise ValueError(f"out has {len(outs)} arrays, must have {len(arrays)} as xs has")
    order = axes_tuple(axes)
    if not arrays:
        return [] if stream.__class__ is not Listener else "nothing to do: there are no arrays\n"  # type: ignore[return-value]
    given = (arrays, order, dtype, scale, outs, stream)
    if roads.is_compiling():
        return _by_operators(*given)
    try:
        return _on_memory(*given)
    except NeedsOperator:
        return _by_operators(*given)


def _on_memory(
    arrays: list[Any], order: tuple[int, ...], dtype: Any, scale: Any, outs: list[Any] | None, stream: Any
) -> Any:
    x = arrays[0]
    source = find_array_kind(x, "xs[0]")
    if source.is_intercepted is not None and source.is_intercepted():
        raise NeedsOperator
    target = None if outs is None else find_array_kind(outs[0], "out[0]")
    explains = stream.__class__ is Listener
    if stream is not None and not explains:
        handle = stream_handle(stream)
    else:
        handle = source.stream_of(x) if target is None or source.follows_current_stream else target.stream_of(outs[0])
    made = plan_many(arrays, order, dtype, scale, outs, handle)
    out_pointers, results = made.out_pointers, outs
    if explains:
        return made.text()
    if results is None:
        new = [new_array(source, x, made.out_shape, made.out_dtype, None, made.device, handle) for _ in arrays]
        results, out_pointers = [array for array, _ in new], [pointer for _, pointer in new]
    made.run(made.src_pointers, out_pointers, handle)
    for after in made.afters:
        after(handle)
    return results if outs is not None else [source.result(x, result) for result in results]


def _by_operators(
    arrays: list[Any], order: tuple[int, ...], dtype: Any, scale: Any, outs: list[Any] | None, stream: Any
) -> Any:
    """A call that torch must see: a permute of each tensor."""
    from .._torch import gate  # for torch alone, which is imported here

    x = arrays[0]
    for i, one in enumerate(arrays):
        if not hasattr(one, "requires_grad"):
            raise TypeError(f"xs[{i}] is a {type(one).__name__}, must be a torch.Tensor beside the others")
        gate.require_plain_memory(one, f"xs[{i}]")
        own, wanted = ((tuple(each.shape), each.dtype, each.device) for each in (one, x))
        for what, value, expected in zip(("shape", "dtype", "device"), own, wanted):
            if value != expected:
                raise ValueError(f"xs[{i}] has {what} {value}, must be {expected} as xs[0] has")
    if stream.__class__ is Listener and any(getattr(one, "requires_grad", False) for one in (*arrays, *(outs or ()))):
        arrays, outs = ([one.detach() for one in several] if several else None for several in (arrays, outs))
        return permute_many(arrays, order, dtype=dtype, scale=scale, out=outs, stream=stream)  # type: ignore[arg-type]
    if stream.__class__ is Listener:
        return permute(x, order, dtype=dtype, scale=scale, out=outs and outs[0], stream=stream)
    return [
        permute(one, order, dtype=dtype, scale=scale, out=None if outs is None else outs[i], stream=stream)
        for i, one in enumerate(arrays)
    ]


def _listed(arrays: Any, name: str) -> list[Any]:
    if not isinstance(arrays, (list, tuple)):
        raise TypeError(f"{name} is a {type(arrays).__name__}, must be a list or tuple of arrays")
    return list(arrays)
