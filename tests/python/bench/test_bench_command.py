# SPDX-License-Identifier: Apache-2.0
"""`python -m pyflowk bench` without a GPU: arithmetic, options, reports, and that it refuses to time the executor."""

from __future__ import annotations

import argparse
import ctypes.util
import json
import math
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from host_machine import HostMachine
from source_tree import ROOT

from pyflowk._bench import (
    articles,
    elementwise_work,
    measure,
    page,
    permute_work,
    plot,
    prelu_work,
    report,
    softmax_work,
)
from pyflowk._commands import bench


def row_of(kind: str, fraction: float, **more: Any) -> measure.Row:
    row = {
        "op": "permute", "set": "practice", "kind": kind, "types": "f16", "shape": "2x3 1,0", "note": "", "part": "",
        "right": True, "plan": "copy_rows: a reason", "read_bytes": 1 << 20, "written_bytes": 1 << 20, "gb_s": 2000.0,
        "touched_bytes": 768 << 20,
        "spread": 0.01, "datasheet": 0.5, "us": {"flowk": 4.0, "torch": 8.0}, "skipped": {},
        "fractions": {"flowk": fraction, "torch": fraction / 2},
    }  # fmt: skip
    return row | more


def test_medians_spread_and_fractions() -> None:
    rounds = {"memcpy": [3.0, 1.0, 2.0], "copy": [4.0, 4.0, 4.0], "flowk": [4.0, 2.0, 6.0, 4.0, 5.0], "torch": [8.0]}
    row = measure.figures_of(8_000_000_000, rounds, 4.0)
    assert row["fractions"] == {"flowk": 0.5, "torch": 0.25}
    assert (row["copy_us"], row["own_copy"], row["gb_s"], row["datasheet"]) == (2e6, 0.5, 2.0, 0.5)
    assert row["spread"] == (5.0 - 4.0) / 2 / 4.0  # the quartiles of 2 4 4 5 6
    assert "datasheet" not in measure.figures_of(1, rounds, None)


def test_geomean() -> None:
    assert measure.geomean([0.5, 2.0]) == pytest.approx(1)
    assert math.isnan(measure.geomean([]))


def test_a_set_is_summed_up() -> None:
    wrong = row_of("c", 0.9, right=False)
    del wrong["fractions"]
    second = row_of("b", 1.0, fractions={"flowk": 1.0})
    (found,) = measure.summaries([row_of("a", 0.25), second, wrong])
    assert (found["set"], found["cases"], found["right"]) == ("permute practice", 3, 2)
    assert (found["geomean"], found["worst"], found["rivals"]) == (
        pytest.approx(0.5),
        0.25,
        pytest.approx({"torch": 0.125}),
    )


def test_slower_cases_are_found_and_others_are_not() -> None:
    old = [row_of("a", 0.9), row_of("b", 0.9), row_of("c", 0.9), row_of("gone", 0.9)]
    wrong = row_of("c", 0.9, right=False)
    del wrong["fractions"]
    new = [row_of("a", 0.9 / 1.049), row_of("b", 0.9 / 1.051), wrong, row_of("new", 0.1)]
    assert [(name.split()[1], now) for name, _, now in measure.slowdowns(new, old)] == [("b", 0.9 / 1.051), ("c", 0.0)]


def options_of(words: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    bench.add_arguments(parser)
    return parser.parse_args(words)


def run(words: Sequence[str], machine: Any = None) -> int:
    return bench.run_bench(options_of(words), machine or HostMachine())


def cases_of(*words: str) -> list[Any]:
    return bench._cases(options_of(words))


def test_an_operator_alone_is_its_first_set() -> None:
    assert cases_of("permute") == cases_of("--op", "permute", "--set", "practice") != []
    assert cases_of("softmax", "--set", "dense") == cases_of("--op", "softmax", "--set", "dense")


def test_types_may_have_the_names_of_numpy() -> None:
    for long, short in {
        "permute uint8>float16 8x9x10x3 0,3,1,2": "permute u8>f16 8x9x10x3 0,3,1,2",
        "elementwise add float32,float16,float32 40": "elementwise add f32,f16,f32 40",
        "softmax plain bfloat16 40x33": "softmax plain bf16 40x33",
    }.items():
        assert cases_of(*long.split()) == cases_of(*short.split())


def test_a_planted_slowdown_fails_the_comparison(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    case, old = ["softmax", "plain", "f32", "40x33"], str(tmp_path / "old.json")
    assert run([*case, "--json", old]) == 0
    assert run([*case, "--compare", old]) == 0

    class Slowed(HostMachine):
        """Its third contender, flowk, takes 6 % longer than the copies."""

        def seconds(self, replay: Any) -> float:
            super().seconds(replay)
            return 1.06e-3 if len(self.replays) % 3 == 0 else 1e-3

    assert run([*case, "--compare", old], Slowed()) == 1
    assert "SLOWER softmax plain f32" in capsys.readouterr().out


def test_an_older_library_is_a_rival_of_the_same_calls(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    case = ["softmax", "bias", "f32", "40x33", "--rivals", "old"]
    assert run(case) == 0 and "not here  old" in capsys.readouterr().out
    monkeypatch.setenv("FLOWK_OLD_LIBRARY", str(HostMachine().c._name))
    assert run(case) == 0 and "old library: 0 of 1 cases" in capsys.readouterr().out

    class Slowed(HostMachine):
        """Its third contender, flowk, takes 4 % longer than the fourth."""

        def seconds(self, replay: Any) -> float:
            super().seconds(replay)
            return 1.04e-3 if len(self.replays) % 4 == 3 else 1e-3

    assert run(case, Slowed()) == 1 and "SLOWER softmax bias f32" in capsys.readouterr().out


def test_a_library_without_the_function_is_no_rival(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FLOWK_OLD_LIBRARY", ctypes.util.find_library("c") or "")
    assert run(["permute", "f16", "3x4", "1,0", "--rivals", "old"]) == 0
    assert "no old: AttributeError" in capsys.readouterr().out


def test_runs_without_a_common_case_are_no_comparison(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old = str(tmp_path / "old.json")
    assert run(["softmax", "plain", "f32", "40x33", "--json", old]) == 0
    assert run(["softmax", "plain", "f32", "40x34", "--compare", old]) == 1
    assert "0 of 0 cases" in capsys.readouterr().out


def test_the_command_is_recorded_without_the_folders_of_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["softmax", "plain", "f32", "40x33", "--json", str(tmp_path / "new.json")]
    monkeypatch.setattr(sys, "argv", ["pyflowk", "bench", *words])
    assert run(words) == 0
    recorded = json.loads((tmp_path / "new.json").read_text())["machine"]["command"]
    assert recorded == "python -m pyflowk bench softmax plain f32 40x33 --json new.json"


@pytest.mark.parametrize(
    "text", ["no json", "[]", "3", "{}", '{"rows": []}', '{"machine": {}, "rows": [{"fractions": {}}]}', "\udcff"]
)
def test_a_file_that_no_bench_wrote_is_named_before_the_run(text: str, tmp_path: Path) -> None:
    old = tmp_path / "old.json"
    old.write_bytes(text.encode(errors="surrogateescape"))
    machine = HostMachine()
    with pytest.raises(ValueError, match=rf"^--compare {re.escape(str(old))}: not a file that `bench --json` wrote"):
        run(["softmax", "plain", "f32", "40x33", "--compare", str(old)], machine)
    assert machine.replays == []


def test_rivals_that_are_not_installed_are_named_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench, "is_installed", lambda name: name not in ("cupy", "quack"))
    assert run(["softmax", "plain", "f32", "40x33", "--rivals", "cupy,quack,jit"]) == 0
    text = capsys.readouterr().out
    assert "not here  cupy, quack" in text and text.count("quack") == 1 and "no jit: Unsuitable" in text


def test_a_wrong_result_fails(capsys: pytest.CaptureFixture[str]) -> None:
    class Broken(HostMachine):
        def download(self, pointer: int, num_bytes: int) -> Any:
            found = super().download(pointer, num_bytes).copy()
            found[-1] ^= 0x7F
            return found

    assert run(["permute", "f32", "30x40", "1,0"], Broken()) == 1
    assert "WRONG" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["permute", "f99", "3x4", "1,0"], "f99"),
        (
            ["permute", "f32", "3x4", "1,2"],
            r"^'f32 3x4 1,2' is no case; .* \(axes = '1,2', must name each of 0 ... 1 once\)$",
        ),
        (["permute", "f32", "3x-4", "1,0"], r"\(shape = '3x-4', must be integers with x between them\)$"),
        (["permute", "f32", "3x4"], r"^'f32 3x4' is no case; permute takes f16 32x512x16x64 0,2,1,3, or [^()]*$"),
        (
            ["softmax", "f32", "3x4"],
            r"^'f32 3x4' is no case; softmax takes KIND TYPE BxHxQxK or KIND TYPE ROWSxCOLUMNS$",
        ),
        (["prelu", "f32", "3x4"], "NxCxHxW"),
        (["transpose", "f32"], "begins with one of"),
        (["elementwise", "nothing", "f32", "3"], "must be one of"),
        (["--set", "nothing"], "--set nothing"),
        (["--op", "prelu", "--set", "practice"], "no set of prelu"),
        (["--op", "prelu,nothing"], "--op nothing"),
        (["--json", "nowhere/run.json"], "no folder nowhere"),
        (["--rivals", "nobody", "permute", "f16", "3x4", "1,0"], "--rivals nobody"),
    ],
)
def test_bad_arguments_are_named(arguments: list[str], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        run(arguments)


def test_sets_are_chosen_by_name_and_operator() -> None:
    def chosen(*words: str) -> dict[tuple[str, str], int]:
        return Counter((case.op, case.set) for case in cases_of(*words))

    main = {
        ("permute", "practice"): 37,
        ("elementwise", "anchors"): 12,
        ("prelu", "nchw"): 32,
        ("softmax", "plain"): 34,
        ("cross_entropy", "vocabularies"): 24,
    }
    assert chosen() == main
    assert {op for op, _ in chosen("--op", "prelu,softmax")} == {"prelu", "softmax"}
    assert chosen("--set", "small", "--op", "softmax") == {("softmax", "small"): 54}
    results = chosen("--set", "results")
    for module in (permute_work, elementwise_work, prelu_work, softmax_work):
        assert {name for _, name in results} >= set(module.RESULT_SETS)


def test_rivals_of_the_results_are_those_of_each_set() -> None:
    def rivals(*words: str) -> dict[str, tuple[str, ...]]:
        return {case.set: case.rivals for case in cases_of(*words)}

    assert rivals("--set", "results", "--op", "softmax")["plain"] == ("torch", "quack")
    assert rivals("--set", "results", "--op", "softmax", "--rivals", "torch")["plain"] == ("torch",)
    assert rivals("--set", "plain") == {"plain": ()} and rivals("--set", "jit") == {"jit": ("jit",)}
    for module in (permute_work, elementwise_work, prelu_work, softmax_work):
        assert set(",".join(module.RESULT_SETS.values()).split(",")) <= set(bench.RIVALS)


def test_what_is_done_is_written_when_a_run_ends_early(tmp_path: Path) -> None:
    class Interrupted(HostMachine):
        def seconds(self, replay: Any) -> float:
            if len(self.replays) == 3 * 8:  # contenders and rounds of the first case
                raise KeyboardInterrupt
            return super().seconds(replay)

    file = tmp_path / "run.json"
    with pytest.raises(KeyboardInterrupt):
        run(["--set", "small", "--op", "permute", "--json", str(file)], Interrupted())
    assert len(json.loads(file.read_text())["rows"]) == 1


def test_a_case_that_fails_is_named_and_others_run(capsys: pytest.CaptureFixture[str]) -> None:
    class Full(HostMachine):
        def allocate(self, num_bytes: int) -> Any:
            if num_bytes > 1 << 19:
                raise MemoryError("no room")
            return super().allocate(num_bytes)

    assert run(["--set", "small", "--op", "permute", "--rounds", "1"], Full()) == 1
    text = capsys.readouterr().out
    assert "permute small: left out, " in text and "no room" in text and "small64K" in text


def test_the_executor_is_not_timed() -> None:
    environment = os.environ | {"FLOWK_LIBRARY": "simt", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "pyflowk", "bench", "permute", "f16", "3x4", "1,0"]
    result = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert result.returncode == 1
    assert "nothing is timed" in result.stderr
    assert not result.stdout


def test_help_names_every_set() -> None:
    command = [sys.executable, "-m", "pyflowk", "bench", "--help"]
    text = subprocess.run(command, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True).stdout
    assert all(name in text for name in ("practice", "anchors", "nchw", "lengths", "--compare", "5 % slower"))


def test_lines_of_cases() -> None:
    assert report.line_of(row_of("a", 0.987)).split()[0] == "a"
    assert "0.987" in report.line_of(row_of("a", 0.987)) and "torch 0.49" in report.line_of(row_of("a", 0.987))
    assert "(64 MB touched: may be in L2)" in report.line_of(row_of("a", 0.987, touched_bytes=64 << 20))
    assert "in L2" not in report.line_of(row_of("a", 0.987))
    assert "left out, no type" in report.line_of({"op": "permute", "set": "x", "missing": "no type"})


class Tags(HTMLParser):
    """Counts tags, and checks that every one is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.counts: dict[str, int] = {}
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.counts[tag] = self.counts.get(tag, 0) + 1
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag not in ("meta", "input", "th"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.counts[tag] = self.counts.get(tag, 0) + 1

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_stands_alone_and_has_every_case() -> None:
    wrong = row_of("<wrong>", 1, right=False)
    del wrong["fractions"], wrong["us"]
    rows = [row_of(f"case{i}", 0.5 + i / 10) for i in range(4)] + [wrong]
    tags = Tags()
    text = page.page_of({"machine": {"GPU": "a & b"}, "rows": [*rows, {"op": "permute", "set": "x", "missing": "no"}]})
    tags.feed(text)
    assert not tags.open and not tags.links
    assert (tags.counts["tr"], tags.counts["svg"], tags.counts["circle"]) == (1 + 5, 1, 8)
    assert "prefers-color-scheme: dark" in text and "&lt;wrong&gt;" in text and "<!--" not in text


def test_the_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    picture = tmp_path / "bench.png"
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match="--plot needs matplotlib"):
        run(["softmax", "plain", "f32", "40x33", "--plot", str(picture)])
    monkeypatch.undo()
    pytest.importorskip("matplotlib")
    assert run(["softmax", "plain", "f32", "40x33", "--plot", str(picture)]) == 0
    assert picture.read_bytes()[:4] == b"\x89PNG"


def test_a_picture_in_svg_follows_the_reader_s_colours(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    picture = tmp_path / "bench.svg"
    rows = [row_of(f"case{i}", 0.5 + i / 10) for i in range(4)]
    plot.write(str(picture), {"machine": {}, "rows": rows})
    text = picture.read_text()
    assert "prefers-color-scheme: dark" in text and "currentColor" in text
    assert text.count(plot.INK) == 1  # in the style
    assert plot.sorted_fractions(rows[::-1])["flowk"] == sorted(row["fractions"]["flowk"] for row in rows)


def test_json_has_what_a_comparison_needs(tmp_path: Path) -> None:
    file, html = tmp_path / "run.json", tmp_path / "run.html"
    assert run(["permute", "f32", "30x40", "1,0", "--json", str(file), "--html", str(html)]) == 0
    written = json.loads(file.read_text())
    assert written["format"] == bench.FORMAT and written["machine"]["GPU"] == "none"
    assert written["rows"][0]["fractions"] == {"flowk": 1.0} and "30x40 1,0" in html.read_text()


def test_the_articles_have_their_sizes_and_ratios() -> None:
    cases = list(articles.cases())
    assert len(cases) == 16 + 4 + 5 + 6
    permutes = [case for op, case in cases if op == "permute"]
    megabytes = sorted({math.prod(case["shape"]) * {"f32": 4, "f16": 2}[case["kind"]] >> 20 for case in permutes})
    assert megabytes == [16, 32, 64, 128]
    us = {"flowk": 2.0, "torch": 3.0, "plain": 5.0}
    rows = [row_of(case.get("kind", "x"), 0.9, us=dict(us)) for _, case in cases]
    rows[0] = row_of("x", 0.9) | {"missing": "no type"}
    del rows[0]["us"]
    for row, (_, case) in zip(rows[-6:], cases[-6:]):
        row["shape"], row["us"]["plain"] = str(case["shape"]), {"dense": 5.0, "lengths": 2.5}[case["kind"]]
    text = "\n".join(articles.table(rows))
    assert "1.24 to 1.4 times" in text and "torch 1.50x, plain 2.50x" in text and "no type" in text
    assert "dense mask over lengths: 2.00 to 2.00x" in text
