# SPDX-License-Identifier: Apache-2.0
"""Times every tile that the planner may choose for a case, beside the one it does choose.

`python bench/tune_permute.py SET ... --json FILE`, sets as of `python -m pyflowk bench --op permute`, with the library
that candidates.py describes.

Prints the planner's pick and the best tile of each case, and its figures as a row of bench/tuning/permute_h200.json has
them. FILE holds every tile with its features; TileCosts and ByteTileCosts were fitted to such files, by no script here.
"""

from __future__ import annotations

import ctypes
import functools
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import candidates
from tuning.generate_tuning import measured

from pyflowk._bench.machine import Machine
from pyflowk._bench.work import Work

# fmt: off
FEATURES = [
    "kernel", "unit_bytes", "predicted", "src_rows", "src_run_bytes", "dst_rows", "dst_run_elements", "halo",
    "dst_slice", "swizzle_mask", "table_rank", "num_blocks", "shared_bytes", "dst_granule", "vectors_per_segment",
    "num_store_items", "shift_mask", "num_table_entries",
]
# fmt: on
MAX_COST = 6  # of a tile that is timed, relative to a copy
MAX_CHOICES = 64  # on a side
NO_SUCH_CHOICE = 2
SHOWN = FEATURES[:8] + ["shared_bytes"]


class Tiles:
    """The tiles of a case, by the planner's choices on either side."""

    def __init__(self, machine: Machine, work: Work) -> None:
        self.function, self.work = candidates.candidate_function("permute"), work
        (x,), out = work.operands[0], work.outs[0]
        longs = ctypes.c_int64 * len(x.shape)
        src_strides = longs(*(x.strides[axis] for axis in work.axes))  # type: ignore[attr-defined]
        self.geometry = len(x.shape), longs(*out.shape), src_strides, longs(*out.strides), x.itemsize
        self.stream = candidates.stream_of(machine)
        self.features = (ctypes.c_double * len(FEATURES))()

    def call(self, i: int, src: int, dst: int, runs: int = 1) -> int:
        pointers = ctypes.c_void_p(self.work.operands[i][0].ptr), ctypes.c_void_p(self.work.outs[i].ptr)
        return self.function(*pointers, *self.geometry, src, dst, runs, self.stream, self.features)

    def found(self) -> dict[tuple[int, int], dict[str, float]]:
        """The features of every tile that is worth a try."""
        tiles = {}
        for src in range(MAX_CHOICES):
            for dst in range(MAX_CHOICES):
                result = self.call(0, src, dst, runs=0)
                if result == NO_SUCH_CHOICE:
                    if dst == 0:
                        return tiles
                    break
                features = dict(zip(FEATURES, self.features))
                if result == 0 and features["predicted"] <= MAX_COST:
                    tiles[src, dst] = {name: round(value, 4) for name, value in features.items()}
        return tiles


def main() -> None:
    parser = candidates.parser_of(__doc__)
    parser.add_argument("--seconds", type=float, default=1e9, help="begin no case after this time")
    parser.add_argument("--check", action="store_true", help="compare the output of every tile")
    options = parser.parse_args()
    machine, rows = Machine(), []
    end = time.monotonic() + options.seconds
    for _, work in candidates.works(machine, "permute", options.sets):
        if time.monotonic() > end:
            break
        tiles = Tiles(machine, work)
        features = tiles.found()
        if not features:
            continue
        calls = {key: functools.partial(tiles.call, src=key[0], dst=key[1]) for key in features}
        row, found = candidates.fractions_of(machine, work, calls, options.rounds, check=options.check)
        rows.append(candidates.result_of(row, found))
        rows[-1]["tiles"] = [
            features[key] | {"choices": key, "fraction": round(value, 4)} for key, value in found.items()
        ]
        if not found:
            continue
        key, best = next(iter(found.items()))
        title = f"{work.types:4} {work.shape_text:36}"
        words = " ".join(f"{name}={features[key][name]:g}" for name in SHOWN)
        print(f"{title} pick {rows[-1]['pick']:.3f} best {best:.3f} of {len(found)}: {words}", flush=True)
        print(f"    {measured(title.strip(), {'pick': rows[-1]['pick'], 'best': best})}", flush=True)
    candidates.finish(rows, options.json)


if __name__ == "__main__":
    main()
