# SPDX-License-Identifier: Apache-2.0
"""_jax/jax_functions.py: the operators of _native/operator_table.py and the elementwise functions, for JAX's arrays."""

from __future__ import annotations

import ast
import re
import runpy
import textwrap
from pathlib import Path
from typing import Any

from function_names import Function  # type: ignore[import-not-found, unused-ignore]
from function_topics import JAX_EXAMPLES  # type: ignore[import-not-found, unused-ignore]
from generate_elementwise import Row, functions_of, names_in, op_of, signature_of  # type: ignore[import-not-found, unused-ignore]
from generate_stubs import annotation, annotation_of, parameters_of, public_functions  # type: ignore[import-not-found, unused-ignore]
from generated_text import LICENSE, NOTE, folded, packed, quoted, sections_of  # type: ignore[import-not-found, unused-ignore]

PACKAGE = Path(__file__).resolve().parents[1] / "pyflowk"
TABLE = runpy.run_path(str(PACKAGE / "_native" / "operator_table.py"))


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
