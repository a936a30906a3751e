# SPDX-License-Identifier: Apache-2.0
"""What is there of frameworks that the caller may have imported; pyflowk never imports them for itself."""

from __future__ import annotations

import sys
from typing import Any


def attribute_of(framework: str, path: str) -> Any:
    """An attribute of a module, "core.Tracer" of "jax" for example; None if the module is not imported, if its import
    is blocked (None in sys.modules) or not yet done, or if it has no such attribute."""
    found: Any = sys.modules.get(framework)
    for name in path.split("."):
        found = getattr(found, name, None)
    return found


def is_instance_of(x: Any, framework: str, path: str) -> bool:
    """Whether x is an object of a framework's type. False where attribute_of() is no type, as in a stand-in for the
    module."""
    found = attribute_of(framework, path)
    return isinstance(found, type) and isinstance(x, found)
