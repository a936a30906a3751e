# SPDX-License-Identifier: Apache-2.0
"""Plots and RESULTS.md of what measure_training.py or train.py has written.

    python bench/transformer/plot_runs.py training.json [--folder bench/transformer]

Writes FOLDER/RESULTS.md, FOLDER/training_losses.png and FOLDER/training_steps.png. Needs matplotlib, but neither
PyTorch nor a GPU.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

COLOURS = {"torch": "#4c72b0", "flowk": "#dd8452", "sdpa": "#55a868", "torch compiled": "#8172b3"}
# fmt: off
GROUP_COLOURS = {
    "preparation": "#8c564b", "matmul": "#c7d3e3", "convolution": "#b7c9b0", "fused attention": "#55a868",
    "softmax": "#dd8452", "mask": "#f2c14e", "permute": "#4c72b0", "activation": "#c44e52", "cast": "#937860",
    "norm": "#8172b3", "loss": "#da8bc3", "optimizer": "#9aa5b1", "generated": "#17becf", "other": "#dddddd",
    "no kernel": "#ffffff",
}
# fmt: on
NAMES = {"torch": "PyTorch", "flowk": "flowk", "sdpa": "SDPA", "torch compiled": "PyTorch, compiled"}

METHOD = """Every variant is trained alone, from the same parameters, on the same data. PyTorch: explicit attention, q
scaled, the mask filled in place, softmax in the type of the scores. flowk: the same with `masked_softmax`, `permute`
and the activations of `pyflowk.torch`. SDPA: `scaled_dot_product_attention`. Milliseconds per step are the median of
all but the first steps; the operators' are those of their kernels, in 5 more steps. The loss difference is the
largest |loss - PyTorch's| of a step; SDPA's shows what rounding alone does."""


def panels(result: dict[str, Any]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """(Title, runs) for each Transformer in each type, the variant torch first."""
    for part in result["transformers"]:
        config = part["config"]
        for dtype in sorted({run["dtype"] for run in part["runs"]}, reverse=True):
            title = f"{config['attention']} attention, {config['activation']}, {dtype}"
            yield title, [run for run in part["runs"] if run["dtype"] == dtype]


def step_bars(result: dict[str, Any]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    yield from panels(result)
    if "images" in result:
        runs = result["images"]["runs"]
        yield f"image pipeline, {runs[0]['dtype']}", runs


def largest_difference(run: dict[str, Any], reference: dict[str, Any]) -> float:
    return max(abs(a - b) for a, b in zip(run["losses"], reference["losses"]))


def plot(result: dict[str, Any], prefix: str) -> None:
    """Writes PREFIX_losses.png and PREFIX_steps.png."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    plt.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False})
    _plot_losses(plt, list(panels(result)), result, f"{prefix}_losses.png")
    _plot_steps(plt, list(step_bars(result)), result, f"{prefix}_steps.png")


def _plot_losses(plt: Any, all_panels: list[Any], result: dict[str, Any], path: str) -> None:
    figure, axes = plt.subplots(
        2, len(all_panels), figsize=(4 * len(all_panels), 5), squeeze=False, height_ratios=(2, 1), sharex="col"
    )
    for (title, runs), upper, lower in zip(all_panels, *axes):
        styles = dict(zip(COLOURS, ((0, ()), (0, (5, 3)), (0, (1, 2)), (0, (3, 1, 1, 1)))))
        for run in runs:
            name = run["variant"]
            style = {"color": COLOURS[name], "linestyle": styles[name], "label": NAMES[name]}
            upper.plot(run["losses"], linewidth=1.6, **style)
            if run is not runs[0]:
                lower.plot([abs(a - b) for a, b in zip(run["losses"], runs[0]["losses"])], linewidth=1, **style)
        upper.set_title(title)
        upper.legend(frameon=False)
        lower.set_yscale("symlog", linthresh=1e-7)
        lower.set_ylim(0)
        lower.set_xlabel("step")
    axes[0][0].set_ylabel("loss, nats per byte")
    axes[1][0].set_ylabel("distance to PyTorch's")
    figure.suptitle(f"The same training with other operators ({_machine(result)})")
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _plot_steps(plt: Any, all_panels: list[Any], result: dict[str, Any], path: str) -> None:
    heights = [len(runs) for _, runs in all_panels]
    figure, axes = plt.subplots(
        len(heights),
        1,
        figsize=(11, 1.5 + 0.42 * sum(heights) + 0.6 * len(heights)),
        squeeze=False,
        height_ratios=heights,
    )
    used = []
    for (title, runs), axis in zip(all_panels, axes[:, 0]):
        for place, run in enumerate(runs):
            left = 0.0
            for group, time in run["profile"]["groups"].items():
                if time > 0:
                    axis.barh(place, time, left=left, color=GROUP_COLOURS[group], height=0.7)
                    used.append(group)
                    left += time
            waits = run["milliseconds"] - left
            if run["peak_mib"] is not None and waits > 0:
                axis.barh(place, waits, left=left, facecolor="white", edgecolor="#999999", hatch="///", height=0.7)
                used.append("no kernel")
                left += waits
            axis.text(left, place, f" {left:.2f}", va="center")
        axis.set_yticks(range(len(runs)), [NAMES[run["variant"]] for run in runs])
        axis.invert_yaxis()
        axis.set_title(title, loc="left")
    axes[-1][0].set_xlabel("milliseconds per step, by operator")
    names = [group for group in GROUP_COLOURS if group in used]
    legend = [plt.Rectangle((0, 0), 1, 1, facecolor=GROUP_COLOURS[name], edgecolor="#999999") for name in names]
    figure.suptitle(f"Where a training step's time goes ({_machine(result)})", y=0.995)
    figure.tight_layout(rect=(0, 0, 0.84, 1))
    figure.legend(legend, names, loc="center right", frameon=False)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _machine(result: dict[str, Any]) -> str:
    return f"{result['device']}, PyTorch {result['torch']}"


def markdown(result: dict[str, Any]) -> str:
    """RESULTS.md: a table of the runs and one of their operators per Transformer and type, and the image pipeline's."""
    lines = ["# Training with flowk's operators", "", f"Measured on: {_machine(result)}.", ""]
    lines += [METHOD, ""]
    lines += ["![losses](training_losses.png)", "", "![time per step](training_steps.png)", ""]
    for title, runs in panels(result):
        lines += [f"## {title[0].upper()}{title[1:]}", "", *_runs_table(runs), "", *_operators_table(runs), ""]
        for run in runs:
            fused = [name for group, name, _ in run["profile"]["operators"] if group == "fused attention"]
            if fused:
                lines += [f"SDPA ran {', '.join(f'`{name}`' for name in fused)}.", ""]
    if "images" in result:
        images = result["images"]
        size = f"{images['images_per_step']} x {images['side']} x {images['side']} x 3"
        lines += [
            "## Image pipeline",
            "",
            f"uint8 NHWC batches of {size}, {images['runs'][0]['dtype']} NCHW after it.",
            "",
        ]
        lines += [*_runs_table(images["runs"]), "", "| preparation of a batch | ms |", "|---|---|"]
        for run in images["runs"]:
            lines += [f"| {name} | {time:.3f} |" for name, time in run["preparation"].items()]
        lines += ["", *_operators_table(images["runs"]), ""]
    return "\n".join(lines).rstrip() + "\n"


def _runs_table(runs: list[dict[str, Any]]) -> list[str]:
    reference = runs[0]
    lines = [
        "| operators | ms per step | speedup | peak MiB | last loss | largest loss difference |",
        "|---|---|---|---|---|---|",
    ]
    for run in runs:
        memory = "" if run["peak_mib"] is None else f"{run['peak_mib']:.0f}"
        difference = "" if run is reference else f"{largest_difference(run, reference):.1e}"
        ratio = reference["milliseconds"] / run["milliseconds"]
        name, loss = NAMES[run["variant"]], run["losses"][-1]
        lines.append(f"| {name} | {run['milliseconds']:.2f} | {ratio:.2f} | {memory} | {loss:.4f} | {difference} |")
    return lines


def _operators_table(runs: list[dict[str, Any]]) -> list[str]:
    times = [run["profile"]["groups"] for run in runs]
    groups = [group for group in times[0] if any(one[group] > 0 for one in times)]
    lines = [
        f"| ms per step | {' | '.join(NAMES[run['variant']] for run in runs)} |",
        "|---" * (1 + len(runs)) + "|",
    ]
    lines += [f"| {group} | {' | '.join(f'{one[group]:.3f}' for one in times)} |" for group in groups]
    return [*lines, f"| all | {' | '.join(f'{sum(one.values()):.3f}' for one in times)} |"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("json", type=Path)
    parser.add_argument("--folder", type=Path, default=Path(__file__).parent)
    given = parser.parse_args()
    result = json.loads(given.json.read_text())
    (given.folder / "RESULTS.md").write_text(markdown(result))
    plot(result, str(given.folder / "training"))


if __name__ == "__main__":
    main()
