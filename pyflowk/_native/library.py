# SPDX-License-Identifier: Apache-2.0
"""Finds and loads libflowk (device arrays) and libflowk_simt (host arrays), each when it is first needed.

FLOWK_LIBRARY, read at that moment, says what is loaded, and from where:
  `cuda` or `simt`    only that library, from the usual places;
  a folder            both libraries, from this folder;
  a file              only this library; its build says which arrays it takes.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Callable, Iterator
from typing import Any

from . import abi, driver
from .c_types import Library, declare
from .errors import FlowkError

FILE_NAMES = {"cuda": "libflowk.so.1", "simt": "libflowk_simt.so.1"}

# The library that takes the arrays of a device (None: the host); filled by for_device().
loaded: dict[int | None, Library] = {}
_opened: dict[str, ctypes.CDLL] = {}


def for_device(device: int | None, name: str) -> Library:
    """The library for the array in parameter `name`, which is on `device` (None: the host).

    Raises TypeError if FLOWK_LIBRARY rules it out, FlowkError(NO_DEVICE) if no libflowk or no driver is found,
    ImportError if libflowk_simt is missing or a library does not load.
    """
    library = loaded.get(device)
    if library is None:
        backend = "simt" if device is None else "cuda"
        allowed = allowed_backend()
        if allowed not in (None, backend):
            place = "a host array" if device is None else f"on device {device}"
            needs = "device" if device is None else "host"
            raise TypeError(
                f"{name} is {place}, but FLOWK_LIBRARY={os.environ['FLOWK_LIBRARY']} takes {needs} arrays only"
            )
        if device is not None and driver.device_count() <= device:
            raise FlowkError(
                abi.Status.NO_DEVICE, f"{name} is on device {device}, but {driver.device_count()} devices are found"
            )
        library = opened = open_backend(backend)
        if device is not None and driver.device_count() > 1:
            library = _OnDevice(opened, device)
        loaded[device] = library
    return library


def open_backend(backend: str) -> ctypes.CDLL:
    """The `cuda` or `simt` library, loaded once; errors as for_device()."""
    if backend not in _opened:
        file_name = FILE_NAMES[backend]
        paths = list(dict.fromkeys(_candidates(file_name)))
        for path in paths:
            if os.sep not in path or os.path.exists(path):
                with contextlib.suppress(FileNotFoundError):
                    _opened[backend] = _open(path)
                    return _opened[backend]
        places = [path if os.sep in path else "the system loader's folders" for path in paths]
        names_path = os.environ.get("FLOWK_LIBRARY", "") not in ("", *FILE_NAMES)
        hint = "says where, must be cuda, simt, a folder or a file" if names_path else "can name its path"
        message = f"{file_name} is not found (looked for {', '.join(places)}); FLOWK_LIBRARY {hint}"
        if backend == "cuda":
            raise FlowkError(abi.Status.NO_DEVICE, f"this pyflowk has no GPU library: {_why_none(paths)}{message}")
        raise ImportError(message)
    return _opened[backend]


def _why_none(paths: list[str]) -> str:
    """Says that the build was for the CPU only, if libflowk_simt lies in a folder of `paths`."""
    folders = [os.path.dirname(path) for path in paths if os.sep in path]
    is_there = any(os.path.exists(os.path.join(folder, FILE_NAMES["simt"])) for folder in folders)
    return "it was built without CUDA (libflowk_simt alone, for NumPy's arrays); " if is_there else ""


def function_of(library: Library, name: str) -> Any:
    """The C function that a library of for_device() calls."""
    return getattr(library._library if isinstance(library, _OnDevice) else library, name)


def device_of(library: Any) -> int | None:
    """The device whose arrays a library of for_device() takes; None for the host."""
    return next(device for device, each in loaded.items() if each is library)


def addresses(library: ctypes.CDLL) -> Any:
    """The addresses of the C functions, as the struct FlowkFunctions of c_functions.h."""
    functions = [ctypes.cast(getattr(library, name), ctypes.c_void_p) for name in abi.FUNCTIONS]
    return (ctypes.c_void_p * len(functions))(*functions)


def allowed_backend() -> str | None:
    """The only backend that FLOWK_LIBRARY allows, None if it allows both."""
    choice = os.environ.get("FLOWK_LIBRARY", "")
    if choice in FILE_NAMES:
        return choice
    path = os.path.abspath(choice)
    return build_words(_open(path)).get("backend") if os.path.isfile(path) else None


def installed_path(backend: str) -> str | None:
    """The file of the `cuda` or `simt` library that open_backend() loads; None if there is none, or if only the
    system's loader finds it."""
    if allowed_backend() not in (None, backend):
        return None
    paths = _candidates(FILE_NAMES[backend])
    return next((os.path.realpath(path) for path in paths if os.sep in path and os.path.isfile(path)), None)


def build_words(library: ctypes.CDLL) -> dict[str, str]:
    """flowk_build_info() as a dictionary: backend, archs, toolkit, compiler."""
    return dict(word.split("=", 1) for word in library.flowk_build_info().decode().split() if "=" in word)


def version_text(version: int) -> str:
    """FLOWK_VERSION as major.minor.patch."""
    return f"{version // 10000}.{version // 100 % 100}.{version % 100}"


def _candidates(file_name: str) -> Iterator[str]:
    choice = os.environ.get("FLOWK_LIBRARY", "")
    if choice and choice not in FILE_NAMES:
        path = os.path.abspath(choice)
        yield os.path.join(path, file_name) if os.path.isdir(path) else path
        return
    yield from installed_paths(file_name)
    yield file_name  # the system loader's own places


def installed_paths(file_name: str) -> Iterator[str]:
    """The paths at which a library of this package may lie."""
    from importlib.metadata import PackageNotFoundError, distribution  # when it is needed: it takes 10 ms
    from importlib.resources import files

    # Not __file__ alone: meson-python's editable install keeps built files elsewhere and finds them by files().
    package = __package__.partition(".")[0]
    installed = files(package).joinpath("lib").joinpath(file_name)
    folder = os.path.dirname(os.path.dirname(__file__))
    yield str(installed) if installed.is_file() else os.path.join(folder, "lib", file_name)
    # In a source tree, pyflowk/ hides the installed package: here are the libraries of the installed one.
    with contextlib.suppress(PackageNotFoundError):
        yield os.path.abspath(str(distribution("pyflowk").locate_file(f"pyflowk/lib/{file_name}")))


def paths_beside(file_name: str, folder: str) -> Iterator[str]:
    """Where a file lies if FLOWK_LIBRARY names a library or its folder: beside it or, in a build folder, in `folder` of
    pyflowk/."""
    choice = os.environ.get("FLOWK_LIBRARY", "")
    if choice not in ("", *FILE_NAMES):
        path = os.path.abspath(choice)
        libraries = path if os.path.isdir(path) else os.path.dirname(path)
        yield os.path.join(libraries, file_name)
        yield os.path.join(os.path.dirname(libraries), "pyflowk", folder, file_name)


def _open(path: str) -> ctypes.CDLL:
    # CDLL, not PyDLL: it releases the GIL, because a launch into a full queue and the CPU executor take long.
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        if os.sep not in path:
            raise FileNotFoundError(path) from error
        raise ImportError(f"{path} does not load: {error}") from error
    try:
        version = library.flowk_version()
        if version != abi.VERSION:
            raise ImportError(
                f"{path} is flowk {version_text(version)}, this pyflowk needs {version_text(abi.VERSION)}"
            )
        declare(library, abi.FUNCTIONS)
    except AttributeError as error:
        raise ImportError(f"{path} is not a flowk library: {error}") from error
    return library


class _OnDevice:
    """A library that makes `device` current for each call, which is needed if the machine has several GPUs."""

    def __init__(self, library: ctypes.CDLL, device: int) -> None:
        self._library = library
        self._device = device

    def __getattr__(self, name: str) -> Callable[..., Any]:
        function, device = getattr(self._library, name), self._device

        def call_on_device(*arguments: Any) -> Any:
            if driver.current_device() == device:
                return function(*arguments)
            with driver.current(device):
                return function(*arguments)

        setattr(self, name, call_on_device)
        return call_on_device
