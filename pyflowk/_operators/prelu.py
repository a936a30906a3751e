# SPDX-License-Identifier: Apache-2.0
"""prelu and prelu_backward."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from .._arguments import boolean, integer
from .._arrays.adapters.base import Geometry, Signature
from .._calls import call_path
from .._calls.call_path import CallPath, parameters_of
from .._copies import in_c_order, on_copies
from .._pipeline import Operation, Request, bind_plan, no_array, require_arrays
from .._program import INPUT, OUTPUT, TEMP, Arg, Buffer, Program, Step
from .array_checks import bytes_of_workspace, require_bytes, workspace_bytes
from .prelu_arguments import check_same_type, copied_arrays, sizes_of

if TYPE_CHECKING:
    from .._typing import Array, ArrayT, Stream


def prelu(
    x: ArrayT, alpha: Array, channel_axis: int = 1, *, out: Array | None = None, stream: Stream | None = None
) -> ArrayT:
    """Parametric ReLU: ``out = x where x > 0, alpha * x elsewhere``.

    Parameters
    ----------
    x : array
        Any shape and strides, of float16, bfloat16, float32 or float64, of the kinds that `permute` takes. Fastest are
        elements that lie without gaps, in any order of the dimensions: C-contiguous, channels last, transposed.
        Otherwise, and if x and `out` are laid out differently, each of them that is not C-contiguous is copied to
        temporary memory first, or from it for `out`: one more pass over that array.
    alpha : array
        On x's device, of x's dtype, or float32 if x has 16 bits. One element for the whole of x, or shape
        ``(x.shape[channel_axis],)``: one per channel. An alpha that is not contiguous is copied first.
    channel_axis : int, optional
        The dimension of x that alpha runs along; not read if alpha has one element.
    out : array, optional
        Where to write: x's shape and dtype, any strides. x itself computes in place; anything else must not share
        memory with x. By default a new array of x's kind, its dimensions in memory in x's order, or if x has gaps in
        C order.
    stream : int or stream object, optional
        As in `permute`.

    Returns
    -------
    array
        `out`. On a GPU the work may still be running.

    Raises
    ------
    FlowkError, FlowkValueError
        The library's status and text.
    ValueError, TypeError
        A shape, stride, dtype or device is not as above; an argument is not an array.

    See Also
    --------
    prelu_backward : The gradients.
    leaky_relu : With a slope that is a number.

    Examples
    --------
    >>> x = np.array([[-2.0, -2.0], [4.0, -4.0]])  # (batch, channels)
    >>> pyflowk.prelu(x, np.array([0.25, 0.5]))
    array([[-0.5, -1. ],
           [ 4. , -2. ]])
    """
    return (_PATH.call if call_path.is_compiling() else _PATH.cached_call)(x, alpha, channel_axis, out, stream)


def _prelu(x: Any, alpha: Any, channel_axis: Any) -> Request:
    return Request(_PRELU, (x, alpha), integer(channel_axis, "channel_axis"))


def prelu_backward(
    dy: Array,
    x: ArrayT,
    alpha: Array,
    channel_axis: int = 1,
    *,
    need_dx: bool = True,
    need_dalpha: bool = True,
    dx_out: Array | None = None,
    dalpha_out: Array | None = None,
    workspace: Array | None = None,
    stream: Stream | None = None,
) -> tuple[ArrayT | None, Any]:
    """The gradients of `prelu` with respect to x and alpha.

    ``dx = dy where x > 0, alpha * dy elsewhere``; dalpha is the sum of ``dy * x`` over the elements with x <= 0 or NaN:
    one sum per channel, or one in all if alpha has one element.

    Parameters
    ----------
    dy : array
        The gradient of prelu's output: x's shape and dtype. `prelu` says which strides cost a copy.
    x, alpha, channel_axis
        As given to `prelu`.
    need_dx, need_dalpha : bool, optional
        False: that gradient is not computed and is None in the result.
    dx_out : array, optional
        Where to write dx: x's shape and dtype, as `out` of `prelu`. dy itself, x itself, or memory shared with neither.
    dalpha_out : array, optional
        Where to write dalpha: contiguous, alpha's shape and dtype. By default a new array of alpha's kind.
    workspace : array, optional
        Contiguous, at least `prelu_backward_workspace_bytes` bytes, on x's device, at a multiple of 16 bytes; in use
        until the work is done. By default it is allocated if one is needed, on a GPU in the stream's order.
    stream : int or stream object, optional
        As in `permute`.

    Returns
    -------
    dx, dalpha : array or None
        Sums are taken in float32, in float64 for float64, in a fixed order: equal calls on one device give equal bits.

    Raises
    ------
    FlowkError, FlowkValueError, ValueError, TypeError
        As `prelu`.

    See Also
    --------
    prelu : The function itself; in PyTorch and JAX its gradients are taken by autograd and `jax.grad`.

    Examples
    --------
    >>> x, dy = np.array([[-2.0, 4.0], [-1.0, -4.0]]), np.ones((2, 2))
    >>> dx, dalpha = pyflowk.prelu_backward(dy, x, np.array([0.25, 0.5]))
    >>> dx
    array([[0.25, 1.  ],
           [0.25, 0.5 ]])
    >>> dalpha
    array([-3., -4.])
    """
    both = _BACKWARD_PATH.call if call_path.is_compiling() else _BACKWARD_PATH.cached_call
    return both(  # type: ignore[no-any-return]
        dy, x, alpha, channel_axis, need_dx, need_dalpha, dx_out, dalpha_out, workspace, stream
    )


def _prelu_backward(dy: Any, x: Any, alpha: Any, channel_axis: Any, *rest: Any) -> Request:
    need_dx, need_dalpha, dx_out, dalpha_out, _ = rest
    needs = boolean(need_dx, "need_dx"), boolean(need_dalpha, "need_dalpha")
    axis = integer(channel_axis, "channel_axis")
    for name, out, is_needed in zip(("dx", "dalpha"), (dx_out, dalpha_out), needs):
        if out is not None and not is_needed:
            raise ValueError(f"{name}_out is given, must be None where need_{name} is False")
    return Request(_BACKWARD, (x, dy, alpha), (axis, *needs))


def prelu_backward_workspace_bytes(x: Array, alpha: Array, channel_axis: int = 1) -> int:
    """Bytes of workspace that `prelu_backward` needs for arrays such as x and alpha; 0 if it needs none.

    Parameters
    ----------
    x, alpha, channel_axis
        As given to `prelu`; values and addresses do not matter.
    """
    request = Request(_WORKSPACE, (x, alpha), integer(channel_axis, "channel_axis"))
    return sum(bind_plan(request).program.temps)


# ---- plans ----------------------------------------------------------------------------------------------------------


def _plan_prelu(
    signatures: tuple[Signature, ...], outs: tuple[Geometry | None, ...], channel_axis: int
) -> Program | None:
    if signatures[1] in (int, float):
        raise no_array("alpha", signatures[1], "array: leaky_relu takes a number")
    require_arrays(("x", "alpha"), signatures)
    copied, out_name = copied_arrays(("x", "alpha"), signatures, outs[0], "out")
    if copied or out_name:
        return on_copies(_plan_prelu, signatures, outs, channel_axis, copied, out_name)
    x, alpha = signatures
    sizes, order = sizes_of(x, alpha, channel_axis)
    step = Step.of("flowk_prelu", (Arg(INPUT, 0), Arg(INPUT, 1), Arg(OUTPUT, 0), *sizes), ("x", "alpha"))
    return Program((step,), (Buffer(tuple(x[0]), x[2], order),))


def _plan_workspace(
    signatures: tuple[Signature, ...], outs: tuple[None], channel_axis: int, library: Any = None
) -> Program | None:
    """The larger of two workspaces: with dy and dx laid out as x, and with all of them copied to C order."""
    require_arrays(("x", "alpha"), signatures)
    if library is None:
        return None
    x, alpha = signatures
    copied, _ = copied_arrays(("x", "alpha"), signatures, None, "out")
    layouts = (in_c_order(x, "x"), *(() if 0 in copied else (x,)))
    sizes = (sizes_of(each, alpha, channel_axis)[0] for each in layouts)
    return Program((), (), (max(workspace_bytes(library, _BACKWARD_IN_C, (), *each) for each in sizes),))


def _plan_backward(
    signatures: tuple[Signature, ...],
    outs: tuple[Geometry | None, ...],
    options: tuple[int, bool, bool],
    library: Any = None,
) -> Program | None:
    """`outs` are dx, dalpha and the workspace, the size of which depends on the device."""
    require_arrays(("x", "dy", "alpha"), signatures)
    copied, out_name = copied_arrays(("x", "dy", "alpha"), signatures, outs[0], "dx_out")
    if copied or out_name:
        plan = functools.partial(_plan_backward, library=library)
        return on_copies(plan, signatures, outs, options, copied, out_name)
    (x, _, alpha), (_, dalpha, workspace), (channel_axis, need_dx, need_dalpha) = signatures, outs, options
    sizes, order = sizes_of(x, alpha, channel_axis)
    if not need_dalpha:
        num_bytes = 0
    elif workspace is not None:
        num_bytes = bytes_of_workspace(workspace)
    elif library is None:
        return None
    else:
        num_bytes = workspace_bytes(library, _BACKWARD_IN_C, (), *sizes)
    if need_dalpha and dalpha is not None:
        require_bytes("dalpha_out", dalpha)
        if not check_same_type("alpha", alpha, "dalpha_out", dalpha):
            raise ValueError(f"dalpha_out has strides of {tuple(dalpha[1])}, must be contiguous")
    results = (
        Buffer(tuple(x[0]), x[2], order) if need_dx else None,
        Buffer(tuple(alpha[0]), alpha[2], like=2) if need_dalpha else None,
        None,
    )
    if not (need_dx or need_dalpha):
        return Program((), results, idle="no gradient is needed")
    dx, dalpha_arg = (Arg(OUTPUT, index) if result else None for index, result in enumerate(results[:2]))
    memory = None if not num_bytes else Arg(TEMP, 0) if workspace is None else Arg(OUTPUT, 2)
    args = (Arg(INPUT, 1), Arg(INPUT, 0), Arg(INPUT, 2), dx, dalpha_arg, *sizes, memory, num_bytes)
    step = Step.of(_BACKWARD_IN_C, args, ("x", "dy", "alpha"))
    return Program((step,), results, (num_bytes,) if num_bytes and workspace is None else ())


_BACKWARD_IN_C = "flowk_prelu_backward"
_PRELU = Operation(("x", "alpha"), _plan_prelu, operator="prelu")
_PATH = CallPath(parameters_of(prelu), _prelu)
_BACKWARD = Operation(
    *(("x", "dy", "alpha"), _plan_backward),
    out_names=("dx_out", "dalpha_out", "workspace"),
    num_results=2,
    context=lambda library, adapter: library,
    operator="prelu_backward",
)
_BACKWARD_PATH = CallPath(parameters_of(prelu_backward), _prelu_backward, _BACKWARD.out_names, takes_outs=True)
_WORKSPACE = Operation(
    *(("x", "alpha"), _plan_workspace),
    context=lambda library, adapter: library,
    operator="prelu_backward_workspace_bytes",
)
