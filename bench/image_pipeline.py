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
from collections.abc import Callable, Sequence
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
from step_profile import profile_steps

MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
NUM_CLASSES = 8
NUM_BATCHES = 8  # together more than the L2 cache holds


Preparation = Callable[[Tensor, torch.dtype], Tensor]


def preparations(device: str) -> dict[str, Preparation]:
    """Functions of a uint8 NHWC batch and the type of the NCHW result; those of one library begin with its name."""
    mean, deviation = (torch.tensor(values, device=device).view(3, 1, 1) for values in (MEAN, DEVIATION))
    factor, offset = 1 / (255 * deviation), -mean / deviation

    def as_torchvision(images: Tensor, dtype: torch.dtype) -> Tensor:
        return images.permute(0, 3, 1, 2).contiguous().float().div_(255).sub_(mean).div_(deviation).to(dtype)

    def in_few_kernels(images: Tensor, dtype: torch.dtype) -> Tensor:
        x = images.permute(0, 3, 1, 2) * factor
        return x.add_(offset).to(dtype, memory_format=torch.contiguous_format)

    def one_kernel(images: Tensor, dtype: torch.dtype) -> Tensor:
        n, h, w, c = images.shape
        out = torch.empty((n, c, h, w), dtype=dtype, device=images.device)
        return pyflowk.scale(images.permute(0, 3, 1, 2), factor, offset, out=out)

    def two_kernels(images: Tensor, dtype: torch.dtype) -> Tensor:
        x = pyflowk.permute(images, (0, 3, 1, 2), dtype=dtype, scale=1 / 255)
        return pyflowk.scale(x, 255 * factor, offset, out=x)

    return {
        "torch": as_torchvision,
        "torch, few kernels": in_few_kernels,
        "flowk": one_kernel,
        "flowk, permute first": two_kernels,
    }


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
    optimizer = torch.optim.SGD(network.parameters(), lr=0.03, momentum=0.9)
    images, classes = gratings(NUM_BATCHES * images_per_step, side, device)
    batches, targets = images.split(images_per_step), classes.split(images_per_step)
    all_preparations = preparations(device)
    prepare = all_preparations[variant]
    # Scales gradients of float16 against underflow. If they overflow, it halves its factor and skips the step.
    scaler = torch.amp.GradScaler(device, init_scale=64.0, enabled=dtype == torch.float16)

    def step(i: int) -> Tensor:
        with record_function("preparation"):
            x = prepare(batches[i % NUM_BATCHES], dtype)
        with torch.autocast(on.type, dtype, enabled=dtype != torch.float32):
            loss = F.cross_entropy(network(x).float(), targets[i % NUM_BATCHES])
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        return loss

    measured = transformer.measure(step, num_steps, on, outside="preparation")
    times = {
        name: milliseconds(one, batches, dtype) for name, one in all_preparations.items() if name.startswith(variant)
    }
    return {"variant": variant, "dtype": str(dtype).removeprefix("torch."), "preparation": times, **measured}


def milliseconds(prepare: Preparation, batches: Sequence[Tensor], dtype: torch.dtype) -> float:
    """Per batch, of different batches in turn; on a GPU the time of the kernels."""

    def prepare_all() -> None:
        with record_function("preparation"):
            for batch in batches:
                prepare(batch, dtype)

    prepare_all()
    groups = profile_steps(prepare_all, 3, batches[0].device)["groups"]
    return sum(groups.values()) / len(batches)


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
