# SPDX-License-Identifier: Apache-2.0
"""The operations of flowk/elementwise_ops.h, and the elementwise functions that pyflowk has of them:
_native/operations.py and _elementwise/functions.py."""

from __future__ import annotations

import itertools
import re
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from function_names import ALIASES, FUNCTIONS, NOTES, TEXT_OF_ADD, WITHOUT_FUNCTION, Function, Parameter  # type: ignore[import-not-found, unused-ignore]
from function_topics import EXAMPLES, SEE_ALSO  # type: ignore[import-not-found, unused-ignore]
from generated_text import LICENSE, NOTE, WIDTH, folded, sections_of, wrapped  # type: ignore[import-not-found, unused-ignore]

HEADER = Path(__file__).resolve().parents[1] / "include" / "flowk" / "elementwise_ops.h"
ARITIES = ("Unary", "Binary", "Ternary")


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
