# SPDX-License-Identifier: Apache-2.0
"""prepare(): a call that is checked and planned once, and then run on addresses."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from .._arguments import count_of, integer_in
from .._explain import launching_function
from .._pipeline import Bound
from .._program import Arg, Memory, run
from . import call_path
from .plan_words import array_names, step_words


def prepare(op: Callable[..., Any] | str, *arguments: Any, **options: Any) -> Callable[..., None]:
    """A call that is checked and planned once: what is left of it is the C function, on addresses.

    ``run = prepare(pyflowk.permute, x, axes, out=y)``; then ``run(x_address, y_address, stream)`` permutes from one
    address to the other, for arrays of the shapes, strides and types of x and y.

    Parameters
    ----------
    op : function or str
        A function of pyflowk that takes a stream, or its name.
    *arguments, **options
        Those of the call, with `out`, without `stream`. Only the shapes, strides, types and device of arrays are read.
        Without `out` the plan is for a new array, as the function itself would make it; the same holds for `dx_out`,
        `dalpha_out` and `workspace` of prelu_backward.

    Returns
    -------
    function
        It takes one int for each array, in the order of the function's parameters, and the stream as int;
        ``inspect.signature(run)`` names them. It returns None. Numbers and options are those that `prepare` was given.
        It holds the plan, not the arrays. Keep the memory alive and aligned to its type; with several GPUs, make the
        arrays' GPU current first. Any thread may run it, also in a stream capture.

    Raises
    ------
    ValueError
        `op` is not such a function, or the C library is not called exactly once: an operand has to be converted or
        copied first, or no result is needed.
    TypeError
        `options` contain `stream`, or the function itself raises it. By `run`: a wrong number of arguments, or one that
        is no int.
    FlowkError, FlowkValueError
        By `run`: the library's status and text, for example of addresses that are not aligned.

    See Also
    --------
    explain : What the call will run.

    Examples
    --------
    >>> x, y = np.arange(6.0).reshape(2, 3), np.empty((3, 2))
    >>> run = pyflowk.prepare(pyflowk.permute, x, (1, 0), out=y)
    >>> run(x.ctypes.data, y.ctypes.data, 0)
    >>> y[2]
    array([2., 5.])
    """
    function = launching_function(op)
    if function.__name__ == "permute_many":
        raise ValueError("op is permute_many, which takes lists of arrays: prepare takes the other functions")
    if "stream" in options:
        raise TypeError("prepare takes no stream: the prepared call does")
    bound = call_path.bind_call(function, arguments, options)
    if len(bound.program.steps) != 1:
        raise ValueError(
            f"{function.__name__} of these arrays is not one call of the library: one of them is copied or converted "
            "first, or nothing is to be computed, as pyflowk.explain says"
        )
    used = array_names(bound)
    names = tuple(name for name in inspect.signature(function).parameters if name in used.values())
    call = _Checked(bound, used, names)
    cache = call_path.program_cache()
    if cache is None:
        return call
    text = f"run({', '.join((*names, 'stream'))}, /)\n--\n\n{call.__doc__}"
    keep: list[Any] = [bound.program]
    step = step_words(bound, bound.program.steps[0], {arg: names.index(name) for arg, name in used.items()}, {}, keep)
    return cache.prepared(text, len(names) + 1, step, keep, call)  # type: ignore[no-any-return]


class _Checked:
    """The prepared call in Python: for arguments that the extension does not take, and after a status."""

    def __init__(self, bound: Bound, used: dict[Arg, str], names: tuple[str, ...]) -> None:
        self._program, self._library = bound.program, bound.library
        self._operands, self._num_outputs = bound.operands, len(bound.outputs)
        self._used, self._names = used, (*names, "stream")
        positional = inspect.Parameter.POSITIONAL_ONLY
        self.__signature__ = inspect.Signature([inspect.Parameter(name, positional) for name in self._names])
        self.__doc__ = f"Launches {bound.program.steps[0].function} on these addresses."

    def __call__(self, *addresses: Any) -> None:
        names = self._names
        if len(addresses) != len(names):
            raise TypeError(f"run takes {count_of(len(names), 'int')} ({', '.join(names)}), not {len(addresses)}")
        given = {name: integer_in(address, name, 0, 2**64 - 1, "2**64 - 1") for name, address in zip(names, addresses)}
        places: list[list[Any]] = [list(self._operands), [None] * self._num_outputs, [None]]
        for (kind, index), name in self._used.items():
            places[kind][index] = given[name]
        run(self._program, self._library, Memory(*places), given["stream"])
