# SPDX-License-Identifier: Apache-2.0
"""Loads libpyflowk_jax, gives it the C functions of libflowk_simt and libflowk, and makes its handlers known to XLA."""

from __future__ import annotations

import ctypes
import os

import jax

from .._native import library as native
from .._native.errors import FlowkError
from .._native.operator_table import OPERATORS

FILE_NAME = "libpyflowk_jax.so"
# One per C function. XLA's custom calls have these names with "flowk_" before them.
HANDLERS = (
    *("unary", "binary", "ternary"),
    *(
        name.removeprefix("flowk_")
        for operator in OPERATORS.values()
        if operator.jax is not None
        for name in operator.c_functions
    ),
)
_BACKENDS = {"cpu": "simt", "CUDA": "cuda"}  # by XLA's name of the platform


def register() -> None:
    """Makes the handlers of both platforms known to XLA, whatever this machine has: a program of jax.export needs its
    handlers before any call of pyflowk's. A handler without its library is an error when it runs."""
    library = load()
    for index, (platform, backend) in enumerate(_BACKENDS.items()):
        _set_library(library, index, backend)
        for name in HANDLERS:
            handler = getattr(library, f"flowk_jax_{platform.lower()}_{name}")
            jax.ffi.register_ffi_target(f"flowk_{name}", jax.ffi.pycapsule(handler), platform=platform, api_version=1)


def _set_library(library: ctypes.CDLL, index: int, backend: str) -> None:
    try:
        if native.allowed_backend() not in (None, backend):
            raise ImportError(f"FLOWK_LIBRARY={os.environ['FLOWK_LIBRARY']} rules it out")
        functions = native.open_backend(backend)
    except (FlowkError, ImportError) as error:
        library.flowk_jax_set_library(index, None, str(error).encode())
        return
    library.flowk_jax_set_library(index, native.addresses(functions), b"")


def load() -> ctypes.CDLL:
    """The handlers, with the types of their functions."""
    library = ctypes.CDLL(path())
    library.flowk_jax_set_library.argtypes = [ctypes.c_int32, ctypes.c_void_p, ctypes.c_char_p]
    library.flowk_jax_set_library.restype = None
    return library


def path() -> str:
    """The path of the handlers' library; ImportError if there is none."""
    paths = [*native.paths_beside(FILE_NAME, "_jax"), *native.installed_paths(FILE_NAME)]
    for candidate in paths:
        if os.path.exists(candidate):
            return candidate
    raise ImportError(f"{FILE_NAME}, which pyflowk.jax needs, is not found (looked for {', '.join(paths)})")
