# SPDX-License-Identifier: Apache-2.0
"""`python -m pyflowk info`: what is installed, what is found, and what is missing."""

from __future__ import annotations

import contextlib
import os
import platform
from collections.abc import Iterator
from importlib import import_module, metadata

from .. import __version__
from .._calls.call_path import program_cache_text
from .._native import driver, library
from .._native.errors import FlowkError

# The packages that have a framework, and what installs one.
FRAMEWORKS = {
    "PyTorch": (("torch",), "pip install torch"),
    "JAX": (("jax",), "pip install 'jax[cuda13]'"),
    "CuPy": (("cupy-cuda13x", "cupy-cuda12x", "cupy"), "pip install cupy-cuda13x"),
    "Numba": (("numba-cuda",), "pip install 'numba-cuda[cu13]'"),
}


def print_info() -> None:
    """Prints one line per thing found or missing; needs no GPU and no library."""
    for label, text in _lines():
        print(f"{label:<14} {text}")


def _lines() -> Iterator[tuple[str, str]]:
    yield "pyflowk", f"{__version__}  {os.path.dirname(os.path.dirname(os.path.abspath(__file__)))}"
    for backend in library.FILE_NAMES:
        yield from _library_lines(backend)
    yield "FLOWK_LIBRARY", os.environ.get("FLOWK_LIBRARY") or "not set"
    if driver.device_count() == 0:
        yield "device", f"none: {driver.why_no_gpu()}"
    else:
        yield "driver", f"CUDA {driver.driver_version()}"
    for device in range(driver.device_count()):
        yield f"device {device}", driver.device_name(device)
    yield "python", platform.python_version()
    yield "program cache", program_cache_text()
    for package in ("numpy", "cuda.core", "ml_dtypes"):
        yield package, _package_version(package)
    for framework, (packages, install) in FRAMEWORKS.items():
        yield framework, next(filter(None, map(_installed_version, packages)), f"not installed: {install}")


def _library_lines(backend: str) -> Iterator[tuple[str, str]]:
    label = library.FILE_NAMES[backend].partition(".")[0]
    try:
        if library.allowed_backend() not in (None, backend):
            yield label, "not looked for: FLOWK_LIBRARY rules it out"
            return
        opened = library.open_backend(backend)
    except (FlowkError, ImportError) as error:
        yield label, f"missing: {getattr(error, 'message', error)}"
        return
    yield label, f"{library.version_text(opened.flowk_version())}  {opened._name}"
    yield "", opened.flowk_build_info().decode()


def _package_version(package: str) -> str:
    try:
        module = import_module(package)
        if module.__file__ is None:  # a folder with the package's name, such as cuda/core of the source tree
            raise ImportError(f"No module named {package!r}")
        return str(module.__version__)
    except Exception as error:  # a broken cuda-python raises more than ImportError
        return f"missing: {error}"


def _installed_version(package: str) -> str | None:
    """The version of a package, which is not imported: PyTorch takes a second."""
    with contextlib.suppress(metadata.PackageNotFoundError):
        return metadata.version(package)
    return None
