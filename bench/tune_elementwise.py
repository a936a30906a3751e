# SPDX-License-Identifier: Apache-2.0
"""Times conversions with every number of packs per thread, beside the one that the plan chooses.

`python bench/tune_elementwise.py [--megabytes 256] [--json FILE]`

Takes a library that exports the candidates in $FLOWK_LIBRARY:

    nvcc -std=c++20 -O3 -arch=native -shared -cudart static -Icuda -Iinclude -Xcompiler -fPIC,-fvisibility=hidden \\
      -DFLOWK_BUILD_INFO='"candidates"' $(find cuda -name '*.cpp' -not -path '*/simt/*' -not -name '*_simt.cpp') \\
      $(find cuda -name '*.cu') bench/elementwise_candidates.cpp -o libflowk_candidates.so

Prints the figures of each case as a row of bench/tuning/elementwise_h200.json has them.
"""

from __future__ import annotations

import argparse
import ctypes
import functools
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))
import bench_elementwise
import elementwise_workload as workload
import harness
from tuning.generate_tuning import measured

PACKS = (1, 2)


def tune(library: bench_elementwise.Library, kinds: list[str], megabytes: float) -> dict:
    types = [workload.TYPES[kind] for kind in kinds]
    count = int(megabytes * workload.MB) // sum(dtype.itemsize for dtype, _ in types)
    sets = max(2, -(-harness.TOUCHED_BYTES // int(megabytes * workload.MB)))
    xs = [workload.random_input(kinds[0], (count,), "") for _ in range(sets)]
    outs = [workload.empty_output(kinds[1], (count,), "") for _ in range(sets)]
    half = int(megabytes * workload.MB) // 2
    flat = [[torch.empty(half, dtype=torch.uint8, device="cuda") for _ in range(sets)] for _ in range(2)]
    copies = [library.permute_arguments(a, [0], b, 6) for a, b in zip(*flat)]
    arguments = [library.arguments("copy", [x], out) for x, out in zip(xs, outs)]
    library.run(arguments[0])
    expected = outs[0].view(torch.uint8).clone()

    def candidate(i: int, pack: int) -> int:
        return library.c.flowk_bench_elementwise_candidate(
            ctypes.c_void_p(xs[i].data_ptr()), types[0][1], ctypes.c_void_p(outs[i].data_ptr()), types[1][1],
            ctypes.c_int64(count), pack, ctypes.c_void_p(torch.cuda.current_stream().cuda_stream),
        )  # fmt: skip

    contenders = {"copy": lambda i: library.permute(copies[i]), "pick": lambda i: library.run(arguments[i])}
    for pack in PACKS:
        outs[0].view(torch.uint8).fill_(0xA5)
        if candidate(0, pack) != 0:
            continue
        if not torch.equal(outs[0].view(torch.uint8), expected):
            raise RuntimeError(f"wrong: {kinds} with {pack} packs per thread")
        contenders[str(pack)] = functools.partial(candidate, pack=pack)
    times = harness.time_in_turn(contenders, sets)
    return {"types": kinds} | {name: times["copy"] / t for name, t in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=float, default=256)
    parser.add_argument("--json")
    options = parser.parse_args()
    library = bench_elementwise.Library()
    rows = []
    for case in workload.casts():
        row = tune(library, case.kinds, options.megabytes)
        rows.append(row)
        figures = {name: row[name] for name in ("pick", *map(str, PACKS)) if name in row}
        print(measured(", ".join(row["types"]), figures), flush=True)
    harness.write_json(options.json, rows)


if __name__ == "__main__":
    main()
