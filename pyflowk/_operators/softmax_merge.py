# SPDX-License-Identifier: Apache-2.0
"""softmax_merge: the results of a softmax over two sets of columns, from those over each."""

from __future__ import annotations

from ctypes import c_int, c_int64
from math import prod
from typing import TYPE_CHECKING, Any

from .._arrays.dtypes import dtype_like, is_contiguous
from .._calls import call_path
from .._calls.call_path import CallPath, parameters_of
from .._copies import on_copies
from .._pipeline import Operation, Request, require_arrays
from .._program import INPUT, OUTPUT, Arg, Buffer, Program, Step
from .array_checks import check_like, check_row_out, copied_inputs, result_type
from .softmax_arguments import MERGED, check_merge

if TYPE_CHECKING:
    from .._arrays.adapters.base import Geometry, Signature
    from .._typing import Array, ArrayT, Stream


def softmax_merge(
    y1: ArrayT,
    lse1: Array,
    y2: Array,
    lse2: Array,
    *,
    out: Array | None = None,
    lse_out: Array | None = None,
    stream: Stream | None = None,
) -> tuple[ArrayT, ArrayT]:
    """Merges results of a softmax over two sets of columns into those over both.

    ``lse = log(exp(lse1) + exp(lse2))``, ``y[..., j] = exp(lse1 - lse) * y1[..., j] + exp(lse2 - lse) * y2[..., j]``.
    y1 and y2 are what attention gives for two parts of the keys, sums of values weighted by a softmax, and lse1 and
    lse2 the log-sum-exp of each part.

    Parameters
    ----------
    y1, y2 : array
        Of one shape (..., k) and one dtype: float16, bfloat16, float32 or float64.
    lse1, lse2 : array
        Their shape without the last dimension, float32, for float64 y1 float64.
    out : array, optional
        Where to write y: y1's shape and dtype. y1 or y2 itself is allowed; it shares no other memory with an input.
    lse_out : array, optional
        Where to write lse: contiguous; it shares no memory with an input.
    stream : int or stream object, optional
        As in `permute`.

    Returns
    -------
    y, lse : array

    Raises
    ------
    ValueError, TypeError
        A shape or a dtype that is not as above.
    FlowkError, FlowkValueError
        The library's status and text.

    Notes
    -----
    A half with an lse of -infinity counts as all masked out: the results are those of the other half, and its y is not
    used. If both are, y is 0 and lse is -infinity. A NaN or +infinity in an lse gives NaN. Computed in float32, in
    float64 for float64. Arrays that are not contiguous are copied first.

    See Also
    --------
    masked_softmax : Gives the log-sum-exp with return_lse=True.

    Examples
    --------
    >>> x, v = np.log([[1.0, 3.0, 4.0]]), np.array([[1.0], [2.0], [4.0]])
    >>> parts = [pyflowk.masked_softmax(part, return_lse=True) for part in (x[:, :2], x[:, 2:])]
    >>> y, lse = pyflowk.softmax_merge(parts[0][0] @ v[:2], parts[0][1], parts[1][0] @ v[2:], parts[1][1])
    >>> y, np.exp(lse)
    (array([[2.875]]), array([8.]))
    """
    return (_PATH.call if call_path.is_compiling() else _PATH.cached_call)(  # type: ignore[no-any-return]
        y1, lse1, y2, lse2, out, lse_out, stream
    )


def _softmax_merge(*arrays: Any) -> Request:
    return Request(_MERGE, arrays, None)


def _plan(signatures: tuple[Signature, ...], outs: tuple[Geometry | None, ...], options: None) -> Program | None:
    require_arrays(MERGED, signatures)
    code = check_merge(*((shape, dtype) for shape, _, dtype in signatures))
    (shape, _, dtype), (out, lse_out) = signatures[0], outs
    shape, wide = tuple(shape), result_type(code)
    if shape[-1] == 0:
        raise ValueError(f"y1 has shape {shape}, must have >= 1 columns")
    if out is not None:
        check_like("out", (out[0], out[2]), (shape, dtype), code, "y1")
    check_row_out("lse_out", lse_out, shape[:-1], wide)
    copied = copied_inputs(MERGED, signatures, -1)
    out_name = None if out is None or is_contiguous(out, "out") else "out"
    if copied or out_name:
        return on_copies(_plan, signatures, outs, options, copied, out_name)
    args = (*(Arg(INPUT, i) for i in range(4)), Arg(OUTPUT, 0), Arg(OUTPUT, 1))
    sizes = (c_int64(prod(shape[:-1])), c_int64(shape[-1]), c_int(code))
    step = Step.of("flowk_softmax_merge", (*args, *sizes), MERGED)
    return Program((step,), (Buffer(shape, dtype), Buffer(shape[:-1], dtype_like(wide, dtype))))


_MERGE = Operation(MERGED, _plan, out_names=("out", "lse_out"), num_results=2, operator="softmax_merge")
_PATH = CallPath(parameters_of(softmax_merge), _softmax_merge, ("out", "lse_out"))
