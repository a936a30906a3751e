# SPDX-License-Identifier: Apache-2.0
"""Times every kernel and launch that the planner of PReLU may choose for a case, and those that it chooses.

`python bench/tune_prelu.py SET[:TYPES] ... [--directions forward,backward] --json FILE`, sets as of
`python -m pyflowk bench --op prelu`, with the library that candidates.py describes.

Prints for each case the planner's pick and the best candidates, each with its result checked, and their figures as a
row of bench/tuning/prelu_h200.json has them.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
from typing import Any

import candidates
from tuning.generate_tuning import measured

from pyflowk._bench.tensors import Tensor

FIELDS = ("kernel", "max_threads", "rows_per_block", "cluster_blocks", "tile_vectors", "overlap", "vectors_in_flight")
BY_CHANNEL, BY_SPAN, BY_PLANE, BY_COLUMN, BY_WARP_COLUMN = range(1, 6)
FORWARD_THREADS = (32, 64, 128, 256)


def choice_of(**fields: int) -> tuple[int, ...]:
    return tuple(fields.get(name, 0) for name in FIELDS)


def backward_choices(inner: int) -> list[tuple[int, ...]]:
    """The choices worth a try: by_column and by_warp_column for any planes, the others if inner > 1."""
    product = itertools.product
    choices = [choice_of(overlap=1), choice_of(kernel=BY_WARP_COLUMN)]
    if inner > 1:
        choices += [
            choice_of(kernel=BY_CHANNEL, max_threads=t, cluster_blocks=b, tile_vectors=p, vectors_in_flight=k)
            for t, b, p, k in product((208, 320, 416, 512), (1, 2, 4), (0, 13, 25, 49, 98), (3, 4))
        ]
        choices += [
            choice_of(kernel=BY_SPAN, max_threads=t, vectors_in_flight=p) for t, p in product((64, 128, 256), (1, 2, 4))
        ]
        choices += [choice_of(kernel=BY_PLANE, max_threads=t) for t in (128, 256, 512)]
    columns = product((64, 128, 256), (32, 64, 96, 128, 256))
    return choices + [choice_of(kernel=BY_COLUMN, max_threads=t, rows_per_block=r) for t, r in columns]


def launches_of(machine: Any, work: Any) -> candidates.Launches:
    """Every launch once, by its fields: two choices with the same plan are the same launch."""
    if not work.backward:
        prelu = candidates.candidate_function("prelu", machine)

        def forward(i: int, threads: int) -> int:
            return prelu(*work.calls[i], threads)

        return {threads: functools.partial(forward, threads=threads) for threads in FORWARD_THREADS}
    prelu_backward = candidates.candidate_function("prelu_backward", machine)
    # Room for the pick's partials and for most candidates'.
    workspace = Tensor(machine, "u8", [max(work.workspace[1], work.written_bytes, 1 << 20)])
    workspace.poison(0xFF)

    def backward(i: int, choice: tuple[int, ...], text: ctypes.Array | None = None) -> int:
        memory = ctypes.c_void_p(workspace.ptr), ctypes.c_size_t(workspace.num_elements)
        fields = (ctypes.c_int32 * len(FIELDS))(*choice)
        return prelu_backward(*work.calls[i], *memory, fields, text, ctypes.c_size_t(len(text) if text else 0))

    plans: dict[bytes, tuple[int, ...]] = {}
    for choice in backward_choices(work.memory_shape[2]):
        text = ctypes.create_string_buffer(2048)
        if backward(0, choice, text) == 0:
            plans.setdefault(text.value, choice)
    words = {choice: " ".join(f"{key}={n}" for key, n in zip(FIELDS, choice) if n) for choice in plans.values()}
    return {words[choice] or "pick": functools.partial(backward, choice=choice) for choice in plans.values()}


def report(work: Any, row: dict[str, Any], found: dict[Any, float], launches: candidates.Launches) -> None:
    title = f"{work.types} {work.layout} {work.shape_text} {work.kind} {row['copy_us']:.1f}us"
    print(f"{title}: pick {row['pick']:.3f} {row['plan'].split(':')[0]}", flush=True)
    figures = candidates.best_of(row, found, options.best)
    print(f"    {measured(title, figures)}", flush=True)
    for kernel in range(BY_CHANNEL, BY_WARP_COLUMN + 1):
        best = next((words for words in found if str(words).split()[0] == f"kernel={kernel}"), None)
        if best is not None and best not in figures:
            print(f"    {found[best]:.3f} {best}", flush=True)


if __name__ == "__main__":
    parser = candidates.parser_of(__doc__)
    parser.add_argument("--directions", default="backward")
    options = parser.parse_args()
    candidates.tune("prelu", options, launches_of, report, only={"direction": options.directions.split(",")})
