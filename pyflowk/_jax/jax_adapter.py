# SPDX-License-Identifier: Apache-2.0
"""jax.Array for the functions of pyflowk itself, outside of jit."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .._arrays.adapters.base import Reading
from .._arrays.adapters.protocol import ProtocolAdapter
from . import jax_names as names


class JaxAdapter(ProtocolAdapter):
    def read_out(self, x: object, name: str, stream: int) -> Reading:
        # A JAX array has no attribute that says it is read-only.
        raise ValueError(f"{name} is a JAX array, which is read-only, must be writable")

    def result(self, x: jax.Array, array: Any) -> jax.Array:
        if isinstance(array, np.ndarray) and array.dtype.isbuiltin == 2:  # of ml_dtypes
            result: jax.Array = jax.device_put(array, next(iter(x.devices())))
        else:
            result = jnp.from_dlpack(array)
        return result


def adapter_of(x: object, name: str) -> JaxAdapter | None:
    """The adapter of an array, None for JAX's other objects; TypeError for an array that JAX traces."""
    if names.Tracer is not None and isinstance(x, names.Tracer):
        raise TypeError(f"{name} is traced by JAX: under jit, grad, vmap and their kin call pyflowk.jax's functions")
    return JaxAdapter() if isinstance(x, jax.Array) else None
