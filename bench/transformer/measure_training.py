# SPDX-License-Identifier: Apache-2.0
"""Everything that RESULTS.md says, on one GPU in two minutes: the causal and the biased Transformer in both types, and
the image pipeline.

    python bench/transformer/measure_training.py training.json [--steps 150]
    python bench/transformer/plot_runs.py training.json        where matplotlib is: plots and RESULTS.md
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))
import image_pipeline
from train import SIZES, machine, train_all


def main() -> None:
    has_gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("json", type=Path)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda" if has_gpu else "cpu")
    parser.add_argument(
        "--steps", type=int, default=150, help="of the causal Transformer; the biased one takes a third"
    )
    parser.add_argument("--compile", action="store_true", help="torch.compile too, in bfloat16: about a minute more")
    given = parser.parse_args()
    config, rows, _ = SIZES["default" if given.device == "cuda" else "small"]
    start = time.perf_counter()
    result: dict[str, Any] = {**machine(given.device), "transformers": []}

    def keep() -> None:
        """After each part, so that a time limit loses only the rest."""
        result["seconds"] = time.perf_counter() - start
        given.json.write_text(json.dumps(result))

    biased = replace(config, attention="biased", activation="prelu")
    for one, num_steps in ((config, given.steps), (biased, max(given.steps // 3, 10))):
        print(f"{one.attention} attention, {one.activation}", flush=True)
        result["transformers"].append({})
        for dtype in ("bfloat16", "float32"):
            contenders = ["torch", "flowk", "sdpa"] + ["torch compiled"] * (given.compile and dtype == "bfloat16")
            part = train_all(one, contenders, [dtype], rows=rows, num_steps=num_steps, device=given.device)
            result["transformers"][-1] = {**part, "runs": result["transformers"][-1].get("runs", []) + part["runs"]}
            keep()
    print("image pipeline", flush=True)
    result["images"] = image_pipeline.train_both(given.device, 60)
    keep()
    print(f"{result['seconds']:.0f} s")


if __name__ == "__main__":
    main()
