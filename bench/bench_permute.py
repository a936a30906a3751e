# SPDX-License-Identifier: Apache-2.0
"""Permute against a copy: `python bench/bench_permute.py SET ...`.

The sets: practice, ttc-f32, ttc-f16, ttc-f64, seeds, small, random[:SEED[:COUNT]].

Prints one line a case (fraction of copy, kernel, tile) and the geomean and worst of each set.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import harness

CASES = json.loads((Path(__file__).parent / "permute_cases.json").read_text())
RANDOM_TYPES = ["u8", "f16", "bf16", "f32", "f64", "c128"]


def random_cases(seed: int, count: int) -> list[tuple]:
    """Ranks 2 to 7, every element size, odd and even extents, 12 to 320 MB moved."""
    draw = random.Random(seed)
    cases = []
    while len(cases) < count:
        kind = draw.choice(RANDOM_TYPES)
        element = harness.DTYPES[kind][0].itemsize
        rank = draw.randint(2, 7)
        elements = draw.uniform(12e6, 320e6) / 2 / element
        weights = [draw.expovariate(1) + 0.15 for _ in range(rank)]
        shape = [max(2, round(elements ** (w / sum(weights)))) for w in weights]
        if draw.random() < 0.5:
            shape = [max(2, s // 8 * 8) if s >= 8 else s for s in shape]
        axes = draw.sample(range(rank), rank)
        total = element
        for s in shape:
            total *= s
        if axes != list(range(rank)) and 12e6 <= 2 * total <= 320e6:
            cases.append((f"random{len(cases)}", shape, axes, kind))
    return cases


def small_cases() -> list[tuple]:
    return [
        (f"small{2 * b * s * h * d * size >> 10}K", [b, s, h, d], axes, kind)
        for kind, size in (("f16", 2), ("f32", 4))
        for b, s, h, d in ((1, 32, 8, 64), (1, 128, 12, 64), (1, 512, 16, 64), (1, 1024, 32, 64), (1, 1024, 32, 128))
        for axes in ([0, 2, 1, 3], [0, 2, 3, 1])
        if 2 * b * s * h * d * size <= 8 << 20
    ]


def cases_of(name: str) -> list[tuple]:
    if name.startswith("ttc-"):
        return [(group, shape, axes, name[4:]) for group, shape, axes, _ in CASES["ttc"]]
    if name.startswith("random"):
        seed, count = ([*map(int, name.split(":")[1:])] + [0, 40][len(name.split(":")) - 1 :])[:2]
        return random_cases(seed or random.randrange(10**6), count)
    if name == "small":
        return small_cases()
    return [tuple(case) for case in CASES[name]]


def run_case(library: harness.Library, case: tuple, rounds: int, rivals: bool) -> dict:
    name, shape, axes, kind = case
    dtype, code = harness.DTYPES[kind]
    xs, outs = harness.rotating_buffers(shape, [shape[a] for a in axes], dtype)
    x = xs[0]
    moved = 2 * x.numel() * x.element_size()
    arguments = [library.permute_arguments(a, axes, b, code) for a, b in zip(xs, outs)]
    library.permute(arguments[0])
    right = harness.same_bits(outs[0], x.permute(axes))
    flat = [(a.view(-1), b.view(-1)) for a, b in zip(xs, outs)]
    copies = [library.permute_arguments(a, [0], b, code) for a, b in flat]
    contenders = {
        "memcpy": lambda i: flat[i][1].copy_(flat[i][0]),
        "copy": lambda i: library.permute(copies[i]),
        "flowk": lambda i: library.permute(arguments[i]),
    }
    if rivals:
        contenders["torch"] = lambda i: outs[i].copy_(xs[i].permute(axes))
    row = {"name": name, "type": kind, "shape": shape, "axes": axes, "right": right}
    row["plan"] = library.explain(arguments[0])
    if right:
        times = harness.time_in_turn(contenders, len(xs), rounds)
        copy = min(times["memcpy"], times["copy"])
        row |= {"copy_us": copy * 1e6, "own_copy": copy / times["copy"], "gb_s": moved / times["flowk"] * 1e-9}
        row |= {n: copy / t for n, t in times.items() if n not in ("memcpy", "copy")}
    return row


def line_of(row: dict) -> str:
    kernel, *rest = row["plan"].splitlines()
    tile = next((line.strip() for line in rest if line.strip().startswith("tile:")), "")
    figures = "WRONG"
    if row["right"]:
        figures = f"{row['flowk']:.3f} own copy {row['own_copy']:.2f} {row['copy_us']:6.1f}us"
        figures += f" torch {row['torch']:.2f}" if "torch" in row else ""
    shape = "x".join(map(str, row["shape"])) + " " + ",".join(map(str, row["axes"]))
    return f"{row['name']:12} {row['type']:4} {shape:34} {figures} {kernel.split(':')[0]} {tile[:90]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="+")
    parser.add_argument("--json")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--rivals", action="store_true", help="time PyTorch too")
    parser.add_argument("--quiet", action="store_true", help="only the summaries")
    options = parser.parse_args()
    library = harness.Library()
    print(harness.machine(), "|", library.c.flowk_build_info().decode())
    rows = []
    for name in options.sets:
        of_set = []
        for case in cases_of(name):
            row = run_case(library, case, options.rounds, options.rivals)
            of_set.append(row)
            if not options.quiet or not row["right"]:
                print(line_of(row), flush=True)
        rows += [row | {"set": name} for row in of_set]
        fractions = [row["flowk"] for row in of_set if row["right"]]
        summary = f"geomean {harness.geomean(fractions):.3f}, worst {min(fractions, default=0):.3f}"
        print(f"== {name}: {len(fractions)}/{len(of_set)} right, {summary}", flush=True)
    harness.write_json(options.json, rows)
    sys.exit(0 if all(row["right"] for row in rows) else 1)


if __name__ == "__main__":
    main()
