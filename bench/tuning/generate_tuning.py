# SPDX-License-Identifier: Apache-2.0
"""Writes cuda/OPERATOR/plan/OPERATOR_tuning.inc from each bench/tuning/OPERATOR_GPU.json, which has this form:

    {
      "gpu": "...", "unit": "...",
      "tables": {NAME: {"type": C++ TYPE, "fields": [...], "rows": [[...]], ...}},
      "constants": {NAME: {"type": C++ TYPE, "value": ..., ...}},
      "rules": {NAME: {...}}
    }

where ... is "why": "...", "commit": "...", "date": "...", "measured": {...}.

A row gives its fields in order. A null, or a field at the end that is not given, keeps its default. A constant may be
an object: a struct's fields by name. A string is a C++ expression; a real number is a float, or a double where that is
the constant's type. "measured" is for readers: the figures that the value was chosen by, in a table by the first field
of a row, in the form in which bench/tune_*.py print them. A rule is code with figures and without a number of its own.
"commit" and "date" are those at which the figures were measured, or came into the repository; rows of a table that have
others say so in "measured".
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

TUNING = Path(__file__).parent
CUDA = TUNING.parents[1] / "cuda"


def measured(case: str, fractions: Mapping[str, float]) -> str:
    """The figures of one case, to be copied into a "measured"."""
    return json.dumps({case: {name: round(fraction, 3) for name, fraction in fractions.items()}})[1:-1]


def value_of(value: Any, cpp_type: str = "float") -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return struct_of(value.items())
    return str(value) + ("f" if isinstance(value, float) and cpp_type == "float" else "")


def struct_of(fields: Iterable[tuple[str, Any]]) -> str:
    return "{" + ", ".join(f".{field} = {value_of(value)}" for field, value in fields if value is not None) + "}"


def row_of(fields: list[str], values: list[Any]) -> str:
    if len(values) > len(fields):
        raise ValueError(f"{values} has more values than {fields}")
    return f"    {struct_of(zip(fields, values))},"


def text_of(source: Path) -> str:
    """The .inc file of a JSON file."""
    tuning = json.loads(source.read_text())
    lines = [
        "// SPDX-License-Identifier: Apache-2.0",
        f"// Made by bench/tuning/generate_tuning.py from bench/tuning/{source.name}, which says why. Do not edit.",
    ]
    lines += [
        f"constexpr {constant['type']} {name} = {value_of(constant['value'], constant['type'])};"
        for name, constant in tuning.get("constants", {}).items()
    ]
    for name, table in tuning.get("tables", {}).items():
        lines.append(f"constexpr {table['type']} {name}[] = {{")
        lines += [row_of(table["fields"], row) for row in table["rows"]]
        lines.append("};")
    return "\n".join(lines) + "\n"


def outputs() -> dict[Path, str]:
    """Each .inc file with the text that it must have."""
    found = {}
    for source in sorted(TUNING.glob("*.json")):
        operator = source.stem.partition("_")[0]
        found[CUDA / operator / "plan" / f"{operator}_tuning.inc"] = text_of(source)
    return found


if __name__ == "__main__":
    for path, text in outputs().items():
        path.write_text(text)
