# SPDX-License-Identifier: Apache-2.0
"""How an operation becomes a primitive of JAX: a custom call or a formula, its result's type, derivative and vmap.

A primitive has operands that are arrays, and parameters that can be hashed. Derivatives are formulas in jax.numpy, or
primitives that are linear in their first operands and have a transpose, so that both modes and higher orders follow.
"""

from __future__ import annotations

import functools
import itertools
import struct
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp

from .._native.abi import MAX_RANK
from . import jax_names as names

Formula = Callable[..., Any]
Attributes = dict[str, Any]  # of a handler: NumPy's scalars and arrays
XP = SimpleNamespace(**vars(jnp), sigmoid=jax.nn.sigmoid)  # for row_derivatives.py
_bits_of = struct.Struct("d").pack


class ExactFloat(float):
    """A parameter of a primitive: equal to an ExactFloat of the same bits alone. So 0.0 and -0.0 have two programs, and
    all calls with NaN have one."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return type(other) is ExactFloat and _bits_of(self) == _bits_of(other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(_bits_of(self))


def custom_call(
    name: str,
    abstract: Callable[..., Any],
    attributes: Callable[..., Attributes],
    *,
    multiple_results: bool = False,
) -> Any:
    """The primitive of the handler `name`. `abstract` makes the results' avals from the operands' and the parameters,
    `attributes` the handler's attributes from the parameters."""

    def checked(*avals: Any, **parameters: Any) -> Any:
        results = abstract(*avals, **parameters)
        for aval in (*avals, *(results if multiple_results else [results])):
            if len(aval.shape) > MAX_RANK:
                raise ValueError(
                    f"flowk_{name}: an array has {len(aval.shape)} dimensions under vmap, must have <= {MAX_RANK}"
                )
        return results

    primitive = _primitive(f"flowk_{name}", checked, multiple_results)
    calls = jax.ffi.ffi_lowering(f"flowk_{name}")

    def lower(context: Any, *operands: Any, **parameters: Any) -> Any:
        return calls(context, *operands, **attributes(**parameters))

    for platform in ("cpu", "cuda"):
        names.register_lowering(primitive, lower, platform=platform)
    return primitive


def computed(name: str, abstract: Callable[..., Any], formula: Formula) -> Any:
    """A primitive that XLA computes."""
    primitive = _primitive(f"flowk_{name}", abstract, False)
    if names.lower_fun is not None:
        names.register_lowering(primitive, names.lower_fun(formula, multiple_results=False))
    derive(primitive, formula)
    return primitive


def _primitive(name: str, abstract: Callable[..., Any], multiple_results: bool) -> Any:
    primitive = names.Primitive(name)
    primitive.multiple_results = multiple_results
    primitive.def_abstract_eval(abstract)
    primitive.def_impl(functools.partial(_run, primitive))
    names.register_standard_check(primitive)  # JAX 0.6; later ones see the varying axes in the aval of the result
    return primitive


def _run(primitive: Any, *operands: Any, **parameters: Any) -> Any:
    program = _compiled(primitive, tuple(parameters.items()))
    config: Any = jax.config
    finds_nans, finds_infs = config.jax_debug_nans, config.jax_debug_infs
    if not (config.jax_disable_jit or finds_nans or finds_infs):
        return program(*operands)
    # A primitive is compiled in every case, as JAX's own are. If JAX finds a NaN in a program, it runs the program's
    # function again without jit to find the first NaN; that would call the primitive again, without end.
    with jax.disable_jit(False), jax.debug_nans(False), jax.debug_infs(False):
        out = program(*operands)
        for each in jax.tree.leaves(out) if finds_nans or finds_infs else ():
            if jnp.issubdtype(each.dtype, jnp.inexact):
                for is_sought, find, kind in ((finds_nans, jnp.isnan, "nan"), (finds_infs, jnp.isinf, "inf")):
                    if is_sought and find(each).any():
                        raise FloatingPointError(f"invalid value ({kind}) encountered in {primitive.name}")
    return out


@functools.lru_cache(maxsize=4096)
def _compiled(primitive: Any, parameters: tuple[tuple[str, Any], ...]) -> Callable[..., Any]:
    def run(*operands: Any) -> Any:
        return primitive.bind(*operands, **dict(parameters))

    run.__name__ = primitive.name
    return jax.jit(run)


def bind(primitive: Any, *operands: Any, **parameters: Any) -> Any:
    """primitive.bind(): the operands are made to vary along the same axes of a shard_map, floats become ExactFloat."""
    if len(operands) > 1 and any(map(is_traced, operands)):
        operands = _varying_alike(operands)
    for name, value in parameters.items():
        if type(value) is float:
            parameters[name] = ExactFloat(value)
    return primitive.bind(*operands, **parameters)


def is_traced(x: Any) -> bool:
    """True also if JAX's tracers are not known."""
    return names.Tracer is None or isinstance(x, names.Tracer)


def _varying_alike(operands: Sequence[Any]) -> tuple[Any, ...]:
    varying = [_varying_axes(jax.typeof(operand)) for operand in operands]
    axes = frozenset().union(*varying)
    return tuple(
        x if x_axes == axes else _made_varying(x, tuple(axes - x_axes)) for x, x_axes in zip(operands, varying)
    )


def _varying_axes(aval: Any) -> frozenset[Any]:
    axes: frozenset[Any] = aval.mat.varying if hasattr(aval, "mat") else getattr(aval, "vma", frozenset())
    return axes


def _made_varying(operand: Any, axes: tuple[Any, ...]) -> Any:
    return names.pvary(operand, axes) if names.pcast is None else names.pcast(operand, axes, to="varying")


# ---- rules; each is registered for several primitives, and gets the primitive first ---------------------------------


def jvp(rule: Callable[..., Any], *primitives: Any) -> None:
    """rule(primitive, primals, tangents, **parameters) -> (result, its tangent)."""
    for primitive in primitives:
        names.primitive_jvps[primitive] = functools.partial(rule, primitive)


def batch(rule: Callable[..., Any], *primitives: Any) -> None:
    """rule(primitive, operands, dimensions, **parameters) -> (results, their dimensions), for vmap."""
    for primitive in primitives:
        names.primitive_batchers[primitive] = functools.partial(rule, primitive)


def transpose(rule: Callable[..., Sequence[Any]], *primitives: Any) -> None:
    """rule(primitive, cotangent, *operands, **parameters) -> the cotangents of the first operands, which are linear. A
    linear operand is given as its aval."""
    is_linear = names.is_undefined_primal

    def transposed(primitive: Any, cotangent: Any, *operands: Any, **parameters: Any) -> list[Any]:
        if is_zero(cotangent):
            return [names.Zero(x.aval) if is_linear(x) else None for x in operands]
        values = [x.aval if is_linear(x) else x for x in operands]
        cotangents = rule(primitive, cotangent, *values, **parameters)
        return [y if is_linear(x) else None for x, y in itertools.zip_longest(operands, cotangents)]

    for primitive in primitives:
        names.primitive_transposes[primitive] = functools.partial(transposed, primitive)


def derive(primitive: Any, formula: Formula) -> None:
    """Differentiates `primitive` as `formula`, which has its operands and parameters."""

    def of_formula(primitive: Any, primals: Sequence[Any], tangents: Sequence[Any], **parameters: Any) -> Any:
        out = bind(primitive, *primals, **parameters)
        return out, tangents_of(functools.partial(formula, **parameters), primals, tangents)

    jvp(of_formula, primitive)


# ---- derivatives ----------------------------------------------------------------------------------------------------


def zero_of(value: jax.Array) -> Any:
    """The tangent 0 of a value, without memory."""
    return names.Zero(jax.typeof(value).to_tangent_aval())


def is_zero(tangent: Any) -> bool:
    return type(tangent) is names.Zero


def instantiated(tangent: Any) -> jax.Array:
    """The tangent as an array."""
    return jnp.zeros(tangent.aval.shape, tangent.aval.dtype) if is_zero(tangent) else tangent


def tangents_of(formula: Formula, primals: Sequence[Any], tangents: Sequence[Any]) -> Any:
    """The derivative of formula(*primals) in the direction of `tangents`."""
    indices = [index for index, tangent in enumerate(tangents) if not is_zero(tangent)]

    def of_moving(*values: Any) -> Any:
        operands = list(primals)
        for index, value in zip(indices, values):
            operands[index] = value
        return formula(*operands)

    return jax.jvp(of_moving, [primals[index] for index in indices], [tangents[index] for index in indices])[1]


def sum_to(value: jax.Array, shape: tuple[int, ...]) -> jax.Array:
    """The sum over the dimensions along which `shape`, of the same rank, has one element."""
    axes = tuple(d for d, (extent, target) in enumerate(zip(value.shape, shape)) if extent != target)
    return jnp.sum(value, axis=axes, keepdims=True) if axes else value


# ---- vmap -----------------------------------------------------------------------------------------------------------


def first_dimension(dimensions: Sequence[int | None]) -> int:
    """The batch dimension of the first operand that has one."""
    return next(int(dimension) for dimension in dimensions if dimension is not None)


def batch_size(operands: Sequence[jax.Array], dimensions: Sequence[int | None]) -> int:
    return next(x.shape[d] for x, d in zip(operands, dimensions) if d is not None)


def batched_at(operand: jax.Array, dimension: int | None, target: int, size: int = 1) -> jax.Array:
    """The operand with its batch in dimension `target`; a batch of `size` equal elements if it has none."""
    if dimension is not None:
        return operand if dimension == target else jnp.moveaxis(operand, dimension, target)
    operand = jnp.expand_dims(operand, target)
    if size == 1:
        return operand
    return jnp.broadcast_to(operand, (*operand.shape[:target], size, *operand.shape[target + 1 :]))
