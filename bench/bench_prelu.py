# SPDX-License-Identifier: Apache-2.0
"""PReLU, forward and backward, against a copy: `python bench/bench_prelu.py SET ... [--types f16,f32] [--rivals]`.

The sets: nchw, nhwc (the shapes of TABLE in either layout), odd (odd planes, few channels, one alpha), odd:SEED:COUNT
(drawn at random), large (2^28 elements), misaligned (pointers one element past a multiple of 16 bytes).

Prints for each case the fraction of the time to move what must be moved: x and y forward (2N), dy, x and dx backward
(3N); and with --rivals the same of PyTorch and torch.compile. Every output is checked first, dalpha against float64.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))
import harness

# fmt: off
TABLE = [
    (96, 64, 112, 112), (96, 64, 56, 56), (96, 128, 28, 28), (96, 256, 14, 14), (96, 512, 7, 7), (96, 512, 1, 1),
    (256, 512, 7, 7), (32, 100, 57, 57),
]
ODD = [
    ("nchw", (64, 3, 224, 224)), ("nhwc", (64, 3, 224, 224)), ("nchw", (4096, 1000, 1, 1)),
    ("nchw", (4096, 1001, 1, 1)), ("nchw", (512, 768, 2, 2)), ("nchw", (512, 768, 3, 3)), ("nchw", (33, 65, 31, 33)),
    ("nhwc", (33, 65, 31, 33)), ("nchw", (64, 1, 512, 512)), ("nhwc", (2, 4096, 64, 64)),
    ("nchw", (1, 64, 1024, 1024)), ("nchw", (8, 64, 8, 8)),
]
# fmt: on


def random_cases(seed: int, count: int) -> list[tuple]:
    """(layout, (N, C, H, W)) of 2^18 to 2^27 elements: rows of channels, small planes, any planes, few channels."""
    generator = random.Random(seed)

    cases = []
    for _ in range(count):
        kind = generator.choice(("rows", "small planes", "planes", "few channels"))
        channels = harness.log_uniform(generator, *((1, 9) if kind == "few channels" else (10, 4096)))
        if generator.random() < 0.7:
            channels |= 1
        sides = {"rows": (1, 1), "small planes": (1, 15), "planes": (16, 100), "few channels": (1, 512)}[kind]
        height = harness.log_uniform(generator, *sides)
        width = height if generator.random() < 0.7 else harness.log_uniform(generator, *sides)
        outer = max(1, round(harness.log_uniform(generator, 1 << 18, 1 << 27) / (channels * height * width)))
        cases.append((generator.choice(("nchw", "nhwc")), (outer, channels, height, width)))
    return cases


def cases_of(name: str) -> list[tuple]:
    """(name, layout, (N, C, H, W), elements that every pointer is past a multiple of 16 bytes)"""
    if name in ("nchw", "nhwc"):
        return [(name, name, shape, 0) for shape in TABLE]
    if name == "odd":
        return [("odd", layout, shape, 0) for layout, shape in ODD]
    if name.startswith("odd:"):
        _, seed, count = name.split(":")
        return [(name, layout, shape, 0) for layout, shape in random_cases(int(seed), int(count))]
    if name == "large":
        return [("large", layout, (64, 64, 256, 256), 0) for layout in ("nchw", "nhwc")]
    if name == "misaligned":
        return [(name, layout, TABLE[i], 1) for layout in ("nchw", "nhwc") for i in (1, 4, 7)]
    raise SystemExit(f"no set {name}")


def memory_shape(layout: str, shape: tuple) -> list[int]:
    """(outer, channels, inner) of an (N, C, H, W) tensor that lies in `layout`."""
    n, c, h, w = shape
    return [n, c, h * w] if layout == "nchw" else [n * h * w, c, 1]


def allocate(shape: list[int], dtype: torch.dtype, lead: int) -> torch.Tensor:
    size = math.prod(shape)
    return torch.empty(size + lead, dtype=dtype, device="cuda")[lead:].view(shape)


class Case:
    """The rotating buffers of a case, in memory order: (outer, channels, inner)."""

    def __init__(self, case: tuple, kind: str) -> None:
        self.name, self.layout, self.full_shape, lead = case
        self.kind = kind
        dtype, _ = harness.DTYPES[kind]
        self.shape = memory_shape(self.layout, self.full_shape)
        self.bytes = math.prod(self.shape) * dtype.itemsize
        self.sets = max(2, min(64, math.ceil(harness.TOUCHED_BYTES / (3 * self.bytes))))
        self.xs = [allocate(self.shape, dtype, lead).normal_() for _ in range(self.sets)]
        self.dys = [allocate(self.shape, dtype, lead).normal_() for _ in range(self.sets)]
        self.outs = [allocate(self.shape, dtype, lead) for _ in range(self.sets)]
        self.alpha = torch.randn(self.shape[1], dtype=dtype, device="cuda")
        self.dalphas = [torch.empty_like(self.alpha) for _ in range(self.sets)]

        # The time to move 2N and 3N: copies of N and of 1.5 N elements.
        def room() -> torch.Tensor:
            return torch.zeros((self.bytes * 3 // 2 + 15) // 16 * 16, dtype=torch.uint8, device="cuda")

        self.copies = {
            "forward": [(x.view(-1), y.view(-1)) for x, y in zip(self.xs, self.outs)],
            "backward": [(room(), room()) for _ in range(self.sets)],
        }
        for x in self.xs[1:]:
            x.copy_(self.xs[0])
        for dy in self.dys[1:]:
            dy.copy_(self.dys[0])

    def as_image(self, tensor: torch.Tensor) -> torch.Tensor:
        """(N, C, H, W) over the same memory."""
        n, c, h, w = self.full_shape
        return tensor.view(n, c, h, w) if self.layout == "nchw" else tensor.view(n, h, w, c).permute(0, 3, 1, 2)


def poison(tensor: torch.Tensor) -> None:
    tensor.fill_(float("nan"))


def is_forward_right(case: Case) -> bool:
    x, alpha = case.xs[0].float(), case.alpha.float()[None, :, None]
    if case.kind == "f64":
        x, alpha = case.xs[0], case.alpha[None, :, None]
    expected = torch.where(x > 0, x, alpha * x).to(case.xs[0].dtype)
    return torch.equal(expected, case.outs[0])


def is_backward_right(case: Case) -> tuple[bool, float]:
    """Also the largest error of dalpha, relative to the sum of its terms' magnitudes, before it is rounded."""
    x, dy, alpha = case.xs[0], case.dys[0], case.alpha[None, :, None]
    wide = torch.float64 if case.kind == "f64" else torch.float32
    expected = torch.where(x > 0, dy.to(wide), alpha.to(wide) * dy.to(wide)).to(x.dtype)
    right = torch.equal(expected, case.outs[0])
    del expected
    exact = torch.zeros(case.shape[1], dtype=torch.float64, device="cuda")
    magnitude = torch.zeros_like(exact)
    for part_x, part_dy in zip(x.split(max(1, x.shape[0] // 16)), dy.split(max(1, x.shape[0] // 16))):
        terms = torch.where(part_x > 0, 0.0, part_x.double() * part_dy.double())
        exact += terms.sum((0, 2))
        magnitude += terms.abs().sum((0, 2))
    error = (case.dalphas[0].double() - exact).abs()
    rounding = torch.finfo(case.alpha.dtype).eps * exact.abs()
    bound = 1e-14 if case.kind == "f64" else 1e-6
    right &= bool((error <= bound * magnitude + rounding).all())
    return right, float((error / magnitude.clamp_min(1e-300)).max())


def compiled(direction: str):
    """torch.compile of PReLU or of its gradients as formulas, without autograd."""

    def forward(x: torch.Tensor, alpha: torch.Tensor) -> torch.Tensor:
        return torch.where(x > 0, x, alpha * x)

    def backward(dy: torch.Tensor, x: torch.Tensor, alpha: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        dx = torch.where(x > 0, dy, alpha * dy)
        return dx, torch.where(x > 0, 0.0, dy.float() * x.float()).sum((0, 2, 3))

    return torch.compile(forward if direction == "forward" else backward, dynamic=False)


def contenders_of(library: harness.Library, case: Case, direction: str, rivals: bool) -> dict:
    copies = [library.permute_arguments(a, [0], b, harness.DTYPE_CODES[a.dtype]) for a, b in case.copies[direction]]
    flat = case.copies[direction]
    contenders = {
        "memcpy": lambda i: flat[i][1].copy_(flat[i][0]),
        "copy": lambda i: library.permute(copies[i]),
    }
    tensors = list(zip(case.dys, case.xs, case.outs, case.dalphas))
    if direction == "forward":
        forward = [library.prelu_arguments(x, case.alpha, y, case.shape) for _, x, y, _ in tensors]
        contenders["flowk"] = lambda i: library.prelu(forward[i])
    else:
        backward = [
            library.prelu_backward_arguments(dy, x, case.alpha, dx, da, case.shape) for dy, x, dx, da in tensors
        ]
        workspace = workspace_of(library, backward[0])
        contenders["flowk"] = lambda i: library.prelu_backward(backward[i], workspace)
    if rivals:
        images = [[case.as_image(t) for t in (dy, x)] for dy, x, _, _ in tensors]
        alpha = case.alpha[None, :, None, None].contiguous()
        function = compiled(direction)
        if direction == "forward":
            contenders["torch"] = lambda i: torch.ops.aten._prelu_kernel(images[i][1], alpha)
            contenders["compile"] = lambda i: function(images[i][1], alpha)
        else:
            gradient = torch.ops.aten._prelu_kernel_backward
            contenders["torch"] = lambda i: gradient(images[i][0], images[i][1], alpha)[1].sum((0, 2, 3))
            contenders["compile"] = lambda i: function(*images[i], alpha)
    return contenders


def workspace_of(library: harness.Library, arguments: tuple) -> torch.Tensor:
    size = library.prelu_backward_workspace_bytes(arguments)
    return torch.full((max(size, 16),), 0xFF, dtype=torch.uint8, device="cuda")  # NaN, where it is read unwritten


def is_same_in_a_row(case: Case, work, direction: str) -> bool:
    """Are all outputs those of the first call, where calls follow one another and may start early?"""
    outputs = case.outs if direction == "forward" else [*case.outs, *case.dalphas]
    expected = [case.outs[0].clone(), case.dalphas[0].clone()]
    graph = harness.capture(work, case.sets)
    for tensor in outputs:
        poison(tensor)
    graph.replay()
    torch.cuda.synchronize()
    return all(harness.same_bits(tensor, expected[tensor.shape != expected[0].shape]) for tensor in outputs)


def run_case(library: harness.Library, case: Case, direction: str, rounds: int, rivals: bool) -> dict:
    row = {
        "name": case.name,
        "layout": case.layout,
        "shape": case.full_shape,
        "type": case.kind,
        "direction": direction,
    }
    poison(case.outs[0])
    poison(case.dalphas[0])
    contenders = contenders_of(library, case, direction, rivals)
    contenders["flowk"](0)
    if direction == "forward":
        arguments = library.prelu_arguments(case.xs[0], case.alpha, case.outs[0], case.shape)
        row["plan"] = library.explain_of("prelu", arguments)
        row["right"] = is_forward_right(case)
    else:
        arguments = library.prelu_backward_arguments(
            case.dys[0], case.xs[0], case.alpha, case.outs[0], case.dalphas[0], case.shape
        )
        row["plan"] = library.explain_of("prelu_backward", arguments)
        row["workspace_bytes"] = library.prelu_backward_workspace_bytes(arguments)
        row["right"], row["error"] = is_backward_right(case)
        first = case.dalphas[0].clone()
        contenders["flowk"](0)
        row["right"] &= harness.same_bits(first, case.dalphas[0])
    row["right"] &= is_same_in_a_row(case, contenders["flowk"], direction)
    if row["right"]:
        times = harness.time_in_turn(contenders, case.sets, rounds)
        copy = min(times["memcpy"], times["copy"])
        row |= {"copy_us": copy * 1e6, "own_copy": copy / times["copy"]}
        row |= {name: copy / time for name, time in times.items() if name not in ("memcpy", "copy")}
    return row


def line_of(row: dict) -> str:
    figures = "WRONG"
    if row["right"]:
        figures = f"{row['flowk']:.3f} own copy {row['own_copy']:.2f} {row['copy_us']:6.1f}us"
        figures += "".join(f" {name} {row[name]:.2f}" for name in ("torch", "compile") if name in row)
    error = f" error {row['error']:.1e}" if "error" in row else ""
    shape = "x".join(map(str, row["shape"]))
    kernel = row["plan"].split(":")[0] + (
        "" if row["direction"] == "forward" else f" + {row['plan'].count('partials,')}"
    )
    return f"{row['name']:10} {row['layout']} {row['type']:4} {shape:16} {row['direction']:8} {figures}{error} {kernel}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="+")
    parser.add_argument("--types", default="f16,f32")
    parser.add_argument("--directions", default="forward,backward")
    parser.add_argument("--json")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--rivals", action="store_true", help="time PyTorch and torch.compile too")
    options = parser.parse_args()
    library = harness.Library()
    print(harness.machine(), "|", library.c.flowk_build_info().decode())
    rows = []
    for name, kind in ((name, kind) for name in options.sets for kind in options.types.split(",")):
        of_set = []
        for description in cases_of(name):
            case = Case(description, kind)
            for direction in options.directions.split(","):
                of_set.append(run_case(library, case, direction, options.rounds, options.rivals))
                print(line_of(of_set[-1]), flush=True)
            del case
            torch.cuda.empty_cache()
        rows += [row | {"set": name} for row in of_set]
        for direction in options.directions.split(","):
            fractions = [row["flowk"] for row in of_set if row["right"] and row["direction"] == direction]
            count = sum(row["direction"] == direction for row in of_set)
            summary = f"geomean {harness.geomean(fractions):.3f}, worst {min(fractions, default=0):.3f}"
            print(f"== {name} {kind} {direction}: {len(fractions)}/{count} right, {summary}", flush=True)
    harness.write_json(options.json, rows)
    sys.exit(0 if all(row["right"] for row in rows) else 1)


if __name__ == "__main__":
    main()
