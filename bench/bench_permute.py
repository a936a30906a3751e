# SPDX-License-Identifier: Apache-2.0
"""Permute against a copy: `python bench/bench_permute.py SET ...`.

The sets: practice, ttc-f32, ttc-f16, ttc-f64, seeds, small, random[:SEED[:COUNT[:TYPE]]], views (strides on either
side), convert (to another type; the copy reads and writes as many bytes in all).

Prints one line per case (fraction of copy, kernel, tile) and the geomean and worst of each set. `--rivals` times
PyTorch, torch.compile and CuPy too, each where it takes the case.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
from collections.abc import Iterable
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))
import harness

CASES = json.loads((Path(__file__).parent / "permute_workload.json").read_text())
RIVALS = ("torch", "compile", "cupy")
RANDOM_TYPES = ["u8", "f16", "bf16", "f32", "f64", "c128"]


def random_cases(seed: int, count: int, kinds: list[str]) -> list[tuple]:
    """Ranks 2 to 7, every element size of `kinds`, odd and even extents, 12 to 320 MB moved."""
    draw = random.Random(seed)
    cases = []
    while len(cases) < count:
        kind = draw.choice(kinds)
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


# name, shape, axes, type, type of the result, scale
CONVERT_CASES = [
    ("image-3", [128, 3, 512, 512], [0, 2, 3, 1], "f32", "f16", 1),
    ("image-4", [128, 4, 512, 512], [0, 2, 3, 1], "f32", "f16", 1),
    ("image-224", [512, 3, 224, 224], [0, 2, 3, 1], "f32", "f16", 1),
    ("planes-3", [128, 512, 512, 3], [0, 3, 1, 2], "f16", "f32", 1),
    ("features-64", [64, 64, 112, 112], [0, 2, 3, 1], "f32", "f16", 1),
    ("features-odd", [64, 67, 113, 113], [0, 2, 3, 1], "f32", "f16", 1),
    ("pixels-f16", [512, 512, 512, 3], [0, 3, 1, 2], "u8", "f16", 1 / 255),
    ("pixels-f32", [256, 512, 512, 3], [0, 3, 1, 2], "u8", "f32", 1 / 255),
    ("pixels-224", [1024, 224, 224, 3], [0, 3, 1, 2], "u8", "f16", 1 / 255),
    ("pixels-back", [256, 3, 512, 512], [0, 2, 3, 1], "f16", "u8", 8),
    ("square", [8192, 8192], [1, 0], "f32", "bf16", 1),
    ("square-odd", [8191, 8193], [1, 0], "f32", "bf16", 1),
    ("square", [8192, 8192], [1, 0], "bf16", "f32", 1),
    ("square", [8192, 8192], [1, 0], "f32", "e4m3", 1),
    ("square", [8192, 8192], [1, 0], "bf16", "e4m3", 0.5),
    ("square-odd", [8191, 8193], [1, 0], "f32", "e4m3", 1),
    ("weights", [4096, 14336], [1, 0], "f32", "e4m3", 1),
    ("square", [8192, 8192], [1, 0], "e4m3", "bf16", 1),
    ("weights", [4096, 14336], [1, 0], "i8", "f16", 1 / 64),
    ("square", [16384, 8192], [1, 0], "i8", "f16", 1),
    ("square", [8192, 8192], [1, 0], "f64", "f32", 1),
    ("attention", [8, 2048, 32, 128], [0, 2, 1, 3], "f16", "f32", 1),
    ("attention", [8, 2048, 32, 128], [0, 2, 1, 3], "f32", "f16", 1),
    ("attention-64", [8, 2048, 32, 64], [0, 2, 1, 3], "f32", "bf16", 1),
    ("attention-odd", [8, 2048, 32, 67], [0, 2, 1, 3], "f32", "f16", 1),
    ("keys", [8, 2048, 32, 128], [0, 2, 3, 1], "f16", "e4m3", 1),
    ("cast", [1 << 26], [0], "f32", "f16", 1),
    ("cast", [1 << 27], [0], "i8", "f16", 1),
    ("rank-5", [24, 40, 32, 48, 36], [3, 1, 4, 0, 2], "f32", "f16", 1),
    ("patches", [256, 14, 16, 14, 16, 3], [0, 1, 3, 5, 2, 4], "u8", "f16", 1 / 255),
]

# name, shape, axes, type, layout of x, layout of out: harness.View.layout(); rows of 128 bytes or more
VIEW_CASES = [
    ("slice-in", [8192, 6000], [1, 0], "f32", {"pads": {1: 2192}}, {}),
    ("slice-in", [8192, 6000], [1, 0], "f16", {"pads": {1: 2192}}, {}),
    ("slice-in", [8192, 6000], [1, 0], "u8", {"pads": {1: 2192}}, {}),
    ("slice-in", [6000, 4000], [1, 0], "f64", {"pads": {1: 96}}, {}),
    ("transposed-in", [8000, 8000], [0, 1], "f32", {"order": [1, 0], "pads": {0: 192}}, {}),
    ("transposed-in", [8000, 8000], [0, 1], "f16", {"order": [1, 0], "pads": {0: 192}}, {}),
    ("transposed-in", [16000, 8000], [0, 1], "u8", {"order": [1, 0], "pads": {0: 384}}, {}),
    ("transposed-in", [6000, 4000], [0, 1], "f64", {"order": [1, 0], "pads": {0: 144}}, {}),
    ("odd-slice-in", [8191, 6001], [1, 0], "f32", {"pads": {1: 1007}}, {}),
    ("padded-out", [8192, 6000], [1, 0], "f32", {}, {"pads": {1: 64}}),
    ("padded-out", [8192, 6000], [1, 0], "f16", {}, {"pads": {1: 64}}),
    ("padded-out", [8192, 6000], [1, 0], "u8", {}, {"pads": {1: 64}}),
    ("padded-out", [6000, 4000], [1, 0], "f64", {}, {"pads": {1: 16}}),
    ("padded-heads", [8, 2048, 32, 128], [0, 2, 1, 3], "f16", {}, {"pads": {3: 8}}),
    ("padded-heads", [8, 2048, 32, 64], [0, 2, 1, 3], "f32", {}, {"pads": {3: 4}}),
    ("one-of-qkv", [8, 2048, 32, 128], [0, 2, 1, 3], "f16", {"steps": {1: 3}}, {}),
    ("into-a-cache", [8, 2048, 32, 128], [0, 2, 1, 3], "f16", {}, {"pads": {2: 2048}}),
    ("rows-copied", [16384, 4000], [0, 1], "f32", {"pads": {1: 96}}, {}),
    ("rows-copied", [16384, 4000], [0, 1], "f16", {"pads": {1: 1}}, {"pads": {1: 3}}),
    ("every-other-row", [16384, 4096], [0, 1], "f32", {"steps": {0: 2}}, {}),
    ("every-other-row", [8192, 8192], [1, 0], "f32", {"steps": {0: 2}}, {}),
    ("crop", [64, 400, 400, 64], [0, 3, 1, 2], "u8", {"pads": {1: 112, 2: 112}}, {}),
    ("crop", [64, 200, 200, 64], [0, 3, 1, 2], "f16", {"pads": {1: 56, 2: 56}}, {"pads": {3: 8}}),
    ("rows-down-in", [8192, 8192], [1, 0], "f32", {"flips": (0,)}, {}),
    ("rows-down-in", [8192, 8192], [0, 1], "f16", {"flips": (0,)}, {}),
    ("columns-down-in", [8192, 8192], [1, 0], "f32", {"flips": (1,)}, {}),
    ("columns-down-in", [8192, 8192], [1, 0], "u8", {"flips": (1,)}, {}),
    ("all-down-in", [8192, 4096], [1, 0], "f64", {"flips": (0, 1)}, {}),
    ("rows-down-out", [8192, 8192], [1, 0], "f16", {}, {"flips": (0,)}),
    ("columns-down-out", [8192, 8192], [1, 0], "f32", {}, {"flips": (1,)}),
    ("mirror", [16384, 4096], [0, 1], "f32", {"flips": (1,)}, {}),
    ("both-sliced", [8000, 8000], [1, 0], "f32", {"pads": {1: 192}}, {"pads": {1: 192}}),
    ("both-sliced", [6000, 6000], [1, 0], "f16", {"pads": {1: 100}}, {"pads": {1: 50}}),
    ("rank-4", [24, 64, 48, 96], [2, 0, 3, 1], "f32", {"pads": {3: 32, 1: 8}}, {"pads": {3: 64}}),
]


def cases_of(name: str) -> list[tuple]:
    if name.startswith("ttc-"):
        return [(group, shape, axes, name[4:]) for group, shape, axes, _ in CASES["ttc"]]
    if name.startswith("random"):
        given = name.split(":")[1:]
        seed, count, kind = given + ["0", "40", ""][len(given) :]
        return random_cases(int(seed) or random.randrange(10**6), int(count), [kind] if kind else RANDOM_TYPES)
    if name == "small":
        return small_cases()
    if name in ("convert", "views"):
        return CONVERT_CASES if name == "convert" else VIEW_CASES
    return [tuple(case) for case in CASES[name]]


def timed(row: dict, moved: int, contenders: dict, num_sets: int, rounds: int) -> dict:
    """The row with every contender's fraction of copy; "memcpy" and "copy" are the copies. Untimed with no rounds."""
    read, written = row.pop("bytes", (moved // 2, moved // 2))
    row |= {"read_bytes": read, "written_bytes": written}
    if not row["right"] or rounds == 0:
        return row
    times = harness.time_in_turn(contenders, num_sets, rounds)
    copy = min(times["memcpy"], times["copy"])
    row |= {"copy_us": copy * 1e6, "own_copy": copy / times["copy"], "gb_s": moved / times["flowk"] * 1e-9}
    return row | {name: copy / t for name, t in times.items() if name not in ("memcpy", "copy")}


def run_case(library: harness.Library, case: tuple, rounds: int, rivals: list[str]) -> dict:
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
    row = {"name": name, "type": kind, "shape": shape, "axes": axes, "right": right}
    row["plan"] = library.explain(arguments[0])
    contenders |= harness.usable(rivals_of(rivals, xs, outs, axes, 1), outs[0], x.permute(axes), row)
    return timed(row, moved, contenders, len(xs), rounds)


def run_convert_case(library: harness.Library, case: tuple, rounds: int, rivals: list[str]) -> dict:
    name, shape, axes, kind, out_kind, scale = case
    (dtype, code), (out_dtype, out_code) = harness.DTYPES[kind], harness.DTYPES[out_kind]
    moved = math.prod(shape) * (dtype.itemsize + out_dtype.itemsize)
    num_sets = harness.num_buffer_sets(moved)
    x = harness.ordinary_tensor(shape, dtype)
    xs = [x] + [x.clone() for _ in range(num_sets - 1)]
    out_shape = [shape[a] for a in axes]
    outs = [torch.empty(out_shape, dtype=out_dtype, device="cuda") for _ in range(num_sets)]
    outs[0].view(torch.uint8).fill_(0xA5)
    arguments = [library.convert_arguments(a, axes, b, (code, out_code), scale) for a, b in zip(xs, outs)]
    library.permute_convert(arguments[0])
    values = x.permute(axes)
    if scale != 1:
        values = values.to(torch.float64 if torch.float64 in (dtype, out_dtype) else torch.float32) * scale
    if not out_dtype.is_floating_point:  # torch wraps what is past the bounds
        bounds = torch.iinfo(out_dtype)
        values = values.clamp(bounds.min, bounds.max)
    expected = values.to(out_dtype)
    right = harness.same_bits(outs[0], expected)
    copies = harness.rotating_copies(moved, num_sets)
    copy_arguments = [library.permute_arguments(a, [0], b, harness.DTYPES["u8"][1]) for a, b in copies]
    contenders = {
        "memcpy": lambda i: copies[i][1].copy_(copies[i][0]),
        "copy": lambda i: library.permute(copy_arguments[i]),
        "flowk": lambda i: library.permute_convert(arguments[i]),
    }
    row = {"name": name, "type": f"{kind}>{out_kind}", "shape": shape, "axes": axes, "right": right}
    row["bytes"] = (x.numel() * dtype.itemsize, x.numel() * out_dtype.itemsize)
    row["plan"] = library.convert_explain(arguments[0])
    contenders |= harness.usable(rivals_of(rivals, xs, outs, axes, scale), outs[0], expected, row)
    return timed(row, moved, contenders, num_sets, rounds)


def run_view_case(library: harness.Library, case: tuple, rounds: int, rivals: list[str]) -> dict:
    name, shape, axes, kind, src_layout, out_layout = case
    dtype, code = harness.DTYPES[kind]
    moved = 2 * math.prod(shape) * dtype.itemsize
    num_sets = harness.num_buffer_sets(moved)
    out_shape = [shape[a] for a in axes]
    src_strides, src_first, src_size = harness.View.layout(shape, **src_layout)
    out_strides, out_first, out_size = harness.View.layout(out_shape, **out_layout)
    base = harness.random_tensor([src_size], dtype)
    xs = [harness.View(base.clone(), shape, src_strides, src_first) for _ in range(num_sets)]
    outs = [
        harness.View(torch.empty(out_size, dtype=dtype, device="cuda"), out_shape, out_strides, out_first)
        for _ in range(num_sets)
    ]
    poisoned = outs[0].base.view(torch.uint8).fill_(0xA5).clone().view(dtype)
    arguments = [library.permute_arguments(a, axes, b, code) for a, b in zip(xs, outs)]
    library.permute(arguments[0])
    upward, flips = harness.View(poisoned, out_shape, out_strides, out_first).upward()
    upward.copy_(harness.flipped(xs[0].values().permute(axes), flips))
    right = harness.same_bits(outs[0].base, poisoned)  # what lies between the elements too
    copies = harness.rotating_copies(moved, num_sets)
    copy_arguments = [library.permute_arguments(a, [0], b, harness.DTYPES["u8"][1]) for a, b in copies]
    contenders = {
        "memcpy": lambda i: copies[i][1].copy_(copies[i][0]),
        "copy": lambda i: library.permute(copy_arguments[i]),
        "flowk": lambda i: library.permute(arguments[i]),
    }
    if "torch" in rivals:
        contenders["torch"] = lambda i: outs[i].upward()[0].copy_(harness.flipped(xs[i].values().permute(axes), flips))
    sides = " ".join(f"{side} {text}" for side, text in (("in", src_layout), ("out", out_layout)) if text)
    row = {"name": name, "type": kind, "shape": shape, "axes": axes, "right": right, "views": sides}
    row["plan"] = library.explain(arguments[0])
    return timed(row, moved, contenders, num_sets, rounds)


def rivals_of(names: list[str], xs: list, outs: list, axes: list[int], scale: float) -> dict:
    """name: a function that makes its work(i), or raises where the rival does not take the case."""

    def with_torch() -> object:
        if scale != 1:
            return lambda i: torch.mul(xs[i].permute(axes), scale, out=outs[i])
        return lambda i: outs[i].copy_(xs[i].permute(axes))

    def with_compile() -> object:
        torch._dynamo.reset()

        def work(x: torch.Tensor, out: torch.Tensor) -> None:
            out.copy_(x.permute(axes) * scale if scale != 1 else x.permute(axes))

        compiled = torch.compile(work, dynamic=False)
        return lambda i: compiled(xs[i], outs[i])

    def with_cupy() -> object:
        import cupy

        if scale != 1:
            raise NotImplementedError("one pass that scales and casts")
        views = [(cupy.from_dlpack(x).transpose(axes), cupy.from_dlpack(out)) for x, out in zip(xs, outs)]

        def work(i: int) -> None:
            with cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream):
                cupy.copyto(views[i][1], views[i][0], casting="unsafe")

        return work

    makers = {"torch": with_torch, "compile": with_compile, "cupy": with_cupy}
    return {name: makers[name] for name in names}


def run(library: harness.Library, set_name: str, case: tuple, rounds: int, rivals: Iterable[str] = ()) -> dict:
    """A case of a set: right or not, its plan, and the fractions of copy unless there are no rounds."""
    runner = {"convert": run_convert_case, "views": run_view_case}.get(set_name, run_case)
    return runner(library, case, rounds, list(rivals))


def line_of(row: dict) -> str:
    kernel, *rest = row["plan"].splitlines()
    tile = next((line.strip() for line in rest if line.strip().startswith("tile:")), "")
    figures = "WRONG"
    if row["right"]:
        figures = f"{row['flowk']:.3f} own copy {row['own_copy']:.2f} {row['copy_us']:6.1f}us"
        figures += "".join(f" {name} {row[name]:.2f}" for name in RIVALS if name in row)
        figures += f" ({row['skipped']})" if row.get("skipped") else ""
    shape = "x".join(map(str, row["shape"])) + " " + ",".join(map(str, row["axes"]))
    shape += " " + row["views"] if "views" in row else ""
    return f"{row['name']:12} {row['type']:4} {shape:34} {figures} {kernel.split(':')[0]} {tile[:90]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="+")
    parser.add_argument("--json")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument(
        "--rivals", nargs="?", const=",".join(RIVALS), default="", help="time these too: torch,compile,cupy, or some"
    )
    parser.add_argument("--quiet", action="store_true", help="only the summaries")
    options = parser.parse_args()
    library = harness.Library()
    print(harness.machine(), "|", library.c.flowk_build_info().decode())
    rows = []
    for name in options.sets:
        of_set = []
        for case in cases_of(name):
            row = run(library, name, case, options.rounds, filter(None, options.rivals.split(",")))
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
