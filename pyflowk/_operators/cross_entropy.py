# SPDX-License-Identifier: Apache-2.0
"""cross_entropy, its gradient, and its parts for a vocabulary that is split over devices."""

from __future__ import annotations

import functools
from collections.abc import Callable
from ctypes import c_int, c_int32, c_int64
from math import prod
from typing import TYPE_CHECKING, Any

from .._arguments import boolean
from .._arrays.adapters.base import Geometry, Signature
from .._arrays.dtypes import contiguous_strides, dtype_like, float_type, has_contiguous_rows, type_of_elements
from .._calls import call_path
from .._calls.call_path import CallPath, parameters_of
from .._copies import on_copies
from .._native.abi import PARTIAL_VALUES, DType
from .._native.c_types import int64s
from .._pipeline import Operation, Request, require_arrays
from .._program import INPUT, OUTPUT, TEMP, Arg, Buffer, Program, Step
from .array_checks import (
    check_like,
    check_per_row,
    check_row_out,
    check_type,
    copied_inputs,
    result_type,
    workspace_bytes,
)
from .cross_entropy_arguments import TARGET_TYPES, Options, c_strides, check_logits, checked_options

if TYPE_CHECKING:
    from .._typing import Array, ArrayT, Stream


def cross_entropy(
    logits: ArrayT,
    targets: Array,
    *,
    scale: float = 1.0,
    softcap: float = 0.0,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    ignore_index: int = -100,
    entropy: bool = False,
    loss_out: Array | None = None,
    lse_out: Array | None = None,
    entropy_out: Array | None = None,
    stream: Stream | None = None,
) -> tuple[ArrayT, ...]:
    """The cross-entropy of each row of logits with its target, and the logarithm of the row's sum of exponentials.

    ``loss = lse - z[target]`` with ``lse = log(sum of exp(z[j]))`` and ``z = scale * logits``: ``-loss`` is the
    log-probability of the target. The logits are read once, and nothing of their size is written.

    Parameters
    ----------
    logits : array
        Shape (..., vocabulary), of float16, bfloat16, float32 or float64, of the kinds that `permute` takes. Any
        strides; an array whose last dimension is not contiguous is copied first, which is one more pass over it.
    targets : array
        int32 or int64, of the shape of logits without the last dimension: a column each. A target outside the
        vocabulary gives a loss of NaN.
    scale : float, optional
        A finite number: the inverse of a temperature.
    softcap : float, optional
        Not 0: ``z = softcap * tanh(scale * logits / softcap)``; a logit of -infinity stays -infinity.
    label_smoothing : float, optional
        In 0 ... 1: ``loss = (1 - label_smoothing) * (lse - z[target]) + label_smoothing * (lse - mean of z)``.
    z_loss : float, optional
        Adds ``z_loss * lse**2`` to the loss.
    ignore_index : int, optional
        The loss, lse and entropy of rows with this target are 0, and half of such a row is read at most.
    entropy : bool, optional
        True: also the entropy of ``p = exp(z - lse)``, ``lse - sum of p * z``.
    loss_out, lse_out, entropy_out : array, optional
        Where to write: contiguous, of targets' shape, float32 or for float64 logits float64. By default new arrays of
        logits' kind.
    stream : int or stream object, optional
        As in `permute`.

    Returns
    -------
    loss, lse : array
        And with ``entropy=True`` the entropy. On a GPU the work may still be running.

    Raises
    ------
    ValueError, TypeError
        A shape, dtype, number or device is not as above.
    FlowkError, FlowkValueError
        The library's status and text.

    Notes
    -----
    A row's results have the same bits in every batch: they do not depend on the number of rows, on the row's place or
    on its address. Computed in float32, in float64 for float64. A row whose z are all -infinity has a loss of infinity,
    an lse of -infinity and an entropy of 0; a NaN or +infinity in a row gives NaN.

    Mean and sum are left to the caller: ``loss.sum() / (targets != ignore_index).sum()`` is PyTorch's mean.

    See Also
    --------
    cross_entropy_backward : The gradient, which may overwrite the logits.
    cross_entropy_partials : A shard of the vocabulary.

    Examples
    --------
    >>> logits = np.array([[0, 0], [2, 0]], np.float32)
    >>> loss, lse = pyflowk.cross_entropy(logits, np.array([0, 1]))
    >>> loss.round(3)
    array([0.693, 2.127], dtype=float32)
    """
    results = (_PATH.call if call_path.is_compiling() else _PATH.cached_call)(
        logits, targets, scale, softcap, label_smoothing, z_loss, ignore_index, entropy, loss_out, lse_out, entropy_out,
        stream,
    )  # fmt: skip
    return results if entropy else results[:2]  # type: ignore[no-any-return]


def cross_entropy_backward(
    logits: ArrayT,
    targets: Array,
    lse: Array,
    dloss: Array | None = None,
    *,
    dlse: Array | None = None,
    entropy: Array | None = None,
    dentropy: Array | None = None,
    scale: float = 1.0,
    softcap: float = 0.0,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    ignore_index: int = -100,
    vocab_start: int = 0,
    vocab_size: int | None = None,
    out: Array | None = None,
    stream: Stream | None = None,
) -> ArrayT:
    """The gradient of `cross_entropy` with respect to the logits.

    ``dz[j] = dloss * (p[j] * (1 + 2 * z_loss * lse) - (1 - label_smoothing) * (j == target) - label_smoothing / V)``
    plus ``dlse * p[j] - dentropy * p[j] * (z[j] - lse + entropy)``, times the derivative of z.

    Parameters
    ----------
    logits, targets, scale, softcap, label_smoothing, z_loss, ignore_index
        As given to `cross_entropy`.
    lse : array
        What `cross_entropy` or `cross_entropy_merge` returned.
    dloss, dlse, dentropy : array, optional
        The gradients of the results of `cross_entropy`, of their shape and dtype; None counts as 0, but not all three.
    entropy : array, optional
        The same; needed with dentropy.
    vocab_start, vocab_size : int, optional
        As given to `cross_entropy_partials`: logits are a shard of the vocabulary.
    out : array, optional
        Where to write: logits' shape and dtype, any strides. logits itself is allowed: the logits are gone then, so
        that the gradient can be computed once only. It shares no other memory with an input.
    stream : int or stream object, optional
        As in `permute`.

    Returns
    -------
    array
        `out`. Ignored rows are 0; a row with a target outside the vocabulary is NaN.

    Raises
    ------
    ValueError, TypeError, FlowkError, FlowkValueError
        As `cross_entropy`.
    """
    return (_BACKWARD_PATH.call if call_path.is_compiling() else _BACKWARD_PATH.cached_call)(  # type: ignore[no-any-return]
        logits, targets, lse, dloss, dlse, entropy, dentropy, scale, softcap, label_smoothing, z_loss, ignore_index,
        vocab_start, vocab_size, out, stream,
    )  # fmt: skip


def cross_entropy_partials(
    logits: ArrayT,
    targets: Array,
    vocab_start: int,
    vocab_size: int,
    *,
    scale: float = 1.0,
    softcap: float = 0.0,
    ignore_index: int = -100,
    out: Array | None = None,
    stream: Stream | None = None,
) -> ArrayT:
    """What one shard of a vocabulary knows of a cross-entropy: five numbers per row for `cross_entropy_merge`.

    The largest z, m; the sums of ``exp(z - m)``, of ``exp(z - m) * (z - m)`` and of z; z of the target, 0 if it is not
    in the shard.

    Parameters
    ----------
    logits : array
        The columns vocab_start, vocab_start + 1, ... of the vocabulary: as in `cross_entropy`.
    targets, scale, softcap, ignore_index
        As in `cross_entropy`; targets count in the whole vocabulary.
    vocab_start, vocab_size : int
        The first column of the shard, and the number of columns of the whole vocabulary.
    out : array, optional
        Where to write: contiguous, of targets' shape and a last dimension of 5, float32, or for float64 logits float64.
    stream : int or stream object, optional
        As in `permute`.

    Returns
    -------
    array
        `out`. The gradient of a shard's logits is that of `cross_entropy_backward`, with the merged lse.
    """
    return (_PARTIALS_PATH.call if call_path.is_compiling() else _PARTIALS_PATH.cached_call)(  # type: ignore[no-any-return]
        logits, targets, vocab_start, vocab_size, scale, softcap, ignore_index, out, stream
    )


def cross_entropy_merge(
    partials: ArrayT,
    targets: Array,
    vocab_size: int,
    *,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    ignore_index: int = -100,
    loss_out: Array | None = None,
    lse_out: Array | None = None,
    entropy_out: Array | None = None,
    stream: Stream | None = None,
) -> tuple[ArrayT, ...]:
    """The results of `cross_entropy` from those of `cross_entropy_partials` of all shards.

    Parameters
    ----------
    partials : array
        Shape (shards, ..., 5), with targets' shape in the middle, float32 or float64: what an all-gather makes.
    targets, vocab_size, label_smoothing, z_loss, ignore_index
        As in `cross_entropy_partials` and `cross_entropy`.
    loss_out, lse_out, entropy_out, stream : optional
        As in `cross_entropy`.

    Returns
    -------
    loss, lse, entropy : array
        Of targets' shape.
    """
    return (_MERGE_PATH.call if call_path.is_compiling() else _MERGE_PATH.cached_call)(  # type: ignore[no-any-return]
        partials, targets, vocab_size, label_smoothing, z_loss, ignore_index, loss_out, lse_out, entropy_out, stream,
    )  # fmt: skip


# ---- requests -------------------------------------------------------------------------------------------------------


def _request_of(operation: Operation, function: Callable[..., Any]) -> Callable[..., Request]:
    """The request of a function that takes the operation's arrays and members of Options."""
    count = len(operation.names)
    names = [word.rstrip("=") for word in parameters_of(function).split()[count:]]

    def request(*given: Any) -> Request:
        return Request(operation, given[:count], checked_options(**dict(zip(names, given[count:]))))

    request.__name__ = function.__name__
    return request


def _cross_entropy(*given: Any) -> Request:
    *values, entropy, _, _, entropy_out = given
    wants = boolean(entropy, "entropy")
    if entropy_out is not None and not wants:
        raise ValueError("entropy_out is given, must be None where entropy is False")
    request = _FORWARD_REQUEST(*values)
    return request._replace(options=(request.options, wants))


# ---- plans ----------------------------------------------------------------------------------------------------------


def _plan_forward(
    is_shard: bool,
    signatures: tuple[Signature, ...],
    outs: tuple[Geometry | None, ...],
    settings: Any,
    library: Any = None,
) -> Program | None:
    """The plan of flowk_cross_entropy(): of its results, or of the partial results of a shard. `settings` are Options,
    for the results with whether the entropy is needed."""
    names = ("logits", "targets")
    require_arrays(names, signatures)
    logits, targets = signatures
    options, needs_entropy = (settings, False) if is_shard else settings
    shape = tuple(logits[0])
    code = check_logits(shape, logits[2], tuple(targets[0]), targets[2], options)
    copied = copied_inputs(names, signatures)
    if copied:
        plan = functools.partial(_plan_forward, is_shard, library=library)
        return on_copies(plan, signatures, outs, settings, copied, None)
    type_of_result = result_type(code)
    rows = shape[:-1]
    dtype = dtype_like(type_of_result, logits[2])
    results: tuple[Buffer | None, ...]
    if is_shard:
        results = (Buffer((*rows, PARTIAL_VALUES), dtype),)
        check_row_out("out", outs[0], (*rows, PARTIAL_VALUES), type_of_result)
        written = [None, None, None, Arg(OUTPUT, 0)]
    else:
        # The entropy has no elements if it is not needed: an operator of PyTorch returns a tensor for it.
        results = (Buffer(rows, dtype), Buffer(rows, dtype), Buffer(rows if needs_entropy else (0,), dtype))
        _check_outs(outs, rows, type_of_result)
        written = [Arg(OUTPUT, 0), Arg(OUTPUT, 1), Arg(OUTPUT, 2) if needs_entropy else None, None]
    if library is None:
        return None
    extents = c_int32(len(shape)), int64s(shape)
    num_bytes = workspace_bytes(library, "flowk_cross_entropy", ("logits",), *extents, c_int(code))
    workspace = Arg(TEMP, 0) if num_bytes else None
    targets_code = c_int(type_of_elements(targets[2]) or 0)
    args = (Arg(INPUT, 0), c_strides(logits, "logits"), c_int(code), Arg(INPUT, 1), targets_code, *written)
    step = Step.of("flowk_cross_entropy", (*args, *extents, options.pointer(), workspace, num_bytes), names)
    return Program((step,), results, (num_bytes,) if num_bytes else ())


def _plan_merge(
    signatures: tuple[Signature, ...], outs: tuple[Geometry | None, ...], options: Options
) -> Program | None:
    names = ("partials", "targets")
    require_arrays(names, signatures)
    (shape, _, dtype), (rows, _, targets_dtype) = signatures
    code = float_type(dtype, "partials")
    if code != result_type(code):
        raise TypeError(f"partials has dtype {dtype}, must be float32 or float64")
    check_type("targets", targets_dtype, TARGET_TYPES)
    if len(shape) < 2 or tuple(shape[1:]) != (*rows, PARTIAL_VALUES) or shape[0] < 1:
        raise ValueError(f"partials has shape {tuple(shape)}, must be (shards, {', '.join(map(str, rows))}, 5)")
    copied = copied_inputs(names, signatures, -1)
    if copied:
        return on_copies(_plan_merge, signatures, outs, options, copied, None)
    _check_outs(outs, tuple(rows), code)
    targets_code = c_int(type_of_elements(targets_dtype) or 0)
    args = (Arg(INPUT, 0), c_int64(shape[0]), Arg(INPUT, 1), targets_code, *(Arg(OUTPUT, i) for i in range(3)))
    step = Step.of("flowk_cross_entropy_merge", (*args, c_int64(prod(rows)), c_int(code), options.pointer()), names)
    return Program((step,), (Buffer(tuple(rows), dtype),) * 3)


def _plan_backward(
    signatures: tuple[Signature, ...], outs: tuple[Geometry | None, ...], options: Options
) -> Program | None:
    require_arrays(_BACKWARD_NAMES[:3], signatures)
    logits, targets = signatures[:2]
    (out,) = outs
    shape, dtype = tuple(logits[0]), logits[2]
    code = check_logits(shape, dtype, tuple(targets[0]), targets[2], options)
    given = {name: one for name, one in zip(_BACKWARD_NAMES, signatures) if one is not None and one is not type(None)}
    for name, one in list(given.items())[2:]:
        require_arrays((name,), (one,))
        check_per_row(name, one[0], one[2], shape[:-1], result_type(code))
    if not {"dloss", "dlse", "dentropy"} & set(given):
        raise TypeError("dloss, dlse and dentropy are None, one must be an array")
    if "dentropy" in given and "entropy" not in given:
        raise TypeError("entropy is None, must be an array beside dentropy")
    if out is not None:
        check_like("out", (out[0], out[2]), (shape, dtype), code, "logits")
    copied = copied_inputs(_BACKWARD_NAMES, signatures)
    out_name = None if out is None or 0 in shape or has_contiguous_rows(out, "out") else "out"
    if copied or out_name:
        return on_copies(_plan_backward, signatures, outs, options, copied, out_name)
    at = {name: Arg(INPUT, index) for index, name in enumerate(_BACKWARD_NAMES) if name in given}
    targets_code = c_int(type_of_elements(targets[2]) or 0)
    gradients = [at.get(name) for name in ("lse", "entropy", "dloss", "dlse", "dentropy")]
    out_strides = int64s(contiguous_strides(shape, 1)) if out is None else c_strides(out, "out")
    args = (at["logits"], c_strides(logits, "logits"), c_int(code), at["targets"], targets_code, *gradients)
    step = Step.of(
        "flowk_cross_entropy_backward",
        (*args, Arg(OUTPUT, 0), out_strides, c_int32(len(shape)), int64s(shape), options.pointer()),
        _BACKWARD_NAMES,
    )
    return Program((step,), (Buffer(shape, dtype),))


def _check_outs(outs: tuple[Geometry | None, ...], rows: tuple[int, ...], code: DType) -> None:
    for name, out in zip(_OUT_NAMES, outs):
        check_row_out(name, out, rows, code)


_OUT_NAMES = ("loss_out", "lse_out", "entropy_out")
_FORWARD = Operation(
    *(("logits", "targets"), functools.partial(_plan_forward, False)),
    out_names=_OUT_NAMES,
    num_results=3,
    context=lambda library, adapter: library,
    operator="cross_entropy",
)
_PARTIALS = Operation(
    *(("logits", "targets"), functools.partial(_plan_forward, True)),
    context=lambda library, adapter: library,
    operator="cross_entropy_partials",
)
_MERGE = Operation(
    ("partials", "targets"), _plan_merge, out_names=_OUT_NAMES, num_results=3, operator="cross_entropy_merge"
)
_BACKWARD_NAMES = ("logits", "targets", "lse", "dloss", "dlse", "entropy", "dentropy")
_BACKWARD = Operation(_BACKWARD_NAMES, _plan_backward, operator="cross_entropy_backward")
_FORWARD_REQUEST = _request_of(_FORWARD, cross_entropy)
_PATH = CallPath(parameters_of(cross_entropy), _cross_entropy, _OUT_NAMES, takes_outs=True)
_PARTIALS_PATH = CallPath(parameters_of(cross_entropy_partials), _request_of(_PARTIALS, cross_entropy_partials))
_MERGE_PATH = CallPath(parameters_of(cross_entropy_merge), _request_of(_MERGE, cross_entropy_merge), _OUT_NAMES)
_BACKWARD_PATH = CallPath(parameters_of(cross_entropy_backward), _request_of(_BACKWARD, cross_entropy_backward))
