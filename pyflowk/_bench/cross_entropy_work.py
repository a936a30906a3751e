# SPDX-License-Identifier: Apache-2.0
"""Cross-entropy: the loss and the log-sum-exp of each row of logits, and the gradient of the logits from both.

The bytes of a case are those of the logits, and of their gradient; what has one number per row does not count.
"""

from __future__ import annotations

import ctypes
import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np

from .._native.abi import CrossEntropyOptions
from .case_sets import Case, CaseSet, CaseSets, Shapes, set_of_shapes
from .measure import log_uniform
from .tensors import BYTES, Array, CaseError, Tensor, checked_kinds, extents_of, limits
from .work import Work, by, is_roughly

RESULT_SETS = {"vocabularies": "torch,compile"}
VOCABULARIES = (32000, 50257, 128256, 151936, 202048, 256000)
ELEMENTS = 1 << 27
FEW = [(1, 128256), (16, 128256), (128, 50257), (512, 32000)]
TYPES = ("bf16", "f16", "f32")
PLAIN_KINDS = ("forward", "backward")
OPTIONS = {"smoothing": {"label_smoothing": 0.1}, "softcap": {"softcap": 30.0}}  # of the kinds that begin so
KINDS = (*PLAIN_KINDS, *(name + end for name in OPTIONS for end in ("", "_backward")))
SAMPLED_ROWS = 64


def random_cases(seed: int = 0, count: int = 30) -> list[Case]:
    """2^23 to 2^27 elements."""
    generator = random.Random(seed)
    cases = []
    for _ in range(count):
        columns = log_uniform(generator, 16, 1 << 18)
        rows = max(1, log_uniform(generator, 1 << 23, ELEMENTS) // columns)
        cases.append(
            {"kind": generator.choice(PLAIN_KINDS), "types": generator.choice(TYPES), "shape": (rows, columns)}
        )
    return cases


def _set(text: str, shapes: Shapes, kinds: tuple[str, ...] = PLAIN_KINDS) -> CaseSet:
    return set_of_shapes(text, dict.fromkeys(kinds, shapes), ("bf16",))


SETS = CaseSets(
    vocabularies=_set(
        "32,000 to 256,000 columns, and each number plus 1",
        [(ELEMENTS // columns, columns) for n in VOCABULARIES for columns in (n, n + 1)],
    ),
    few=_set("1 to 512 rows of a vocabulary", FEW),
    options=_set(
        "with label smoothing and with a softcap",
        [(ELEMENTS // columns, columns) for columns in (32000, 50257, 151936, 151937)],
        KINDS[len(PLAIN_KINDS) :],
    ),
    random=CaseSet("16 to 2^18 columns", random_cases, "[:SEED[:COUNT]]"),
)


def case_of_words(words: list[str]) -> Case:
    """`KIND TYPE ROWSxCOLUMNS`."""
    kind, types, shape = words
    checked_kinds(types, among=TYPES)
    extents = extents_of(shape)
    if kind not in KINDS or len(extents) != 2:
        raise CaseError(f"a case of cross_entropy is {'|'.join(KINDS)} TYPE ROWSxCOLUMNS")
    return {"kind": kind, "types": types, "shape": extents}


class CrossEntropyWork(Work):
    """Logits of shape (rows, columns), int64 targets. The gradient is that of the loss, with weights from outside."""

    op = "cross_entropy"
    poison_byte = 0xFF  # NaN

    def __init__(
        self, machine: Any, kind: str, types: str, shape: tuple[int, ...], num_sets: int | None = None
    ) -> None:
        self.kind, self.types, self.shape, self.shape_text = kind, types, tuple(shape), by(shape)
        self.part, self.is_backward = f"{types} {kind}", kind.endswith("backward")
        options = next((numbers for name, numbers in OPTIONS.items() if kind.startswith(name)), {})
        self.softcap, self.label_smoothing = options.get("softcap", 0.0), options.get("label_smoothing", 0.0)
        self.function = "cross_entropy_backward" if self.is_backward else "cross_entropy"
        rows, columns = self.shape
        self.read_bytes = math.prod(shape) * BYTES[types]
        self.written_bytes = self.read_bytes if self.is_backward else 0
        super().__init__(machine, self.moved_bytes, num_sets)
        self._options = CrossEntropyOptions(
            ctypes.sizeof(CrossEntropyOptions), 1.0, self.softcap, self.label_smoothing, 0.0, -100, 0, 0
        )
        self._extents = (ctypes.c_int64 * 2)(rows, columns)
        self.targets = np.random.default_rng(1).integers(0, columns, rows)
        logits, targets = Tensor(machine, types, self.shape, "wide"), Tensor.of(machine, "i64", self.targets)
        if self.is_backward:
            forward_kind = "forward" if kind == "backward" else kind.removesuffix("_backward")
            forward = CrossEntropyWork(machine, forward_kind, types, shape, num_sets=1)
            forward.run(0)
            machine.synchronize()
            lse = forward.second_outs[0]
            lse.contents = "computed"
            self.rotate(
                [logits, targets, lse, Tensor(machine, "f32", [rows], "unit", 1)], Tensor(machine, types, shape)
            )
            return
        self.second_outs = [Tensor(machine, "f32", [rows]) for _ in range(self.num_sets)]
        self.allocate_workspace(2, self._extents, int(logits.code))
        self.rotate([logits, targets], Tensor(machine, "f32", [rows]))

    def arguments_of(self, i: int) -> tuple[Any, ...]:
        logits, targets, *others = (tensor.arguments() for tensor in self.operands[i])
        first = (logits[0], None, logits[2], targets[0], targets[2])
        out = self.outs[i].arguments()[0]
        if self.is_backward:
            lse, dloss = (one[0] for one in others)
            mine: tuple[Any, ...] = (lse, None, dloss, None, None, out, None)
        else:
            mine = (out, self.second_outs[i].arguments()[0], None, None)
        return *first, *mine, 2, self._extents, ctypes.addressof(self._options)

    # ---- the check

    def _rows(self) -> Array:
        rows = self.shape[0]
        return np.unique(np.linspace(0, rows - 1, min(rows, SAMPLED_ROWS)).astype(np.int64))

    def _reference(self, rows: Array) -> tuple[Array, Array]:
        """The log-sum-exp of rows, and their loss or the gradient of their logits, in float64."""
        logits: Array = self.operands[0][0].known([rows[:, None], np.arange(self.shape[1])]).astype(np.float64)
        tanh = np.tanh(logits / self.softcap) if self.softcap else None
        z = logits if tanh is None else self.softcap * tanh
        largest, smoothing = z.max(-1), self.label_smoothing
        lse = largest + np.log(np.exp(z - largest[:, None]).sum(-1))
        target = np.arange(len(rows)), self.targets[rows]
        if not self.is_backward:
            return lse, lse - (1 - smoothing) * z[target] - smoothing * z.mean(-1)
        gradient = np.exp(z - lse[:, None]) - smoothing / self.shape[1]
        gradient[target] -= 1 - smoothing
        if tanh is not None:
            gradient *= 1 - tanh * tanh
        return lse, gradient * self.operands[0][3].known([rows]).astype(np.float64)[:, None]

    def check(self) -> bool:
        """Every element is written, and sampled rows have an error of float32's arithmetic and one rounding."""
        rows = self._rows()
        lse, expected = self._reference(rows)
        fetched = self.outs[0].fetch().reshape(self.outs[0].shape)
        eps, least, _ = limits(self.types if self.is_backward else "f32")
        allowed = (eps / 2 + 1e-5) * np.abs(expected) + least * eps / 2 + (1e-6 if self.is_backward else 1e-5)
        is_right = bool((np.abs(fetched[rows].astype(np.float64) - expected) <= allowed).all())
        if not self.is_backward:
            error = np.abs(self.second_outs[0].fetch()[rows].astype(np.float64) - lse)
            is_right &= bool((error <= 1e-5 * (1 + np.abs(lse))).all())
        return self.is_written(fetched) and is_right

    def check_rival(self) -> bool:
        rows = self._rows()
        return is_roughly(self.outs[0].fetch().reshape(self.outs[0].shape)[rows], self._reference(rows)[1])

    # ---- rivals

    def formula(self, torch: Any) -> Callable[..., Any]:
        softcap, smoothing = self.softcap, self.label_smoothing

        def capped(logits: Any) -> Any:
            return softcap * torch.tanh(logits.float() / softcap) if softcap else logits

        if not self.is_backward:
            loss = torch.nn.functional.cross_entropy
            return lambda logits, targets: loss(capped(logits), targets, reduction="none", label_smoothing=smoothing)

        def gradient(logits: Any, targets: Any, lse: Any, dloss: Any) -> Any:
            is_target = torch.arange(logits.shape[1], device=logits.device) == targets[:, None]
            z = capped(logits).float()
            wanted = is_target.float() * (1 - smoothing) + smoothing / logits.shape[1]
            dz = (torch.exp(z - lse[:, None]) - wanted) * dloss[:, None]
            return (dz * (1 - (z / softcap) ** 2) if softcap else dz).to(logits.dtype)

        return gradient

    def eager(self, torch: Any) -> Callable[..., Any]:
        """PyTorch's own operators: its gradient takes the log-probabilities that its loss has kept."""
        if self.kind != "backward":
            return self.formula(torch)
        kept: dict[int, Any] = {}

        def gradient(logits: Any, targets: Any, lse: Any, dloss: Any) -> Any:
            if (address := logits.data_ptr()) not in kept:  # in the call that is not timed
                kept[address] = torch.log_softmax(logits, -1)
            log_p, ops = kept[address], torch.ops.aten
            total_weight = torch.ones((), dtype=logits.dtype, device=logits.device)
            of_log_p = ops.nll_loss_backward(dloss.to(logits.dtype), log_p, targets, None, 0, -100, total_weight)
            return ops._log_softmax_backward_data(of_log_p, log_p, -1, logits.dtype)

        return gradient
