# SPDX-License-Identifier: Apache-2.0
"""Fits the costs of permute's planner to tiles that were measured: `python bench/fit_permute.py FILE ...`.

The files are what `python bench/tune_permute.py SET ... --json FILE` writes. A tile's predicted time is a sum of costs,
each times a term of the tile. The costs are changed one at a time, as long as the tiles that the planner would pick get
faster. Cases whose pick is far behind their best tile count most.

Prints the values for bench/tuning/permute_h200.json, and the ratio of the pick's time to the best tile's: of all
cases, and of cases that were kept out of a fit, a fifth at a time.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

TUNING = Path(__file__).parent / "tuning" / "permute_h200.json"
BYTE_TILE = 4  # the kernel's number in a tile's features
SOFTNESS = (0.05, 0.008)  # predicted times that differ by less are as good as equal: in a first fit, and in the last
STEPS = (0.5, 0.25, 0.1, 0.05, 0.02)
WORST_WEIGHT = 2  # of the square of the time lost
SLOWER_WEIGHT = 8  # of the time by which a case gets slower than it was when it was measured
ACCURACY_WEIGHT = 0.3  # of the square of the predicted times' error, which counts less for slow tiles
Vector = np.ndarray[Any, np.dtype[np.float64]]


class Tiles:
    """The tiles of some cases: a row of terms and a measured time, over a copy's, each."""

    def __init__(self, cases: list[dict[str, Any]], sets: dict[str, int]) -> None:
        offsets, self.num_terms = {}, 0
        for name, count in sets.items():
            offsets[name] = self.num_terms
            self.num_terms += count
        self.terms = np.zeros((sum(len(case["tiles"]) for case in cases), self.num_terms))
        self.times = np.array([1 / tile["fraction"] for case in cases for tile in case["tiles"]])
        starts = np.cumsum([0] + [len(case["tiles"]) for case in cases])
        self.starts, self.counts = starts[:-1], np.diff(starts)
        for row, tile in enumerate(tile for case in cases for tile in case["tiles"]):
            name = next(iter(sets)) if tile["kernel"] != BYTE_TILE else "byte_tile_costs"
            self.terms[row, offsets[name] : offsets[name] + sets[name]] = tile["terms"][: sets[name]]
        self.best = np.minimum.reduceat(self.times, self.starts)
        self.before = np.array([1 / case["pick"] for case in cases])

    def per_tile(self, of_case: Vector) -> Vector:
        return np.repeat(of_case, self.counts)

    def loss(self, predicted: Vector, softness: float) -> float:
        """The time that the picks lose, if tiles of nearly equal predicted times are picked equally often."""
        lead = predicted - self.per_tile(np.minimum.reduceat(predicted, self.starts))
        weights = np.exp(-lead / softness)
        picked = np.add.reduceat(weights * self.times, self.starts) / np.add.reduceat(weights, self.starts)
        lost = picked / self.best - 1
        error = np.log(np.maximum(predicted, 0.05) / self.times)
        accuracy = np.mean(self.per_tile(self.best) / self.times * np.square(error))
        slower = np.maximum(picked / self.before - 1, 0)
        picks = np.mean(lost + WORST_WEIGHT * np.square(lost) + SLOWER_WEIGHT * slower)
        return float(picks + ACCURACY_WEIGHT * accuracy)

    def picks(self, costs: Vector) -> Vector:
        """The ratio of the pick's time to the best tile's, for each case."""
        predicted = self.terms @ costs
        ends = self.starts + self.counts
        picked = [self.times[a:b][predicted[a:b].argmin()] for a, b in zip(self.starts, ends)]
        return np.array(picked) / self.best


def fit(tiles: Tiles, costs: Vector) -> Vector:
    """Costs of less loss, by steps of one cost at a time."""
    costs = costs.copy()
    predicted = tiles.terms @ costs
    for softness in SOFTNESS:
        loss = tiles.loss(predicted, softness)
        for step in STEPS:
            for _ in range(12):
                before = loss
                for k in range(tiles.num_terms):
                    for factor in (1 + step, 1 / (1 + step)):
                        change = max(costs[k], 1e-3) * factor - costs[k]
                        tried = predicted + change * tiles.terms[:, k]
                        found = tiles.loss(tried, softness)
                        if found < loss:
                            costs[k], predicted, loss = costs[k] + change, tried, found
                if before - loss < 1e-5:
                    break
    return costs


def sets_of(case: dict[str, Any]) -> tuple[str, ...]:
    """The sets of costs that the planner uses for a case."""
    if ">" in case["types"]:
        return ("converted_tile_costs",)
    return ("byte_unit_tile_costs", "byte_tile_costs") if case["tiles"][0]["unit_bytes"] == 1 else ("unit_tile_costs",)


def words(ratios: Vector) -> str:
    return f"{np.exp(np.mean(np.log(ratios))):.3f}, worst {ratios.max():.2f}" if len(ratios) else "none"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+")
    given = parser.parse_args().files
    rows = [row for path in given for row in json.loads(Path(path).read_text()) if len(row.get("tiles", [])) > 1]
    constants = json.loads(TUNING.read_text())["constants"]
    for names in dict.fromkeys(map(sets_of, rows)):
        cases = [row for row in rows if sets_of(row) == names]
        sets = {name: len(constants[name]["value"]) for name in names}
        old = np.array([cost for name in names for cost in constants[name]["value"].values()], float)
        tiles = Tiles(cases, sets)
        new = fit(tiles, old)
        kept_out = [
            Tiles(cases[k::5], sets).picks(fit(Tiles([case for i, case in enumerate(cases) if i % 5 != k], sets), old))
            for k in range(5)
        ]
        print(f"{len(cases)} cases of {len(tiles.times)} tiles, pick over best:", end=" ")
        print(f"{words(tiles.picks(old))} -> {words(tiles.picks(new))}, kept out {words(np.concatenate(kept_out))}")
        at = 0
        for name in names:
            members = constants[name]["value"]
            values = {member: float(f"{cost:.3g}") for member, cost in zip(members, new[at:])}
            print(f'"{name}": {json.dumps(values)}')
            at += len(members)


if __name__ == "__main__":
    main()
