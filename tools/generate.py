# SPDX-License-Identifier: Apache-2.0
"""Generates the parts of pyflowk that follow from flowk.h, flowk/elementwise_ops.h and its own signatures:

  _native/abi.py              flowk.h in ctypes
  _native/c_functions.h       the functions of flowk.h for the libraries of pyflowk that call them
  _native/operations.py       the enums of the operations and their table
  _elementwise/functions.py   the elementwise functions
  _jax/jax_functions.py       the same for JAX's arrays, and the operators of _native/operator_table.py
  **/*.pyi                    the public functions' types; a call on NumPy's arrays gives NumPy's
  __init__.py, __init__.pyi   the public names

    python tools/generate.py

The results are checked in; tests/python/test_generated.py compares.
"""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from function_names import ALIASES  # type: ignore[import-not-found, unused-ignore]
from function_topics import TOPICS  # type: ignore[import-not-found, unused-ignore]
from generate_abi import abi, c_functions, constant  # type: ignore[import-not-found, unused-ignore]
from generate_elementwise import functions, operations, read_rows  # type: ignore[import-not-found, unused-ignore]
from generate_jax import TABLE, jax_functions  # type: ignore[import-not-found, unused-ignore]
from generate_stubs import public_functions, stub  # type: ignore[import-not-found, unused-ignore]
from generated_text import LICENSE, NOTE, packed, quoted  # type: ignore[import-not-found, unused-ignore]

PACKAGE = Path(__file__).resolve().parents[1] / "pyflowk"
FUNCTION_MODULES = {"_elementwise.functions", "_operators.permute_axes"}
FUNCTION_MODULES |= {operator.module for operator in TABLE["OPERATORS"].values()}

# The other public names, by their module.
OTHERS = {
    "_arrays.creation": ("empty_like", "from_dlpack", "full", "ones", "zeros"),
    "_arrays.device_array": ("DeviceArray", "asarray", "empty"),
    "_calls.prepare": ("prepare",),
    "_devices": ("device_count", "is_available", "synchronize"),
    "_elementwise.kernel": ("ElementwiseKernel",),
    "_explain": ("explain",),
    "_tuning": ("Tuning", "load_plans", "save_plans", "tune"),
    "_linking": ("get_include", "get_library"),
    "_native.abi": ("DType", "Status"),
    "_native.errors": ("FlowkError", "FlowkValueError"),
}

SUMMARY = """Permute, batch transpose, elementwise operations, PReLU, masked softmax and cross-entropy on arrays of any
framework."""


def init(names: dict[str, list[str]]) -> str:
    table = "".join(packed(f'    "{module}": [', quoted(group), "],") for module, group in names.items())
    imports = "".join(f"    from .{module} import *  # noqa: F403\n" for module in sorted(names))
    return f'''{LICENSE}"""{SUMMARY}

Functions and types by topic; names in parentheses are NumPy's, the array API's or PyTorch's of the same function:

{topics(names)}
The text of a function has its example, in which np is numpy: help(pyflowk.permute).

Arrays on a GPU (torch's, CuPy's, a DeviceArray, anything with DLPack or ``__cuda_array_interface__``) run on libflowk,
at the speed of a plain copy. NumPy's arrays run on libflowk_simt, which executes the same kernels on the CPU: it is
there to check results, not for speed.

See also pyflowk.torch, modules for PyTorch; pyflowk.jax, the functions under jit and grad; pyflowk.memory, the memory
of arrays on a GPU; pyflowk.distributed, tensors that are split over GPUs.
"""

# {NOTE.format(source="it")}

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # for editors that read no stubs
{imports}
__version__ = "{version()}"

# The public names by their module, which is imported when one of them is first used: `import pyflowk` takes
# 1 ms; all modules would take 10.
# fmt: off
_MODULES = {{
{table}}}
# Other names of the same functions.
_ALIASES = {{
{packed("    ", [f'"{alias}": "{name}"' for alias, name in sorted(aliases().items())], ",")}}}
# fmt: on
_MODULE_OF = {{name: module for module, names in _MODULES.items() for name in names}}
__all__ = sorted([*_MODULE_OF, *_ALIASES])


def __getattr__(name: str) -> Any:
    if name == "memory":
        return import_module(".memory", __name__)
    known = _ALIASES.get(name, name)
    if known not in _MODULE_OF:
        raise AttributeError(f"module {{__name__!r}} has no attribute {{name!r}}")
    value = globals()[name] = getattr(import_module(f".{{_MODULE_OF[known]}}", __name__), known)
    return value


def __dir__() -> list[str]:
    return sorted({{*__all__, "memory", *(name for name in globals() if name.startswith("__"))}})
'''


def topics(names: dict[str, list[str]]) -> str:
    """The public names, a paragraph per topic."""
    listed = [name for group in TOPICS.values() for name in group.split()]
    public = [name for group in names.values() for name in group]
    if wrong := sorted({*listed} ^ {*public}) or [name for name in listed if listed.count(name) > 1]:
        raise SystemExit(f"function_topics.py must have each public name in one topic: {', '.join(wrong)}")
    text = ""
    for topic, group in TOPICS.items():
        with_aliases = (f"{name} ({', '.join(ALIASES[name])})" if name in ALIASES else name for name in group.split())
        text += textwrap.fill(f"- {topic}: {', '.join(with_aliases)}", 120, subsequent_indent="  ") + "\n"
    return text


def init_stub(names: dict[str, list[str]]) -> str:
    imports = "".join(packed(f"from .{module} import (", group, ")") for module, group in sorted(names.items()))
    module_of = {name: module for module, group in names.items() for name in group}
    also = "".join(f"from .{module_of[name]} import {name} as {alias}\n" for alias, name in sorted(aliases().items()))
    table = packed("__all__ = [", quoted(sorted([*module_of, *aliases()])), "]")
    head = f"{LICENSE}# {NOTE.format(source='it')}\n# fmt: off\n# ruff: noqa: I001, RUF022\n"
    return f"{head}from . import memory as memory\n{imports}{also}\n__version__: str\n{table}"


def aliases() -> dict[str, str]:
    """The name of the function that each alias is."""
    return {alias: name for name, group in ALIASES.items() for alias in group}


def version() -> str:
    """FLOWK_VERSION of flowk.h as text."""
    return ".".join(str(constant(f"FLOWK_VERSION_{part}")) for part in ("MAJOR", "MINOR", "PATCH"))


def generated() -> dict[str, str]:
    """The text of every generated file, by its path in the package."""
    rows = read_rows()
    files = {"_native/operations.py": operations(rows), "_elementwise/functions.py": functions(rows)}
    files |= {"_native/abi.py": abi(), "_native/c_functions.h": c_functions()}
    files["_jax/jax_functions.py"] = jax_functions(rows)
    names = {module: list(group) for module, group in OTHERS.items()}
    for module in sorted(FUNCTION_MODULES):
        path = f"{module.replace('.', '/')}.py"
        text = files.get(path) or (PACKAGE / path).read_text()
        files[f"{path}i"] = stub(path, text)
        names[module] = sorted(function.name for function in public_functions(text))
    return {**files, "__init__.py": init(names), "__init__.pyi": init_stub(names)}


def main() -> None:
    for path, text in generated().items():
        (PACKAGE / path).write_text(text)


if __name__ == "__main__":
    main()
