# SPDX-License-Identifier: Apache-2.0
"""Calls with one bad argument: the status is the one that the header says, flowk_last_error() names the parameter, and
no byte changes. The plan of the same call gives the same answer."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from campaign_case import Arena, Arguments, At, Case, Int32s, Tensor
from campaign_makers import MAKERS, OF_BAD_INPUT
from campaign_shapes import alignment_bytes, generator

from pyflowk._native.abi import Status
from pyflowk._native.operations import OPERATIONS

ROOM = 100  # elements
OVERFLOWING = (2**63 - 1, -(2**63))
NUMBER = 256


class Bad(NamedTuple):
    """The statuses that are right, and words of which the text has one."""

    statuses: tuple[Status, ...]
    words: tuple[str, ...]


INVALID, NULL, MISALIGNED = Status.INVALID_ARGUMENT, Status.NULL_POINTER, Status.MISALIGNED_POINTER
UNSUPPORTED, OVERLAP, OVERFLOW = Status.UNSUPPORTED_DTYPE, Status.OVERLAP, Status.SIZE_OVERFLOW

Change = Callable[[random.Random, dict[str, Any]], Bad | None]


def case_of(r: random.Random, library: Any) -> Case:
    return MAKERS[r.choice(OF_BAD_INPUT)](r, library, ROOM)


def changes_of(case: Case) -> list[Callable[[random.Random], Bad]]:
    """What can be wrong in this case. Each changes the arguments."""
    arguments = case.arguments
    changes: list[Callable[[random.Random], Bad]] = []

    def value(
        name: str,
        statuses: tuple[Status, ...],
        *bad: Any,
        of: dict[str, Any] = arguments,
        named_as: tuple[str, ...] = (),
    ) -> None:
        def change(r: random.Random) -> Bad:
            of[name] = r.choice(bad)
            return Bad(statuses, named_as or (name,))

        changes.append(change)

    is_empty = any(tensor.is_empty for tensor in case.tensors.values())
    rank = arguments.get("rank", 3)
    for name in arguments:
        if name.endswith("dtype"):
            value(name, (UNSUPPORTED,), 0, -1, 18, 99, 2**31 - 1, 12 + 2 * NUMBER)
        if name in ("outer", "channels", "inner", "batch", "rows", "cols"):
            value(name, (INVALID,), -1, -(2**63))
            if not is_empty:
                value(name, (OVERFLOW,), 2**62, 2**63 - 1, named_as=(name, "src"))
    if "rank" in arguments:
        value("rank", (INVALID,), -1, 33, 2**31 - 1, -(2**31))
    if "shape" in arguments and rank > 0:
        value("shape", (NULL,), None)
        extents = arguments["shape"]
        value("shape", (INVALID,), *(_with(extents, d, bad) for d in range(rank) for bad in (-1, -(2**63))))
    if "axes" in arguments and rank > 0:
        value("axes", (NULL,), None)
        axes = arguments["axes"]
        wrong = [Int32s(_with(axes, d, bad)) for d in range(rank) for bad in (-1, rank, 2**31 - 1)]
        twice = [Int32s(_with(axes, d, axes[d - 1])) for d in range(1, rank)]
        value("axes", (INVALID,), *wrong, *twice)
    if "op" in arguments:
        value("op", (INVALID,), 0, -1, 1 + max(op.value for op in OPERATIONS), 2**31 - 1)
    if "scale" in arguments:
        moves_bits = case.function == "flowk_permute_convert"
        bad_scales = (float("nan"), float("inf"), -float("inf"))
        if moves_bits and any(arguments[f"{side}_dtype"] in (5, 9, 16, 17) for side in ("src", "dst")):
            value("scale", (UNSUPPORTED,), *bad_scales)
        else:
            value("scale", (INVALID,), *bad_scales)
    if "log_softmax" in arguments:
        value("log_softmax", (INVALID,), 2, -1, 2**31 - 1)
    if isinstance(arguments.get("mask"), dict):
        _change_mask(arguments["mask"], "backward" in case.function, value)
    if not is_empty:
        for name, tensor in case.tensors.items():
            _change_tensor(case, name, tensor, changes)
    return changes


def _with(values: tuple[int, ...], index: int, value: int) -> tuple[int, ...]:
    return (*values[:index], value, *values[index + 1 :])


def _change_mask(mask: dict[str, Any], is_backward: bool, value: Callable[..., None]) -> None:
    far = 2**62 + 1
    value("struct_bytes", (INVALID,), 0, 95, 97, 8, 2**40, of=mask)
    value("causal", (INVALID,), 2, -1, of=mask)
    value("lengths_from_right", (INVALID,), 2, -1, of=mask)
    value("causal_offset", (INVALID,), far, -far, 2**63 - 1, -(2**63), of=mask)
    value("window", (INVALID,), -1, far, -(2**63), of=mask)
    value("softcap", (INVALID,), -1.0, float("nan"), float("inf"), of=mask)
    if "lengths" in mask:
        value("lengths_dtype", (UNSUPPORTED,), 0, 2, 9, 12, 99, of=mask)
    if "bias" in mask and not is_backward:
        value("bias_dtype", (UNSUPPORTED,), 0, 4, 99, of=mask)


def _change_tensor(case: Case, name: str, tensor: Tensor, changes: list[Callable[[random.Random], Bad]]) -> None:
    mask = case.arguments.get("mask")
    of = mask if isinstance(mask, dict) and name in mask else case.arguments
    if of.get(name) is None or name == "workspace":
        return
    names = tuple(other for other, one in case.tensors.items() if one is tensor)
    strides = f"{name}_strides"

    def null(r: random.Random) -> Bad:
        of[name] = None
        return Bad((NULL,), (name,))

    def misaligned(r: random.Random) -> Bad:
        of[name] = At(tensor, r.randrange(1, alignment_bytes(tensor.dtype)))
        # A tensor at the address of another one may first be reported to overlap it.
        return Bad((MISALIGNED,), names)

    def overflowing(r: random.Random) -> Bad:
        dimension = r.choice([d for d, extent in enumerate(tensor.shape) if extent > 1])
        of[strides] = _with(tensor.strides, dimension, r.choice(OVERFLOWING))
        return Bad((OVERFLOW,), (name,))

    def repeated(r: random.Random) -> Bad:
        dimension = r.choice([d for d, extent in enumerate(tensor.shape) if extent > 1])
        of[strides] = _with(tensor.strides, dimension, 0)
        return Bad((OVERLAP,), (name,))

    is_per_row = name in ("lengths", "lse", "dlse", "sinks", "row_scale", "dsinks")
    is_optional = is_per_row or name in ("dense", "bias", "dx", "dalpha")
    if not is_optional:
        changes.append(null)
    if alignment_bytes(tensor.dtype) > 1:
        changes.append(misaligned)
    # Beside a mask the rows of a softmax are contiguous.
    is_row = "softmax" in case.function and mask is not None and not is_per_row
    leading = tensor.shape[:-1] if is_row else tensor.shape
    if strides in of and any(extent > 1 for extent in leading) and not (is_row and tensor.shape[-1] > 1):
        changes.append(overflowing)
        if name in case.outputs:
            changes.append(repeated)
    if is_row and tensor.shape[-1] > 1:

        def last(r: random.Random) -> Bad:
            of[strides] = (*tensor.strides[:-1], r.choice((0, 2, -1, 2**62)))
            return Bad((INVALID,), (strides, name))

        changes.append(last)


def check_bad_input(r: random.Random, arrays: Any, library: Any, case: Case) -> Status:
    """The status that the call returned."""
    arena = Arena(arrays, list(case.tensors.values()), generator(r))
    bad = r.choice(changes_of(case))(r)
    arguments = Arguments(case, arena)
    function, explain = getattr(library, case.function), getattr(library, case.function + "_explain")
    text = ctypes.create_string_buffer(b"before", 100)
    values = arguments.values[:-2] if case.function == "flowk_prelu_backward" else arguments.values
    for call in (lambda: explain(*values, text, len(text)), lambda: function(*arguments.values, None)):
        status = Status(call())
        error = library.flowk_last_error().decode()
        assert status in bad.statuses, f"{status.name} in place of {bad}: {error}"
        assert any(word in error for word in bad.words), (error, bad)
        assert text.value == b"before"
        assert np.array_equal(arena.fetch(), arena.bytes)
    return status
