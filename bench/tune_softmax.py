# SPDX-License-Identifier: Apache-2.0
"""Times every config that fits, and the planner's own choice.

`python bench/tune_softmax.py SET[:TYPE,...] ... [--json FILE]`, sets plain, odd, dense, lengths, bias, backward of
`python -m pyflowk bench --op softmax`, or cases as `"bias f32 3353x23824"`, with the library that candidates.py
describes.

Prints the planner's fraction of copy and the best configs of each case as a row of bench/tuning/softmax_h200.json has
them, and names every config with a wrong result.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import math
from typing import Any, NamedTuple

import candidates
from tuning.generate_tuning import measured

from pyflowk._bench import tensors

KERNELS = [
    "row_in_registers", "row_in_shared", "staged_rows", "two_pass_row", "rows_by_vectors", "rows_in_lanes", "split_row",
    "persistent_rows", "framed_rows", "strided_rows",
]  # fmt: skip
VECTORS = (1, 2, 4, 8, 16)
CLUSTERS = (1, 2, 4, 8, 16)
MAX_LANES = 512
STAGED_COLUMNS, STAGED_THREAD_COLUMNS = 10240, 52
LAUNCH_BYTES = (4 << 20, 8 << 20, 16 << 20)  # split_row
PERSISTENT_THREADS, MULTIPROCESSORS, SHARED_BYTES = 512, 132, 227 << 10
SHARED_ROW_VECTORS = 4  # row_in_shared, in registers
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


def configs_of(work: Any) -> list[Config]:
    """Configs that hold a row without many unused vectors."""
    k = work.shape[-1]
    row_bytes = k * work.outs[0].itemsize
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
    for threads, cluster in itertools.product((128, 256, 512), CLUSTERS):
        if row_vectors >= 0.75 * SHARED_ROW_VECTORS * threads * cluster and row_bytes >= 16384:
            configs.append(Config("row_in_shared", 0, threads, threads, cluster))
    if k <= STAGED_COLUMNS:
        rows_per_thread = (1, 2, 3, 4, 6, 8, 12, 16) if k <= 20 else (1,)
        configs += [
            Config("staged_rows", rows, lanes, threads)
            for rows, lanes, threads in itertools.product(rows_per_thread, (1, 2, 4, 8, 16, 32), (32, 64, 96, 128))
            if lanes * STAGED_THREAD_COLUMNS >= k and (lanes <= 16 or k >= 200) and threads >= lanes
        ]
        whole_blocks = [lanes for lanes in (64, 96, 128, 192, 256) if k > 1000 and lanes * STAGED_THREAD_COLUMNS >= k]
        configs += [Config("staged_rows", 1, lanes, lanes) for lanes in whole_blocks]
    configs += [
        Config("framed_rows", 0, lanes, threads)
        for lanes, threads in itertools.product((2, 4, 8, 16, 32), (32, 64, 128))
        if row_vectors <= 32 * lanes <= 32 * max(row_vectors, 4)
    ]
    if row_vectors in (1, 2, 4, 8):
        configs += [
            Config("rows_by_vectors", rows, row_vectors, threads) for rows in (2, 4) for threads in (64, 128, 256)
        ]
    if (work.mask == "causal" or work.mask_field == "lengths") and row_vectors <= 128:
        configs += [
            Config("rows_in_lanes", vectors, lanes, threads)
            for vectors, lanes in itertools.product((1, 2, 3, 4), (1, 2, 4, 8, 16, 32))
            for threads in (64, 128)
            if row_vectors <= vectors * lanes <= 2 * row_vectors
        ]
    configs += [Config("two_pass_row", 0, lanes, max(lanes, 128)) for lanes in (8, 32, 128, 512) if lanes * 64 >= k]
    rows = math.prod(work.shape[:-1])
    for threads, slices in itertools.product((128, 256, 512), (64, 128, 256, 512)):
        if row_bytes >= 65536 and row_vectors >= slices * threads:
            for launch_bytes in LAUNCH_BYTES:
                launch_rows = min(max(launch_bytes // row_bytes, 1), rows)
                configs.append(Config("split_row", slices, threads, threads, rows_per_launch=launch_rows))
    inputs_bytes = row_bytes * (2 if work.is_backward or work.mask_field == "bias" else 1)
    for cluster in (2, 4, 8, 16):
        if rows * cluster > MULTIPROCESSORS and SHARED_BYTES // 4 <= inputs_bytes // cluster <= SHARED_BYTES:
            clusters = MULTIPROCESSORS // cluster
            configs.append(Config("persistent_rows", clusters, PERSISTENT_THREADS, PERSISTENT_THREADS, cluster))
    return sorted(set(configs))


def launches_of(machine: Any, work: Any) -> candidates.Launches:
    function = candidates.candidate_function("softmax", machine)
    code, longs = int(work.outs[0].code), [ctypes.c_int64(extent) for extent in work.shape]

    def launch(i: int, config: Config) -> int:
        x, *others = work.operands[i]
        y = ctypes.c_void_p(others.pop(0).ptr) if work.is_backward else None
        mask = others[0] if others else None
        masks = [
            ctypes.c_void_p(mask.ptr) if mask and name == work.mask_field else None
            for name in ("bias", "dense", "lengths")
        ]
        return function(
            *(int(work.is_backward), code, ctypes.c_void_p(x.ptr), y, ctypes.c_void_p(work.outs[i].ptr), *masks),
            *(tensors.longs(mask.broadcast_strides()[:3] if mask else []), int(work.mask == "causal"), *longs),
            *(ctypes.c_double(work.scale), KERNELS.index(config.kernel), *config[1:-1]),
            *(ctypes.c_int64(config.rows_per_launch), USES_PDL),
        )

    return {config: functools.partial(launch, config=config) for config in configs_of(work)}


def report(work: Any, row: dict[str, Any], found: dict[Any, float], launches: candidates.Launches) -> None:
    figures = candidates.best_of(row, found, options.best)
    print(measured(f"{work.kind} {work.types} {work.shape_text}", figures), flush=True)


if __name__ == "__main__":
    options = candidates.parser_of(__doc__).parse_args()
    candidates.tune("softmax", options, launches_of, report)
