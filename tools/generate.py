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

import ast
import itertools
import re
import runpy
import sys
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parent))
from function_names import ALIASES, FUNCTIONS, NOTES, TEXT_OF_ADD, WITHOUT_FUNCTION, Function, Parameter  # type: ignore[import-not-found, unused-ignore]
from function_topics import EXAMPLES, JAX_EXAMPLES, SEE_ALSO, TOPICS  # type: ignore[import-not-found, unused-ignore]
from generate_abi import abi, c_functions, constant  # type: ignore[import-not-found, unused-ignore]
from generate_stubs import annotation, annotation_of, parameters_of, public_functions, stub  # type: ignore[import-not-found, unused-ignore]
from generated_text import LICENSE, NOTE, WIDTH, folded, packed, quoted, sections_of, wrapped  # type: ignore[import-not-found, unused-ignore]

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "pyflowk"
TABLE = runpy.run_path(str(PACKAGE / "_native" / "operator_table.py"))
FUNCTION_MODULES = {"_elementwise.functions", "_operators.permute_axes"}
FUNCTION_MODULES |= {operator.module for operator in TABLE["OPERATORS"].values()}
HEADER = ROOT / "include" / "flowk" / "elementwise_ops.h"
ARITIES = ("Unary", "Binary", "Ternary")

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


class Row(NamedTuple):
    """One OP() of the header."""

    arity: int
    enumerator: str
    value: int
    takes: str
    result: str
    num_parameters: int
    formula: str


def read_rows() -> list[Row]:
    """The operations of the header, in its order."""
    rows, text = [], HEADER.read_text()
    for arity, word in enumerate(ARITIES, 1):
        body = re.search(rf"#define FLOWK_{word.upper()}_OPS\(OP\)(.*?)\n\n", text, re.DOTALL)
        assert body
        for name, value, lower, takes, result, count, formula in re.findall(
            r'OP\((\w+), (\d+), (\w+), (\w+), (\w+), (\d), "(.*?)"\)', body[1]
        ):
            assert lower == name.lower()
            rows.append(Row(arity, name, int(value), takes, result, int(count), formula))
    return rows


# ---- _native/operations.py ------------------------------------------------------------------------------------------


def operations(rows: list[Row]) -> str:
    parts = [
        LICENSE,
        '"""The operations of flowk_unary(), flowk_binary() and flowk_ternary().\n\n',
        f'{NOTE.format(source=HEADER.name)}\n"""',
        "\n\nfrom enum import Enum\nfrom typing import NamedTuple\n",
    ]
    for arity, word in enumerate(ARITIES, 1):
        body = "".join(f"    {row.enumerator} = {row.value}\n" for row in rows if row.arity == arity)
        count = ("one operand", "two operands", "three operands")[arity - 1]
        text = f'    """`flowk_{word.lower()}_op`: an operation of {count}."""\n\n{body}'
        parts.append(f"\n\nclass {word}Op(Enum):\n{text}")
    parts.append('''

class Operation(NamedTuple):
    """One row of flowk/elementwise_ops.h.

    takes           types of the operands: B bool, I integers, F floats
    result          SAME as the operands', BOOL, or ANY that the caller asks for
    num_parameters  how many of the numbers a, b the formula has
    """

    takes: str
    result: str
    num_parameters: int
    formula: str


OPERATIONS: dict[UnaryOp | BinaryOp | TernaryOp, Operation] = {
''')
    for row in rows:
        value = f'"{row.takes}", "{row.result}", {row.num_parameters}, "{row.formula}"'
        parts.append(f"    {ARITIES[row.arity - 1]}Op.{row.enumerator}: Operation({value}),\n")
    return "".join(parts) + "}\n"


# ---- _elementwise/functions.py --------------------------------------------------------------------------------------


def types_text(row: Row) -> str:
    """The types that a function takes, as its text says them."""
    if row.enumerator == "DIVIDE":
        return "floats. Integers and bool are computed in float64."
    if row.enumerator in ("FLOOR", "CEIL", "ROUND", "TRUNC"):
        return "floats. Integers and bool stay as they are."
    if row.takes == "F":
        return "floats. Integers and bool are computed in the float that NumPy computes their common type in."
    if row.enumerator == "ABS":
        return "integers or floats. Bool stays as it is."
    if row.enumerator == "BITWISE_INVERT":
        return "bool or integers. With bool it is the logical not."
    words = [{"B": "bool", "I": "integers", "F": "floats"}[letter] for letter in row.takes]
    text = " or ".join(filter(None, (", ".join(words[:-1]), words[-1]))) + "."
    logical = {"ADD": "or", "MULTIPLY": "and"}.get(row.enumerator)
    return text + (f" With bool it is the logical {logical}." if logical else "")


def functions_of(rows: list[Row]) -> list[tuple[str, Row, Function]]:
    """The elementwise functions with their names, in the order of their operations."""
    of_operation: dict[str, list[tuple[str, Function]]] = {}
    for name, function in FUNCTIONS.items():
        of_operation.setdefault(function.operation, []).append((name, function))
    found = []
    for row in rows:
        if row.enumerator not in WITHOUT_FUNCTION:
            plain = Function(row.enumerator, row.formula, " ".join(("x", "y", "z")[: row.arity]))
            own = of_operation.get(row.enumerator, [(row.enumerator.lower(), plain)])
            found += [(name, row, function) for name, function in own]
    return found


def names_in(function: Function, marked: str = "") -> list[str]:
    """The operands and parameters of a function, or those with the mark "~", a number, or "=", an option."""
    words = function.words.split()
    return [word.rstrip("~=") for word in words if not marked or word.endswith(marked)]


def signature_of(function: Function, operand: str, types: dict[str, str]) -> list[str]:
    """The parameters with their types: `operand`, or its own with another name in `types`."""
    found = []
    for name in names_in(function):
        if name in function.parameters:
            kind, equals, default = function.parameters[name].declared.partition(" = ")
            found.append(f"{name}: {types.get(kind, kind)}{equals}{default}")
        else:
            found.append(f"{name}: {operand}")
    return found


def parameters_text(parameters: Mapping[str, Parameter]) -> str:
    """The section on parameters; neighbours that have one text are one entry."""
    text = ""
    for (kind, words), group in itertools.groupby(parameters.items(), key=lambda item: item[1][1:]):
        text += f"    {', '.join(name for name, _ in group)} : {kind}\n{wrapped(words, ' ' * 8)}"
    return text and f"\n    Parameters\n    ----------\n{text}"


def op_of(row: Row) -> str:
    return f"{ARITIES[row.arity - 1]}Op.{row.enumerator}"


def function_text(name: str, row: Row, function: Function) -> str:
    parameters = signature_of(function, "ArrayT" + (" | Numbers" if row.arity > 1 else ""), {})
    doc = f'    """``out = {function.formula}``, for every element{function.about}.\n\n'
    types = f"Takes {types_text(row)}" + (" The result is bool." if row.result == "BOOL" else "")
    types += "".join(f" {text}" for text in (NOTES.get(row.enumerator), also_called(name)) if text)
    if name == "add":
        doc += wrapped(types, "    ") + TEXT_OF_ADD
    else:
        as_in_add = [operand for operand in names_in(function) if operand not in function.parameters]
        doc += wrapped(f"{types} {', '.join(as_in_add)}, out, stream, result and errors: as in `add`.", "    ")
    doc += parameters_text(function.parameters) + sections_of(SEE_ALSO.get(name, {}), EXAMPLES.get(name))
    head = folded(f"def {name}(", [*parameters, *KEYWORDS], ") -> ArrayT:")
    both = f"_{name.upper()}.call if call_path.is_compiling() else _{name.upper()}.cached_call"
    call = textwrap.indent(folded(f"return ({both})(", [*names_in(function), "out", "stream"], ")", WIDTH - 4), "    ")
    return f'{head}\n{doc}    """\n{call}\n'


def path_text(name: str, row: Row, function: Function) -> str:
    """The CallPath of a function."""
    if not function.request:
        return f'_{name.upper()} = elementwise_path({op_of(row)}, "{function.words}")\n'
    takes_outs = ", takes_outs=True" if name == "cast" else ""
    return f'_{name.upper()} = call_path.CallPath("{function.words}", requests.{name}{takes_outs})\n'


def also_called(name: str) -> str:
    """The sentence that names a function's aliases; empty if it has none."""
    return f"Also called {' and '.join(ALIASES[name])}." if name in ALIASES else ""


KEYWORDS = ("*", "out: Array | None = None", "stream: Stream | None = None")


def functions(rows: list[Row]) -> str:
    found = functions_of(rows)
    return f'''{LICENSE}"""The elementwise functions.

{NOTE.format(source="flowk/elementwise_ops.h, or tools/function_names.py")}
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._calls import call_path
from .._native.operations import BinaryOp, TernaryOp, UnaryOp
from . import requests
from .call import elementwise_path

if TYPE_CHECKING:
    from .._typing import Array, ArrayT, DTypeLike, Number, Numbers, Stream

{"".join(path_text(*one) for one in found)}

''' + "\n\n".join(function_text(*one) for one in found)


# ---- _jax/jax_functions.py ------------------------------------------------------------------------------------------


def jax_functions(rows: list[Row]) -> str:
    found = [one for one in functions_of(rows) if one[0] != "positive"]
    operators = {name: operator for name, operator in TABLE["OPERATORS"].items() if operator.jax is not None}
    names = sorted([*(name for name, _, _ in found), *operators])
    modules = sorted({_jax_module(operator) for operator in operators.values()})
    texts = [
        *(jax_function_text(*one) for one in found),
        *(jax_operator_text(name, one) for name, one in operators.items()),
    ]
    return f'''{LICENSE}"""The functions of pyflowk.jax: operators and elementwise functions.

{NOTE.format(source="elementwise_ops.h, operator_table.py or tools/function_names.py")}
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from jax import Array
from jax.typing import ArrayLike

from .._elementwise import requests
from .._native.operations import BinaryOp, TernaryOp, UnaryOp
from .._operators.softmax_arguments import other_name
from .._typing import DTypeLike
from . import (
    eager,
{"".join(f"    {module},{chr(10)}" for module in modules)})
from .jax_elementwise import apply, apply_request, cast_to, parameter
from .jax_types import require_static

# fmt: off
# ruff: noqa: RUF022
{packed("__all__ = [", quoted(names), "]")}# fmt: on


''' + "\n\n".join(texts)


def _jax_module(operator: Any) -> str:
    """The module that has the function of JAX's arrays: jax_softmax for _operators.softmax."""
    return f"jax_{operator.module.rpartition('.')[2]}"


def jax_operator_text(name: str, operator: Any) -> str:
    """An operator for JAX's arrays, by the signature and the first line of its function in Python."""
    text = (PACKAGE / f"{operator.module.replace('.', '/')}.py").read_text()
    function = next(one for one in public_functions(text) if one.name == name)
    types = {"ArrayT": "ArrayLike", "Array": "ArrayLike", "Array | None": "ArrayLike | None", **(operator.jax or {})}
    parameters: list[str] = []
    arrays: list[str] = []
    others: list[str] = []
    for argument, default, is_keyword in parameters_of(function):
        jax_type = types.get(argument.arg, types.get(annotation_of(argument), annotation_of(argument)))
        if jax_type is None or argument.arg in TABLE["OF_MEMORY"]:
            continue
        if is_keyword and "*" not in parameters:
            parameters.append("*")
        parameters.append(f"{argument.arg}: {jax_type}" + ("" if default is None else f" = {ast.unparse(default)}"))
        (arrays if "ArrayLike" in jax_type else others).append(argument.arg)
    refusal = ""
    if function.args.kwarg is not None:
        parameters.append(f"**{function.args.kwarg.arg}: Any")
        refusal = (
            f"    if {function.args.kwarg.arg}:\n        raise other_name(next(iter({function.args.kwarg.arg})))\n"
        )
    result = re.sub("ArrayT|Any", lambda found: {"Any": "Array | None"}.get(found[0], "Array"), annotation(function))
    head = folded(f"def {name}(", parameters, f") -> {result}:").replace("'", '"')
    first_line = (ast.get_docstring(function) or "").split("\n")[0]
    doc = f'    """{first_line}\n\n    As `pyflowk.{name}`. {operator.jax_text}'.rstrip() + "\n"
    doc += sections_of({}, JAX_EXAMPLES.get(name)) + '    """\n'
    values = [f"({', '.join(arrays)}{',' if len(arrays) == 1 else ''})", *(f"{each}={each}" for each in others)]
    call = folded("return eager.call(", [f"{_jax_module(operator)}.{name}", *values], ")")
    return f"{head}\n{doc}{refusal}{textwrap.indent(call, '    ')}\n"


def jax_function_text(name: str, row: Row, function: Function) -> str:
    """Parameters are numbers of the compiled program, unless the arguments decide the operation."""
    types = {kind: "ArrayLike" for kind in ("Array | Number", "Number")} | {
        "Array | Numbers | None": "ArrayLike | None"
    }
    types |= {"DTypeLike | None": "DTypeLike"} | ({} if function.request else {"Number": "float"})
    parameters = [
        one.removesuffix(" = None") if "DTypeLike" in one else one for one in signature_of(function, "ArrayLike", types)
    ]
    head = folded(f"def {name}(", parameters, ") -> Array:")
    doc = f'    """``out = {function.formula}``, for every element{function.note}: as `pyflowk.{name}`.'
    sections = sections_of({}, JAX_EXAMPLES.get(name))
    doc += f'\n{sections}    """\n' if sections else '"""\n'
    names, numbers = names_in(function), names_in(function, "~")
    body = "".join(f'    require_static({option}, "{option}")\n' for option in names_in(function, "="))
    if name == "cast":
        body = "    return eager.call(cast_to, (x,), dtype=dtype)\n"
    elif function.request:
        body += f"    return apply_request(requests.{name}({', '.join(names)}))\n"
    else:
        operands = [one for one in names if one not in numbers]
        values = [f'parameter({op_of(row)}, {one}, "{one}")' for one in numbers]
        groups = [
            f"({', '.join(group)}{',' * (len(group) == 1)})" for group in (quoted(names), operands, values) if group
        ]
        body = f"    return apply({op_of(row)}, {', '.join(groups)})\n"
    return f"{head}\n{doc}{body}"


# ---- __init__ -------------------------------------------------------------------------------------------------------


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
