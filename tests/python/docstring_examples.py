# SPDX-License-Identifier: Apache-2.0
"""Runs the examples in the texts of public functions and classes."""

from __future__ import annotations

import doctest
from types import ModuleType
from typing import Any


def names_with_examples(module: ModuleType) -> set[str]:
    """The public names of a module that have an example, without other names of the same function."""
    values = {name: getattr(module, name) for name in module.__all__}
    return {name for name, value in values.items() if ">>>" in (value.__doc__ or "") and value.__name__ == name}


def check_examples(name: str, value: Any, **names: Any) -> None:
    """Each output is exactly as the text has it."""
    (test,) = doctest.DocTestFinder(recurse=False).find(value, name, module=False, globs=names)
    assert test.examples, f"{name} has no example"
    lines: list[str] = []
    result = doctest.DocTestRunner(verbose=False).run(test, out=lines.append)
    assert result.failed == 0, "".join(lines)
    assert result.attempted == len(test.examples)
