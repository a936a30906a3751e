# SPDX-License-Identifier: Apache-2.0
"""The arithmetic of a bench: numbers of buffers, medians, fractions of a copy, means of sets, comparison of runs.

A contender's figure is the time of a plain copy of the same bytes, the faster of cudaMemcpyAsync and flowk's contiguous
copy, divided by the contender's time: 1.00 is the speed of a copy, higher is better.
"""

from __future__ import annotations

import math
import os
import random
import shlex
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Row = dict[str, Any]

TOUCHED_BYTES = 768 << 20  # by one replay: more than ten times the L2 of an H200
MAX_SETS = 1024  # cases below 0.75 MB touch fewer bytes, which their lines say
MIN_TOUCHED = 512 << 20  # with fewer bytes a case may run from the L2
COPIES = ("memcpy", "copy")  # contenders that are the yardstick
SLOWER = 0.05  # --compare fails past this
SLOWER_IN_ONE_RUN = 0.03  # than the rival `old`


def num_buffer_sets(moved_bytes: int, touched_bytes: int = TOUCHED_BYTES) -> int:
    """The number of buffer sets that one replay must touch to exceed the L2: 2 to MAX_SETS."""
    return max(2, min(MAX_SETS, math.ceil(touched_bytes / max(moved_bytes, 1))))


def figures_of(moved_bytes: int, rounds: Mapping[str, Sequence[float]], datasheet_gb_s: float | None) -> Row:
    """The figures of a case from the seconds per call of each contender, one number per round.

    `spread` is half the distance between the quartiles of flowk's rounds, relative to their median.
    """
    medians = {name: statistics.median(seconds) for name, seconds in rounds.items()}
    copy = min(medians[name] for name in COPIES)
    own = sorted(rounds["flowk"])
    gb_s = moved_bytes / medians["flowk"] * 1e-9
    row: Row = {"copy_us": copy * 1e6, "own_copy": copy / medians["copy"], "gb_s": gb_s}
    row["spread"] = (own[3 * (len(own) - 1) // 4] - own[(len(own) - 1) // 4]) / 2 / medians["flowk"]
    if datasheet_gb_s:
        row["datasheet"] = gb_s / datasheet_gb_s
    row["us"] = {name: seconds * 1e6 for name, seconds in medians.items()}
    row["fractions"] = {name: copy / seconds for name, seconds in medians.items() if name not in COPIES}
    return row


def geomean(values: Iterable[float]) -> float:
    """The geometric mean; NaN if there are no values."""
    found = list(values)
    return statistics.geometric_mean(found) if found else math.nan


def log_uniform(generator: random.Random, low: int, high: int) -> int:
    """A number from low to high, every power of 2 between them as likely as the next."""
    return round(math.exp(generator.uniform(math.log(low), math.log(high))))


def case_key(row: Row) -> str:
    """The name of a case, which is the same in every run."""
    return " ".join(filter(None, (row["op"], row["kind"], row["types"], row["shape"], row["note"])))


def set_title(row: Row) -> str:
    """The set of a case, and the part of it that has a mean of its own."""
    return " ".join(filter(None, (row["op"], row["set"], row["part"])))


def summaries(rows: Iterable[Row]) -> list[Row]:
    """One row per set: its cases, those that are right, flowk's geomean and worst, and each rival's geomean over the
    cases that it takes."""
    sets: dict[str, list[Row]] = {}
    for row in rows:
        sets.setdefault(set_title(row), []).append(row)
    found = []
    for title, of_set in sets.items():
        timed = [row["fractions"] for row in of_set if "fractions" in row]
        names = dict.fromkeys(name for fractions in timed for name in fractions)
        taken = {name: [fractions[name] for fractions in timed if name in fractions] for name in names}
        means = {name: geomean(fractions) for name, fractions in taken.items()}
        found.append(
            {
                "set": title,
                "cases": len(of_set),
                "right": sum(row["right"] for row in of_set),
                "geomean": means.pop("flowk", math.nan),
                "worst": min((fractions["flowk"] for fractions in timed), default=math.nan),
                "rivals": means,
                "taken": {name: len(taken[name]) for name in means},
            }
        )
    return found


def slowdowns(rows: Iterable[Row], old_rows: Iterable[Row], limit: float = SLOWER) -> list[tuple[str, float, float]]:
    """(case, old fraction, new fraction) of every case of both runs that takes more than `limit` more time, relative to
    a copy, than in the old run; 0 as the new fraction if it is wrong or no longer timed."""
    old = {case_key(row): row["fractions"]["flowk"] for row in old_rows if "fractions" in row}
    found = []
    for row in rows:
        before = old.get(case_key(row))
        now = row.get("fractions", {}).get("flowk", 0.0)
        if before is not None and before > now * (1 + limit):
            found.append((case_key(row), before, now))
    return found


def without_folders(command: str) -> str:
    """The command with file names instead of absolute paths, which name the folders of one machine."""
    words = []
    for word in shlex.split(command):
        option, equals, value = word.partition("=") if word.startswith("--") else ("", "", word)
        words.append(option + equals + (os.path.basename(value) if value.startswith(("/", "~")) else value))
    return shlex.join(words)
