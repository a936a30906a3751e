# SPDX-License-Identifier: Apache-2.0
"""Softmax: without a mask, under dense masks, lengths and causal masks, with a bias, and its gradient.

The bytes of a case are those of x and y, and of a dense mask or bias. Those of a gradient are dy, y and dx, and of a
bias its gradient. With lengths and under a causal mask only the unmasked columns of the inputs count.
"""

from __future__ import annotations

import ctypes
import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np

from .._native.abi import SoftmaxMask
from .case_sets import Case, CaseSet, CaseSets, Shapes, set_of_shapes
from .measure import log_uniform
from .tensors import BYTES, Array, CaseError, Tensor, checked_kinds, extents_of, limits, longs
from .work import Work, by

RESULT_SETS = {
    "plain": "torch,quack", "dense": "torch,compile", "lengths": "torch", "backward": "torch,quack",
    "backward:bf16": "torch,quack", "random:7:80": "torch", "attention:7": "torch", "widths:7": "torch",
    "tritonbench": "torch", "channels": "torch",
}  # fmt: skip
SCALE = 0.125
SAMPLED_ELEMENTS, SAMPLED_ROWS, RIVAL_ROWS = 1 << 21, 512, 64  # of a result that is checked
# b, h, q, k for dense masks, lengths, causal and bias.
ATTENTION = [
    (64, 12, 128, 128), (16, 16, 512, 512), (8, 16, 1024, 1024), (4, 16, 2048, 2048), (2, 16, 4096, 4096),
    (1, 8, 4096, 8192), (1, 4, 2048, 16384), (1, 4, 2048, 32768), (1, 4, 1024, 65536), (1, 1, 1024, 131072),
]  # fmt: skip
ODD_ATTENTION = [
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
SMALL = [
    (1, 8, 128, 128), (1, 12, 256, 256), (1, 16, 512, 512), (1, 16, 1024, 1024), (8, 12, 128, 128), (32, 8, 77, 77),
    (1, 1, 1, 32768), (1, 1, 4, 131072), (1, 1, 1, 1 << 20),
]  # fmt: skip
TINY_PLAIN = [((1 << 26) // k, k) for k in (1, 2, 3, 4, 5, 6, 9, 11, 13, 17, 19, 24, 50, 150, 200, 255)]
TYPES = ("f16", "bf16", "f32")
_MASKED = ("dense", "lengths", "causal", "bias")
KINDS = ("plain", *_MASKED, "backward")
BIAS_KINDS = ("head_bias_backward", "key_bias_backward")
CHANNELS_KINDS = ("channels", "channels_backward")
ATTENTION_KINDS = ("causal", "batch_lengths", "dense", "key_mask", "head_bias", "key_bias", "causal_backward",
                   "batch_lengths_backward")  # fmt: skip
# The field of flowk_softmax_mask that holds a mask, and its shape: 1 along a dimension that shares the mask.
MASKS = {
    "dense": ("dense", "b1qk"), "key_mask": ("dense", "b11k"), "bias": ("bias", "bhqk"), "head_bias": ("bias", "1hqk"),
    "key_bias": ("bias", "b11k"), "lengths": ("lengths", "bhq"), "batch_lengths": ("lengths", "b11"),
}  # fmt: skip
# A T5's and a Swin transformer's windows, triangle attention of AlphaFold, and longer rows.
SHARED_BIAS = [
    (64, 12, 128, 128), (16, 16, 512, 512), (8, 16, 1024, 1024), (2, 16, 4096, 4096), (4096, 3, 49, 49),
    (1024, 12, 49, 49), (4096, 6, 64, 64), (384, 4, 384, 384), (256, 4, 257, 257), (1024, 1, 8, 32768),
]  # fmt: skip
# Channels, height, width.
CHANNELS = [
    (3, 224, 224), (10, 32, 32), (19, 512, 1024), (21, 513, 513), (64, 56, 56), (81, 80, 80), (150, 128, 128),
    (256, 14, 14), (512, 7, 7), (512, 64, 64), (1000, 7, 7), (1024, 16, 16),
]  # fmt: skip
CHANNELS_ELEMENTS = 1 << 25
CHANNELS_SHAPES = [(max(1, CHANNELS_ELEMENTS // (c * h * w)), h, w, c) for c, h, w in CHANNELS]
# CLIP's text, vision transformers, Whisper and similar models.
MODEL_COLUMNS = (64, 77, 100, 128, 197, 257, 333, 512, 577, 1024, 1152, 1500, 2048, 4096)
ATTENTION_ELEMENTS = 1 << 25
# Hidden sizes and vocabularies of models, and widths that are no powers of 2.
WIDTHS = (64, 100, 257, 640, 896, 1152, 2048, 4608, 5632, 6656, 12672, 33280, 50257, 100000, 128256)
WIDTHS_ELEMENTS = 1 << 24


def random_cases(seed: int = 0, count: int = 30) -> list[Case]:
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
        kind, types = generator.choice(KINDS), generator.choice(TYPES)
        cases.append({"kind": kind, "types": types, "shape": (rows // (q * h), h, q, k)})
    return cases


def attention_cases(seed: int = 0, count: int = 6) -> list[Case]:
    """(b, 8, n, n) under each mask: the columns that models have, and `count` drawn ones."""
    generator = random.Random(seed)
    columns = [*MODEL_COLUMNS, *(log_uniform(generator, 64, 4096) for _ in range(count))]
    return [
        {"kind": kind, "types": types, "shape": (max(1, ATTENTION_ELEMENTS // (8 * n * n)), 8, n, n)}
        for types in ("f16", "f32")
        for kind in ATTENTION_KINDS
        for n in columns
    ]


def widths_cases(seed: int = 0, count: int = 6) -> list[Case]:
    """Rows of WIDTHS, and of `count` drawn numbers of columns, under each mask that a row of its own has."""
    generator = random.Random(seed)
    columns = [*WIDTHS, *(log_uniform(generator, 64, 128256) for _ in range(count))]
    return [
        {"kind": kind, "types": types, "shape": (max(1, WIDTHS_ELEMENTS // n), n)}
        for types in ("f16", "f32")
        for kind in ("plain", "dense", "bias")
        for n in columns
    ]


def _set(text: str, **shapes: Shapes) -> CaseSet:
    return set_of_shapes(text, shapes, ("f16", "f32"))


SETS = CaseSets(
    plain=_set("no mask, 8 to 2^20 columns", plain=PLAIN),
    odd=_set(
        "columns that are not whole vectors of 16 bytes", plain=ODD_PLAIN, dense=ODD_ATTENTION, backward=ODD_PLAIN
    ),
    tiny=_set("1 to 255 columns", plain=TINY_PLAIN),
    **{kind: _set("attention's shapes under a mask", **{kind: ATTENTION}) for kind in _MASKED},
    attention=CaseSet(
        "square scores of 64 to 4096 columns, known models' and drawn ones, under every mask",
        attention_cases,
        "[:SEED[:COUNT]]",
    ),
    widths=CaseSet(
        "64 to 128,256 columns, models' and drawn ones, plain, with a dense mask and with a bias",
        widths_cases,
        "[:SEED[:COUNT]]",
    ),
    tritonbench=_set(
        "TritonBench's: 4096 rows of 256 to 12,672 columns, by 128",
        plain=[(4096, columns) for columns in range(256, 12673, 128)],
    ),
    backward=_set("the gradient", backward=PLAIN),
    bias_gradient=_set("the gradient, and that of a bias that rows share", **dict.fromkeys(BIAS_KINDS, SHARED_BIAS)),
    channels=_set(
        "over 3 to 1024 channels of NCHW, and the gradient", **dict.fromkeys(CHANNELS_KINDS, CHANNELS_SHAPES)
    ),
    small=_set("few rows", plain=SMALL, dense=SMALL, backward=SMALL),
    random=CaseSet("any kind, type and shape", random_cases, "[:SEED[:COUNT]]"),
)


def case_of_words(words: list[str]) -> Case:
    """`KIND TYPE BxHxQxK` or `KIND TYPE ROWSxCOLUMNS`."""
    kind, types, shape = words
    checked_kinds(types, among=TYPES)
    extents, kinds = extents_of(shape), dict.fromkeys((*KINDS, *ATTENTION_KINDS, *BIAS_KINDS, *CHANNELS_KINDS))
    if kind not in kinds or len(extents) > 4:
        raise CaseError(f"a case of softmax is KIND TYPE BxHxQxK, the kinds {', '.join(kinds)}")
    return {"kind": kind, "types": types, "shape": extents}


class SoftmaxWork(Work):
    """Shape (b, h, q, k), or its last dimensions. A dense mask is of bool, a bias of x's type, lengths are uniform in
    k/4 ... k. The kind "backward" alone is the gradient without a mask; with a bias, it is also the bias's. The kind
    "channels" lies in memory as (b, k, h, q)."""

    op = "softmax"
    poison_byte = 0xFF  # NaN

    def __init__(
        self, machine: Any, kind: str, types: str, shape: tuple[int, ...], num_sets: int | None = None
    ) -> None:
        b, h, q, k = self.shape = (1,) * (4 - len(shape)) + shape
        self.kind, self.types, self.shape_text = kind, types, by(self.shape)
        self.part = kind if kind in (*ATTENTION_KINDS, *BIAS_KINDS) else ""
        self.is_backward = kind.endswith("backward")
        self.forward_kind = kind.removesuffix("backward").removesuffix("_") or "plain"
        self.mask = "" if self.forward_kind in ("plain", "channels") else self.forward_kind
        self.is_apart = self.forward_kind == "channels"
        in_memory = (b, k, h, q) if self.is_apart else self.shape
        self.mask_field, letters = MASKS.get(self.mask, ("", ""))
        mask_shape = [{"b": b, "h": h, "q": q, "k": k}.get(letter, 1) for letter in letters]
        self.scale = SCALE if self.mask else 1.0  # which a rival needs another kernel for
        self.function = "masked_softmax_backward" if self.is_backward else "masked_softmax"
        # The columns of each row that are not masked out by lengths or a causal mask; broadcasts to (b, h, q).
        self.lengths: Array = np.array(k)
        if self.mask_field == "lengths":
            self.lengths = np.random.default_rng(1).integers(max(k // 4, 1), k + 1, mask_shape).astype(np.int32)
        elif self.mask == "causal":
            self.lengths = np.clip(np.arange(q) + 1 + k - q, 0, k)
        unmasked = int(self.lengths.sum(dtype=np.int64)) * (b * h * q // self.lengths.size)
        element, mask_bytes = BYTES[types], {"bias": BYTES[types], "dense": 1}.get(self.mask_field, 0)
        self.written_bytes = math.prod(shape) * element
        self.read_bytes = unmasked * element * (2 if self.is_backward else 1)
        if self.is_backward and self.mask_field == "bias":
            self.function = "masked_softmax_backward_dbias"
            self.written_bytes += math.prod(mask_shape) * mask_bytes
        else:
            self.read_bytes += math.prod(mask_shape) * mask_bytes
        super().__init__(machine, self.moved_bytes, num_sets)
        operands = [Tensor(machine, types, in_memory, "wide")]
        if self.is_backward:
            operands.append(self._probabilities())
        if self.mask_field == "lengths":
            operands.append(Tensor.of(machine, "i32", self.lengths))
        elif self.mask_field == "bias" and self.is_backward:
            self._make_dbias(mask_shape)
        elif self.mask_field == "bias":
            operands.append(Tensor(machine, types, mask_shape, "unit", 1))
        elif self.mask_field == "dense":
            operands.append(Tensor(machine, "bool", mask_shape, "0.3"))
        self._masks: list[SoftmaxMask] = []  # alive as long as the calls
        self.rotate(operands, Tensor(machine, types, in_memory))

    def _make_dbias(self, shape: list[int]) -> None:
        """The gradients of a bias of this shape, and the workspace of their sums."""
        self.second_outs = [Tensor(self.machine, self.types, shape) for _ in range(self.num_sets)]
        self._dbias_strides = longs(self.second_outs[0].broadcast_strides())
        self.allocate_workspace(4, longs(self.shape), self._dbias_strides, int(self.second_outs[0].code))

    def _probabilities(self) -> Tensor:
        """y of a gradient: flowk's softmax of the scores."""
        forward = SoftmaxWork(self.machine, self.forward_kind, self.types, self.shape, num_sets=1)
        forward.run(0)
        y = forward.outs[0]
        y.contents = "computed"
        self.machine.synchronize()
        return y

    def arguments_of(self, i: int) -> tuple[Any, ...]:
        x, *others = self.operands[i]
        # The struct's first size, which the rival `old` takes too.
        mask = SoftmaxMask(struct_bytes=SoftmaxMask.lse.offset, causal=int(self.mask == "causal"))
        if self.mask_field and not self.second_outs:
            mask.kept = longs(others[-1].broadcast_strides())
            setattr(mask, self.mask_field, others[-1].ptr)
            setattr(mask, f"{self.mask_field}_strides", ctypes.addressof(mask.kept))
            if self.mask_field != "dense":
                setattr(mask, f"{self.mask_field}_dtype", int(others[-1].code))
        self._masks.append(mask)
        _, h, q, k = self.shape
        strides = longs((k * h * q, q, 1, h * q)) if self.is_apart else None
        arrays = (x, *others[: self.is_backward])
        inputs = [argument for tensor in arrays for argument in (tensor.arguments()[0], strides)]
        code, tail = int(x.code), (ctypes.c_double(self.scale), None if self.is_apart else ctypes.addressof(mask), 0)
        out: tuple[Any, ...] = self.outs[i].arguments()[0], strides, code
        if self.second_outs:
            out = (*out, self.second_outs[i].arguments()[0], self._dbias_strides, code)
        return (*inputs, code, *out, 4, longs(self.shape), *tail)

    def _rows_of(self, values: Array) -> Array:
        """(rows, k) of an array as it lies in memory."""
        b, h, q, k = self.shape
        rows: Array = values.reshape(b, k, h * q).swapaxes(1, 2) if self.is_apart else values
        return rows.reshape(-1, k)

    # ---- the check

    def reference(self, rows: Array) -> tuple[Array, Array]:
        """Rows of the result in float64, (rows, k), and the error that float32 may add to each element.

        Gradient: 8 roundings of y * (|dy| + sum |y_i dy_i|). Bias: 2 roundings of y times the row's largest
        |score|, because a score with a bias is rounded before the exponential. Otherwise 0.
        """
        b, h, q, k = self.shape
        columns = np.arange(k)
        index = [place[:, None] for place in np.unravel_index(rows, (b, h, q))] + [columns[None, :]]
        if self.is_apart:
            index = [index[0], index[3], *index[1:3]]
        x = self.operands[0][0].known(index).astype(np.float64)
        rounding = 2.0**-24
        if self.is_backward:
            y = self._rows_of(self.operands[0][1].fetch())[rows].astype(np.float64)
            terms = y * (np.abs(x) + np.abs(x * y).sum(-1, keepdims=True))
            return self.scale * y * (x - (x * y).sum(-1, keepdims=True)), 8 * rounding * self.scale * terms
        z = x * self.scale
        if self.mask_field == "bias":
            z = z + self.operands[0][1].known(index).astype(np.float64)
            y = _softmax(z)
            return y, 2 * rounding * np.abs(z).max(-1, keepdims=True) * y
        if self.mask_field == "dense":
            z[np.broadcast_to(self.operands[0][1].known(index), z.shape)] = -np.inf
        z[columns >= np.broadcast_to(self.lengths, (b, h, q)).reshape(-1)[rows][:, None]] = -np.inf
        return _softmax(z), np.zeros_like(z)

    def _sampled_rows(self) -> list[Array]:
        """The rows to check, in parts that fit into memory as float64."""
        k, num_rows = self.shape[-1], math.prod(self.shape[:-1])
        count = min(num_rows, max(16, min(SAMPLED_ROWS, SAMPLED_ELEMENTS // k)))
        rows = np.random.default_rng(3).choice(num_rows, count, replace=False) if count < num_rows else np.arange(count)
        return np.array_split(rows, max(1, len(rows) * k // SAMPLED_ELEMENTS))

    def check(self) -> bool:
        """Every element written, sampled rows within half a unit in the last place of the row's largest value, and the
        error of float32's arithmetic."""
        fetched = self._rows_of(self.outs[0].fetch())
        worst, (eps, least, _) = 0.0, limits(self.types)
        for part in self._sampled_rows():
            expected, allowed = self.reference(part)
            largest = np.maximum(np.abs(expected).max(-1, keepdims=True), 1e-60)
            error = np.abs(fetched[part].astype(np.float64) - expected)
            unit = eps * np.maximum(np.exp2(np.floor(np.log2(largest))), least)
            worst = float(np.maximum(worst, ((error - allowed) / unit).max()))  # NaN stays
        limit = 2.0 if self.types == "f32" else 0.51
        return self.is_written(fetched) and worst <= limit and (not self.second_outs or self._is_dbias_right())

    def _is_dbias_right(self) -> bool:
        """Against sums in float64, for some rows of the bias: one, or up to SAMPLED_ELEMENTS of dy."""
        b, h, q, k = self.shape
        shape, eps = self.second_outs[0].shape, limits(self.types)[0]
        got = self.second_outs[0].fetch().reshape(shape).astype(np.float64)
        dy, y = (self._rows_of(one.fetch()).reshape(b, h, q, k) for one in self.operands[0])
        count = max(1, min(5, SAMPLED_ELEMENTS * math.prod(shape) // (k * math.prod(self.shape))))
        for row in np.unique(np.linspace(0, math.prod(shape[:-1]) - 1, count).astype(np.int64)):
            at = np.unravel_index(row, shape[:-1])
            part = tuple(i if n == extent else slice(None) for i, n, extent in zip(at, shape, self.shape))
            of_dy, of_y = (one[part].reshape(-1, k).astype(np.float64) for one in (dy, y))
            terms = of_y * (of_dy - (of_dy * of_y).sum(-1, keepdims=True))
            exact, of_sum = terms.sum(0), np.abs(of_y * of_dy).sum(0) + np.abs(terms).sum(0)
            if not (np.abs(got[at] - exact) <= 2.0**-18 * of_sum + eps / 2 * np.abs(exact) + 2.0**-24).all():
                return False
        return True

    def check_rival(self) -> bool:
        """A few rows within 2 % of the row's largest value."""
        rows = self._sampled_rows()[0][:RIVAL_ROWS]
        expected, _ = self.reference(rows)
        got = self._rows_of(self.outs[0].fetch())[rows]
        error = np.abs(got.astype(np.float64) - expected)
        return bool((error <= 0.02 * np.abs(expected).max(-1, keepdims=True) + 1e-60).all())

    # ---- rivals

    def rival_operands(self, i: int) -> list[Tensor]:
        """The scores and their mask or bias. For lengths and causal, PyTorch takes a bool mask that is made here."""
        if self.is_backward:
            return self.operands[i][:2]
        if self.mask != "causal" and self.mask_field != "lengths":
            return self.operands[i]
        if not hasattr(self, "_bool_mask"):
            self._bool_mask = Tensor.of(self.machine, "bool", np.arange(self.shape[-1]) >= self.lengths[..., None])
        return [self.operands[i][0], self._bool_mask]

    def formula(self, torch: Any) -> Callable[..., Any]:
        scale, gradient, axis = self.scale, torch._softmax_backward_data, 1 if self.is_apart else -1
        if self.second_outs:
            axes = [d for d, extent in enumerate(self.second_outs[0].shape) if extent != self.shape[d]]

            def gradients(dy: Any, y: Any) -> Any:
                dz = gradient(dy, y, -1, dy.dtype)
                return dz * scale, dz.sum(axes, keepdim=True)

            return gradients
        if self.is_backward:
            if self.mask:
                return lambda dy, y: gradient(dy, y, -1, dy.dtype) * scale
            return lambda dy, y: gradient(dy, y, axis, dy.dtype)
        if not self.mask:
            return lambda x: torch.softmax(x, axis)
        if self.mask_field == "bias":
            return lambda x, bias: torch.softmax(x * scale + bias, -1)
        return lambda x, mask: torch.softmax((x * scale).masked_fill(mask, -math.inf), -1)


def _softmax(z: Array) -> Array:
    """The softmax of each row; 0 if all columns are masked out."""
    largest = z.max(-1, keepdims=True)
    e = np.exp(z - np.where(np.isneginf(largest), 0, largest))
    total = e.sum(-1, keepdims=True)
    found: Array = e / np.where(total == 0, 1, total)
    return found
