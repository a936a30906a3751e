# SPDX-License-Identifier: Apache-2.0
"""Which calls on torch's tensors need an operator of torch's dispatcher, and not a plain call on their memory.

A road of its own to the C functions asks `is_intercepted()` once per call and `needs_operator(x)` for each tensor, and
where one answers True raises NeedsOperator or calls `pyflowk._pipeline.call`, which takes the operators' road. After
it has chosen the plain call it marks a tensor that it writes by `mark_written(out)`.

All gates of a call with one tensor take about 0.2 us.
"""

from __future__ import annotations

import threading
from typing import Any

import torch
from torch.autograd import forward_ad

_is_grad_enabled = torch.is_grad_enabled
is_compiling = torch.compiler.is_dynamo_compiling
_is_traced = torch._C._is_tracing
_num_dispatch_modes = torch._C._len_torch_dispatch_stack
has_transforms = torch._C._are_functorch_transforms_active
increment_version = torch._C._increment_version
is_autocast_enabled = torch._C._is_any_autocast_enabled
_PLAIN_TYPES = (torch.Tensor, torch.nn.Parameter)


class _InKernel(threading.local):
    """Is this thread inside an operator's kernel, below all that intercepts?"""

    now = False


in_kernel = _InKernel()


def is_watched() -> bool:
    """Does torch watch operators now: torch.compile, jit.trace, torch.func, forward mode, make_fx or another mode?"""
    return is_compiling() or (
        (_num_dispatch_modes() != 0 or has_transforms() or _is_traced() or forward_ad._current_level >= 0)
        and not in_kernel.now
    )


def is_intercepted() -> bool:
    """Does torch watch operators now, or choose the types that they compute in: autocast?"""
    return is_watched() or (is_autocast_enabled() and not in_kernel.now)


def needs_operator(x: torch.Tensor) -> bool:
    """Is the result of a call on x more than its memory shows: a part of autograd, or that of a subclass?"""
    return (x.requires_grad and _is_grad_enabled()) or type(x) not in _PLAIN_TYPES


def mark_written(out: torch.Tensor) -> None:
    """Raises the version counter, so that a backward() that needs the old values of `out` fails."""
    increment_version((out,))  # does nothing for an inference tensor, which has no counter


def is_plain_type(tensor_type: type[Any]) -> bool:
    """Is it no subclass with behaviour of its own, as FakeTensor has?"""
    return tensor_type in _PLAIN_TYPES


def require_plain_memory(x: Any, name: str) -> None:
    """TypeError where the elements of parameter `name` do not lie in memory by one shape and its strides."""
    if isinstance(x, torch.Tensor) and x.is_nested:
        raise TypeError(f"{name} is a nested tensor, must have one shape: pass its parts, or pad it")
    if isinstance(x, torch.Tensor) and x.layout is not torch.strided:
        raise TypeError(f"{name} has the layout {x.layout}, must have strides: pass {name}.to_dense()")


# For the C road, which asks the same: functions without arguments that are true where torch watches all calls
# (torch.compile does not trace a call that runs), and the fields of TorchGates in pyflowk/_calls/reading.h.
WATCHERS = (_num_dispatch_modes, has_transforms, _is_traced, is_autocast_enabled)
OF_TENSORS = (forward_ad, _is_grad_enabled, torch.Tensor.is_neg, torch.Tensor.is_conj, increment_version)
