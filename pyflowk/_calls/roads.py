# SPDX-License-Identifier: Apache-2.0
"""The fast path of a call: the extension _program_cache (calls.c), and what it knows of the frameworks' arrays.

A public function's body is one line, `return (F.call if roads.is_compiling() else F.enter)(x, ..., out, stream)`.
`call` is the path through Python; `enter` is the fast path, which gives the same results and takes whatever is not
plain to `call`. Both are the same function without the extension: on a free-threaded Python, whose calls no GIL keeps
apart, and if pyflowk was built without Python's headers.
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
from .._arrays.registry import ARRAYS
from .._native import driver
from .._native import library as native
from .._native.abi import DType
from .._native.operator_table import OF_MEMORY
from .._pipeline import Bound, Request
from .plan_words import plan_of

_ROLES = {"": "a", "=": "o", "~": "v"}
_ARRAY_TYPES = ("ArrayT", "Array", "Array | None")
_NO_PARAMETERS = (*OF_MEMORY, "others", "return")


class Road:
    """The two paths of one public function.

    `parameters` are the names of what it takes before `outs` and the stream. `x`: an array, or a number in its place;
    `x=`: an option, whose value is in the cache's key; `x~`: a number, of which only the type is. `request` makes a
    Request from their values, and with `takes_outs` from those of `outs`.
    """

    __slots__ = ("arrays", "enter", "names", "num_inputs", "outs", "request", "roles", "takes_outs")

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
        self.names = tuple(word.rstrip("=~") for word in words)
        self.outs, self.takes_outs = outs, takes_outs
        self.num_inputs = len(words)
        self.roles = "".join(_ROLES[word[len(name) :]] for word, name in zip(words, self.names)) + "w" * len(outs) + "s"
        self.arrays = [index for index, role in enumerate(self.roles) if role == "a"]
        cache = program_cache()
        self.enter = self.call
        if cache is not None:
            text = f"The fast path of {request.__name__.strip('_')}()."
            self.enter = cache.path(text, self.roles, self.call_and_notice, self.miss)

    def call(self, *arguments: Any) -> Any:
        """The path through Python."""
        return _pipeline.call(*self._split(arguments))

    def kernel(
        self, below: Callable[[Callable[..., Any]], Callable[..., Any]], fallback: Callable[..., Any] | None = None
    ) -> Callable[..., Any]:
        """`enter` for a framework's operator: the framework has seen the call. `below` makes a function of one that it
        would otherwise see. What `enter` does not take is a call of `fallback`, by default in Python."""
        cache, call = program_cache(), fallback or below(self.call_and_notice)
        return call if cache is None else cache.kernel(self.enter, call, below(self.miss))

    def bind_plan(self, named: dict[str, Any]) -> Bound:
        """The plan of a call with arguments by name."""
        request, outs, _ = self._split((*(named[name] for name in (*self.names, *self.outs)), None))
        return _pipeline.bind_plan(request, outs)

    def call_and_notice(self, *arguments: Any) -> Any:
        """`call`, after which the arrays' types are known to the fast path."""
        result = _pipeline.call_now(*self._split(arguments))
        for index in self.arrays:
            if type(arguments[index]) not in _noticed:
                with contextlib.suppress(Exception):  # the result is there, and the next call comes here again
                    notice(type(arguments[index]))
        return result

    def miss(self, *arguments: Any) -> tuple[Any, tuple[Any, ...] | None]:
        """The result of a call, and its plan for calls.c; None where it is not plain."""
        request, outs, stream = self._split(arguments)
        bound = _pipeline.bind(request, outs, stream)
        if not isinstance(bound, Bound):
            return bound.by_operator(request, outs, stream), None
        result = bound.run()
        try:
            if set(native.loaded) - {None}:
                _check_device()
            return result, plan_of(bound, self.names, self.roles, arguments)
        except Exception:  # the result is not lost; the call stays Python's
            return result, None

    def _split(self, arguments: tuple[Any, ...]) -> tuple[Request, tuple[Any, ...], Any]:
        end = -1 if self.takes_outs else self.num_inputs
        return self.request(*arguments[:end]), arguments[self.num_inputs : -1], arguments[-1]


def parameters_of(function: Callable[..., Any], *numbers: str) -> str:
    """The parameters of a public function as Road takes them: the arrays, by their annotations, then the options, then
    `numbers`."""
    named = {name: kind for name, kind in function.__annotations__.items() if name not in _NO_PARAMETERS}
    arrays = [name for name, kind in named.items() if kind in _ARRAY_TYPES]
    options = [f"{name}=" for name in named if name not in (*arrays, *numbers)]
    return " ".join((*arrays, *options, *(f"{name}~" for name in numbers)))


def bind_call(function: Callable[..., Any], arguments: tuple[Any, ...], options: dict[str, Any]) -> Bound:
    """The plan of a call of a public function, whose body is one line that names its Road."""
    try:
        given = inspect.signature(function).bind(*arguments, **options)
        if given.arguments.get("others"):  # as which masked_softmax takes what it has no parameter for
            raise TypeError
    except TypeError:
        function(*arguments, **options)  # which raises an error of its own
        raise
    given.apply_defaults()
    return road_of(function).bind_plan(given.arguments)  # type: ignore[no-any-return]


def road_of(function: Callable[..., Any]) -> Any:
    """The Road that the body of a public function names."""
    used = (function.__globals__.get(name) for name in function.__code__.co_names)
    return next(one for one in used if hasattr(one, "bind_plan"))


@functools.cache
def program_cache() -> Any:
    """The extension; None where there is none."""
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
    """Is there a fast path, for `python -m pyflowk info`."""
    cache = program_cache()
    if cache is not None:
        return str(cache.__file__)
    is_free_threaded = sysconfig.get_config_var("Py_GIL_DISABLED")
    why = "this Python has no GIL" if is_free_threaded else "this pyflowk was built without Python's headers"
    return f"none: {why}; calls run in Python, which takes longer"


def _paths() -> Iterator[str]:
    """Where the extension is if this package is a source tree: in the build folder of the libraries that FLOWK_LIBRARY
    names, or in the installed package."""
    folders = []
    choice = os.environ.get("FLOWK_LIBRARY", "")
    if choice not in ("", *native.FILE_NAMES):
        path = os.path.abspath(choice)
        folder = path if os.path.isdir(path) else os.path.dirname(path)
        folders.append(os.path.join(os.path.dirname(folder), "pyflowk", "_calls"))
    folders += [os.path.join(os.path.dirname(os.path.dirname(path)), "_calls") for path in native.installed_paths("")]
    return (os.path.join(folder, "_program_cache.abi3.so") for folder in folders)


@functools.cache
def _check_device() -> None:
    """Where there are several GPUs, from now on. Not at the start: it initialises CUDA, and no process forks after."""
    if driver.device_count() > 1:
        program_cache().check_device(driver.address_of("cuCtxGetDevice"))


# ---- types ----------------------------------------------------------------------------------------------------------

_noticed: set[type] = {np.ndarray, DeviceArray, type(None), int, float, bool, list, tuple}


def notice(array_type: type[Any]) -> None:
    """Makes the type of an array known to the fast path, if that can read it: torch's tensors, CuPy's arrays, Numba's,
    and those of any framework that have the exchange API and follow its current stream."""
    adapter, cache = ARRAYS.get(array_type), program_cache()
    if array_type in _noticed or adapter is None:  # no call has read such an array: a framework's operator took it
        return
    _noticed.add(array_type)
    if cache is not None:
        adapter.register_type(array_type, cache)
