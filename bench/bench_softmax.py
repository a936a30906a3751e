# SPDX-License-Identifier: Apache-2.0
"""Softmax against a copy: `python bench/bench_softmax.py SET[:TYPE,...] ...`, types f16, bf16, f32.

The sets: plain (no mask, by columns), odd (columns that are not whole vectors of 16 bytes), tiny (1 to 255 columns),
dense, lengths, causal, bias, backward, small, random[:SEED[:COUNT]] (random kinds, types and shapes). The bytes of a
case: x and y, of x only unmasked columns with lengths and causal, and the dense mask once; backward dy, y and dx.

Prints one line per case (fraction of copy, largest error in units in the last place of a row's largest value, kernel)
and the geomean and worst of each set.
"""

from __future__ import annotations

import argparse
import gc
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))
import harness
from softmax_workload import SoftmaxLibrary, Workload, cases_of


def run_case(library: SoftmaxLibrary, case: tuple, rounds: int, rivals: bool, compiled: bool) -> dict:
    workload = Workload(case)
    library.run(workload, 0)
    right, error = workload.check()
    row = {"case": case, "right": right, "error": error, "plan": library.explain_softmax(workload)}
    if right:
        contenders = workload.copies(library)
        contenders["flowk"] = lambda i: library.run(workload, i)
        if rivals:
            contenders |= workload.rivals(compiled)
        times = harness.time_in_turn(contenders, workload.sets, rounds)
        copy = min(times["memcpy"], times["copy"])
        row |= {"copy_us": copy * 1e6, "gb_s": workload.moved / times["flowk"] * 1e-9}
        row |= {name: copy / time for name, time in times.items() if name not in ("memcpy", "copy")}
    return row


def accuracy(case: tuple, library: SoftmaxLibrary) -> dict:
    """The largest errors of flowk and of PyTorch on the same rows, and the largest |sum of a row - 1|."""
    workload = Workload(case, sets=1)
    library.run(workload, 0)
    b, h, q, k = workload.shape
    rows = torch.arange(min(b * h * q, 2048), device="cuda")
    theirs, _ = workload.reference(rows, workload.dtype)
    actual = workload.outs[0].view(-1, k)[rows]
    return {
        "flowk": workload.error(actual, rows),
        "torch": workload.error(theirs, rows),
        "sum": float((actual.double().sum(-1) - 1).abs().max()),
    }


def line_of(row: dict) -> str:
    kind, type_, *shape = row["case"]
    figures = "WRONG"
    if row["right"]:
        figures = f"{row['flowk']:.3f} {row['copy_us']:7.1f}us"
        figures += "".join(f" {name} {row[name]:.2f}" for name in ("torch", "compile") if name in row)
    first, _, third, *_ = row["plan"].splitlines()
    plan = first.split(":")[0] + third.replace("  row", "").replace(" of a block", "").replace(" of 16 bytes", "")
    return f"{kind:8} {type_:4} {'x'.join(map(str, shape)):18} {figures} err {row['error']:.2f} {plan}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*")
    parser.add_argument("--json")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--rivals", action="store_true", help="also time PyTorch's operators")
    parser.add_argument("--compile", action="store_true", help="also time them after torch.compile")
    parser.add_argument("--accuracy", action="store_true", help="errors of flowk and PyTorch per case; no times")
    options = parser.parse_args()
    library = SoftmaxLibrary()
    print(harness.machine(), "|", library.c.flowk_build_info().decode())
    rows = []
    for name in options.sets:
        of_set = []
        for case in cases_of(name):
            if options.accuracy:
                print(case, {key: f"{value:.3g}" for key, value in accuracy(case, library).items()}, flush=True)
                continue
            row = run_case(library, case, options.rounds, options.rivals or options.compile, options.compile)
            of_set.append(row)
            print(line_of(row), flush=True)
            gc.collect()
            torch.cuda.empty_cache()
        rows += [row | {"set": name} for row in of_set]
        fractions = [row["flowk"] for row in of_set if row["right"]]
        if of_set:
            summary = f"geomean {harness.geomean(fractions):.3f}, worst {min(fractions, default=0):.3f}"
            print(f"== {name}: {len(fractions)}/{len(of_set)} right, {summary}", flush=True)
    harness.write_json(options.json, rows)
    sys.exit(0 if all(row["right"] for row in rows) else 1)


if __name__ == "__main__":
    main()
