# SPDX-License-Identifier: Apache-2.0
"""Times every kernel and launch that the planner of PReLU may choose for a case, beside the one it does choose.

`python bench/tune_prelu.py SET[:TYPES] ... [--directions forward,backward] --json FILE`, sets as of
`python -m pyflowk bench --op prelu`, with the library that candidates.py describes.

Prints for each case the planner's pick and the best candidates, each with its result checked, and their figures as a
row of bench/tuning/prelu_h200.json has them.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import candidates
from tuning.generate_tuning import measured

from pyflowk._bench.machine import Machine
from pyflowk._bench.prelu_work import PreluWork
from pyflowk._bench.tensors import Tensor

FIELDS = ("kernel", "max_threads", "rows_per_block", "cluster_blocks", "tile_vectors", "overlap", "vectors_in_flight")
BY_CHANNEL, BY_SPAN, BY_PLANE, BY_COLUMN, BY_WARP_COLUMN = range(1, 6)
FORWARD_THREADS = (32, 64, 128, 256)


def choice_of(**fields: int) -> tuple[int, ...]:
    return tuple(fields.get(name, 0) for name in FIELDS)


def backward_choices(inner: int) -> list[tuple[int, ...]]:
    """Those worth a try: by_column and by_warp_column for any planes, the others where inner > 1."""
    product = itertools.product
    choices = [choice_of(overlap=1), choice_of(kernel=BY_WARP_COLUMN)]
    if inner > 1:
        choices += [
            choice_of(kernel=BY_CHANNEL, max_threads=t, cluster_blocks=b, tile_vectors=p, vectors_in_flight=k)
            for t, b, p, k in product((208, 320, 416, 512), (1, 2, 4), (0, 13, 25, 49, 98), (3, 4))
        ]
        choices += [
            choice_of(kernel=BY_SPAN, max_threads=t, vectors_in_flight=p)
            for t, p in product((64, 128, 256), (1, 2, 4, 8))
        ]
        choices += [choice_of(kernel=BY_PLANE, max_threads=t) for t in (128, 256, 512)]
    columns = product((64, 128, 256), (32, 64, 96, 128, 256), (2, 4), (8, 32))
    return choices + [
        choice_of(kernel=BY_COLUMN, max_threads=t, rows_per_block=r, vectors_in_flight=k, tile_vectors=p)
        for t, r, k, p in columns
    ]


class Launches:
    """A case's candidates: what makes two of them the same launch, and how one is run on buffer set i."""

    def __init__(self, machine: Machine, work: PreluWork) -> None:
        self.work, self.stream = work, candidates.stream_of(machine)
        self.function = candidates.candidate_function("prelu_backward" if work.backward else "prelu")
        if work.backward:  # room for the pick's partials and for most candidates'
            num_bytes = max(work.workspace_bytes, work.written_bytes, 1 << 20)
            self.workspace = Tensor(machine, "u8", [num_bytes])
            self.workspace.poison(0xFF)

    def forward(self, i: int, threads: int) -> int:
        return self.function(*self.work.calls[i], threads, self.stream)

    def backward(self, i: int, choice: tuple[int, ...], text: ctypes.Array | None = None) -> int:
        memory = ctypes.c_void_p(self.workspace.ptr), ctypes.c_size_t(self.workspace.num_elements)
        fields = (ctypes.c_int32 * len(FIELDS))(*choice)
        where = (text, ctypes.c_size_t(len(text) if text is not None else 0))
        return self.function(*self.work.calls[i], *memory, fields, *where, self.stream)

    def plan_of(self, choice: tuple[int, ...]) -> str | None:
        text = ctypes.create_string_buffer(2048)
        return text.value.decode() if self.backward(0, choice, text) == 0 else None

    def calls(self) -> dict[str, functools.partial[int]]:
        """Every launch once, by its fields."""
        if not self.work.backward:
            return {str(threads): functools.partial(self.forward, threads=threads) for threads in FORWARD_THREADS}
        plans: dict[str, tuple[int, ...]] = {}
        for choice in backward_choices(self.work.memory_shape[2]):
            plan = self.plan_of(choice)
            if plan is not None:
                plans.setdefault(plan, choice)
        words = {choice: " ".join(f"{key}={n}" for key, n in zip(FIELDS, choice) if n) for choice in plans.values()}
        return {words[choice] or "pick": functools.partial(self.backward, choice=choice) for choice in plans.values()}


def main() -> None:
    parser = candidates.parser_of(__doc__)
    parser.add_argument("--directions", default="backward")
    options = parser.parse_args()
    machine, rows = Machine(), []
    directions = options.directions.split(",")
    for _, work in candidates.works(machine, "prelu", options.sets, direction=directions):
        assert isinstance(work, PreluWork)
        row, found = candidates.fractions_of(machine, work, Launches(machine, work).calls(), options.rounds)
        rows.append(candidates.result_of(row, found))
        title = f"{work.types} {work.layout} {work.shape_text} {work.kind} {row['copy_us']:.1f}us"
        print(f"{title}: pick {rows[-1]['pick']:.3f} {row['plan'].split(':')[0]}", flush=True)
        figures = {"pick": rows[-1]["pick"]} | dict(list(found.items())[: options.best])
        print(f"    {measured(title, figures)}", flush=True)
        for kernel in range(BY_CHANNEL, BY_WARP_COLUMN + 1):
            best = next((words for words in found if words.split()[0] == f"kernel={kernel}"), None)
            if best is not None and best not in figures:
                print(f"    {found[best]:.3f} {best}", flush=True)
    candidates.finish(rows, options.json)


if __name__ == "__main__":
    main()
