# SPDX-License-Identifier: Apache-2.0
"""Times every config that fits, beside the planner's own choice.

`python bench/tune_softmax.py SET[:TYPE,...] ... [--json FILE]`, sets plain, odd, dense, lengths, backward of
bench_softmax.py. $FLOWK_LIBRARY is a library with flowk_bench_softmax_candidate():

    nvcc -std=c++20 -O3 -arch=native -shared -cudart static -Icuda -Iinclude -Xcompiler -fPIC,-fvisibility=hidden \\
      -DFLOWK_BUILD_INFO='"candidates"' $(find cuda -name '*.cpp' -not -path '*/simt/*' -not -name '*_simt.cpp') \\
      $(find cuda -name '*.cu') bench/softmax_candidates.cpp -o libflowk_candidates.so

Prints the planner's fraction of copy and the best configs of each case as a row of bench/tuning/softmax_h200.json has
them, and names every config with a wrong result.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import itertools
import math
import sys
from pathlib import Path
from typing import NamedTuple

import torch

sys.path.insert(0, str(Path(__file__).parent))
import harness
from softmax_workload import SoftmaxLibrary, Workload, cases_of
from tuning.generate_tuning import measured

KERNELS = [
    "row_in_registers",
    "row_in_shared",
    "staged_rows",
    "two_pass_row",
    "rows_by_vectors",
    "rows_in_lanes",
    "split_row",
    "persistent_rows",
]
VECTORS = (1, 2, 4, 8, 16)
CLUSTERS = (1, 2, 4, 8, 16)
MAX_LANES = 512
LAUNCH_BYTES = (4 << 20, 8 << 20, 16 << 20)  # split_row
PERSISTENT_THREADS, MULTIPROCESSORS, SHARED_BYTES = 512, 132, 227 << 10
SHARED_ROW_VECTORS = (4, 8)  # row_in_shared, in registers
RESIDENT_BLOCKS = (0, 3, 4, 5, 6)  # per multiprocessor; 0: no limit
USES_PDL = 1


class Config(NamedTuple):
    """A config, in the order of flowk_bench_softmax_candidate()'s parameters."""

    kernel: str
    count: int  # vectors or rows per thread, slices or clusters
    lanes: int
    threads: int
    cluster_blocks: int = 1
    resident_blocks: int = 0
    rows_per_launch: int = 0

    def __str__(self) -> str:
        text = f"{self.kernel} {self.count} {self.lanes}of{self.threads} c{self.cluster_blocks}"
        return f"{text} r{self.resident_blocks} {self.rows_per_launch} rows per launch"


def configs_of(workload: Workload) -> list[Config]:
    """Configs that hold a row without many unused vectors."""
    k = workload.shape[-1]
    row_bytes = k * workload.dtype.itemsize
    row_vectors = -(-row_bytes // 16)
    configs = []
    for vectors, cluster in itertools.product(VECTORS, CLUSTERS):
        lanes = -(-row_vectors // (vectors * cluster))
        if cluster == 1 and lanes <= 32:
            lanes = 1 << (lanes - 1).bit_length()
            configs += [
                Config("row_in_registers", vectors, wide, threads)
                for wide in {lanes, min(2 * lanes, 32), max(lanes, 8), max(lanes, 16)}
                for threads in (32, 64, 128, 256)
                if threads >= wide
            ]
        elif lanes <= MAX_LANES and (cluster == 1 or lanes >= 64):
            lanes = -(-lanes // 32) * 32
            for resident in RESIDENT_BLOCKS:
                if resident * lanes <= 1024:
                    configs.append(Config("row_in_registers", vectors, lanes, lanes, cluster, resident))
    for vectors, threads, cluster in itertools.product(SHARED_ROW_VECTORS, (128, 256, 512), CLUSTERS):
        if row_vectors >= 0.75 * vectors * threads * cluster and row_bytes >= 16384:
            configs.append(Config("row_in_shared", vectors, threads, threads, cluster))
    if k <= 256:
        rows_per_thread = (1, 2, 3, 4, 6, 8, 12, 16) if k <= 20 else (1,)
        configs += [
            Config("staged_rows", rows, lanes, threads)
            for rows, lanes, threads in itertools.product(rows_per_thread, (1, 2, 4, 8, 16), (32, 64, 96, 128))
        ]
    if row_vectors in (1, 2, 4, 8):
        configs += [
            Config("rows_by_vectors", rows, row_vectors, threads) for rows in (2, 4) for threads in (64, 128, 256)
        ]
    if workload.kind == "lengths" and row_vectors <= 128:
        configs += [
            Config("rows_in_lanes", vectors, lanes, threads)
            for vectors, lanes in itertools.product((1, 2, 3, 4), (1, 2, 4, 8, 16, 32))
            for threads in (64, 128)
            if row_vectors <= vectors * lanes <= 2 * row_vectors
        ]
    configs += [Config("two_pass_row", 0, lanes, max(lanes, 128)) for lanes in (8, 32, 128, 512) if lanes * 64 >= k]
    rows = math.prod(workload.shape[:-1])
    for threads, slices in itertools.product((128, 256, 512), (64, 128, 256, 512)):
        if row_bytes >= 65536 and row_vectors >= slices * threads:
            for launch_bytes in LAUNCH_BYTES:
                launch_rows = min(max(launch_bytes // row_bytes, 1), rows)
                configs.append(Config("split_row", slices, threads, threads, rows_per_launch=launch_rows))
    inputs_bytes = row_bytes * (2 if workload.kind == "backward" else 1)
    for cluster in (2, 4, 8, 16):
        if rows * cluster > MULTIPROCESSORS and SHARED_BYTES // 4 <= inputs_bytes // cluster <= SHARED_BYTES:
            clusters = MULTIPROCESSORS // cluster
            configs.append(Config("persistent_rows", clusters, PERSISTENT_THREADS, PERSISTENT_THREADS, cluster))
    return sorted(set(configs))


def tune(library: SoftmaxLibrary, case: tuple) -> dict:
    workload = Workload(case)
    contenders = workload.copies(library)
    contenders["pick"] = lambda i: library.run(workload, i)
    row = {"case": case, "plan": library.explain_softmax(workload), "configs": []}
    longs = [ctypes.c_int64(n) for n in workload.shape]

    def pointer(tensors: list, i: int) -> ctypes.c_void_p:
        return ctypes.c_void_p(tensors[i].data_ptr() if tensors else None)

    def candidate(i: int, config: Config) -> int:
        lengths = ctypes.c_void_p(workload.lengths.data_ptr() if workload.lengths is not None else None)
        pointers = (pointer(workload.xs, i), pointer(workload.sides, i), pointer(workload.outs, i))
        masks = (pointer(workload.denses, i), lengths)
        backward = int(workload.kind == "backward")
        scale = ctypes.c_double(workload.scale)
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        return library.c.flowk_bench_softmax_candidate(
            *(backward, workload.code, *pointers, *masks, *longs, scale),
            *(KERNELS.index(config.kernel), *config[1:-1], ctypes.c_int64(config.rows_per_launch), USES_PDL, stream),
        )

    for config in configs_of(workload):
        workload.outs[0].fill_(float("nan"))
        status = candidate(0, config)
        if status == 1:
            continue
        if status != 0:
            print("FAILED", case, config, library.c.flowk_last_error().decode())
            continue
        right, error = workload.check()
        if not right:
            print("WRONG", case, config, error)
            continue
        contenders[config] = lambda i, config=config: candidate(i, config)
    times = harness.time_in_turn(contenders, workload.sets, rounds=5)
    copy = min(times["memcpy"], times["copy"])
    row |= {"copy_us": copy * 1e6, "pick": copy / times["pick"]}
    for config, time in times.items():
        if isinstance(config, Config):
            row["configs"].append({"config": config._asdict(), "fraction": round(copy / time, 4)})
    row["configs"].sort(key=lambda entry: -entry["fraction"])
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="+")
    parser.add_argument("--json")
    parser.add_argument("--best", type=int, default=4, help="configs printed per case")
    options = parser.parse_args()
    library = SoftmaxLibrary()
    print(harness.machine())
    rows = []
    for name in options.sets:
        of_set = []
        for case in cases_of(name):
            row = tune(library, case)
            of_set.append(row)
            kind, type_, *shape = case
            best = {str(Config(**entry["config"])): entry["fraction"] for entry in row["configs"][: options.best]}
            print(measured(f"{kind} {type_} {'x'.join(map(str, shape))}", {"pick": row["pick"]} | best), flush=True)
            gc.collect()
            torch.cuda.empty_cache()
        picks = [row["pick"] for row in of_set]
        bests = [row["configs"][0]["fraction"] for row in of_set if row["configs"]]
        print(f"== {name}: pick {harness.geomean(picks):.3f} best {harness.geomean(bests):.3f}", flush=True)
        rows += of_set
    harness.write_json(options.json, rows)


if __name__ == "__main__":
    main()
