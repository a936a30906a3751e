# SPDX-License-Identifier: Apache-2.0
"""The workload of the softmax benches: cases, their tensors, the calls by ctypes, the check, the rivals.

A case is (kind, type, b, h, q, k). The kinds: plain; dense, a bool mask (b, 1, q, k) over heads; lengths, uniform in
k/4 ... k; causal; bias, of x's type and whole shape; backward.
"""

from __future__ import annotations

import ctypes
import math
import random

import harness
import torch

from pyflowk._native.abi import SoftmaxMask

SCALE = 0.125
MANTISSA_BITS = {torch.float16: 11, torch.bfloat16: 8, torch.float32: 24}
LEAST_EXPONENT = {torch.float16: -14, torch.bfloat16: -126, torch.float32: -126}  # of normal numbers
SAMPLED_ROWS = 512


class Workload:
    """The calls of one case, and several sets of buffers, which they use one after the other."""

    def __init__(self, case: tuple, sets: int | None = None) -> None:
        self.kind, self.type, *shape = case
        self.shape = tuple(shape)
        self.dtype, self.code = harness.DTYPES[self.type]
        b, h, q, k = self.shape
        torch.manual_seed(1)
        self.dense = self.lengths = None
        unmasked = b * h * q * k
        if self.kind == "dense":
            self.dense = torch.rand(b, 1, q, k, device="cuda") < 0.3
        if self.kind == "lengths":
            self.lengths = torch.randint(max(k // 4, 1), k + 1, (b, h, q), dtype=torch.int32, device="cuda")
            unmasked = int(self.lengths.sum())
        if self.kind == "causal":
            unmasked = b * h * int(torch.clamp(torch.arange(q) + 1 + k - q, 0, k).sum())
        element = self.dtype.itemsize
        total = b * h * q * k
        # Forward: unmasked columns are read, all are written.
        self.moved = {
            "plain": 2 * total * element,
            "dense": 2 * total * element + b * q * k,
            "lengths": (unmasked + total) * element,
            "causal": (unmasked + total) * element,
            "bias": 3 * total * element,
            "backward": 3 * total * element,
        }[self.kind]
        self.sets = sets or max(2, min(64, math.ceil(harness.TOUCHED_BYTES / self.moved)))
        first = torch.randn(self.shape, device="cuda").to(self.dtype) * 3
        self.xs = [first] + [first.clone() for _ in range(self.sets - 1)]
        self.outs = [torch.empty_like(first) for _ in range(self.sets)]
        self.outs[0].fill_(float("nan"))
        self.sides: list[torch.Tensor] = []
        if self.kind == "backward":
            y = torch.softmax(first.float(), -1).to(self.dtype)
            self.sides = [y] + [y.clone() for _ in range(self.sets - 1)]
        if self.kind == "bias":
            bias = torch.randn(self.shape, device="cuda").to(self.dtype)
            self.sides = [bias] + [bias.clone() for _ in range(self.sets - 1)]
        # Each set has its own mask.
        self.denses = [self.dense.clone() for _ in range(self.sets)] if self.dense is not None else []
        self.scale = 1.0 if self.kind == "plain" else SCALE
        self.calls = [self.arguments(i) for i in range(self.sets)]
        self.unmasked = self.make_unmasked() if self.kind in ("dense", "lengths", "causal") else None

    def make_unmasked(self) -> torch.Tensor | None:
        """Which columns are unmasked, in a shape that broadcasts; None if that is too large."""
        b, h, q, k = self.shape
        columns = torch.arange(k, device="cuda")
        if self.kind == "dense":
            return ~self.dense
        if self.kind == "lengths":
            return columns < self.lengths[..., None] if b * h * q * k <= 1 << 31 else None
        return columns <= torch.arange(q, device="cuda")[:, None] + k - q

    def arguments(self, i: int) -> tuple:
        """The arguments of flowk_masked_softmax or its backward on buffer set i, without the stream."""
        x, out = self.xs[i], self.outs[i]
        longs = ctypes.c_int64 * 4
        mask = SoftmaxMask(struct_bytes=ctypes.sizeof(SoftmaxMask))
        if self.dense is not None:
            _, _, q, k = self.shape
            mask.dense, mask.strides = self.denses[i].data_ptr(), longs(q * k, 0, k, 1)  # kept alive by the mask
            mask.dense_strides = ctypes.addressof(mask.strides)
        if self.lengths is not None:
            mask.lengths, mask.lengths_dtype = self.lengths.data_ptr(), harness.DTYPES["i32"][1]
        mask.causal = self.kind == "causal"
        if self.kind == "bias":
            mask.bias, mask.bias_dtype = self.sides[i].data_ptr(), self.code
        tail = (4, longs(*self.shape), ctypes.c_double(self.scale), ctypes.byref(mask), 0)
        inputs = (harness.pointer(x), None)
        if self.kind == "backward":
            inputs += (harness.pointer(self.sides[i]), None)
        return (*inputs, self.code, harness.pointer(out), None, self.code, *tail)

    @property
    def function(self) -> str:
        return "flowk_masked_softmax_backward" if self.kind == "backward" else "flowk_masked_softmax"

    # ---- the reference

    def reference(self, rows: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
        """Rows of the result, (rows, k), computed in `dtype`, and the error that float32 may add to each element.

        Gradient: 8 roundings of |scale| * y * (|dy| + sum |y_i dy_i|). Bias: 2 roundings of y times the row's largest
        |score|, because a score with a bias is rounded before the exponential. Otherwise 0.
        """
        _, h, q, k = self.shape
        x = self.xs[0].view(-1, k)[rows].to(dtype)
        rounding = 2.0**-24
        if self.kind == "backward":
            y = self.sides[0].view(-1, k)[rows].to(dtype)
            terms = SCALE * y * (x.abs() + (x * y).abs().sum(-1, keepdim=True))
            return SCALE * y * (x - (x * y).sum(-1, keepdim=True)), 8 * rounding * terms
        z = x * self.scale
        if self.kind == "bias":
            z = z + self.sides[0].view(-1, k)[rows].to(dtype)
            y = torch.softmax(z, -1)
            return y, 2 * rounding * z.abs().amax(-1, keepdim=True) * y
        columns = torch.arange(k, device="cuda")
        if self.kind == "dense":
            z = z.masked_fill(self.dense.view(-1, k)[rows // (h * q) * q + rows % q], -math.inf)
        if self.kind == "lengths":
            z = z.masked_fill(columns >= self.lengths.view(-1)[rows][:, None], -math.inf)
        if self.kind == "causal":
            z = z.masked_fill(columns > (rows % q + k - q)[:, None], -math.inf)
        y = torch.softmax(z, -1).masked_fill(z.isneginf().all(-1, keepdim=True), 0)  # 0 if all columns are masked out
        return y, torch.zeros_like(z)

    def error(self, actual_rows: torch.Tensor, rows: torch.Tensor) -> float:
        """The largest error beyond what reference() allows, in units in the last place of the row's largest value."""
        exact, allowed = self.reference(rows, torch.float64)
        largest = exact.abs().amax(-1, keepdim=True).clamp_min(1e-60)
        exponent = torch.floor(torch.log2(largest)).clamp_min(LEAST_EXPONENT[self.dtype])
        unit = torch.exp2(exponent + 1 - MANTISSA_BITS[self.dtype])
        return float((((actual_rows.double() - exact).abs() - allowed) / unit).max())

    def check(self) -> tuple[bool, float]:
        """Is the first output right (every element written, sampled rows within their bound), and the largest error."""
        b, h, q, k = self.shape
        num_rows = b * h * q
        count = min(num_rows, max(16, min(SAMPLED_ROWS, (1 << 25) // k)))
        rows = torch.randperm(num_rows, device="cuda")[:count]
        actual = self.outs[0].view(-1, k)[rows]
        error = self.error(actual, rows)
        # 16-bit types: one rounding, half a unit, plus the error of float32 arithmetic.
        bound = 2.0 if self.dtype == torch.float32 else 0.51
        written = not bool(torch.isnan(self.outs[0]).any())
        return written and error <= bound, error

    # ---- rivals

    def torch_softmax(self, x: torch.Tensor, side: torch.Tensor | None) -> torch.Tensor:
        if self.kind == "backward":
            return SCALE * torch._softmax_backward_data(x, side, -1, x.dtype)
        if self.kind == "plain":
            return torch.softmax(x, -1)
        z = x * SCALE
        if self.kind == "bias":
            return torch.softmax(z + side, -1)
        return torch.softmax(z.masked_fill(~self.unmasked, -math.inf), -1)

    def rivals(self, compiled: bool) -> dict:
        """PyTorch's operators as calls of i; they allocate from the graph's own pool."""
        if self.kind == "lengths" and self.unmasked is None:
            return {}
        sides = self.sides or [None] * self.sets
        found = {"torch": lambda i: self.torch_softmax(self.xs[i], sides[i])}
        if compiled:
            torch._dynamo.reset()
            function = torch.compile(self.torch_softmax, dynamic=False)
            found["compile"] = lambda i: function(self.xs[i], sides[i])
        return found

    def copies(self, library: harness.Library) -> dict:
        """Copies of as many bytes as the case moves, with cudaMemcpyAsync and with flowk's kernel."""
        half = max(self.moved // 2 // 16 * 16, 16)
        src = [torch.empty(half, dtype=torch.uint8, device="cuda") for _ in range(self.sets)]
        dst = [torch.empty_like(s) for s in src]
        code = harness.DTYPES["u8"][1]
        arguments = [library.permute_arguments(a, [0], b, code) for a, b in zip(src, dst)]
        return {"memcpy": lambda i: dst[i].copy_(src[i]), "copy": lambda i: library.permute(arguments[i])}


class SoftmaxLibrary(harness.Library):
    """The calls of softmax by ctypes."""

    def run(self, workload: Workload, i: int) -> None:
        self.check(getattr(self.c, workload.function)(*workload.calls[i], harness.current_stream()))

    def explain_softmax(self, workload: Workload) -> str:
        return self.explain_of(workload.function.removeprefix("flowk_"), workload.calls[0])


# ---- the cases

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


KINDS = ("plain", "dense", "lengths", "causal", "bias", "backward")


def random_cases(seed: int, count: int) -> list[tuple]:
    """16 to 2^18 columns, half of them multiples of 8, and 2^23 to 2^27 elements."""
    generator = random.Random(seed)

    cases = []
    for _ in range(count):
        k = harness.log_uniform(generator, 16, 1 << 18)
        if generator.random() < 0.5:
            k = (k + 7) // 8 * 8
        rows = max(1, harness.log_uniform(generator, 1 << 23, 1 << 27) // k)
        q = min(rows, k if generator.random() < 0.5 else harness.log_uniform(generator, 1, 4096))
        h = min(rows // q, generator.choice((1, 4, 8, 12, 16, 32)))
        cases.append((generator.choice(KINDS), generator.choice(TYPES), rows // (q * h), h, q, k))
    return cases


def cases_of(name: str) -> list[tuple]:
    """SET or SET:TYPE[,TYPE...], by default f16 and f32; or random[:SEED[:COUNT]]."""
    if name.startswith("random"):
        _, seed, count = (name + ":" * (2 - name.count(":"))).split(":")
        return random_cases(int(seed or 0), int(count or 30))
    name, _, types = name.partition(":")
    types = types.split(",") if types else ["f16", "f32"]
    rows = [(1, 1, rows, k) for rows, k in PLAIN]
    odd_rows = [(1, 1, rows, k) for rows, k in ODD_PLAIN]
    tables = {
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
    return [(kind, type_, *shape) for type_ in types for kind, shapes in tables[name] for shape in shapes]
