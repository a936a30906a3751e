# SPDX-License-Identifier: Apache-2.0
"""cross_entropy of PyTorch's tensors: autograd against autograd of the formula, the module, the gradient in place."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from torch import Tensor  # noqa: E402

import pyflowk  # noqa: E402
import pyflowk.torch as fnn  # noqa: E402

NUMBERS: dict[str, Any] = {"scale": 0.7, "softcap": 3.0, "label_smoothing": 0.1, "z_loss": 0.05}
TARGETS = torch.tensor([1, -100, 8, 0])


def formula(x: Tensor, targets: Tensor, entropy: bool = False, **numbers: Any) -> tuple[Tensor, ...]:
    given = {"scale": 1.0, "softcap": 0.0, "label_smoothing": 0.0, "z_loss": 0.0, **numbers}
    z = given["scale"] * x
    z = given["softcap"] * torch.tanh(z / given["softcap"]) if given["softcap"] else z
    lse, e = z.logsumexp(-1), given["label_smoothing"]
    of_target = z.gather(-1, targets.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    loss = (1 - e) * (lse - of_target) + e * (lse - z.mean(-1)) + given["z_loss"] * lse**2
    of_entropy = lse - (torch.softmax(z, -1) * z).sum(-1)
    results = tuple(torch.where(targets == -100, 0, one) for one in (loss, lse, of_entropy))
    return results if entropy else results[:2]


@pytest.mark.parametrize("entropy", [False, True])
@pytest.mark.parametrize("numbers", [{}, NUMBERS])
def test_gradients_of_every_order(numbers: dict[str, Any], entropy: bool) -> None:
    x = torch.randn(4, 9, dtype=torch.float64, requires_grad=True)

    def own(x: Tensor) -> tuple[Tensor, ...]:
        return pyflowk.cross_entropy(x, TARGETS, entropy=entropy, **numbers)

    results, expected = own(x), formula(x, TARGETS, entropy, **numbers)
    torch.testing.assert_close(results, expected)
    weights = [torch.randn_like(one) for one in results]
    gradients = [
        torch.autograd.grad(sum((w * one).sum() for w, one in zip(weights, each)), x, create_graph=True)[0]
        for each in (results, expected)
    ]
    torch.testing.assert_close(*gradients)
    torch.testing.assert_close(*(torch.autograd.grad(one.square().sum(), x)[0] for one in gradients))
    assert torch.autograd.gradcheck(own, x, check_forward_ad=True, check_batched_grad=True)
    assert torch.autograd.gradgradcheck(lambda x: own(x)[0], x)


@pytest.mark.parametrize("options", [{}, NUMBERS])
def test_opcheck_without_an_entropy(options: dict[str, Any]) -> None:
    x = torch.randn(4, 9, requires_grad=True)
    torch.library.opcheck(torch.ops.flowk.cross_entropy.default, (x, TARGETS), options)


def test_compiled_and_vmapped() -> None:
    x = torch.randn(4, 9)
    compiled = torch.compile(
        lambda x: pyflowk.cross_entropy(x, TARGETS, **NUMBERS)[0], fullgraph=True, backend="aot_eager"
    )
    torch.testing.assert_close(compiled(x), pyflowk.cross_entropy(x, TARGETS, **NUMBERS)[0])
    stacked = torch.vmap(lambda x: pyflowk.cross_entropy(x, TARGETS)[0])(torch.stack([x, 2 * x]))
    torch.testing.assert_close(stacked[1], pyflowk.cross_entropy(2 * x, TARGETS)[0])


def test_shards_have_no_gradient_of_their_own() -> None:
    x = torch.randn(4, 9, requires_grad=True)
    with pytest.raises(TypeError, match="cross_entropy_partials has no gradient"):
        pyflowk.cross_entropy_partials(x, TARGETS, 0, 9)
    partials = pyflowk.cross_entropy_partials(x.detach(), TARGETS, 0, 9)
    loss, *_ = pyflowk.cross_entropy_merge(partials[None], TARGETS, 9)
    torch.testing.assert_close(loss, formula(x.detach(), TARGETS)[0])


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("shape", [(9,), (4, 9), (4, 9, 3, 2)])
def test_the_module_is_torch_s(shape: tuple[int, ...], reduction: str, in_place: bool) -> None:
    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    targets = torch.randint(0, 9, shape[:1] + shape[2:] if len(shape) > 1 else ())
    if targets.dim():
        targets.view(-1)[0] = -100
    options: dict[str, Any] = {"reduction": reduction, "label_smoothing": 0.1}
    module = fnn.CrossEntropyLoss(**options, in_place=in_place)
    own, expected = module(x * 1.0, targets), torch.nn.CrossEntropyLoss(**options)(x, targets)
    torch.testing.assert_close(own, expected)
    torch.testing.assert_close(*(torch.autograd.grad(one.sum(), x)[0] for one in (own, expected)))


def test_the_gradient_in_place_is_over_the_logits() -> None:
    x = torch.randn(4, 9, dtype=torch.bfloat16)
    logits = (x * 1).requires_grad_()
    loss = fnn.CrossEntropyLoss(in_place=True)(logits, TARGETS)
    (gradient,) = torch.autograd.grad(loss, logits, retain_graph=True)
    assert gradient.data_ptr() == logits.data_ptr() and loss.dtype == torch.float32
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(loss, logits)
    wide = x.float().requires_grad_()
    expected = torch.autograd.grad(F.cross_entropy(wide, TARGETS), wide)[0]
    torch.testing.assert_close(gradient.float(), expected, rtol=2**-7, atol=1e-4)


def test_what_the_module_does_not_take() -> None:
    with pytest.raises(TypeError, match="weight is given"):
        fnn.CrossEntropyLoss(torch.ones(9))
    with pytest.raises(TypeError, match="class probabilities"):
        fnn.CrossEntropyLoss()(torch.ones(4, 9), torch.ones(4, 9))
    meta = fnn.CrossEntropyLoss()(torch.empty(4, 9, device="meta"), torch.empty(4, dtype=torch.int64, device="meta"))
    assert meta.shape == () and meta.is_meta
