# SPDX-License-Identifier: Apache-2.0
"""Calls of pyflowk's functions that torch must see, by the operators of torch.ops.flowk."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._arguments import axis_of, kind_of
from .._arrays.dtypes import dtype_like
from .._arrays.stream import stream_handle
from .._elementwise.call import Elementwise
from .._operators.softmax_arguments import OF_GRADIENT, OF_MASK
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
    if isinstance(result, tuple):  # of several results, of which only the first can be given here
        return (_write(result[0], out, tensors, operation.out_names[0]), *result[1:])
    return _write(result, out, tensors, operation.out_names[0])


def bind_plan(request: Request, outs: tuple[Any, ...]) -> Bound:
    """The plan of a call that torch must see, for explain(), prepare() or prelu_backward_workspace_bytes(): it is
    planned as a call on the tensors' memory. No element is read."""
    operation, inputs, options, values = request
    if gate.is_watched():
        if operation.operator == "prelu_backward_workspace_bytes":
            raise TypeError("prelu_backward_workspace_bytes is called while torch traces or transforms: call it before")
        raise TypeError("explain is called while torch traces or transforms: there is no plan to explain")
    with torch.no_grad(), _below_all():
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


@contextlib.contextmanager
def _below_all() -> Iterator[None]:
    """A block in which calls are on the tensors' memory, below all that intercepts but autograd."""
    outer, gate.in_kernel.now = gate.in_kernel.now, True
    try:
        yield
    finally:
        gate.in_kernel.now = outer


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
    is more than that, False if this cannot be told. The arrays are plain tensors; `numbers` are the indices of the
    inputs whose values no plan depends on, by their names."""
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
    operation, inputs, options, values = request
    try:
        if isinstance(operation, Elementwise):
            return _elementwise(call, operation, inputs, outs[0], options or (), values)
        if any(one is not None for one in outs[1:]):
            names = " and ".join(filter(None, (", ".join(operation.out_names[1:-1]), operation.out_names[-1])))
            raise TypeError(f"{names} are given where torch must see the call, which needs new results")
        if not operation.operator:  # an ElementwiseKernel
            raise TypeError(
                "a kernel of one's own has no gradient and no rule under torch's transforms: pass x.detach()"
            )
        return _OPERATORS[operation.operator](call, inputs, options, values)
    except NotImplementedError:
        for name, one in zip(operation.names, inputs):
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

Call = Callable[..., Tensor]  # call_operator(), or a function that does the same


def _elementwise(
    call: Call, operation: Elementwise, inputs: tuple[Any, ...], out: Any, options: Any, values: tuple[Any, ...]
) -> Tensor:
    if operation.operator == "cast":
        dtype = inputs[0].dtype if out is None else out.dtype
        return call("cast", (inputs[0], dtype if operation.result is None else dtype_like(operation.result, dtype)))
    tensors = [one for one in inputs if isinstance(one, Tensor)]
    if len(tensors) == len(inputs) and not values:
        return call(operation.operator, inputs)
    if gate.is_watched() or not gate.is_whole or not all(map(gate.is_plain_memory, tensors)):
        return with_numbers(operation, inputs, options, values)
    return call(operation.operator, (*inputs, *map(float, values)))


def _permute(call: Call, inputs: tuple[Any, ...], options: Any, values: tuple[Any, ...]) -> Tensor:
    (x,), (axes, code) = inputs, options
    dtype = None if code is None else dtype_like(code, x.dtype)
    keywords = {"dtype": dtype, "scale": values[0] if values else 1.0}
    return call("batch_transpose", (x,), keywords) if axes is None else call("permute", (x, axes), keywords)


def _prelu(call: Call, inputs: tuple[Any, ...], channel_axis: int, values: tuple[Any, ...]) -> Tensor:
    return call("prelu", (*inputs, channel_axis))


def _prelu_backward(call: Call, inputs: tuple[Any, ...], options: tuple[int, bool, bool], values: tuple[()]) -> Any:
    (x, dy, alpha), (channel_axis, need_dx, need_dalpha) = inputs, options
    dx, dalpha = call("prelu_backward", (dy, x, alpha, channel_axis))
    return dx if need_dx else None, dalpha if need_dalpha else None


def _options(inputs: tuple[Any, ...], options: Any, values: tuple[Any, ...]) -> dict[str, Any]:
    keywords: dict[str, Any] = options._asdict()
    del keywords["return_lse"], keywords["return_dsinks"]  # other operators
    keywords["scale"] = values[0]
    if options.dtype is not None:
        keywords["dtype"] = dtype_like(options.dtype, inputs[0].dtype)
    return keywords


def _softmax(call: Call, inputs: tuple[Any, ...], options: Any, values: tuple[Any, ...]) -> Any:
    x, *of_mask = inputs
    keywords = _options(inputs, options, values)
    is_plain = len(of_mask) == 0 and values[0] == 1 and options.window is None
    is_plain = is_plain and not (options.causal or options.softcap or options.batch_invariant)
    if is_plain:
        return call("log_softmax" if options.log else "softmax", (x,), {"dtype": keywords["dtype"]})
    keywords.update(zip(OF_MASK, of_mask))
    return call("masked_softmax_with_lse" if options.return_lse else "masked_softmax", (x,), keywords)


def _softmax_along(call: Call, inputs: tuple[Any, ...], options: Any, values: tuple[Any, ...]) -> Tensor:
    """By views with the dimension last. In the result it is innermost in memory, as in a plain call's."""
    (x,), (rest, axis, name) = inputs, options
    axis = axis_of(axis, name, x.dim())
    result: Tensor = _softmax(call, (x.movedim(axis, -1),), rest, values)
    return result.movedim(-1, axis)


def _softmax_backward(call: Call, inputs: tuple[Any, ...], options: Any, values: tuple[Any, ...]) -> Any:
    dy, y, *others = inputs
    keywords = {**dict(zip(OF_GRADIENT, others)), **_options(inputs, options, values)}
    name = "masked_softmax_backward" + ("_with_dsinks" if options.return_dsinks else "")
    return call(name, (dy, y), keywords)


def _softmax_merge(call: Call, inputs: tuple[Any, ...], options: None, values: tuple[()]) -> Any:
    return call("softmax_merge", inputs)


def _cross_entropy(call: Call, inputs: tuple[Any, ...], options: Any, values: tuple[()]) -> Any:
    numbers, needs_entropy = options
    return call("cross_entropy", inputs, {**_numbers(numbers), "entropy": needs_entropy})


def _cross_entropy_backward(call: Call, inputs: tuple[Any, ...], options: Any, values: tuple[()]) -> Tensor:
    logits, targets, lse, dloss, dlse, entropy, dentropy = inputs
    others = {"dlse": dlse, "entropy": entropy, "dentropy": dentropy, **options._asdict()}
    return call("cross_entropy_backward", (logits, targets, lse, dloss), others)


def _numbers(options: Any) -> dict[str, Any]:
    """The numbers of a cross-entropy of the whole vocabulary."""
    return {name: value for name, value in options._asdict().items() if not name.startswith("vocab_")}


def _without_gradient(name: str) -> Callable[..., Any]:
    def refuse(call: Call, inputs: tuple[Any, ...], options: Any, values: tuple[()]) -> Any:
        raise TypeError(
            f"{name} has no gradient and no rule under torch's transforms: pass detached tensors; "
            "cross_entropy_backward gives the gradient"
        )

    return refuse


_OPERATORS: dict[str, Callable[[Call, tuple[Any, ...], Any, tuple[Any, ...]], Any]] = {
    "cross_entropy": _cross_entropy,
    "cross_entropy_backward": _cross_entropy_backward,
    "cross_entropy_merge": _without_gradient("cross_entropy_merge"),
    "cross_entropy_partials": _without_gradient("cross_entropy_partials"),
    "permute": _permute,
    "prelu": _prelu,
    "prelu_backward": _prelu_backward,
    "softmax": _softmax,
    "softmax_along": _softmax_along,
    "softmax_backward": _softmax_backward,
    "softmax_merge": _softmax_merge,
}
