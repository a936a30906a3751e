# SPDX-License-Identifier: Apache-2.0
"""The operators of DeviceArray: each is an elementwise function of pyflowk, and has its broadcasting and promotion."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

_package: Any = import_module(__package__.partition(".")[0])


def _is_operand(x: object) -> bool:
    return isinstance(x, (bool, int, float, np.generic, ArrayOperators)) or hasattr(x, "__dlpack__")


def _binary(name: str) -> Callable[[object, object], Any]:
    def operate(self: object, other: object) -> Any:
        return getattr(_package, name)(self, other) if _is_operand(other) else NotImplemented

    return operate


def _arithmetic(name: str) -> tuple[Callable[[object, object], Any], ...]:
    """self + other, other + self, self += other."""

    def reflected(self: object, other: object) -> Any:
        return getattr(_package, name)(other, self) if _is_operand(other) else NotImplemented

    def in_place(self: object, other: object) -> Any:
        return getattr(_package, name)(self, other, out=self) if _is_operand(other) else NotImplemented

    return _binary(name), reflected, in_place


def _unary(name: str) -> Callable[[object], Any]:
    def operate(self: object) -> Any:
        return getattr(_package, name)(self)

    return operate


class ArrayOperators:
    """Arithmetic and comparisons, element by element. As NumPy's arrays, these cannot be hashed."""

    __slots__ = ()
    __hash__ = None  # type: ignore[assignment]
    # NumPy's arrays and scalars on the left leave the operation to the methods below.
    __array_ufunc__ = None

    __add__, __radd__, __iadd__ = _arithmetic("add")
    __sub__, __rsub__, __isub__ = _arithmetic("subtract")
    __mul__, __rmul__, __imul__ = _arithmetic("multiply")
    __truediv__, __rtruediv__, __itruediv__ = _arithmetic("divide")
    __floordiv__, __rfloordiv__, __ifloordiv__ = _arithmetic("floor_divide")
    __mod__, __rmod__, __imod__ = _arithmetic("remainder")
    __pow__, __rpow__, __ipow__ = _arithmetic("pow")
    __and__, __rand__, __iand__ = _arithmetic("bitwise_and")
    __or__, __ror__, __ior__ = _arithmetic("bitwise_or")
    __xor__, __rxor__, __ixor__ = _arithmetic("bitwise_xor")
    __lshift__, __rlshift__, __ilshift__ = _arithmetic("bitwise_left_shift")
    __rshift__, __rrshift__, __irshift__ = _arithmetic("bitwise_right_shift")
    __pos__, __neg__, __abs__ = _unary("positive"), _unary("negative"), _unary("abs")
    __invert__ = _unary("bitwise_invert")
    __lt__, __le__ = _binary("less"), _binary("less_equal")
    __gt__, __ge__ = _binary("greater"), _binary("greater_equal")
    __eq__ = _binary("equal")
    __ne__ = _binary("not_equal")
