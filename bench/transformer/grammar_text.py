# SPDX-License-Identifier: Apache-2.0
"""Text for a small language model, generated: sums that are right, and sentences of a small grammar."""

from __future__ import annotations

import random

import torch
from torch import Tensor

_DETERMINERS = ("the", "a", "every", "no", "this")
_ADJECTIVES = ("small", "quiet", "green", "old", "narrow", "bright", "heavy")
_NOUNS = ("river", "teacher", "engine", "garden", "letter", "window", "sailor", "number")
_VERBS = ("sees", "moves", "finds", "follows", "remembers", "carries", "counts")
_ADVERBS = ("slowly", "often", "again", "at night", "by hand", "in turn")


def generate(num_bytes: int, seed: int) -> bytes:
    """ASCII text of this length: the same for the same seed, on every machine."""
    rng = random.Random(seed)
    lines: list[str] = []
    size = 0
    while size < num_bytes:
        lines.append(_sum(rng) if rng.random() < 0.3 else _sentence(rng))
        size += len(lines[-1])
    return "".join(lines).encode("ascii")[:num_bytes]


def _sum(rng: random.Random) -> str:
    a, b = rng.randrange(1000), rng.randrange(1000)
    return f"{a} + {b} = {a + b}\n"


def _sentence(rng: random.Random) -> str:
    words = [*_phrase(rng), rng.choice(_VERBS), *_phrase(rng)]
    if rng.random() < 0.4:
        words.append(rng.choice(_ADVERBS))
    return " ".join(words) + ".\n"


def _phrase(rng: random.Random) -> list[str]:
    adjectives = [rng.choice(_ADJECTIVES)] if rng.random() < 0.5 else []
    return [rng.choice(_DETERMINERS), *adjectives, rng.choice(_NOUNS)]


def batches(text: bytes, num_batches: int, rows: int, columns: int, seed: int) -> Tensor:
    """Bytes of the text as int64, in shape (num_batches, rows, columns + 1): every row starts at a random place."""
    generator = torch.Generator().manual_seed(seed)
    starts = torch.randint(len(text) - columns, (num_batches, rows, 1), generator=generator)
    characters = torch.frombuffer(bytearray(text), dtype=torch.uint8)
    return characters[starts + torch.arange(columns + 1)].long()
