# SPDX-License-Identifier: Apache-2.0
"""prepare(): a call that is checked and planned once, and then run on addresses."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from ctypes import byref
from typing import Any

from .._arguments import integer_in
from .._explain import launching_function
from .._native.abi import SoftmaxMask
from .._native.errors import error_of
from .._pipeline import Recorded, Recorder
from . import roads
from .recorded import planned


def prepare(op: Callable[..., Any] | str, *arguments: Any, **options: Any) -> Callable[..., None]:
    """A call that is checked and planned once: what is left of it is the C function, on addresses.

    ``run = prepare(pyflowk.permute, x, axes, out=y)``; then ``run(x_address, y_address, stream)`` permutes from one
    address to the other, for arrays of the shapes, strides and types of x and y.

    Parameters
    ----------
    op : function or str
        A function of pyflowk that takes a stream, or its name.
    *arguments, **options
        Those of the call, `out` included, without `stream`. Arrays are read for their shapes, strides, types and device
        alone. Without `out` the call is planned for a new array, as the function itself would make it; so it is for
        `dx_out`, `dalpha_out` and `workspace` of prelu_backward.

    Returns
    -------
    function
        It takes one int for each array, in the order of the function's parameters, and the stream as int;
        ``inspect.signature(run)`` names them. It returns None. Numbers and options are those that `prepare` was given.
        It keeps its plan alive and no array: the caller owns the memory, which has at least its type's alignment, and
        on a machine with several GPUs makes theirs current. Any thread may run it, also in a stream capture.

    Raises
    ------
    ValueError
        `op` is not such a function, or the call is not one call of the C library: an operand has to be converted or
        copied first, or no result is needed.
    TypeError
        `options` contain `stream`; otherwise what the function itself raises. By `run`: another number of arguments, or
        one that is no int.
    FlowkError, FlowkValueError
        By `run`: the library's status and text, for example of addresses that are not aligned.
    """
    function = launching_function(op)
    if function.__name__ == "permute_many":
        raise ValueError("op is permute_many, which takes lists of arrays: prepare takes the other functions")
    if "stream" in options:
        raise TypeError("prepare takes no stream: the prepared call does")
    recorded = function(*arguments, **options, stream=Recorder())
    if recorded is None:
        raise ValueError(
            f"{function.__name__} of these arrays is not one call of the library: one of them is copied or converted "
            "first, or nothing is to be computed, as pyflowk.explain says"
        )
    names = _names(function, recorded)
    call = _Checked(recorded, names)
    library = roads.library()
    if library is None:
        return call
    text = f"run({', '.join((*names, 'stream'))}, /)\n--\n\n{call.__doc__}"
    plan = planned(recorded, {name: index for index, name in enumerate(names)}, {})
    return library.flowk_calls_prepared(text.encode(), len(names) + 1, tuple(plan), call)  # type: ignore[no-any-return]


def _names(function: Callable[..., Any], recorded: Recorded) -> tuple[str, ...]:
    """The arrays of the call, in the order of the function's parameters."""
    values = {getattr(argument, "value", argument) for argument in recorded.arguments if not _mask_in(argument)}
    for mask in filter(None, map(_mask_in, recorded.arguments)):
        values |= {mask.dense, mask.lengths, mask.bias}
    used = {name for address, name in recorded.names.items() if address in values}
    return tuple(name for name in inspect.signature(function).parameters if name in used)


def _mask_in(argument: Any) -> SoftmaxMask | None:
    """The struct that an argument points to, made by byref()."""
    struct = getattr(argument, "_obj", None)
    return struct if isinstance(struct, SoftmaxMask) else None


class _Checked:
    """The prepared call in Python: what `run` does with arguments that are not plain, or after a status."""

    def __init__(self, recorded: Recorded, names: Sequence[str]) -> None:
        self._recorded = recorded
        self._names = (*names, "stream")
        positional = inspect.Parameter.POSITIONAL_ONLY
        self.__signature__ = inspect.Signature([inspect.Parameter(name, positional) for name in self._names])
        self.__doc__ = f"Launches {recorded.function} on these addresses."

    def __call__(self, *addresses: Any) -> None:
        names, recorded = self._names, self._recorded
        if len(addresses) != len(names):
            raise TypeError(f"run takes {len(names)} ints ({', '.join(names)}), not {len(addresses)}")
        given = {name: integer_in(address, name, 0, 2**64 - 1, "2**64 - 1") for name, address in zip(names, addresses)}
        by_address = {address: given.get(name) for address, name in recorded.names.items()}
        *arguments, stream = (*(self._filled(one, by_address) for one in recorded.arguments), given["stream"])
        status = getattr(recorded.library, recorded.function)(*arguments, stream)
        if status:
            error = error_of(recorded.library, status)
            error.name_parameters(recorded.function, [name for name in names if name not in ("out", "stream")])
            raise error

    @staticmethod
    def _filled(argument: Any, by_address: dict[Any, Any]) -> Any:
        mask = _mask_in(argument)
        if mask is None:
            return by_address.get(argument, argument) if isinstance(argument, int) else argument
        own = SoftmaxMask.from_buffer_copy(mask)
        for field in ("dense", "lengths", "bias"):
            setattr(own, field, by_address.get(getattr(mask, field)))
        return byref(own)
