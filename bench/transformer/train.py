# SPDX-License-Identifier: Apache-2.0
"""Trains a small decoder on generated text with PyTorch's operators, with pyflowk's, and with PyTorch's SDPA.

    python bench/transformer/train.py                     on a GPU, in minutes; without one, the small model
    python bench/transformer/train.py --size small --device cpu --json run.json --plot run
    python bench/transformer/train.py --attention biased --activation prelu --dtype bfloat16
    python bench/transformer/train.py --vocabulary 50257 --dtype bfloat16 --steps 30        the loss and its memory

All variants start from the same parameters and see the same text. Prints per variant the last loss, milliseconds per
step and memory; --json has losses, times and the profile of a step, of which plot_runs.py makes plots and a report.
In bfloat16 the parameters stay float32 and autocast chooses the types, as is usual.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import grammar_text
import torch
from decoder_model import NUM_BYTES, VARIANTS, Config, Decoder
from step_profile import profile_steps

SIZES = {
    "default": (Config(), 16, 300),
    "small": (Config(layers=2, width=64, heads=4, context=64), 4, 40),
}
NUM_WARM_STEPS = 3
NUM_PROFILED_STEPS = 5
TEXT_BYTES = 1 << 20


class Clock:
    """Milliseconds between calls of tick(), on the device, without waiting for it."""

    def __init__(self, device: torch.device) -> None:
        self.on_gpu, self.ticks = device.type == "cuda", []

    def tick(self) -> None:
        if not self.on_gpu:
            self.ticks.append(time.perf_counter())
            return
        self.ticks.append(torch.cuda.Event(enable_timing=True))
        self.ticks[-1].record()

    def median(self) -> float:
        ticks = self.ticks[NUM_WARM_STEPS:]
        if self.on_gpu:
            torch.cuda.synchronize()
            return statistics.median(a.elapsed_time(b) for a, b in pairwise(ticks))
        return 1000 * statistics.median(b - a for a, b in pairwise(ticks))


def measure(
    step: Callable[[int], torch.Tensor], num_steps: int, device: torch.device, **options: Any
) -> dict[str, Any]:
    """Runs step(0), step(1), ...: losses, the median step's milliseconds, peak memory in MiB, the profile of a step.
    `options` are profile_steps'."""
    gc.collect()  # what an earlier run has left would count
    clock, losses = Clock(device), []
    for i in range(num_steps):
        clock.tick()
        losses.append(step(i).detach())
        if i == 0 and device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
    clock.tick()
    result = {"losses": torch.stack(losses).tolist(), "milliseconds": clock.median(), "peak_mib": None}
    if device.type == "cuda":
        result["peak_mib"] = torch.cuda.max_memory_allocated() / 2**20
    result["profile"] = profile_steps(lambda: step(num_steps - 1), NUM_PROFILED_STEPS, device, **options)
    return result


@cache
def _text() -> bytes:
    return grammar_text.generate(TEXT_BYTES, seed=1)


def train(
    config: Config,
    variant: str,
    *,
    rows: int,
    num_steps: int,
    device: str = "cpu",
    dtype: str = "float32",
    is_compiled: bool = False,
) -> dict[str, Any]:
    on = torch.device(device)
    torch.manual_seed(1)
    model = Decoder(config, variant).to(on)
    forward = torch.compile(model) if is_compiled else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01, fused=on.type == "cuda")
    tokens = grammar_text.batches(_text(), num_steps, rows, config.context, seed=2).to(on)

    def step(i: int) -> torch.Tensor:
        with torch.autocast(on.type, torch.bfloat16, enabled=dtype == "bfloat16"):
            loss = forward(tokens[i])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    name = f"{variant} compiled" if is_compiled else variant
    return {"variant": name, "dtype": dtype, **measure(step, num_steps, on)}


def line(run: dict[str, Any]) -> str:
    memory = "" if run["peak_mib"] is None else f", {run['peak_mib']:.0f} MiB"
    name, loss = f"{run['variant']:15} {run['dtype']:9}", run["losses"][-1]
    return f"{name} loss {loss:.4f}, {run['milliseconds']:.2f} ms per step{memory}"


def train_all(config: Config, contenders: list[str], dtypes: list[str], **options: Any) -> dict[str, Any]:
    """All contenders, variants or "torch compiled", in all types; prints a line for each."""
    runs = []
    for dtype in dtypes:
        for contender in contenders:
            variant, *compiled = contender.split()
            runs.append(train(config, variant, dtype=dtype, is_compiled=bool(compiled), **options))
            print(line(runs[-1]), flush=True)
    return {"config": asdict(config), "rows": options["rows"], "runs": runs}


def machine(device: str) -> dict[str, str]:
    """What the figures were measured on."""
    name = torch.cuda.get_device_name() if device == "cuda" else "CPU"
    return {"device": name, "torch": torch.__version__}


def main() -> None:
    has_gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda" if has_gpu else "cpu")
    parser.add_argument("--size", choices=SIZES, help="by default small on a CPU")
    parser.add_argument("--steps", type=int)
    parser.add_argument("--dtype", nargs="+", choices=["float32", "bfloat16"], default=["float32"])
    parser.add_argument("--variant", nargs="+", choices=[*VARIANTS, "torch compiled"], default=list(VARIANTS))
    parser.add_argument("--attention", choices=["causal", "biased"], default="causal")
    parser.add_argument("--activation", choices=["gelu", "prelu"], default="gelu")
    parser.add_argument("--vocabulary", type=int, default=NUM_BYTES, help="columns of the logits")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--plot", help="the plots' names start so; needs matplotlib")
    given = parser.parse_args()
    config, rows, num_steps = SIZES[given.size or ("default" if given.device == "cuda" else "small")]
    config = replace(config, attention=given.attention, activation=given.activation, vocabulary=given.vocabulary)
    options = {"rows": rows, "num_steps": given.steps or num_steps, "device": given.device}
    result = {**machine(given.device), "transformers": [train_all(config, given.variant, given.dtype, **options)]}
    if given.json:
        given.json.write_text(json.dumps(result))
    if given.plot:
        import plot_runs

        plot_runs.plot(result, given.plot)


if __name__ == "__main__":
    main()
