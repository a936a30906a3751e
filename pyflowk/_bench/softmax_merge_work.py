# SPDX-License-Identifier: Apache-2.0
"""The merge of two softmax results. The bytes of a case are those of y1, y2 and y, and of 3 numbers per row."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np

from .case_sets import Case, CaseSet, CaseSets
from .measure import log_uniform
from .softmax_work import TYPES
from .tensors import BYTES, Array, CaseError, Tensor, checked_kinds, extents_of, limits
from .work import Work, by, is_roughly

RESULT_SETS: dict[str, str] = {}
COLUMNS = tuple(64 << i for i in range(7))
ELEMENTS = 1 << 25


def column_cases(seed: int = 0, count: int = 6) -> list[Case]:
    """64 to 4096 columns."""
    generator = random.Random(seed)
    columns = [*COLUMNS, *(log_uniform(generator, 64, 4096) for _ in range(count))]
    return [{"types": types, "shape": (ELEMENTS // n, n)} for types in ("f16", "f32") for n in columns]


SETS = CaseSets(columns=CaseSet("64 to 4096 columns, powers of 2 and drawn ones", column_cases, "[:SEED[:COUNT]]"))


def case_of_words(words: list[str]) -> Case:
    """`TYPE ROWSxCOLUMNS`."""
    types, shape = words
    checked_kinds(types, among=TYPES)
    extents = extents_of(shape)
    if len(extents) != 2:
        raise CaseError("a case has rows and columns")
    return {"types": types, "shape": extents}


class SoftmaxMergeWork(Work):
    """y1 and y2 hold any numbers, because the merge is linear in them."""

    op = "softmax_merge"
    function = "softmax_merge"
    poison_byte = 0xFF  # NaN

    def __init__(self, machine: Any, types: str, shape: tuple[int, ...], num_sets: int | None = None) -> None:
        self.shape, self.types, self.shape_text = shape, types, by(shape)
        rows = shape[0]
        self.written_bytes = math.prod(shape) * BYTES[types] + 4 * rows
        self.read_bytes = 2 * self.written_bytes
        super().__init__(machine, self.moved_bytes, num_sets)
        halves = [Tensor(machine, types, shape, "unit", seed) for seed in (0, 1)]
        sums = [Tensor(machine, "f32", [rows], "wide", seed) for seed in (0, 1)]
        self.second_outs = [Tensor(machine, "f32", [rows]) for _ in range(self.num_sets)]
        self.rotate([*halves, *sums], Tensor(machine, types, shape))

    def arguments_of(self, i: int) -> tuple[Any, ...]:
        y1, y2, lse1, lse2 = (tensor.arguments()[0] for tensor in self.operands[i])
        y, lse = (tensor.arguments()[0] for tensor in (self.outs[i], self.second_outs[i]))
        return y1, lse1, y2, lse2, y, lse, *self.shape, int(self.outs[i].code)

    def expected(self, index: list[Array]) -> Array:
        y1, y2 = (tensor.known(index).astype(np.float64) for tensor in self.operands[0][:2])
        lse1, lse2 = (tensor.known(index[:1]).astype(np.float64) for tensor in self.operands[0][2:])
        lse = np.logaddexp(lse1, lse2)
        return np.exp(lse1 - lse) * y1 + np.exp(lse2 - lse) * y2

    def is_close(self, got: Array, expected: Array, index: list[Array]) -> bool:
        """Within the rounding of the result, and of float32 where the two terms cancel."""
        allowed = limits(self.types)[0] / 2 * np.abs(expected) + 2.0**-20
        lse1, lse2 = (tensor.known(index[:1]).astype(np.float64) for tensor in self.operands[0][2:])
        lse = self.second_outs[0].fetch()[index[0]]
        right = np.abs(lse - np.logaddexp(lse1, lse2)) <= 2.0**-18 * np.maximum(np.abs(lse), 1)
        return bool((np.abs(got.astype(np.float64) - expected) <= allowed).all() and right.all())

    def check_rival(self) -> bool:
        _, index, got = self._sampled()
        return is_roughly(got.astype(np.float64), self.expected(index))

    def formula(self, torch: Any) -> Callable[..., Any]:
        def merged(y1: Any, y2: Any, lse1: Any, lse2: Any) -> Any:
            lse = torch.logaddexp(lse1, lse2)
            first, second = torch.exp(lse1 - lse)[:, None], torch.exp(lse2 - lse)[:, None]
            return (first * y1.float() + second * y2.float()).to(y1.dtype), lse

        return merged
