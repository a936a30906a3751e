# SPDX-License-Identifier: Apache-2.0
"""Random calls of flowk_cross_entropy and flowk_cross_entropy_backward."""

from __future__ import annotations

import ctypes
import random
from typing import Any

import numpy as np
from campaign_case import DTYPE_CODES, Case, Outputs, Tensor
from campaign_shapes import chance, contiguous, generator, given_pointer, given_strides, shape, tensor
from cross_entropy_reference import DTYPES, close, gradient, gradient_error, reference, row_error
from softmax_campaign import LONG, MIDDLE, SHORT, row_strides

from pyflowk._native.abi import CrossEntropyOptions

IGNORED = (-100, 0, 3)


class _Problem:
    """Logits, targets and options."""

    def __init__(self, r: random.Random, room: int) -> None:
        self.name = r.choice(tuple(DTYPES))
        dtype, columns = DTYPES[self.name], r.choice(r.choice((SHORT, SHORT, MIDDLE, LONG)))
        columns = min(columns, room) if room else columns
        self.leading = shape(r, max_rank=31, room=max(1, min(60, (room or 20000) // columns)))
        self.columns = 0 if chance(r, 2) else columns
        self.extents = (*self.leading, self.columns)
        self.options = {
            "scale": r.choice((1.0, 1.0, 0.3, -1.5)),
            "softcap": r.choice((0.0, 0.0, 5.0)),
            "label_smoothing": r.choice((0.0, 0.0, 0.1, 1.0)),
            "z_loss": r.choice((0.0, 0.0, 1e-2)),
            "ignore_index": r.choice(IGNORED),
        }
        self.is_empty = 0 in self.extents
        self.result_dtype = np.dtype(np.float64 if self.name == "float64" else np.float32)
        self.has_special = chance(r, 20)
        rng = generator(r)

        def values(shape: tuple[int, ...]) -> np.ndarray:
            some = 4 * rng.standard_normal(shape)
            if self.has_special:
                kind = rng.integers(0, 8 * self.columns, shape)
                some = np.where(kind == 0, np.nan, np.where(kind == 1, np.inf, np.where(kind < 30, -np.inf, some)))
            return some.astype(dtype)

        def targets(shape: tuple[int, ...]) -> np.ndarray:
            wild = rng.choice([-100, -1, self.columns, 2**31 - 1, -(2**31)], shape)
            return np.where(rng.integers(0, 8, shape) == 0, wild, rng.integers(0, max(self.columns, 1), shape))

        self.logits = tensor(r, dtype, self.extents, row_strides(r, self.extents), values)
        of_targets = np.dtype(r.choice((np.int32, np.int64)))
        self.targets = tensor(
            r, of_targets, self.leading, contiguous(self.leading), lambda shape: targets(shape).astype(of_targets)
        )

    def inputs(self, r: random.Random) -> dict[str, Any]:
        return {
            "logits": given_pointer(r, self.logits, self.is_empty),
            "logits_strides": given_strides(r, self.logits),
            "dtype": DTYPE_CODES[self.logits.dtype],
            "targets": given_pointer(r, self.targets, self.is_empty),
            "targets_dtype": DTYPE_CODES[self.targets.dtype],
        }

    def sizes(self) -> dict[str, Any]:
        options = CrossEntropyOptions(struct_bytes=ctypes.sizeof(CrossEntropyOptions), **self.options)
        return {"rank": len(self.extents), "shape": self.extents, "options": options}

    def row(self, r: random.Random, scale: float | None = None) -> Tensor:
        """A number per row: an output, or random numbers of this size."""
        rng = generator(r)

        def values(shape: tuple[int, ...]) -> np.ndarray:
            return (scale * rng.standard_normal(shape)).astype(self.result_dtype)

        return tensor(r, self.result_dtype, self.leading, contiguous(self.leading), None if scale is None else values)

    def known(self, before: Outputs) -> tuple[np.ndarray, np.ndarray]:
        return before["logits"].reshape(-1, self.columns), before["targets"].reshape(-1)


def cross_entropy_case(r: random.Random, library: Any, room: int = 0) -> Case:
    problem = _Problem(r, room)
    names = r.choice((("loss",), ("loss", "lse"), ("lse",), ("loss", "lse", "entropy")))
    outputs = {name: problem.row(r) for name in names}
    needed, extents = ctypes.c_size_t(0), (ctypes.c_int64 * len(problem.extents))(*problem.extents)
    code = DTYPE_CODES[problem.logits.dtype]
    query = library.flowk_cross_entropy_workspace_bytes
    assert query(len(extents), extents, code, ctypes.byref(needed)) == 0, library.flowk_last_error()
    scratch = {}
    if needed.value:
        scratch["workspace"] = Tensor(np.dtype(np.uint8), (needed.value,), (1,), 16 * r.randrange(4))

    def check(before: Outputs, after: Outputs) -> None:
        if problem.is_empty:
            return
        known = reference(*problem.known(before), **problem.options)
        lse = np.abs(np.where(np.isfinite(known.lse), known.lse, 0))
        factors = {"loss": 2 * (1 + 2 * problem.options["z_loss"] * lse), "lse": 1, "entropy": 2}
        for name in names:
            error = factors[name] * row_error(known, problem.name)
            close(after[name].reshape(-1), getattr(known, name), error)

    arguments = {
        **problem.inputs(r),
        **{name: outputs.get(name) for name in ("loss", "lse", "entropy")},
        "partials": None,
        **problem.sizes(),
        "workspace": scratch.get("workspace"),
        "workspace_bytes": needed.value,
    }
    tensors = {"logits": problem.logits, "targets": problem.targets, **outputs, **scratch}
    return Case("flowk_cross_entropy", arguments, tensors, names, check, tuple(scratch))


def cross_entropy_backward_case(r: random.Random, room: int = 0) -> Case:
    problem = _Problem(r, room)
    problem.has_special = False
    names = r.choice((("dloss",), ("dloss", "dlse"), ("dlse",)))
    given = {name: problem.row(r, 1.0) for name in names}
    lse = problem.row(r)
    in_place = chance(r, 40)
    # The lse is of the logits that are written, so no two of them share memory.
    problem.logits.strides = row_strides(r, problem.extents, is_output=True)
    strides = row_strides(r, problem.extents, is_output=True)
    dlogits = problem.logits if in_place else tensor(r, problem.logits.dtype, problem.extents, strides)
    fill = problem.logits.values
    kept: dict[str, np.ndarray] = {}

    def logits(shape: tuple[int, ...]) -> np.ndarray:
        if not kept:  # in place they are asked for twice
            kept["logits"] = fill(shape)
        return kept["logits"]

    def lse_of(shape: tuple[int, ...]) -> np.ndarray:
        rows = kept["logits"].reshape(-1, problem.columns)
        scores = {name: problem.options[name] for name in ("scale", "softcap")}
        return reference(rows, np.zeros(len(rows), int), **scores).lse.reshape(shape).astype(problem.result_dtype)

    problem.logits.values = logits
    if not problem.is_empty:
        lse.values = lse_of

    def check(before: Outputs, after: Outputs) -> None:
        if problem.is_empty:
            return
        rows, targets = problem.known(before)
        grads = [before[name].reshape(-1) if name in given else 0.0 for name in ("dloss", "dlse")]
        expected = gradient(rows, targets, *grads, **problem.options)
        scores = {name: problem.options[name] for name in ("scale", "softcap")}
        known = reference(rows, np.zeros(len(rows), int), **scores)
        sizes = [np.abs(one) * (1 + 2 * problem.options["z_loss"] * np.abs(known.lse)) for one in grads]
        error = gradient_error(known, expected, sizes, row_error(known, problem.name), problem.name, problem.options)
        close(after["dlogits"].reshape(rows.shape), expected, error)

    arguments = {
        **problem.inputs(r),
        "lse": lse,
        "entropy": None,
        **{name: given.get(name) for name in ("dloss", "dlse", "dentropy")},
        "dlogits": dlogits,
        "dlogits_strides": dlogits.strides,
        **problem.sizes(),
    }
    if in_place:
        arguments["logits_strides"] = dlogits.strides
    tensors = {"logits": problem.logits, "targets": problem.targets, "lse": lse, **given, "dlogits": dlogits}
    return Case("flowk_cross_entropy_backward", arguments, tensors, ("dlogits",), check)
