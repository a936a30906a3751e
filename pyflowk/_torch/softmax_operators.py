# SPDX-License-Identifier: Apache-2.0
"""softmax, log_softmax and masked_softmax as operators of torch.ops.flowk."""

from __future__ import annotations

import functools
from collections.abc import Callable
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor

from .._operators.row_derivatives import softcap_slope, softmax_gradient, softmax_tangent
from .._operators.softmax_arguments import MEMBERS, OF_GRADIENT, PER_ROW, order_in_memory
from .registration import (
    CALLS,
    PARAMETERS,
    FormulaRules,
    Rules,
    all_arguments,
    batched,
    keep,
    register_operator,
    row_type,
)


def register_all() -> None:
    register_operator("softmax", _empty_softmax, _Softmax(log=False))
    register_operator("log_softmax", _empty_softmax, _Softmax(log=True))
    register_operator("masked_softmax", _empty_softmax, _MaskedSoftmax())
    register_operator(
        *("masked_softmax", _empty_with_numbers, _WithLse(), "(Tensor, Tensor)"),
        suffix="_with_lse",
        fixed={"return_lse": True},
    )
    register_operator("masked_softmax_backward", _empty_backward, _Backward())
    register_operator(
        *("masked_softmax_backward", _empty_with_numbers, _Backward(), "(Tensor, Tensor)"),
        suffix="_with_dsinks",
        fixed={"return_dsinks": True},
    )
    register_operator("masked_softmax_backward_dbias", _empty_with_dbias, _BackwardDbias(), "(Tensor, Tensor)")


def _empty_softmax(x: Tensor, *others: Any, dtype: torch.dtype | None = None, **options: Any) -> Tensor:
    return _empty((x,), _is_masked(others, options), dtype)


def _empty_backward(dy: Tensor, y: Tensor, *others: Any, dtype: torch.dtype | None = None, **options: Any) -> Tensor:
    return _empty((dy, y), _is_masked(others, options), dtype)


def _is_masked(others: tuple[Any, ...], options: dict[str, Any]) -> bool:
    given = (*others, *(options.get(name) for name in (*MEMBERS, "window")))
    return any(one is not None for one in given) or any(map(options.get, ("causal", "softcap", "batch_invariant")))


def _empty(arrays: tuple[Tensor, ...], is_masked: bool, dtype: torch.dtype | None) -> Tensor:
    """A new result: in memory as the first array if the last dimension of all of them is strided and nothing is
    masked, as pyflowk's softmax makes it."""
    x = arrays[0]
    order = tuple(range(x.dim()))
    is_strided = x.dim() > 0 and all(one.stride(-1) != 1 for one in arrays)
    if is_strided and not is_masked and x.shape[-1] > 1 and 0 not in x.shape:
        order = order_in_memory(x.stride())
    in_memory = x.new_empty([x.shape[d] for d in order], dtype=dtype or x.dtype)
    return in_memory.permute([order.index(d) for d in range(x.dim())])


def _empty_with_numbers(
    x: Tensor, *others: Any, dtype: torch.dtype | None = None, **options: Any
) -> tuple[Tensor, Tensor]:
    """The result, and a number per row: lse or dsinks."""
    return x.new_empty(x.shape, dtype=dtype or x.dtype), x.new_empty(x.shape[:-1], dtype=row_type(x.dtype))


def _empty_with_dbias(
    dy: Tensor, y: Tensor, bias: Tensor, *others: Any, dtype: torch.dtype | None = None, **options: Any
) -> tuple[Tensor, Tensor]:
    return dy.new_empty(dy.shape, dtype=dtype or dy.dtype), bias.new_empty(bias.shape)


class _Softmax(Rules):
    def __init__(self, log: bool) -> None:
        self.log = log

    def save(self, ctx: Any, arguments: tuple[Any, ...], result: Tensor) -> None:
        keep(ctx, result)
        ctx.x_dtype = arguments[0].dtype

    @functools.cached_property
    def _options(self) -> tuple[Any, ...]:
        """The arguments of masked_softmax_backward between y and the dtype."""
        return all_arguments("masked_softmax_backward", (), {"log": self.log})[2:-1]

    def backward(self, ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        y = ctx.saved_tensors[0]
        return CALLS.masked_softmax_backward(gradients[0], y, *self._options, ctx.x_dtype), None

    def jvp(self, ctx: Any, *tangents: Tensor | None) -> Tensor | None:
        y, t = ctx.saved_tensors[0], tangents[0]
        return None if t is None else softmax_tangent(torch, y, t, log=self.log).to(y.dtype)

    def vmap(self, operator: Any, size: int, in_dims: tuple[Any, ...], arguments: tuple[Any, ...]) -> tuple[Any, Any]:
        return operator(arguments[0].movedim(in_dims[0], 0), *arguments[1:]), 0


def _option_names() -> tuple[str, ...]:
    """The arguments of masked_softmax_backward between the arrays and the dtype. masked_softmax has them too."""
    return tuple(PARAMETERS["masked_softmax_backward"])[2 + len(OF_GRADIENT) : -1]


class _MaskedSoftmax(Rules):
    @functools.cached_property
    def _options_of(self) -> Callable[[tuple[Any, ...]], tuple[Any, ...]]:
        return itemgetter(*map(self.names.index, _option_names()))

    def save(self, ctx: Any, arguments: tuple[Any, ...], result: Tensor, lse: Tensor | None = None) -> None:
        given = dict(zip(self.names, arguments))
        options = dict(zip(_option_names(), self._options_of(arguments)))
        needs_lse = given["sinks"] is not None and lse is None
        needs_x = options["softcap"] or given["row_scale"] is not None or needs_lse
        x = given["x"] if needs_x else None
        of_lse = [given[name] if needs_lse else None for name in ("mask", "bias")]
        keep(ctx, result, given["lengths"], x, given["sinks"], given["row_scale"], lse, *of_lse)
        ctx.x_dtype, ctx.options = given["x"].dtype, options
        bias = given["bias"]
        ctx.bias_like = None if bias is None else (bias.shape, bias.dtype)

    def _lse(self, ctx: Any) -> Tensor:
        """The log-sum-exp, which a call that did not return it computes again."""
        _, lengths, x, sinks, row_scale, lse, mask, bias = ctx.saved_tensors
        if lse is not None:
            return lse  # type: ignore[no-any-return]
        arrays = {"x": x, "mask": mask, "lengths": lengths, "bias": bias, "sinks": sinks, "row_scale": row_scale}
        given = PARAMETERS["masked_softmax_with_lse"] | ctx.options | arrays
        return CALLS.masked_softmax_with_lse(*given.values())[1]  # type: ignore[no-any-return]

    def backward(self, ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        (y, lengths, x, sinks, row_scale), options = ctx.saved_tensors[:5], ctx.options
        needs = dict(zip(self.names, ctx.needs_input_grad))
        found: dict[str, Tensor | None] = dict.fromkeys(self.names)
        dy, dlse = (*gradients, None)[:2]
        if dy is None:
            if dlse is None:
                return tuple(found.values())
            dy = torch.zeros_like(y)
        scores = x if options["softcap"] else None
        if needs["bias"] and not needs["row_scale"] and _is_shared(ctx.bias_like[0], y.shape):
            dx, found["bias"] = self._dbias(ctx, dy, dlse)
            if needs["x"] and not (needs["sinks"] or options["softcap"] or row_scale is not None):
                found["x"] = dx
        if needs["sinks"]:
            found["x"], found["sinks"] = CALLS.masked_softmax_backward_with_dsinks(
                *(dy, y, dlse, lengths, scores, sinks, self._lse(ctx), row_scale, *options.values(), ctx.x_dtype)
            )
        elif needs["x"] and found["x"] is None:
            found["x"] = CALLS.masked_softmax_backward(
                *(dy, y, dlse, lengths, scores, None, None, row_scale, *options.values(), ctx.x_dtype)
            )
        needs_bias = needs["bias"] and found["bias"] is None
        if needs_bias or needs["row_scale"]:  # dz, in float32 before it is summed
            unscaled = options | {"scale": 1.0, "softcap": 0.0}
            none = (None,) * (len(OF_GRADIENT) - 2)
            dz = CALLS.masked_softmax_backward(dy, y, dlse, lengths, *none, *unscaled.values(), row_type(ctx.x_dtype))
            found["bias"] = dz if needs_bias else found["bias"]
            if needs["row_scale"]:
                found["row_scale"] = (dz * _slope(x, row_scale, options) * options["scale"] * x).sum(-1)
        return tuple(found.values())

    def _dbias(self, ctx: Any, dy: Tensor, dlse: Tensor | None) -> tuple[Tensor, Tensor]:
        """dx, unless there is a softcap or a row_scale, and the gradient of a bias that rows share."""
        y, lengths = ctx.saved_tensors[:2]
        shape, dtype = ctx.bias_like
        like_bias = y.new_empty(1, dtype=dtype).expand(shape)  # only its shape and dtype matter
        options = [ctx.options[name] for name in tuple(PARAMETERS["masked_softmax_backward_dbias"])[5:-1]]
        return CALLS.masked_softmax_backward_dbias(  # type: ignore[no-any-return]
            *(dy, y, like_bias, dlse, lengths, *options, ctx.x_dtype)
        )

    def jvp(self, ctx: Any, *tangents: Tensor | None) -> Any:
        y, log = ctx.saved_tensors[0], ctx.options["log"]
        t, of_sinks = self._moved(ctx, tangents)
        if t is None and of_sinks is None:
            return None
        moved: Any = 0 if t is None else softmax_tangent(torch, y, t.expand(y.shape), log=log)
        if of_sinks is not None:
            moved = moved - (torch.where(y == -torch.inf, 0, of_sinks) if log else y * of_sinks)
        return moved.to(y.dtype)

    def _moved(self, ctx: Any, tangents: tuple[Tensor | None, ...]) -> tuple[Tensor | None, Tensor | None]:
        """The tangent of z, and the part of lse's tangent that comes from the sinks, with a last dimension of 1."""
        (x, sinks, row_scale), options = ctx.saved_tensors[2:5], ctx.options
        given = dict(zip(self.names, tangents))
        slope = _slope(x, row_scale, options)
        t: Any = None
        if given["x"] is not None:
            t = options["scale"] * _column(row_scale, 1.0) * slope * given["x"]
        if given["row_scale"] is not None:
            t = (0 if t is None else t) + options["scale"] * slope * x * given["row_scale"].unsqueeze(-1)
        if given["bias"] is not None:
            t = (0 if t is None else t) + given["bias"]
        of_sinks = None
        if given["sinks"] is not None:
            of_sinks = (torch.exp(sinks - self._lse(ctx)) * given["sinks"]).unsqueeze(-1)
        return t, of_sinks

    def vmap(self, operator: Any, size: int, in_dims: tuple[Any, ...], arguments: tuple[Any, ...]) -> tuple[Any, Any]:
        return _vmap(operator, size, dict(zip(self.names, in_dims)), dict(zip(self.names, arguments)), ("x",))


class _WithLse(_MaskedSoftmax):
    def save(self, ctx: Any, arguments: tuple[Any, ...], result: Any, lse: Tensor | None = None) -> None:
        super().save(ctx, arguments, *result)
        ctx.set_materialize_grads(False)

    def jvp(self, ctx: Any, *tangents: Tensor | None) -> Any:
        y, log = ctx.saved_tensors[0], ctx.options["log"]
        t, of_sinks = self._moved(ctx, tangents)
        if t is None and of_sinks is None:
            return None, None
        wide = row_type(ctx.x_dtype)
        p = (torch.exp(y) if log else y).to(wide)
        moved: Any = 0 if t is None else torch.where(p == 0, 0, p * t.to(wide)).sum(-1)
        return super().jvp(ctx, *tangents), moved if of_sinks is None else moved + of_sinks.squeeze(-1)


def _is_shared(shape: torch.Size, of_y: torch.Size) -> bool:
    """Whether rows of y share rows of a bias, which are rows of y's length."""
    return shape[-1:] == of_y[-1:] and shape != of_y


def _column(x: Tensor | None, otherwise: float) -> Tensor | float:
    return otherwise if x is None else x.unsqueeze(-1)


def _slope(x: Tensor | None, row_scale: Tensor | None, options: dict[str, Any]) -> Any:
    """The derivative of a softcap."""
    softcap = options["softcap"]
    if not softcap:
        return 1.0
    assert x is not None
    return softcap_slope(torch, options["scale"] * _column(row_scale, 1.0) * x.to(row_type(x.dtype)), softcap)


class _Backward(FormulaRules):
    num_tensors = 2 + len(OF_GRADIENT)
    constants = ("lengths",)

    def save(self, ctx: Any, arguments: tuple[Any, ...], result: Any) -> None:
        given = dict(zip(self.names, arguments))
        results = result if isinstance(result, tuple) else (result,)
        if len(results) == 1:  # dx does not depend on them
            given |= {"sinks": None, "lse": None}
        keep(ctx, *list(given.values())[: self.num_tensors])
        ctx.options = {name: given[name] for name in _option_names()}
        ctx.dtypes = [one.dtype for one in results]

    def formula(self, ctx: Any, *tensors: Any) -> Any:
        """dx, and dsinks if there are sinks and lse; y is 0, or -infinity, in masked-out columns."""
        dy, y, dlse, _, scores, sinks, lse, row_scale = tensors
        options = ctx.options
        dz, total = softmax_gradient(torch, dy, y, dlse, log=options["log"])
        dx = dz * (options["scale"] * _column(row_scale, 1.0)) * _slope(scores, row_scale, options)
        dx = dx.to(ctx.dtypes[0])
        if sinks is None or lse is None:
            return dx
        return dx, (-torch.exp(sinks - lse) * total.squeeze(-1)).to(ctx.dtypes[1])

    def vmap(self, operator: Any, size: int, in_dims: tuple[Any, ...], arguments: tuple[Any, ...]) -> tuple[Any, Any]:
        whole = ("dy", "y", "scores", "dlse", "lse")
        return _vmap(operator, size, dict(zip(self.names, in_dims)), dict(zip(self.names, arguments)), whole)


class _BackwardDbias(FormulaRules):
    num_tensors = 5
    constants = ("bias", "lengths")

    def save(self, ctx: Any, arguments: tuple[Any, ...], result: Any) -> None:
        dy, y, bias, dlse, _ = arguments[: self.num_tensors]
        keep(ctx, dy, y, None, dlse, None)
        given = dict(zip(self.names, arguments))
        ctx.scale, ctx.log, ctx.bias_shape = given["scale"], given["log"], bias.shape
        ctx.dtypes = [one.dtype for one in result]

    def formula(self, ctx: Any, *tensors: Any) -> Any:
        dy, y, _, dlse, _ = tensors
        wide = row_type(y.dtype)
        dz, _ = softmax_gradient(torch, dy.to(wide), y.to(wide), dlse, log=ctx.log)
        return (ctx.scale * dz).to(ctx.dtypes[0]), dz.sum_to_size(ctx.bias_shape).to(ctx.dtypes[1])

    def vmap(self, operator: Any, size: int, in_dims: tuple[Any, ...], arguments: tuple[Any, ...]) -> tuple[Any, Any]:
        """Each call has a dbias of its own."""
        given, dims = dict(zip(self.names, arguments)), dict(zip(self.names, in_dims))
        given["bias"], dims["bias"] = batched(given["bias"], dims["bias"], size), 0
        shape = given["bias"].shape
        (dx, dbias), out_dims = _vmap(operator, size, dims, given, ("dy", "y", "dlse"))
        return (dx, dbias.reshape(shape)), out_dims


def _vmap(
    operator: Any, size: int, dims: dict[str, int | None], given: dict[str, Any], whole: tuple[str, ...]
) -> tuple[Any, Any]:
    """All calls as one. The arrays called `whole` do not broadcast; if each call has one row, this is a matrix in the
    one call, because `causal` would see the rows as one matrix."""
    is_row = given[whole[0]].dim() - (dims[whole[0]] is not None) == 1
    for name in whole:
        if given[name] is not None:
            given[name] = batched(given[name], dims[name], size)
            given[name] = given[name].unsqueeze(1) if is_row else given[name]
    if given["lengths"] is not None:
        lengths = batched(given["lengths"], dims["lengths"], 1 if dims["lengths"] is None else size)
        given["lengths"] = lengths.reshape(-1, 1) if is_row else lengths
    rank = given[whole[0]].dim()
    for name in ("mask", "bias", *PER_ROW):
        if given.get(name) is not None and dims[name] is not None:
            given[name] = _under(batched(given[name], dims[name], size), rank - (name in PER_ROW))
    results = operator(*given.values())
    if isinstance(results, Tensor):
        return results.squeeze(1) if is_row else results, 0
    return tuple(one.squeeze(1) if is_row else one for one in results), (0, 0)


def _under(x: Tensor, rank: int) -> Tensor:
    """x, batched, with dimensions of 1 after the first up to `rank`."""
    return x.reshape(x.shape[0], *[1] * (rank - x.dim()), *x.shape[1:])
