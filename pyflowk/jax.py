# SPDX-License-Identifier: Apache-2.0
"""pyflowk's functions for JAX: under jit, grad, jvp, vmap, shard_map and jax.export, on "cpu" and on "cuda".

    import jax, pyflowk.jax

    @jax.jit
    def attention_weights(scores, mask):
        return pyflowk.jax.masked_softmax(scores, mask, causal=True, scale=0.125)

The functions have the names and the arguments of pyflowk's, without `out` and `stream`, and return a jax.Array. They
are primitives of JAX; derivatives of any order and in both modes follow, with flowk's kernels for the gradients of
permute, the activations, prelu and softmax. The slopes of atan2 at (0, 0) are 0, and those of logaddexp for two equal
infinities 1/2. (jax.numpy's are NaN, or 1 and 1.) On a GPU the primitives run on libflowk, inside CUDA graphs too
(except prelu_backward with dalpha); on the CPU on libflowk_simt, which is there to check results, not for speed.

Types follow jax.numpy's promotion, with jax_enable_x64 and without: Python numbers are weak and are rounded to the
arrays' type; NumPy's arrays and scalars are converted to JAX's; a function that only floats have computes integers in
the type of jnp.sqrt, and so does divide; pow of integers gives integers. Operands of softmax and prelu are not
promoted. An int that an integer array's type does not hold compares as what it is, as in NumPy, and is an OverflowError
elsewhere; jax.numpy wraps it around.

Parameters that are no operands (scale of permute and softmax, slope of leaky_relu, alpha of elu, a of add_multiply) are
Python numbers and part of the compiled program. Shapes and types are checked while a function is traced.

jax.export asks for the names of custom calls:

    checks = [jax.export.DisabledSafetyCheck.custom_call(name) for name in pyflowk.jax.CUSTOM_CALLS]
    stored = jax.export.export(jax.jit(f), disabled_checks=checks)(*arguments).serialize()

Import pyflowk.jax before calling a stored program. On the CPU it runs wherever libflowk_simt is.
"""

from __future__ import annotations

from typing import Any

from . import _ALIASES  # type: ignore[attr-defined]
from ._jax import jax_functions as _functions
from ._jax import jax_permute_axes as _permute_axes
from ._jax.handlers import HANDLERS, register
from ._jax.jax_functions import *  # noqa: F403
from ._jax.jax_permute_axes import *  # noqa: F403

__all__ = ["CUSTOM_CALLS"]
__all__ += _functions.__all__
__all__ += _permute_axes.__all__

CUSTOM_CALLS = tuple(f"flowk_{name}" for name in HANDLERS)
"""The names of flowk's custom calls in a compiled program, which jax.export asks for."""

register()


def __getattr__(name: str) -> Any:
    """The other names that `pyflowk` has for these functions: mul, clamp, ..."""
    known = _ALIASES.get(name)
    if known not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return globals()[known]


def __dir__() -> list[str]:
    return sorted({*__all__, *(alias for alias, name in _ALIASES.items() if name in __all__)})
