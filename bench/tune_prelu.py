# SPDX-License-Identifier: Apache-2.0
"""Times every kernel and launch that the planner of PReLU may choose for a case, beside the one it does choose.

`python bench/tune_prelu.py SET ... [--types f16,f32] [--directions forward,backward] --json FILE`, sets as of
bench_prelu.py.

Takes a library that exports the candidates in $FLOWK_LIBRARY:

    nvcc -std=c++20 -O3 -arch=native -shared -cudart static -Icuda -Iinclude -Xcompiler -fPIC,-fvisibility=hidden \\
      -DFLOWK_BUILD_INFO='"candidates"' $(find cuda -name '*.cpp' -not -path '*/simt/*' -not -name '*_simt.cpp') \\
      $(find cuda -name '*.cu') bench/prelu_candidates.cpp -o libflowk_candidates.so

Prints for each case the planner's pick and the best candidates, each checked against the pick's output first, and their
figures as a row of bench/tuning/prelu_h200.json has them.
"""

from __future__ import annotations

import argparse
import ctypes
import functools
import itertools
import math
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))
import bench_prelu
import harness
from tuning.generate_tuning import measured

FIELDS = ("kernel", "max_threads", "rows_per_block", "cluster_blocks", "tile_vectors", "overlap", "vectors_in_flight")
BY_CHANNEL, BY_SPAN, BY_PLANE, BY_COLUMN, BY_WARP_COLUMN = range(1, 6)
SHOWN = 5  # candidates of a case
AT_ONCE = 24  # graphs that are kept


def choice_of(**fields: int) -> tuple[int, ...]:
    return tuple(fields.get(name, 0) for name in FIELDS)


def backward_choices(inner: int) -> list[tuple[int, ...]]:
    """Those worth a try: by_column and by_warp_column for any planes, the others where inner > 1."""
    product = itertools.product
    choices = [choice_of(overlap=1), choice_of(kernel=BY_WARP_COLUMN)]
    if inner > 1:
        choices += [
            choice_of(kernel=BY_CHANNEL, max_threads=t, cluster_blocks=b, tile_vectors=p, vectors_in_flight=k)
            for t, b, p, k in product((208, 320, 416, 512), (1, 2, 4), (0, 13, 25, 49, 98), (3, 4))
        ]
        choices += [
            choice_of(kernel=BY_SPAN, max_threads=t, vectors_in_flight=p)
            for t, p in product((64, 128, 256), (1, 2, 4, 8))
        ]
        choices += [choice_of(kernel=BY_PLANE, max_threads=t) for t in (128, 256, 512)]
    columns = product((64, 128, 256), (32, 64, 96, 128, 256), (2, 4), (8, 32))
    return choices + [
        choice_of(kernel=BY_COLUMN, max_threads=t, rows_per_block=r, vectors_in_flight=k, tile_vectors=p)
        for t, r, k, p in columns
    ]


class Candidates:
    """A case's candidates: what makes two of them the same launch, and how one is run on buffer set i."""

    def __init__(self, library: harness.Library, case: bench_prelu.Case) -> None:
        self.case, self.c = case, library.c
        tensors = list(zip(case.dys, case.xs, case.outs, case.dalphas))
        self.forward_arguments = [library.prelu_arguments(x, case.alpha, y, case.shape) for _, x, y, _ in tensors]
        self.arguments = [
            library.prelu_backward_arguments(dy, x, case.alpha, dx, dalpha, case.shape) for dy, x, dx, dalpha in tensors
        ]
        # Room for the pick's partials and for most candidates'.
        wanted = library.prelu_backward_workspace_bytes(self.arguments[0])
        self.workspace = torch.full((max(wanted, case.bytes, 1 << 20),), 0xFF, dtype=torch.uint8, device="cuda")

    def forward(self, i: int, threads: int) -> None:
        if self.c.flowk_bench_prelu_candidate(*self.forward_arguments[i], threads, harness.current_stream()) != 0:
            raise RuntimeError(f"forward with {threads} threads failed")

    def backward(self, i: int, choice: tuple[int, ...], text: ctypes.Array | None = None) -> int:
        memory = ctypes.c_void_p(self.workspace.data_ptr()), ctypes.c_size_t(self.workspace.numel())
        fields = (ctypes.c_int32 * len(FIELDS))(*choice)
        where = (text, ctypes.c_size_t(len(text) if text is not None else 0))
        return self.c.flowk_bench_prelu_backward_candidate(
            *self.arguments[i], *memory, fields, *where, harness.current_stream()
        )

    def plan_of(self, choice: tuple[int, ...]) -> str | None:
        text = ctypes.create_string_buffer(2048)
        return text.value.decode() if self.backward(0, choice, text) == 0 else None


def time_all(case: bench_prelu.Case, contenders: dict, rounds: int) -> dict:
    """Median seconds of each, a handful of graphs at a time."""
    times: dict = {}
    names = list(contenders)
    for start in range(0, len(names), AT_ONCE):
        part = {name: contenders[name] for name in names[start : start + AT_ONCE]}
        times |= harness.time_in_turn(part, case.sets, rounds)
    return times


def tune_backward(candidates: Candidates, rounds: int) -> dict:
    case = candidates.case
    pick = (0,) * len(FIELDS)
    plans = {pick: candidates.plan_of(pick)}
    for choice in backward_choices(case.shape[2]):
        plan = candidates.plan_of(choice)
        if plan is not None and plan not in list(plans.values())[1:]:
            plans[choice] = plan
    candidates.backward(0, pick)
    dx, dalpha = case.outs[0].clone(), case.dalphas[0].double()
    tolerance = 1e-3 * dalpha.abs().max() + 1e-2
    contenders = {}
    for choice in plans:
        bench_prelu.poison(case.outs[0])
        bench_prelu.poison(case.dalphas[0])
        status = candidates.backward(0, choice)
        right = torch.equal(case.outs[0], dx) and bool(((case.dalphas[0].double() - dalpha).abs() <= tolerance).all())
        if status != 0 or not right:
            print("WRONG", choice, status, plans[choice])
            continue
        contenders[choice] = functools.partial(candidates.backward, choice=choice)
    times = time_all(case, contenders, rounds)
    return {"plans": plans, "times": times, "pick": pick}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="+")
    parser.add_argument("--types", default="f16,f32")
    parser.add_argument("--directions", default="backward")
    parser.add_argument("--json")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    library = harness.Library()
    rows = []
    for name, kind in itertools.product(options.sets, options.types.split(",")):
        for description in bench_prelu.cases_of(name):
            case = bench_prelu.Case(description, kind)
            candidates = Candidates(library, case)
            for direction in options.directions.split(","):
                flat = case.copies[direction]
                copy = [library.permute_arguments(a, [0], b, harness.DTYPE_CODES[a.dtype]) for a, b in flat]
                base = {
                    "copy": lambda i, copy=copy: library.permute(copy[i]),
                    "memcpy": lambda i, flat=flat: flat[i][1].copy_(flat[i][0]),
                }
                moved = min(time_all(case, base, options.rounds).values())
                title = f"{kind} {case.layout} {'x'.join(map(str, case.full_shape))} {direction} {moved * 1e6:.1f}us"
                if direction == "forward":
                    contenders = {t: functools.partial(candidates.forward, threads=t) for t in (32, 64, 128, 256)}
                    times = time_all(case, contenders, options.rounds)
                    found = {str(t): round(moved / time, 3) for t, time in times.items()}
                    print(measured(f"{title}, threads", found), flush=True)
                    rows.append({"case": title, "fractions": found})
                    continue
                result = tune_backward(candidates, options.rounds)
                ranked = sorted(result["times"], key=result["times"].get)
                fractions = {choice: moved / time for choice, time in result["times"].items()}
                picked = fractions.get(result["pick"], math.nan)
                plan = result["plans"][result["pick"]] or "no plan"
                print(f"{title}: pick {picked:.3f} {plan.split(':')[0]}", flush=True)
                figures = {"pick": picked}
                for choice in ranked[:SHOWN]:
                    words = " ".join(f"{key}={value}" for key, value in zip(FIELDS, choice) if value)
                    figures[words or "pick"] = fractions[choice]
                    lines = [line.strip() for line in result["plans"][choice].split("\n")]
                    launch = next(line for line in lines if line.startswith("launch"))
                    print(f"    {fractions[choice]:.3f} {words or 'pick'} | {lines[1]} | {launch}", flush=True)
                print(f"    {measured(title, figures)}", flush=True)
                modes = {mode: round(fractions.get(choice_of(overlap=mode), math.nan), 3) for mode in (0, 1)}
                print(f"    pick by overlap: {modes}")
                for kernel in range(BY_CHANNEL, BY_WARP_COLUMN + 1):
                    best = next((choice for choice in ranked if choice[0] == kernel), None)
                    if best is not None and best not in ranked[:SHOWN]:
                        print(f"    {fractions[best]:.3f} {dict(zip(FIELDS, best))}", flush=True)
                rows.append(
                    {"case": title, "pick": picked, "fractions": [[*c, round(f, 4)] for c, f in fractions.items()]}
                )
            del case, candidates
            torch.cuda.empty_cache()
    harness.write_json(options.json, rows)


if __name__ == "__main__":
    main()
