# SPDX-License-Identifier: Apache-2.0
"""Writes bench/RESULTS.md, its plots, and README's tables and picture from runs of `python -m pyflowk bench`.

`python bench/results.py [RUN.json ...]`, the files of

    python -m pyflowk bench --op all --set results --json RUN.json
    python -m pyflowk bench --articles --json ARTICLES.json

A later file's cases replace an earlier one's. The rows are kept in bench/results/rows.json, which `--compare` takes;
without files the texts are written from it again.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from pyflowk._bench import articles, plot
from pyflowk._bench.measure import Row, case_key, geomean, summaries, without_folders
from pyflowk._bench.report import kernel_of
from pyflowk._bench.runner import OPERATORS

ROOT = Path(__file__).resolve().parent.parent

NAMES = {"torch": "PyTorch", "compile": "torch.compile", "cupy": "CuPy", "cutensor": "cuTENSOR", "quack": "quack"}
KEPT = ("op", "set", "part", "kind", "types", "shape", "note", "right", "missing", "read_bytes", "written_bytes",
        "copy_us", "spread", "us", "fractions")  # fmt: skip
SLOWEST = 8  # cases named per operator
MARGIN = 1.01  # a library is ahead in a case if it is more than 1 % faster
BEGIN, END = "<!-- bench/results.py writes the table {} -->", "<!-- end -->"


class Line(NamedTuple):
    """A line of a table: the cases of some sets, of one kind if it is given."""

    work: str
    op: str
    sets: tuple[str, ...]
    kind: str = ""


TABLE = (
    Line("permute, TTC-57 benchmark, float64", "permute", ("ttc-f64",)),
    Line("permute, TTC-57 benchmark, float32", "permute", ("ttc-f32",)),
    Line("permute, TTC-57 benchmark, float16", "permute", ("ttc-f16",)),
    Line("permute, practice: attention, images, patches, odd shapes", "permute", ("practice",)),
    Line("permute, 100 random cases of ranks 2 to 7, all element sizes", "permute", ("random:7:100",)),
    Line("permute with conversion", "permute", ("convert",)),
    Line("images between bytes and floats, NHWC and NCHW, 1 to 96 channels", "permute", ("images:7",)),
    Line("images of bytes, NCHW to NHWC and back, 3 to 1,280 channels", "permute", ("byte_images:7",)),
    Line("keys of attention transposed, float16, 64 to 2,048 keys", "permute", ("keys:7",)),
    Line("rows that change places, moved and converted, 48 to 4,096 bytes", "permute", ("rows:7",)),
    Line("permute of strided views", "permute", ("views",)),
    Line("elementwise, every type, 256 MB", "elementwise", ("types",)),
    Line("elementwise with broadcasting", "elementwise", ("broadcast",)),
    Line("elementwise with a transposed operand", "elementwise", ("transposed",)),
    Line("elementwise on halves of rows", "elementwise", ("slices:7",)),
    Line("elementwise with a row bias or a factor per row, any width", "elementwise", ("widths:7",)),
    Line("PReLU", "prelu", ("nchw", "nhwc"), "forward"),
    Line("PReLU gradients, NCHW", "prelu", ("nchw",), "backward"),
    Line("softmax without a mask", "softmax", ("plain",)),
    Line("softmax with a dense mask", "softmax", ("dense",)),
    Line("softmax with lengths", "softmax", ("lengths",)),
    Line("softmax gradient", "softmax", ("backward", "backward:bf16")),
    Line("softmax, 80 random cases: masks, types, 16 to 2^18 columns", "softmax", ("random:7:80",)),
    Line("softmax, TritonBench's widths of 256 to 12,672", "softmax", ("tritonbench",)),
    *(
        Line(f"softmax of 64 to 128,256 columns, {text}", "softmax", ("widths:7",), kind)
        for text, kind in (("no mask", "plain"), ("dense mask", "dense"), ("bias", "bias"))
    ),
    *(
        Line(f"softmax of attention, {text}", "softmax", ("attention:7",), kind)
        for text, kind in (
            ("causal", "causal"),
            ("lengths", "batch_lengths"),
            ("a mask of each query", "dense"),
            ("a mask of keys", "key_mask"),
            ("a bias per head", "head_bias"),
            ("a bias of keys", "key_bias"),
            ("causal, gradient", "causal_backward"),
            ("lengths, gradient", "batch_lengths_backward"),
        )
    ),
    Line("softmax over 3 to 1024 channels", "softmax", ("channels",), "channels"),
    Line("softmax over channels, gradient", "softmax", ("channels",), "channels_backward"),
    Line("cross-entropy of vocabularies, bfloat16", "cross_entropy", ("vocabularies",), "forward"),
    Line("cross-entropy gradient, bfloat16", "cross_entropy", ("vocabularies",), "backward"),
)

# README's table for users of PyTorch.
TASKS = (
    Line("`x.permute(...).contiguous()`: heads, images, patches, odd shapes", "permute", ("practice",)),
    Line("... with another type: bytes to float16 / 255 in one pass", "permute", ("convert",)),
    Line("... of slices and other strided views", "permute", ("views",)),
    Line("softmax with a dense mask", "softmax", ("dense",)),
    Line("softmax with a length per row", "softmax", ("lengths",)),
    Line("softmax without a mask", "softmax", ("plain",)),
    Line("softmax of attention, 64 to 4096 queries and keys, every mask and bias", "softmax", ("attention:7",)),
    Line("softmax over channels, and its gradient", "softmax", ("channels",)),
    Line("the gradient of a softmax", "softmax", ("backward", "backward:bf16")),
    Line("cross-entropy of a vocabulary", "cross_entropy", ("vocabularies",), "forward"),
    Line("PReLU", "prelu", ("nchw", "nhwc"), "forward"),
    Line("the gradients of PReLU", "prelu", ("nchw", "nhwc"), "backward"),
    Line("elementwise, a row or column broadcast", "elementwise", ("broadcast",)),
    Line("elementwise, an operand transposed", "elementwise", ("transposed",)),
    Line("elementwise, all operands contiguous", "elementwise", ("types",)),
)

# The lines of TABLE in README, as a table and as a picture.
CHOSEN = (
    "permute, TTC-57 benchmark, float32",
    "permute, practice: attention, images, patches, odd shapes",
    "softmax with a dense mask",
    "softmax gradient",
    "elementwise, every type, 256 MB",
)


HEADS = "| work | cases | flowk: mean, worst | best other library, flowk over its cases | ahead | behind |"


class Comparison(NamedTuple):
    """flowk and another library over the cases that both take: means of their speeds, and where each is ahead."""

    name: str
    count: int
    own: float
    theirs: float
    faster: float
    ahead: int
    behind: int


def merged(runs: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """One run: each case as the last run has it, the machine's facts of the last, every run's command and versions."""
    rows: dict[tuple[str, str, int], Row] = {}
    machine: dict[str, str] = {}
    commands: list[str] = []
    versions: list[str] = []
    for run in runs:
        machine = machine | run["machine"]
        own_commands = map(without_folders, run["machine"]["command"].split("\n"))
        commands += [one for one in own_commands if one not in commands]
        versions += [one for one in run["machine"].get("versions", "").split(", ") if one not in versions]
        seen: Counter[tuple[str, str]] = Counter()
        for row in run["rows"]:
            key = row["set"], case_key(row) if "kind" in row else row["missing"]
            rows[(*key, seen[key])] = _kept(row)
            seen[key] += 1
    taken = {name for row in rows.values() for name in row.get("fractions", {})}
    absent = [name for name in machine.pop("not here", "").split(", ") if name and name not in taken]
    machine |= {"command": "\n".join(commands), "versions": ", ".join(versions)}
    return {
        "format": 1,
        "machine": machine | ({"not here": ", ".join(absent)} if absent else {}),
        "rows": list(rows.values()),
    }


def _kept(row: Row) -> Row:
    kept = {key: row[key] for key in KEPT if key in row} | {"plan": kernel_of(row) if "plan" in row else ""}
    return {key: _rounded(value) for key, value in kept.items()}


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _rounded(one) for key, one in value.items()}
    return float(f"{value:.4g}") if isinstance(value, float) else value


def speed_table(rows: list[Row], chosen: Iterable[str] | None = None) -> str:
    """One line per Line that has cases, or per chosen one. Behind each library are its mean and flowk's over the same
    cases, then in how many of them flowk is ahead and behind."""
    lines = [HEADS, "|---|---|---|---|---|---|"]
    for line in TABLE:
        found = fractions_of(line, rows)
        if found and (chosen is None or line.work in chosen):
            own = [fractions["flowk"] for fractions in found]
            rivals = best_rivals(found)
            texts = (f"{one.theirs:.2f} {NAMES[one.name]}, flowk {one.own:.2f}" for one in rivals)
            ahead = "; ".join(f"{one.ahead} of {one.count}" for one in rivals)
            behind = "; ".join(str(one.behind) for one in rivals)
            means = f"{geomean(own):.2f}, {min(own):.2f}"
            lines.append(f"| {line.work} | {len(own)} | {means} | {'; '.join(texts)} | {ahead} | {behind} |")
    return "\n".join(lines)


def task_table(rows: list[Row]) -> str:
    """README's table for users of PyTorch: how many times as fast flowk is, over the cases that PyTorch takes."""
    lines = ["| work | flowk / PyTorch | flowk ahead | PyTorch ahead |", "|---|---|---|---|"]
    for line in TASKS:
        one = compared(fractions_of(line, rows), "torch")
        if one is not None:
            lines.append(f"| {line.work} | {one.faster:.1f} | {one.ahead} of {one.count} | {one.behind or ''} |")
    return "\n".join(lines)


def fractions_of(line: Line, rows: Iterable[Row]) -> list[dict[str, float]]:
    """The speeds of all contenders in each case of a line."""
    return [
        row["fractions"]
        for row in rows
        if row["op"] == line.op and row["set"] in line.sets and line.kind in ("", row.get("kind"))
        if "fractions" in row
    ]


def compared(found: list[dict[str, float]], name: str) -> Comparison | None:
    """flowk and library `name`; None if it takes none of the cases."""
    both = [(fractions["flowk"], fractions[name]) for fractions in found if name in fractions]
    if not both:
        return None
    own, theirs = geomean([one for one, _ in both]), geomean([one for _, one in both])
    ahead = sum(one > other * MARGIN for one, other in both)
    behind = sum(other > one * MARGIN for one, other in both)
    return Comparison(name, len(both), own, theirs, own / theirs, ahead, behind)


def best_rivals(found: list[dict[str, float]]) -> list[Comparison]:
    """The fastest library that takes half of the cases or more, then each faster library that takes fewer."""
    all_of_them = filter(None, (compared(found, name) for name in NAMES))
    by_speed = sorted(all_of_them, key=lambda one: one.theirs, reverse=True)
    first = next((index for index, one in enumerate(by_speed) if 2 * one.count >= len(found)), len(by_speed))
    return [*by_speed[first : first + 1], *by_speed[:first]]


def results_text(run: dict[str, Any]) -> str:
    """bench/RESULTS.md."""
    return "\n".join(_results_lines(run)) + "\n"


def _results_lines(run: dict[str, Any]) -> Iterator[str]:
    rows = [row for row in run["rows"] if row["set"] != "articles" and "missing" not in row]
    machine = dict(run["machine"])
    commands = machine.pop("command")
    yield from ("# Results", "", "Written by `bench/results.py` from the runs of these commands:", "")
    yield from ("```sh", commands, "```", "", "| | |", "|---|---|")
    yield from (f"| {name} | {text} |" for name, text in machine.items())
    yield from (
        "",
        "A figure is the time of a plain copy of the same bytes, the faster of `cudaMemcpyAsync` and flowk's own,",
        "divided by the contender's time: higher is better. Results are checked before they are timed; contenders run",
        "in turn, in CUDA graphs, on buffers past the L2; times are medians. `python -m pyflowk bench --set results",
        "--compare bench/results/rows.json` compares a run with this one. A later run's cases replace those of an",
        "earlier one; the date and the clocks are the last run's.",
        "",
        "## Summary",
        "",
        "Behind the best other library is flowk's mean over the cases that this library takes. *Ahead* and *behind*",
        "count the cases in which flowk is more than 1 % faster and slower. A library that takes less than half of the",
        "cases is named if it is faster than the best of the others.",
        "",
        speed_table(rows),
    )
    for op in OPERATORS:
        of_op = [row for row in rows if row["op"] == op]
        if of_op:
            yield from ("", f"## {op}", "", *_sets(of_op), "", f"![{op}](results/{op}.svg)", "", *_slowest(of_op))
    of_articles = [row for row in run["rows"] if row["set"] == "articles"]
    if of_articles:
        table = "\n".join(articles.table(of_articles)).strip()
        yield from ("", "## The articles", "", "```text", table, "```")


def _sets(rows: list[Row]) -> Iterator[str]:
    yield "| set | right | geomean | worst | other libraries, over the cases that they take |"
    yield "|---|---|---|---|---|"
    for of_set in summaries(rows):
        means, taken = of_set["rivals"], of_set["taken"]
        rivals = ", ".join(f"{NAMES[name]} {means[name]:.2f} ({taken[name]})" for name in NAMES if name in means)
        figures = f"{of_set['geomean']:.3f} | {of_set['worst']:.3f}"
        name = of_set["set"].partition(" ")[2]
        yield f"| {name} | {of_set['right']} of {of_set['cases']} | {figures} | {rivals} |"


def _slowest(rows: list[Row]) -> Iterator[str]:
    yield "The slowest cases:"
    yield from ("", "| set | case | of a copy | us | kernel |", "|---|---|---|---|---|")
    timed = sorted((row for row in rows if "fractions" in row), key=lambda row: row["fractions"]["flowk"])
    for row in timed[:SLOWEST]:
        case = " ".join(filter(None, (row["kind"], row["types"], row["shape"], row["note"])))
        yield f"| {row['set']} | {case} | {row['fractions']['flowk']:.2f} | {row['us']['flowk']:.1f} | {row['plan']} |"


def with_table(readme: str, name: str, table: str) -> str:
    """README with the table of this name between its two marks."""
    begin = BEGIN.format(name)
    before, _, rest = readme.partition(begin)
    _, found, after = rest.partition(END)
    if not found:
        raise ValueError(f"README has no {begin} and {END}")
    return f"{before}{begin}\n{table}\n{END}{after}"


def readme_text(readme: str, rows: list[Row]) -> str:
    """README with both tables."""
    return with_table(with_table(readme, "tasks", task_table(rows)), "speed", speed_table(rows, CHOSEN))


def write(run: dict[str, Any], root: Path = ROOT) -> None:
    """All files."""
    folder, readme = root / "bench" / "results", root / "README.md"
    folder.mkdir(parents=True, exist_ok=True)
    rows = ",\n".join(json.dumps(row, separators=(",", ":")) for row in run["rows"])
    machine = json.dumps(run["machine"], indent=1)
    (folder / "rows.json").write_text(f'{{"format": {run["format"]}, "machine": {machine}, "rows": [\n{rows}\n]}}\n')
    (root / "bench" / "RESULTS.md").write_text(results_text(run))
    for op in OPERATORS:
        of_op = [row for row in run["rows"] if row["op"] == op and row["set"] != "articles" and "missing" not in row]
        if of_op:
            plot.write(str(folder / f"{op}.svg"), run | {"rows": of_op})
    lines = [line for line in TABLE if line.work in CHOSEN]
    best = [(line.work, best_rivals(fractions_of(line, run["rows"]))) for line in lines]
    pairs = [(work, rivals[0].own, NAMES[rivals[0].name], rivals[0].theirs) for work, rivals in best if rivals]
    plot.write_pairs(str(folder / "overview.svg"), run["machine"].get("GPU", ""), pairs)
    readme.write_text(readme_text(readme.read_text(), run["rows"]))


def main() -> None:
    stored = ROOT / "bench" / "results" / "rows.json"
    paths = [Path(path) for path in sys.argv[1:]]
    write(merged(json.loads(path.read_text()) for path in paths or [stored]))


if __name__ == "__main__":
    main()
