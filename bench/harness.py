# SPDX-License-Identifier: Apache-2.0
"""Timing on a GPU, as every bench of flowk does it.

Contenders work on the same rotating buffers, more of them than the L2 holds, each in a CUDA graph; the graphs are
replayed in turn and the median is kept. The figure is the fraction of copy: the time of the faster of cudaMemcpyAsync
and flowk's own contiguous copy of the same bytes, over the contender's time. A wrong result is not timed.

Needs PyTorch, for memory, graphs and events.
"""

from __future__ import annotations

import ctypes
import json
import math
import os
import random
import statistics
import subprocess
from collections.abc import Iterable
from pathlib import Path

import torch

from pyflowk._native import abi, library

TOUCHED_BYTES = 768 << 20  # by one replay: more than ten times the L2 of an H200
DTYPES = {
    "i8": (torch.int8, 2),
    "u8": (torch.uint8, 6),
    "i32": (torch.int32, 4),
    "f16": (torch.float16, 10),
    "bf16": (torch.bfloat16, 11),
    "f32": (torch.float32, 12),
    "f64": (torch.float64, 13),
    "e4m3": (torch.float8_e4m3fn, 14),
    "e5m2": (torch.float8_e5m2, 15),
    "c64": (torch.complex64, 16),
    "c128": (torch.complex128, 17),
}

DTYPE_CODES = {dtype: code for dtype, code in DTYPES.values()}


def library_path() -> str:
    """libflowk: $FLOWK_LIBRARY, or the installed package's."""
    return os.environ.get("FLOWK_LIBRARY") or library.open_backend("cuda")._name


def flipped(tensor: torch.Tensor, dims: list[int]) -> torch.Tensor:
    """The tensor reversed along `dims`: a copy, or the tensor itself if there are none."""
    return tensor.flip(dims) if dims else tensor


class View:
    """A tensor of any strides, negative ones too (torch has none), inside a 1-D `base`."""

    def __init__(self, base: torch.Tensor, shape: list[int], strides: list[int], first: int) -> None:
        self.base, self.shape, self._strides, self._first = base, tuple(shape), tuple(strides), first

    @staticmethod
    def layout(
        shape: list[int],
        order: list[int] | None = None,
        pads: dict[int, int] | None = None,
        steps: dict[int, int] | None = None,
        flips: tuple[int, ...] = (),
    ) -> tuple[list[int], int, int]:
        """Strides, the element with all indices 0 and the base's elements: `order` from the outermost dimension to the
        innermost, `pads` elements left free after a dimension, `steps` between its indices, `flips` walked down."""
        strides, first, reach = [0] * len(shape), 0, 1
        for d in reversed(order if order is not None else range(len(shape))):
            stride = reach * (steps or {}).get(d, 1)
            reach = stride * (shape[d] + (pads or {}).get(d, 0))
            strides[d] = -stride if d in flips else stride
            first += stride * (shape[d] - 1) if d in flips else 0
        return strides, first, reach

    def data_ptr(self) -> int:
        return self.base.data_ptr() + self._first * self.base.element_size()

    def stride(self) -> tuple[int, ...]:
        return self._strides

    def dim(self) -> int:
        return len(self.shape)

    def upward(self) -> tuple[torch.Tensor, list[int]]:
        """The same elements with positive strides only, as torch needs, and the dimensions to reverse."""
        flips = [d for d, stride in enumerate(self._strides) if stride < 0]
        lowest = self._first + sum(self._strides[d] * (self.shape[d] - 1) for d in flips)
        return self.base.as_strided(self.shape, [abs(stride) for stride in self._strides], lowest), flips

    def values(self) -> torch.Tensor:
        return flipped(*self.upward())


class Library:
    """The C functions with pyflowk's prototypes, so that a bench times the library and not Python.

    An `..._arguments` method makes the arguments of a call once, except the stream: as C values, so that they also pass
    to a function of a tuning library that has no prototype here. `explain_of` takes the same arguments.
    """

    def __init__(self) -> None:
        self.c = ctypes.CDLL(library_path())
        abi.declare(self.c)

    def check(self, status: int) -> None:
        """RuntimeError with the library's text where a call failed."""
        if status != abi.Status.SUCCESS:
            raise RuntimeError(f"{abi.Status(status).name}: {self.c.flowk_last_error().decode()}")

    def explain_of(self, function: str, arguments: tuple) -> str:
        """The text of flowk_<function>_explain."""
        text = ctypes.create_string_buffer(4096)
        self.check(getattr(self.c, f"flowk_{function}_explain")(*arguments, text, len(text)))
        return text.value.decode()

    def permute_arguments(self, x: torch.Tensor | View, axes: list[int], out: torch.Tensor | View, dtype: int) -> tuple:
        shape, order = longs(x.shape), (ctypes.c_int32 * max(x.dim(), 1))(*axes)
        return pointer(x), longs(x.stride()), pointer(out), longs(out.stride()), x.dim(), shape, order, dtype

    def permute(self, arguments: tuple) -> None:
        self.check(self.c.flowk_permute(*arguments, current_stream()))

    def explain(self, arguments: tuple) -> str:
        return self.explain_of("permute", arguments)

    def convert_arguments(
        self, x: torch.Tensor, axes: list[int], out: torch.Tensor, dtypes: tuple[int, int], scale: float
    ) -> tuple:
        src, src_strides, dst, dst_strides, *geometry, _ = self.permute_arguments(x, axes, out, 0)
        return src, src_strides, dtypes[0], dst, dst_strides, dtypes[1], *geometry, ctypes.c_double(scale)

    def permute_convert(self, arguments: tuple) -> None:
        self.check(self.c.flowk_permute_convert(*arguments, current_stream()))

    def convert_explain(self, arguments: tuple) -> str:
        return self.explain_of("permute_convert", arguments)

    def prelu_arguments(self, x: torch.Tensor, alpha: torch.Tensor, y: torch.Tensor, shape: list[int]) -> tuple:
        """`shape` is (outer, channels, inner) of x as it lies in memory."""
        pointers = map(pointer, (x, alpha, y))
        return *pointers, *map(ctypes.c_int64, shape), DTYPE_CODES[x.dtype], DTYPE_CODES[alpha.dtype]

    def prelu(self, arguments: tuple) -> None:
        self.check(self.c.flowk_prelu(*arguments, current_stream()))

    def prelu_backward_arguments(
        self,
        dy: torch.Tensor,
        x: torch.Tensor,
        alpha: torch.Tensor,
        dx: torch.Tensor,
        dalpha: torch.Tensor,
        shape: list[int],
    ) -> tuple:
        pointers = map(pointer, (dy, x, alpha, dx, dalpha))
        return *pointers, *map(ctypes.c_int64, shape), DTYPE_CODES[x.dtype], DTYPE_CODES[alpha.dtype]

    def prelu_backward_workspace_bytes(self, arguments: tuple) -> int:
        num_bytes = ctypes.c_size_t()
        self.check(self.c.flowk_prelu_backward_workspace_bytes(*arguments[5:], ctypes.addressof(num_bytes)))
        return num_bytes.value

    def prelu_backward(self, arguments: tuple, workspace: torch.Tensor) -> None:
        self.check(self.c.flowk_prelu_backward(*arguments, pointer(workspace), workspace.numel(), current_stream()))


def longs(numbers: Iterable[int]) -> ctypes.Array:
    """An array of int64_t, of one element at least."""
    values = list(numbers)
    return (ctypes.c_int64 * max(len(values), 1))(*values)


def pointer(tensor: torch.Tensor | View) -> abi.TensorPointer:
    """The address of the element with all indices 0."""
    return abi.TensorPointer(tensor.data_ptr())


def current_stream() -> abi.StreamHandle:
    """The handle of torch's current stream."""
    return abi.StreamHandle(torch.cuda.current_stream().cuda_stream)


def ordinary_tensor(shape: list[int], dtype: torch.dtype) -> torch.Tensor:
    """Numbers within the range of every type: for conversions, whose NaN and overflow differ between libraries."""
    if dtype.is_floating_point:
        return (torch.randn(shape, device="cuda") * 8).to(dtype)
    bounds = torch.iinfo(dtype)
    return torch.randint(max(bounds.min, -1000), min(bounds.max, 1000) + 1, shape, device="cuda", dtype=dtype)


def log_uniform(generator: random.Random, low: int, high: int) -> int:
    """A number from low to high, every power of 2 between them as likely as the next."""
    return round(math.exp(generator.uniform(math.log(low), math.log(high))))


def random_tensor(shape: list[int], dtype: torch.dtype) -> torch.Tensor:
    """Random bits: every NaN payload too."""
    tensor = torch.empty(shape, dtype=dtype, device="cuda")
    tensor.view(-1).view(torch.uint8).random_(0, 256)
    return tensor


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    raw_a, raw_b = (x.contiguous().view(-1).view(torch.uint8) for x in (a, b))
    return a.shape == b.shape and torch.equal(raw_a, raw_b)


def capture(work, num_sets: int) -> torch.cuda.CUDAGraph:
    """A graph of work(0), work(1), ... over all buffer sets, warmed up."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for i in range(num_sets):
            work(i)
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        for i in range(num_sets):
            work(i)
    return graph


def time_in_turn(contenders: dict, num_sets: int, rounds: int = 7) -> dict[str, float]:
    """Median seconds of one work(i) of each contender, replayed one after the other."""
    graphs = {name: capture(work, num_sets) for name, work in contenders.items()}
    times: dict[str, list[float]] = {name: [] for name in graphs}
    for round_ in range(rounds + 1):
        for name, graph in graphs.items():
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            graph.replay()
            end.record()
            end.synchronize()
            if round_ > 0:
                times[name].append(start.elapsed_time(end) * 1e-3 / num_sets)
    return {name: statistics.median(values) for name, values in times.items()}


def usable(makers: dict, out: torch.Tensor, expected: torch.Tensor, row: dict) -> dict:
    """The rivals that take a case and give `expected` in `out`, name: work(i); the others are named in the row."""
    works, skipped = {}, []
    for name, make in makers.items():
        try:
            out.view(torch.uint8).fill_(0xA5)
            work = make()
            work(0)
            torch.cuda.synchronize()
            if not same_bits(out, expected):
                skipped.append(f"{name} gives other bits")
            capture(work, 1)
            works[name] = work
        except Exception as error:  # whatever a rival raises: it is only left out
            skipped.append(f"no {name}: {type(error).__name__}")
    if skipped:
        row["skipped"] = ", ".join(skipped)
    return works


def num_buffer_sets(moved_bytes: int) -> int:
    """How many buffer sets one replay must touch to exceed the L2."""
    return max(2, min(64, math.ceil(TOUCHED_BYTES / moved_bytes)))


def rotating_copies(moved_bytes: int, num_sets: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Pairs of runs of bytes, (src, dst), to copy as many bytes as a case reads and writes."""
    num_bytes = max(16, moved_bytes // 2 // 16 * 16)
    make = [torch.empty(num_bytes, dtype=torch.uint8, device="cuda") for _ in range(2 * num_sets)]
    return list(zip(make[::2], make[1::2], strict=True))


def rotating_buffers(shape: list[int], out_shape: list[int], dtype: torch.dtype) -> tuple[list, list]:
    """num_buffer_sets() inputs with equal values, and as many outputs; the first output is poisoned."""
    x = random_tensor(shape, dtype)
    moved = 2 * x.numel() * x.element_size()
    sets = num_buffer_sets(moved)
    outs = [torch.empty(out_shape, dtype=dtype, device="cuda") for _ in range(sets)]
    outs[0].view(torch.uint8).fill_(0xA5)
    return [x] + [x.clone() for _ in range(sets - 1)], outs


def geomean(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values)) if values else float("nan")


def machine() -> str:
    query = ["nvidia-smi", "--query-gpu=name,driver_version,clocks.sm,clocks.mem", "--format=csv,noheader"]
    line = subprocess.run(query, capture_output=True, text=True).stdout
    return line.strip().splitlines()[0] if line.strip() else torch.cuda.get_device_name()


def write_json(path: str | None, rows: list[dict]) -> None:
    if path:
        Path(path).write_text(json.dumps({"machine": machine(), "rows": rows}))
