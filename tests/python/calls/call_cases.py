# SPDX-License-Identifier: Apache-2.0
"""Calls of every function that launches, on torch's tensors. Both paths are compared on them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from library_under_test import TEST_LIBRARY

import pyflowk
from pyflowk._explain import _OPERATORS

DEVICE = "cuda" if TEST_LIBRARY == "cuda" else "cpu"
OPERANDS = {"fma": 3, "where": 3, "lerp": 3}
OF_INTEGERS = (
    *("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_invert", "bitwise_left_shift", "bitwise_right_shift"),
    "trunc_divide",
)


class CallCase(NamedTuple):
    """`function(*arguments, **options)`; `is_cacheable` says that the fast path takes it, with out as well."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    options: dict[str, Any] = {}  # noqa: RUF012
    is_cacheable: bool = True

    def __repr__(self) -> str:
        shapes = [tuple(one.shape) if isinstance(one, torch.Tensor) else one for one in self.arguments]
        return f"{self.function.__name__}-{shapes}-{sorted(self.options)}"


def tensor(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """Reproducible values in 0.5 ... 8, or of two truths."""
    generator = torch.Generator().manual_seed(sum(shape))
    values = torch.rand(shape, generator=generator) * 7.5 + 0.5
    return (values > 4 if dtype == torch.bool else values.to(dtype)).to(DEVICE)


def elementwise_cases() -> list[CallCase]:
    """One plain call of every function that has operands alone, and calls that mix layouts, types and numbers."""
    from pyflowk._elementwise import functions

    cases = []
    for name in sorted(name for name in dir(functions) if name in _OPERATORS):
        function = getattr(functions, name)
        dtype = torch.int32 if name in OF_INTEGERS else torch.float32
        names = function.__code__.co_varnames[: function.__code__.co_argcount]
        if not all(function.__annotations__[name].startswith("ArrayT") for name in names):
            continue  # with parameters: below
        operands = [tensor(3, 4, dtype=dtype) for name in names]
        if name == "where":
            operands[0] = tensor(3, 4, dtype=torch.bool)
        cases.append(CallCase(function, tuple(operands)))
    x, half = tensor(3, 4), tensor(3, 4, dtype=torch.float16)
    integers = tensor(3, 4, dtype=torch.int32)
    cases += [
        CallCase(pyflowk.relu, (torch.nn.Parameter(x, requires_grad=False),)),
        CallCase(pyflowk.relu, (tensor(2, 3, 4, 5).to(memory_format=torch.channels_last),)),
        CallCase(pyflowk.relu, (tensor(4, 6)[:, ::2],)),
        CallCase(pyflowk.relu, (tensor(0, 4),)),
        CallCase(pyflowk.relu, (tensor(),)),
        CallCase(pyflowk.add, (x, tensor(4))),
        CallCase(pyflowk.add, (tensor(3, 1), tensor(1, 4))),
        CallCase(pyflowk.add, (x, tensor(4, 3).T)),
        CallCase(pyflowk.add, (x, x)),
        CallCase(pyflowk.add, (x, half)),
        CallCase(pyflowk.add, (x, integers)),
        CallCase(pyflowk.add, (integers, 1.5)),
        CallCase(pyflowk.multiply, (x, 1.5)),
        CallCase(pyflowk.multiply, (1.5, x)),
        CallCase(pyflowk.multiply, (x, 3)),
        CallCase(pyflowk.multiply, (x, True)),
        CallCase(pyflowk.multiply, (half, 1 / 3)),
        CallCase(pyflowk.multiply, (x.double(), 1 / 3)),
        CallCase(pyflowk.less, (half, 1 / 3), is_cacheable=False),
        CallCase(pyflowk.fma, (x, 0.1, 0.7)),
        CallCase(pyflowk.fma, (0.1, x, 0.1)),
        CallCase(pyflowk.where, (tensor(3, 4, dtype=torch.bool), x, 0.25)),
        CallCase(pyflowk.positive, (x,)),
        CallCase(pyflowk.cast, (x, torch.float16)),
        CallCase(pyflowk.cast, (x, "int8")),
        CallCase(pyflowk.cast, (x, pyflowk.DType.BFLOAT16)),
        CallCase(pyflowk.leaky_relu, (x,)),
        CallCase(pyflowk.leaky_relu, (x, 2)),
        CallCase(pyflowk.elu, (x, 0.5)),
        CallCase(pyflowk.gelu, (x, "tanh")),
        CallCase(pyflowk.gelu_backward, (x, x)),
        CallCase(pyflowk.leaky_relu_backward, (x, x, 0.5)),
        CallCase(pyflowk.elu_backward, (x, x)),
        CallCase(pyflowk.clamp, (x, 1.0, 2.0)),
        CallCase(pyflowk.clamp, (x, 1.0, 1.0)),
        CallCase(pyflowk.clip, (x, 1.0, 2.0)),
        CallCase(pyflowk.clamp, (x, None, 2)),
        CallCase(pyflowk.clamp, (x, tensor(4), 6.0)),
        CallCase(pyflowk.clamp, (integers, 1, 2)),
        CallCase(pyflowk.scale, (x, 2.0, 0.5)),
        CallCase(pyflowk.scale, (x, 0.5, 0.5)),
        CallCase(pyflowk.trunc_divide, (integers, integers)),
        CallCase(pyflowk.add_multiply, (x, x, x, 0.5)),
    ]
    return cases


def other_cases() -> list[CallCase]:
    """Permute, PReLU and softmax."""
    x, alpha, scores = tensor(2, 3, 4), tensor(3), tensor(2, 3, 5, 7)
    lengths = torch.tensor([3, 7], device=DEVICE)
    mask, y = tensor(5, 7, dtype=torch.bool), pyflowk.softmax(scores)
    forward, backward = pyflowk.masked_softmax, pyflowk.masked_softmax_backward
    return [
        CallCase(pyflowk.permute, (x, (2, 0, 1))),
        CallCase(pyflowk.permute, (x, [-1, 0, 1])),
        CallCase(pyflowk.permute, (x, range(3)), is_cacheable=False),
        CallCase(pyflowk.permute, (x.to(torch.complex64), (2, 0, 1))),
        CallCase(pyflowk.permute, (x, (2, 0, 1)), {"dtype": "float16", "scale": 0.5}),
        CallCase(pyflowk.permute, (x, (2, 0, 1)), {"dtype": torch.int32}),
        CallCase(pyflowk.permute, (x, (2, 0, 1)), {"scale": 2}),
        CallCase(pyflowk.transpose, (x, (2, 0, 1))),
        CallCase(pyflowk.swapaxes, (x, 0, 2)),
        CallCase(pyflowk.moveaxis, (x, 0, 2)),
        CallCase(pyflowk.batch_transpose, (x,)),
        CallCase(pyflowk.batch_transpose, (x[:, 1:, ::2],)),
        CallCase(pyflowk.prelu, (x, alpha)),
        CallCase(pyflowk.prelu, (x, alpha[:1])),
        CallCase(pyflowk.prelu, (x, tensor(4), -1)),
        CallCase(pyflowk.prelu, (tensor(2, 3, 4, 5).to(memory_format=torch.channels_last), alpha)),
        CallCase(pyflowk.prelu, (x[:, :, ::2], alpha)),
        CallCase(pyflowk.cross_entropy_partials, (scores, lengths.new_ones(2, 3, 5), 0, 9), {"softcap": 3.0}),
        CallCase(pyflowk.cross_entropy_partials, (scores.mT, lengths.new_ones(2, 3, 7), 1, 9)),
        CallCase(
            pyflowk.cross_entropy_backward, (scores.half(), lengths.new_ones(2, 3, 5), tensor(2, 3, 5), tensor(2, 3, 5))
        ),
        CallCase(pyflowk.softmax, (scores,)),
        CallCase(pyflowk.softmax, (scores,), {"dtype": torch.bfloat16}),
        CallCase(pyflowk.softmax, (scores.mT,)),
        CallCase(pyflowk.log_softmax, (scores.half(),)),
        CallCase(forward, (scores,), {"scale": 0.125, "causal": True}),
        CallCase(backward, (scores, y), {"dlse": tensor(2, 3, 5)}),
        # Of whole vectors: the gradient has the same bits at every address.
        CallCase(forward, (tensor(2, 3, 5, 8),), {"sinks": tensor(3, 1), "row_scale": tensor(5), "softcap": 3.0}),
        CallCase(backward, (scores, y), {"scores": scores, "softcap": 3.0, "row_scale": tensor(5)}),
        CallCase(forward, (scores, mask)),
        CallCase(forward, (scores, mask), {"log": True, "scale": 3}),
        CallCase(forward, (scores,), {"lengths": lengths, "lengths_from_right": True, "window": 3}),
        CallCase(forward, (scores, mask), {"lengths": lengths.int(), "bias": tensor(3, 1, 7), "causal_offset": 1}),
        CallCase(backward, (scores, y), {"scale": 0.125}),
        CallCase(backward, (scores, y), {"lengths": lengths, "log": True}),
    ]


CASES = elementwise_cases() + other_cases()
