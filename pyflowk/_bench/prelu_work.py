# SPDX-License-Identifier: Apache-2.0
"""PReLU, forward (x is read, y written) and backward (dy and x are read, dx written)."""

from __future__ import annotations

import ctypes
import functools
import math
import random
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from .case_sets import Case, CaseSet, CaseSets
from .measure import log_uniform
from .tensors import BYTES, Array, CaseError, Tensor, checked_kinds, extents_of, limits
from .work import Work, by

Image = tuple[str, tuple[int, ...]]  # a layout and (N, C, H, W)
RESULT_SETS = {"nchw": "torch,compile", "nhwc": "torch"}
TABLE = [
    (96, 64, 112, 112), (96, 64, 56, 56), (96, 128, 28, 28), (96, 256, 14, 14), (96, 512, 7, 7), (96, 512, 1, 1),
    (256, 512, 7, 7), (32, 100, 57, 57),
]  # fmt: skip
ODD: list[Image] = [
    ("nchw", (64, 3, 224, 224)), ("nhwc", (64, 3, 224, 224)), ("nchw", (4096, 1000, 1, 1)),
    ("nchw", (4096, 1001, 1, 1)), ("nchw", (512, 768, 2, 2)), ("nchw", (512, 768, 3, 3)), ("nchw", (33, 65, 31, 33)),
    ("nhwc", (33, 65, 31, 33)), ("nchw", (64, 1, 512, 512)), ("nhwc", (2, 4096, 64, 64)),
    ("nchw", (1, 64, 1024, 1024)), ("nchw", (8, 64, 8, 8)),
]  # fmt: skip
LAYOUTS = ("nchw", "nhwc")
SAMPLED_CHANNELS = 4


def random_images(seed: int, count: int) -> list[Image]:
    """(layout, (N, C, H, W)) of 2^18 to 2^27 elements: rows of channels, small planes, any planes, few channels."""
    generator = random.Random(seed)
    images: list[Image] = []
    for _ in range(count):
        kind = generator.choice(("rows", "small planes", "planes", "few channels"))
        channels = log_uniform(generator, *((1, 9) if kind == "few channels" else (10, 4096)))
        if generator.random() < 0.7:
            channels |= 1
        sides = {"rows": (1, 1), "small planes": (1, 15), "planes": (16, 100), "few channels": (1, 512)}[kind]
        height = log_uniform(generator, *sides)
        width = height if generator.random() < 0.7 else log_uniform(generator, *sides)
        outer = max(1, round(log_uniform(generator, 1 << 18, 1 << 27) / (channels * height * width)))
        images.append((generator.choice(("nchw", "nhwc")), (outer, channels, height, width)))
    return images


def _cases(images: Iterable[Image], types: Sequence[str] = ("f16", "f32"), lead: int = 0) -> list[Case]:
    return [
        {"layout": layout, "shape": shape, "kind": kind, "direction": direction, "lead": lead}
        for kind in types
        for layout, shape in images
        for direction in ("forward", "backward")
    ]


def _set(text: str, images: Iterable[Image], **more: Any) -> CaseSet:
    return CaseSet(text, functools.partial(_cases, list(images), **more), "[:TYPES]")


SETS = CaseSets(
    **{name: _set("the shapes of ResNets in either layout", ((name, shape) for shape in TABLE)) for name in LAYOUTS},
    odd=CaseSet(
        "odd planes, few channels, one alpha; or drawn at random",
        lambda *drawn, **types: _cases(random_images(*drawn) if drawn else ODD, **types),
        "[:SEED:COUNT][:TYPES]",
    ),
    large=_set("2^28 elements", ((layout, (64, 64, 256, 256)) for layout in LAYOUTS)),
    misaligned=_set(
        "pointers one element past a multiple of 16 bytes",
        ((layout, TABLE[i]) for layout in LAYOUTS for i in (1, 4, 7)),
        lead=1,
    ),
)


def case_of_words(words: list[str]) -> Case:
    """`f16 96x64x112x112 [nhwc] [backward]`."""
    kind, shape, *rest = words
    checked_kinds(kind)
    extents = extents_of(shape)
    if len(extents) != 4 or set(rest) - {*LAYOUTS, "forward", "backward"}:
        raise CaseError("a case of prelu is TYPE NxCxHxW [nchw|nhwc] [forward|backward]")
    direction = "backward" if "backward" in rest else "forward"
    return {"layout": "nhwc" if "nhwc" in rest else "nchw", "shape": extents, "kind": kind, "direction": direction}


class PreluWork(Work):
    """The tensors have the shape (outer, channels, inner), in the order of memory; `shape` is (N, C, H, W) in both
    layouts."""

    op = "prelu"
    poison_byte = 0xFF  # NaN

    def __init__(
        self,
        machine: Any,
        layout: str,
        shape: tuple[int, ...],
        kind: str,
        direction: str,
        lead: int = 0,
        num_sets: int | None = None,
    ) -> None:
        n, c, h, w = shape
        self.layout, self.image, self.backward = layout, shape, direction == "backward"
        self.kind, self.types, self.shape_text, self.part = direction, kind, by(shape), f"{kind} {direction}"
        self.note = layout + (f" +{lead}" if lead else "")
        self.memory_shape = [n, c, h * w] if layout == "nchw" else [n * h * w, c, 1]
        self.function = "prelu_backward" if self.backward else "prelu"
        self.written_bytes = math.prod(shape) * BYTES[kind]
        self.read_bytes = self.written_bytes * (2 if self.backward else 1)
        # Both directions rotate over the same number of sets, so that they see the same inputs.
        super().__init__(machine, 3 * self.written_bytes, num_sets)
        tensor = functools.partial(Tensor, machine, kind, self.memory_shape, lead=lead)
        self.alpha = Tensor(machine, kind, [c], "unit", 2)
        if self.backward:
            self.second_outs = [Tensor(machine, kind, [c]) for _ in range(self.num_sets)]
            self.allocate_workspace(*self._sizes())
        gradients = [tensor("unit", 1)] if self.backward else []
        self.rotate([*gradients, tensor("unit")], tensor())

    def _sizes(self) -> tuple[Any, ...]:
        return *map(ctypes.c_int64, self.memory_shape), int(self.alpha.code), int(self.alpha.code)

    def arguments_of(self, i: int) -> tuple[Any, ...]:
        tensors = [*self.operands[i], self.alpha, self.outs[i], *self.second_outs[i : i + 1]]
        return *(tensor.arguments()[0] for tensor in tensors), *self._sizes()

    def expected(self, index: list[Array]) -> Array:
        x = self.operands[0][-1].known(index)
        wide: Any = np.float64 if self.types == "f64" else np.float32
        alpha = self.alpha.known([index[1]]).astype(wide)
        of = self.operands[0][0].known(index).astype(wide)  # dy, or x itself
        found: Array = np.where(x.astype(wide) > 0, of, alpha * of).astype(x.dtype)
        return found

    def check(self) -> bool:
        return super().check() and (not self.backward or self._is_dalpha_right())

    def _is_dalpha_right(self) -> bool:
        """Against sums in float64, for the first channels and the last."""
        outer, channels, inner = self.memory_shape
        chosen = np.unique(np.linspace(0, channels - 1, SAMPLED_CHANNELS).astype(np.int64))
        got = self.second_outs[0].fetch().astype(np.float64)
        if np.isnan(got).any():
            return False
        dy, x = self.operands[0]
        eps, _, _ = limits(self.types)
        bound = 1e-14 if self.types == "f64" else 1e-6
        rows, columns = np.arange(outer)[:, None], np.arange(inner)[None, :]
        for channel in chosen:
            index: list[Array] = [rows, np.asarray(channel), columns]
            values = x.known(index).astype(np.float64)
            terms = np.where(values > 0, 0.0, values * dy.known(index).astype(np.float64))
            exact, magnitude = terms.sum(), np.abs(terms).sum()
            if abs(got[channel] - exact) > bound * magnitude + eps * abs(exact):
                return False
        return True

    # ---- rivals, on (N, C, H, W) over the same memory

    def _as_image(self, tensor: Tensor) -> Tensor:
        _, c, h, w = self.image
        strides = [c * h * w, h * w, w, 1] if self.layout == "nchw" else [c * h * w, 1, w * c, c]
        return tensor.reshaped(self.image, strides)

    def rival_operands(self, i: int) -> list[Tensor]:
        return [*map(self._as_image, self.operands[i]), self.alpha]

    def rival_out(self) -> Tensor:
        return self._as_image(self.outs[0])

    def formula(self, torch: Any) -> Callable[..., Any]:
        """PReLU in PyTorch's elementwise operations, which torch.compile fuses."""
        if self.backward:

            def gradients(dy: Any, x: Any, alpha: Any) -> Any:
                weight = alpha.view(1, -1, 1, 1)
                dx = torch.where(x > 0, dy, weight * dy)
                return dx, torch.where(x > 0, 0, x * dy).sum((0, 2, 3), dtype=torch.float32).to(x.dtype)

            return gradients
        return lambda x, alpha: torch.where(x > 0, x, alpha.view(1, -1, 1, 1) * x)

    def eager(self, torch: Any) -> Callable[..., Any]:
        """PyTorch's own operators."""
        if self.backward:
            gradient = torch.ops.aten._prelu_kernel_backward

            def gradients(dy: Any, x: Any, alpha: Any) -> Any:
                dx, terms = gradient(dy, x, alpha.view(1, -1, 1, 1))
                return dx, terms.sum((0, 2, 3))

            return gradients
        return lambda x, alpha: torch.ops.aten._prelu_kernel(x, alpha.view(1, -1, 1, 1))
