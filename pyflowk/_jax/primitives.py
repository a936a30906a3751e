# SPDX-License-Identifier: Apache-2.0
"""How an operation becomes a primitive of JAX: a custom call or a formula, its result's type, derivative and vmap.

A primitive has operands that are arrays, and parameters that can be hashed. Derivatives are formulas in jax.numpy, or
primitives that are linear in their first operands and have a transpose, so that both modes and higher orders follow.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

Formula = Callable[..., Any]


def custom_call(
    name: str,
    abstract: Callable[..., Any],
    attributes: Callable[..., dict[str, Any]],
    *,
    multiple_results: bool = False,
) -> Primitive:
    """The primitive of the handler `name`. `abstract` makes the results' avals from the operands' and the parameters,
    `attributes` the handler's attributes from the parameters."""
    primitive = _primitive(f"flowk_{name}", abstract, multiple_results)
    calls = jax.ffi.ffi_lowering(f"flowk_{name}")

    def lower(context: Any, *operands: Any, **parameters: Any) -> Any:
        return calls(context, *operands, **attributes(**parameters))

    for platform in ("cpu", "cuda"):
        mlir.register_lowering(primitive, lower, platform=platform)
    return primitive


def computed(name: str, abstract: Callable[..., Any], formula: Formula) -> Primitive:
    """A primitive that XLA computes."""
    primitive = _primitive(f"flowk_{name}", abstract, False)
    mlir.register_lowering(primitive, mlir.lower_fun(formula, multiple_results=False))
    derive(primitive, formula)
    return primitive


def _primitive(name: str, abstract: Callable[..., Any], multiple_results: bool) -> Primitive:
    primitive = Primitive(name)
    primitive.multiple_results = multiple_results
    primitive.def_abstract_eval(abstract)
    primitive.def_impl(functools.partial(_run, primitive))
    _let_shard_map_check(primitive)
    return primitive


def _run(primitive: Primitive, *operands: Any, **parameters: Any) -> Any:
    program = _compiled(primitive, tuple(parameters.items()))
    if jax.config.jax_disable_jit:  # a primitive is compiled all the same, as JAX's own are
        with jax.disable_jit(False):
            return program(*operands)
    return program(*operands)


@functools.lru_cache(maxsize=4096)
def _compiled(primitive: Primitive, parameters: tuple[tuple[str, Any], ...]) -> Callable[..., Any]:
    def run(*operands: Any) -> Any:
        return primitive.bind(*operands, **dict(parameters))

    run.__name__ = primitive.name
    return jax.jit(run)


def _let_shard_map_check(primitive: Primitive) -> None:
    """JAX 0.6 asks for a rule; later ones see the varying axes in the aval of the result."""
    try:
        from jax.experimental.shard_map import register_standard_check
    except ImportError:
        return
    register_standard_check(primitive)


def bind(primitive: Primitive, *operands: Any, **parameters: Any) -> Any:
    """primitive.bind() of operands that vary along the same axes of a shard_map."""
    if len(operands) > 1 and any(isinstance(operand, jax.core.Tracer) for operand in operands):
        operands = _varying_alike(operands)
    return primitive.bind(*operands, **parameters)


def _varying_alike(operands: Sequence[Any]) -> tuple[Any, ...]:
    varying = [_varying_axes(jax.typeof(operand)) for operand in operands]
    axes = frozenset().union(*varying)
    return tuple(
        operand if own == axes else _made_varying(operand, tuple(axes - own)) for operand, own in zip(operands, varying)
    )


def _varying_axes(aval: Any) -> frozenset[Any]:
    found: frozenset[Any] = aval.mat.varying if hasattr(aval, "mat") else getattr(aval, "vma", frozenset())
    return found


def _made_varying(operand: Any, axes: tuple[Any, ...]) -> Any:
    pcast = getattr(jax.lax, "pcast", None)
    return jax.lax.pvary(operand, axes) if pcast is None else pcast(operand, axes, to="varying")


# ---- derivatives ----------------------------------------------------------------------------------------------------


def zero_of(value: Any) -> Any:
    return ad.Zero(jax.typeof(value).to_tangent_aval())


def is_zero(tangent: Any) -> bool:
    return type(tangent) is ad.Zero


def tangents_of(formula: Formula, primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
    """The derivative of formula(*primals) in the direction of `tangents`."""
    moved = [index for index, tangent in enumerate(tangents) if not is_zero(tangent)]

    def moving(*values: Any) -> Any:
        operands = list(primals)
        for index, value in zip(moved, values):
            operands[index] = value
        return formula(*operands)

    return jax.jvp(moving, [primals[index] for index in moved], [tangents[index] for index in moved])[1]


def derive(primitive: Primitive, formula: Formula) -> None:
    """Differentiates `primitive` as `formula`, which has its operands and parameters."""

    def jvp(primals: Sequence[Any], tangents: Sequence[Any], **parameters: Any) -> Any:
        out = bind(primitive, *primals, **parameters)
        return out, tangents_of(functools.partial(formula, **parameters), primals, tangents)

    ad.primitive_jvps[primitive] = jvp


def transpose(primitive: Primitive, rule: Callable[..., Sequence[Any]]) -> None:
    """`rule` makes the cotangents of the first operands, which are linear, from that of the result and all operands; an
    operand that is linear is given as its aval."""

    def transposed(cotangent: Any, *operands: Any, **parameters: Any) -> list[Any]:
        if is_zero(cotangent):
            return [ad.Zero(one.aval) if ad.is_undefined_primal(one) else None for one in operands]
        values = [one.aval if ad.is_undefined_primal(one) else one for one in operands]
        found = [*rule(cotangent, *values, **parameters)]
        found += [None] * (len(operands) - len(found))
        return [value if ad.is_undefined_primal(one) else None for value, one in zip(found, operands)]

    ad.primitive_transposes[primitive] = transposed


def sum_to(value: Any, shape: tuple[int, ...]) -> Any:
    """The sum over the dimensions along which `shape`, of the same rank, has one element."""
    axes = tuple(d for d, (own, wanted) in enumerate(zip(value.shape, shape)) if own != wanted)
    return jnp.sum(value, axis=axes, keepdims=True) if axes else value


# ---- vmap -----------------------------------------------------------------------------------------------------------


def batch(primitive: Primitive, rule: Callable[..., Any]) -> None:
    """rule(operands, dimensions, **parameters) -> (results, their dimensions)."""
    batching.primitive_batchers[primitive] = rule


def first_dimension(dimensions: Sequence[Any]) -> int:
    """That of the first operand that is batched."""
    return next(dimension for dimension in dimensions if dimension is not None)


def batch_size(operands: Sequence[Any], dimensions: Sequence[Any]) -> int:
    return next(one.shape[d] for one, d in zip(operands, dimensions) if d is not None)


def batched_at(operand: Any, dimension: Any, wanted: int, size: int = 1) -> Any:
    """The operand with its batch in dimension `wanted`: of `size` elements where it has none."""
    if dimension is not None:
        return operand if dimension == wanted else jnp.moveaxis(operand, dimension, wanted)
    operand = jnp.expand_dims(operand, wanted)
    if size == 1:
        return operand
    return jnp.broadcast_to(operand, (*operand.shape[:wanted], size, *operand.shape[wanted + 1 :]))
