# SPDX-License-Identifier: Apache-2.0
"""Softmax and PReLU of pyflowk.jax: values of pyflowk bit for bit, derivatives, vmap over every operand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from jax_arrays import ON_GPU, assert_close, assert_same, check_grads, flowk_jax, jax, jnp, x64

import pyflowk

RNG = np.random.default_rng(5)
X = RNG.normal(size=(2, 3, 4, 5))
MASK = RNG.random((2, 1, 4, 5)) < 0.3
LENGTHS = np.array([[2, 5, 3], [0, 4, 1]], np.int32)
BIAS = RNG.normal(size=(3, 1, 5))

# Arguments of masked_softmax besides x; "float" arrays get x's dtype.
MASKS: dict[str, dict[str, Any]] = {
    "none": {},
    "mask": {"mask": MASK},
    "mask of rows": {"mask": MASK[0, :, :, :1].astype(np.uint8)},
    "lengths": {"lengths": LENGTHS},
    "lengths from the right": {"lengths": LENGTHS[:, :1].astype(np.int64), "lengths_from_right": True},
    "causal": {"causal": True, "causal_offset": 1},
    "window": {"window": 2, "causal": True},
    "bias": {"bias": BIAS},
    "bias of rows": {"bias": BIAS[..., :1]},
    "all": {"mask": MASK, "lengths": LENGTHS, "causal": True, "bias": BIAS, "scale": 0.7},
    "log": {"log": True, "mask": MASK, "scale": -1.5, "batch_invariant": True},
}


def given(masks: dict[str, Any], dtype: str) -> dict[str, Any]:
    """The arguments with a bias of type `dtype`."""
    return {name: np.asarray(one).astype(jnp.dtype(dtype)) if name == "bias" else one for name, one in masks.items()}


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_softmax_gives_the_values_of_pyflowk(dtype: str) -> None:
    """But for the order of a row's sum, which depends on the arrays' addresses modulo 128."""
    with x64():
        x = X.astype(jnp.dtype(dtype))
        ours = jax.jit(lambda x: [flowk_jax.masked_softmax(x, **given(one, dtype)) for one in MASKS.values()])(x)
        for masks, one in zip(MASKS.values(), ours):
            assert one.dtype == dtype
            expected = reference(X.astype(jnp.dtype(dtype)).astype(np.float64), given(masks, dtype))
            assert_close(one.astype("float64"), expected, 8 * float(jnp.finfo(dtype).eps))
            if not ON_GPU:
                assert_close(one, pyflowk.masked_softmax(x, **given(masks, dtype)), 4 * float(jnp.finfo(dtype).eps))
        if not ON_GPU:
            y = np.asarray(ours[0])
            dx = flowk_jax.masked_softmax_backward(x, y, lengths=LENGTHS, scale=2.0)
            plain = pyflowk.masked_softmax_backward(x, y, lengths=LENGTHS, scale=2.0)
            assert_close(dx, plain, 4 * float(jnp.finfo(dtype).eps))
        other = {"float16": "float32", "bfloat16": "float32", "float32": "bfloat16"}.get(dtype)
        if other is not None:
            assert flowk_jax.softmax(x, dtype=other).dtype == other


def reference(x: Any, masks: dict[str, Any]) -> Any:
    """In jax.numpy: the masked columns by where(), as users write it."""
    q, k = x.shape[-2:]
    z = masks.get("scale", 1.0) * x + jnp.asarray(masks.get("bias", 0.0)).astype(x.dtype)
    columns, rows = jnp.arange(k), jnp.arange(q)[:, None]
    kept = jnp.ones(x.shape, bool) & ~jnp.asarray(masks.get("mask", False)).astype(bool)
    if "lengths" in masks:
        lengths = jnp.asarray(masks["lengths"])
        lengths = lengths.reshape(lengths.shape + (1,) * (x.ndim - lengths.ndim))
        kept &= columns >= k - lengths if masks.get("lengths_from_right") else columns < lengths
    diagonal = rows + (k - q) + masks.get("causal_offset", 0)
    if masks.get("causal"):
        kept &= columns <= diagonal
    if "window" in masks:
        kept &= columns > diagonal - masks["window"]
    some = kept.any(-1, keepdims=True)
    z = jnp.where(kept, z, -jnp.inf)
    if masks.get("log"):
        return jnp.where(kept, jax.nn.log_softmax(jnp.where(some, z, 0)), -jnp.inf)
    return jnp.where(kept, jax.nn.softmax(jnp.where(some, z, 0)), 0)


@pytest.mark.parametrize("name", ["none", "lengths", "all", "log", "bias"])
def test_gradients_of_softmax_are_those_of_a_formula(name: str) -> None:
    masks = dict(MASKS[name])
    bias = masks.pop("bias", np.zeros((3, 1, 5)))
    weights = jnp.asarray(RNG.normal(size=X.shape))

    def of(function: Any) -> Any:
        def loss(x: Any, bias: Any) -> Any:
            y = function(x, {**masks, "bias": bias})
            return (jnp.where(jnp.isfinite(y), y, 0) ** 2 * weights).sum()

        return loss

    with x64():
        ours = of(lambda x, masks: flowk_jax.masked_softmax(x, **masks))
        formula = of(reference)
        operands = (jnp.asarray(X), jnp.asarray(bias))
        found, expected = (jax.jit(jax.grad(one, (0, 1)))(*operands) for one in (ours, formula))
        for a, b in zip(found, expected):
            assert_close(a, b, 1e-12)
        along = jax.jit(lambda *v: jax.jvp(jax.grad(ours, (0, 1)), operands, v))(*operands)[1]
        expected = jax.jit(lambda *v: jax.jvp(jax.grad(formula, (0, 1)), operands, v))(*operands)[1]
        for a, b in zip(along, expected):
            assert_close(a, b, 1e-11)


def test_gradients_between_two_types_are_rounded_once() -> None:
    x = jnp.asarray(X[0, 0], jnp.float32)
    dy = jnp.asarray(RNG.normal(size=(4, 5)), jnp.bfloat16)
    y, back = jax.vjp(lambda x: flowk_jax.softmax(x, dtype="bfloat16"), x)
    assert_same(back(dy)[0], flowk_jax.masked_softmax_backward(dy, y, dtype="float32"))


@pytest.mark.parametrize("axes", [(0, None, None, None), (2, 1, None, 0), (None, 0, 1, None), (None, None, None, 1)])
def test_softmax_under_vmap_is_a_loop(axes: tuple[int | None, ...]) -> None:
    rng = np.random.default_rng(8)
    shapes = [(4, 5), (4, 5), (4,), (1, 5)]
    operands = []
    for number, (shape, axis) in enumerate(zip(shapes, axes)):
        shape = shape if axis is None else (*shape[:axis], 3, *shape[axis:])
        made = [rng.normal(size=shape), rng.random(shape) < 0.4, rng.integers(1, 6, shape), rng.normal(size=shape)]
        operands.append(jnp.asarray(made[number], [jnp.float32, bool, jnp.int32, jnp.float32][number]))

    def one(x: Any, mask: Any, lengths: Any, bias: Any) -> Any:
        return flowk_jax.masked_softmax(x, mask, lengths=lengths, bias=bias, causal=True)

    loop = [
        one(*(each if axis is None else jnp.take(each, index, axis) for each, axis in zip(operands, axes)))
        for index in range(3)
    ]
    assert_same(jax.vmap(one, axes)(*operands), jnp.stack(loop))
    gradient = jax.grad(lambda *given: (one(*given) ** 2).sum(), (0, 3))
    batched = jax.jit(jax.vmap(gradient, axes))(*operands)
    for index in range(3):
        each = gradient(*(o if axis is None else jnp.take(o, index, axis) for o, axis in zip(operands, axes)))
        for ours, expected in zip(batched, each):
            assert_close(ours[index], expected)


def test_a_row_alone_is_the_last_of_its_matrix_under_vmap() -> None:
    """A causal mask sees one row per element of the batch, not the batch as rows."""
    x = jnp.asarray(X[0, 0], jnp.float32)
    ours = jax.vmap(lambda row: flowk_jax.masked_softmax(row, causal=True, causal_offset=-2))(x)
    assert_same(ours, jnp.stack([flowk_jax.masked_softmax(row, causal=True, causal_offset=-2) for row in x]))
    assert_close(ours[:, 3:], np.zeros((4, 2), np.float32))


# ---- prelu ----------------------------------------------------------------------------------------------------------

PRELU = {
    "one": ((2, 4, 3), (1,), 1),
    "channels": ((2, 4, 3), (4,), 1),
    "last": ((2, 3, 4), (4,), -1),
    "()": ((), (), 0),
}


@pytest.mark.parametrize("name", PRELU)
def test_prelu_and_its_derivatives(name: str) -> None:
    shape, alphas, axis = PRELU[name]
    with x64():
        x, alpha = RNG.normal(size=shape), RNG.uniform(0.1, 0.5, alphas)
        if alphas == (4,):
            wide = alpha.reshape([4 if d == axis % len(shape) else 1 for d in range(len(shape))])
        else:
            wide = alpha.reshape(-1)[0]
        assert_same(flowk_jax.prelu(x, alpha, axis), np.where(x > 0, x, wide * x))
        dy = RNG.normal(size=shape)
        if not ON_GPU and shape:
            for ours, plain in zip(
                flowk_jax.prelu_backward(dy, x, alpha, axis), pyflowk.prelu_backward(dy, x, alpha, axis)
            ):
                assert_same(ours, plain)
        check_grads(
            jax.jit(lambda x, alpha: flowk_jax.prelu(x, alpha, axis)), (x, alpha), 2, atol=1e-5, rtol=1e-5, eps=1e-5
        )
    if shape:
        narrow = flowk_jax.prelu(x.astype(np.float16), alpha.astype(np.float32), axis)
        if not ON_GPU:
            assert_same(narrow, pyflowk.prelu(x.astype(np.float16), alpha.astype(np.float32), axis))


@pytest.mark.parametrize("axes", [(0, None), (2, None), (None, 0), (1, 0), (2, 1), (3, 1)])
@pytest.mark.parametrize("name", ["one", "channels", "last"])
def test_prelu_under_vmap_is_a_loop(name: str, axes: tuple[int | None, int | None]) -> None:
    shape, alphas, axis = PRELU[name]
    operands = []
    for extents, at in zip((shape, alphas), axes):
        extents = extents if at is None else (*extents[:at], 5, *extents[at:])
        operands.append(jnp.asarray(RNG.normal(size=extents), jnp.float32))

    def one(x: Any, alpha: Any) -> Any:
        y, t = jax.jvp(lambda *v: flowk_jax.prelu(*v, axis), (x, alpha), (x, alpha))
        return y, t, jax.grad(lambda *v: (flowk_jax.prelu(*v, axis) ** 2).sum(), (0, 1))(x, alpha)

    batched = jax.jit(jax.vmap(one, axes))(*operands)
    loop = jax.jit(one)
    for index in range(5):
        each = loop(*(o if at is None else jnp.take(o, index, at) for o, at in zip(operands, axes)))
        for ours, expected in zip(jax.tree.leaves(batched), jax.tree.leaves(each)):
            assert_close(ours[index], expected)


@pytest.mark.parametrize("log", [False, True])
def test_the_log_sum_exp_and_its_derivatives(log: bool) -> None:
    options = {"lengths": LENGTHS, "causal": True, "log": log, "scale": -0.5}
    scores = X.astype(np.float32)
    own = jax.jit(lambda x: flowk_jax.masked_softmax(x, return_lse=True, **options))(scores)
    for one, expected in zip(own, pyflowk.masked_softmax(scores, return_lse=True, **options), strict=True):
        np.testing.assert_allclose(one, expected, rtol=1e-6, atol=1e-6)  # NumPy's arrays lie at other addresses
    dy, dlse = RNG.normal(size=X.shape).astype(np.float32), RNG.normal(size=X.shape[:-1]).astype(own[1].dtype)
    for given in ({"lengths": LENGTHS}, {}):
        found = flowk_jax.masked_softmax_backward(dy, own[0], dlse=dlse, log=log, **given)
        expected = pyflowk.masked_softmax_backward(dy, np.asarray(own[0]), dlse=dlse, log=log, **given)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)

    def loss(function: Any) -> Any:
        def of(x: Any) -> Any:
            y, lse = function(x)
            return (jnp.where(jnp.isfinite(y), y, 0) * dy).sum() + (jnp.where(jnp.isfinite(lse), lse, 0) * dlse).sum()

        return of

    def formula(x: Any) -> Any:
        z = -0.5 * x
        keep = jnp.isfinite(pyflowk.masked_softmax(np.zeros_like(X), **{**options, "log": True}))
        lse = jax.nn.logsumexp(jnp.where(keep, z, -jnp.inf), axis=-1)
        y = jnp.where(keep, z - lse[..., None], -jnp.inf)
        return (y if log else jnp.exp(y)), lse

    with x64():
        x = jnp.asarray(X, jnp.float64)
        ours = loss(lambda x: flowk_jax.masked_softmax(x, return_lse=True, **options))
        found, expected = (jax.jit(jax.grad(one))(x) for one in (ours, loss(formula)))
        keep = np.isfinite(np.asarray(expected))
        assert_close(jnp.where(keep, found, 0), jnp.where(keep, expected, 0), 1e-11)
        moved, expected = (jax.jvp(jax.grad(one), (x,), (jnp.ones_like(x),))[1] for one in (ours, loss(formula)))
        keep &= np.isfinite(np.asarray(expected))
        assert_close(jnp.where(keep, moved, 0), jnp.where(keep, expected, 0), 1e-10)
    stacked = jax.vmap(lambda x: flowk_jax.masked_softmax(x, return_lse=True, log=log)[1])(jnp.asarray(scores))
    np.testing.assert_allclose(stacked, flowk_jax.masked_softmax(scores, return_lse=True)[1], rtol=1e-6, atol=1e-6)
    rows = flowk_jax.masked_softmax(scores[0, 0, 0], return_lse=True)[1]
    assert rows.shape == ()
    one = flowk_jax.masked_softmax_backward(dy[0, 0, 0], own[0][0, 0, 0], dlse=jnp.float32(1.0))
    assert one.shape == X.shape[-1:]


@pytest.mark.parametrize("shape", [(3, 1, 5), (5,), (2, 1, 4, 5), (3, 1, 1), X.shape])
def test_a_bias_that_rows_share_has_its_gradient_in_one_pass(shape: tuple[int, ...]) -> None:
    options: dict[str, Any] = {"lengths": LENGTHS, "scale": 0.7, "log": len(shape) == 1}

    def loss(softmax: Any) -> Any:
        def of(x: Any, bias: Any) -> Any:
            y = softmax(x, bias)
            return (jnp.where(jnp.isfinite(y), y, 0) ** 2).sum()

        return of

    ours = loss(lambda x, bias: flowk_jax.masked_softmax(x, bias=bias, **options))
    formula = loss(lambda x, bias: reference(x, {**options, "bias": bias}))
    with x64():
        x, bias = jnp.asarray(X), jnp.asarray(RNG.normal(size=shape))
        program = str(jax.make_jaxpr(jax.grad(ours, (0, 1)))(x, bias))
        assert ("flowk_masked_softmax_backward_dbias" in program) == (shape != X.shape)
        for of in ((0, 1), (1,)):
            for found, expected in zip(jax.jit(jax.grad(ours, of))(x, bias), jax.grad(formula, of)(x, bias)):
                assert_close(found, expected, 1e-12)
        both = jax.grad(lambda x, bias: sum((one**2).sum() for one in jax.grad(ours, (0, 1))(x, bias)), (0, 1))
        of_formula = jax.grad(lambda x, bias: sum((one**2).sum() for one in jax.grad(formula, (0, 1))(x, bias)), (0, 1))
        for found, expected in zip(both(x, bias), of_formula(x, bias)):
            assert_close(found, expected, 1e-11)
    half, wide = jnp.asarray(X, jnp.bfloat16), jnp.asarray(bias, jnp.float32)
    assert [one.dtype for one in jax.grad(ours, (0, 1))(half, wide)] == ["bfloat16", "float32"]


def test_gradients_of_x_and_a_bias() -> None:
    dy, y = np.asarray(X, np.float32), np.asarray(flowk_jax.softmax(X.astype(np.float32)))
    dlse = X[..., 0].astype(np.float32)
    for bias in (BIAS.astype(np.float32), np.zeros(5, np.float32)):
        dx, dbias = flowk_jax.masked_softmax_backward_dbias(dy, y, bias, dlse=dlse, lengths=LENGTHS, scale=2.0)
        dz = flowk_jax.masked_softmax_backward(dy, y, dlse=dlse, lengths=LENGTHS)
        assert_close(dx, 2 * dz, 1e-6)
        assert_close(dbias, dz.sum((0, 2) if bias.ndim > 1 else (0, 1, 2)).reshape(bias.shape), 1e-5)
    assert flowk_jax.masked_softmax_backward_dbias(dy[0, 0, 0], y[0, 0, 0], bias)[1].shape == (5,)
    assert flowk_jax.masked_softmax_backward_dbias(dy, y, bias, need_dx=False)[0] is None
    with pytest.raises(ValueError, match=r"bias has shape \(3, 1, 1\), must have 5 as its last extent"):
        flowk_jax.masked_softmax_backward_dbias(dy, y, bias[:3].reshape(3, 1, 1))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_softmax_merge(dtype: str) -> None:
    with x64():
        wide = "float64" if dtype == "float64" else "float32"
        y1, y2 = RNG.normal(size=(2, 2, 3, 5)).astype(dtype)
        lse1, lse2 = (4 * RNG.normal(size=(2, 2, 3))).astype(wide)
        y, lse = jax.jit(flowk_jax.softmax_merge)(y1, lse1, y2, lse2)
        weights = jnp.exp(jnp.stack([lse1, lse2]).astype("float64") - jnp.logaddexp(lse1, lse2).astype("float64"))
        expected = weights[0][..., None] * y1.astype("float64") + weights[1][..., None] * y2.astype("float64")
        assert y.dtype == dtype and lse.dtype == wide
        assert_close(y.astype("float64"), expected, 16 * float(jnp.finfo(dtype).eps))
        of_rows = jax.vmap(flowk_jax.softmax_merge, in_axes=(1, 1, None, None))(y1, lse1, y2[:, 0], lse2[:, 0])
        assert_close(of_rows[0][0], flowk_jax.softmax_merge(y1[:, 0], lse1[:, 0], y2[:, 0], lse2[:, 0])[0], 1e-3)
        if dtype == "float64":
            check_grads(flowk_jax.softmax_merge, (y1, lse1, y2, lse2), 2)
            masked = lse1.copy()
            masked[0, 0], masked[0, 1], lse2[0, 0], lse2[1, 1] = [-np.inf] * 4
            grads = jax.grad(lambda *given: flowk_jax.softmax_merge(*given)[0].sum(), (0, 1, 2, 3))(
                y1, masked, y2, lse2
            )
            assert all(bool(jnp.isfinite(one).all()) for one in grads)
