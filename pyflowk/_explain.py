# SPDX-License-Identifier: Apache-2.0
"""explain(): the plan of a call in words, for every operator. An operator's module registers what it explains."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from ._errors import error_of

# Name of a function of pyflowk: what gives the text for its arguments.
EXPLAINERS: dict[str, Callable[..., str]] = {}

_TEXT_BYTES = 4096


class Listener:
    """Passed as `stream` to a function that takes one: it returns the plan of the call and launches nothing."""


def explain(op: Any, *arguments: Any, **options: Any) -> str:
    """The plan of a call as text, which kernel with what tile and why; nothing is launched or allocated.

    op         a function of pyflowk, or its name
    arguments  those of the call itself, `out` too, without `stream`: `explain(pyflowk.permute, x, axes)` is the plan of
               `permute(x, axes)`. Without `out` the plan is for a new contiguous array.
    """
    name = getattr(op, "__name__", op)
    explainer = EXPLAINERS.get(name) if isinstance(name, str) else None
    if explainer is None:
        raise ValueError(f"op = {op!r}, must be one of {', '.join(sorted(EXPLAINERS))}")
    if "stream" in options:
        raise TypeError("explain takes no stream: nothing is launched")
    return explainer(*arguments, **options)


def plan_text(library: Any, function: str, arguments: tuple[Any, ...]) -> str:
    """What an `_explain` function of the library writes for `arguments`, which end before its text."""
    text = ctypes.create_string_buffer(_TEXT_BYTES)
    status = getattr(library, function)(*arguments, text, len(text))
    if status:
        raise error_of(library, status)
    return text.value.decode()
