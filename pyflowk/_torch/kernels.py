# SPDX-License-Identifier: Apache-2.0
"""libpyflowk_torch: kernels in C of the operators in torch_elementwise.c and torch_operators.c.

It is built without PyTorch and finds PyTorch's stable C functions in the process, for PyTorch 2.11 and newer. The other
operators have kernels in Python, which take 5 us longer; all have where the library is not found. It is looked for in
pyflowk/lib, beside libflowk or libflowk_simt, and in the build folder that these lie in.
"""

from __future__ import annotations

import ctypes
import functools
import os
import threading
import warnings
from typing import Any

import torch

from .._native import library as native
from .._native.errors import FlowkError

FILE_NAME = "libpyflowk_torch.so"


def register(name: str, key: str) -> bool:
    """Registers the C kernel of an operator for a dispatch key. False where there is none."""
    library = _library()
    if library is None:
        return False
    registered = library.pyflowk_torch_register(name.encode(), key.encode())
    if registered < 0:
        raise RuntimeError(f"PyTorch {torch.__version__} refuses the kernel of flowk::{name} for {key}")
    return bool(registered)


class _Kept(threading.local):
    """The error of the kernel in Python that a kernel in C has called in this thread, and its text."""

    error: Exception | None = None
    text = ""


_kept = _Kept()


def keep_error(error: Exception) -> None:
    """Keeps an error of a kernel in Python, which PyTorch does not pass on to the kernel in C that called it."""
    library = _library()
    if library is not None:
        _kept.error, _kept.text = error.with_traceback(None), f"{type(error).__name__}: {error}"
        library.pyflowk_torch_keep_error(_kept.text.encode())


def original_of(raised: RuntimeError) -> Exception:
    """The error that the kernel in Python raised, where `raised` is what PyTorch made of it; else `raised`."""
    error, text = _kept.error, _kept.text
    _kept.error, _kept.text = None, ""
    # What PyTorch raises holds the text, or the start of a long one.
    return error if error is not None and text.partition("\n")[0][:500] in str(raised) else raised


@functools.cache
def _library() -> Any:
    """The library, ready; None where it or what it needs of PyTorch is not found."""
    backends = {}
    for backend in ("simt", "cuda"):
        try:
            if native.allowed_backend() in (None, backend):
                backends[backend] = native.open_backend(backend)
        except (FlowkError, ImportError):
            continue
    path = next(filter(os.path.isfile, _paths([library._name for library in backends.values()])), None)
    if path is None:
        return None
    library = ctypes.CDLL(path)
    library.pyflowk_torch_find.restype = ctypes.c_char_p
    missing = library.pyflowk_torch_find(os.fsencode(torch._C.__file__))
    if missing is not None:
        warnings.warn(
            f"PyTorch {torch.__version__} has no {missing.decode()}, which {path} needs: the operators torch.ops.flowk "
            "have kernels in Python, which take 5 us longer per call",
            stacklevel=2,
        )
        return None
    for backend, opened in backends.items():
        library.pyflowk_torch_use(backend == "cuda", native.addresses(opened))
    return library


def _paths(libraries: list[str]) -> list[str]:
    folders = [os.path.join(os.path.dirname(os.path.dirname(__file__)), "lib")]
    for path in libraries:
        folder = os.path.dirname(os.path.abspath(path))
        folders += [folder, os.path.join(os.path.dirname(folder), "pyflowk", "_torch")]
    return [os.path.join(folder, FILE_NAME) for folder in folders]
