# SPDX-License-Identifier: Apache-2.0
"""Functions of torch.nn.functional, with the same arguments, on flowk's kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as of_torch
from torch import Tensor

from .._elementwise import functions
from .._operators import prelu as _prelu
from .._operators import softmax_along as _softmax

__all__ = ["elu", "gelu", "leaky_relu", "log_softmax", "prelu", "relu", "sigmoid", "silu", "softmax"]


def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """As torch.nn.functional.relu, by `pyflowk.relu`."""
    return _activation(functions.relu, of_torch.relu, input, inplace)


def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """As torch.nn.functional.leaky_relu, by `pyflowk.leaky_relu`."""
    return _activation(functions.leaky_relu, of_torch.leaky_relu, input, inplace, negative_slope)


def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """As torch.nn.functional.elu, by `pyflowk.elu`."""
    return _activation(functions.elu, of_torch.elu, input, inplace, alpha)


def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """As torch.nn.functional.silu, by `pyflowk.silu`."""
    return _activation(functions.silu, of_torch.silu, input, inplace)


def gelu(input: Tensor, approximate: str = "none") -> Tensor:
    """As torch.nn.functional.gelu, by `pyflowk.gelu`."""
    if input.is_meta:
        return of_torch.gelu(input, approximate=approximate)
    return functions.gelu(input, approximate)


def sigmoid(input: Tensor) -> Tensor:
    """As torch.nn.functional.sigmoid, by `pyflowk.sigmoid`."""
    return torch.sigmoid(input) if input.is_meta else functions.sigmoid(input)


def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """As torch.nn.functional.prelu, by `pyflowk.prelu`; the channels are dimension 1."""
    return of_torch.prelu(input, weight) if input.is_meta else _prelu.prelu(input, weight)


def softmax(input: Tensor, dim: int | None = None, *, dtype: torch.dtype | None = None) -> Tensor:
    """As torch.nn.functional.softmax, by `pyflowk.softmax`. The last dimension is the fast one; another is moved there
    and back, as a view."""
    return _along(_softmax.softmax, of_torch.softmax, input, dim, dtype)


def log_softmax(input: Tensor, dim: int | None = None, *, dtype: torch.dtype | None = None) -> Tensor:
    """As torch.nn.functional.log_softmax, by `pyflowk.log_softmax`; `dim` as in `softmax`."""
    return _along(_softmax.log_softmax, of_torch.log_softmax, input, dim, dtype)


def _activation(
    function: Callable[..., Any], of_meta: Callable[..., Tensor], input: Tensor, inplace: bool, *parameters: float
) -> Tensor:
    result: Tensor
    if input.is_meta:
        result = of_meta(input, *parameters, inplace=inplace)
    elif not inplace:
        result = function(input, *parameters)
    elif torch.is_grad_enabled() and input.requires_grad:
        # The gradient is taken at the old values, which autograd keeps.
        result = input.copy_(function(input.clone(), *parameters))
    else:
        result = function(input, *parameters, out=input)
    return result


def _along(
    function: Callable[..., Any], of_meta: Callable[..., Tensor], x: Tensor, dim: int | None, dtype: torch.dtype | None
) -> Tensor:
    if dim is None:
        raise TypeError("dim is None, must be an integer")
    result: Tensor
    if x.is_meta:
        result = of_meta(x, dim, dtype=dtype)
    elif dim in (-1, x.dim() - 1):
        result = function(x, dtype=dtype)
    else:
        result = function(x.movedim(dim, -1), dtype=dtype).movedim(-1, dim)
    return result


def __dir__() -> list[str]:
    return sorted(__all__)
