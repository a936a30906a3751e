# SPDX-License-Identifier: Apache-2.0
"""PyTorch's own test inputs (OpInfo) for the operations that both have: values, types, strides, gradients.

What pyflowk refuses of them is listed by operation: the text of the error. Complex types are refused by all but
permute. FLOWK_TEST_LARGE=1 takes all types, and reference inputs too.
"""

from __future__ import annotations

import itertools
import os
import re
import sys
import unittest
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

torch = pytest.importorskip("torch")

# torch's test modules import it for a base class; its OpInfos use nothing of it.
sys.modules.setdefault("expecttest", SimpleNamespace(TestCase=unittest.TestCase))  # type: ignore[arg-type]

from torch.testing._internal.common_methods_invocations import op_db  # noqa: E402
from torch_calls import DEVICES  # noqa: E402

import pyflowk  # noqa: E402

OPINFOS = {(info.name, info.variant_test_name): info for info in op_db}
ALL = os.environ.get("FLOWK_TEST_LARGE") == "1"
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64) if ALL else (torch.bfloat16, torch.float32)
INTEGERS = (torch.bool, torch.uint8, *((torch.int8, torch.int16, torch.int32) if ALL else ()), torch.int64)


class NotHeld(Exception):
    """pyflowk has no such operation: a parameter of torch's that it lacks."""


class Case(NamedTuple):
    """An operation of torch and what pyflowk has for it; `refused` are regular expressions of errors;
    `other_order` says for which first operands the result's order in memory is not torch's."""

    function: Callable[..., Any]
    refused: tuple[str, ...] = ()
    other_order: Callable[[Any], bool] = lambda x: False


def without(*names: str) -> Callable[[dict[str, Any]], None]:
    def check(options: dict[str, Any]) -> None:
        for name in names:
            if options.pop(name, None) is not None:
                raise NotHeld(name)

    return check


def plain(function: Callable[..., Any], *lacking: str) -> Callable[..., Any]:
    def call(x: Any, *arguments: Any, **options: Any) -> Any:
        without(*lacking)(options)
        return function(x, *arguments, **options)

    return call


def along(function: Callable[..., Any]) -> Callable[..., Any]:
    """A softmax along any dimension; torch's result is contiguous."""

    def call(x: Any, dim: int, dtype: Any = None) -> Any:
        if x.dim() == 0:
            raise NotHeld("no dimensions")
        if dtype is not None:
            x = x.to(dtype)
        return function(x, dim=dim).contiguous()

    return call


def softplus(x: Any, beta: float = 1, threshold: float = 20) -> Any:
    if beta != 1 or threshold != 20:
        raise NotHeld("beta")
    return pyflowk.softplus(x)


def trunc_divide(x: Any, y: Any, rounding_mode: str) -> Any:
    if not isinstance(x, torch.Tensor) or x.is_floating_point():  # trunc_divide takes integers
        raise NotHeld("rounding_mode")
    return pyflowk.trunc_divide(x, y)


def clamp(x: Any, min: Any = None, max: Any = None) -> Any:
    return pyflowk.clamp(x, min, max)


_NO_BOOL = "has dtype bool, must be integers or floats"
CASES: dict[tuple[str, str], Case] = {
    ("abs", ""): Case(pyflowk.abs),
    ("neg", ""): Case(pyflowk.negative),
    ("square", ""): Case(pyflowk.square, (_NO_BOOL,)),
    ("sign", ""): Case(pyflowk.sign, (_NO_BOOL,)),
    **{
        (name, ""): Case(getattr(pyflowk, name))
        for name in ("sqrt", "rsqrt", "reciprocal", "exp", "log", "sin", "cos", "tanh", "sigmoid")
    },
    ("nn.functional.relu", ""): Case(plain(pyflowk.relu, "inplace")),
    ("nn.functional.leaky_relu", ""): Case(
        lambda x, negative_slope=0.01, inplace=False: pyflowk.leaky_relu(x, negative_slope)
    ),
    ("nn.functional.elu", ""): Case(lambda x, alpha=1.0, inplace=False: pyflowk.elu(x, alpha)),
    ("nn.functional.gelu", ""): Case(lambda x, approximate="none": pyflowk.gelu(x, approximate)),
    ("nn.functional.silu", ""): Case(plain(pyflowk.silu, "inplace")),
    ("nn.functional.softplus", ""): Case(softplus),
    ("round", ""): Case(pyflowk.round),
    # Those that both call alike.
    **{
        (name, ""): Case(getattr(pyflowk, name))
        for name in (
            *("floor", "ceil", "trunc", "isnan", "isinf", "isfinite", "signbit", "exp2", "expm1", "log1p"),
            *("log2", "log10", "erf", "tan", "asin", "acos", "atan", "sinh", "cosh", "asinh", "acosh", "atanh"),
            *("bitwise_not", "logical_not", "logical_and", "logical_or", "logical_xor", "floor_divide", "remainder"),
            *("atan2", "hypot", "copysign", "logaddexp", "bitwise_left_shift", "bitwise_right_shift"),
        )
    },
    ("add", ""): Case(plain(pyflowk.add, "alpha")),
    ("sub", ""): Case(plain(pyflowk.subtract, "alpha")),
    ("mul", ""): Case(pyflowk.multiply),
    ("div", "no_rounding_mode"): Case(plain(pyflowk.divide, "rounding_mode")),
    ("div", "trunc_rounding"): Case(trunc_divide),
    ("div", "floor_rounding"): Case(lambda x, y, rounding_mode: pyflowk.floor_divide(x, y)),
    ("pow", ""): Case(pyflowk.pow),
    ("minimum", ""): Case(pyflowk.minimum),
    ("maximum", ""): Case(pyflowk.maximum),
    ("eq", ""): Case(pyflowk.equal),
    ("ne", ""): Case(pyflowk.not_equal),
    ("lt", ""): Case(pyflowk.less),
    ("le", ""): Case(pyflowk.less_equal),
    ("gt", ""): Case(pyflowk.greater),
    ("ge", ""): Case(pyflowk.greater_equal),
    ("bitwise_and", ""): Case(pyflowk.bitwise_and),
    ("bitwise_or", ""): Case(pyflowk.bitwise_or),
    ("bitwise_xor", ""): Case(pyflowk.bitwise_xor),
    ("clamp", ""): Case(clamp),
    ("where", ""): Case(lambda x, condition, y: pyflowk.where(condition, x, y)),
    ("lerp", ""): Case(pyflowk.lerp),
    ("addcmul", ""): Case(lambda x, y, z, value=1: pyflowk.add_multiply(x, y, z, value)),
    # The result is in C order unless x fills its memory without gaps.
    ("nn.functional.prelu", ""): Case(
        lambda x, weight: pyflowk.prelu(x, weight), other_order=lambda x: torch.empty_like(x).stride() != x.stride()
    ),
    ("softmax", ""): Case(along(pyflowk.softmax)),
    ("log_softmax", ""): Case(along(pyflowk.log_softmax)),
    ("permute", ""): Case(lambda x, *axes: pyflowk.permute(x, axes[0] if isinstance(axes[0], (tuple, list)) else axes)),
}


def each(*dtypes: Any) -> list[Any]:
    return [
        pytest.param(key, device, dtype, id="-".join([*filter(None, key), device, str(dtype)[6:]]))
        for device in DEVICES
        for key in CASES
        for dtype in dtypes
        if key in OPINFOS and dtype in OPINFOS[key].supported_dtypes(device)
    ]


_seen: dict[tuple[str, str], set[str]] = {}


def samples(key: tuple[str, str], device: str, dtype: Any, *, requires_grad: bool = False) -> Iterator[Any]:
    info = OPINFOS[key]
    yield from info.sample_inputs(device, dtype, requires_grad=requires_grad)
    if ALL and not requires_grad:  # of where and clamp, torch's reference inputs with gradients fail in torch itself
        yield from info.reference_inputs(device, dtype, requires_grad=requires_grad)


# torch's silu(-infinity) is NaN, flowk's -0; torch's gradient of relu at NaN is g, flowk's 0; torch's sign(NaN) is 0.
FINITE = ("nn.functional.silu", "nn.functional.relu", "sign")
# On the CPU torch rounds the quotient to 16 bits before it takes the floor, and before 2.13 the remainder of bfloat16
# is NaN if the quotient overflows.
BY_ROUNDED_QUOTIENTS = ("remainder", "floor_divide")
# For all operations: two numbers, complex operands, prelu's alpha that is not contiguous.
REFUSED = ("are numbers, one at least must be an array", "complex", "alpha has strides")


def tensors_of(sample: Any) -> list[Any]:
    return [one for one in (sample.input, *sample.args, *sample.kwargs.values()) if isinstance(one, torch.Tensor)]


def overlaps(x: Any) -> bool:
    """Has x dimensions of one stride? torch orders these by extent, pyflowk as they stand."""
    strides = [stride for stride, extent in zip(x.stride(), x.shape) if extent > 1 and stride]
    return len(strides) > len(set(strides))


def has_ring(tensors: list[Any]) -> bool:
    """Do the operands want dimension i outside of j, j of k, and k of i? torch starts to sort with the last dimension,
    pyflowk, as NumPy, with the first."""
    try:
        shape = torch.broadcast_shapes(*(one.shape for one in tensors))
    except RuntimeError:  # prelu's alpha has a dimension of x, which need not be the last
        return False
    strides = [one.expand(shape).stride() for one in tensors]

    def is_outside(i: int, j: int) -> bool:
        for each in strides:
            if each[i] and each[j] and each[i] != each[j]:
                return each[i] > each[j]
        return i < j

    moving = [d for d, extent in enumerate(shape) if extent > 1]
    return any(
        is_outside(i, j) and is_outside(j, k) and is_outside(k, i) for i, j, k in itertools.permutations(moving, 3)
    )


def torch_s_result(key: tuple[str, str], sample: Any) -> Any:
    if key[0] == "log_softmax" and sample.input.dtype.itemsize == 2 and "dtype" not in sample.kwargs:
        # On the CPU torch rounds its differences to 16 bits.
        return OPINFOS[key].op(sample.input.float(), *sample.args, **sample.kwargs).to(sample.input.dtype)
    one = tensors_of(sample)[0]
    is_rounded = one.dtype in (torch.float16, torch.bfloat16) and not one.is_cuda
    if is_rounded and (key[0] in BY_ROUNDED_QUOTIENTS or "floor" in key[1]):
        wide = [one.double() if isinstance(one, torch.Tensor) else one for one in (sample.input, *sample.args)]
        return OPINFOS[key].op(*wide, **sample.kwargs).to(one.dtype)
    result = OPINFOS[key].op(sample.input, *sample.args, **sample.kwargs)
    return result.contiguous() if key[0] == "permute" else result  # torch's is a view


def own_result(key: tuple[str, str], sample: Any) -> Any:
    """pyflowk's result; None if it is refused for a listed reason."""
    case = CASES[key]
    if key[0] in FINITE and not sample.input.isfinite().all():
        return None
    try:
        return case.function(sample.input, *sample.args, **sample.kwargs)
    except NotHeld:
        return None
    except (TypeError, ValueError, OverflowError) as error:
        found = [text for text in case.refused if re.search(text, str(error))]
        if not found and not any(text in str(error) for text in REFUSED):
            raise
        _seen.setdefault(key, set()).update(found)
        return None


def assert_same(key: tuple[str, str], own: Any, expected: Any, sample: Any) -> None:
    torch.testing.assert_close(own, expected, equal_nan=True)
    tensors = tensors_of(sample)
    if CASES[key].other_order(sample.input) or any(map(overlaps, tensors)) or has_ring(tensors):
        return
    strides = zip(own.stride(), expected.stride(), own.shape)
    assert not own.numel() or all(one == other or extent == 1 for one, other, extent in strides), own.stride()


@pytest.mark.parametrize(("key", "device", "dtype"), each(*INTEGERS, *FLOATS))
def test_values_types_and_strides(key: tuple[str, str], device: str, dtype: Any) -> None:
    for sample in samples(key, device, dtype):
        own = own_result(key, sample)
        if own is not None:
            assert_same(key, own, torch_s_result(key, sample), sample)


@pytest.mark.parametrize(
    ("key", "device", "dtype"), [one for one in each(torch.float64) if OPINFOS[one.values[0]].supports_autograd]
)
def test_gradients(key: tuple[str, str], device: str, dtype: Any) -> None:
    for sample in samples(key, device, dtype, requires_grad=True):
        own = own_result(key, sample)
        if own is None:
            continue
        expected = torch_s_result(key, sample)
        assert_same(key, own.detach(), expected.detach(), sample)
        tensors = [one for one in tensors_of(sample) if one.requires_grad]
        if not expected.requires_grad:
            assert not own.requires_grad
            continue
        g = torch.randn_like(expected)
        torch.testing.assert_close(
            torch.autograd.grad(own, tensors, g, allow_unused=True),
            torch.autograd.grad(expected, tensors, g, allow_unused=True),
            equal_nan=True,
        )


def test_every_listed_refusal_occurs() -> None:
    for key, case in CASES.items():
        if case.refused:
            for dtype in INTEGERS:
                for sample in samples(key, "cpu", dtype) if dtype in OPINFOS[key].supported_dtypes("cpu") else ():
                    own_result(key, sample)
            assert _seen.get(key) == set(case.refused), key
