# SPDX-License-Identifier: Apache-2.0
"""bench/results.py: RESULTS.md and README's table from runs, and that the files in the repository agree."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from invented_run import invented_run
from source_tree import ROOT, tool_at

results = tool_at("bench/results.py")


def rows() -> list[dict[str, Any]]:
    return json.loads((ROOT / "bench" / "results" / "rows.json").read_text())["rows"]


def table_of(text: str) -> str:
    """The table that begins with the column `work`."""
    return text[text.index("| work |") :].partition("\n\n")[0].replace(f"\n{results.END}", "")


def test_readme_and_results_agree() -> None:
    run = json.loads((ROOT / "bench" / "results" / "rows.json").read_text())
    readme, page = (ROOT / "README.md").read_text(), (ROOT / "bench" / "RESULTS.md").read_text()
    assert results.readme_text(readme, run["rows"]) == readme
    assert results.results_text(run) == page
    chosen = set(results.speed_table(run["rows"], results.CHOSEN).splitlines())
    assert len(chosen) == len(results.CHOSEN) + 2 and chosen <= set(page.splitlines())
    assert (ROOT / "bench" / "results" / "overview.svg").exists()


def test_readme_s_first_sentence_has_the_figures_of_its_table() -> None:
    readme = (ROOT / "README.md").read_text()
    times = {
        line.work: f"{results.compared(results.fractions_of(line, rows()), 'torch').faster:.1f}"
        for line in results.TASKS
    }
    first = " ".join(readme.partition("\n\n")[2].partition("\n\n")[0].split())
    permute, gradients = times[results.TASKS[0].work], times["the gradients of PReLU"]
    mask = min(float(times[f"softmax with a {work}"]) for work in ("dense mask", "length per row"))
    assert f"transposes run {permute} times as fast as PyTorch's, softmax with a mask {int(mask)} times" in first
    assert first.endswith(f"the gradients of PReLU {gradients} times.")


def test_the_page_on_speed_counts_the_cases_that_pytorch_wins() -> None:
    page = " ".join((ROOT / "docs" / "pages" / "speed.md").read_text().split())
    line = next(line for line in results.TABLE if line.sets == ("slices:7",))
    one = results.compared(results.fractions_of(line, rows()), "torch")
    assert f"Of the {one.count} cases on halves of rows, PyTorch wins {one.behind}:" in page


def test_every_line_of_the_table_has_a_set_of_the_results() -> None:
    for line in (*results.TABLE, *results.TASKS):
        module, _ = results.OPERATORS[line.op]
        assert set(line.sets) <= set(module.RESULT_SETS), line
    assert [line.work for line in results.TABLE] == [
        line.split("|")[1].strip() for line in table_of((ROOT / "bench" / "RESULTS.md").read_text()).splitlines()[2:]
    ]
    assert set(results.CHOSEN) <= {line.work for line in results.TABLE}


def test_a_line_compares_the_best_libraries_over_their_own_cases() -> None:
    cases = [
        {"flowk": 0.25, "torch": 0.1, "cupy": 0.9},
        {"flowk": 1.0, "torch": 0.4, "cutensor": 0.5},
        {"flowk": 0.4, "torch": 0.4, "cutensor": 0.5},
    ]
    rows = [{"op": "permute", "set": "views", "fractions": fractions} for fractions in cases]
    # cuTENSOR takes most cases and is the fastest of the libraries that do; CuPy, of one case, is faster than cuTENSOR.
    assert results.speed_table(rows).splitlines()[2:] == [
        "| permute of strided views | 3 | 0.46, 0.25 | 0.50 cuTENSOR, flowk 0.63; 0.90 CuPy, flowk 0.25 "
        "| 1 of 2; 0 of 1 | 1; 1 |"
    ]
    assert results.task_table(rows).splitlines()[2:] == ["| ... of slices and other strided views | 1.8 | 2 of 3 |  |"]
    assert results.compared([{"flowk": 1.0}], "torch") is None


def test_later_runs_replace_cases_of_earlier_ones() -> None:
    run = invented_run()
    again = {"machine": run["machine"] | {"command": "again"}, "rows": [run["rows"][0] | {"right": False}]}
    found = results.merged([run, again])
    assert len(found["rows"]) == len(run["rows"]) and found["rows"][0]["right"] is False
    assert found["machine"]["command"] == f"{run['machine']['command']}\nagain"
    assert results.merged([found]) == found
    assert len(results.merged([{"machine": run["machine"], "rows": [run["rows"][0]] * 2}])["rows"]) == 2


def test_commands_name_no_folder_of_the_machine() -> None:
    run = invented_run()
    run["machine"]["command"] = (
        "python -m pyflowk bench --op permute --json /root/out/a.json --html=/home/me/b.html --compare bench/c.json\n"
        "python -m pyflowk bench permute f16 4x5 1,0 --plot ~/d.png"
    )
    assert results.merged([run])["machine"]["command"] == (
        "python -m pyflowk bench --op permute --json a.json --html=b.html --compare bench/c.json\n"
        "python -m pyflowk bench permute f16 4x5 1,0 --plot d.png"
    )
    for path in (*(ROOT / "bench").rglob("*.json"), *(ROOT / "bench").rglob("*.md")):
        assert not re.search(r"/(root|home|tmp|work|mnt|Users)/", path.read_text()), path


def test_all_files_are_written_and_agree(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    readme = tmp_path / "README.md"
    marks = [f"{results.BEGIN.format(name)}\nold\n{results.END}\n" for name in ("tasks", "speed")]
    readme.write_text(f"before\n{marks[0]}between\n{marks[1]}after\n")
    results.write(results.merged([invented_run()]), tmp_path)
    page = (tmp_path / "bench" / "RESULTS.md").read_text()
    written = readme.read_text()
    assert "old" not in written and "between" in written and written.endswith("after\n")
    assert written.count("| softmax with a dense mask |") == 2 and "| softmax with a dense mask |" in table_of(page)
    assert results.results_text(json.loads((tmp_path / "bench" / "results" / "rows.json").read_text())) == page
    assert all((tmp_path / "bench" / "results" / f"{name}.svg").exists() for name in ("overview", "permute", "softmax"))
    assert "## The articles" in page and "A100" in page
    with pytest.raises(ValueError, match="README has no"):
        results.with_table("", "speed", "table")
