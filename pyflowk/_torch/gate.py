# SPDX-License-Identifier: Apache-2.0
"""Which calls on torch's tensors need an operator of torch's dispatcher, and which run on their memory: plain calls.

Python asks the functions below, the fast path asks GATES. A plain call marks each tensor that it has written by
`mark_written(out)`.

All gates of a call with one tensor take about 0.2 us.
"""

from __future__ import annotations

import contextlib
import importlib
import threading
from collections.abc import Iterator
from typing import Any

import torch
from torch.autograd import forward_ad

from . import autocast

_is_grad_enabled = torch.is_grad_enabled
is_compiling = torch.compiler.is_dynamo_compiling
is_whole = True
"""False if this PyTorch lacks one of the private functions below. Then every call is an operator's."""


def private(module: str, name: str) -> Any:
    """A private function or class of PyTorch; if there is none, a function that raises an error that says so."""
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError):

        def missing(*arguments: Any, **options: Any) -> Any:
            raise RuntimeError(f"PyTorch {torch.__version__} has no {module}.{name}, which this call needs")

        return missing


def _private(name: str, instead: Any) -> Any:
    """torch._C's function; `instead` if there is none."""
    global is_whole
    found = getattr(torch._C, name, None)
    is_whole = is_whole and found is not None
    return found or instead


_is_traced = _private("_is_tracing", lambda: False)
_num_dispatch_modes = _private("_len_torch_dispatch_stack", lambda: 0)
_has_transforms = _private("_are_functorch_transforms_active", lambda: False)
increment_version = _private("_increment_version", torch.autograd.graph.increment_version)
is_autocast_enabled = _private(
    "_is_any_autocast_enabled", lambda: torch.is_autocast_enabled("cuda") or torch.is_autocast_enabled("cpu")
)
_forward_mode: Any = forward_ad if hasattr(forward_ad, "_current_level") else None
is_whole = is_whole and _forward_mode is not None
current_raw_stream: Any = getattr(torch._C, "_cuda_getCurrentRawStream", None) or (
    lambda device: torch.cuda.current_stream(device).cuda_stream
)
"""The handle of the current stream of a GPU, in a tenth of the time of torch.cuda.current_stream()."""
# If PyTorch cannot tell, transforms are taken to be active: that path is right for all calls.
has_transforms = _has_transforms if hasattr(torch._C, "_are_functorch_transforms_active") else lambda: True


def is_forward_mode() -> bool:
    return _forward_mode is None or _forward_mode._current_level >= 0


_PLAIN_TYPES = (torch.Tensor, torch.nn.Parameter)


class _InKernel(threading.local):
    """Whether this thread is inside an operator's kernel. There every call runs on the tensors' memory."""

    now = False


in_kernel = _InKernel()


@contextlib.contextmanager
def below_all() -> Iterator[None]:
    """A block, or with @below_all() a function, in which calls run on the tensors' memory: torch has seen them."""
    outer, in_kernel.now = in_kernel.now, True
    try:
        yield
    finally:
        in_kernel.now = outer


def is_watched() -> bool:
    """Whether torch watches operators: torch.compile, jit.trace, torch.func, forward mode, make_fx or another mode."""
    return is_compiling() or (
        (
            _num_dispatch_modes() != 0
            or _has_transforms()
            or _is_traced()
            or (_forward_mode is not None and _forward_mode._current_level >= 0)
        )
        and not in_kernel.now
    )


def is_intercepted(operator: str = "") -> bool:
    """Whether torch watches operators now, or may choose the types in which `operator` computes: autocast."""
    has_types = not is_whole or (operator in autocast.OPERATORS and is_autocast_enabled())
    return is_watched() or (has_types and not in_kernel.now)


def mark_written(out: torch.Tensor) -> None:
    """Raises the version counter, so that a backward() that needs the old values of `out` fails."""
    increment_version((out,))  # does nothing for an inference tensor, which has no counter


def is_plain_type(tensor_type: type[Any]) -> bool:
    """Whether this is a type of PyTorch itself. A subclass may behave otherwise, as FakeTensor does."""
    return tensor_type in _PLAIN_TYPES


def is_plain_memory(x: torch.Tensor) -> bool:
    """Whether the elements of x are in memory, of the host or a GPU, as they are read: x is no lazy conjugate or
    negative."""
    if type(x) not in _PLAIN_TYPES or x.layout is not torch.strided or x.device.type not in ("cpu", "cuda"):
        return False
    try:
        x.data_ptr()
    except RuntimeError:  # a batch of gradients, which has no storage
        return False
    return not x.is_conj() and not x.is_neg()


def require_plain_memory(x: Any, name: str) -> None:
    """TypeError if the elements of parameter `name` are not in memory by one shape and its strides."""
    if isinstance(x, torch.Tensor) and x.is_nested:
        raise TypeError(f"{name} is a nested tensor, must have one shape: pass its parts, or pad it")
    if isinstance(x, torch.Tensor) and x.layout is not torch.strided:
        raise TypeError(f"{name} has the layout {x.layout}, must have strides: pass {name}.to_dense()")


# For the fast path, which asks the same: functions without arguments that are true if torch watches all calls
# (torch.compile does not trace a call that runs), and the fields of TorchGates in pyflowk/_calls/call_values.h.
WATCHERS = (_num_dispatch_modes, _has_transforms, _is_traced)
GATES: tuple[Any, ...] = (
    *(is_autocast_enabled, _forward_mode, _is_grad_enabled, torch.Tensor.is_neg, torch.Tensor.is_conj),
    *(increment_version, torch.get_default_dtype, autocast.OPERATORS),
)
