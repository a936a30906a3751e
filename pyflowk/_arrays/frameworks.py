# SPDX-License-Identifier: Apache-2.0
"""The frameworks that have adapters of their own, as data. pyflowk imports no framework: a caller who passes its arrays
has imported it. What pyflowk has for a framework is imported when the first such array is seen.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from .adapters.base import Interceptor

F = TypeVar("F", bound=Callable[..., Any])

# The module in pyflowk with the adapters for the types of a package: adapter_of(x, name) and, if DeviceArrays can have
# the framework's memory, allocate().
ADAPTERS = {
    "cupy": "_arrays.adapters.cupy",
    "jax": "_jax.jax_adapter",
    "jaxlib": "_jax.jax_adapter",
    "numba": "_arrays.adapters.numba",
    "numba_cuda": "_arrays.adapters.numba",
    "torch": "_torch.torch_adapter",
}
ALLOCATORS = ("cupy", "torch")
# The framework's function that tells whether it traces a call, so that nothing may be read.
_TRACES = {"torch": "compiler.is_dynamo_compiling"}

_PACKAGE = __package__.partition(".")[0]


def adapters_of(framework: str) -> Any:
    """The module of ADAPTERS, imported on first use."""
    return import_module(f"{_PACKAGE}.{ADAPTERS[framework]}")


def attribute_of(module: str, path: str) -> Any:
    """An attribute of a module, "core.Tracer" of "jax" for example; None if the module is not imported, if its import
    is blocked (None in sys.modules) or not yet done, or if it has no such attribute."""
    value: Any = sys.modules.get(module)
    for name in path.split("."):
        value = getattr(value, name, None)
    return value


_is_traced: Callable[[], bool] | None = None


def trace_by(is_traced: Callable[[], bool]) -> None:
    """Registers what tells that a framework traces a call."""
    global _is_traced
    _is_traced = is_traced


def _ask_frameworks() -> bool:
    if _is_traced is not None:
        return _is_traced()
    for framework, path in _TRACES.items():
        is_traced = attribute_of(framework, path)
        if is_traced is not None and is_traced():
            return True
    return False


is_compiling = next(filter(None, (attribute_of(*one) for one in _TRACES.items())), _ask_frameworks)
"""Whether torch.compile traces this call."""


def cached(max_size: int) -> Callable[[F], F]:
    """functools.lru_cache by value and type. Arguments that cannot be hashed go to the function itself. torch.compile
    traces that too, without a warning."""

    def decorate(function: F) -> F:
        by_cache = functools.lru_cache(max_size, typed=True)(function)

        @functools.wraps(function)
        def call(*arguments: Any, **options: Any) -> Any:
            try:
                return (function if is_compiling() else by_cache)(*arguments, **options)
            except (TypeError, ValueError):  # of the hash, or the function's own, which it raises again
                return function(*arguments, **options)

        return call  # type: ignore[return-value]

    return decorate


def __getattr__(name: str) -> Interceptor:
    """`tracer`: what makes the calls that are traced. It is an attribute, which torch.compile looks up without tracing
    this function; it does not trace imports by names of a table."""
    if name != "tracer":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    framework = next(framework for framework, path in _TRACES.items() if attribute_of(framework, path))
    tracer: Interceptor = globals().setdefault(name, adapters_of(framework).interceptor())
    return tracer
