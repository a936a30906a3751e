# SPDX-License-Identifier: Apache-2.0
"""softmax and log_softmax: over one dimension of an array, without a mask."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .._arguments import axis_of, integer
from .._calls import call_path
from .._calls.call_path import CallPath, parameters_of
from .._pipeline import Operation, Request, require_arrays
from .softmax import FORWARD
from .softmax_arguments import Options, checked_options

if TYPE_CHECKING:
    from .._arrays.adapters.base import Geometry, Signature
    from .._program import Program
    from .._typing import Array, ArrayT, DTypeLike, Stream


def softmax(
    x: ArrayT,
    axis: int = -1,
    *,
    dim: int | None = None,
    dtype: DTypeLike | None = None,
    out: Array | None = None,
    stream: Stream | None = None,
) -> ArrayT:
    """Softmax over one dimension of x, by default the last: `masked_softmax` without a mask.

    Parameters
    ----------
    x : array
        As in `masked_softmax`.
    axis, dim : int, optional
        The dimension to sum over, by NumPy's name and PyTorch's; a negative one counts from the end. A new `out` has
        its dimensions in memory in x's order if this one's elements are not neighbours in x, and else this one
        innermost. It costs one more pass if they are neighbours in x and not in `out`, or in `out` and not in x.
    dtype, out, stream : optional
        As in `masked_softmax`, which also says what is returned and raised.

    See Also
    --------
    masked_softmax : With masks, lengths, a bias or a scale.
    log_softmax : The logarithm.

    Examples
    --------
    >>> pyflowk.softmax(np.log([[1.0, 1.0, 2.0], [1.0, 4.0, 3.0]]))
    array([[0.25 , 0.25 , 0.5  ],
           [0.125, 0.5  , 0.375]])
    """
    return (_SOFTMAX_PATH.call if call_path.is_compiling() else _SOFTMAX_PATH.cached_call)(
        x, axis, dim, dtype, out, stream
    )


def log_softmax(
    x: ArrayT,
    axis: int = -1,
    *,
    dim: int | None = None,
    dtype: DTypeLike | None = None,
    out: Array | None = None,
    stream: Stream | None = None,
) -> ArrayT:
    """Logarithm of the softmax over one dimension of x, by default the last.

    Parameters
    ----------
    x, axis, dim, dtype, out, stream : optional
        As in `softmax`.

    See Also
    --------
    softmax : Without the logarithm.

    Examples
    --------
    >>> pyflowk.log_softmax(np.array([0.0, 0.0]))
    array([-0.69314718, -0.69314718])
    """
    return (_LOG_PATH.call if call_path.is_compiling() else _LOG_PATH.cached_call)(x, axis, dim, dtype, out, stream)


# ---- requests and plans ---------------------------------------------------------------------------------------------


def _softmax(x: Any, axis: Any, dim: Any, dtype: Any, log: bool = False) -> Request:
    options = checked_options(log=log, dtype=dtype)
    if dim is None and axis.__class__ is int and axis == -1:
        return Request(FORWARD.plain, (x,), options, (1.0,))
    if dim is not None and (type(axis) is not int or axis != -1):
        raise TypeError("axis and dim name the same thing: pass one of them")
    name, axis = ("axis", axis) if dim is None else ("dim", dim)
    return Request(_ALONG, (x,), (options, integer(axis, name), name), (1.0,))


def _log_softmax(x: Any, axis: Any, dim: Any, dtype: Any) -> Request:
    return _softmax(x, axis, dim, dtype, log=True)


def _plan_along(
    signatures: tuple[Signature, ...], outs: tuple[Geometry | None, ...], options: tuple[Options, int, str]
) -> Program | None:
    """The plan for the dimension options[1]: it is planned as the same array with this dimension last."""
    require_arrays(("x",), signatures)
    rest, axis, name = options
    shape, (out,) = signatures[0][0], outs
    rank = len(shape)
    last = axis_of(axis, name, rank)
    order = (*(d for d in range(rank) if d != last), last)

    def moved(geometry: Geometry) -> Geometry:
        shape, strides, dtype = geometry
        return tuple(shape[d] for d in order), tuple(strides[d] for d in order), dtype

    if out is not None and len(out[0]) != rank:
        raise ValueError(f"out has shape {tuple(out[0])}, must be {tuple(shape)}")
    program = FORWARD.plan((moved(signatures[0]),), (None if out is None else moved(out),), rest)
    if program is None:
        return None
    (buffer,) = program.results
    assert buffer is not None
    in_memory = order if buffer.order is None else tuple(order[d] for d in buffer.order)
    return program._replace(results=(buffer._replace(shape=tuple(shape), order=in_memory),))


_ALONG = Operation(("x",), _plan_along, parameters=("scale",), operator="softmax_along")
_SOFTMAX_PATH = CallPath(parameters_of(softmax), _softmax)
_LOG_PATH = CallPath(parameters_of(log_softmax), _log_softmax)
