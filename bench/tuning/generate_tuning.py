# SPDX-License-Identifier: Apache-2.0
"""Writes cuda/OPERATOR/plan/OPERATOR_tuning.inc from each bench/tuning/OPERATOR_GPU.json, which has this form:

    {
      "gpu": "...", "commit": "...", "unit": "...",
      "tables": {NAME: {"type": C++ TYPE, "why": "...", "fields": [...], "rows": [[...]], "measured": {...}}},
      "constants": {NAME: {"type": C++ TYPE, "value": ..., "why": "...", "measured": ...}},
      "rules": {NAME: {"why": "...", "measured": ...}}
    }

A row gives its fields in order. A null, or a field at the end that is not given, keeps its default. A string is a C++
expression. "measured" is for readers: by the first field of a row, the figures that the row was chosen by. A rule is
code with figures and without a number of its own.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

TUNING = Path(__file__).parent
CUDA = TUNING.parents[1] / "cuda"


def value_of(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)


def row_of(fields: list[str], values: list[Any]) -> str:
    if len(values) > len(fields):
        raise ValueError(f"{values} has more values than {fields}")
    given = [f".{field} = {value_of(value)}" for field, value in zip(fields, values) if value is not None]
    return f"    {{{', '.join(given)}}},"


def text_of(source: Path) -> str:
    """The .inc file of a JSON file."""
    tuning = json.loads(source.read_text())
    lines = [
        "// SPDX-License-Identifier: Apache-2.0",
        f"// Made by bench/tuning/generate_tuning.py from bench/tuning/{source.name}, which says why. Do not edit.",
    ]
    lines += [
        f"constexpr {constant['type']} {name} = {value_of(constant['value'])};"
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
