# SPDX-License-Identifier: Apache-2.0
"""cross_entropy and cross_entropy_backward of pyflowk.jax, and their primitives.

cross_entropy_p           logits, targets -> loss, lse, and the entropy if has_entropy
cross_entropy_tangent_p   t, logits, targets, lse and the entropy if has_entropy -> the derivatives of the results in
                          the direction t of the logits, one after another in a first dimension
cross_entropy_backward_p  d, logits, targets, lse and the entropy if has_entropy -> dlogits; d are the gradients of the
                          results, in a first dimension: the transpose of cross_entropy_tangent_p

Parameters: options, has_entropy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._arguments import boolean
from .._arrays.dtypes import float_type
from .._native.abi import DType
from .._operators.array_checks import check_per_row, result_type
from .._operators.cross_entropy_arguments import Options, check_logits, checked_options
from .._operators.row_derivatives import CrossEntropyTerms
from . import primitives
from .jax_types import array, static_number
from .primitives import (
    XP,
    Attributes,
    ExactFloat,
    batch_size,
    batched_at,
    bind,
    computed,
    custom_call,
    is_zero,
    zero_of,
)

_NUMBERS = ("scale", "softcap", "label_smoothing", "z_loss")


def cross_entropy(arrays: Sequence[Any], entropy: bool, **options: Any) -> tuple[jax.Array, ...]:
    logits, targets = map(array, arrays, ("logits", "targets"))
    checked, has_entropy = _options(options), boolean(entropy, "entropy")
    check_logits(logits.shape, logits.dtype, targets.shape, targets.dtype, checked)
    return tuple(bind(cross_entropy_p, logits, targets, options=checked, has_entropy=has_entropy))


def cross_entropy_backward(arrays: Sequence[Any], **options: Any) -> jax.Array:
    names = ("logits", "targets", "lse", "dloss", "dlse", "entropy", "dentropy")
    given = {name: array(one, name) for name, one in zip(names, arrays) if one is not None or name in names[:3]}
    logits, targets, lse = (given[name] for name in names[:3])
    checked = _options(options)
    code = check_logits(logits.shape, logits.dtype, targets.shape, targets.dtype, checked)
    for name in names[2:]:
        if name in given:
            check_per_row(name, given[name].shape, given[name].dtype, targets.shape, result_type(code))
    if not {"dloss", "dlse", "dentropy"} & set(given):
        raise TypeError("dloss, dlse and dentropy are None, one must be an array")
    has_entropy = "dentropy" in given
    if has_entropy and "entropy" not in given:
        raise TypeError("entropy is None, must be an array beside dentropy")
    zeros = jnp.zeros_like(lse)
    d = jnp.stack([given.get(name, zeros) for name in ("dloss", "dlse", "dentropy")[: 2 + has_entropy]])
    of_entropy = (given["entropy"],) if has_entropy else ()
    out: jax.Array = bind(
        cross_entropy_backward_p, d, logits, targets, lse, *of_entropy, options=checked, has_entropy=has_entropy
    )
    return out


def _options(given: dict[str, Any]) -> Options:
    numbers = {name: static_number(given[name], name) for name in _NUMBERS if name in given}
    checked = checked_options(**{**given, **numbers})
    return checked._replace(scale=ExactFloat(checked.scale))  # -0.0 is another program


# ---- formulas: what is differentiated -------------------------------------------------------------------------------


def _terms(logits: Any, targets: Any, lse: Any, options: Options) -> CrossEntropyTerms:
    columns = jnp.arange(options.vocab_start, options.vocab_start + logits.shape[-1])
    return CrossEntropyTerms(XP, columns, logits.astype(lse.dtype), targets, lse, options)


def _tangent_formula(t: Any, logits: Any, targets: Any, lse: Any, *entropy: Any, options: Options, **_: Any) -> Any:
    return jnp.stack(_terms(logits, targets, lse, options).tangents(t.astype(lse.dtype), entropy))


def _backward_formula(d: Any, logits: Any, targets: Any, lse: Any, *entropy: Any, options: Options, **_: Any) -> Any:
    dloss, dlse, *dentropy = d
    gradient = _terms(logits, targets, lse, options).gradient(dloss, dlse, list(zip(entropy, dentropy)))
    return gradient.astype(logits.dtype)


# ---- primitives -----------------------------------------------------------------------------------------------------


def _results(logits: Any, targets: Any, *, options: Options, has_entropy: bool) -> list[Any]:
    wide = jnp.float64 if float_type(logits.dtype, "logits") == DType.FLOAT64 else jnp.float32
    return [logits.update(shape=targets.shape, dtype=np.dtype(wide), weak_type=False)] * (2 + has_entropy)


def _tangents(t: Any, logits: Any, targets: Any, lse: Any, *entropy: Any, options: Options, has_entropy: bool) -> Any:
    return lse.update(shape=(2 + has_entropy, *lse.shape), weak_type=False)


def _like_logits(d: Any, logits: Any, *others: Any, options: Options, has_entropy: bool) -> Any:
    return logits.update(weak_type=False)


def _attributes(options: Options, has_entropy: bool) -> Attributes:
    return {"options": np.frombuffer(bytes(options.struct()), np.int64)}


cross_entropy_p = custom_call("cross_entropy", _results, _attributes, multiple_results=True)
cross_entropy_backward_p = custom_call("cross_entropy_backward", _like_logits, _attributes)
cross_entropy_tangent_p = computed("cross_entropy_tangent", _tangents, _tangent_formula)
primitives.derive(cross_entropy_backward_p, _backward_formula)


def _jvp(primitive: Any, primals: Sequence[Any], tangents: Sequence[Any], **parameters: Any) -> Any:
    (logits, targets), t = primals, tangents[0]
    results = bind(primitive, logits, targets, **parameters)
    if is_zero(t):
        return results, [zero_of(one) for one in results]
    return results, list(bind(cross_entropy_tangent_p, t, logits, targets, *results[1:], **parameters))


def _transposed(primitive: Any, cotangent: jax.Array, *operands: Any, **parameters: Any) -> list[jax.Array]:
    is_tangent = primitive is cross_entropy_tangent_p
    other = cross_entropy_backward_p if is_tangent else cross_entropy_tangent_p
    found = bind(other, cotangent, *operands[1:], **parameters)
    return [found.astype(operands[0].dtype)]


def _batch(primitive: Any, operands: Any, dimensions: Any, **parameters: Any) -> tuple[Any, Any]:
    size = batch_size(operands, dimensions)
    is_backward = primitive is cross_entropy_backward_p  # the results are the first dimension of its first operand
    moved = [
        batched_at(operand, d, int(is_backward and index == 0), size)
        for index, (operand, d) in enumerate(zip(operands, dimensions))
    ]
    out = bind(primitive, *moved, **parameters)
    if primitive is cross_entropy_p:
        return out, [0] * len(out)
    return out, int(primitive is cross_entropy_tangent_p)


primitives.jvp(_jvp, cross_entropy_p)
primitives.transpose(_transposed, cross_entropy_tangent_p, cross_entropy_backward_p)
primitives.batch(_batch, cross_entropy_p, cross_entropy_tangent_p, cross_entropy_backward_p)
