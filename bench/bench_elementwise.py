# SPDX-License-Identifier: Apache-2.0
"""Elementwise operations against a copy: `python bench/bench_elementwise.py SET ...`.

The sets: anchors (ANCHORS' cases and sizes), types (every type, 256 MB), unary, binary, ternary (every operation),
casts (every pair of widths), misaligned, broadcast, transposed, small (4 MB, against torch.compile).

Prints one line a case: the fraction of copy of flowk and its rivals, and flowk's plan. The copy is the faster of
cudaMemcpyAsync and flowk's own contiguous copy of as many bytes as the case reads and writes.
"""

from __future__ import annotations

import argparse
import ctypes
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))
import harness

TYPES = {
    "bool": (torch.bool, 1), "i8": (torch.int8, 2), "i16": (torch.int16, 3), "i32": (torch.int32, 4),
    "i64": (torch.int64, 5), "u8": (torch.uint8, 6), "f16": (torch.float16, 10), "bf16": (torch.bfloat16, 11),
    "f32": (torch.float32, 12), "f64": (torch.float64, 13), "e4m3": (torch.float8_e4m3fn, 14),
    "e5m2": (torch.float8_e5m2, 15),
}  # fmt: skip
CODES = dict(TYPES.values())
FLOATS = {"f16", "bf16", "f32", "f64", "e4m3", "e5m2"}
MB = 1 << 20


class Library(harness.Library):
    """flowk_unary and its kin by ctypes."""

    def __init__(self) -> None:
        super().__init__()
        self.ops: dict[str, tuple[str, int]] = {}
        for arity in ("unary", "binary", "ternary"):
            name_of = getattr(self.c, f"flowk_{arity}_op_name")
            name_of.restype = ctypes.c_char_p
            value = 1
            while name := name_of(value):
                self.ops[name.decode()] = (arity, value)
                value += 1

    def arguments(self, op: str, inputs: list[torch.Tensor], out: torch.Tensor, parameters: tuple = ()) -> tuple:
        arity, value = self.ops[op]
        rank = out.dim()
        longs = ctypes.c_int64 * max(rank, 1)
        arguments: list = [arity, value]
        for tensor in [*(x.expand(out.shape) for x in inputs), out]:
            arguments += [ctypes.c_void_p(tensor.data_ptr()), longs(*tensor.stride()), CODES[tensor.dtype]]
        arguments += [rank, longs(*out.shape)]
        count = {"unary": 2, "binary": 0, "ternary": 1}[arity]
        return (*arguments, *(ctypes.c_double(p) for p in (*parameters, 0.0, 0.0)[:count]))

    def run(self, arguments: tuple) -> None:
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        self.check(getattr(self.c, f"flowk_{arguments[0]}")(*arguments[1:], stream))

    def plan(self, arguments: tuple) -> str:
        text = ctypes.create_string_buffer(4096)
        self.check(getattr(self.c, f"flowk_{arguments[0]}_explain")(*arguments[1:], text, ctypes.c_size_t(len(text))))
        return text.value.decode()


# What PyTorch computes for an operation, with its parameters.
SILU = torch.nn.functional.silu
FORMULAS: dict[str, Callable] = {
    "copy": lambda x: x, "abs": torch.abs, "neg": torch.neg, "square": torch.square, "sqrt": torch.sqrt,
    "rsqrt": torch.rsqrt, "reciprocal": torch.reciprocal, "exp": torch.exp, "log": torch.log, "sin": torch.sin,
    "cos": torch.cos, "tanh": torch.tanh, "sigmoid": torch.sigmoid, "relu": torch.relu,
    "leaky_relu": lambda x, a: torch.nn.functional.leaky_relu(x, a),
    "elu": lambda x, a: torch.nn.functional.elu(x, a), "gelu": torch.nn.functional.gelu,
    "gelu_tanh": lambda x: torch.nn.functional.gelu(x, approximate="tanh"), "silu": SILU,
    "softplus": lambda x: torch.nn.functional.softplus(x, threshold=1e9 if x.dtype == torch.float64 else 60),
    "floor": torch.floor, "ceil": torch.ceil, "round": torch.round, "clamp": lambda x, a, b: torch.clamp(x, a, b),
    "scale": lambda x, a, b: a * x + b, "is_nan": torch.isnan, "logical_not": torch.logical_not,
    "add": torch.add, "sub": torch.sub, "mul": torch.mul, "div": torch.div, "pow": torch.pow, "min": torch.minimum,
    "max": torch.maximum, "equal": torch.eq, "not_equal": torch.ne, "less": torch.lt, "less_equal": torch.le,
    "greater": torch.gt, "greater_equal": torch.ge, "bitwise_and": torch.bitwise_and,
    "bitwise_or": torch.bitwise_or, "bitwise_xor": torch.bitwise_xor,
    "relu_grad": lambda x, y: torch.where(y > 0, x, torch.zeros((), dtype=x.dtype, device=x.device)),
    "gelu_grad": lambda x, y: torch.ops.aten.gelu_backward(x, y),
    "gelu_tanh_grad": lambda x, y: torch.ops.aten.gelu_backward(x, y, approximate="tanh"),
    "silu_grad": lambda x, y: torch.ops.aten.silu_backward(x, y), "silu_mul": lambda x, y: SILU(x) * y,
    "fma": lambda x, y, z: torch.addcmul(z, x, y), "where": torch.where,
    "clamp_by": lambda x, y, z: torch.clamp(x, y, z), "lerp": torch.lerp,
    "add_multiply": lambda x, y, z, a: torch.addcmul(x, y, z, value=a),
}  # fmt: skip


def gelu_tanh_argument(x: torch.Tensor) -> torch.Tensor:
    """2 u, where gelu_tanh(x) = x (1 + tanh(u)) / 2 = x sigmoid(2 u)."""
    return 2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)


# What results are held to, in float64, where PyTorch's own formula cancels: its 1 + erf(x / sqrt(2)) has but one digit
# left at x = -8, and tanh likewise.
REFERENCES: dict[str, Callable] = {
    "gelu": lambda x: x * torch.special.erfc(x * -math.sqrt(0.5)) / 2,
    "gelu_tanh": lambda x: x * torch.sigmoid(gelu_tanh_argument(x)),
}
# The errors of float32 and float64 results that 16 units in the last place of the result do not bound, in units of the
# type's eps: an exponential multiplies the rounding error of its argument, and a sum is as exact as its summands.
LOSSES: dict[str, Callable] = {
    "gelu": lambda x: (8 + 2 * x * x) * REFERENCES["gelu"](x).abs(),
    "gelu_tanh": lambda x: (8 + 8 * gelu_tanh_argument(x).abs()) * REFERENCES["gelu_tanh"](x).abs(),
    "silu": lambda x: (8 + x.abs()) * SILU(x).abs(), "sigmoid": lambda x: (8 + x.abs()) * torch.sigmoid(x),
    "silu_mul": lambda x, y: (8 + x.abs()) * (SILU(x) * y).abs(),
    "gelu_grad": lambda x, y: x.abs() * (8 + 16 * (1 + y * y) * torch.exp(-y * y / 4)),
    "gelu_tanh_grad": lambda x, y: 64 * x.abs(),
    "silu_grad": lambda x, y: x.abs() * (8 + (8 + 4 * y.abs()) * (1 + y.abs()) * torch.sigmoid(-y.abs())),
    "lerp": lambda x, y, z: x.abs() + z.abs() * (x.abs() + y.abs()),
    "fma": lambda x, y, z: (x * y).abs() * 1e-8, "add_multiply": lambda x, y, z, a: 2 * (a * y * z).abs(),
}  # fmt: skip
PARAMETERS = {"leaky_relu": (0.1,), "elu": (1.5,), "clamp": (-0.5, 0.75), "scale": (2.0, 1.0), "add_multiply": (2.0,)}
BOOLEAN = {"equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "is_nan", "logical_not"}


@dataclass
class Case:
    """out = op(inputs): `shapes` holds each input's own shape, `layouts` how it lies in memory."""

    name: str
    op: str
    kinds: list[str]  # of the inputs, then of out
    shape: tuple[int, ...]
    shapes: list[tuple[int, ...]] = field(default_factory=list)
    layouts: list[str] = field(default_factory=list)  # "", "T": transposed, "+n": n elements past an aligned address

    def __post_init__(self) -> None:
        self.shapes = self.shapes or [self.shape] * (len(self.kinds) - 1)
        self.layouts = self.layouts or [""] * len(self.kinds)


def flat(op: str, kinds: str, megabytes: float, layouts: list[str] | None = None) -> Case:
    """`megabytes` are read and written together."""
    names = kinds.split(",")
    count = int(megabytes * MB) // sum(TYPES[name][0].itemsize for name in names)
    return Case(f"{op} {megabytes:g}MB", op, names, (count,), [], layouts or [])


def random_input(kind: str, shape: tuple[int, ...], layout: str) -> torch.Tensor:
    dtype = TYPES[kind][0]
    if layout == "T":
        return random_input(kind, (*shape[:-2], shape[-1], shape[-2]), "").mT
    shift = int(layout or 0)
    count = math.prod(shape)
    if kind in FLOATS:
        raw = torch.empty(count + shift, dtype=dtype, device="cuda")
        for chunk in raw.split(1 << 24):
            chunk.copy_(torch.randn(chunk.shape, device="cuda") * 2)
    else:
        raw = torch.empty((count + shift) * dtype.itemsize, dtype=torch.uint8, device="cuda")
        raw.random_(0, 2 if kind == "bool" else 256)
        raw = raw.view(dtype)
    return raw[shift:].view(shape)


def empty_output(kind: str, shape: tuple[int, ...], layout: str) -> torch.Tensor:
    shift = int(layout or 0)
    return torch.empty(math.prod(shape) + shift, dtype=TYPES[kind][0], device="cuda")[shift:].view(shape)


def expected_of(case: Case, inputs: list[torch.Tensor]) -> torch.Tensor:
    """In float64 for floats, rounded to out's type."""
    parameters = PARAMETERS.get(case.op, ())
    if any(kind in FLOATS for kind in case.kinds[:-1]):
        inputs = [x if x.dtype == torch.bool else x.double() for x in inputs]
    return REFERENCES.get(case.op, FORMULAS[case.op])(*inputs, *parameters)


def is_right(case: Case, inputs: list[torch.Tensor], out: torch.Tensor) -> bool:
    """Against float64, over the first and last rows of the case where it is large."""
    if out.dim() == 1 and out.numel() > 1 << 24:
        parts = [slice(0, 1 << 22), slice(out.numel() - (1 << 22), None)]
    elif out.numel() > 1 << 24:
        parts = [slice(0, 8), slice(out.shape[0] - 8, None)]
    else:
        parts = [slice(None)]
    for part in parts:
        got = out[part]
        cut = [x.expand(out.shape)[part] for x in inputs]
        expected = expected_of(case, cut)
        kind = case.kinds[-1]
        if kind not in FLOATS:
            if expected.dtype.is_floating_point and kind != "bool":
                expected = expected.trunc().clamp(torch.iinfo(got.dtype).min, torch.iinfo(got.dtype).max)
            if not torch.equal(got, expected.to(got.dtype)):
                return False
            continue
        wide, info = got.double(), torch.finfo(got.dtype)
        expected = expected.double()
        if kind in ("e4m3", "e5m2"):
            expected = expected.clamp(info.min, info.max)
        # 1 ulp of the type; the bounds of CUDA's functions for float32 and float64.
        slack = (16 if kind in ("f32", "f64") else 1) * info.eps
        close = (wide - expected).abs() <= slack * expected.abs() + max(info.smallest_normal * info.eps, 1e-38) * 4
        if case.op.endswith("_grad"):
            close |= (wide - expected).abs() <= slack * cut[0].double().abs() * 0.5
        if case.op in LOSSES and kind in ("f32", "f64"):
            loss = LOSSES[case.op](*(x.double() for x in cut), *PARAMETERS.get(case.op, ()))
            close |= (wide - expected).abs() <= info.eps * loss
        past = wide.isinf() & (expected.abs() > info.max) & (wide.sign() == expected.sign())
        same = close | past | (wide == expected) | (wide.isnan() & expected.isnan())
        if not bool(same.all()):
            return False
    return True


def moved_bytes(case: Case) -> int:
    shapes = [*case.shapes, case.shape]
    return sum(math.prod(shape) * TYPES[kind][0].itemsize for shape, kind in zip(shapes, case.kinds))


def run_case(library: Library, case: Case, rounds: int, rivals: list[str]) -> dict:
    moved = moved_bytes(case)
    sets = max(2, min(64, math.ceil(harness.TOUCHED_BYTES / moved)))
    first = [random_input(kind, shape, layout) for kind, shape, layout in zip(case.kinds, case.shapes, case.layouts)]

    def another(x: torch.Tensor, kind: str, layout: str) -> torch.Tensor:
        if layout in ("", "T"):
            return x.clone(memory_format=torch.preserve_format)
        return empty_output(kind, tuple(x.shape), layout).copy_(x)

    inputs = [first] + [[another(x, k, s) for x, k, s in zip(first, case.kinds, case.layouts)] for _ in range(sets - 1)]
    outs = [empty_output(case.kinds[-1], case.shape, case.layouts[-1]) for _ in range(sets)]
    outs[0].view(torch.uint8).fill_(0xA5) if outs[0].is_contiguous() else None
    parameters = PARAMETERS.get(case.op, ())
    arguments = [library.arguments(case.op, x, out, parameters) for x, out in zip(inputs, outs)]
    library.run(arguments[0])
    row = {"name": case.name, "types": case.kinds, "shape": case.shape, "layouts": case.layouts}
    row["right"] = is_right(case, inputs[0], outs[0])
    row["plan"] = library.plan(arguments[0])
    if not row["right"]:
        return row
    half = max(moved // 2, 1)
    sources = [torch.empty(half, dtype=torch.uint8, device="cuda") for _ in range(sets)]
    targets = [torch.empty(half, dtype=torch.uint8, device="cuda") for _ in range(sets)]
    copies = [library.permute_arguments(a, [0], b, 6) for a, b in zip(sources, targets)]
    formula = FORMULAS[case.op]

    def eager(i: int) -> None:
        if case.op == "copy":
            outs[i].copy_(inputs[i][0])
        else:
            formula(*inputs[i], *parameters)

    contenders = {
        "memcpy": lambda i: targets[i].copy_(sources[i]),
        "copy": lambda i: library.permute(copies[i]),
        "flowk": lambda i: library.run(arguments[i]),
    }
    if "torch" in rivals:
        contenders["torch"] = eager
    if "compile" in rivals:
        torch._dynamo.reset()
        dtype = outs[0].dtype
        compiled = torch.compile(lambda *x: formula(*x, *parameters).to(dtype), dynamic=False)
        contenders["compile"] = lambda i: compiled(*inputs[i])
    for rival in ("torch", "compile"):  # one that refuses the types does not take part
        if rival in contenders:
            try:
                contenders[rival](0)
            except (RuntimeError, torch._dynamo.exc.TorchDynamoException):
                del contenders[rival]
    times = harness.time_in_turn(contenders, sets, rounds)
    copy = min(times["memcpy"], times["copy"])
    row |= {"copy_us": copy * 1e6, "own_copy": copy / times["copy"], "gb_s": moved / times["flowk"] * 1e-9}
    return row | {name: copy / t for name, t in times.items() if name not in ("memcpy", "copy")}


def anchors() -> list[Case]:
    cases = []
    for scale in (1, 8, 64):
        cases += [
            flat("copy", "f32,f16", 4 * scale), flat("relu", "f32,f32", 4 * scale),
            flat("mul", "f16,f16,f16", 8 * scale), flat("gelu", "f16,f16", 8 * scale),
        ]  # fmt: skip
    return cases


def types() -> list[Case]:
    cases = []
    for kind in TYPES:
        if kind != "bool":
            cases += [flat("add", f"{kind},{kind},{kind}", 256), flat("relu", f"{kind},{kind}", 256)]
            cases.append(flat("less", f"{kind},{kind},bool", 256))
        cases.append(flat("where", f"bool,{kind},{kind},{kind}", 256))
    return cases


def operations(arity: str, library: Library) -> list[Case]:
    cases = []
    for op, (of, _) in library.ops.items():
        if of != arity or op == "copy":
            continue
        for kind in ("i32",) if op.startswith("bitwise") else ("f16", "bf16", "f32", "f64"):
            inputs = {"unary": 1, "binary": 2, "ternary": 3}[arity]
            kinds = [kind] * inputs + ["bool" if op in BOOLEAN else kind]
            if op == "where":
                kinds[0] = "bool"
            cases.append(flat(op, ",".join(kinds), 256))
    return cases


def casts() -> list[Case]:
    pairs = [
        "f32,f16", "f16,f32", "f32,bf16", "bf16,f32", "f16,bf16", "f64,f32", "f32,f64", "f64,f16", "f16,f64",
        "f32,e4m3", "e4m3,f32", "f16,e4m3", "e4m3,f16", "bf16,e5m2", "e5m2,bf16", "u8,f32", "f32,u8", "i8,f16",
        "f16,i8", "i32,f32", "f32,i32", "i64,i32", "i32,i64", "i64,f16", "u8,f64", "f64,u8", "bool,f32", "f32,bool",
        "u8,i16", "i16,u8",
    ]  # fmt: skip
    return [flat("copy", pair, 256) for pair in pairs]


def misaligned() -> list[Case]:
    cases = []
    for kind in ("u8", "f16", "f32", "f64"):
        for layouts in (["+1", ""], ["", "+1"], ["+1", "+1"], ["+1", "+3"]):
            cases.append(flat("relu", f"{kind},{kind}", 256, layouts))
        cases.append(flat("add", f"{kind},{kind},{kind}", 256, ["", "+1", ""]))
        cases.append(flat("add", f"{kind},{kind},{kind}", 256, ["+1", "+3", "+5"]))
    cases += [flat("copy", "f32,f16", 256, ["+1", ""]), flat("copy", "f16,f32", 256, ["+1", ""])]
    return cases


def broadcast() -> list[Case]:
    cases = []
    for kind in ("u8", "f16", "f32", "f64"):
        columns = 4096
        rows = (256 * MB) // 2 // TYPES[kind][0].itemsize // columns
        for cols in (columns, columns + 1, 64, 57, 7):
            shape = (rows * columns // cols, cols)
            kinds = [kind] * 3
            cases += [
                Case(f"row x{cols}", "add", kinds, shape, [shape, (1, cols)]),
                Case(f"column x{cols}", "mul", kinds, shape, [shape, (shape[0], 1)]),
            ]
        channels = (rows * columns // (64 * 56 * 56), 64, 56, 56)
        cases.append(Case("nchw scale", "mul", kinds, channels, [channels, (1, 64, 1, 1)]))
        cases.append(flat_scalar(kind))
        square = (rows, columns)
        cases.append(Case("outer", "add", kinds, square, [(rows, 1), (1, columns)]))
    return cases


def flat_scalar(kind: str) -> Case:
    count = 128 * MB // TYPES[kind][0].itemsize
    return Case("scalar", "add", [kind] * 3, (count,), [(count,), (1,)])


def transposed() -> list[Case]:
    cases = []
    for kind in ("u8", "f16", "f32", "f64"):
        side = int(math.sqrt(256 * MB / 3 / TYPES[kind][0].itemsize)) // 256 * 256
        for shape in ((side, side), (side - 1, side + 1), (64, side // 8, side // 8)):
            cases.append(Case("x + yT", "add", [kind] * 3, shape, [], ["", "T", ""]))
            cases.append(Case("relu(xT)", "relu", [kind] * 2, shape, [], ["T", ""]))
        cases.append(Case("xT + yT", "add", [kind] * 3, (side, side), [], ["T", "T", ""]))
    cases.append(Case("cast(xT)", "copy", ["f32", "f16"], (4096, 8192), [], ["T", ""]))
    return cases


def small() -> list[Case]:
    return [
        flat(op, kinds, 4)
        for op, kinds in (
            ("copy", "f32,f16"), ("copy", "f16,f32"), ("relu", "f32,f32"), ("relu", "f16,f16"), ("add", "f32,f32,f32"),
            ("mul", "f16,f16,f16"), ("gelu", "f16,f16"), ("gelu", "f32,f32"), ("silu_mul", "bf16,bf16,bf16"),
            ("where", "bool,f32,f32,f32"),
        )
    ]  # fmt: skip


def cases_of(name: str, library: Library) -> list[Case]:
    if name in ("unary", "binary", "ternary"):
        return operations(name, library)
    sets = {
        "anchors": anchors, "types": types, "casts": casts, "misaligned": misaligned, "broadcast": broadcast,
        "transposed": transposed, "small": small,
    }  # fmt: skip
    return sets[name]()


def line_of(row: dict) -> str:
    figures = "WRONG"
    if row["right"]:
        figures = f"{row['flowk']:.3f} own copy {row['own_copy']:.2f} {row['copy_us']:7.1f}us"
        figures += "".join(f" {name} {row[name]:.2f}" for name in ("torch", "compile") if name in row)
    shape = "x".join(map(str, row["shape"]))
    layouts = ",".join(row["layouts"]) if any(row["layouts"]) else ""
    kernel = row["plan"].split(":")[0]
    return f"{row['name']:18} {','.join(row['types']):18} {layouts:9} {shape:18} {figures} {kernel}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="+")
    parser.add_argument("--json")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--rivals", default="", help="torch, compile, or both with a comma")
    parser.add_argument("--quiet", action="store_true", help="only the summaries")
    options = parser.parse_args()
    library = Library()
    print(harness.machine(), "|", library.c.flowk_build_info().decode())
    rows = []
    for name in options.sets:
        of_set = []
        for case in cases_of(name, library):
            row = run_case(library, case, options.rounds, options.rivals.split(","))
            of_set.append(row)
            if not options.quiet or not row["right"]:
                print(line_of(row), flush=True)
        rows += [row | {"set": name} for row in of_set]
        fractions = [row["flowk"] for row in of_set if row["right"]]
        summary = f"geomean {harness.geomean(fractions):.3f}, worst {min(fractions, default=0):.3f}"
        print(f"== {name}: {len(fractions)}/{len(of_set)} right, {summary}", flush=True)
    harness.write_json(options.json, rows)
    sys.exit(0 if all(row["right"] for row in rows) else 1)


if __name__ == "__main__":
    main()
