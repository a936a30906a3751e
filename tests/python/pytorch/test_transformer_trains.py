# SPDX-License-Identifier: Apache-2.0
"""bench/transformer and bench/image_pipeline.py in small: with PyTorch's operators and pyflowk's, from the same
parameters, losses and every gradient agree."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

BENCH = Path(__file__).parents[3] / "bench"
sys.path.extend([str(BENCH), str(BENCH / "transformer")])

import grammar_text  # noqa: E402
import image_pipeline  # noqa: E402
from decoder_model import Config, Decoder  # noqa: E402
from step_profile import GROUPS, profile_steps  # noqa: E402

NUM_STEPS = 3
# Float32 sums of up to 64 x 64 terms in another order, through three steps.
TOLERANCE = {"rtol": 1e-4, "atol": 1e-6}
SMALL = Config(layers=2, width=32, heads=4, context=24)
CONFIGS = {
    "causal": SMALL,
    "biased, prelu": Config(**{**vars(SMALL), "attention": "biased", "activation": "prelu"}),
    "odd vocabulary": Config(**{**vars(SMALL), "vocabulary": 1001}),
}


def trained(model: Any, losses_of: Any) -> tuple[list[Any], list[dict[str, Any]]]:
    """The losses, and the gradients by parameter, of each step."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses, gradients = [], []
    for i in range(NUM_STEPS):
        optimizer.zero_grad()
        losses.append(losses_of(model, i))
        losses[-1].backward()
        gradients.append({name: one.grad.clone() for name, one in model.named_parameters()})
        optimizer.step()
    return [loss.detach() for loss in losses], gradients


def decoder(config: Config, variant: str) -> Any:
    torch.manual_seed(1)
    return Decoder(config, variant)


def assert_agree(own: Any, reference: Any) -> None:
    torch.testing.assert_close(own, reference, **TOLERANCE)
    losses, gradients = reference
    assert losses[-1] < losses[0]
    assert all(one.abs().max() > 0 for step in gradients for one in step.values())


@pytest.mark.parametrize("variant", ["flowk", "sdpa"])
@pytest.mark.parametrize("name", CONFIGS)
def test_a_transformer_trains_the_same(name: str, variant: str) -> None:
    config = CONFIGS[name]
    text = grammar_text.generate(4096, seed=1)
    tokens = grammar_text.batches(text, 1, 2, config.context, seed=2)[0]
    assert_agree(*(trained(decoder(config, one), lambda model, i: model(tokens)) for one in (variant, "torch")))


def test_the_text_is_the_same_everywhere() -> None:
    text = grammar_text.generate(60, seed=1)
    assert text == grammar_text.generate(4096, seed=1)[:60] and len(text) == 60


def test_an_image_network_trains_the_same() -> None:
    images, classes = image_pipeline.gratings(4, 16, "cpu")

    def run(variant: str) -> Any:
        torch.manual_seed(1)
        network = image_pipeline.Network(variant, 4)

        def loss_of(model: Any, i: int) -> Any:
            x = image_pipeline.preparations("cpu")[variant](images, torch.float32)
            return torch.nn.functional.cross_entropy(model(x), classes)

        return trained(network, loss_of)

    assert_agree(run("flowk"), run("torch"))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_images_are_normalized_the_same(dtype: Any) -> None:
    images, _ = image_pipeline.gratings(3, 10, "cpu")
    mean, deviation = torch.tensor(image_pipeline.MEAN), torch.tensor(image_pipeline.DEVIATION)
    expected = ((images.permute(0, 3, 1, 2).double() / 255 - mean.view(3, 1, 1)) / deviation.view(3, 1, 1)).to(dtype)
    for prepare in image_pipeline.preparations("cpu").values():
        x = prepare(images, dtype)
        assert x.is_contiguous()
        torch.testing.assert_close(x, expected, rtol=0, atol=8 * torch.finfo(dtype).eps)


def test_every_operator_has_its_group() -> None:
    def groups(variant: str) -> set[str]:
        model = decoder(SMALL, variant)
        tokens = torch.zeros(1, SMALL.context + 1, dtype=torch.long)
        times = profile_steps(lambda: model(tokens).backward(), 1, torch.device("cpu"))["groups"]
        assert list(times) == list(GROUPS)
        return {
            group for group in ("matmul", "softmax", "mask", "permute", "activation", "norm", "loss") if times[group]
        }

    both = {"matmul", "softmax", "permute", "activation", "norm", "loss"}
    assert groups("torch") == both | {"mask"}
    assert groups("flowk") >= both
