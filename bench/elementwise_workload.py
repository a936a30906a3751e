# SPDX-License-Identifier: Apache-2.0
"""What the elementwise benches time: cases in sets, their tensors, what PyTorch computes for them, the check."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import torch

TYPES = {
    "bool": (torch.bool, 1), "i8": (torch.int8, 2), "i16": (torch.int16, 3), "i32": (torch.int32, 4),
    "i64": (torch.int64, 5), "u8": (torch.uint8, 6), "f16": (torch.float16, 10), "bf16": (torch.bfloat16, 11),
    "f32": (torch.float32, 12), "f64": (torch.float64, 13), "e4m3": (torch.float8_e4m3fn, 14),
    "e5m2": (torch.float8_e5m2, 15),
}  # fmt: skip
CODES = dict(TYPES.values())
FLOATS = {"f16", "bf16", "f32", "f64", "e4m3", "e5m2"}
MB = 1 << 20

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


# What results are held to, in float64, where PyTorch's own formula cancels: its 1 + erf(x / sqrt(2)) has one digit
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
    formula: str = ""  # the same for pyflowk.ElementwiseKernel: z of x and y

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


def operations(arity: str, names: Iterable[str]) -> list[Case]:
    cases = []
    for op in names:
        if op == "copy":
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
        flat(op, kinds, megabytes)
        for megabytes in (4, 8, 16, 32)
        for op, kinds in (
            ("copy", "f32,f16"), ("copy", "f16,f32"), ("relu", "f32,f32"), ("relu", "f16,f16"), ("add", "f32,f32,f32"),
            ("mul", "f16,f16,f16"), ("gelu", "f16,f16"), ("gelu", "f32,f32"), ("silu_mul", "bf16,bf16,bf16"),
            ("where", "bool,f32,f32,f32"),
        )
    ]  # fmt: skip


def jit() -> list[Case]:
    """Built-in operations beside the same formula compiled at run time."""
    cases = []
    for kind in ("u8", "f16", "f32", "f64"):
        square = (4096 * 16 // TYPES[kind][0].itemsize, 4096)
        one = flat("relu", f"{kind},{kind}", 256)
        two = flat("add", f"{kind},{kind},{kind}", 256)
        row = Case("add a row", "add", [kind] * 3, square, [square, (1, square[1])])
        turned = Case("x + yT", "add", [kind] * 3, (4096, 4096), [], ["", "T", ""])
        for case in (one, two, row, turned):
            case.formula = "z = x > (T)0 ? x : (T)0" if case is one else "z = x + y"
            cases.append(case)
    for kind in ("f16", "f32"):
        case = flat("exp", f"{kind},{kind}", 256)
        case.formula = "z = expf(x)"
        cases.append(case)
    return cases


def cases_of(name: str, operations_of: Callable[[str], Iterable[str]]) -> list[Case]:
    """The set's cases; `operations_of` names the operations of an arity."""
    if name in ("unary", "binary", "ternary"):
        return operations(name, operations_of(name))
    sets = {
        "anchors": anchors, "types": types, "casts": casts, "misaligned": misaligned, "broadcast": broadcast,
        "transposed": transposed, "small": small, "jit": jit,
    }  # fmt: skip
    return sets[name]()
