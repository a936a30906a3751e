# SPDX-License-Identifier: Apache-2.0
"""explain() of operators of torch.ops.flowk, of the modules of pyflowk.torch and of pyflowk.torch.functional."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from .._pipeline import Bound
from .registration import PARAMETERS, PATHS


def plans_of(op: Any, arguments: tuple[Any, ...], options: dict[str, Any]) -> list[Bound] | None:
    """The plans of the operators that op(*arguments, **options) calls, which is not run; None if `op` is none of
    pyflowk's for PyTorch."""
    name, own_module = str(op), getattr(op, "__module__", "")
    if type(op).__module__ == "torch._ops" and name.startswith("flowk."):
        return [_plan(name.split(".")[1], arguments, options)]
    classes = type(op).__mro__ if isinstance(op, torch.nn.Module) else ()
    if own_module != "pyflowk.torch.functional" and all(one.__module__ != "pyflowk.torch" for one in classes):
        return None
    with torch.no_grad(), _Plans() as plans:
        op(*arguments, **options)
    return plans.found or None


def _plan(name: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> Bound:
    """The plan of a call of torch.ops.flowk.NAME."""
    parameters, path = PARAMETERS[name], PATHS[name]
    if len(arguments) > len(parameters) or options.keys() - {*parameters, *path.outs}:
        getattr(torch.ops.flowk, name)(*arguments, **options)  # raises PyTorch's error
    outs = dict.fromkeys(path.outs)
    return path.bind_plan({**outs, **parameters, **dict(zip(parameters, arguments)), **options})


class _Plans(TorchDispatchMode):
    """Plans each call of an operator of flowk. Views are run; all other results are tensors without data."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call, unused-ignore]
        self.found: list[Bound] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        options = kwargs or {}
        if function.is_view:
            return function(*args, **options)
        if function.namespace == "flowk":
            self.found.append(_plan(function._schema.name.removeprefix("flowk::"), args, options))
        return function(*tree_map_only(Tensor, _without_data, args), **tree_map_only(Tensor, _without_data, options))


def _without_data(x: Tensor) -> Tensor:
    return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device="meta")
