# SPDX-License-Identifier: Apache-2.0
"""uint8 NHWC images become normalized float16 NCHW ones and train a small PReLU network.

    python bench/image_pipeline.py [--json images.json]

Once with PyTorch's operators, once with pyflowk's, from the same parameters and images. Prints per variant the last
loss, milliseconds per step, milliseconds of the preparation alone, and memory.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.profiler import record_function

import pyflowk
import pyflowk.torch as fnn

sys.path.insert(0, str(Path(__file__).parent / "transformer"))
import train as transformer

MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
NUM_CLASSES = 8


def normalized_by_torch(images: Tensor, mean: Tensor, deviation: Tensor, dtype: torch.dtype) -> Tensor:
    """As torchvision's ToTensor and Normalize do it, for a batch."""
    x = images.permute(0, 3, 1, 2).contiguous().float().div_(255)
    return x.sub_(mean.view(3, 1, 1)).div_(deviation.view(3, 1, 1)).to(dtype)


def normalized_by_flowk(images: Tensor, mean: Tensor, deviation: Tensor, dtype: torch.dtype) -> Tensor:
    """One kernel that permutes, multiplies, adds and converts."""
    n, h, w, c = images.shape
    factor, offset = (1 / (255 * deviation)).view(3, 1, 1), (-mean / deviation).view(3, 1, 1)
    out = torch.empty((n, c, h, w), dtype=dtype, device=images.device)
    return pyflowk.scale(images.permute(0, 3, 1, 2), factor, offset, out=out)


def permuted_by_flowk(images: Tensor, mean: Tensor, deviation: Tensor, dtype: torch.dtype) -> Tensor:
    """Two kernels: permute with conversion, and mean and deviation in place."""
    x = pyflowk.permute(images, (0, 3, 1, 2), dtype=dtype, scale=1 / 255)
    return pyflowk.scale(x, (1 / deviation).view(3, 1, 1), (-mean / deviation).view(3, 1, 1), out=x)


PREPARATIONS = {"torch": normalized_by_torch, "flowk": normalized_by_flowk, "flowk, permute": permuted_by_flowk}


class Network(nn.Sequential):
    """Convolutions of stride 2, each with a PReLU of one slope per channel."""

    def __init__(self, variant: str, width: int) -> None:
        activation = {"torch": nn.PReLU, "flowk": fnn.PReLU}[variant]
        layers: list[nn.Module] = []
        channels = 3
        for i in range(4):
            wider = width << i
            layers += [nn.Conv2d(channels, wider, 3, stride=1 if i == 0 else 2, padding=1), activation(wider)]
            channels = wider
        super().__init__(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, NUM_CLASSES))


def gratings(num_images: int, side: int, device: str) -> tuple[Tensor, Tensor]:
    """uint8 images, NHWC, and their classes: the direction of the stripes; phase, colour and noise are random."""
    generator = torch.Generator().manual_seed(3)
    classes = torch.randint(NUM_CLASSES, (num_images,), generator=generator)
    angle = classes.to(device) * torch.pi / NUM_CLASSES
    phase, colour = (
        torch.rand(num_images, 1, 1, generator=generator),
        torch.rand(num_images, 1, 1, 3, generator=generator),
    )
    i = torch.arange(side, device=device)
    along = torch.cos(angle).view(-1, 1, 1) * i[:, None] + torch.sin(angle).view(-1, 1, 1) * i
    stripes = torch.sin(along * 0.8 + 2 * torch.pi * phase.to(device))
    noise = torch.randint(-20, 21, (side, side, 3), generator=generator)
    images = 128 + 90 * stripes[..., None] * colour.to(device) + noise.to(device)
    return images.to(torch.uint8), classes.to(device)


def train(
    variant: str, *, num_steps: int, device: str, dtype: torch.dtype, images_per_step: int, side: int, width: int
) -> dict[str, Any]:
    on = torch.device(device)
    torch.manual_seed(1)
    network = Network(variant, width).to(on)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9)
    mean, deviation = torch.tensor(MEAN, device=on), torch.tensor(DEVIATION, device=on)
    images, classes = gratings(8 * images_per_step, side, device)
    prepare = PREPARATIONS[variant]
    # Gradients of float16 are kept from underflow by a factor, which the optimizer's division takes out again.
    loss_scale = 1024.0 if dtype == torch.float16 else 1.0

    def step(i: int) -> Tensor:
        rows = slice(i % 8 * images_per_step, (i % 8 + 1) * images_per_step)
        with record_function("preparation"):
            x = prepare(images[rows], mean, deviation, dtype)
        with torch.autocast(on.type, dtype, enabled=dtype != torch.float32):
            loss = F.cross_entropy(network(x).float(), classes[rows])
        optimizer.zero_grad()
        (loss * loss_scale).backward()
        for parameter in network.parameters():
            parameter.grad /= loss_scale
        optimizer.step()
        return loss

    measured = transformer.measure(step, num_steps, on)
    batch = images[:images_per_step]
    times = {
        name: milliseconds(lambda prepare=one: prepare(batch, mean, deviation, dtype), on)
        for name, one in PREPARATIONS.items()
        if name.startswith(variant)
    }
    return {"variant": variant, "dtype": str(dtype).removeprefix("torch."), "preparation": times, **measured}


def milliseconds(call: Callable[[], object], device: torch.device) -> float:
    """The median of 20 times after 3."""
    clock = transformer.Clock(device)
    for _ in range(20 + transformer.NUM_WARM_STEPS):
        clock.tick()
        call()
    clock.tick()
    return clock.median()


def train_both(device: str, num_steps: int) -> dict[str, Any]:
    sizes = (
        dict(images_per_step=128, side=224, width=32) if device == "cuda" else dict(images_per_step=8, side=32, width=8)
    )
    dtype = torch.float16 if device == "cuda" else torch.float32
    runs = []
    for variant in ("torch", "flowk"):
        runs.append(train(variant, num_steps=num_steps, device=device, dtype=dtype, **sizes))
        times = ", ".join(f"{name} {time:.3f} ms" for name, time in runs[-1]["preparation"].items())
        print(f"{transformer.line(runs[-1])}; preparation: {times}", flush=True)
    return {**sizes, "runs": runs}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    result = {**transformer.machine(given.device), "images": train_both(given.device, given.steps)}
    if given.json:
        given.json.write_text(json.dumps(result))


if __name__ == "__main__":
    main()
