# SPDX-License-Identifier: Apache-2.0
"""Softmax: without a mask, under dense masks, lengths and causal masks, with a bias, and its gradient.

The bytes of a case: x and y, of x only unmasked columns with lengths and causal, and the dense mask once; of a gradient
dy, y and dx.
"""

from __future__ import annotations

import ctypes
import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np

from .._native.abi import SoftmaxMask
from .measure import log_uniform
from .tensors import BYTES, Array, Tensor
from .work import Work, by

SETS = {
    "plain[:TYPES]": "no mask, 8 to 2^20 columns",
    "odd[:TYPES]": "columns that are not whole vectors of 16 bytes",
    "tiny[:TYPES]": "1 to 255 columns",
    "dense, lengths, causal, bias": "attention's shapes under a mask",
    "backward[:TYPES]": "the gradient",
    "small[:TYPES]": "few rows",
    "random[:SEED[:COUNT]]": "any kind, type and shape",
}
RESULT_SETS = {
    "plain": "torch,quack", "dense": "torch,compile", "lengths": "torch", "backward": "torch,quack",
    "backward:bf16": "torch,quack", "random:7:80": "torch",
}  # fmt: skip
SCALE = 0.125
MANTISSA_BITS = {"f16": 11, "bf16": 8, "f32": 24}
LEAST_EXPONENT = {"f16": -14, "bf16": -126, "f32": -126}  # of normal numbers
SAMPLED_ELEMENTS, SAMPLED_ROWS, RIVAL_ROWS = 1 << 21, 512, 64
# b, h, q, k for dense masks, lengths, causal and bias.
ATTENTION: list[tuple[int, ...]] = [
    (64, 12, 128, 128), (16, 16, 512, 512), (8, 16, 1024, 1024), (4, 16, 2048, 2048), (2, 16, 4096, 4096),
    (1, 8, 4096, 8192), (1, 4, 2048, 16384), (1, 4, 2048, 32768), (1, 4, 1024, 65536), (1, 1, 1024, 131072),
]  # fmt: skip
ODD_ATTENTION: list[tuple[int, ...]] = [
    (64, 12, 100, 100), (16, 16, 500, 1000), (32, 8, 77, 77), (256, 16, 77, 77), (256, 12, 100, 100),
    (16, 16, 512, 1001), (1, 4, 1024, 50257),
]  # fmt: skip
# rows, columns
PLAIN = [
    (1 << 22, 8), (1 << 21, 16), (1 << 20, 32), (1 << 19, 64), (98304 * 4, 128), (131072, 512), (131072, 1024),
    (65536, 2048), (65536, 4096), (32768, 8192), (16384, 16384), (8192, 32768), (2048, 65536), (1024, 131072),
    (512, 262144), (256, 524288), (128, 1 << 20),
]  # fmt: skip
ODD_PLAIN = [(1 << 20, 7), (1 << 20, 33), (1 << 19, 77), (1 << 19, 100), (128000, 1000), (128000, 1001), (4096, 50257)]
SMALL: list[tuple[int, ...]] = [
    (1, 8, 128, 128), (1, 12, 256, 256), (1, 16, 512, 512), (1, 16, 1024, 1024), (8, 12, 128, 128), (32, 8, 77, 77),
    (1, 1, 1, 32768), (1, 1, 4, 131072), (1, 1, 1, 1 << 20),
]  # fmt: skip
TINY_PLAIN = [((1 << 26) // k, k) for k in (1, 2, 3, 4, 5, 6, 9, 11, 13, 17, 19, 24, 50, 150, 200, 255)]
TYPES = ("f16", "bf16", "f32")
KINDS = ("plain", "dense", "lengths", "causal", "bias", "backward")
Case = dict[str, Any]


def random_cases(seed: int, count: int) -> list[Case]:
    """16 to 2^18 columns, half of them multiples of 8, and 2^23 to 2^27 elements."""
    generator = random.Random(seed)
    cases = []
    for _ in range(count):
        k = log_uniform(generator, 16, 1 << 18)
        if generator.random() < 0.5:
            k = (k + 7) // 8 * 8
        rows = max(1, log_uniform(generator, 1 << 23, 1 << 27) // k)
        q = min(rows, k if generator.random() < 0.5 else log_uniform(generator, 1, 4096))
        h = min(rows // q, generator.choice((1, 4, 8, 12, 16, 32)))
        cases.append(_case(generator.choice(KINDS), generator.choice(TYPES), (rows // (q * h), h, q, k)))
    return cases


def _case(kind: str, types: str, shape: tuple[int, ...]) -> Case:
    return {"kind": kind, "types": types, "shape": shape}


def cases_of(name: str) -> list[Case]:
    """Keyword arguments of SoftmaxWork, in f16 and f32 by default; KeyError where there is no such set."""
    name, *rest = name.split(":")
    if name == "random":
        seed, count = (rest + ["0", "30"][len(rest) :])[:2]
        return random_cases(int(seed), int(count))
    types = rest[0].split(",") if rest else ["f16", "f32"]
    rows: list[tuple[int, ...]] = [(1, 1, rows, k) for rows, k in PLAIN]
    odd_rows: list[tuple[int, ...]] = [(1, 1, rows, k) for rows, k in ODD_PLAIN]
    tables: dict[str, list[tuple[str, list[tuple[int, ...]]]]] = {
        "plain": [("plain", rows)],
        "odd": [("plain", odd_rows), ("dense", ODD_ATTENTION), ("backward", odd_rows)],
        "tiny": [("plain", [(1, 1, rows, k) for rows, k in TINY_PLAIN])],
        "dense": [("dense", ATTENTION)],
        "lengths": [("lengths", ATTENTION)],
        "causal": [("causal", ATTENTION)],
        "bias": [("bias", ATTENTION)],
        "backward": [("backward", rows)],
        "small": [(kind, SMALL) for kind in ("plain", "dense", "backward")],
    }
    return [_case(kind, type_, shape) for type_ in types for kind, shapes in tables[name] for shape in shapes]


def case_of_words(words: list[str]) -> Case:
    """`KIND TYPE BxHxQxK` or `KIND TYPE ROWSxCOLUMNS`."""
    kind, types, shape = words
    if types not in TYPES:
        raise ValueError(f"type = {types!r}, must be one of {', '.join(TYPES)}")
    extents = tuple(int(extent) for extent in shape.split("x"))
    if kind not in KINDS or len(extents) > 4:
        raise ValueError(f"a case of softmax is KIND TYPE BxHxQxK, the kinds {', '.join(KINDS)}")
    return _case(kind, types, (1,) * (4 - len(extents)) + extents)


class SoftmaxWork(Work):
    """Shape (b, h, q, k). The masks: dense, bool (b, 1, q, k) over heads; lengths, uniform in k/4 ... k; causal; bias,
    of x's type and whole shape."""

    op = "softmax"

    def __init__(
        self, machine: Any, kind: str, types: str, shape: tuple[int, ...], num_sets: int | None = None
    ) -> None:
        b, h, q, k = self.shape = tuple(shape)
        self.kind, self.types, self.shape_text, self.part = kind, types, by(shape), ""
        self.scale = 1.0 if kind in ("plain", "backward") else SCALE  # which a rival needs another kernel for
        self.function = "masked_softmax_backward" if kind == "backward" else "masked_softmax"
        total, self.lengths_host = b * h * q * k, np.zeros(0, np.int32)
        unmasked = total
        if kind == "lengths":
            self.lengths_host = np.random.default_rng(1).integers(max(k // 4, 1), k + 1, (b, h, q)).astype(np.int32)
            unmasked = int(self.lengths_host.sum(dtype=np.int64))
        if kind == "causal":
            unmasked = b * h * int(np.clip(np.arange(q) + 1 + k - q, 0, k).sum())
        element, self.written_bytes = BYTES[types], total * BYTES[types]
        extra = {"dense": b * q * k, "bias": total * element, "backward": total * element}.get(kind, 0)
        self.read_bytes = unmasked * element + extra
        super().__init__(machine, self.moved_bytes, num_sets)
        operands = [Tensor(machine, types, shape, "wide")]
        if kind == "backward":
            operands.append(self._probabilities())
        elif kind == "bias":
            operands.append(Tensor(machine, types, shape, "unit", 1))
        elif kind == "dense":
            operands.append(Tensor(machine, "bool", (b, 1, q, k), "0.3"))
        elif kind == "lengths":
            operands.append(Tensor.of(machine, "i32", self.lengths_host))
        self.rotate(operands, Tensor(machine, types, shape))
        self.prepare()

    def poison(self) -> None:
        self.outs[0].poison(0xFF)  # NaN

    def _probabilities(self) -> Tensor:
        """y of a gradient: flowk's softmax of the scores."""
        forward = SoftmaxWork(self.machine, "plain", self.types, self.shape, num_sets=1)
        forward.run(0)
        y = forward.outs[0]
        y.contents = "computed"
        self.machine.synchronize()
        return y

    def arguments_of(self, i: int) -> tuple[Any, ...]:
        x, *side = self.operands[i]
        mask = SoftmaxMask(struct_bytes=ctypes.sizeof(SoftmaxMask), causal=int(self.kind == "causal"))
        if self.kind == "dense":
            b, _, q, k = self.shape
            mask.kept = (ctypes.c_int64 * 4)(q * k if b > 1 else 0, 0, k, 1)  # alive as long as the mask
            mask.dense, mask.dense_strides = side[0].ptr, ctypes.addressof(mask.kept)
        if self.kind == "lengths":
            mask.lengths, mask.lengths_dtype = side[0].ptr, int(side[0].code)
        if self.kind == "bias":
            mask.bias, mask.bias_dtype = side[0].ptr, int(x.code)
        tail = (4, (ctypes.c_int64 * 4)(*self.shape), ctypes.c_double(self.scale), ctypes.addressof(mask), 0)
        self._masks = [*getattr(self, "_masks", []), mask]
        inputs: tuple[Any, ...] = (x.arguments()[0], None)
        if self.kind == "backward":
            inputs += (side[0].arguments()[0], None)
        return (*inputs, int(x.code), self.outs[i].arguments()[0], None, int(x.code), *tail)

    # ---- the check

    def reference(self, rows: Array) -> tuple[Array, Array]:
        """Rows of the result in float64, (rows, k), and the error that float32 may add to each element.

        Gradient: 8 roundings of y * (|dy| + sum |y_i dy_i|). Bias: 2 roundings of y times the row's largest
        |score|, because a score with a bias is rounded before the exponential. Otherwise 0.
        """
        b, h, q, k = self.shape
        index = [place[:, None] for place in np.unravel_index(rows, (b, h, q))] + [np.arange(k)[None, :]]
        x = self.operands[0][0].known(index).astype(np.float64)
        rounding = 2.0**-24
        if self.kind == "backward":
            y = self.operands[0][1].fetch().reshape(-1, k)[rows].astype(np.float64)
            terms = y * (np.abs(x) + np.abs(x * y).sum(-1, keepdims=True))
            return y * (x - (x * y).sum(-1, keepdims=True)), 8 * rounding * terms
        z = x * self.scale
        if self.kind == "bias":
            z = z + self.operands[0][1].known(index).astype(np.float64)
            y = _softmax(z)
            return y, 2 * rounding * np.abs(z).max(-1, keepdims=True) * y
        if self.kind == "dense":
            z[self.operands[0][1].known(index)] = -np.inf
        if self.kind == "lengths":
            z[np.arange(k) >= self.lengths_host.reshape(-1)[rows][:, None]] = -np.inf
        if self.kind == "causal":
            z[np.arange(k) > (rows % q + k - q)[:, None]] = -np.inf
        return _softmax(z), np.zeros_like(z)

    def _sampled_rows(self) -> list[Array]:
        """In parts of so many elements that float64 has room."""
        k, num_rows = self.shape[-1], math.prod(self.shape[:-1])
        count = min(num_rows, max(16, min(SAMPLED_ROWS, SAMPLED_ELEMENTS // k)))
        rows = np.random.default_rng(3).choice(num_rows, count, replace=False) if count < num_rows else np.arange(count)
        return np.array_split(rows, max(1, len(rows) * k // SAMPLED_ELEMENTS))

    def check(self) -> bool:
        """Every element written, sampled rows within half a unit in the last place of the row's largest value, and the
        error of float32's arithmetic."""
        fetched = self.outs[0].fetch().reshape(-1, self.shape[-1])
        worst = 0.0
        for part in self._sampled_rows():
            expected, allowed = self.reference(part)
            largest = np.maximum(np.abs(expected).max(-1, keepdims=True), 1e-60)
            error = np.abs(fetched[part].astype(np.float64) - expected)
            exponent = np.maximum(np.floor(np.log2(largest)), LEAST_EXPONENT[self.types])
            unit = np.exp2(exponent + 1 - MANTISSA_BITS[self.types])
            worst = float(np.maximum(worst, ((error - allowed) / unit).max()))  # NaN stays
        bits = fetched.view(f"u{fetched.itemsize}")
        is_written = not bool((bits == np.iinfo(bits.dtype).max).any())  # the poison is left nowhere
        return is_written and worst <= (2.0 if self.types == "f32" else 0.51)

    def check_rival(self) -> bool:
        """A few rows within 2 % of the row's largest value."""
        rows, k = self._sampled_rows()[0][:RIVAL_ROWS], self.shape[-1]
        expected, _ = self.reference(rows)
        got = self.outs[0].fetch_spans(rows * k, k).reshape(expected.shape)
        error = np.abs(got.astype(np.float64) - expected)
        return bool((error <= 0.02 * np.abs(expected).max(-1, keepdims=True) + 1e-60).all())

    # ---- rivals

    def rival_operands(self, i: int) -> list[Tensor]:
        """The scores and what goes with them, for lengths and causal the bool mask that PyTorch needs, made before."""
        if self.kind not in ("lengths", "causal"):
            return self.operands[i]
        if not hasattr(self, "_bool_mask"):
            _, _, q, k = self.shape
            columns = np.arange(k)
            masked = columns > np.arange(q)[:, None] + k - q
            if self.kind == "lengths":
                masked = columns >= self.lengths_host[..., None]
            self._bool_mask = Tensor.of(self.machine, "bool", masked)
        return [self.operands[i][0], self._bool_mask]

    def formula(self, torch: Any) -> Callable[..., Any]:
        scale, kind = self.scale, self.kind

        def work(x: Any, *side: Any) -> Any:
            if kind == "backward":
                return torch._softmax_backward_data(x, side[0], -1, x.dtype)
            if kind == "plain":
                return torch.softmax(x, -1)
            if kind == "bias":
                return torch.softmax(x * scale + side[0], -1)
            return torch.softmax((x * scale).masked_fill(side[0], -math.inf), -1)

        return work


def _softmax(z: Array) -> Array:
    """Of rows; 0 where all columns are masked out."""
    largest = z.max(-1, keepdims=True)
    e = np.exp(z - np.where(np.isneginf(largest), 0, largest))
    total = e.sum(-1, keepdims=True)
    found: Array = e / np.where(total == 0, 1, total)
    return found
