# SPDX-License-Identifier: Apache-2.0
"""The names of JAX that its documentation does not promise to keep.

pyflowk.jax is imported without any of them; only the feature that needs a missing name is lost:

Tracer                            calls outside of jit are not compiled as one program, but primitive by primitive
Primitive                         every call raises NotImplementedError
register_lowering, lower_fun      JAX says that a primitive has no translation rule
Zero, primitive_jvps              JAX says that a primitive has no differentiation rule
is_undefined_primal, primitive_transposes    as Zero, for reverse mode alone
primitive_batchers                JAX says that a primitive has no batching rule
register_standard_check           (JAX 0.6 alone) shard_map needs check_rep=False
pcast, pvary                      JAX refuses operands that vary along different axes of a shard_map
"""

from __future__ import annotations

import importlib
from typing import Any

import jax


def _name(module: str, name: str, default: Any = None) -> Any:
    try:
        return getattr(importlib.import_module(module), name, default)
    except ImportError:
        return default


class _NoPrimitive:
    """Stands for a primitive if JAX has no such class."""

    def __init__(self, name: str) -> None:
        self.name = name

    def bind(self, *operands: Any, **parameters: Any) -> Any:
        raise NotImplementedError(
            f"{self.name}: pyflowk.jax needs jax.extend.core.Primitive, which JAX {jax.__version__} does not have"
        )

    def __getattr__(self, name: str) -> Any:
        """The methods that register a rule."""
        return lambda rule: None


Tracer = _name("jax.core", "Tracer")
Primitive = _name("jax.extend.core", "Primitive", _NoPrimitive)
Zero = _name("jax.interpreters.ad", "Zero")
is_undefined_primal = _name("jax.interpreters.ad", "is_undefined_primal")
# Without the other names that a rule needs, the rule is not registered.
primitive_jvps = _name("jax.interpreters.ad", "primitive_jvps", {}) if Zero else {}
primitive_transposes = _name("jax.interpreters.ad", "primitive_transposes", {}) if Zero and is_undefined_primal else {}
primitive_batchers = _name("jax.interpreters.batching", "primitive_batchers", {})
register_lowering = _name("jax.interpreters.mlir", "register_lowering", lambda *rule, **platform: None)
lower_fun = _name("jax.interpreters.mlir", "lower_fun")
register_standard_check = _name("jax.experimental.shard_map", "register_standard_check", lambda primitive: None)
pcast = _name("jax.lax", "pcast")
pvary = _name("jax.lax", "pvary", lambda operand, axes: operand)
