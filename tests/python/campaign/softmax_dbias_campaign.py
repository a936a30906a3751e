# SPDX-License-Identifier: Apache-2.0
"""Random calls of flowk_masked_softmax_backward_dbias."""

from __future__ import annotations

import ctypes
import random
from typing import Any

import numpy as np
from campaign_case import DTYPE_CODES, Case, Outputs, Tensor
from campaign_shapes import chance, contiguous, tensor
from softmax_campaign import gradient_case
from softmax_reference import Inputs, unmasked
from test_softmax_dbias import assert_right, reference, wide_of


def softmax_dbias_case(r: random.Random, library: Any, room: int = 0) -> Case:
    """A call of flowk_masked_softmax_backward with a bias that some of its dimensions share, with dx or without."""
    while True:
        options, of_dx = gradient_case(r, room)
        given, tensors = of_dx.arguments, of_dx.tensors
        shape, mask = given["shape"], given["mask"]
        dy, y, dx = (tensors[name] for name in ("dy", "y", "dx"))
        lies_apart = any(one.strides[-1] != 1 and shape[-1] != 1 for one in (dy, y, dx))
        if not lies_apart and (mask is None or (not mask.get("softcap") and "row_scale" not in tensors)):
            break
    given_dtype = y.dtype
    dtype = r.choice((given_dtype, np.dtype(wide_of(given_dtype.name))))
    extents = tuple(1 if chance(r, 50) else n for n in shape[:-1]) + shape[-1:]
    strides = contiguous(extents)
    dbias = tensor(r, dtype, extents, strides)
    over_y = tuple(0 if one != n else stride for one, n, stride in zip(extents, shape, strides))
    has_dx = dx in (dy, y) or chance(r, 70)
    needed = ctypes.c_size_t(0)
    query = library.flowk_masked_softmax_backward_dbias_workspace_bytes
    longs = [np.array(one, np.int64) for one in (shape, over_y)]
    status = query(*(len(shape), *(one.ctypes.data for one in longs), DTYPE_CODES[y.dtype], ctypes.addressof(needed)))
    assert status == 0, library.flowk_last_error()
    scratch = {}
    if needed.value:
        scratch["workspace"] = Tensor(np.dtype(np.uint8), (needed.value,), (1,), 16 * r.randrange(4))

    def check(before: Outputs, after: Outputs) -> None:
        if 0 in shape:
            assert not after["dbias"].any()
            return
        if has_dx:
            of_dx.check(before, after)
        keep = unmasked(options, Inputs(before["dy"], None, before.get("lengths"), None))
        dy, y = (before[name] for name in ("dy", "y"))
        _, want, size = reference(dy, y, extents, options.log, before.get("dlse"), keep)
        is_finite = np.isfinite(want) & np.isfinite(size)
        found = after["dbias"]
        assert (np.isfinite(found) >= is_finite).all() or found.dtype == np.float16
        assert_right(found[is_finite], want[is_finite], size[is_finite], wide_of(given_dtype.name))

    arguments = {name: given[name] for name in ("dy", "dy_strides", "y", "y_strides", "y_dtype")}
    arguments |= {name: given[name] if has_dx else None for name in ("dx", "dx_strides")}
    arguments |= {"dx_dtype": given["dx_dtype"], "dbias": dbias, "dbias_strides": over_y}
    arguments |= {"dbias_dtype": DTYPE_CODES[dtype]}
    arguments |= {name: given[name] for name in ("rank", "shape", "scale", "mask", "log_softmax")}
    arguments |= {"workspace": scratch.get("workspace"), "workspace_bytes": needed.value}
    used = {name: one for name, one in tensors.items() if has_dx or name != "dx"}
    outputs = tuple(name for name in ("dx", "dsinks") if name in used and name in of_dx.outputs)
    return Case(
        *("flowk_masked_softmax_backward_dbias", arguments, {**used, "dbias": dbias, **scratch}),
        *((*outputs, "dbias"), check, tuple(scratch)),
    )
