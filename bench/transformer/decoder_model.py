# SPDX-License-Identifier: Apache-2.0
"""A decoder of bytes. Attention, activation and loss are PyTorch's or pyflowk's, or attention is PyTorch's SDPA.

Everything else, the parameters and their initial values too, is the same, so that the variants can be compared.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import pyflowk
import pyflowk.torch as fnn

NUM_BYTES = 256
MAX_DISTANCE = 128


@dataclass(frozen=True)
class Config:
    """`attention`: "causal", or "biased": each head has its own dense mask, and a learned bias per distance that all
    layers share. `vocabulary`: the columns of the logits; those past the bytes' own are never a target."""

    layers: int = 8
    width: int = 512
    heads: int = 8
    context: int = 1024
    activation: str = "gelu"
    attention: str = "causal"
    vocabulary: int = NUM_BYTES


class Operators(Protocol):
    """q, k and v have shape (batch, heads, context, width / heads). True in a mask is masked out. Without a bias it is
    causal, of shape (context, context); with one, causal and more, both of shape (heads, context, context)."""

    def split_heads(self, qkv: Tensor, heads: int) -> tuple[Tensor, ...]: ...
    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor, bias: Tensor | None) -> Tensor: ...
    def merge_heads(self, x: Tensor) -> Tensor: ...
    def heads_first(self, bias: Tensor) -> Tensor: ...
    def activation(self, name: str, width: int) -> nn.Module: ...
    def loss(self, logits: Tensor, targets: Tensor) -> Tensor: ...


class TorchOperators:
    """Explicit attention. Heads are moved as views, which torch copies if a matrix product needs that."""

    def split_heads(self, qkv: Tensor, heads: int) -> tuple[Tensor, ...]:
        return qkv.unflatten(-1, (3, heads, -1)).permute(2, 0, 3, 1, 4).unbind()

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor, bias: Tensor | None) -> Tensor:
        scores = (q * q.shape[-1] ** -0.5) @ k.mT
        if bias is not None:
            scores += bias.to(scores.dtype)
        # With dtype, autocast leaves the type as it is: else it would take float32 and twice the memory.
        return torch.softmax(scores.masked_fill_(mask, -torch.inf), -1, dtype=scores.dtype) @ v

    def merge_heads(self, x: Tensor) -> Tensor:
        return x.transpose(1, 2).flatten(2)

    def heads_first(self, bias: Tensor) -> Tensor:
        return bias.permute(2, 0, 1).contiguous()

    def activation(self, name: str, width: int) -> nn.Module:
        return {"gelu": nn.GELU, "prelu": lambda: nn.PReLU(width)}[name]()

    def loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(logits, targets)


class SdpaOperators(TorchOperators):
    """torch.nn.functional.scaled_dot_product_attention: PyTorch picks a fused kernel that can do the mask."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor, bias: Tensor | None) -> Tensor:
        if bias is None:
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)
        both = bias.to(q.dtype).masked_fill(mask, -torch.inf)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=both.expand(q.shape[0], -1, -1, -1))


class FlowkOperators:
    """Explicit attention: one kernel for scale, bias, mask and softmax, one for q, k and v of all heads. The loss's
    gradient is written over the logits."""

    def split_heads(self, qkv: Tensor, heads: int) -> tuple[Tensor, ...]:
        return pyflowk.permute(qkv.unflatten(-1, (3, heads, -1)), (2, 0, 3, 1, 4)).unbind()

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor, bias: Tensor | None) -> Tensor:
        scale = q.shape[-1] ** -0.5
        dense = None if bias is None else mask
        scores = q @ k.mT  # the result has the scores' type, under autocast too: as in TorchOperators
        return pyflowk.masked_softmax(scores, dense, causal=True, bias=bias, scale=scale, dtype=scores.dtype) @ v

    def merge_heads(self, x: Tensor) -> Tensor:
        return pyflowk.permute(x, (0, 2, 1, 3)).flatten(2)

    def heads_first(self, bias: Tensor) -> Tensor:
        return pyflowk.permute(bias, (2, 0, 1))

    def activation(self, name: str, width: int) -> nn.Module:
        return {"gelu": fnn.GELU, "prelu": lambda: fnn.PReLU(width)}[name]()

    def loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        return fnn.CrossEntropyLoss(in_place=True)(logits, targets)


VARIANTS: dict[str, type[Operators]] = {"torch": TorchOperators, "flowk": FlowkOperators, "sdpa": SdpaOperators}


class Block(nn.Module):
    def __init__(self, config: Config, operators: Operators) -> None:
        super().__init__()
        width = config.width
        self.heads, self.operators = config.heads, operators
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.qkv, self.projection = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.activation = operators.activation(config.activation, 4 * width)

    def forward(self, x: Tensor, mask: Tensor, bias: Tensor | None) -> Tensor:
        q, k, v = self.operators.split_heads(self.qkv(self.norms[0](x)), self.heads)
        x = x + self.projection(self.operators.merge_heads(self.operators.attend(q, k, v, mask, bias)))
        hidden = self.up(self.norms[1](x))
        hidden = self.activation(hidden.flatten(0, 1)).view_as(hidden)  # PReLU's channels are dimension 1
        return x + self.down(hidden)


class Decoder(nn.Module):
    """The mean cross entropy, in nats per byte, of the bytes after each of `tokens`."""

    def __init__(self, config: Config, variant: str) -> None:
        super().__init__()
        self.operators = VARIANTS[variant]()
        self.bytes = nn.Embedding(NUM_BYTES, config.width)
        self.positions = nn.Parameter(0.02 * torch.randn(config.context, config.width))
        self.blocks = nn.ModuleList(Block(config, self.operators) for _ in range(config.layers))
        self.norm, self.head = nn.LayerNorm(config.width), nn.Linear(config.width, config.vocabulary)
        nn.init.normal_(self.bytes.weight, std=0.02)
        i = torch.arange(config.context)
        distance = i[:, None] - i
        self.is_biased = config.attention == "biased"
        mask = head_masks(distance, config.heads) if self.is_biased else distance < 0
        self.register_buffer("mask", mask, persistent=False)
        if self.is_biased:
            self.biases = nn.Embedding(MAX_DISTANCE, config.heads)
            nn.init.normal_(self.biases.weight, std=0.02)
            self.register_buffer("distance", distance.clamp(0, MAX_DISTANCE - 1), persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        inputs, targets = tokens[:, :-1], tokens[:, 1:]
        bias = self.operators.heads_first(self.biases(self.distance)) if self.is_biased else None
        x = self.bytes(inputs) + self.positions
        for block in self.blocks:
            x = block(x, self.mask, bias)
        return self.operators.loss(self.head(self.norm(x)).flatten(0, 1), targets.flatten())


def head_masks(distance: Tensor, heads: int) -> Tensor:
    """Causal; even heads see a window of 32, 64, ... columns, odd ones every 2nd, 3rd, ... from the diagonal back."""

    def one(head: int) -> Tensor:
        n = head // 2
        return distance >= 32 << n if head % 2 == 0 else distance % (n + 2) != 0

    return torch.stack([one(head) for head in range(heads)]) | (distance < 0)
