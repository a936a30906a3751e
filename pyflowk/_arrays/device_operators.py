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


def _binary(name: str, *, is_reflected: bool = False) -> Callable[[object, object], Any]:
    def operate(self: object, other: object) -> Any:
        if not _is_operand(other):
            return NotImplemented
        function = getattr(_package, name)
        return function(other, self) if is_reflected else function(self, other)

    return operate


def _in_place(name: str) -> Callable[[object, object], Any]:
    def operate(self: object, other: object) -> Any:
        if not _is_operand(other):
            return NotImplemented
        return getattr(_package, name)(self, other, out=self)

    return operate


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

    __add__, __radd__, __iadd__ = _binary("add"), _binary("add", is_reflected=True), _in_place("add")
    __sub__, __rsub__, __isub__ = _binary("subtract"), _binary("subtract", is_reflected=True), _in_place("subtract")
    __mul__, __rmul__, __imul__ = _binary("multiply"), _binary("multiply", is_reflected=True), _in_place("multiply")
    __truediv__, __rtruediv__, __itruediv__ = (
        _binary("divide"),
        _binary("divide", is_reflected=True),
        _in_place("divide"),
    )
    __floordiv__, __rfloordiv__ = _binary("floor_divide"), _binary("floor_divide", is_reflected=True)
    __mod__, __rmod__ = _binary("remainder"), _binary("remainder", is_reflected=True)
    __ifloordiv__, __imod__ = _in_place("floor_divide"), _in_place("remainder")
    __pow__, __rpow__, __ipow__ = _binary("pow"), _binary("pow", is_reflected=True), _in_place("pow")
    __and__, __rand__, __iand__ = (
        _binary("bitwise_and"), _binary("bitwise_and", is_reflected=True), _in_place("bitwise_and")
    )  # fmt: skip
    __or__, __ror__, __ior__ = _binary("bitwise_or"), _binary("bitwise_or", is_reflected=True), _in_place("bitwise_or")
    __xor__, __rxor__, __ixor__ = (
        _binary("bitwise_xor"), _binary("bitwise_xor", is_reflected=True), _in_place("bitwise_xor")
    )  # fmt: skip
    __lshift__, __rlshift__ = _binary("bitwise_left_shift"), _binary("bitwise_left_shift", is_reflected=True)
    __rshift__, __rrshift__ = _binary("bitwise_right_shift"), _binary("bitwise_right_shift", is_reflected=True)
    __ilshift__, __irshift__ = _in_place("bitwise_left_shift"), _in_place("bitwise_right_shift")
    __pos__, __neg__, __abs__, __invert__ = (
        _unary("positive"),
        _unary("negative"),
        _unary("abs"),
        _unary("bitwise_invert"),
    )

    __lt__, __le__ = _binary("less"), _binary("less_equal")
    __gt__, __ge__ = _binary("greater"), _binary("greater_equal")
    __eq__ = _binary("equal")
    __ne__ = _binary("not_equal")
