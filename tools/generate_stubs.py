# SPDX-License-Identifier: Apache-2.0
"""The stubs of pyflowk's modules, from their functions' signatures."""

from __future__ import annotations

import ast
import re

from generated_text import LICENSE, NOTE, packed  # type: ignore[import-not-found, unused-ignore]


def public_functions(text: str) -> list[ast.FunctionDef]:
    return [
        node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
    ]


def stub(path: str, text: str) -> str:
    """The public functions' types. The result is of the first array's kind: one overload for NumPy's arrays and
    lists, one for any other first array, and for several operands one for a number before the array."""
    functions = public_functions(text)
    body = "".join(map(stub_of, functions))
    types = ("Array", "ArrayT", "DTypeLike", "Number", "Numbers", "Stream")
    imported = [name for name in types if re.search(rf"\b{name}\b", body)]
    lines = [LICENSE, f"# {NOTE.format(source=path.rpartition('/')[2])}\n", "# fmt: off\n"]
    collections = [name for name in ("Iterable", "Sequence") if f"{name}[" in body]
    if collections:
        lines.append(f"from collections.abc import {', '.join(collections)}\n")
    literal = "Literal, " if "Literal[" in body else ""
    lines.append(f"from typing import Any, {literal}overload\n\nfrom numpy.typing import NDArray\n\n")
    lines.append(f"from .._typing import {', '.join(imported)}\n\n")
    return "".join(lines) + body


def stub_of(function: ast.FunctionDef) -> str:
    result, star = annotation(function), function.args.vararg
    parts: list[str] = []
    for argument, default, is_keyword in parameters_of(function):
        if is_keyword and not any(part.startswith("*") for part in parts):
            parts.append(f"*{declared(star, None)}" if star else "*")
        parts.append(declared(argument, default))

    def signature(arrays: list[str], returned: str) -> str:
        """With arrays[i] for the type variable of the i-th parameter that has it, the last one for all others."""
        typed, used = [], 0
        for part in parts:
            if "ArrayT" in part:
                array = arrays[min(used, len(arrays) - 1)]
                or_numbers = r"( \| Numbers)?" if array in ("ArrayT", "Number") else ""
                part = re.sub(rf"\bArrayT{or_numbers}\b", array, part)
                used += 1
            typed.append(part if arrays == ["NDArray[Any]"] else re.sub(r"\bNumbers\b", "Number", part))
        text: str = packed(f"def {function.name}(", typed, f") -> {returned}: ...")
        return text

    second = [part for part in parts if part in ("return_lse: bool = ...", "return_dsinks: bool = ...")]
    if second:  # if it is True the result is two arrays
        plain, both = result.split(" | ")
        switch, name = parts.index(second[0]), second[0].partition(":")[0]
        texts = []
        for array, others in (("NDArray[Any]", ["NDArray[Any]"]), ("ArrayT", ["ArrayT", "Array"])):
            for value, returned in (("Literal[False] = ...", plain), ("Literal[True]", both)):
                parts[switch] = f"{name}: {value}"
                texts.append("@overload\n" + signature(others, re.sub(r"\bArrayT\b", array, returned)))
        return "".join(texts)
    num_operands = sum("ArrayT" in part for part in parts)
    if num_operands == 0:
        return signature([""], result)
    texts = [signature(["NDArray[Any]"], re.sub(r"\bArrayT\b", "NDArray[Any]", result))]
    texts.append(signature(["ArrayT", "Array"], result))
    if num_operands > 1:
        texts.append(signature(["Number", "ArrayT", "Array"], result))
    return "".join("@overload\n" + text for text in texts)


def declared(argument: ast.arg, default: ast.expr | None) -> str:
    return f"{argument.arg}: {annotation_of(argument)}" + ("" if default is None else " = ...")


def parameters_of(function: ast.FunctionDef) -> list[tuple[ast.arg, ast.expr | None, bool]]:
    """(parameter, default, whether it is passed by name alone), without *parameters."""
    parameters = function.args
    defaults = [None] * (len(parameters.args) - len(parameters.defaults)) + list(parameters.defaults)
    return [
        *((argument, default, False) for argument, default in zip(parameters.args, defaults)),
        *((argument, default, True) for argument, default in zip(parameters.kwonlyargs, parameters.kw_defaults)),
    ]


def annotation(function: ast.FunctionDef) -> str:
    """The type of the result."""
    return ast.unparse(function.returns) if function.returns else "Any"


def annotation_of(argument: ast.arg) -> str:
    return ast.unparse(argument.annotation) if argument.annotation else "Any"
