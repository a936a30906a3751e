# SPDX-License-Identifier: Apache-2.0
"""permute_many."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from .._arguments import count_of, kind_of
from .._arrays import frameworks
from .._arrays.registry import interceptor_of
from .._calls import call_path
from .._pipeline import Bound, Request, bind_plan
from .._program import Program
from .permute import permute
from .permute_arguments import axes_tuple, permute_request
from .permute_many_plan import MANY, bind_many

if TYPE_CHECKING:
    from .._arrays.adapters.base import Interceptor
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

    On a GPU the blocks of a launch take the tiles of all arrays in turn. Small arrays cost one launch instead of many,
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

    Examples
    --------
    >>> keys, values = np.zeros((2, 128, 8, 64)), np.ones((2, 128, 8, 64))
    >>> keys, values = pyflowk.permute_many([keys, values], (0, 2, 1, 3))
    >>> values.shape
    (2, 8, 128, 64)
    """
    return _MANY.call(xs, axes, dtype, scale, out, stream)  # type: ignore[no-any-return]


class _Many:
    """The path of permute_many: through Python."""

    @staticmethod
    def call(xs: Any, axes: Any, dtype: Any, scale: Any, out: Any, stream: Any) -> list[Any]:
        arrays, outs, order = _checked(xs, axes, out)
        if not arrays:
            return []
        interceptor = _interceptor_of(arrays, outs)
        if interceptor is None:
            return bind_many(arrays, order, dtype, scale, outs, stream).run()  # type: ignore[no-any-return]
        interceptor.require_alike(arrays)
        return [
            permute(one, order, dtype=dtype, scale=scale, out=None if outs is None else outs[i], stream=stream)
            for i, one in enumerate(arrays)
        ]

    @staticmethod
    def bind_plan(named: dict[str, Any]) -> Bound:
        xs, axes, dtype, scale, out, _ = named.values()
        arrays, outs, order = _checked(xs, axes, out)
        if not arrays:
            nothing = Program((), (), idle="there are no arrays")
            return Bound(Request(MANY, ()), nothing, None, None, None, None, 0, (), (), (), ())
        interceptor = _interceptor_of(arrays, outs)
        if interceptor is None:
            return bind_many(arrays, order, dtype, scale, outs, None)
        interceptor.require_alike(arrays)
        if any(getattr(one, "requires_grad", False) for one in (*arrays, *(outs or ()))):
            detached = {"xs": [one.detach() for one in arrays], "out": outs and [one.detach() for one in outs]}
            return _Many.bind_plan({**named, **detached})
        return bind_plan(permute_request(arrays[0], order, dtype, scale), (outs[0] if outs else None,))


_MANY = _Many()


def _checked(xs: Any, axes: Any, out: Any) -> tuple[list[Any], list[Any] | None, tuple[int, ...]]:
    arrays, outs = _listed(xs, "xs"), None if out is None else _listed(out, "out")
    if outs is not None and len(outs) != len(arrays):
        raise ValueError(f"out has {count_of(len(outs), 'array')}, must have {len(arrays)} as xs has")
    return arrays, outs, axes_tuple(axes)


def _interceptor_of(arrays: list[Any], outs: list[Any] | None) -> Interceptor | None:
    """What makes a call per array, if their framework must see it; None for one call of flowk_permute_many()."""
    return frameworks.tracer if call_path.is_compiling() else interceptor_of((*arrays, *(outs or ())))


def _listed(arrays: Any, name: str) -> list[Any]:
    if not isinstance(arrays, (list, tuple)):
        raise TypeError(f"{name} is {kind_of(arrays)}, must be a list or tuple of arrays")
    return list(arrays)
