# SPDX-License-Identifier: Apache-2.0
"""Times every config that fits, beside the planner's own choice.

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
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parent))
import candidates
from tuning.generate_tuning import measured

from pyflowk._bench import tensors
from pyflowk._bench.machine import Machine
from pyflowk._bench.softmax_work import SoftmaxWork

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
STAGED_COLUMNS = 1280
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


def configs_of(work: SoftmaxWork) -> list[Config]:
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
    for vectors, threads, cluster in itertools.product(SHARED_ROW_VECTORS, (128, 256, 512), CLUSTERS):
        if row_vectors >= 0.75 * vectors * threads * cluster and row_bytes >= 16384:
            configs.append(Config("row_in_shared", vectors, threads, threads, cluster))
    if k <= STAGED_COLUMNS:
        rows_per_thread = (1, 2, 3, 4, 6, 8, 12, 16) if k <= 20 else (1,)
        configs += [
            Config("staged_rows", rows, lanes, threads)
            for rows, lanes, threads in itertools.product(rows_per_thread, (1, 2, 4, 8, 16, 32), (32, 64, 96, 128))
            if lanes * 40 >= k and (lanes <= 16 or k >= 200) and threads >= lanes
        ]
    if row_vectors in (1, 2, 4, 8):
        configs += [
            Config("rows_by_vectors", rows, row_vectors, threads) for rows in (2, 4) for threads in (64, 128, 256)
        ]
    if (work.mask == "causal" or "lengths" in work.mask) and row_vectors <= 128:
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
    inputs_bytes = row_bytes * (2 if work.is_backward or "bias" in work.mask else 1)
    for cluster in (2, 4, 8, 16):
        if rows * cluster > MULTIPROCESSORS and SHARED_BYTES // 4 <= inputs_bytes // cluster <= SHARED_BYTES:
            clusters = MULTIPROCESSORS // cluster
            configs.append(Config("persistent_rows", clusters, PERSISTENT_THREADS, PERSISTENT_THREADS, cluster))
    return sorted(set(configs))


def candidate_of(machine: Machine, work: SoftmaxWork) -> Callable[..., int]:
    """candidate(i, config): the status of a config on buffer set i."""
    function, longs = candidates.candidate_function("softmax"), [ctypes.c_int64(n) for n in work.shape]
    code, stream = int(work.outs[0].code), candidates.stream_of(machine)

    def candidate(i: int, config: Config) -> int:
        x, *others = work.operands[i]
        y = ctypes.c_void_p(others.pop(0).ptr) if work.is_backward else None
        mask = others[0] if others else None
        strides = [0 if extent == 1 else stride for extent, stride in zip(mask.shape, mask.strides)][:3] if mask else []
        masks = [
            ctypes.c_void_p(mask.ptr) if mask and name == work.mask_field else None
            for name in ("bias", "dense", "lengths")
        ]
        return function(
            *(int(work.is_backward), code, ctypes.c_void_p(x.ptr), y, ctypes.c_void_p(work.outs[i].ptr), *masks),
            *(tensors.longs(strides), int(work.mask == "causal"), *longs, ctypes.c_double(work.scale)),
            *(KERNELS.index(config.kernel), *config[1:-1], ctypes.c_int64(config.rows_per_launch), USES_PDL, stream),
        )

    return candidate


def main() -> None:
    options = candidates.parser_of(__doc__).parse_args()
    machine, rows = Machine(), []
    for _, work in candidates.works(machine, "softmax", options.sets):
        assert isinstance(work, SoftmaxWork)
        candidate = candidate_of(machine, work)
        calls = {config: functools.partial(candidate, config=config) for config in configs_of(work)}
        row, found = candidates.fractions_of(machine, work, calls, options.rounds)
        rows.append(candidates.result_of(row, found))
        figures = {"pick": rows[-1]["pick"]} | {str(config): f for config, f in list(found.items())[: options.best]}
        print(measured(f"{work.kind} {work.types} {work.shape_text}", figures), flush=True)
    candidates.finish(rows, options.json)


if __name__ == "__main__":
    main()
