# SPDX-License-Identifier: Apache-2.0
"""Where a C or C++ program finds flowk: headers, libraries, pkg-config and CMake files."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from ._arguments import boolean
from ._native import library

__all__ = ["get_include", "get_library"]


def get_include() -> str:
    """The folder to compile with: `#include <flowk/flowk.h>` in C, `<flowk/flowk.hpp>` in C++."""
    from ._elementwise.jit import include_folders

    return include_folders()[0]


def get_library(simt: bool = False) -> str:
    """The file to link or to load: libflowk, or libflowk_simt if libflowk is not installed.

    Parameters
    ----------
    simt : bool, optional
        True: libflowk_simt, which takes host pointers.

    Raises
    ------
    ImportError
        No such library is installed, or FLOWK_LIBRARY names none.
    """
    backends = ["simt"] if boolean(simt, "simt") else ["cuda", "simt"]
    for backend in backends:
        path = library.installed_path(backend)
        if path is not None:
            return path
    names = " and ".join(library.FILE_NAMES[backend] for backend in backends)
    raise ImportError(f"{names}: not found beside pyflowk or by FLOWK_LIBRARY; python -m pyflowk info says more")


def compiler_flags() -> str:
    """What `python -m pyflowk --cflags` prints."""
    return f"-I{shlex.quote(get_include())}"


def linker_flags(simt: bool) -> str:
    """What `python -m pyflowk --libs` prints: the library by its path, which is also where a program looks for it."""
    path = get_library(simt)
    return f"{shlex.quote(path)} -Wl,-rpath,{shlex.quote(os.path.dirname(path))}"


def config_folder(name: str) -> str:
    """The folder `lib/NAME` of the installed package: pkgconfig, or cmake/flowk."""
    folder = Path(get_library()).parent / name
    if not folder.is_dir():
        raise ImportError(f"{folder}: not found; only an installed pyflowk has it")
    return str(folder)
