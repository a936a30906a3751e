# SPDX-License-Identifier: Apache-2.0
"""Which calls overlap: small tensors at random in one window of bytes. The library's answer must agree with the sets of
bytes, and of flowk_permute()'s rule for the strides of an output."""

from __future__ import annotations

import ctypes
import itertools
import random
from typing import Any

import numpy as np
from campaign_case import RED_ZONE_BYTES, Arena, Arguments, Case, Tensor, check_memory
from campaign_makers import MAKERS, OF_BAD_INPUT
from campaign_shapes import alignment_bytes, chance, generator, shares_its_own_memory

from pyflowk._native import abi
from pyflowk._native.abi import Status

# The inputs that the output may overwrite.
IN_PLACE = {
    "flowk_unary": ("x",),
    "flowk_binary": ("x", "y"),
    "flowk_ternary": ("x", "y", "z"),
    "flowk_prelu": ("x",),
    "flowk_prelu_backward": ("dy", "x"),
    "flowk_masked_softmax": ("x",),
    "flowk_masked_softmax_backward": ("dy", "y"),
}
ROOM = 24  # elements


def _moved(case: Case) -> bool:
    return case.function in ("flowk_permute", "flowk_permute_convert")


def crowded_case(r: random.Random, library: Any) -> Case:
    """A case with all tensors inside one short range of addresses, so that many overlap."""
    make = MAKERS[r.choice([name for name in OF_BAD_INPUT if name != "batch_transpose"])]
    case = make(r, library, ROOM)
    window = r.choice((32, 100, 300, 1000))
    tensors = dict.fromkeys(case.tensors.values())
    if "softmax" not in case.function and "prelu" not in case.function:
        for tensor in tensors:
            if chance(r, 35):
                tensor.strides = tuple(r.choice((1, 2, 3, 4, 5, 6, 8, 12, -1, -2, -3, 0)) for _ in tensor.shape)
                names = [f"{name}_strides" for name, one in case.tensors.items() if one is tensor]
                case.arguments |= {name: tensor.strides for name in names}
    for tensor in tensors:
        if tensor.is_empty:
            continue
        if tensor.alias_of is not None and chance(r, 60) and tensor.alias_of.strides == tensor.strides:
            tensor.offset = tensor.alias_of.offset
            continue
        unit = 16 if tensor in [case.tensors.get(name) for name in case.scratch] else alignment_bytes(tensor.dtype)
        low, _ = tensor.reach()
        at = RED_ZONE_BYTES + unit * r.randrange(window // unit + 1)
        tensor.offset = at - low * tensor.dtype.itemsize
    others = [tensor for tensor in case.tensors.values() if not tensor.is_empty]
    if len(others) > 1 and chance(r, 25):  # side by side, or one over the end of another
        first, second = r.sample(others, 2)
        unit = max(alignment_bytes(first.dtype), alignment_bytes(second.dtype), 16 * bool(case.scratch))
        low, _ = second.reach()
        end_of_first = first.offset + (first.reach()[1] + 1) * first.dtype.itemsize
        at = end_of_first + -end_of_first % unit - r.choice((0, 0, unit))
        second.offset = max(RED_ZONE_BYTES, at) - low * second.dtype.itemsize
    return case


def bytes_of(tensor: Tensor) -> set[int]:
    """The addresses, in the arena, of all bytes of all elements."""
    itemsize = tensor.dtype.itemsize
    starts = {
        tensor.offset + itemsize * sum(i * stride for i, stride in zip(index, tensor.strides) if i)
        for index in itertools.product(*map(range, tensor.shape))
    }
    return {start + byte for start in starts for byte in range(itemsize)}


def is_same(first: Tensor, second: Tensor) -> bool:
    strides = zip(first.strides, second.strides, first.shape)
    return (
        first.offset == second.offset
        and first.dtype.itemsize == second.dtype.itemsize
        and all(one == other for one, other, extent in strides if extent > 1)
    )


def overlaps(case: Case) -> bool:
    """The header's answer."""
    if case.tensors["dy" if "dy" in case.tensors else case.outputs[0]].is_empty:
        return False
    scratch = case.scratch if "dalpha" in case.tensors else ()
    used = {name: one for name, one in case.tensors.items() if name in scratch or name not in case.scratch}
    used = {name: one for name, one in used.items() if not one.is_empty}
    sets = {name: bytes_of(one) for name, one in used.items()}
    for out in (*case.outputs, *scratch):
        if shares_its_own_memory(used[out]):
            return True
        for name, one in used.items():
            may_be_same = name in IN_PLACE.get(case.function, ()) and out not in ("dalpha", "lse", *case.scratch)
            if name != out and not (may_be_same and is_same(used[out], one)) and sets[out] & sets[name]:
                return True
    return False


def functor_plan(library: Any, case: Case, arguments: Arguments) -> tuple[Status, int]:
    """What flowk_functor_plan() says of an elementwise call's tensors: the status, and how many launches."""
    values = dict(zip(case.arguments, arguments.values))
    names = [name for name in ("out", "x", "y", "z") if name in values]
    pointers, strides = (ctypes.c_void_p * len(names))(), (ctypes.c_void_p * len(names))()
    dtypes = (ctypes.c_int32 * len(names))(*(values[f"{name}_dtype"] for name in names))
    for index, name in enumerate(names):
        pointers[index], strides[index] = values[name], values[f"{name}_strides"]
    launch = abi.FunctorLaunch(ctypes.sizeof(abi.FunctorLaunch), abi.FUNCTOR_PARAMS_VERSION)
    operands = (*map(ctypes.addressof, (pointers, strides, dtypes)), len(names))
    status = library.flowk_functor_plan(*operands, values["rank"], values["shape"], 0, ctypes.addressof(launch))
    return Status(status), launch.num_parts


def check_overlap(r: random.Random, arrays: Any, library: Any, case: Case) -> None:
    arena = Arena(arrays, list(case.tensors.values()), generator(r))
    arguments = Arguments(case, arena)
    status = Status(getattr(library, case.function)(*arguments.values, None))
    expected = Status.OVERLAP if overlaps(case) else Status.SUCCESS
    assert status == expected, library.flowk_last_error().decode()
    if "op" in case.arguments and not any(isinstance(value, np.generic) for value in case.arguments.values()):
        planned, num_parts = functor_plan(library, case, arguments)
        assert planned == expected, library.flowk_last_error().decode()
        is_empty = case.tensors["out"].is_empty
        assert planned != Status.SUCCESS or (num_parts > 0) != is_empty
    if status == Status.OVERLAP:
        assert np.array_equal(arena.fetch(), arena.bytes)
        return
    # Other tensors' bytes are in the inputs: only what moves any bits has a reference for them.
    is_exact = _moved(case) and all(tensor.dtype != bool for tensor in case.tensors.values())
    check_memory(case, arena, with_values=is_exact)
