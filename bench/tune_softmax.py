# SPDX-License-Identifier: Apache-2.0
"""Times every shape that a plan of masked softmax may have, beside the planner's own choice.

`python bench/tune_softmax.py SET[:TYPE,...] ... [--json FILE]`, sets plain, odd, dense, lengths, backward of
bench_softmax.py. Takes a library that exports the candidates in $FLOWK_LIBRARY:

    nvcc -std=c++20 -O3 -arch=native -shared -cudart static -Icuda -Iinclude -Xcompiler -fPIC,-fvisibility=hidden \\
      -DFLOWK_BUILD_INFO='"candidates"' cuda/api/*.cpp cuda/core/{status,dtype,shape,device_cuda}.cpp \\
      cuda/{permute,masked_softmax}/*.{cpp,cu} bench/softmax_candidates.cpp -o libflowk_candidates.so

Prints the planner's fraction of copy and the best shapes of each case. A shape whose output is wrong is named.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import itertools
import math
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))
import harness
from softmax_workload import SoftmaxLibrary, Workload, cases_of

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
ELEMENT_LANES = (2, 4, 8, 16)
MAX_LANES = 512
GROUP_BYTES = (4 << 20, 8 << 20, 16 << 20)  # of split_row, a launch
TURN_THREADS, MULTIPROCESSORS, SHARED_BYTES = 512, 132, 227 << 10  # of persistent_rows
HELD_VECTORS = (4, 8)  # of row_in_shared, in registers
RESIDENT_BLOCKS = (0, 3, 4, 5, 6)  # of a multiprocessor; 0: as many as fit
OVERLAPS_PREVIOUS = 1


def shapes_of(workload: Workload) -> list[tuple[int, ...]]:
    """(kernel, vectors, lanes, threads, cluster, resident blocks, slices or clusters, rows a launch) that hold a row
    closely."""
    k = workload.shape[-1]
    row_bytes = k * workload.dtype.itemsize
    row_vectors = -(-row_bytes // 16)
    shapes = []
    for vectors, cluster in itertools.product(VECTORS, CLUSTERS):
        lanes = -(-row_vectors // (vectors * cluster))
        if cluster == 1 and lanes <= 32:
            lanes = 1 << (lanes - 1).bit_length()
            shapes += [
                (0, vectors, wide, threads, 1, 0)
                for wide in {lanes, min(2 * lanes, 32), max(lanes, 8), max(lanes, 16)}
                for threads in (32, 64, 128, 256)
                if threads >= wide
            ]
        elif lanes <= MAX_LANES and (cluster == 1 or lanes >= 64):
            lanes = -(-lanes // 32) * 32
            for resident in RESIDENT_BLOCKS:
                if resident * lanes <= 1024:
                    shapes.append((0, vectors, lanes, lanes, cluster, resident))
    for held, threads, cluster in itertools.product(HELD_VECTORS, (128, 256, 512), CLUSTERS):
        if row_vectors >= 0.75 * held * threads * cluster and row_bytes >= 16384:
            shapes.append((1, held, threads, threads, cluster, 0))
    if k <= 256:
        shapes += [(2, 0, lanes, threads, 1, 0) for lanes in ELEMENT_LANES for threads in (64, 128, 256)]
    if row_vectors in (1, 2, 4, 8):
        shapes += [(4, vectors, row_vectors, threads, 1, 0) for vectors in (2, 4) for threads in (64, 128, 256)]
    if workload.kind == "lengths" and row_vectors <= 128:
        shapes += [
            (5, vectors, lanes, threads, 1, 0)
            for vectors, lanes in itertools.product((1, 2, 3, 4), (1, 2, 4, 8, 16, 32))
            for threads in (64, 128)
            if vectors * lanes < 2 * row_vectors + 1 and vectors * lanes >= row_vectors
        ]
    shapes += [(3, 0, lanes, max(lanes, 128), 1, 0) for lanes in (8, 32, 128, 512) if lanes * 64 >= k]
    shapes = [(*shape, 1, 0) for shape in shapes]
    rows = math.prod(workload.shape[:-1])
    for threads, slices in itertools.product((128, 256, 512), (64, 128, 256, 512)):
        if row_bytes >= 65536 and row_vectors >= slices * threads:
            for group_bytes in GROUP_BYTES:
                shapes.append((6, 0, threads, threads, 1, 0, slices, min(max(group_bytes // row_bytes, 1), rows)))
    inputs_bytes = row_bytes * (2 if workload.kind == "backward" else 1)
    for vectors, cluster in itertools.product((2, 4), (2, 4, 8, 16)):
        if rows * cluster > MULTIPROCESSORS and SHARED_BYTES // 4 <= inputs_bytes // cluster <= SHARED_BYTES:
            clusters = MULTIPROCESSORS // cluster  # as many of them as are resident
            shapes.append((7, vectors, TURN_THREADS, TURN_THREADS, cluster, 0, clusters, 0))
    return sorted(set(shapes))


def tune(library: SoftmaxLibrary, case: tuple) -> dict:
    workload = Workload(case)
    contenders = workload.copies(library)
    contenders["pick"] = lambda i: library.run(workload, i)
    row = {"case": case, "plan": library.explain_softmax(workload), "shapes": []}
    longs = [ctypes.c_int64(n) for n in workload.shape]

    def pointer(tensors: list, i: int) -> ctypes.c_void_p:
        return ctypes.c_void_p(tensors[i].data_ptr() if tensors else None)

    def candidate(i: int, shape: tuple[int, ...]) -> int:
        lengths = ctypes.c_void_p(workload.lengths.data_ptr() if workload.lengths is not None else None)
        pointers = (pointer(workload.xs, i), pointer(workload.sides, i), pointer(workload.outs, i))
        masks = (pointer(workload.denses, i), lengths)
        backward = int(workload.kind == "backward")
        scale = ctypes.c_double(workload.scale)
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        return library.c.flowk_bench_softmax_candidate(
            *(backward, workload.code, *pointers, *masks, *longs, scale),
            *(*shape[:-1], ctypes.c_int64(shape[-1]), OVERLAPS_PREVIOUS, stream),
        )

    for shape in shapes_of(workload):
        workload.outs[0].fill_(float("nan"))
        status = candidate(0, shape)
        if status == 1:
            continue
        if status != 0:
            print("FAILED", case, shape, library.c.flowk_last_error().decode())
            continue
        right, error = workload.check()
        if not right:
            print("WRONG", case, shape, error)
            continue
        contenders[shape] = lambda i, shape=shape: candidate(i, shape)
    times = harness.time_in_turn(contenders, workload.sets, rounds=5)
    copy = min(times["memcpy"], times["copy"])
    row |= {"copy_us": copy * 1e6, "pick": copy / times["pick"]}
    for shape, time in times.items():
        if isinstance(shape, tuple):
            row["shapes"].append({"shape": shape, "fraction": round(copy / time, 4)})
    row["shapes"].sort(key=lambda entry: -entry["fraction"])
    return row


def text_of(entry: dict) -> str:
    kernel, vectors, lanes, threads, cluster, resident, slices, group = entry["shape"]
    text = f"{entry['fraction']:.3f} {KERNELS[kernel]} {vectors}v {lanes}of{threads} c{cluster} r{resident}"
    return f"{text} s{slices} of {group} rows" if group > 0 else text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="+")
    parser.add_argument("--json")
    parser.add_argument("--best", type=int, default=4, help="shapes printed of each case")
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
            best = " | ".join(text_of(entry) for entry in row["shapes"][: options.best])
            label = f"{kind} {type_} {'x'.join(map(str, shape))}"
            print(f"{label:34} pick {row['pick']:.3f} best of {len(row['shapes'])}: {best}", flush=True)
            gc.collect()
            torch.cuda.empty_cache()
        picks = [row["pick"] for row in of_set]
        bests = [row["shapes"][0]["fraction"] for row in of_set if row["shapes"]]
        print(f"== {name}: pick {harness.geomean(picks):.3f} best {harness.geomean(bests):.3f}", flush=True)
        rows += of_set
    harness.write_json(options.json, rows)


if __name__ == "__main__":
    main()
