# SPDX-License-Identifier: Apache-2.0
"""Calls of the C functions of softmax that must fail, with their status and words, and calls that must succeed."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from c_calls import Bad, BufferCalls

from pyflowk import Status
from pyflowk._native.abi import SoftmaxMask

NUM_BYTES = 1024
X, Y, DX, DENSE, LENGTHS, BIAS, LSE = 64, 192, 320, 448, 512, 640, 768  # byte offsets in one buffer
FLOAT16, FLOAT32, FLOAT64, INT32, INT64 = 10, 12, 13, 4, 5
NAN = float("nan")
TENSORS = ("dense", "lengths", "bias", "lse", "dlse", "sinks", "row_scale", "dsinks", "x")  # of a mask
STRUCT_BYTES = ctypes.sizeof(SoftmaxMask)


# The correct call is (3, 4) float32 to float32 without a mask. x, y, and a mask's dense, lengths and bias are offsets
# in the buffer; None is NULL. Backward, dy is at X, y at Y and dx at DX.
INVALID, OVERLAP, OVERFLOW = Status.INVALID_ARGUMENT, Status.OVERLAP, Status.SIZE_OVERFLOW
UNSUPPORTED, MISALIGNED, NULL = Status.UNSUPPORTED_DTYPE, Status.MISALIGNED_POINTER, Status.NULL_POINTER
BAD_CALLS = {
    "rank 0": Bad(INVALID, ("rank", "0", "1 ... 32"), {"rank": 0}),
    "negative rank": Bad(INVALID, ("rank", "-1"), {"rank": -1}),
    "rank past the largest": Bad(INVALID, ("rank", "33", "32"), {"rank": 33, "shape": [1] * 33}),
    "negative extent": Bad(INVALID, ("shape[0]", "-3", ">= 0"), {"shape": [-3, 4]}),
    "negative extent beside an extent of 0": Bad(INVALID, ("shape[1]", "-1"), {"shape": [0, -1]}),
    "shape is NULL": Bad(NULL, ("shape", "NULL"), {"shape": None}),
    "scale is NaN": Bad(INVALID, ("scale", "nan", "finite"), {"scale": NAN}),
    "scale is infinite": Bad(INVALID, ("scale", "inf", "finite"), {"scale": -np.inf}),
    "log_softmax is 2": Bad(INVALID, ("log_softmax", "2", "0 or 1"), {"log": 2}),
    "the struct has no size": Bad(INVALID, ("struct_bytes", "0"), {"mask": {"struct_bytes": 0}}),
    "the struct has another size": Bad(
        INVALID, ("struct_bytes", str(STRUCT_BYTES)), {"mask": {"struct_bytes": STRUCT_BYTES + 8}}
    ),
    "causal is 2": Bad(INVALID, ("causal", "2", "0 or 1"), {"mask": {"causal": 2}}),
    "causal_offset is too large": Bad(
        INVALID, ("causal_offset", str(2**62 + 1), "2^62"), {"mask": {"causal": 1, "causal_offset": 2**62 + 1}}
    ),
    "causal_offset is too small": Bad(
        INVALID, ("causal_offset", str(-(2**63))), {"mask": {"window": 1, "causal_offset": -(2**63)}}
    ),
    "window is negative": Bad(INVALID, ("window", "-1"), {"mask": {"window": -1}}),
    "window is too large": Bad(INVALID, ("window", str(2**63 - 1)), {"mask": {"window": 2**63 - 1}}),
    "lengths_from_right is 3": Bad(
        INVALID, ("lengths_from_right", "3"), {"mask": {"lengths": LENGTHS, "lengths_from_right": 3}}
    ),
    "lengths_dtype is float32": Bad(
        UNSUPPORTED, ("lengths_dtype", "12", "int32 or int64"), {"mask": {"lengths": LENGTHS, "lengths_dtype": FLOAT32}}
    ),
    "lengths is misaligned": Bad(
        MISALIGNED,
        ("lengths", "multiple of 8"),
        {"mask": {"lengths": LENGTHS + 4, "lengths_dtype": INT64}},
    ),
    "lengths' strides overflow": Bad(
        OVERFLOW, ("lengths",), {"mask": {"lengths": LENGTHS, "lengths_strides": [2**62]}}
    ),
}
BAD_FORWARDS = {
    **BAD_CALLS,
    "x is NULL": Bad(NULL, ("x", "NULL"), {"x": None}),
    "y is NULL": Bad(NULL, ("y", "NULL"), {"y": None}),
    "x is misaligned": Bad(MISALIGNED, ("x", "multiple of 4"), {"x": X + 2}),
    "y is misaligned": Bad(MISALIGNED, ("y", "multiple of 4"), {"y": Y + 1}),
    "x's rows are not contiguous": Bad(
        INVALID, ("x_strides[1]", "2", "must be 1"), {"x_strides": [8, 2], "mask": {"causal": 1}}
    ),
    "x's rows run backward": Bad(
        INVALID, ("x_strides[1]", "-1", "must be 1"), {"x_strides": [4, -1], "mask": {"causal": 1}}
    ),
    "y's rows are not contiguous": Bad(
        INVALID, ("y_strides[1]", "0", "must be 1"), {"y_strides": [4, 0], "mask": {"causal": 1}}
    ),
    "x_dtype is int32": Bad(UNSUPPORTED, ("x_dtype", "4", "float16"), {"x_dtype": INT32}),
    "x_dtype is none": Bad(UNSUPPORTED, ("x_dtype", "99"), {"x_dtype": 99}),
    "y_dtype is float8": Bad(UNSUPPORTED, ("y_dtype", "14"), {"y_dtype": 14}),
    "float64 to float32": Bad(UNSUPPORTED, ("y_dtype", "12", "x_dtype"), {"x_dtype": FLOAT64}),
    "float32 to float64": Bad(UNSUPPORTED, ("y_dtype", "13", "x_dtype"), {"y_dtype": FLOAT64}),
    "float16 to bfloat16": Bad(UNSUPPORTED, ("y_dtype", "11", "x_dtype"), {"x_dtype": FLOAT16, "y_dtype": 11}),
    "y begins inside x": Bad(OVERLAP, ("y", "x"), {"y": X + 16}),
    "y is x with other strides": Bad(OVERLAP, ("y", "x"), {"y": X, "y_strides": [5, 1]}),
    "y is x of another type": Bad(OVERLAP, ("y", "x"), {"y": X, "y_dtype": FLOAT16}),
    "y's rows overlap": Bad(OVERLAP, ("y",), {"y_strides": [3, 1]}),
    "y repeats a column": Bad(OVERLAP, ("y", "stride 0"), {"y_strides": [4, 0]}),
    "y repeats a row": Bad(OVERLAP, ("y", "stride 0"), {"y_strides": [0, 1]}),
    "y overlaps the mask": Bad(OVERLAP, ("y", "dense"), {"mask": {"dense": Y + 44}}),
    "y overlaps the lengths": Bad(OVERLAP, ("y", "lengths"), {"mask": {"lengths": Y, "lengths_dtype": INT64}}),
    "y overlaps the bias": Bad(OVERLAP, ("y", "bias"), {"mask": {"bias": Y - 40}}),
    "the mask's rows are not contiguous": Bad(
        INVALID, ("dense_strides[1]", "0", "must be 1"), {"mask": {"dense": DENSE, "dense_strides": [4, 0]}}
    ),
    "the mask's strides overflow": Bad(OVERFLOW, ("dense",), {"mask": {"dense": DENSE, "dense_strides": [2**62, 1]}}),
    "the bias's rows are not contiguous": Bad(
        INVALID, ("bias_strides[1]", "3", "must be 1"), {"mask": {"bias": BIAS, "bias_strides": [4, 3]}}
    ),
    "the bias is misaligned": Bad(MISALIGNED, ("bias", "multiple of 4"), {"mask": {"bias": BIAS + 2}}),
    "a float16 bias of float32": Bad(
        UNSUPPORTED, ("bias_dtype", "10", "x_dtype"), {"mask": {"bias": BIAS, "bias_dtype": FLOAT16}}
    ),
    "a bias of integers": Bad(UNSUPPORTED, ("bias_dtype", "4"), {"mask": {"bias": BIAS, "bias_dtype": INT32}}),
    "lse is misaligned": Bad(MISALIGNED, ("lse", "multiple of 4"), {"mask": {"lse": LSE + 2}}),
    "lse of no columns": Bad(INVALID, ("shape[1] = 0", "lse"), {"shape": [3, 0], "mask": {"lse": LSE}}),
    "lse overlaps y": Bad(OVERLAP, ("lse", "y"), {"mask": {"lse": Y + 44}}),
    "lse overlaps x": Bad(OVERLAP, ("lse", "x"), {"mask": {"lse": X - 8}}),
    "lse overlaps the mask": Bad(OVERLAP, ("lse", "dense"), {"mask": {"lse": LSE, "dense": LSE + 8}}),
    "the mask's rows are not contiguous and reach lse": Bad(
        INVALID, ("dense_strides[1]", "2"), {"mask": {"lse": LSE, "dense": LSE - 8, "dense_strides": [4, 2]}}
    ),
    "lse overlaps the lengths": Bad(OVERLAP, ("lse", "lengths"), {"mask": {"lse": LSE, "lengths": LSE + 8}}),
    "lse overlaps the bias": Bad(OVERLAP, ("lse", "bias"), {"mask": {"lse": LSE, "bias": LSE - 40}}),
    "sinks is misaligned": Bad(MISALIGNED, ("sinks", "multiple of 4"), {"mask": {"sinks": LSE + 2}}),
    "sinks overlaps y": Bad(OVERLAP, ("sinks", "y"), {"mask": {"sinks": Y + 44}}),
    "sinks overlaps lse": Bad(OVERLAP, ("sinks", "lse"), {"mask": {"sinks": LSE + 8, "lse": LSE}}),
    "sinks' stride is too large": Bad(
        OVERFLOW, ("sinks_strides[0]", str(2**30)), {"mask": {"sinks": LSE, "sinks_strides": [2**30]}}
    ),
    "row_scale is misaligned": Bad(MISALIGNED, ("row_scale", "multiple of 4"), {"mask": {"row_scale": LSE + 1}}),
    "row_scale overlaps y": Bad(OVERLAP, ("row_scale", "y"), {"mask": {"row_scale": Y + 44}}),
    "softcap is negative": Bad(INVALID, ("softcap", "-1", "2^126"), {"mask": {"softcap": -1.0}}),
    "softcap is NaN": Bad(INVALID, ("softcap", "nan", "2^-126"), {"mask": {"softcap": NAN}}),
    "softcap is infinite": Bad(INVALID, ("softcap", "inf", "2^126"), {"mask": {"softcap": np.inf}}),
    "softcap is too small": Bad(INVALID, ("softcap", "2^-126"), {"mask": {"softcap": 2.0**-127}}),
    "a softcap of too many rows": Bad(
        OVERFLOW, ("rows", str(2**31), "2^31"), {"shape": [2**31, 1], "y": X, "mask": {"softcap": 1.0}}
    ),
    "lse has too many rows": Bad(
        OVERFLOW, ("lse", str(2**31), "2^31"), {"shape": [2**31, 1], "y": X, "mask": {"lse": LSE}}
    ),
    "extents whose product overflows": Bad(OVERFLOW, ("x",), {"shape": [2**40, 2**29]}),
    "x's strides overflow": Bad(OVERFLOW, ("x", str(2**61)), {"x_strides": [2**61, 1]}),
    "y's strides overflow": Bad(OVERFLOW, ("y",), {"y_strides": [-(2**63), 1]}),
}
BAD_BACKWARDS = {
    **BAD_CALLS,
    "dy is NULL": Bad(NULL, ("dy", "NULL"), {"dy": None}),
    "y is NULL": Bad(NULL, ("y", "NULL"), {"y": None}),
    "dx is NULL": Bad(NULL, ("dx", "NULL"), {"dx": None}),
    "dy is misaligned": Bad(MISALIGNED, ("dy", "multiple of 4"), {"dy": X + 2}),
    "dx is misaligned": Bad(MISALIGNED, ("dx", "multiple of 4"), {"dx": DX + 2}),
    "dy's rows are not contiguous": Bad(
        INVALID, ("dy_strides[1]", "2", "must be 1"), {"dy_strides": [8, 2], "mask": {"causal": 1}}
    ),
    "y's rows are not contiguous": Bad(
        INVALID, ("y_strides[1]", "2", "must be 1"), {"y_strides": [8, 2], "mask": {"causal": 1}}
    ),
    "dx's rows are not contiguous": Bad(
        INVALID, ("dx_strides[1]", "2", "must be 1"), {"dx_strides": [8, 2], "mask": {"causal": 1}}
    ),
    "y_dtype is bool": Bad(UNSUPPORTED, ("y_dtype", "1", "float16"), {"y_dtype": 1}),
    "dx_dtype is none": Bad(UNSUPPORTED, ("dx_dtype", "0"), {"dx_dtype": 0}),
    "float32 to float64": Bad(UNSUPPORTED, ("dx_dtype", "13", "y_dtype"), {"dx_dtype": FLOAT64}),
    "dx begins inside dy": Bad(OVERLAP, ("dx", "dy"), {"dx": X + 16}),
    "dx begins inside y": Bad(OVERLAP, ("dx", "y"), {"dx": Y + 16}),
    "dx's rows overlap": Bad(OVERLAP, ("dx",), {"dx_strides": [3, 1]}),
    "dlse is misaligned": Bad(MISALIGNED, ("dlse", "multiple of 4"), {"mask": {"dlse": LSE + 1}}),
    "dx overlaps dlse": Bad(OVERLAP, ("dx", "dlse"), {"mask": {"dlse": DX + 40}}),
    "a softcap without x": Bad(NULL, ("mask->x is NULL", "softcap"), {"mask": {"softcap": 2.0}}),
    "x is misaligned": Bad(MISALIGNED, ("mask->x", "multiple of 4"), {"mask": {"softcap": 2.0, "x": LSE + 2}}),
    "x's rows are not contiguous": Bad(
        INVALID, ("mask->x_strides[1]", "2", "must be 1"), {"mask": {"softcap": 2.0, "x": LSE, "x_strides": [8, 2]}}
    ),
    "dx overlaps x": Bad(OVERLAP, ("dx", "mask->x"), {"mask": {"softcap": 2.0, "x": DX + 44}}),
    "dx overlaps row_scale": Bad(OVERLAP, ("dx", "row_scale"), {"mask": {"row_scale": DX + 44}}),
    "dsinks without sinks": Bad(NULL, ("mask->sinks is NULL", "dsinks"), {"mask": {"dsinks": LSE, "lse": BIAS}}),
    "dsinks without lse": Bad(NULL, ("mask->lse is NULL", "dsinks"), {"mask": {"dsinks": LSE, "sinks": BIAS}}),
    "dsinks is misaligned": Bad(
        MISALIGNED, ("dsinks", "multiple of 4"), {"mask": {"dsinks": LSE + 2, "sinks": BIAS, "lse": DENSE}}
    ),
    "dsinks of no columns": Bad(
        INVALID,
        ("shape[1] = 0", "dsinks"),
        {"shape": [3, 0], "mask": {"dsinks": LSE, "sinks": BIAS, "lse": DENSE}},
    ),
    "dsinks overlaps lse": Bad(OVERLAP, ("dsinks", "lse"), {"mask": {"dsinks": LSE, "sinks": BIAS, "lse": LSE + 8}}),
    "dsinks overlaps dx": Bad(OVERLAP, ("dsinks", "dx"), {"mask": {"dsinks": DX, "sinks": BIAS, "lse": LSE}}),
    "dsinks overlaps dy": Bad(OVERLAP, ("dsinks", "dy"), {"mask": {"dsinks": X, "sinks": BIAS, "lse": LSE}}),
    "dx overlaps the lengths": Bad(OVERLAP, ("dx", "lengths"), {"mask": {"lengths": DX + 44}}),
}
GOOD_FORWARDS = {
    "the call without changes": {},
    "an extent of 0 needs no pointers": {"shape": [0, 4], "x": None, "y": None},
    "no columns are success": {"shape": [3, 0], "x": None, "y": None, "mask": {"dense": DENSE, "causal": 1}},
    "y is x": {"y": X},
    "y is x, of one row, with another stride": {"y": X, "shape": [1, 4], "y_strides": [9, 1]},
    "an extent of 1 has any stride": {"shape": [3, 1], "x_strides": [2, 5], "y_strides": [3, 0]},
    "x repeats a row": {"x_strides": [0, 1]},
    "an empty mask": {"mask": {}},
    "all masks together": {
        "mask": {"dense": DENSE, "lengths": LENGTHS, "bias": BIAS, "causal": 1, "window": 2, "causal_offset": -(2**62)}
    },
    "strides of masks are NULL": {"mask": {"dense": DENSE, "lengths": LENGTHS, "bias": BIAS, "strides": None}},
    "lse of no rows": {"shape": [0, 4], "x": None, "y": None, "mask": {"lse": LSE}},
    "lse beside the lengths": {"mask": {"lse": LSE, "lengths": LENGTHS, "dlse": Y}},
    "sinks, a scale per row and a softcap": {"mask": {"sinks": LSE, "row_scale": LSE, "softcap": 3.0, "dsinks": 1}},
    "one sink for all rows": {"mask": {"sinks": LSE, "sinks_strides": [0]}},
    "rank 1 with one length": {"rank": 1, "shape": [4], "mask": {"lengths": LENGTHS, "lengths_strides": []}},
}
GOOD_BACKWARDS = {
    "the call without changes": {},
    "an extent of 0 needs no pointers": {"shape": [0, 4], "dy": None, "y": None, "dx": None},
    "dx is dy": {"dx": X},
    "dx is y": {"dx": Y},
    "dlse may be dy's memory": {"mask": {"dlse": X, "lse": DX}},
    "dense and bias are ignored": {"mask": {"dense": 1, "bias": 3, "bias_dtype": 99, "lengths": LENGTHS}},
    "sinks and lse are ignored": {"mask": {"sinks": 1, "lse": 3}},
    "dsinks, and x of a softcap": {
        "mask": {"sinks": BIAS, "lse": LSE, "dsinks": DENSE, "softcap": 3.0, "x": Y, "row_scale": LSE}
    },
    "dx may be written over the mask": {"mask": {"dense": DX, "bias": DX}},
}


class Calls(BufferCalls):
    def __init__(self, arrays: Any, library: Any) -> None:
        super().__init__(arrays, library, np.arange(NUM_BYTES, dtype=np.uint16).astype(np.uint8) % 64)

    def _mask(self, members: dict[str, Any] | None, keep_alive: list[Any]) -> Any:
        if members is None:
            return None
        mask = SoftmaxMask(struct_bytes=ctypes.sizeof(SoftmaxMask), lengths_dtype=INT32, bias_dtype=FLOAT32)
        for name, value in members.items():
            if name in TENSORS:
                setattr(mask, name, self._address(value))
            elif name.endswith("_strides"):
                keep_alive.append(np.array(value, np.int64))
                setattr(mask, name, keep_alive[-1].ctypes.data)
            elif name != "strides":
                setattr(mask, name, value)
        keep_alive.append(mask)
        return ctypes.addressof(mask)

    def _run(self, name: str, tensors: list[Any], explain: Any, changes: dict[str, Any]) -> int:
        """`tensors`: offsets, lists of strides (None: NULL) and dtypes, in the order of the call."""
        given = {"rank": 2, "shape": [3, 4], "scale": 1.0, "mask": None, "log": 0} | changes
        keep_alive: list[Any] = []

        def longs(values: list[int] | None) -> int | None:
            if values is None:
                return None
            keep_alive.append(np.array(values, np.int64))
            return keep_alive[-1].ctypes.data

        arguments = [
            *tensors,
            *(given["rank"], longs(given["shape"]), given["scale"], self._mask(given["mask"], keep_alive)),
            given["log"],
        ]
        arguments = [longs(argument) if isinstance(argument, list) else argument for argument in arguments]
        if explain is None:
            return getattr(self._library, name)(*arguments, None)
        return getattr(self._library, name + "_explain")(*arguments, *explain)

    def forward(self, explain: Any = None, **changes: Any) -> int:
        """flowk_masked_softmax, or its explain into (text, text_bytes)."""
        given = {"x": X, "x_strides": None, "x_dtype": FLOAT32, "y": Y, "y_strides": None, "y_dtype": FLOAT32} | changes
        tensors = [
            *(self._address(given["x"]), given["x_strides"], given["x_dtype"]),
            *(self._address(given["y"]), given["y_strides"], given["y_dtype"]),
        ]
        return self._run("flowk_masked_softmax", tensors, explain, changes)

    def backward(self, explain: Any = None, **changes: Any) -> int:
        """flowk_masked_softmax_backward, or its explain."""
        given = {"dy": X, "y": Y, "dx": DX, "dy_strides": None, "y_strides": None, "dx_strides": None} | changes
        given = {"y_dtype": FLOAT32, "dx_dtype": FLOAT32} | given
        tensors = [
            *(self._address(given["dy"]), given["dy_strides"]),
            *(self._address(given["y"]), given["y_strides"], given["y_dtype"]),
            *(self._address(given["dx"]), given["dx_strides"], given["dx_dtype"]),
        ]
        return self._run("flowk_masked_softmax_backward", tensors, explain, changes)
