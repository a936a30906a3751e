# SPDX-License-Identifier: Apache-2.0
"""Inductor, the default backend of torch.compile: its code calls an operator's kernel without the dispatcher.

By itself Inductor writes a call of torch.ops.flowk.NAME.default, of which the dispatcher takes more time than the
kernel. Here it writes NAME.default.direct, the kernel for tensors in memory: autograd, autocast and the transforms have
been traced before.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from typing import Any

from torch.utils import _pytree as pytree

_to_lower: list[Any] = []


def add_operator(operator: Any, direct: Callable[..., Any]) -> None:
    """Adds an operator, an OpOverload, and its kernel, which takes arguments as the operator does."""
    operator.direct = direct  # PyTorch keeps compiled code on disk, also for other versions of pyflowk: keep the name
    _to_lower.append(operator)


def lower_operators() -> None:
    """Tells Inductor of the operators. Called when a trace asks for the shape of a result, not when the operators are
    registered, because the import of Inductor takes a second."""
    lowering = sys.modules.get("torch._inductor.lowering")
    while _to_lower and lowering is not None:
        # Without one of its private names, Inductor calls the operator by itself; another thread may take the last one.
        with contextlib.suppress(AttributeError, IndexError):
            _lower(_to_lower.pop(), lowering)


def _lower(operator: Any, lowering: Any) -> None:
    ir, V = lowering.ir, lowering.V
    fallback_kernel: Any = ir.FallbackKernel

    class DirectCall(fallback_kernel):  # type: ignore[misc]
        def set_python_kernel_name(self, python_kernel_name: str | None) -> None:
            super().set_python_kernel_name(python_kernel_name)
            if not getattr(V.graph, "cpp_wrapper", True):  # C++ code calls no function of Python
                self.python_kernel_name += ".direct"

    def lower(*arguments: Any, **options: Any) -> Any:
        made = DirectCall.create(operator, *arguments, **options)
        return pytree.tree_map_only(ir.IRNode, ir.TensorBox.create, made)

    lowering.make_fallback(operator)
    lowering.lowerings[operator] = lower
