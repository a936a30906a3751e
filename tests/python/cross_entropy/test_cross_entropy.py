# SPDX-License-Identifier: Apache-2.0
"""cross_entropy, its gradient and its shards against extended precision."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from cross_entropy_reference import DTYPES, EPSILON, close, gradient, gradient_error, reference, row_error
from library_under_test import HostArrays

import pyflowk

OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "scale": {"scale": 0.37},
    "negative": {"scale": -1.5},
    "softcap": {"softcap": 5.0},
    "softcap and scale": {"softcap": 3.0, "scale": -2.0},
    "label_smoothing": {"label_smoothing": 0.1},
    "z_loss": {"z_loss": 1e-3},
    "all": {"scale": 1.25, "softcap": 8.0, "label_smoothing": 0.2, "z_loss": 0.01, "ignore_index": 3},
}
# One column, less than a vector, part of a warp, one warp, one slice, and one that is cut.
COLUMNS = (1, 7, 100, 1000, 8193, 20001)


def problem(rows: int, columns: int, dtype: Any, targets_dtype: Any = np.int64, seed: int = 0) -> tuple[Any, Any]:
    generator = np.random.default_rng([seed, rows, columns])
    logits = (4 * generator.standard_normal((rows, columns))).astype(dtype)
    return logits, generator.integers(0, columns, rows).astype(targets_dtype)


@pytest.mark.parametrize("options", OPTIONS.values(), ids=list(OPTIONS))
@pytest.mark.parametrize("columns", COLUMNS)
@pytest.mark.parametrize("name", DTYPES)
def test_results_and_gradients(name: str, columns: int, options: dict[str, Any], arrays: HostArrays) -> None:
    logits, targets = problem(5, columns, DTYPES[name], np.int32 if columns % 2 else np.int64)
    targets[1] = options.get("ignore_index", -100)
    known = reference(logits, targets, **options)
    x, t = arrays.put(logits), arrays.put(targets)
    results = pyflowk.cross_entropy(x, t, entropy=True, **options)
    loss, lse, entropy = map(arrays.fetch, results)
    assert loss.dtype == lse.dtype == entropy.dtype == (np.float64 if name == "float64" else np.float32)
    error = row_error(known, name)
    size = 1 + 2 * options.get("z_loss", 0) * np.abs(np.where(np.isfinite(known.lse), known.lse, 0))
    close(loss, known.loss, 2 * error * size)
    close(lse, known.lse, error)
    close(entropy, known.entropy, 2 * error)
    without = pyflowk.cross_entropy(x, t, **options)
    assert len(without) == 2
    close(arrays.fetch(without[0]), known.loss, 2 * error * size)

    generator = np.random.default_rng(1)
    grads = [generator.standard_normal(5).astype(loss.dtype) for _ in range(3)]
    dloss, dlse, dentropy = map(arrays.put, grads)
    given = {"dlse": dlse, "entropy": results[2], "dentropy": dentropy}
    dlogits = arrays.fetch(pyflowk.cross_entropy_backward(x, t, results[1], dloss, **given, **options))
    assert dlogits.dtype == logits.dtype and dlogits.shape == logits.shape
    expected = gradient(logits, targets, *grads, **options)
    close(dlogits, expected, gradient_error(known, expected, grads, error, name, options))
    alone = arrays.fetch(pyflowk.cross_entropy_backward(x, t, results[1], dloss, **options))
    expected = gradient(logits, targets, grads[0], **options)
    close(alone, expected, gradient_error(known, expected, grads, error, name, options))
    assert pyflowk.cross_entropy_backward(x, t, results[1], dloss, out=x, **options) is x
    np.testing.assert_array_equal(arrays.fetch(x).view(np.uint8), alone.view(np.uint8))


@pytest.mark.parametrize("name", DTYPES)
def test_rules_of_infinities_nan_and_targets(name: str, arrays: HostArrays) -> None:
    rows, columns = 10, 9001
    logits, targets = problem(rows, columns, DTYPES[name])
    targets[:4] = 3, 8999, columns, -1
    logits[0] = -np.inf
    logits[1, 8999] = -np.inf
    logits[4, 17] = np.nan
    logits[5, 9000] = np.inf
    logits[6] = np.nan
    logits[7, 1:] = -np.inf
    targets[7] = 0
    targets[8] = -100
    logits[8] = np.nan
    logits[9, 5:4000] = -np.inf
    for options in ({}, {"label_smoothing": 0.1}, {"softcap": 4.0}):
        known = reference(logits, targets, **options)
        x, t = arrays.put(logits), arrays.put(targets)
        results = pyflowk.cross_entropy(x, t, entropy=True, **options)
        found = [arrays.fetch(one) for one in results]
        for own, expected in zip(found, known[:3]):
            close(own, expected, 2 * row_error(known, name))
        assert found[1][0] == -np.inf and found[0][0] == np.inf and found[2][0] == 0
        assert found[0][1] == np.inf and np.isnan(found[0][2:4]).all() and np.isfinite(found[1][2:4]).all()
        assert np.isnan(found[0][[4, 6]]).all() and (np.array(found)[:, 8] == 0).all()
        dlogits = pyflowk.cross_entropy_backward(x, t, results[1], arrays.put(np.ones(rows, found[0].dtype)), **options)
        dlogits = arrays.fetch(dlogits).astype(np.float64)
        assert (dlogits[8] == 0).all() and np.isnan(dlogits[[2, 3, 4, 6]]).all()
        expected = gradient(logits, targets, 1.0, **options)
        close(dlogits[[0, 1, 7, 9]], expected[[0, 1, 7, 9]], 2 * EPSILON[name] + 1e-5)


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("columns", [5, 45, 543, 1177, 9001])
def test_nan_stays_in_its_row(name: str, columns: int, arrays: HostArrays) -> None:
    """Rows that are not whole vectors are read together with the ends of their neighbours."""
    clean, targets = problem(9, columns, DTYPES[name])
    logits = clean.copy()
    logits[1::2] = np.nan
    found = []
    for one in (clean, logits):
        x, t = arrays.put(one), arrays.put(targets)
        loss, lse = pyflowk.cross_entropy(x, t)
        dlogits = pyflowk.cross_entropy_backward(x, t, lse, arrays.put(np.ones(9, arrays.fetch(lse).dtype)))
        found.append([arrays.fetch(array)[::2] for array in (loss, lse, dlogits)])
    for of_clean, of_logits in zip(*found):
        np.testing.assert_array_equal(of_clean.astype(np.float64), of_logits.astype(np.float64))


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("columns", [100, 5001, 33001])
def test_a_row_has_the_same_bits_everywhere(name: str, columns: int, arrays: HostArrays) -> None:
    """In every batch, at every place and address, with any strides."""
    dtype = DTYPES[name]
    logits, targets = problem(9, columns, dtype)
    options = {"label_smoothing": 0.1, "entropy": True}
    expected = [arrays.fetch(one) for one in pyflowk.cross_entropy(arrays.put(logits), arrays.put(targets), **options)]
    lse, dloss = expected[1], np.ones(9, expected[0].dtype)
    backward = pyflowk.cross_entropy_backward
    gradients = arrays.fetch(backward(*map(arrays.put, (logits, targets, lse, dloss))))
    for first, rows, offset, padding in (
        (0, 1, 1, 0),
        (3, 1, 3, 0),
        (8, 1, 5, 0),
        (2, 5, 7, 3),
        (4, 5, 8, 64 - columns % 64),
    ):
        part = slice(first, first + rows)
        pitch = columns + padding
        memory = np.zeros((offset + rows * pitch) * dtype.itemsize, np.uint8)
        placed = np.ndarray((rows, pitch), dtype, memory.data, offset * dtype.itemsize)
        placed[:, :columns] = logits[part]
        on_library = arrays.put(memory)
        strides = (pitch * dtype.itemsize, dtype.itemsize)
        view = arrays.view(on_library, offset * dtype.itemsize, (rows, columns), strides, dtype)
        own = targets[part].copy()
        for one, whole in zip(pyflowk.cross_entropy(view, arrays.put(own), **options), expected):
            np.testing.assert_array_equal(arrays.fetch(one), whole[part])
        found = backward(view, *map(arrays.put, (own, lse[part].copy(), dloss[part].copy())), out=view)
        assert found is view
        after = np.ndarray((rows, pitch), dtype, arrays.fetch(on_library).data, offset * dtype.itemsize)
        np.testing.assert_array_equal(after[:, :columns].view(np.uint8), gradients[part].view(np.uint8))
        assert (after[:, columns:].view(np.uint8) == 0).all(), "written past a row"


def test_views(host_library: None) -> None:
    """Rows of any strides; a last dimension with a stride and targets with gaps are copied."""
    generator = np.random.default_rng(3)
    logits, targets = generator.standard_normal((4, 3, 5, 11)), generator.integers(0, 5, (4, 3, 22))[..., ::2]
    shifted = generator.standard_normal((4, 6, 9))[:, :-1]
    cases = ((logits.swapaxes(2, 3), targets), (logits[::-1, :, :, ::-1], generator.integers(0, 11, (4, 3, 5))))
    for x, t in (*cases, (shifted, generator.integers(0, 9, (4, 6))[:, 1:]), (logits[0, 0, 0], np.array(3))):
        known = reference(x.reshape(-1, x.shape[-1]), t.reshape(-1))
        loss, lse = pyflowk.cross_entropy(x, t)
        assert loss.shape == lse.shape == t.shape
        close(loss.reshape(-1), known.loss, 1e-12)
        out = np.zeros((*x.shape[:-1], 2 * x.shape[-1]))[..., ::2]
        dloss = np.broadcast_to(np.float64(2), t.shape)
        assert pyflowk.cross_entropy_backward(x, t, lse, dloss, out=out) is out
        close(out.reshape(-1, x.shape[-1]), gradient(x.reshape(-1, x.shape[-1]), t.reshape(-1), 2.0), 1e-12)
    assert "copies of logits" in pyflowk.explain(pyflowk.cross_entropy, *cases[0])


@pytest.mark.parametrize("name", ["bfloat16", "float32", "float64"])
@pytest.mark.parametrize("cuts", [(0, 30001), (0, 1, 9000, 30001), tuple(range(0, 30001, 750)) + (30001,)])
def test_shards_of_a_vocabulary(name: str, cuts: tuple[int, ...], arrays: HostArrays) -> None:
    logits, targets = problem(6, 30001, DTYPES[name])
    targets[2:5] = -100, 30001, 30000
    numbers: dict[str, Any] = {"label_smoothing": 0.2, "z_loss": 0.01}
    scaled: dict[str, Any] = {"scale": 0.8, "softcap": 6.0}
    known = reference(logits, targets, **numbers, **scaled)
    t = arrays.put(targets)
    shards = [logits[:, a:b].copy() for a, b in itertools.pairwise(cuts)]
    partials = [
        arrays.fetch(pyflowk.cross_entropy_partials(arrays.put(one), t, first, 30001, **scaled))
        for one, first in zip(shards, cuts)
    ]
    results = pyflowk.cross_entropy_merge(arrays.put(np.stack(partials)), t, 30001, **numbers)
    error = row_error(known, name)
    for one, expected in zip(results, known[:3]):
        close(arrays.fetch(one), expected, 4 * error)
    dloss = np.ones(6, partials[0].dtype)
    expected = gradient(logits, targets, dloss, **numbers, **scaled)
    for one, first in zip(shards, cuts):
        place = {"vocab_start": first, "vocab_size": 30001}
        given = (arrays.put(one), t, results[1], arrays.put(dloss))
        found = arrays.fetch(pyflowk.cross_entropy_backward(*given, **numbers, **scaled, **place))
        close(found, expected[:, first : first + one.shape[1]], EPSILON[name] + 1e-5)


def test_outputs_that_are_given(arrays: HostArrays) -> None:
    logits, targets = problem(4, 20000, np.float32)
    x, t = arrays.put(logits), arrays.put(targets)
    outs = {f"{name}_out": arrays.put(np.full(4, np.nan, np.float32)) for name in ("loss", "lse", "entropy")}
    results = pyflowk.cross_entropy(x, t, entropy=True, **outs)
    assert all(own is out for own, out in zip(results, outs.values()))
    for own, other in zip(results, pyflowk.cross_entropy(x, t, entropy=True)):
        np.testing.assert_array_equal(arrays.fetch(own), arrays.fetch(other))
    for rows in (0, 3):
        empty = arrays.put(np.zeros((rows, 0 if rows else 5), np.float32))
        loss, _ = pyflowk.cross_entropy(empty, arrays.put(np.zeros(rows, np.int64)))
        assert loss.shape == (rows,)


def test_the_plan_in_words(host_library: None) -> None:
    x, t = np.zeros((3, 128256), np.float16), np.zeros(3, np.int64)
    text = pyflowk.explain(pyflowk.cross_entropy, x, t)
    assert "loss_slices: 16 slices per row" in text and "merge_partials: 16 lanes" in text
    assert "softcap" in pyflowk.explain(pyflowk.cross_entropy, x, t, softcap=1.0)
    assert "logits_gradient" in pyflowk.explain(
        pyflowk.cross_entropy_backward, x, t, np.ones(3, "f4"), np.ones(3, "f4")
    )
