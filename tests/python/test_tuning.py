# SPDX-License-Identifier: Apache-2.0
"""The tuning tables in C++ are those of the JSON files in bench/tuning/."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from source_tree import ROOT, tool_at

TUNING = ROOT / "bench" / "tuning"
SOURCES = sorted(TUNING.glob("*.json"))


@pytest.fixture(scope="module")
def generator() -> Any:
    return tool_at("bench/tuning/generate_tuning.py")


def test_generating_gives_the_files_that_are_checked_in(generator: Any) -> None:
    stale = [str(path) for path, text in generator.outputs().items() if path.read_text() != text]
    assert not stale, "run python bench/tuning/generate_tuning.py"


def test_every_kind_of_value_is_written_as_cpp(generator: Any, tmp_path: Path) -> None:
    whole = {
        "constants": {
            "a": {"type": "float", "value": 1.5},
            "b": {"type": "double", "value": 1.5},
            "c": {"type": "Costs", "value": {"x": 0.25, "y": True, "z": None}},
        },
        "tables": {"d": {"type": "Row", "fields": ["n", "x", "y"], "rows": [["INT64_MAX", None, 2], [1, 0.5]]}},
    }
    source = tmp_path / "operator_gpu.json"
    source.write_text(json.dumps(whole))
    assert generator.text_of(source).splitlines()[2:] == [
        "constexpr float a = 1.5f;",
        "constexpr double b = 1.5;",
        "constexpr Costs c = {.x = 0.25f, .y = true};",
        "constexpr Row d[] = {",
        "    {.n = INT64_MAX, .y = 2},",
        "    {.n = 1, .x = 0.5f},",
        "};",
    ]
    assert generator.measured("case", {"pick": 0.98765}) == '"case": {"pick": 0.988}'


# Speeds as fractions, times, and how much slower or faster.
FIGURE = re.compile(
    r"(\b[01]\.\d+(-[\d.]+)? (of (a )?(copy|memcpy)|reach)|\b(reach(es)?|lost|gains?) [\d.]*\d|\d ?[mun]s\b|\(H200\)"
    r"|\d ?% (slower|faster)|\b(costs?|loses) [^.;,]*?\d ?%|\b(half|third|quarter|fifth|tenth) (slower|faster)"
    r"|\d instructions for \d|\bwas (slower|faster))"
)
# In the comments of plans, every such number is a figure.
PLAN_FIGURE = re.compile(r"(\b[01]\.\d|\d ?us\b|\d ?% (slower|faster))")
LICENSE = "// SPDX-License-Identifier: Apache-2.0\n"


def comments_of(text: str) -> list[str]:
    """The comments of a source; lines that follow each other are one."""
    lines = [re.search(r"//+ ?(.*)", line) for line in text.removeprefix(LICENSE).splitlines()]
    joined = "\n".join(line[1] if line else "" for line in lines)
    return [comment.replace("\n", " ") for comment in re.split(r"\n{2,}", joined)]


def figures_of(path: Path) -> list[str]:
    is_plan = "plan" in path.parts or path.match("cuda/*/*.h")
    comments = comments_of(path.read_text())
    return [comment for comment in comments if FIGURE.search(comment) or (is_plan and PLAN_FIGURE.search(comment))]


@pytest.mark.parametrize(
    ("comment", "is_figure"),
    [
        ("one pack reaches 1.00 of a memcpy", True),
        ("2 packs per\n// thread reach 0.53-0.67 of a copy", True),
        ("128 are 1-2% slower", True),
        ("it takes 3 us", True),
        ("a barrier costs a softmax\n// 5 to 13 %", True),
        ("the compiler takes 72 and loses 10-17%", True),
        ("dealing them in turn is a tenth slower", True),
        ("worth more than the instructions (H200).", True),
        ("Half a warp was slower: 623 instructions for 32 vectors", True),
        ("at least 90 % full", False),
        ("to 0.88 units in the last place", False),
        ("An H200 holds 30 clusters of 4 blocks", False),
    ],
)
def test_a_figure_is_told_from_other_numbers(tmp_path: Path, comment: str, is_figure: bool) -> None:
    assert any(FIGURE.search(found) for found in comments_of(f"int n;\n// {comment}\nfloat x = 0.5f;")) == is_figure


def test_figures_stand_in_the_tuning_files_alone() -> None:
    sources = [path for top in ("cuda", "include") for path in (ROOT / top).rglob("*") if path.is_file()]
    figures = {str(path): figures_of(path) for path in sources if path.suffix in (".h", ".cuh", ".cpp", ".cu")}
    assert {path: found for path, found in figures.items() if found} == {}


def plan_sources(operator: str) -> list[Path]:
    folder = ROOT / "cuda" / operator
    return [*folder.glob("*.h"), *(path for path in folder.glob("plan/**/*") if path.suffix in (".h", ".cpp"))]


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_every_generated_name_is_used(source: Path) -> None:
    operator, _, _ = source.stem.partition("_")
    tuning = json.loads(source.read_text())
    names = [*tuning.get("tables", {}), *tuning.get("constants", {})]
    everything = "\n".join(path.read_text() for path in plan_sources(operator))
    assert [name for name in names if not re.search(rf"\b{name}\b", everything)] == []


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_every_table_says_why_and_its_measurements_are_of_its_rows(source: Path) -> None:
    tuning = json.loads(source.read_text())
    assert tuning["gpu"] and tuning["unit"]
    for name, table in tuning.get("tables", {}).items():
        assert table["why"], name
        first_fields = {str(row[0]) for row in table["rows"]}
        assert len(first_fields) == len(table["rows"]), name
        assert set(table.get("measured", {})) <= first_fields, name
    for name, constant in tuning.get("constants", {}).items():
        assert constant["why"], name
    for name, rule in tuning.get("rules", {}).items():
        assert rule["why"] and rule["measured"], name


@pytest.mark.parametrize("source", SOURCES, ids=lambda path: path.stem)
def test_every_row_has_the_commit_and_the_date_of_its_figures(source: Path) -> None:
    tuning = json.loads(source.read_text())
    for section in ("tables", "constants", "rules"):
        for name, entry in tuning.get(section, {}).items():
            rows = entry.get("measured", {}).values() if section == "tables" else ()
            for dated in (entry, *(row for row in rows if "commit" in row or "date" in row)):
                assert re.fullmatch(r"[0-9a-f]{7}", dated.get("commit", "")), name
                assert re.fullmatch(r"\d{4}-\d\d-\d\d", dated.get("date", "")), name
