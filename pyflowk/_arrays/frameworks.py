# SPDX-License-Identifier: Apache-2.0
"""What is there of frameworks that the caller may have imported; pyflowk never imports them for itself."""

from __future__ import annotations

import sys
from collections.abc import Callable
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


_is_traced: Callable[[], bool] | None = None


def trace_by(is_traced: Callable[[], bool]) -> None:
    """Registers what tells that torch.compile traces a call."""
    global _is_traced
    _is_traced = is_traced


def _ask_torch() -> bool:
    if _is_traced is not None:
        return _is_traced()
    asks_torch = attribute_of("torch", "compiler.is_dynamo_compiling")
    return asks_torch is not None and bool(asks_torch())


is_compiling = attribute_of("torch", "compiler.is_dynamo_compiling") or _ask_torch
"""Does torch.compile trace this call?"""


def operator_calls() -> Any:
    """What makes the calls that torch must see. It is imported here, for torch alone."""
    from .._torch import road

    return road
