# SPDX-License-Identifier: Apache-2.0
"""tune(): the plan of a permute by measurement; save_plans() and load_plans() keep such plans in a file."""

from __future__ import annotations

import os
from collections.abc import Callable
from ctypes import addressof, c_double, c_int, c_int32
from typing import Any, NamedTuple

from ._arguments import integer_in, kind_of
from ._calls.call_path import bind_call
from ._devices import is_available
from ._explain import launching_function
from ._native import library
from ._native.c_types import Array
from ._native.errors import error_of
from ._program import Step


class Tuning(NamedTuple):
    """What `tune` has measured, in microseconds per call."""

    modelled_us: float
    """The plan that the library chooses by its model."""
    measured_us: float
    """The fastest plan, which later calls take."""


def tune(op: Callable[..., Any] | str, *arguments: Any, max_trials: int = 12, **options: Any) -> Tuning:
    """Runs a permute by several plans, and remembers the fastest for later calls.

    ``tune(pyflowk.permute, x, axes, out=y)``; then ``permute(x, axes, out=y)`` takes the plan that was found, as do all
    calls of this process on arrays of the same shapes, strides, types and addresses modulo 128, on GPUs of this kind.
    All plans write the same bits. `explain` says what was measured.

    Parameters
    ----------
    op : function or str
        A function of pyflowk whose call permutes: permute, batch_transpose, swapaxes, moveaxis, transpose;
        masked_softmax and prelu for arrays that they copy first.
    *arguments, **options
        Those of the call, `out` included, without `stream`. `out`, or a new array, receives the result.
    max_trials : int
        The plans that are timed, 1 to 4096: the model's own, and those of least predicted time.

    Returns
    -------
    Tuning
        The times of the model's plan and of the fastest. They are equal where the library knows one plan only, such as
        that of a plain copy.

    Raises
    ------
    ValueError
        `op` is not a function of pyflowk, or the call does not permute; max_trials is out of its range.
    TypeError
        `options` contain `stream`; otherwise what the function itself raises.
    FlowkError, FlowkValueError
        The library's status and text, for example of a stream that captures a CUDA graph.

    Notes
    -----
    Waits until the stream has done all its work. Arrays that fit in the L2 cache are measured in the cache.

    See Also
    --------
    save_plans : Keeps what was found in a file.

    Examples
    --------
    >>> x = np.ones((20, 30, 40), np.float32)
    >>> times = pyflowk.tune(pyflowk.permute, x, (2, 0, 1), max_trials=3)
    >>> times.measured_us <= times.modelled_us
    True
    """
    function = launching_function(op)
    if "stream" in options:
        raise TypeError("tune takes no stream: it waits for the arrays' current stream")
    max_trials = integer_in(max_trials, "max_trials", 1, 4096)
    bound = bind_call(function, arguments, options)
    times: list[tuple[c_double, c_double]] = []
    steps = tuple(_timed(step, max_trials, times) for step in bound.program.steps)
    if not times:
        raise ValueError(f"{function.__name__} of these arguments does not permute: there is no plan to measure")
    bound._replace(program=bound.program._replace(steps=steps)).run()
    return Tuning(sum(modelled.value for modelled, _ in times), sum(measured.value for _, measured in times))


def _timed(step: Step, max_trials: int, times: list[tuple[c_double, c_double]]) -> Step:
    """A permute becomes a call of flowk_permute_tune(), with the times in `times`; any other step stays as it is."""
    if step.function == "flowk_permute":
        x, src_strides, out, dst_strides, rank, shape, axes, dtype = step.args
        args = (x, src_strides, dtype, out, dst_strides, dtype, rank, shape, axes, c_double(1))
    elif step.function == "flowk_permute_convert":
        args = step.args
    else:
        return step
    times.append((c_double(), c_double()))
    results = (Array(addressof(value)) for value in times[-1])
    return Step.of("flowk_permute_tune", (*args, c_int(max_trials), *results), step.names)


def save_plans(path: str | os.PathLike[str]) -> None:
    """Writes the plans that `tune` has found in this process to a text file, one per line.

    If the environment variable FLOWK_PLANS names such a file, the first permute of a process loads it.

    Parameters
    ----------
    path : str or path-like
        The file, whose old contents are lost.

    Raises
    ------
    TypeError
        `path` is no path.
    FlowkValueError
        The file cannot be written.
    """
    opened = library.for_device(_device(), "path")
    _check(opened, opened.flowk_plans_save(_encoded(path)))


def load_plans(path: str | os.PathLike[str]) -> tuple[int, int]:
    """Reads a file of `save_plans`.

    Parameters
    ----------
    path : str or path-like
        The file.

    Returns
    -------
    tuple
        How many plans were taken, and how many ignored: those of another kind of GPU or version of the library.

    Raises
    ------
    TypeError
        `path` is no path.
    FlowkValueError
        The file cannot be read, or has a line that `save_plans` does not write. Then no plan is taken.
    """
    opened = library.for_device(_device(), "path")
    loaded, ignored = c_int32(), c_int32()
    _check(opened, opened.flowk_plans_load(_encoded(path), addressof(loaded), addressof(ignored)))
    return loaded.value, ignored.value


def _encoded(path: Any) -> bytes:
    try:
        encoded = os.fsencode(path)
    except TypeError as error:
        raise TypeError(f"path is {kind_of(path)}, must be a path") from error
    if b"\0" in encoded:
        raise ValueError("path has a NUL")
    return encoded


def _device() -> int | None:
    """The GPU if there is one, otherwise the CPU."""
    return 0 if is_available() else None


def _check(opened: Any, status: int) -> None:
    if status:
        raise error_of(opened, status)
