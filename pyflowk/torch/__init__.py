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

from .._native.operator_table import OF_MEMORY
from .._operators.cross_entropy import cross_entropy, cross_entropy_backward
from .._operators.softmax import masked_softmax
from .._operators.softmax_arguments import OF_MASK
from .._torch import gate as _gate
from .._torch import operators as _operators
from . import functional as functional

__all__ = [
    *("CrossEntropyLoss", "ELU", "GELU", "LeakyReLU", "LogSoftmax", "MaskedSoftmax", "PReLU", "ReLU", "SiLU"),
    *("Sigmoid", "Softmax", "operators"),
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
    if one.kind == one.KEYWORD_ONLY and one.name not in (*OF_MASK, *OF_MEMORY, "return_lse")
]


class MaskedSoftmax(torch.nn.Module):
    """pyflowk.masked_softmax as a module: it gets the options, and forward() the arrays.

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
        """The softmax of `input` over its last dimension; `arrays` are the lengths, biases, sinks
        and scales per row of `pyflowk.masked_softmax`."""
        function: Any = torch.ops.flowk.masked_softmax if input.is_meta else masked_softmax
        return function(input, mask, **arrays, **self.options)  # type: ignore[no-any-return]

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={value!r}" for name, value in self.options.items())


class CrossEntropyLoss(torch.nn.CrossEntropyLoss):
    """torch.nn.CrossEntropyLoss of targets that are class indices, without class weights. The loss is float32, or
    float64 for a float64 input.

    The classes are dimension 1 of the input, or the only one; the fast input is (N, classes): another one is moved to
    the end and copied. The gradient costs one read of the input and one write.
    """

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        ignore_index: int = -100,
        reduce: bool | None = None,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
        *,
        scale: float = 1.0,
        softcap: float = 0.0,
        z_loss: float = 0.0,
        in_place: bool = False,
    ) -> None:
        """PyTorch's arguments, and `scale`, `softcap` and `z_loss` of `pyflowk.cross_entropy`. With `in_place` the
        gradient is written over the input, which needs no second tensor of its size: the input must not be used again,
        and the gradient can be computed once. In torch.compile and torch.func it makes no difference."""
        if weight is not None:
            raise TypeError("weight is given: flowk has no class weights, pass torch.nn.CrossEntropyLoss's loss")
        super().__init__(None, size_average, ignore_index, reduce, reduction, label_smoothing)
        self.in_place = in_place
        self.options = {"scale": scale, "softcap": softcap, "z_loss": z_loss}

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        options: dict[str, Any] = {**self.options, "label_smoothing": self.label_smoothing}
        options["ignore_index"] = self.ignore_index
        if target.is_floating_point():
            raise TypeError(f"target is {target.dtype}: class probabilities are not taken, must be int32 or int64")
        logits = input.movedim(1, -1) if input.dim() > 2 else input
        if self.in_place and not (_gate.is_compiling() or _gate.is_watched()):
            loss: Tensor = _CrossEntropyInPlace.apply(logits, target, options)  # type: ignore[no-untyped-call]
        else:
            function = torch.ops.flowk.cross_entropy if input.is_meta else cross_entropy
            loss = function(logits, target, **options)[0]
        if self.reduction == "none":
            return loss
        total = loss.sum()
        return total / (target != self.ignore_index).sum() if self.reduction == "mean" else total


class _CrossEntropyInPlace(torch.autograd.Function):
    """cross_entropy; its gradient is written over the logits."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor, options: dict[str, Any]) -> Tensor:
        loss, lse = cross_entropy(logits.detach(), targets, **options)
        ctx.save_for_backward(logits, targets, lse)
        ctx.options = options
        return loss

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator, unused-ignore]
    def backward(ctx: Any, dloss: Tensor) -> tuple[Tensor, None, None]:
        logits, targets, lse = ctx.saved_tensors
        own = logits.detach()
        return cross_entropy_backward(own, targets, lse, dloss, out=own, **ctx.options), None, None


def __dir__() -> list[str]:
    return sorted([*__all__, "functional"])
