# SPDX-License-Identifier: Apache-2.0
"""The fast path of a call: the extension _program_cache (calls.c), and what it knows of the frameworks' arrays.

A public function's body is one line: `return (P.call if call_path.is_compiling() else P.cached_call)(x, out, stream)`.
`call` is the path through Python. `cached_call` gives the same results; it passes what it does not take to `call`.
Without the extension both are the same function: on a free-threaded Python, where no GIL keeps calls apart, and if
pyflowk was built without Python's headers.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.machinery
import importlib.util
import inspect
import os
import sysconfig
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import numpy as np

from .. import _pipeline
from .._arrays.adapters.base import BY_DEVICE_ARRAY, BY_NUMPY
from .._arrays.device_array import DeviceArray
from .._arrays.frameworks import is_compiling as is_compiling
from .._arrays.registry import ARRAYS, array_adapter
from .._native import driver
from .._native import library as native
from .._native.abi import DType
from .._native.operator_table import OF_MEMORY
from .._pipeline import Bound, Request
from .plan_words import is_number_of_call, plan_of

_ROLES = {"": "a", "#": "n", "=": "o", "~": "v"}
_MAX_ARGUMENTS = 24  # of c_call.h
_ARRAY_TYPES = ("ArrayT", "Array", "Array | None")
ASK_AUTOGRAD, ASK_AUTOCAST, ASK_WATCHERS = 1, 2, 4  # of call_values.h
_NO_PARAMETERS = (*OF_MEMORY, "others", "return")


class CallPath:
    """Both paths of one public function: `call`, and `cached_call` with a cache.

    `parameters` are the names of what the function takes before `outs` and the stream. `x`: an array, or a number in
    its place; `x#`: the same, and of an int only the type is in the cache's key; `x=`: an option, its value is in the
    key; `x~`: a number, only its type is. `request` makes a Request from the values of the parameters, with
    `takes_outs` also from those of `outs`.
    """

    __slots__ = ("arrays", "cached_call", "names", "num_inputs", "outs", "request", "roles", "takes_outs")

    def __init__(
        self,
        parameters: str,
        request: Callable[..., Request],
        outs: tuple[str, ...] = ("out",),
        *,
        takes_outs: bool = False,
    ) -> None:
        words = parameters.split()
        self.request = request
        self.names = tuple(word.rstrip("#=~") for word in words)
        self.outs, self.takes_outs = outs, takes_outs
        self.num_inputs = len(words)
        self.roles = "".join(_ROLES[word[len(name) :]] for word, name in zip(words, self.names)) + "w" * len(outs) + "s"
        self.arrays = [index for index, role in enumerate(self.roles) if role in "an"]
        cache = program_cache()
        self.cached_call: Callable[..., Any] = self.call
        if cache is not None and len(self.roles) <= _MAX_ARGUMENTS:
            text = f"cached_call(*arguments)\n--\n\nThe fast path of {request.__name__.strip('_')}()."
            self.cached_call = cache.path(text, self.roles, self.call_and_register, self.miss)

    def call(self, *arguments: Any) -> Any:
        """The path through Python."""
        return _pipeline.call(*self._split(arguments))

    def kernel(self, call: Callable[..., Any], miss: Callable[..., Any], asked: int) -> Callable[..., Any]:
        """`cached_call` for a framework's operator, which asks torch for `asked` alone. `call` runs what it does not
        take, `miss` does what self.miss() does."""
        cache = program_cache()
        return call if cache is None else cache.kernel(self.cached_call, call, miss, asked)

    def as_operator(self, function: Any, under_autograd: Any, under_autocast: Any = None) -> None:
        """Makes `cached_call`, or a function of kernel(), an operator's: if all arrays are torch's tensors, it calls
        `under_autograd` if one of them requires a gradient, and `under_autocast` under autocast. Both take the inputs
        alone."""
        cache = program_cache()
        if cache is not None:
            cache.as_operator(function, under_autograd, under_autocast)

    def bind_plan(self, named: dict[str, Any]) -> Bound:
        """The plan of a call with arguments by name."""
        request, outs, _ = self._split((*(named[name] for name in (*self.names, *self.outs)), None))
        return _pipeline.bind_plan(request, outs)

    def call_and_register(self, *arguments: Any) -> Any:
        """`call`; then registers the types of its arrays, so that the fast path takes the next call."""
        result = _pipeline.call_now(*self._split(arguments))
        for index in self.arrays:
            if type(arguments[index]) not in _seen_types:
                with contextlib.suppress(Exception):  # the result is there, and the next call tries again
                    array_adapter(arguments[index], "")  # under autocast the call has read a converted array
                    register_type(type(arguments[index]))
        return result

    def miss(self, *arguments: Any) -> tuple[Any, tuple[Any, ...] | bool | None]:
        """The result of a call, and its plan for the cache, which has the operator to call if a framework must see the
        call. None if the call runs in Python every time, False if it does this time."""
        request, outs, stream = self._split(arguments)
        bound = _pipeline.bind(request, outs, stream)
        if not isinstance(bound, Bound):
            if stream is not None or any(out is not None for out in outs):
                return bound.by_operator(request, outs, stream), False
            inputs = enumerate(zip(self.names, self.roles, arguments))
            numbers = {name: index for index, (name, *number) in inputs if is_number_of_call(*number)}
            return bound.by_cached_operator(request, arguments[: self.num_inputs], numbers)
        result = bound.run()
        try:
            if set(native.loaded) - {None}:
                _check_device()
            return result, plan_of(bound, self.names, self.roles, self._padded(arguments))
        except Exception:  # the result is not lost; the call runs in Python the next time
            return result, None

    def _padded(self, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments with those that were left out at the end, which are None."""
        return arguments + (None,) * (len(self.roles) - len(arguments))

    def _split(self, arguments: tuple[Any, ...]) -> tuple[Request, tuple[Any, ...], Any]:
        arguments = self._padded(arguments)
        end = -1 if self.takes_outs else self.num_inputs
        return self.request(*arguments[:end]), arguments[self.num_inputs : -1], arguments[-1]


def parameters_of(function: Callable[..., Any], *numbers: str) -> str:
    """The parameters of a public function as CallPath takes them: the arrays, by their annotations, then the options,
    then `numbers`."""
    named = {name: kind for name, kind in function.__annotations__.items() if name not in _NO_PARAMETERS}
    arrays = [name for name, kind in named.items() if kind in _ARRAY_TYPES]
    options = [f"{name}=" for name in named if name not in (*arrays, *numbers)]
    return " ".join((*arrays, *options, *(f"{name}~" for name in numbers)))


def bind_call(function: Callable[..., Any], arguments: tuple[Any, ...], options: dict[str, Any]) -> Bound:
    """The plan of a call of a public function; its body names its CallPath."""
    try:
        given = inspect.signature(function).bind(*arguments, **options)
        if given.arguments.get("others"):  # where masked_softmax collects unknown parameters
            raise TypeError
    except TypeError:
        function(*arguments, **options)  # raises the function's own error
        raise
    given.apply_defaults()
    return path_of(function).bind_plan(given.arguments)  # type: ignore[no-any-return]


def path_of(function: Callable[..., Any]) -> Any:
    """The CallPath that the body of a public function names."""
    used = (function.__globals__.get(name) for name in function.__code__.co_names)
    return next(path for path in used if hasattr(path, "bind_plan"))


@functools.cache
def program_cache() -> Any:
    """The extension; None if there is none."""
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        return None
    try:
        cache: Any = import_module("pyflowk._calls._program_cache")
    except ImportError:
        path = next(filter(os.path.exists, _paths()), None)
        if path is None:
            return None
        loader = importlib.machinery.ExtensionFileLoader("pyflowk._calls._program_cache", path)
        spec = importlib.util.spec_from_file_location(loader.name, path, loader=loader)
        assert spec is not None
        cache = importlib.util.module_from_spec(spec)
        loader.exec_module(cache)
    cache.add_constant(DType)
    cache.add_type(DeviceArray, BY_DEVICE_ARRAY, 0, False, None)
    cache.add_type(np.ndarray, BY_NUMPY, 0, False, None)
    return cache


def program_cache_text() -> str:
    """Where the extension is, or why there is none: a line of `python -m pyflowk info`."""
    cache = program_cache()
    if cache is not None:
        return str(cache.__file__)
    is_free_threaded = sysconfig.get_config_var("Py_GIL_DISABLED")
    why = "this Python has no GIL" if is_free_threaded else "this pyflowk was built without Python's headers"
    return f"none: {why}; calls run in Python, which takes longer"


def _paths() -> Iterator[str]:
    """Where the extension of a source tree is: in the build folder of the library that FLOWK_LIBRARY names, or in the
    installed package."""
    file_name = "_program_cache.abi3.so"
    yield from native.paths_beside(file_name, "_calls")
    for library in native.installed_paths(native.FILE_NAMES["simt"]):
        yield os.path.join(os.path.dirname(os.path.dirname(library)), "_calls", file_name)


@functools.cache
def _check_device() -> None:
    """With several GPUs, makes the fast path compare the current GPU with the arrays'. Called by the first miss on a
    GPU, not by an import, because it initialises CUDA: a process that forks later could not use it."""
    if driver.device_count() > 1:
        program_cache().check_device(driver.address_of("cuCtxGetDevice"))


# ---- types ----------------------------------------------------------------------------------------------------------

_seen_types: set[type] = {np.ndarray, DeviceArray, type(None), int, float, bool, list, tuple}


def register_type(array_type: type[Any]) -> None:
    """Tells the fast path how to read the arrays of a type, if it can: torch's tensors, CuPy's arrays, Numba's, and
    those of any framework that have the exchange API and follow its current stream."""
    adapter, cache = ARRAYS.get(array_type), program_cache()
    if array_type in _seen_types or adapter is None:  # None: a framework's operator took the call, no array was read
        return
    _seen_types.add(array_type)
    if cache is not None:
        adapter.register_type(array_type, cache)
