# SPDX-License-Identifier: Apache-2.0
"""masked_softmax_backward_dbias: the gradient of a bias that rows share."""

from __future__ import annotations

import functools
from ctypes import c_int
from typing import TYPE_CHECKING, Any

from .._arguments import boolean, number
from .._arrays.dtypes import contiguous_strides, float_type, has_contiguous_rows, is_contiguous
from .._calls import call_path
from .._calls.call_path import CallPath, parameters_of
from .._copies import on_copies
from .._native.abi import MAX_RANK, DType
from .._native.c_types import Int64Pointer, int64s
from .._pipeline import Operation, Request, bind_plan, require_arrays
from .._program import INPUT, MASK, NUMBER, OUTPUT, TEMP, Arg, Buffer, Mask, Number, Program, Step
from .array_checks import bytes_of_workspace, check_like, require_bytes, workspace_bytes
from .softmax_arguments import MEMBERS, Options, arguments_of, broadcast_strides, checked_options, copied_inputs

if TYPE_CHECKING:
    from .._arrays.adapters.base import Geometry, Signature
    from .._typing import Array, ArrayT, DTypeLike, Stream


def masked_softmax_backward_dbias(
    dy: ArrayT,
    y: Array,
    bias: Array,
    *,
    dlse: Array | None = None,
    lengths: Array | None = None,
    lengths_from_right: bool = False,
    causal: bool = False,
    causal_offset: int = 0,
    window: int | None = None,
    scale: float = 1.0,
    log: bool = False,
    batch_invariant: bool = False,
    need_dx: bool = True,
    dtype: DTypeLike | None = None,
    dx_out: Array | None = None,
    dbias_out: Array | None = None,
    workspace: Array | None = None,
    stream: Stream | None = None,
) -> tuple[ArrayT | None, Any]:
    """The gradients of `masked_softmax` with respect to a bias that rows share, and to x, in one pass.

    dbias is the sum of ``y[..., j] * (dy[..., j] - sum of y[..., i] * dy[..., i])`` over the dimensions in which the
    bias is broadcast to y, and dx is ``scale`` times the terms. With log the terms are those of
    `masked_softmax_backward`.

    Parameters
    ----------
    dy, y, dlse, lengths, lengths_from_right, causal, causal_offset, window, scale, log, batch_invariant : optional
        As in `masked_softmax_backward`. With a softcap or a row_scale, dbias is that of a call without them, and
        `masked_softmax_backward` has dx.
    bias : array
        As given to `masked_softmax`; only its shape and dtype matter. Its last extent is y's.
    need_dx : bool, optional
        False: dx is not computed and is None in the result.
    dtype : dtype-like, optional
        Of a new dx: the dtype that `masked_softmax` had for x; by default dy's.
    dx_out : array, optional
        Where to write dx, as `out` of `masked_softmax_backward`.
    dbias_out : array, optional
        Where to write dbias: contiguous, of bias's shape and dtype; it shares no memory with another array. By default
        a new array of bias's kind.
    workspace : array, optional
        Contiguous, at least `masked_softmax_backward_dbias_workspace_bytes` bytes, on dy's device, at a multiple of 16
        bytes; in use until the work is done. By default it is allocated if one is needed, on a GPU in the stream's
        order.
    stream : int or stream object, optional
        As in `permute`.

    Returns
    -------
    dx, dbias : array or None
        Sums are taken in float32, in float64 for float64. The order in which rows are added depends on the shapes and
        y's dtype alone.

    Raises
    ------
    ValueError, TypeError, FlowkError, FlowkValueError
        As `masked_softmax`.

    See Also
    --------
    masked_softmax_backward : dx alone, also with sinks, a softcap or a scale per row.

    Examples
    --------
    >>> dy, bias = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]), np.zeros(2)  # one bias for all rows
    >>> y = pyflowk.masked_softmax(np.zeros((3, 2)), bias=bias)
    >>> dx, dbias = pyflowk.masked_softmax_backward_dbias(dy, y, bias, scale=0.5)
    >>> dbias
    array([ 0.25, -0.25])
    >>> dx
    array([[ 0.125, -0.125],
           [ 0.125, -0.125],
           [-0.125,  0.125]])
    """
    both = _PATH.call if call_path.is_compiling() else _PATH.cached_call
    return both(  # type: ignore[no-any-return]
        dy, y, bias, dlse, lengths, lengths_from_right, causal, causal_offset, window, log, batch_invariant, need_dx,
        dtype, scale, dx_out, dbias_out, workspace, stream,
    )  # fmt: skip


def masked_softmax_backward_dbias_workspace_bytes(y: Array, bias: Array) -> int:
    """Bytes of workspace that `masked_softmax_backward_dbias` needs for arrays such as y and bias; 0 if it needs none.

    Parameters
    ----------
    y, bias
        As given to `masked_softmax_backward_dbias`; values and addresses do not matter.
    """
    return sum(bind_plan(Request(_WORKSPACE, (y, bias))).program.temps)


def _request(*given: Any) -> Request:
    arrays, options, (scale, dx_out, _, _) = given[:5], given[5:13], given[13:]
    *of_mask, need_dx, dtype = options
    if not boolean(need_dx, "need_dx") and dx_out is not None:
        raise ValueError("dx_out is given, must be None where need_dx is False")
    names = ("lengths_from_right", "causal", "causal_offset", "window", "log", "batch_invariant")
    checked = checked_options(**dict(zip(names, of_mask)), dtype=dtype)
    factor = scale if type(scale) is float else number(scale, "scale")
    return Request(_DBIAS, arrays, (checked, need_dx), (factor,))


# ---- plans ----------------------------------------------------------------------------------------------------------


def _plan_workspace(
    signatures: tuple[Signature, ...], outs: tuple[None], options: None, library: Any = None
) -> Program | None:
    require_arrays(("y", "bias"), signatures)
    if library is None:
        return None
    y, bias = signatures
    if len(y[0]) > MAX_RANK:
        raise ValueError(f"y.ndim = {len(y[0])}, must be in 1 ... {MAX_RANK}")
    a = arguments_of({"y": y, "bias": bias}, None, Options())
    strides = _dbias_strides(y, bias, None)
    return Program((), (), (workspace_bytes(library, _FUNCTION, (), *a.written[2:], strides, a.code),))


def _plan(
    signatures: tuple[Signature, ...],
    outs: tuple[Geometry | None, ...],
    options: tuple[Options, bool],
    library: Any = None,
) -> Program | None:
    """`outs` are dx, dbias and the workspace, the size of which depends on the device."""
    require_arrays(_NAMES[:3], signatures[:3])
    (dx, dbias_out, workspace), (of_mask, need_dx) = outs, options
    copied = copied_inputs(_NAMES, (*signatures[:2], None, *signatures[3:]))
    out_name = None if dx is None or has_contiguous_rows(dx, "dx_out") else "dx_out"
    if copied or out_name:
        return on_copies(functools.partial(_plan, library=library), signatures, outs, options, copied, out_name)
    arrays = {name: signature for name, signature in zip(_NAMES, signatures) if signature is not None}
    a = arguments_of(arrays, dx, of_mask, out_name="dx_out")
    strides, dtype = _dbias_strides(signatures[0], signatures[2], dbias_out), signatures[2][2]
    if workspace is not None:
        num_bytes = bytes_of_workspace(workspace)
    elif library is None:
        return None
    else:
        num_bytes = workspace_bytes(library, _FUNCTION, (), *a.written[2:], strides, a.code)
    inputs = {name: Arg(INPUT, _NAMES.index(name)) for name in arrays}
    in_mask = {MEMBERS[name]: inputs[name] for name in ("dlse", "lengths") if name in arrays}
    mask = Arg(MASK, Mask(a.mask, in_mask)) if in_mask else a.mask_pointer
    args = (
        *(arg for name, strides in zip(("dy", "y"), a.strides) for arg in (inputs[name], strides)),
        *(a.code, Arg(OUTPUT, 0) if need_dx else None, *a.written[:2]),
        *(Arg(OUTPUT, 1), strides, c_int(float_type(dtype, "bias")), *a.written[2:]),
        *(Arg(NUMBER, Number(len(signatures), DType.FLOAT64, "scale")), mask, c_int(of_mask.log)),
        *(None if not num_bytes else Arg(TEMP, 0) if workspace is None else Arg(OUTPUT, 2), num_bytes),
    )
    step = Step.of(_FUNCTION, args, _NAMES)
    dbias = Buffer(tuple(signatures[2][0]), dtype, like=2)
    results = (Buffer(*a.out_like) if need_dx else None, dbias, None)
    return Program((step,), results, (num_bytes,) if num_bytes and workspace is None else ())


def _dbias_strides(y: Geometry, bias: Geometry, out: Geometry | None) -> Int64Pointer:
    """The strides of dbias over y's dimensions, 0 in those that the bias shares. ValueError or TypeError if `out`
    cannot be dbias."""
    shape = tuple(bias[0])
    if shape[-1:] != tuple(y[0][-1:]):
        raise ValueError(f"bias has shape {shape}, must have {y[0][-1]} as its last extent")
    if out is not None:
        require_bytes("dbias_out", out)
        check_like("dbias_out", (out[0], out[2]), (shape, bias[2]), float_type(bias[2], "bias"), "bias")
        if not is_contiguous(out, "dbias_out"):
            raise ValueError(f"dbias_out has strides of {tuple(out[1])}, must be contiguous")
    return int64s(broadcast_strides(shape, contiguous_strides(shape, 1), len(y[0])))


_FUNCTION = "flowk_masked_softmax_backward_dbias"
_NAMES = ("dy", "y", "bias", "dlse", "lengths")
_DBIAS = Operation(
    *(_NAMES, _plan),
    parameters=("scale",),
    out_names=("dx_out", "dbias_out", "workspace"),
    num_results=2,
    context=lambda library, adapter: library,
    operator="softmax_backward_dbias",
)
_PATH = CallPath(parameters_of(masked_softmax_backward_dbias, "scale"), _request, _DBIAS.out_names, takes_outs=True)
_WORKSPACE = Operation(
    *(("y", "bias"), _plan_workspace),
    context=lambda library, adapter: library,
    operator="masked_softmax_backward_dbias_workspace_bytes",
)
