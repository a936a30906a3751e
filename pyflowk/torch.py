# SPDX-License-Identifier: Apache-2.0
"""Modules that replace PyTorch's, with the same arguments, parameters and state dicts, on flowk's kernels:

    import pyflowk.torch as fnn
    act = fnn.PReLU(64)
    y = fnn.functional.leaky_relu(x, 0.2)  # as torch.nn.functional.leaky_relu

Importing it also registers the operators `torch.ops.flowk.*`, which `pyflowk.relu(x)` and the other functions use if
torch must see them: in autograd, torch.func, torch.compile and torch.export.
"""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor

from ._native.operator_table import OF_MEMORY
from ._operators.softmax import masked_softmax
from ._operators.softmax_arguments import OF_MASK
from ._torch import functional as functional
from ._torch import operators as _operators

__all__ = [
    *("ELU", "GELU", "LeakyReLU", "LogSoftmax", "MaskedSoftmax", "PReLU", "ReLU", "SiLU", "Sigmoid", "Softmax"),
    "operators",
]

operators = tuple(_operators.NAMES)
"""The names of the operators `torch.ops.flowk.*`."""


class PReLU(torch.nn.PReLU):
    """torch.nn.PReLU: `weight` has one element, or one per channel, which is dimension 1 of the input.

    Examples
    --------
    >>> act = pyflowk.torch.PReLU(2)
    >>> y = act(torch.tensor([[-2.0, 4.0]]))
    >>> y.sum().backward()
    >>> y.tolist(), act.weight.grad.tolist()
    ([[-0.5, 4.0]], [-2.0, 0.0])
    """

    def forward(self, input: Tensor) -> Tensor:
        return functional.prelu(input, self.weight)


class GELU(torch.nn.GELU):
    """torch.nn.GELU; `approximate` is "none" or "tanh".

    Examples
    --------
    >>> pyflowk.torch.GELU()(torch.tensor([0.0, 10.0])).tolist()
    [0.0, 10.0]
    """

    def forward(self, input: Tensor) -> Tensor:
        return functional.gelu(input, self.approximate)


class ReLU(torch.nn.ReLU):
    """torch.nn.ReLU."""

    def forward(self, input: Tensor) -> Tensor:
        return functional.relu(input, self.inplace)


class LeakyReLU(torch.nn.LeakyReLU):
    """torch.nn.LeakyReLU."""

    def forward(self, input: Tensor) -> Tensor:
        return functional.leaky_relu(input, self.negative_slope, self.inplace)


class ELU(torch.nn.ELU):
    """torch.nn.ELU."""

    def forward(self, input: Tensor) -> Tensor:
        return functional.elu(input, self.alpha, self.inplace)


class SiLU(torch.nn.SiLU):
    """torch.nn.SiLU."""

    def forward(self, input: Tensor) -> Tensor:
        return functional.silu(input, self.inplace)


class Sigmoid(torch.nn.Sigmoid):
    """torch.nn.Sigmoid."""

    def forward(self, input: Tensor) -> Tensor:
        return functional.sigmoid(input)


class Softmax(torch.nn.Softmax):
    """torch.nn.Softmax. The last dimension is the fast one; another is moved there and back, as a view."""

    def forward(self, input: Tensor) -> Tensor:
        return functional.softmax(input, self.dim)


class LogSoftmax(torch.nn.LogSoftmax):
    """torch.nn.LogSoftmax, as `Softmax`."""

    def forward(self, input: Tensor) -> Tensor:
        return functional.log_softmax(input, self.dim)


_SELF = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
_OPTIONS = [
    one
    for one in inspect.signature(masked_softmax).parameters.values()
    if one.kind == one.KEYWORD_ONLY and one.name not in (*OF_MASK, *OF_MEMORY)
]


class MaskedSoftmax(torch.nn.Module):
    """pyflowk.masked_softmax as a module: it gets the options, and forward() the masks, lengths and biases.

    Examples
    --------
    >>> weights = pyflowk.torch.MaskedSoftmax(causal=True, scale=0.125)
    >>> weights(torch.zeros(2, 2, 2), lengths=torch.tensor([2, 1]))[:, 1].tolist()
    [[0.5, 0.5], [1.0, 0.0]]
    """

    def __init__(self, **options: Any) -> None:
        """The options of `pyflowk.masked_softmax`."""
        super().__init__()
        bound = inspect.signature(MaskedSoftmax).bind(**options)
        bound.apply_defaults()
        self.options = bound.arguments

    __init__.__signature__ = inspect.Signature([_SELF, *_OPTIONS])  # type: ignore[attr-defined]

    def forward(self, input: Tensor, mask: Tensor | None = None, **arrays: Tensor | None) -> Tensor:
        """The softmax of `input` over its last dimension; `arrays` are the lengths and biases of
        `pyflowk.masked_softmax`."""
        function: Any = torch.ops.flowk.masked_softmax if input.is_meta else masked_softmax
        return function(input, mask, **arrays, **self.options)  # type: ignore[no-any-return]

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={value!r}" for name, value in self.options.items())


def __dir__() -> list[str]:
    return sorted([*__all__, "functional"])
