# SPDX-License-Identifier: Apache-2.0
"""explain(): the plan of a call in words."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from importlib import import_module
from typing import Any

from ._arguments import shown
from ._calls.call_path import bind_call
from ._pipeline import Bound

_SLOW = "  slow because "  # how the library begins a line that says why a plan is slow: TextWriter::add_slow()
_package: Any = import_module(__package__)
FRAMEWORKS: list[Callable[[Any, tuple[Any, ...], dict[str, Any]], list[Bound] | None]] = []
"""Of a framework: the plans of the calls that `op` makes; None if `op` is no function of it."""
_OPERATORS = sorted(
    name
    for name, module in _package._MODULE_OF.items()
    if module.startswith(("_operators.", "_elementwise.functions")) and not name.endswith("_workspace_bytes")
)


def explain(op: Callable[..., Any] | str, *arguments: Any, **options: Any) -> str:
    """The plan of a call as text: which kernel, with what tile, and why. Nothing is launched or allocated.

    The last line is a verdict: `fast`, or each extra pass over an array and each reason why the call is slow, with what
    to change.

    Parameters
    ----------
    op : function or str
        A function of pyflowk that takes a stream, or its name; its form in `pyflowk.jax`, with the arguments of
        pyflowk's function; a module of `pyflowk.torch`, a function of `pyflowk.torch.functional` or an operator of
        `torch.ops.flowk`, with their own arguments.
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
    if "stream" in options:
        raise TypeError("explain takes no stream: nothing is launched")
    for plans_of in FRAMEWORKS:
        plans = plans_of(op, arguments, options)
        if plans is not None:
            return "\n".join(map(_text, plans))
    return _text(bind_call(launching_function(op), arguments, options))


def _text(bound: Bound) -> str:
    """A plan in words, and the verdict."""
    lines = bound.explain().splitlines()
    reasons = [f"extra pass: {reason}" for step in bound.program.steps for reason in step.extra_passes]
    reasons += [line.strip() for line in lines if line.startswith(_SLOW)]
    if not lines[0].startswith("nothing to do"):
        lines.append(f"verdict: {'; '.join(dict.fromkeys(reasons)) or 'fast'}")
    return "".join(f"{line}\n" for line in lines if not line.startswith(_SLOW))


def launching_function(op: Callable[..., Any] | str) -> Callable[..., Any]:
    """The public function `op`, or the one called so, that takes a stream; ValueError if there is none."""
    name: str | None = op if isinstance(op, str) else getattr(op, "__name__", "").partition(".")[0]
    name = _package._ALIASES.get(name, name)
    function: Any = getattr(_package, name) if name is not None and name in _OPERATORS else None
    is_of_jax = str(getattr(op, "__module__", "")).startswith("pyflowk._jax.")
    if function is None or not (isinstance(op, str) or op is function or is_of_jax):
        similar = get_close_matches(name or "", [*_OPERATORS, *_package._ALIASES], 3)
        hint = f": is it {' or '.join(similar)}?" if similar else ""
        raise ValueError(f"op = {shown(op)}, must be a function of pyflowk that takes a stream, or its name{hint}")
    return function  # type: ignore[no-any-return]
