# SPDX-License-Identifier: Apache-2.0
"""softmax, log_softmax, masked_softmax and masked_softmax_backward of pyflowk.jax, and the primitives of softmax.

softmax_p           x and the arrays `of_mask` -> y, and lse if the options have return_lse
softmax_tangent_p   t, y, and lengths, scores and row_scale if there are any -> the derivative of y in the direction t
                    of x
backward_p          dy, y, and dlse, lengths, scores and row_scale if there are any -> dx; without dlse the transpose of
                    softmax_tangent_p in its first operand
bias_tangent_p      t, t_bias, y, and lengths if there are any -> the derivative of y in the direction t of x and t_bias
                    of a bias that rows share
backward_dbias_p    dy, y, and dlse and lengths if there are any -> dx and dbias, whose shape and dtype are parameters;
                    without dlse the transpose of bias_tangent_p in its first two operands

The operands have at least the dimensions (q, k). The mask and the bias have x's rank and k columns, sinks and row_scale
x's rank less 1; an extent of 1 is repeated. Parameters: `of_mask`, the names of the operands after the first ones; the
options, scale and dtype.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._arguments import shown
from .._arrays.dtypes import FLOAT_TYPES, float_type
from .._native.abi import DType
from .._operators.row_derivatives import softcap_slope, softmax_gradient, softmax_tangent
from .._operators.softmax_arguments import (
    MEMBERS,
    OF_MASK,
    PER_ROW,
    Options,
    check_arrays,
    check_gradient,
    check_result,
    checked_options,
    host_lengths,
)
from .._typing import DTypeLike
from . import primitives
from .jax_types import array, requested_type, static_number
from .primitives import (
    XP,
    Attributes,
    batch_size,
    batched_at,
    bind,
    computed,
    custom_call,
    instantiated,
    is_zero,
    sum_to,
    zero_of,
)


def masked_softmax(arrays: Sequence[Any], **options: Any) -> jax.Array | tuple[jax.Array, jax.Array]:
    y, *lse = results_of(softmax_p, ("x", *OF_MASK), arrays, **options)
    return (y, lse[0]) if lse else y


def masked_softmax_backward(arrays: Sequence[Any], **options: Any) -> jax.Array:
    return results_of(backward_p, ("dy", "y", "dlse", "lengths", "scores", "row_scale"), arrays, **options)[0]


def results_of(
    primitive: Any,
    names: Sequence[str],
    arrays: Sequence[Any],
    *,
    dtype: DTypeLike | None,
    scale: float = 1.0,
    **options: Any,
) -> list[jax.Array]:
    """The results of the primitive for arrays called `names`: those of the mask may be None."""
    checked = checked_options(**options)
    given = {name: x for name, x in zip(names, arrays) if x is not None or name not in MEMBERS}
    if isinstance(given.get("lengths"), (int, list, tuple)):
        given["lengths"] = host_lengths(given["lengths"]).astype(np.int32)
    operands = {name: array(x, name) for name, x in given.items()}
    if primitive is backward_p:
        check_gradient(checked, operands)
    code = check_arrays({name: (x.shape, x.dtype) for name, x in operands.items()})
    x = operands[names[0]]
    factor = _checked_scale(scale, code)
    out_dtype = x.dtype
    if dtype is not None:
        out_dtype = requested_type(dtype, FLOAT_TYPES)
        check_result(float_type(out_dtype, "dtype"), code, names[0], x.dtype)
    parameters: dict[str, Any] = {"options": checked, "scale": factor, "dtype": out_dtype}
    shapes = x.shape, x.shape[:-1]
    if primitive is backward_dbias_p:
        bias = operands.pop("bias")
        if bias.shape[-1:] != x.shape[-1:]:
            raise ValueError(f"bias has shape {bias.shape}, must have {x.shape[-1]} as its last extent")
        rank = max(x.ndim, 2)
        parameters |= {"bias_shape": (1,) * (rank - bias.ndim) + bias.shape, "bias_dtype": np.dtype(bias.dtype)}
        shapes = x.shape, bias.shape
    ready = [_of_rank(operand, name, x.shape) for name, operand in operands.items()]
    of_mask = tuple(name for name in operands if name in MEMBERS)
    outs = bind(primitive, *ready, of_mask=of_mask, **parameters)
    results = zip((outs,) if primitive is backward_p else outs, shapes)
    return [out if out.shape == shape else out.reshape(shape) for out, shape in results]


def _checked_scale(scale: Any, code: DType) -> float:
    factor = static_number(scale, "scale")
    is_double = code == DType.FLOAT64
    if not (abs(factor) <= (float("inf") if is_double else 2.0**126) and abs(factor) != float("inf")):
        raise ValueError(f"scale = {shown(scale)}, must be finite{'' if is_double else ', |scale| <= 2**126'}")
    return factor


def _of_rank(operand: jax.Array, name: str, shape: tuple[int, ...]) -> jax.Array:
    """An operand with the rank and the last extent that the primitive needs; x has `shape`."""
    rank = max(len(shape), 2)
    ones = (1,) * (rank - operand.ndim)
    if name in PER_ROW:
        return operand.reshape((1,) * (rank - 1 - operand.ndim) + operand.shape)
    if name == "dlse":
        return operand.reshape(ones[1:] + operand.shape) if len(shape) > 1 else operand.reshape(1)
    if name == "lengths":  # which have x's first dimensions, and none for its last
        return operand.reshape(operand.shape + ones[1:])
    operand = operand.reshape(ones + operand.shape) if ones else operand
    # The last extent is x's, because rows are read in memory as they are.
    return operand if operand.shape[-1] == shape[-1] else jnp.broadcast_to(operand, (*operand.shape[:-1], shape[-1]))


# ---- primitives -----------------------------------------------------------------------------------------------------


def _abstract(first: Any, *others: Any, dtype: np.dtype[Any], **parameters: Any) -> Any:
    return first.update(dtype=dtype, weak_type=False)


def _results(x: Any, *others: Any, dtype: np.dtype[Any], options: Options, **parameters: Any) -> list[Any]:
    y = _abstract(x, dtype=dtype)
    wide = np.dtype(jnp.float64 if x.dtype == jnp.float64 else jnp.float32)
    return [y, x.update(shape=x.shape[:-1], dtype=wide, weak_type=False)] if options.return_lse else [y]


def _gradients(
    dy: Any,
    *others: Any,
    dtype: np.dtype[Any],
    bias_shape: tuple[int, ...],
    bias_dtype: np.dtype[Any],
    **parameters: Any,
) -> list[Any]:
    return [_abstract(dy, dtype=dtype), dy.update(shape=bias_shape, dtype=bias_dtype, weak_type=False)]


def _attributes(of_mask: tuple[str, ...], options: Options, scale: float, **parameters: Any) -> Attributes:
    """The mask has 1 as the address of each array that is an operand or the second result."""
    mask = options.mask()
    mask.lse = int(options.return_lse)
    for name in of_mask:
        setattr(mask, MEMBERS[name], 1)
    words = np.frombuffer(bytes(mask), np.int64)
    return {"mask": words, "scale": np.float64(scale), "log": np.int64(options.log)}


def _values(dtype: np.dtype[Any], *arrays: Any) -> list[Any]:
    """The operands, converted to the type that the library computes in."""
    is_double = dtype == jnp.float64 or any(x.dtype == jnp.float64 for x in arrays)
    return [x.astype(jnp.float64 if is_double else jnp.float32) for x in arrays]


def _slope(options: Options, scale: float, given: dict[str, Any]) -> Any:
    """The derivative of z with respect to x, or to scale * x with a scale of 1."""
    factor = float(scale) * (given["row_scale"][..., None] if "row_scale" in given else 1)
    if not options.softcap:
        return factor
    (x,) = _values(given["scores"].dtype, given["scores"])
    return factor * softcap_slope(XP, factor * x, float(options.softcap))


def _tangent_formula(
    t: Any,
    y: Any,
    *others: Any,
    of_mask: tuple[str, ...],
    options: Options,
    scale: float,
    dtype: np.dtype[Any],
    **parameters: Any,
) -> Any:
    t_, y_ = _values(dtype, t, y)
    t_ = t_ * _slope(options, scale, dict(zip(of_mask, others)))
    return softmax_tangent(XP, y_, t_, log=options.log).astype(dtype)


def _backward_formula(
    dy: Any,
    y: Any,
    *others: Any,
    of_mask: tuple[str, ...],
    options: Options,
    scale: float,
    dtype: np.dtype[Any],
    **parameters: Any,
) -> Any:
    dy_, y_ = _values(dtype, dy, y)
    given = dict(zip(of_mask, others))
    dz, _ = softmax_gradient(XP, dy_, y_, given.get("dlse"), log=options.log)
    return (_slope(options, scale, given) * dz).astype(dtype)


def _bias_tangent_formula(t: Any, t_bias: Any, y: Any, *others: Any, scale: float, **parameters: Any) -> Any:
    t_, t_bias_ = _values(parameters["dtype"], t, t_bias)
    return _tangent_formula(float(scale) * t_ + t_bias_, y, *others, scale=1.0, **parameters)


def _backward_dbias_formula(
    dy: Any,
    y: Any,
    *others: Any,
    scale: float,
    dtype: np.dtype[Any],
    bias_shape: tuple[int, ...],
    bias_dtype: np.dtype[Any],
    **parameters: Any,
) -> list[Any]:
    wide = np.dtype(jnp.float64 if y.dtype == jnp.float64 else jnp.float32)
    dz = _backward_formula(dy, y, *others, scale=1.0, dtype=wide, **parameters)
    return [(float(scale) * dz).astype(dtype), sum_to(dz, bias_shape).astype(bias_dtype)]


softmax_p = custom_call("masked_softmax", _results, _attributes, multiple_results=True)
backward_p = custom_call("masked_softmax_backward", _abstract, _attributes)
softmax_tangent_p = computed("softmax_tangent", _abstract, _tangent_formula)
bias_tangent_p = computed("softmax_bias_tangent", _abstract, _bias_tangent_formula)
backward_dbias_p = custom_call("masked_softmax_backward_dbias", _gradients, _attributes, multiple_results=True)
primitives.derive(backward_p, _backward_formula)
primitives.derive(backward_dbias_p, _backward_dbias_formula)


def _jvp(
    primitive: Any,
    primals: Sequence[Any],
    tangents: Sequence[Any],
    *,
    of_mask: tuple[str, ...],
    scale: float,
    **parameters: Any,
) -> Any:
    names, options = ("x", *of_mask), parameters["options"]
    given = dict(zip(names, primals))
    moving = {name: t for name, t in zip(names, tangents) if name not in ("mask", "lengths") and not is_zero(t)}
    options_with_lse = options._replace(return_lse=options.return_lse or "sinks" in moving)
    results = bind(primitive, *primals, of_mask=of_mask, scale=scale, **{**parameters, "options": options_with_lse})
    x, y, lse = given["x"], results[0], results[-1]
    results = results[: options.num_results]
    if not moving:
        return results, [zero_of(one) for one in results]
    wide = {name: _values(x.dtype, one)[0] for name, one in moving.items()}
    of_z = {name: one for name, one in given.items() if name in ("lengths", "row_scale")}
    if options.softcap:
        of_z["scores"] = x
    is_x_alone = moving.keys() <= {"x", "sinks"}
    is_shared = "bias" in moving and given["bias"].shape != x.shape  # the transpose sums while it makes dx
    is_shared = is_shared and not (options.return_lse or options.softcap or "row_scale" in given)
    needs_t_z = options.return_lse or not (is_x_alone or is_shared)
    t_z: Any = _tangent_of_z(wide, x, options, scale, of_z) if needs_t_z else None
    parameters["options"] = options._replace(return_lse=False)
    # The tangent primitives are linear in the tangent of x and apply the slope themselves. If other arrays move too,
    # softmax_tangent_p gets the tangent of z, with a slope of 1.
    of_y: Any = 0
    if is_shared:
        t_x = instantiated(tangents[0])
        operands = (t_x, moving["bias"], y, *of_z.values())
        of_y = bind(bias_tangent_p, *operands, of_mask=tuple(of_z), scale=scale, **parameters)
    elif not is_x_alone:
        t = jnp.broadcast_to(t_z, x.shape)
        of_z = {name: one for name, one in of_z.items() if name == "lengths"}
        parameters["options"] = parameters["options"]._replace(softcap=0.0)
        of_y = bind(softmax_tangent_p, t, y, *of_z.values(), of_mask=tuple(of_z), scale=1.0, **parameters)
    elif "x" in moving:
        of_y = bind(softmax_tangent_p, moving["x"], y, *of_z.values(), of_mask=tuple(of_z), scale=scale, **parameters)
    (y_,) = _values(x.dtype, y)
    of_sinks = None
    if "sinks" in moving:
        of_sinks = (jnp.exp(given["sinks"] - lse) * wide["sinks"])[..., None]
        of_y = (of_y - (jnp.where(jnp.isneginf(y_), 0, of_sinks) if options.log else y_ * of_sinks)).astype(y.dtype)
    if not options.return_lse:
        return results, [of_y]
    p = jnp.exp(y_) if options.log else y_
    of_lse = jnp.sum(jnp.where(p == 0, 0, p * t_z), axis=-1)
    return results, [of_y, of_lse if of_sinks is None else of_lse + of_sinks[..., 0]]


def _tangent_of_z(moving: dict[str, Any], x: Any, options: Options, scale: float, of_z: dict[str, Any]) -> Any:
    """The tangent of z = softcap(scale * row_scale * x) + bias."""
    t: Any = 0
    if "x" in moving:
        t = _slope(options, scale, of_z) * moving["x"]
    if "row_scale" in moving:
        # The derivative with respect to row_scale * x, without the factor row_scale.
        (x_,) = _values(x.dtype, x)
        slope = _slope(options, scale, {"scores": x_ * of_z["row_scale"][..., None]})
        t = t + slope * x_ * moving["row_scale"][..., None]
    return t + moving["bias"] if "bias" in moving else t


def _transposed(primitive: Any, cotangent: jax.Array, t: Any, *others: Any, **parameters: Any) -> list[jax.Array]:
    parameters["dtype"] = np.dtype(t.dtype)
    return [bind(backward_p if primitive is softmax_tangent_p else softmax_tangent_p, cotangent, *others, **parameters)]


def _transposed_of_bias(
    primitive: Any, cotangent: jax.Array, t: Any, t_bias: Any, *others: Any, **parameters: Any
) -> list[jax.Array]:
    of_bias = {"bias_shape": t_bias.shape, "bias_dtype": np.dtype(t_bias.dtype)}
    return bind(  # type: ignore[no-any-return]
        backward_dbias_p, cotangent, *others, **{**parameters, "dtype": np.dtype(t.dtype), **of_bias}
    )


def _batch(primitive: Any, operands: Any, dimensions: Any, **parameters: Any) -> tuple[Any, Any]:
    """The first operands have x's shape, the others broadcast."""
    size, num_first = batch_size(operands, dimensions), 1 if primitive is softmax_p else 2
    num_first += "dlse" in parameters["of_mask"]
    sizes = [size] * num_first + [1] * (len(operands) - num_first)
    if primitive is bias_tangent_p:  # the bias broadcasts, and then comes y
        sizes[1:3] = 1, size
    moved = [batched_at(x, d, 0, num_repeats) for x, d, num_repeats in zip(operands, dimensions, sizes)]
    if primitive is backward_dbias_p:
        parameters["bias_shape"] = (size, *parameters["bias_shape"])
    out = bind(primitive, *moved, **parameters)
    return out, [0] * len(out) if primitive in (softmax_p, backward_dbias_p) else 0


primitives.jvp(_jvp, softmax_p)
primitives.transpose(_transposed, softmax_tangent_p, backward_p)
primitives.transpose(_transposed_of_bias, bias_tangent_p)
primitives.batch(_batch, softmax_p, softmax_tangent_p, backward_p, bias_tangent_p, backward_dbias_p)
