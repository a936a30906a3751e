# SPDX-License-Identifier: Apache-2.0
"""Calls whose tensors torch must see: they are refused, with a sentence that says what to do."""

from __future__ import annotations

from typing import Any

import torch

from .._pipeline import Call, Listener, call
from . import gate


def by_operator(made: Call) -> Any:
    """The result of a call that raised NeedsOperator."""
    operation, inputs, out, stream, options, values = made
    if stream.__class__ is Listener and not gate.is_intercepted():
        with torch.no_grad():
            return call(operation, inputs[0], inputs[1:], out, stream, options, values)
    names = [*operation.names, operation.out_name]
    for name, one in zip(names, (*inputs, out)):
        if isinstance(one, torch.Tensor) and not gate.is_plain_type(type(one)):
            raise TypeError(f"{name} is a {type(one).__name__}, must be a torch.Tensor or Parameter")
    if gate.is_intercepted():
        raise TypeError("torch traces or transforms this call, which flowk's functions do not take part in")
    raise TypeError("autograd is on and a tensor requires grad: call under torch.no_grad(), or pass x.detach()")
