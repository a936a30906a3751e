# SPDX-License-Identifier: Apache-2.0
"""Calls of pyflowk's functions that torch must see, by the operators of torch.ops.flowk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._arguments import axis_of, kind_of
from .._arrays.dtypes import dtype_like
from .._arrays.stream import stream_handle
from .._elementwise.call import Elementwise
from .._pipeline import Bound, Request, bind
from . import gate
from . import operators as operators  # which registers them
from .elementwise_operators import with_numbers
from .registration import PARAMETERS, UNDER_AUTOCAST, UNDER_AUTOGRAD, all_arguments, call_operator


def by_operator(request: Request, outs: tuple[Any, ...], stream: Any) -> Any:
    """The result of a call that torch must see."""
    operation, inputs, out = request.operation, request.inputs, outs[0]
    if stream is None and out is None and len(inputs) == 1 and isinstance(inputs[0], Tensor):
        return _result(request, outs)
    for name, one in zip(operation.names, inputs):
        if not isinstance(one, (Tensor, int, float, np.generic, type(None))):
            raise TypeError(f"{name} is {kind_of(one)}, must be a torch.Tensor or a number, as the others are")
    tensors = [one for one in inputs if isinstance(one, Tensor)]
    if stream is None:
        result = _result(request, outs)
    elif gate.is_watched():
        raise TypeError("stream is given while torch traces or transforms: operators run on the current stream")
    else:
        device = tensors[0].device
        if device.type != "cuda":
            return by_operator(request, outs, None)
        with torch.cuda.stream(torch.cuda.ExternalStream(stream_handle(stream), device)):
            result = _result(request, outs)
    if out is None:
        return result
    if isinstance(result, tuple):  # `out` is the first one; _result() refuses the others
        return (_write(result[0], out, tensors, operation.out_names[0]), *result[1:])
    return _write(result, out, tensors, operation.out_names[0])


def bind_plan(request: Request, outs: tuple[Any, ...]) -> Bound:
    """The plan of a call that torch must see, for explain(), prepare() or the size of a workspace: it is
    planned as a call on the tensors' memory. No element is read."""
    operation, inputs, options, values = request
    if gate.is_watched():
        if operation.operator.endswith("_workspace_bytes"):
            raise TypeError(f"{operation.operator} is called while torch traces or transforms: call it before")
        raise TypeError("explain is called while torch traces or transforms: there is no plan to explain")
    with torch.no_grad(), gate.below_all():
        plain = tuple(map(_without_subclass, inputs, operation.names))
        outs = tuple(map(_without_subclass, outs, operation.out_names))
        bound = bind(Request(operation, plain, options, values), outs, None)
        assert isinstance(bound, Bound)
        return bound


def _without_subclass(x: Any, name: str) -> Any:
    """A tensor of a subclass as a plain one; any other argument as it is."""
    if not isinstance(x, Tensor) or gate.is_plain_type(type(x)):
        return x
    if type(x).__torch_dispatch__ is not Tensor.__torch_dispatch__:
        raise TypeError(
            f"{name} is {kind_of(x)}, a subclass of torch.Tensor that runs operators by its own "
            "__torch_dispatch__: there is no plan of its memory, pass a plain tensor"
        )
    with torch._C.DisableTorchFunctionSubclass():
        return x.as_subclass(Tensor)


def _write(result: Tensor, out: Tensor, tensors: Sequence[Tensor], name: str) -> Tensor:
    """Copies into out, which torch sees too."""
    if torch.is_grad_enabled() and any(one.requires_grad for one in (*tensors, out)):
        raise TypeError(f"{name} is given while autograd is on and a tensor requires grad, which needs a new result")
    if out.shape != result.shape or out.dtype != result.dtype:
        raise TypeError(
            f"{name} is {out.dtype} of shape {tuple(out.shape)}, must be {result.dtype} of {tuple(result.shape)} while "
            "torch traces or transforms"
        )
    return out.copy_(result)


def by_cached_operator(
    request: Request, inputs: tuple[Any, ...], numbers: dict[str, int]
) -> tuple[Any, tuple[Any, ...] | bool | None]:
    """The result of a call on these inputs of a public function, and the operator's call for calls.c: None if the call
    is more than that, False if this cannot be told. The arrays are plain tensors. `numbers` has, by their names, the
    indices of the inputs that are numbers of which a plan needs only the type."""
    calls = []

    def call(name: str, arguments: tuple[Any, ...], options: dict[str, Any] = {}) -> Tensor:  # noqa: B006
        result = call_operator(name, arguments, options)
        calls.append((name, all_arguments(name, arguments, options), result))
        return result

    result = _result(request, (None,), call)
    if len(calls) != 1 or calls[0][2] is not result:
        return result, None
    tensors = {id(one): index for index, one in enumerate(inputs) if isinstance(one, Tensor)}
    if len(tensors) < sum(isinstance(one, Tensor) for one in inputs):
        return result, False
    name, arguments, _ = calls[0]
    names = list(PARAMETERS[name])
    if isinstance(request.operation, Elementwise):  # its operator may have other names for these
        own_names = (*request.operation.names, *request.operation.parameters)
        names[: len(own_names)] = own_names
    template = []
    for parameter, argument in zip(names, arguments):
        index = tensors.get(id(argument), -1) if isinstance(argument, Tensor) else numbers.get(parameter, -1)
        is_input = index >= 0 and inputs[index] is argument
        template.append((index, None) if is_input else (-1, argument))
    if set(numbers.values()) - {index for index, _ in template}:
        return result, None
    # The options of the key are compared by their addresses.
    kept = tuple(one for one in inputs if not isinstance(one, Tensor))
    return result, (UNDER_AUTOGRAD[name], UNDER_AUTOCAST.get(name), tuple(template), kept)


def _result(request: Request, outs: tuple[Any, ...], call: Callable[..., Tensor] = call_operator) -> Any:
    operation = request.operation
    try:
        if isinstance(operation, Elementwise):
            return _elementwise(call, operation, request, outs[0])
        if any(one is not None for one in outs[1:]):
            names = " and ".join(filter(None, (", ".join(operation.out_names[1:-1]), operation.out_names[-1])))
            raise TypeError(f"{names} are given where torch must see the call, which needs new results")
        if not operation.operator:  # an ElementwiseKernel
            raise TypeError(
                "a kernel of one's own has no gradient and no rule under torch's transforms: pass x.detach()"
            )
        return _OPERATORS[operation.operator](call, request)
    except NotImplementedError:
        for name, one in zip(operation.names, request.inputs):
            gate.require_plain_memory(one, name)
        raise


def require_alike(arrays: Sequence[Any]) -> None:
    """Of permute_many: TypeError or ValueError if one is no tensor, or of another shape, dtype or device."""
    x = arrays[0]
    for i, one in enumerate(arrays):
        if not isinstance(one, Tensor):
            raise TypeError(f"xs[{i}] is {kind_of(one)}, must be a torch.Tensor, as the others are")
        gate.require_plain_memory(one, f"xs[{i}]")
        values, expected_values = ((tuple(each.shape), each.dtype, each.device) for each in (one, x))
        for what, value, expected in zip(("shape", "dtype", "device"), values, expected_values):
            if value != expected:
                raise ValueError(f"xs[{i}] has {what} {value}, must be {expected} as xs[0] has")


# ---- the calls of operators -----------------------------------------------------------------------------------------

Call = Callable[..., Any]  # call_operator(), or a function that does the same


def _elementwise(call: Call, operation: Elementwise, request: Request, out: Any) -> Any:
    _, inputs, options, values = request
    if operation.operator == "cast":
        x: Any = inputs[0]
        dtype = x.dtype if out is None else out.dtype
        dtype = dtype if operation.result is None else dtype_like(operation.result, dtype)
        return call("cast", (x, dtype))
    tensors = [one for one in inputs if isinstance(one, Tensor)]
    if len(tensors) == len(inputs) and not values:
        return call(operation.operator, inputs)
    if gate.is_watched() or not gate.is_whole or not all(map(gate.is_plain_memory, tensors)):
        return with_numbers(operation, inputs, options or (), values)
    return call(operation.operator, (*inputs, *map(float, values)))


def _by_names(call: Call, name: str, request: Request, **options: Any) -> Any:
    """Calls an operator with the inputs, these options and the numbers of a request: all have the operator's names."""
    operation, inputs, _, values = request
    x: Any = inputs[0]
    if options.get("dtype") is not None:
        options["dtype"] = dtype_like(options["dtype"], x.dtype)
    return call(name, (), {**dict(zip(operation.names, inputs)), **options, **dict(zip(operation.parameters, values))})


def _permute(call: Call, request: Request) -> Any:
    axes, dtype = request.options
    if axes is None:
        return _by_names(call, "batch_transpose", request, dtype=dtype)
    return _by_names(call, "permute", request, axes=axes, dtype=dtype)


def _prelu(call: Call, request: Request) -> Any:
    return _by_names(call, "prelu", request, channel_axis=request.options)


def _prelu_backward(call: Call, request: Request) -> Any:
    channel_axis, need_dx, need_dalpha = request.options
    dx, dalpha = _by_names(call, "prelu_backward", request, channel_axis=channel_axis)
    return dx if need_dx else None, dalpha if need_dalpha else None


def _softmax(call: Call, request: Request) -> Any:
    named = _options(request.options, "return_")  # which are other operators
    is_masked = len(request.inputs) > 1 or request.values[0] != 1 or named["window"] is not None
    if is_masked or named["causal"] or named["softcap"] or named["batch_invariant"]:
        name = "masked_softmax_with_lse" if request.options.return_lse else "masked_softmax"
        return _by_names(call, name, request, **named)
    name = "log_softmax" if named["log"] else "softmax"
    return _by_names(call, name, request._replace(values=()), dtype=named["dtype"])


def _softmax_along(call: Call, request: Request) -> Any:
    """By views with the dimension last. In the result it is innermost in memory, as in a plain call's."""
    x: Any = request.inputs[0]
    options, axis, name = request.options
    axis = axis_of(axis, name, x.dim())
    return _softmax(call, request._replace(inputs=(x.movedim(axis, -1),), options=options)).movedim(-1, axis)


def _softmax_backward(call: Call, request: Request) -> Any:
    name = f"masked_softmax_backward{'_with_dsinks' if request.options.return_dsinks else ''}"
    return _by_names(call, name, request, **_options(request.options, "return_"))


def _softmax_backward_dbias(call: Call, request: Request) -> Any:
    options, need_dx = request.options
    named = _options(options, "return_")
    del named["softcap"]
    dx, dbias = _by_names(call, "masked_softmax_backward_dbias", request, **named)
    return dx if need_dx else None, dbias


def _cross_entropy(call: Call, request: Request) -> Any:
    numbers, needs_entropy = request.options
    return _by_names(call, "cross_entropy", request, **_options(numbers, "vocab_"), entropy=needs_entropy)


def _cross_entropy_backward(call: Call, request: Request) -> Any:
    return _by_names(call, "cross_entropy_backward", request, **request.options._asdict())


def _options(options: Any, without: str) -> dict[str, Any]:
    """The options by their names, but those that begin with `without`."""
    return {name: value for name, value in options._asdict().items() if not name.startswith(without)}


def _without_gradient(call: Call, request: Request) -> Any:
    raise TypeError(
        f"{request.operation.operator} has no gradient and no rule under torch's transforms: pass detached tensors; "
        "cross_entropy_backward gives the gradient"
    )


_OPERATORS: dict[str, Callable[[Call, Request], Any]] = {
    "cross_entropy": _cross_entropy,
    "cross_entropy_backward": _cross_entropy_backward,
    "cross_entropy_merge": _without_gradient,
    "cross_entropy_partials": _without_gradient,
    "permute": _permute,
    "prelu": _prelu,
    "prelu_backward": _prelu_backward,
    "softmax": _softmax,
    "softmax_along": _softmax_along,
    "softmax_backward": _softmax_backward,
    "softmax_backward_dbias": _softmax_backward_dbias,
    "softmax_merge": lambda call, request: _by_names(call, "softmax_merge", request),
}
