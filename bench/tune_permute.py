# SPDX-License-Identifier: Apache-2.0
"""Times every tile that the planner may choose for a case, and the tile that it chooses.

`python bench/tune_permute.py SET ... --json FILE`, sets as of `python -m pyflowk bench --op permute`, with the library
that candidates.py describes.

Prints the planner's pick and the best tile of each case, and its figures as a row of bench/tuning/permute_h200.json has
them. FILE holds every tile with its features and the terms of its predicted time: fit_permute.py fits the costs to such
files.
"""

from __future__ import annotations

import ctypes
import functools
import json
from pathlib import Path
from typing import Any

import candidates
from tuning.generate_tuning import measured

TUNING = Path(__file__).parent / "tuning"
FEATURES = [
    "kernel", "unit_bytes", "predicted", "src_rows", "src_run_bytes", "dst_rows", "dst_run_elements", "halo",
    "dst_slice", "swizzle_mask", "table_rank", "num_blocks", "shared_bytes", "dst_granule", "vectors_per_segment",
    "num_store_items", "shift_mask", "num_table_entries",
]  # fmt: skip
NUM_TERMS = len(json.loads((TUNING / "permute_h200.json").read_text())["constants"]["unit_tile_costs"]["value"])
MAX_COST = 6  # of a tile that is timed, relative to a copy
MAX_CHOICES = 64  # of the source's, or of the destination's
NO_SUCH_CHOICE = 2
SHOWN = FEATURES[:8] + ["shared_bytes"]


def launches_of(machine: Any, work: Any) -> candidates.Launches | None:
    """Every tile that is worth a try, by the planner's choices for the source and the destination; None if there is
    none. `features` of a launch describes its tile."""
    function = candidates.candidate_function("permute", machine)
    (x,), out = work.operands[0], work.outs[0]
    longs = ctypes.c_int64 * len(x.shape)
    src_strides = longs(*(x.strides[axis] for axis in work.axes))
    geometry = len(x.shape), longs(*out.shape), src_strides, longs(*out.strides)
    types = int(x.code), int(out.code), ctypes.c_double(work.scale)
    values = (ctypes.c_double * (len(FEATURES) + NUM_TERMS))()

    def launch(i: int, src: int, dst: int, runs: int = 1) -> int:
        pointers = ctypes.c_void_p(work.operands[i][0].ptr), ctypes.c_void_p(work.outs[i].ptr)
        return function(*pointers, *geometry, *types, src, dst, runs, values)

    launches: dict[tuple[int, int], Any] = {}
    for src in range(MAX_CHOICES):
        for dst in range(MAX_CHOICES):
            status = launch(0, src, dst, runs=0)
            if status == NO_SUCH_CHOICE:
                if dst == 0:
                    return launches or None
                break
            features: dict[str, Any] = {name: round(value, 4) for name, value in zip(FEATURES, values)}
            features["terms"] = [float(f"{value:.5g}") for value in values[len(FEATURES) :]]
            if status == 0 and features["predicted"] <= MAX_COST:
                launches[src, dst] = functools.partial(launch, src=src, dst=dst)
                launches[src, dst].features = features
    return launches or None


def report(work: Any, row: dict[str, Any], found: dict[Any, float], launches: candidates.Launches) -> None:
    features = {key: launches[key].features for key in found}  # type: ignore[attr-defined]
    row["tiles"] = [features[key] | {"choices": key, "fraction": round(value, 4)} for key, value in found.items()]
    if found:
        key, best = next(iter(found.items()))
        title = f"{work.types:4} {work.shape_text:36}"
        words = " ".join(f"{name}={features[key][name]:g}" for name in SHOWN)
        print(f"{title} pick {row['pick']:.3f} best {best:.3f} of {len(found)}: {words}", flush=True)
        print(f"    {measured(title.strip(), {'pick': row['pick'], 'best': best})}", flush=True)


if __name__ == "__main__":
    parser = candidates.parser_of(__doc__)
    parser.add_argument("--check", action="store_true", help="compare the output of every tile")
    options = parser.parse_args()
    candidates.tune("permute", options, launches_of, report, check=options.check)
