# SPDX-License-Identifier: Apache-2.0
"""Runs cases: checks flowk's result and each rival's, then replays all contenders in turn."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from types import ModuleType
from typing import Any, NamedTuple

from .._native.errors import FlowkError
from . import (
    cross_entropy_work,
    elementwise_work,
    permute_work,
    prelu_work,
    softmax_merge_work,
    softmax_terms_work,
    softmax_work,
)
from .measure import Row, figures_of
from .rivals import rivals_of
from .work import CopyWork, Work, free_memory

OPERATORS: dict[str, tuple[ModuleType, type[Work]]] = {
    "permute": (permute_work, permute_work.PermuteWork),
    "elementwise": (elementwise_work, elementwise_work.ElementwiseWork),
    "prelu": (prelu_work, prelu_work.PreluWork),
    "softmax": (softmax_work, softmax_work.SoftmaxWork),
    "softmax_terms": (softmax_terms_work, softmax_terms_work.SoftmaxTermsWork),
    "softmax_merge": (softmax_merge_work, softmax_merge_work.SoftmaxMergeWork),
    "cross_entropy": (cross_entropy_work, cross_entropy_work.CrossEntropyWork),
}
ROUNDS = 7


class Case(NamedTuple):
    """A case of a set, as keyword arguments of its Work."""

    op: str
    set: str
    arguments: dict[str, Any]
    rivals: tuple[str, ...] = ()


def time_in_turn(
    machine: Any, graphs: dict[str, Callable[[], object]], num_sets: int, rounds: int = ROUNDS
) -> dict[str, list[float]]:
    """Seconds per call of each contender, one number per round. A round replays all in turn; the first one is not
    counted."""
    times: dict[str, list[float]] = {name: [] for name in graphs}
    for round_ in range(rounds + 1):
        for name, replay in graphs.items():
            seconds = machine.seconds(replay)
            if round_ > 0:
                times[name].append(seconds / num_sets)
    return times


def copy_graphs(machine: Any, work: Work) -> dict[str, Callable[[], object]]:
    """The yardstick for a case, as graphs."""
    copies = CopyWork(machine, work.moved_bytes, work.num_sets)
    return {
        "memcpy": machine.graph(copies.memcpy, work.num_sets),
        "copy": machine.graph(copies.run, work.num_sets),
    }


def run_case(machine: Any, work: Work, rivals: Sequence[str] = (), rounds: int = ROUNDS) -> Row:
    """The row of a case: whether it is right, its plan, and its figures if it is right and there are rounds."""
    row = work.row()
    work.run(0)
    row["right"], row["plan"] = work.check(), work.plan()
    if not row["right"] or not rounds:
        return row
    graphs = copy_graphs(machine, work) | {"flowk": machine.graph(work.run, work.num_sets)}
    found, row["skipped"] = rivals_of(machine, work, rivals)
    graphs |= found
    times = time_in_turn(machine, graphs, work.num_sets, rounds)
    return row | figures_of(work.moved_bytes, times, machine.datasheet_gb_s())


def make_work(machine: Any, op: str, case: dict[str, Any], **more: Any) -> Work:
    """A case of cases_of() or case_of_words(), with its buffers."""
    return OPERATORS[op][1](machine, **case, **more)


def run_cases(machine: Any, cases: Iterable[Case], rounds: int) -> Iterable[Row]:
    """One row per case, as soon as it is done; a case that cannot run says why, and fails unless NumPy lacks its
    types."""
    for op, set_name, arguments, rivals in cases:
        try:
            yield run_case(machine, make_work(machine, op, arguments), rivals, rounds) | {"set": set_name}
        except ImportError as error:
            yield {"op": op, "set": set_name, "missing": str(error)}
        except (FlowkError, MemoryError) as error:
            yield {"op": op, "set": set_name, "missing": str(error), "right": False}
        free_memory()
