# SPDX-License-Identifier: Apache-2.0
"""Writes a file of cases as C++ initializers: `generate_cases.py OP_cases.json OP_cases.inc`.

A case is an object whose keys are fields of the test's struct, in the struct's order. A string whose key ends with
`dtype` or `dtypes` is a flowk_dtype.
"""

import json
import sys
from pathlib import Path
from typing import Any


def initializer(value: Any, key: str = "") -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f".{name} = {initializer(field, name)}" for name, field in value.items()) + "}"
    if isinstance(value, list):
        return "{" + ", ".join(initializer(element, key) for element in value) + "}"
    return f"FLOWK_{value.upper()}" if key.endswith(("dtype", "dtypes")) else json.dumps(value)


if __name__ == "__main__":
    cases = json.loads(Path(sys.argv[1]).read_text())
    Path(sys.argv[2]).write_text("".join(f"{initializer(case)},\n" for case in cases))
