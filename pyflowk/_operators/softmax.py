# SPDX-License-Identifier: Apache-2.0
"""masked_softmax and its gradient."""

from __future__ import annotations

import functools
from collections.abc import Callable
from ctypes import c_int
from typing import TYPE_CHECKING, Any

from .._arguments import number
from .._arrays.device_array import asarray
from .._arrays.dtypes import has_contiguous_rows
from .._arrays.registry import array_adapter
from .._calls import call_path
from .._calls.call_path import CallPath, parameters_of
from .._copies import on_copies
from .._native.abi import DType
from .._pipeline import Operation, Request
from .._program import INPUT, MASK, NUMBER, OUTPUT, Arg, Buffer, Mask, Number, Program, Step
from .softmax_arguments import (
    MEMBERS,
    Options,
    arguments_of,
    check_gradient,
    check_wanted,
    checked_options,
    copied_inputs,
    host_lengths,
    order_in_memory,
    other_name,
)

if TYPE_CHECKING:
    from .._arrays.adapters.base import Geometry, Signature
    from .._typing import Array, ArrayT, DTypeLike, Stream


def masked_softmax(
    x: ArrayT,
    mask: Array | None = None,
    *,
    lengths: Array | None = None,
    lengths_from_right: bool = False,
    causal: bool = False,
    causal_offset: int = 0,
    window: int | None = None,
    bias: Array | None = None,
    sinks: Array | None = None,
    row_scale: Array | None = None,
    scale: float = 1.0,
    softcap: float = 0.0,
    log: bool = False,
    batch_invariant: bool = False,
    return_lse: bool = False,
    dtype: DTypeLike | None = None,
    out: Array | None = None,
    lse_out: Array | None = None,
    stream: Stream | None = None,
    **others: Any,
) -> ArrayT | tuple[ArrayT, ArrayT]:
    """Softmax over the last dimension, over the columns that are not masked out.

    ``out[..., j] = exp(z[..., j]) / sum of exp(z[..., i]) over unmasked i``, 0 for masked-out j; ``z = scale * x +
    bias``.

    Parameters
    ----------
    x : array
        Shape (..., q, k) or (k,), of float16, bfloat16, float32 or float64, of the kinds that `permute` takes. Any
        strides; see the notes for a last dimension that is not contiguous.
    mask : array, optional
        bool or uint8; nonzero (True) means *masked out*, as in torch's masked_fill. It broadcasts to x's shape as in
        NumPy, for example (b, 1, 1, k), (q, k) or (b, 1, q, 1).
    lengths : array, list of int or int, optional
        int32 or int64: the number of unmasked columns per row, counted from the left. Its dimensions are x's
        *first* ones, each of x's extent or 1: (b,), (b, h), (b, 1, 1), (b, 1, q). Values below 0 count as 0, above k as
        k.
    lengths_from_right : bool, optional
        True: `lengths` count from the right end of the row, for padding on the left.
    causal : bool, optional
        True: row i has columns j <= d unmasked, with d = i + (k - q) + causal_offset. Without an offset the last row's
        diagonal ends in the last column. q is x's extent before the last, 1 if x has one dimension.
    causal_offset : int, optional
        See `causal`; in columns, |causal_offset| <= 2**62.
    window : int, optional
        Masks out columns j <= d - window: with `causal` the last `window` columns up to d stay. Without it, also masks
        out columns j >= d + window: a band around d stays. In columns, >= 1.
    bias : array, optional
        Of x's dtype, or float32 if x is float16 or bfloat16; broadcasts as `mask`. It is not scaled.
    sinks : array, optional
        Attention sinks: one logit per row that has no column. ``exp(sink)`` is added to the row's sum, and takes part
        in lse. float32, for float64 x float64; broadcasts to x's shape without the last dimension, so that one logit
        per head of (batch, heads, q, k) is ``sinks[:, None]``.
    row_scale : array, optional
        Numbers in device memory that multiply `scale`, one or one per row: dtype and shape as `sinks`. A captured graph
        reads them anew.
    scale : float, optional
        A finite number of any sign, |scale| <= 2**126 unless x is float64.
    softcap : float, optional
        c > 0: ``z = c * tanh(scale * row_scale * x / c) + bias``. 0: none.
    log : bool, optional
        True: the logarithm, ``z[..., j] - log(sum of exp(z[..., i]) over unmasked i)``, -infinity for masked-out j.
    batch_invariant : bool, optional
        True: the bits of a row's results depend on the row, the number of its columns, the dtypes and the other
        arguments for it alone: not on the number of rows, its place among them, or addresses. False: on all of these.
        Rows that are not whole aligned vectors of 16 bytes are slower with it.
    return_lse : bool, optional
        True: returns (out, lse), ``lse[...] = log(sum of exp(z[..., i]) over unmasked i)``, -infinity for a row whose
        columns are all masked out. It has x's shape without the last dimension, and is float32, for float64 x float64.
    dtype : dtype-like, optional
        Of a new `out`: by default x's. float32 x gives float16 and bfloat16 too, and these give float32.
    out : array, optional
        Where to write: x's shape, a dtype as above. x itself is allowed; it shares no other memory with an input. By
        default a new array of x's kind on x's device, C-contiguous but for the exception in the notes.
    lse_out : array, optional
        With `return_lse`, where to write lse: contiguous. By default a new array.
    stream : int or stream object, optional
        As in `permute`.
    **others
        Names of other libraries, which mean something else, are refused: PyTorch's attn_mask is True where this mask is
        False.

    Returns
    -------
    array
        `out`, or with `return_lse` (out, lse). On a GPU the work may still be running: mask, lengths and bias must not
        change before it has ended.

    Raises
    ------
    ValueError, TypeError
        A shape that does not broadcast; a dtype, window or device that is not as above.
    FlowkError, FlowkValueError
        The library's status and text.

    Notes
    -----
    A column is unmasked if each of mask, lengths, causal and window leaves it unmasked. A row whose columns are all
    masked out, or whose unmasked z are all -infinity, is 0 (-infinity with log). A NaN or +infinity among a row's
    unmasked z gives NaN in its unmasked columns; the value of a masked-out column does not matter. Columns that
    lengths, causal and window mask out are written but not read, except in rows of up to 1280 columns.

    If the last dimension of every array is not contiguous and there is no mask, lengths, causal, window or bias, x is
    read as it is, and a new `out` has its dimensions in memory in x's order. Otherwise an array whose last dimension is
    not contiguous is copied to temporary memory first, or from it for `out`: one more pass over that array. So are a
    mask and a bias with 1 as the last extent if k is not 1: the copy has k columns.

    A row whose columns are all masked out is 0 with a sink too, and its lse is the sink.

    Computed in float32, in float64 for float64. Without a bias, row_scale and softcap no finite x overflows, at any
    scale; with one, z is infinite if it is too large for that type. Unless x is float64, results below about 2**-125
    may be 0, and a softcap's z of 16-bit x is exact to softcap * 2**-22.

    See Also
    --------
    softmax : Without masks, over any dimension.
    masked_softmax_backward : The gradient.

    Examples
    --------
    >>> scores = np.zeros((2, 4, 4), np.float32)  # (batch, q, k)
    >>> pyflowk.masked_softmax(scores, lengths=np.array([4, 1]), causal=True)[:, 1]
    array([[0.5, 0.5, 0. , 0. ],
           [1. , 0. , 0. , 0. ]], dtype=float32)
    >>> mask = np.array([True, False, False, True])  # True: masked out
    >>> pyflowk.masked_softmax(scores, mask)[0, 0]
    array([0. , 0.5, 0.5, 0. ], dtype=float32)
    >>> bias = np.log([1, 3, 1, 1]).astype(np.float32)  # the last 3 columns up to the diagonal, and a bias
    >>> pyflowk.masked_softmax(scores, causal=True, window=3, bias=bias)[0, 3].round(4)
    array([0. , 0.6, 0.2, 0.2], dtype=float32)
    """
    if others:
        raise other_name(next(iter(others)))
    return (_FORWARD_PATH.call if call_path.is_compiling() else _FORWARD_PATH.cached_call)(
        x, mask, lengths, bias, sinks, row_scale, lengths_from_right, causal, causal_offset, window, softcap, log,
        batch_invariant, return_lse, dtype, scale, out, lse_out, stream,
    )  # fmt: skip


def masked_softmax_backward(
    dy: ArrayT,
    y: Array,
    *,
    dlse: Array | None = None,
    lengths: Array | None = None,
    scores: Array | None = None,
    sinks: Array | None = None,
    lse: Array | None = None,
    row_scale: Array | None = None,
    lengths_from_right: bool = False,
    causal: bool = False,
    causal_offset: int = 0,
    window: int | None = None,
    scale: float = 1.0,
    softcap: float = 0.0,
    log: bool = False,
    batch_invariant: bool = False,
    return_dsinks: bool = False,
    dtype: DTypeLike | None = None,
    out: Array | None = None,
    dsinks_out: Array | None = None,
    stream: Stream | None = None,
) -> ArrayT | tuple[ArrayT, ArrayT]:
    """The gradient of `masked_softmax` with respect to x.

    ``out[..., j] = scale * y[..., j] * (dy[..., j] - sum of y[..., i] * dy[..., i])``. With log:
    ``out[..., j] = scale * (dy[..., j] - exp(y[..., j]) * sum of dy[..., i])``, where the sum and the result leave out
    the columns with y = -infinity: those are masked out.

    Parameters
    ----------
    dy : array
        The gradient of y, of y's shape and dtype.
    y : array
        What `masked_softmax` returned.
    dlse : array, optional
        The gradient of lse, of its shape and dtype: the sum is less dlse.
    lengths, lengths_from_right, causal, causal_offset, window : optional
        As given to `masked_softmax`, to leave masked-out columns unread: out is 0 there. Leaving them out gives the
        same result. The mask and the bias are not parameters: y holds their effect.
    scores : array, optional
        With a softcap: the x given to `masked_softmax`, of y's shape and dtype.
    sinks, lse : array, optional
        With `return_dsinks`: the sinks given to `masked_softmax`, and the lse that it returned. Without it y holds the
        effect of the sinks.
    row_scale, scale, softcap, log : optional
        As given to `masked_softmax`.
    batch_invariant : bool, optional
        As in `masked_softmax`, for the bits of the gradients.
    return_dsinks : bool, optional
        True: returns (out, dsinks), where dsinks has lse's shape and dtype: each row's part of the gradient of its
        sink. The gradient is their sum over the rows that have the sink, ``dsinks.sum((0, 2))`` for one sink per head
        of (batch, heads, q, k).
    dtype : dtype-like, optional
        Of a new `out`: the dtype that `masked_softmax` had for x; by default dy's.
    out : array, optional
        As in `masked_softmax`; dy or y itself is allowed.
    dsinks_out : array, optional
        With `return_dsinks`, where to write dsinks: contiguous. By default a new array.
    stream : int or stream object, optional
        As in `permute`.

    Returns
    -------
    array
        `out`, or with `return_dsinks` (out, dsinks). A row without an unmasked column has gradient 0. The gradient of a
        bias of x's whole shape is `out` of a call with a scale of 1, without row_scale and softcap.

    Raises
    ------
    ValueError, TypeError, FlowkError, FlowkValueError
        As `masked_softmax`.

    See Also
    --------
    masked_softmax : The function itself; in PyTorch and JAX its gradient is taken by autograd and `jax.grad`.
    masked_softmax_backward_dbias : Also the gradient of a bias that rows share.

    Examples
    --------
    >>> x, dy = np.zeros((1, 4)), np.array([[1.0, 0.0, 0.0, 0.0]])
    >>> y = pyflowk.masked_softmax(x, lengths=np.array([2]))
    >>> pyflowk.masked_softmax_backward(dy, y, lengths=np.array([2]))
    array([[ 0.25, -0.25,  0.  ,  0.  ]])
    """
    return (_BACKWARD_PATH.call if call_path.is_compiling() else _BACKWARD_PATH.cached_call)(
        dy, y, dlse, lengths, scores, sinks, lse, row_scale, lengths_from_right, causal, causal_offset, window, softcap,
        log, batch_invariant, return_dsinks, dtype, scale, out, dsinks_out, stream,
    )  # fmt: skip


# ---- requests -------------------------------------------------------------------------------------------------------


class _Masked:
    """masked_softmax or its gradient: the paths of its calls, and its operations with and without the arrays of a mask.

    The first `num_first` arrays of the function's signature are x, or dy and y.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        num_first: int,
        c_function: str,
        operator: str,
        outs: tuple[str, ...] = ("out",),
    ) -> None:
        def request(*arguments: Any) -> Request:
            arrays, scale = arguments[:num_arrays], arguments[-1]
            options = checked_options(**dict(zip(option_names, arguments[num_arrays:-1])))
            if isinstance(arrays[lengths], (int, list, tuple)):
                copied = _lengths_beside(arrays[0], names[0], host_lengths(arrays[lengths]))
                arrays = (*arrays[:lengths], copied, *arrays[lengths + 1 :])
            factor = scale if type(scale) is float else number(scale, "scale")
            if options.num_results > 1:
                return Request(self.of_two_results, arrays, options, (factor,))
            if all([one is None for one in arrays[num_first:]]):
                return Request(self.plain, arrays[:num_first], options, (factor,))
            return Request(self.masked, arrays, options, (factor,))

        request.__name__ = function.__name__
        self.path = CallPath(parameters_of(function, "scale"), request, outs)
        num_arrays = len(self.path.arrays)
        names = self.path.names[:num_arrays]
        option_names = self.path.names[num_arrays:-1]
        lengths = names.index("lengths")
        self.plan = functools.partial(_plan, c_function, names)
        operation = functools.partial(
            Operation, plan=self.plan, parameters=("scale",), out_names=outs, operator=operator
        )
        self.masked, self.plain = operation(names), operation(names[:num_first])
        self.of_two_results = operation(names, num_results=len(outs))


def _lengths_beside(x: Any, name: str, values: Any) -> Any:
    """Lengths in host memory as an array where x is."""
    adapter = array_adapter(x, name)
    copied = adapter.copy_of(x, values)
    if copied is not None:
        return copied
    device = adapter.read(x, name, adapter.stream_of(x))[4]
    return values if device is None else asarray(values, device=device)


# ---- plans ----------------------------------------------------------------------------------------------------------


def _plan(
    function: str,
    names: tuple[str, ...],
    signatures: tuple[Signature, ...],
    outs: tuple[Geometry | None, ...],
    options: Options,
) -> Program | None:
    """The plan of C function `function` on arrays called `names`; the arrays of the mask may be None or missing."""
    out, *row_outs = outs
    copied = copied_inputs(names, signatures)
    out_name = None if out is None or has_contiguous_rows(out, "out") else "out"
    order = None
    if _lies_strided(names, signatures, options, copied, out is None or out_name is not None):
        order = order_in_memory(signatures[0][1])
    elif copied or out_name:
        return on_copies(functools.partial(_plan, function, names), signatures, outs, options, copied, out_name)
    arrays = {
        name: signature for name, signature in zip(names, signatures) if signature is not None or name not in MEMBERS
    }
    a = arguments_of(arrays, out, options, order)
    inputs = {name: Arg(INPUT, names.index(name)) for name in arrays}
    firsts = [arg for name, strides in zip(names, a.strides) for arg in (inputs[name], strides)]
    of_mask = {MEMBERS[name]: inputs[name] for name in arrays if name in MEMBERS}
    results = [Buffer(*a.out_like, order=order)]
    is_gradient = len(firsts) > 2
    if options.num_results > 1:
        of_mask["dsinks" if is_gradient else "lse"] = Arg(OUTPUT, 1)
        results.append(Buffer(*a.lse_like))
    for row_out in row_outs:
        check_wanted(
            "dsinks_out" if is_gradient else "lse_out", row_out, a.lse_like if options.num_results > 1 else None
        )
    if is_gradient:
        check_gradient(options, arrays)
    mask = Arg(MASK, Mask(a.mask, of_mask)) if of_mask else a.mask_pointer
    scale = Arg(NUMBER, Number(len(signatures), DType.FLOAT64, "scale"))
    args = (*firsts, a.code, Arg(OUTPUT, 0), *a.written, scale, mask, c_int(options.log))
    step = Step.of(function, args, names[: len(signatures)])
    return Program((step,), tuple(results))


def _lies_strided(
    names: tuple[str, ...],
    signatures: tuple[Signature, ...],
    options: Options,
    copied: dict[int, tuple[str, Geometry]],
    may_out_be: bool,
) -> bool:
    """Whether the columns of every array lie apart and there is no mask: C then takes them as they are."""
    given = [name for name, signature in zip(names, signatures) if signature is not None]
    is_masked = (
        options.causal
        or options.window
        or options.softcap
        or options.batch_invariant
        or options.num_results > 1
        or not MEMBERS.keys().isdisjoint(given)
    )
    return not is_masked and may_out_be and len(copied) == len(given)


FORWARD = _Masked(masked_softmax, 1, "flowk_masked_softmax", "softmax", ("out", "lse_out"))
_BACKWARD = _Masked(
    masked_softmax_backward, 2, "flowk_masked_softmax_backward", "softmax_backward", ("out", "dsinks_out")
)
_FORWARD_PATH, _BACKWARD_PATH = FORWARD.path, _BACKWARD.path
