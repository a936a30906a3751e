# SPDX-License-Identifier: Apache-2.0
"""Elementwise operations against a copy: `python bench/bench_elementwise.py SET ...`.

The sets: anchors (four common calls, in three sizes), types (every type, 256 MB), unary, binary, ternary (every
operation), casts (every pair of widths), misaligned, broadcast, transposed, small (4 to 32 MB, against torch.compile),
jit (pyflowk.ElementwiseKernel beside the built-in operation of the same formula).

Prints one line per case: the fraction of copy of flowk and its rivals, and flowk's plan. The copy is the faster of
cudaMemcpyAsync and flowk's own contiguous copy, which reads and writes as many bytes in all as the case.
"""

from __future__ import annotations

import argparse
import ctypes
import math
import sys
from collections.abc import Callable
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))
import harness
from elementwise_workload import (
    FORMULAS,
    PARAMETERS,
    TYPES,
    Case,
    cases_of,
    empty_output,
    is_right,
    moved_bytes,
    random_input,
)

CODES = dict(TYPES.values())


class Library(harness.Library):
    """flowk_unary and its kin by ctypes."""

    def __init__(self) -> None:
        super().__init__()
        self.ops: dict[str, tuple[str, int]] = {}
        for arity in ("unary", "binary", "ternary"):
            name_of = getattr(self.c, f"flowk_{arity}_op_name")
            value = 1
            while name := name_of(value):
                self.ops[name.decode()] = (arity, value)
                value += 1

    def arguments(self, op: str, inputs: list[torch.Tensor], out: torch.Tensor, parameters: tuple = ()) -> tuple:
        arity, value = self.ops[op]
        rank = out.dim()
        longs = ctypes.c_int64 * max(rank, 1)
        arguments: list = [arity, value]
        for tensor in [*(x.expand(out.shape) for x in inputs), out]:
            arguments += [harness.pointer(tensor), longs(*tensor.stride()), CODES[tensor.dtype]]
        arguments += [rank, longs(*out.shape)]
        count = {"unary": 2, "binary": 0, "ternary": 1}[arity]
        return (*arguments, *(ctypes.c_double(p) for p in (*parameters, 0.0, 0.0)[:count]))

    def operations_of(self, arity: str) -> list[str]:
        return [op for op, (of, _) in self.ops.items() if of == arity]

    def run(self, arguments: tuple) -> None:
        self.check(getattr(self.c, f"flowk_{arguments[0]}")(*arguments[1:], harness.current_stream()))

    def plan(self, arguments: tuple) -> str:
        return self.explain_of(arguments[0], arguments[1:])


def jit_call(case: Case, inputs: list[list[torch.Tensor]], outs: list[torch.Tensor]) -> Callable[[int], None]:
    """The case's formula by pyflowk.ElementwiseKernel, whose result is that of the built-in operation, bit for bit or
    by an ulp."""
    import pyflowk

    names = "xy"[: len(inputs[0])]
    kernel = pyflowk.ElementwiseKernel(", ".join(f"T {name}" for name in names), "T z", case.formula)
    expected = outs[0].clone()
    outs[0].view(torch.uint8).fill_(0xA5)
    kernel(*inputs[0], out=outs[0])
    torch.testing.assert_close(outs[0], expected)
    return lambda i: kernel(*inputs[i], out=outs[i])


def run_case(library: Library, case: Case, rounds: int, rivals: list[str]) -> dict:
    moved = moved_bytes(case)
    sets = max(2, min(64, math.ceil(harness.TOUCHED_BYTES / moved)))
    first = [random_input(kind, shape, layout) for kind, shape, layout in zip(case.kinds, case.shapes, case.layouts)]

    def another(x: torch.Tensor, kind: str, layout: str) -> torch.Tensor:
        if layout in ("", "T"):
            return x.clone(memory_format=torch.preserve_format)
        return empty_output(kind, tuple(x.shape), layout).copy_(x)

    inputs = [first] + [[another(x, k, s) for x, k, s in zip(first, case.kinds, case.layouts)] for _ in range(sets - 1)]
    outs = [empty_output(case.kinds[-1], case.shape, case.layouts[-1]) for _ in range(sets)]
    outs[0].view(torch.uint8).fill_(0xA5) if outs[0].is_contiguous() else None
    parameters = PARAMETERS.get(case.op, ())
    arguments = [library.arguments(case.op, x, out, parameters) for x, out in zip(inputs, outs)]
    library.run(arguments[0])
    row = {"name": case.name, "types": case.kinds, "shape": case.shape, "layouts": case.layouts}
    row["right"] = is_right(case, inputs[0], outs[0])
    row["plan"] = library.plan(arguments[0])
    if not row["right"]:
        return row
    half = max(moved // 2, 1)
    sources = [torch.empty(half, dtype=torch.uint8, device="cuda") for _ in range(sets)]
    targets = [torch.empty(half, dtype=torch.uint8, device="cuda") for _ in range(sets)]
    copies = [library.permute_arguments(a, [0], b, 6) for a, b in zip(sources, targets)]
    formula = FORMULAS[case.op]

    def eager(i: int) -> None:
        if case.op == "copy":
            outs[i].copy_(inputs[i][0])
        else:
            formula(*inputs[i], *parameters)

    contenders = {
        "memcpy": lambda i: targets[i].copy_(sources[i]),
        "copy": lambda i: library.permute(copies[i]),
        "flowk": lambda i: library.run(arguments[i]),
    }
    if case.formula:
        contenders["jit"] = jit_call(case, inputs, outs)
    if "torch" in rivals:
        contenders["torch"] = eager
    if "compile" in rivals:
        torch._dynamo.reset()
        dtype = outs[0].dtype
        compiled = torch.compile(lambda *x: formula(*x, *parameters).to(dtype), dynamic=False)
        contenders["compile"] = lambda i: compiled(*inputs[i])
    for rival in ("torch", "compile"):  # one that refuses the types does not take part
        if rival in contenders:
            try:
                contenders[rival](0)
            except (RuntimeError, torch._dynamo.exc.TorchDynamoException):
                del contenders[rival]
    times = harness.time_in_turn(contenders, sets, rounds)
    copy = min(times["memcpy"], times["copy"])
    row |= {"copy_us": copy * 1e6, "own_copy": copy / times["copy"], "gb_s": moved / times["flowk"] * 1e-9}
    return row | {name: copy / t for name, t in times.items() if name not in ("memcpy", "copy")}


def line_of(row: dict) -> str:
    figures = "WRONG"
    if row["right"]:
        figures = f"{row['flowk']:.3f} own copy {row['own_copy']:.2f} {row['copy_us']:7.1f}us"
        figures += "".join(f" {name} {row[name]:.2f}" for name in ("jit", "torch", "compile") if name in row)
    shape = "x".join(map(str, row["shape"]))
    layouts = ",".join(row["layouts"]) if any(row["layouts"]) else ""
    kernel = row["plan"].split(":")[0]
    return f"{row['name']:18} {','.join(row['types']):18} {layouts:9} {shape:18} {figures} {kernel}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="+")
    parser.add_argument("--json")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--rivals", default="", help="torch, compile, or both with a comma")
    parser.add_argument("--quiet", action="store_true", help="only the summaries")
    options = parser.parse_args()
    library = Library()
    print(harness.machine(), "|", library.c.flowk_build_info().decode())
    rows = []
    for name in options.sets:
        of_set = []
        for case in cases_of(name, library.operations_of):
            row = run_case(library, case, options.rounds, options.rivals.split(","))
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
