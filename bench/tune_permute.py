# SPDX-License-Identifier: Apache-2.0
"""Times every tile that the planner may choose for a case, beside the one it does choose.

`python bench/tune_permute.py SET ... --json FILE`, sets as of bench_permute.py.

Takes a library that exports the candidates in $FLOWK_LIBRARY:

    nvcc -std=c++20 -O3 -arch=native -shared -cudart static -Icuda -Iinclude -Xcompiler -fPIC,-fvisibility=hidden \\
      -DFLOWK_BUILD_INFO='"candidates"' $(find cuda -name '*.cpp' -not -path '*/simt/*' -not -name '*_simt.cpp') \\
      $(find cuda -name '*.cu') bench/permute_candidates.cpp -o libflowk_candidates.so

Prints the planner's pick and the best tile of each case, and its figures as a row of bench/tuning/permute_h200.json has
them. FILE holds every tile with its features; TileCosts and ByteTileCosts were fitted to such files, by no script here.
"""

from __future__ import annotations

import argparse
import ctypes
import functools
import sys
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))
import bench_permute
import harness
from tuning.generate_tuning import measured

# fmt: off
FEATURES = [
    "kernel", "unit_bytes", "predicted", "src_rows", "src_run_bytes", "dst_rows", "dst_run_elements", "halo",
    "dst_block", "swizzle_mask", "table_rank", "num_blocks", "shared_bytes", "dst_granule", "vectors_per_group",
    "num_store_items", "shift_mask", "num_table_entries",
]
# fmt: on
MAX_COST = 6  # of a tile that is timed, relative to a copy
SHOWN = FEATURES[:8] + ["shared_bytes"]


def time_back_to_back(work, sets: int, repeats: int = 3) -> float:
    """Median seconds of one work(i), launched back to back over all buffer sets."""
    times = []
    for _ in range(repeats):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        for i in range(sets):
            work(i)
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) * 1e-3 / sets)
    return sorted(times)[len(times) // 2]


def tune(library: harness.Library, case: tuple, check: bool) -> dict:
    name, shape, axes, kind = case
    dtype, code = harness.DTYPES[kind]
    xs, outs = harness.rotating_buffers(shape, [shape[a] for a in axes], dtype)
    x, sets = xs[0], len(xs)
    rank = len(shape)
    longs = ctypes.c_int64 * rank
    src_strides = longs(*(x.stride()[a] for a in axes))
    geometry = (rank, longs(*outs[0].shape), src_strides, longs(*outs[0].stride()), x.element_size())
    features = (ctypes.c_double * len(FEATURES))()
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)

    def candidate(i: int, src: int, dst: int, runs: int = 1) -> int:
        pointers = ctypes.c_void_p(xs[i].data_ptr()), ctypes.c_void_p(outs[i].data_ptr())
        return library.c.flowk_bench_permute_candidate(*pointers, *geometry, src, dst, runs, stream, features)

    flat = [library.permute_arguments(a.view(-1), [0], b.view(-1), code) for a, b in zip(xs, outs)]
    arguments = [library.permute_arguments(a, axes, b, code) for a, b in zip(xs, outs)]
    views = [(a.view(-1), b.view(-1)) for a, b in zip(xs, outs)]
    copy = min(
        time_back_to_back(lambda i: library.permute(flat[i]), sets),
        time_back_to_back(lambda i: views[i][1].copy_(views[i][0]), sets),
    )
    row = {"name": name, "type": kind, "shape": shape, "axes": axes, "copy_us": copy * 1e6, "tiles": []}
    row["pick"] = copy / time_back_to_back(lambda i: library.permute(arguments[i]), sets)
    row["plan"] = library.explain(arguments[0])
    for src in range(64):
        for dst in range(64):
            result = candidate(0, src, dst, 0)
            if result == 2 and dst == 0:
                return row
            if result == 2:
                break
            if result != 0 or features[2] > MAX_COST:
                continue
            if check:
                outs[0].view(torch.uint8).fill_(0xA5)
                candidate(0, src, dst)
                if not harness.same_bits(outs[0], x.permute(axes)):
                    print("WRONG", case, src, dst, dict(zip(FEATURES, features)))
                    continue
            fraction = copy / time_back_to_back(functools.partial(candidate, src=src, dst=dst), sets)
            tile = {"src_choice": src, "dst_choice": dst, "fraction": round(fraction, 4)}
            row["tiles"].append(tile | {k: round(v, 4) for k, v in zip(FEATURES, features)})
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="+")
    parser.add_argument("--json")
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no case after as many")
    parser.add_argument("--check", action="store_true", help="compare the output of every tile")
    options = parser.parse_args()
    library = harness.Library()
    end = time.monotonic() + options.seconds
    rows = []
    for name in options.sets:
        of_set = []
        for case in bench_permute.cases_of(name):
            if time.monotonic() > end:
                break
            row = tune(library, case, options.check)
            if not row["tiles"]:
                continue
            of_set.append(row)
            best = max(row["tiles"], key=lambda tile: tile["fraction"])
            row["best"] = best["fraction"]
            case_text = f"{row['type']:4} {'x'.join(map(str, row['shape'])):28} {''.join(map(str, row['axes'])):7}"
            best_text = " ".join(f"{key}={best[key]:g}" for key in SHOWN)
            print(
                f"{case_text} pick {row['pick']:.3f} best {row['best']:.3f} of {len(row['tiles'])}: {best_text}",
                flush=True,
            )
            print(f"    {measured(case_text, {key: row[key] for key in ('pick', 'best')})}", flush=True)
        means = [harness.geomean([row[key] for row in of_set]) for key in ("pick", "best")]
        print(f"== {name}: pick {means[0]:.3f} best {means[1]:.3f}", flush=True)
        rows += of_set
    harness.write_json(options.json, rows)


if __name__ == "__main__":
    main()
