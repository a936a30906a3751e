# SPDX-License-Identifier: Apache-2.0
"""Softmax and its gradient with the log-sum-exp, sinks, a scale per row, a softcap, all four, or batch_invariant.

The bytes of a case are those of softmax_work.py, 4 for each number of a row, and those of x for the gradient of a
softcap.
"""

from __future__ import annotations

import ctypes
import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .._native.abi import SoftmaxMask
from .case_sets import Case, CaseSet, CaseSets
from .measure import log_uniform
from .softmax_work import TYPES, SoftmaxWork
from .tensors import BYTES, Array, CaseError, Tensor, checked_kinds, extents_of

RESULT_SETS: dict[str, str] = {}
TERMS = ("lse", "sinks", "row_scale", "softcap")
FORWARD_KINDS = (*TERMS, "all", "batch_invariant", "none")
KINDS = (*FORWARD_KINDS, *(f"{kind}_backward" for kind in FORWARD_KINDS))
INVARIANT_KINDS = ("none", "batch_invariant", "none_backward", "batch_invariant_backward")
# The numbers of a row that a kind reads and writes, forward and backward.
ROW_NUMBERS = {
    "lse": (1, 1), "sinks": (1, 3), "row_scale": (1, 1), "softcap": (0, 0), "all": (3, 5), "batch_invariant": (0, 0),
    "none": (0, 0),
}  # fmt: skip
COLUMNS = tuple(128 << i for i in range(11))
ELEMENTS = 1 << 25
SOFTCAP = 5.0
ROUNDING = 2.0**-24


def _cases(kinds: Sequence[str]) -> Callable[[int, int], list[Case]]:
    def cases(seed: int = 0, count: int = 6) -> list[Case]:
        generator = random.Random(seed)
        columns = [*COLUMNS, *(log_uniform(generator, 128, 131072) for _ in range(count))]
        return [
            {"kind": kind, "types": types, "shape": (1, 1, ELEMENTS // n, n)}
            for types in ("f16", "f32")
            for kind in kinds
            for n in columns
        ]

    return cases


SETS = CaseSets(
    columns=CaseSet(
        "128 to 131,072 columns, powers of 2 and drawn ones, each kind, f16 and f32",
        _cases([kind for kind in KINDS if kind not in INVARIANT_KINDS]),
        "[:SEED[:COUNT]]",
    ),
    batch_invariant=CaseSet(
        "the same columns, with the option and without", _cases(INVARIANT_KINDS), "[:SEED[:COUNT]]"
    ),
)


def case_of_words(words: list[str]) -> Case:
    """`KIND TYPE ROWSxCOLUMNS`."""
    kind, types, shape = words
    checked_kinds(types, among=TYPES)
    extents = extents_of(shape)
    if kind not in KINDS or len(extents) != 2:
        raise CaseError(f"the kinds are {', '.join(KINDS)}")
    return {"kind": kind, "types": types, "shape": (1, 1, *extents)}


class SoftmaxTermsWork(SoftmaxWork):
    """Shape (1, 1, rows, columns). The numbers of each buffer set are `numbers[i]`, by the members of the mask."""

    op = "softmax_terms"

    def __init__(
        self, machine: Any, kind: str, types: str, shape: tuple[int, ...], num_sets: int | None = None
    ) -> None:
        self.term, num_rows = kind.removesuffix("_backward"), math.prod(shape[:-1])
        backward = kind.endswith("_backward")
        self.terms = TERMS if self.term == "all" else (self.term,)
        draw = np.random.default_rng(2)
        self.values: dict[str, Array] = {
            "sinks": draw.standard_normal(num_rows, np.float32),
            "row_scale": draw.uniform(0.5, 2, num_rows).astype(np.float32),
            "dlse": draw.standard_normal(num_rows, np.float32),
        }
        self.numbers: list[dict[str, Tensor]] = []
        super().__init__(machine, "backward" if backward else "plain", types, shape, num_sets)
        self.kind = self.part = kind
        self.read_bytes += 4 * num_rows * ROW_NUMBERS[self.term][backward]
        if backward and "softcap" in self.terms:
            self.read_bytes += math.prod(shape) * BYTES[types]

    def _probabilities(self) -> Tensor:
        """y of a gradient, and the log-sum-exp that its sinks need."""
        forward = SoftmaxTermsWork(self.machine, self.term, self.types, self.shape, num_sets=1)
        forward.run(0)
        y = forward.outs[0]
        y.contents = "computed"
        if "sinks" in self.terms:
            self.values["lse"] = forward.numbers[0]["lse"].fetch()
        return y

    def _numbers(self, name: str, is_written: bool) -> Tensor:
        """One number per row."""
        if is_written:
            return Tensor(self.machine, "f32", [math.prod(self.shape[:-1])])
        return Tensor.of(self.machine, "f32", self.values[name])

    def _members(self) -> dict[str, bool]:
        """The members of the mask that are numbers of rows, and whether the call writes them."""
        found = {name: False for name in ("sinks", "row_scale") if name in self.terms}
        if "sinks" in self.terms:  # whose gradient needs the log-sum-exp
            found |= {"lse": False, "dsinks": True} if self.is_backward else {"lse": True}
        if "lse" in self.terms:
            found |= {"dlse": False} if self.is_backward else {"lse": True}
        return found

    def arguments_of(self, i: int) -> tuple[Any, ...]:
        arguments, mask = super().arguments_of(i), self._masks[-1]
        is_invariant = self.term == "batch_invariant"
        # Without the option, the size of the struct that a library before it takes.
        mask.struct_bytes = ctypes.sizeof(SoftmaxMask) if is_invariant else SoftmaxMask.batch_invariant.offset
        mask.batch_invariant = int(is_invariant)
        self.numbers.append({name: self._numbers(name, writes) for name, writes in self._members().items()})
        for name, tensor in self.numbers[-1].items():
            setattr(mask, name, tensor.ptr)
        if "softcap" in self.terms:
            mask.softcap = SOFTCAP
            if self.is_backward:
                x = Tensor(self.machine, self.types, self.shape, "wide")
                self.numbers[-1]["x"], mask.x = x, x.ptr
        return arguments

    # ---- the check

    def _of_rows(self, name: str, rows: Array, otherwise: float) -> Any:
        """A number of each row as a column, in float64."""
        has = name in self._members()
        return self.values[name][rows].astype(np.float64)[:, None] if has else otherwise

    def reference(self, rows: Array) -> tuple[Array, Array]:
        """As SoftmaxWork.reference(). z of a row scale or a softcap has a few roundings of its own."""
        result, allowed, _ = self._reference(rows)
        return result, allowed

    def _reference(self, rows: Array) -> tuple[Array, Array, dict[str, Array]]:
        """The rows of the result, the errors that are allowed, and the numbers that the call writes."""
        x = self.operands[0][0].known([rows[:, None] * 0, rows[:, None] * 0, rows[:, None], np.arange(self.shape[-1])])
        x = x.astype(np.float64)
        factor = self.scale * self._of_rows("row_scale", rows, 1.0)
        capped = np.tanh(factor * x / SOFTCAP) if "softcap" in self.terms else np.zeros_like(x)
        sinks = self._of_rows("sinks", rows, -np.inf)
        if self.is_backward:
            dy, y = x, self._rows_of(self.operands[0][1].fetch())[rows].astype(np.float64)
            dot, dlse = (y * dy).sum(-1, keepdims=True), self._of_rows("dlse", rows, 0.0)
            dz, slope = y * (dy - dot + dlse), factor * (1 - capped**2)
            of_terms = y * (np.abs(dy) + np.abs(y * dy).sum(-1, keepdims=True) + np.abs(dlse))
            allowed = 8 * ROUNDING * np.abs(factor) * (of_terms + np.abs(dz))
            written = {}
            if "dsinks" in self._members():
                written["dsinks"] = (-np.exp(sinks - self.values["lse"][rows][:, None]) * (dot - dlse))[:, 0]
            return slope * dz, allowed, written
        z = SOFTCAP * capped if "softcap" in self.terms else factor * x
        largest = np.maximum(z.max(-1, keepdims=True), sinks)
        total = np.exp(z - largest).sum(-1, keepdims=True) + np.exp(sinks - largest)
        y, lse = np.exp(z - largest) / total, (largest + np.log(total))[:, 0]
        roundings = 0 if self.term in ("lse", "sinks", "batch_invariant", "none") else 8
        allowed = roundings * ROUNDING * np.maximum(np.abs(z).max(-1, keepdims=True), 1) * y
        return y, allowed, {"lse": lse} if "lse" in self._members() else {}

    def check(self) -> bool:
        """As SoftmaxWork.check(), and the written numbers of the sampled rows to 2^-18 of their size."""
        if not super().check():
            return False
        for rows in self._sampled_rows():
            for name, expected in self._reference(rows)[2].items():
                error = np.abs(self.numbers[0][name].fetch()[rows] - expected)
                if not bool((error <= 2.0**-18 * np.maximum(np.abs(expected), 1)).all()):
                    return False
        return True

    # ---- rivals

    def rival_operands(self, i: int) -> list[Tensor]:
        return [*self.operands[i], *(self.numbers[i][name] for name in sorted(self.numbers[i]))]

    def formula(self, torch: Any) -> Callable[..., Any]:
        """The formula in float32, which torch.compile joins into one kernel."""
        names, scale, has_softcap = sorted(self.numbers[0]), self.scale, "softcap" in self.terms

        def forward(x: Any, *numbers: Any) -> Any:
            given = {name: number[:, None] for name, number in zip(names, numbers)}
            z = x.float() * scale * given.get("row_scale", 1.0)
            z = SOFTCAP * torch.tanh(z / SOFTCAP) if has_softcap else z
            lse = torch.logsumexp(z, -1, keepdim=True)
            lse = torch.logaddexp(lse, given["sinks"]) if "sinks" in given else lse
            y = torch.exp(z - lse).to(x.dtype)
            return (y, lse) if "lse" in given else y

        def backward(dy: Any, y: Any, *numbers: Any) -> Any:
            given = {name: number[:, None] for name, number in zip(names, numbers) if name != "x"}
            p, factor, dlse = y.float(), scale * given.get("row_scale", 1.0), given.get("dlse", 0.0)
            dot = (p * dy.float()).sum(-1, keepdim=True)
            dz = p * (dy.float() - dot + dlse) * factor
            if has_softcap:
                dz = dz * (1 - torch.tanh(factor * numbers[-1].float() / SOFTCAP) ** 2)
            dx = dz.to(dy.dtype)
            return (dx, -torch.exp(given["sinks"] - given["lse"]) * (dot - dlse)) if "dsinks" in given else dx

        return backward if self.is_backward else forward
