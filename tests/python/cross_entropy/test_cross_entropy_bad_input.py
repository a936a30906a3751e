# SPDX-License-Identifier: Apache-2.0
"""Bad calls of the cross-entropy functions, in Python and in C: what they say, and that nothing is written."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pyflowk
from pyflowk._native import library as _library
from pyflowk._native.abi import CrossEntropyOptions, DType, Status

X, T = np.ones((3, 4), np.float32), np.ones(3, np.int64)
ROW = np.ones(3, np.float32)
PARTIALS = np.ones((2, 3, 5), np.float32)
forward, backward = pyflowk.cross_entropy, pyflowk.cross_entropy_backward
merge, partials = pyflowk.cross_entropy_merge, pyflowk.cross_entropy_partials

IN_PYTHON: dict[str, tuple[type[Exception], str, Callable[[], Any]]] = {
    "logits of integers": (TypeError, "logits has dtype int32", lambda: forward(X.astype("i4"), T)),
    "no dimensions": (ValueError, "logits has no dimensions", lambda: forward(np.array(1, "f4"), np.array(1))),
    "targets' shape": (ValueError, r"targets has shape \(2,\), must be \(3,\)", lambda: forward(X, T[:2])),
    "targets of floats": (TypeError, "targets has dtype float32, must be int32 or int64", lambda: forward(X, ROW)),
    "targets of a list": (TypeError, "targets is a list", lambda: forward(X, [1, 2, 3])),
    "scale": (ValueError, "scale = inf, must be finite", lambda: forward(X, T, scale=float("inf"))),
    "large scale": (ValueError, r"scale = .*must be within \+-2\*\*126", lambda: forward(X, T, scale=1e39)),
    "softcap": (ValueError, "softcap = -1.0, must be finite and >= 0", lambda: forward(X, T, softcap=-1.0)),
    "tiny softcap": (
        pyflowk.FlowkValueError,
        "options->softcap = 1e-40, must be",
        lambda: forward(X, T, softcap=1e-40),
    ),
    "label_smoothing": (ValueError, "label_smoothing = 1.5, must be in 0", lambda: forward(X, T, label_smoothing=1.5)),
    "z_loss": (ValueError, "z_loss = nan", lambda: forward(X, T, z_loss=float("nan"))),
    "ignore_index": (TypeError, "ignore_index is 1.0, must be an integer", lambda: forward(X, T, ignore_index=1.0)),
    "entropy": (TypeError, "entropy = 1, must be True or False", lambda: forward(X, T, entropy=1)),
    "entropy_out": (ValueError, "entropy_out is given", lambda: forward(X, T, entropy_out=ROW.copy())),
    "loss_out": (ValueError, r"loss_out has shape \(2,\)", lambda: forward(X, T, loss_out=ROW[:2].copy())),
    "loss_out's type": (TypeError, "loss_out has dtype float64", lambda: forward(X, T, loss_out=np.ones(3))),
    "loss_out's strides": (ValueError, "loss_out has strides", lambda: forward(X, T, loss_out=np.ones(6, "f4")[::2])),
    "out": (ValueError, r"out has shape \(3, 5\)", lambda: backward(X, T, ROW, ROW, out=np.ones((3, 5), "f4"))),
    "out's type": (TypeError, "out has dtype float64", lambda: backward(X, T, ROW, ROW, out=np.ones((3, 4)))),
    "lse's type": (TypeError, "lse has dtype float64, must be float32", lambda: backward(X, T, np.ones(3), ROW)),
    "dloss's shape": (ValueError, r"dloss has shape \(2,\)", lambda: backward(X, T, ROW, ROW[:2])),
    "no gradient": (TypeError, "dloss, dlse and dentropy are None", lambda: backward(X, T, ROW)),
    "no entropy": (TypeError, "entropy is None", lambda: backward(X, T, ROW, dentropy=ROW)),
    "vocab_size": (ValueError, "vocab_size = 5, must be >= 6", lambda: partials(X, T, 2, 5)),
    "vocab_start": (ValueError, "vocab_start = -1, must be in 0", lambda: partials(X, T, -1, 5)),
    "partials' shape": (ValueError, r"partials has shape \(3, 4\)", lambda: merge(X, T, 4)),
    "partials' type": (TypeError, "partials has dtype float16", lambda: merge(PARTIALS.astype("f2"), T, 4)),
    "overlap": (pyflowk.FlowkError, "overlap", lambda: backward(M[:3], T, ROW, ROW, out=M[1:])),
}
M = np.ones((4, 4), np.float32)


@pytest.mark.usefixtures("host_library")
@pytest.mark.parametrize(("kind", "text", "call"), IN_PYTHON.values(), ids=list(IN_PYTHON))
def test_in_python(kind: type[Exception], text: str, call: Callable[[], Any]) -> None:
    for _ in range(2):
        with pytest.raises(kind, match=text):
            call()


class Call:
    """Arguments of flowk_cross_entropy() or its gradient on host memory, to be changed."""

    def __init__(self) -> None:
        self.arrays = {name: np.full(3, -7.0, np.float32) for name in ("loss", "lse", "entropy")}
        self.x, self.targets, self.dlogits = np.ones((3, 40000), np.float32), T.copy(), np.full((3, 40000), -7, "f4")
        self.options = CrossEntropyOptions(ctypes.sizeof(CrossEntropyOptions), 1.0, 0.0, 0.0, 0.0, -100, 0, 0)
        self.workspace = np.zeros(4096, np.uint8)
        self.given: dict[str, Any] = {
            "logits": self.x.ctypes.data,
            "logits_strides": None,
            "dtype": DType.FLOAT32,
            "targets": self.targets.ctypes.data,
            "targets_dtype": DType.INT64,
            **{name: one.ctypes.data for name, one in self.arrays.items()},
            "partials": None,
            "rank": 2,
            "shape": (3, 40000),
            "workspace": (self.workspace.ctypes.data + 15) // 16 * 16,
            "workspace_bytes": 4000,
        }
        self.gradient: dict[str, Any] = {"dloss": self.given["entropy"], "dlse": None, "dentropy": None}
        self.gradient |= {"dlogits": self.dlogits.ctypes.data, "dlogits_strides": None}

    def run(self, library: Any, is_backward: bool) -> int:
        g = {**self.given, **self.gradient}
        for name in ("logits_strides", "dlogits_strides", "shape"):
            if isinstance(g[name], tuple):
                setattr(self, f"keep_{name}", (ctypes.c_int64 * 2)(*g[name]))
                g[name] = ctypes.addressof(getattr(self, f"keep_{name}"))
        first = [g[name] for name in ("logits", "logits_strides", "dtype", "targets", "targets_dtype")]
        last = [g["rank"], g["shape"], ctypes.addressof(self.options)]
        if is_backward:
            names = ("lse", "entropy", "dloss", "dlse", "dentropy", "dlogits", "dlogits_strides")
            return library.flowk_cross_entropy_backward(*first, *(g[name] for name in names), *last, None)
        names = ("loss", "lse", "entropy", "partials")
        room = g["workspace"], g["workspace_bytes"]
        return library.flowk_cross_entropy(*first, *(g[name] for name in names), *last, *room, None)


NAN = float("nan")
IN_C: dict[str, tuple[Status, str, dict[str, Any]]] = {
    "logits": (Status.NULL_POINTER, "logits = NULL", {"logits": None}),
    "misaligned": (Status.MISALIGNED_POINTER, "logits = ", {"logits": X.ctypes.data + 1}),
    "targets": (Status.NULL_POINTER, "targets = NULL", {"targets": None}),
    "dtype": (Status.UNSUPPORTED_DTYPE, "dtype = int32", {"dtype": DType.INT32}),
    "unknown dtype": (Status.UNSUPPORTED_DTYPE, "dtype = 99", {"dtype": 99}),
    "targets_dtype": (Status.UNSUPPORTED_DTYPE, "targets_dtype = int16", {"targets_dtype": DType.INT16}),
    "rank": (Status.INVALID_ARGUMENT, "rank = 0", {"rank": 0}),
    "shape": (Status.INVALID_ARGUMENT, "shape[0] = -1", {"shape": (-1, 4)}),
    "columns": (Status.INVALID_ARGUMENT, "must be <= 2^30", {"shape": (3, 2**30 + 1)}),
    "size": (Status.SIZE_OVERFLOW, "logits", {"shape": (2**45, 2**28)}),
    "strides": (Status.INVALID_ARGUMENT, "logits_strides[1] = 2", {"logits_strides": (80000, 2)}),
    "struct_bytes": (Status.INVALID_ARGUMENT, "options->struct_bytes = 8", {"options": {"struct_bytes": 8}}),
    "scale": (Status.INVALID_ARGUMENT, "options->scale = nan", {"options": {"scale": NAN}}),
    "softcap": (Status.INVALID_ARGUMENT, "options->softcap = -1", {"options": {"softcap": -1}}),
    "label_smoothing": (Status.INVALID_ARGUMENT, "options->label_smoothing = 2", {"options": {"label_smoothing": 2}}),
    "z_loss": (Status.INVALID_ARGUMENT, "options->z_loss = -1", {"options": {"z_loss": -1}}),
    "vocab_start": (Status.INVALID_ARGUMENT, "options->vocab_start = -1", {"options": {"vocab_start": -1}}),
    "vocab_size": (Status.INVALID_ARGUMENT, "options->vocab_size = 3", {"options": {"vocab_size": 3}}),
}
FORWARD = {
    "shard": (Status.INVALID_ARGUMENT, "options->vocab_start = 1", {"options": {"vocab_start": 1}}),
    "larger": (Status.INVALID_ARGUMENT, "options->vocab_size = 50000", {"options": {"vocab_size": 50000}}),
    "no outputs": (Status.NULL_POINTER, "all outputs = NULL", {"loss": None, "lse": None, "entropy": None}),
    "partials": (Status.INVALID_ARGUMENT, "partials = ", {"partials": X.ctypes.data}),
    "no workspace": (Status.NULL_POINTER, "workspace = NULL, must hold 600 bytes", {"workspace": None}),
    "small workspace": (Status.INVALID_ARGUMENT, "workspace_bytes = 9, must be >= 600", {"workspace_bytes": 9}),
    "odd workspace": (Status.MISALIGNED_POINTER, "workspace = ", {"workspace": 16 * 10**9 + 8}),
}
BACKWARD = {
    "lse": (Status.NULL_POINTER, "lse = NULL", {"lse": None}),
    "no gradients": (Status.NULL_POINTER, "dloss = NULL, dlse = NULL and dentropy = NULL", {"dloss": None}),
    "no entropy": (Status.NULL_POINTER, "entropy = NULL", {"entropy": None, "dentropy": ROW.ctypes.data}),
    "dlogits": (Status.NULL_POINTER, "dlogits = NULL", {"dlogits": None}),
    "repeated rows": (Status.OVERLAP, "dlogits", {"dlogits_strides": (0, 1)}),
}
CALLS = [
    *((False, *one) for one in (IN_C | FORWARD).values()),
    *((True, *one) for one in (IN_C | BACKWARD).values()),
]


@pytest.mark.usefixtures("host_library")
@pytest.mark.parametrize(("is_backward", "status", "text", "changes"), CALLS)
def test_in_c(is_backward: bool, status: Status, text: str, changes: dict[str, Any]) -> None:
    library = _library.for_device(None, "the test")
    call = Call()
    for name, value in changes.items():
        if name == "options":
            for member, own in value.items():
                setattr(call.options, member, own)
        else:
            (call.gradient if name in call.gradient else call.given)[name] = value
    assert call.run(library, is_backward) == status
    assert text in library.flowk_last_error().decode()
    assert all((one == -7).all() for one in (*call.arrays.values(), call.dlogits))


@pytest.mark.usefixtures("host_library")
def test_outputs_must_not_overlap() -> None:
    library = _library.for_device(None, "the test")
    call = Call()
    for name, value in (
        ("lse", call.given["loss"]),
        ("loss", call.given["targets"]),
        ("workspace", call.given["logits"] // 16 * 16),
    ):
        own = Call()
        own.__dict__.update(keep=call, given={**call.given, name: value})
        assert own.run(library, False) == Status.OVERLAP, name
    assert call.run(library, False) == Status.SUCCESS and call.run(library, True) == Status.SUCCESS
    call.gradient["dlogits"] = call.given["logits"] + 4
    assert call.run(library, True) == Status.OVERLAP
