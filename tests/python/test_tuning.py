# SPDX-License-Identifier: Apache-2.0
"""The tuning tables in C++ are those of the JSON files in bench/tuning/."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
from source_tree import ROOT

TUNING = ROOT / "bench" / "tuning"
SOURCES = sorted(TUNING.glob("*.json"))


def test_generating_gives_the_files_that_are_checked_in() -> None:
    spec = importlib.util.spec_from_file_location("generate_tuning", TUNING / "generate_tuning.py")
    assert spec and spec.loader
    generate = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generate)
    stale = [str(path) for path, text in generate.outputs().items() if path.read_text() != text]
    assert not stale, "run python bench/tuning/generate_tuning.py"


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_every_table_says_why_and_its_measurements_are_of_its_rows(source: Path) -> None:
    tuning = json.loads(source.read_text())
    assert tuning["gpu"]
    for name, table in tuning.get("tables", {}).items():
        assert table["why"], name
        first_fields = {str(row[0]) for row in table["rows"]}
        assert len(first_fields) == len(table["rows"]), name
        assert set(table.get("measured", {})) <= first_fields, name
    for name, constant in tuning.get("constants", {}).items():
        assert constant["why"], name
