# SPDX-License-Identifier: Apache-2.0
"""explain(): the plan of a call in words."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from importlib import import_module
from typing import Any

from ._arguments import shown
from ._calls.call_path import bind_call
from ._verdict import verdict

_package: Any = import_module(__package__)
_OPERATORS = sorted(
    name
    for name, module in _package._MODULE_OF.items()
    if module.startswith(("_operators.", "_elementwise.functions", "_elementwise.with_parameters"))
    and name != "prelu_backward_workspace_bytes"
)


def explain(op: Callable[..., Any] | str, *arguments: Any, **options: Any) -> str:
    """The plan of a call as text: which kernel, with what tile, and why. Nothing is launched or allocated.

    The last line is a verdict: `fast`, or each extra pass over an array and each reason why the call is slow, with what
    to change.

    Parameters
    ----------
    op : function or str
        A function of pyflowk that takes a stream, or its name; or its form in `pyflowk.jax` or `torch.ops.flowk`, whose
        arguments are then those of pyflowk's function.
    *arguments, **options
        Those of the call itself, `out` included, without `stream`: ``explain(pyflowk.permute, x, axes)`` is the plan of
        ``permute(x, axes)``. Without `out` the plan is for a new contiguous array.

    Raises
    ------
    ValueError
        `op` is not such a function.
    TypeError
        `options` contain `stream`; otherwise what the function itself raises.

    See Also
    --------
    prepare : The call, checked and planned once.
    tune : The plan by measurement.

    Examples
    --------
    >>> x = np.ones((64, 3000), np.float32)
    >>> print(pyflowk.explain(pyflowk.permute, x, (1, 0)).splitlines()[0])
    aligned_tile: another dimension becomes last, and src and dst are aligned to 16 bytes
    """
    function = launching_function(op)
    if "stream" in options:
        raise TypeError("explain takes no stream: nothing is launched")
    bound = bind_call(function, arguments, options)
    text = bound.explain()
    return text if text.startswith("nothing to do") else f"{text}verdict: {verdict(bound.program, text)}\n"


def launching_function(op: Callable[..., Any] | str) -> Callable[..., Any]:
    """The public function `op`, or the one called so, that takes a stream; ValueError if there is none."""
    name: str | None = op if isinstance(op, str) else getattr(op, "__name__", "").partition(".")[0]
    name = _package._ALIASES.get(name, name)
    function: Any = getattr(_package, name) if name is not None and name in _OPERATORS else None
    if function is None or (not isinstance(op, str) and op is not function and not _is_a_form_of(op)):
        similar = get_close_matches(name or "", [*_OPERATORS, *_package._ALIASES], 3)
        hint = f": is it {' or '.join(similar)}?" if similar else ""
        raise ValueError(f"op = {shown(op)}, must be a function of pyflowk that takes a stream, or its name{hint}")
    return function  # type: ignore[no-any-return]


def _is_a_form_of(op: Any) -> bool:
    """Whether this is a function of pyflowk.jax or an operator of torch.ops.flowk."""
    of_torch = type(op).__module__ == "torch._ops" and str(op).startswith("flowk.")
    return of_torch or str(getattr(op, "__module__", "")).startswith("pyflowk._jax.")
