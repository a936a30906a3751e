# SPDX-License-Identifier: Apache-2.0
"""A run with invented figures: the cases of README's table and of the articles, none of them measured."""

from __future__ import annotations

import random
from typing import Any

from pyflowk._bench import articles
from pyflowk._bench.measure import figures_of
from pyflowk._bench.runner import OPERATORS

SPEEDS = {"torch": 0.4, "compile": 0.7, "cupy": 0.3, "cutensor": 0.75, "quack": 0.95, "plain": 0.35}
MACHINE = {"GPU": "Invented GPU (sm_90)", "driver": "1.0", "clocks": "none", "date": "2026-01-01",
           "command": "python -m pyflowk bench --set results"}  # fmt: skip


def invented_run(cases_per_set: int = 6) -> dict[str, Any]:
    draw = random.Random(1)
    rows = [_row(draw, "articles", op, case, articles.RIVALS) for op, case in articles.cases()]
    for op, (module, _) in OPERATORS.items():
        for name, rivals in module.RESULT_SETS.items():
            cases = module.SETS.cases_of(name)[:: max(1, len(module.SETS.cases_of(name)) // cases_per_set)]
            rows += [_row(draw, name, op, case, rivals.split(",")) for case in cases]
    return {"format": 1, "machine": dict(MACHINE), "rows": rows}


def _row(draw: random.Random, set_name: str, op: str, case: dict[str, Any], rivals: Any) -> dict[str, Any]:
    num_bytes = draw.randint(1 << 22, 1 << 29)
    copy = 2 * num_bytes / 4e12 + 2e-6
    rounds = {"memcpy": [copy], "copy": [copy], "flowk": [copy / draw.uniform(0.7, 1.05)]}
    rounds |= {name: [copy / draw.uniform(0.6, 1.2) / SPEEDS[name]] for name in rivals if draw.random() < 0.9}
    kinds = case.get("kinds", case.get("types", case.get("kind", "")))
    row = {
        "op": op, "set": set_name, "kind": case.get("direction") or case.get("name") or case.get("kind") or case["op"],
        "types": ",".join(kinds) if isinstance(kinds, list) else kinds, "shape": "x".join(map(str, case["shape"])),
        "note": " ".join(map(str, case.get("axes", ()))), "part": "", "right": True, "read_bytes": num_bytes,
        "written_bytes": num_bytes, "touched_bytes": 768 << 20, "plan": "invented_kernel: a reason", "skipped": {},
    }  # fmt: skip
    return row | figures_of(2 * num_bytes, rounds, 4917.0)
