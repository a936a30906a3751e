# SPDX-License-Identifier: Apache-2.0
"""The derivatives of softmax, softmax_merge and cross_entropy, as formulas for PyTorch and JAX: `xp` is torch, or
jax.numpy with a sigmoid. All arrays of a formula have the type that it is computed in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .cross_entropy_arguments import Options


def softmax_tangent(xp: Any, y: Any, t: Any, *, log: bool) -> Any:
    """The derivative of softmax, or its logarithm, with value y in the direction t of z; 0 in masked-out columns."""
    if not log:
        return y * (t - (y * t).sum(-1, keepdims=True))
    is_masked = xp.isneginf(y)
    return xp.where(is_masked, 0, t - (xp.exp(y) * xp.where(is_masked, 0, t)).sum(-1, keepdims=True))


def softmax_gradient(xp: Any, dy: Any, y: Any, dlse: Any, *, log: bool) -> tuple[Any, Any]:
    """The gradient of z, and the row's sum in it, with a last dimension of 1. `dlse` may be None."""
    lse_part = 0 if dlse is None else dlse[..., None]
    if not log:
        total = (y * dy).sum(-1, keepdims=True) - lse_part
        return y * (dy - total), total
    is_masked = xp.isneginf(y)
    total = xp.where(is_masked, 0, dy).sum(-1, keepdims=True) - lse_part
    return xp.where(is_masked, 0, dy - xp.exp(y) * total), total


def softcap_slope(xp: Any, z: Any, softcap: float) -> Any:
    """The derivative of softcap * tanh(z / softcap)."""
    t = xp.tanh(z / softcap)
    return 1 - t * t


class MergeTerms:
    """softmax_merge: the weights of both halves, and how far their rows are apart; 0 where all is masked out."""

    def __init__(self, xp: Any, y1: Any, lse1: Any, y2: Any, lse2: Any) -> None:
        is_masked1, is_masked2 = xp.isneginf(lse1), xp.isneginf(lse2)
        distance = xp.where(is_masked1 & is_masked2, 0, lse1 - lse2)
        self.first = xp.where(is_masked1, 0, xp.sigmoid(distance))
        self.second = xp.where(is_masked2, 0, xp.sigmoid(-distance))
        self.apart = xp.where(is_masked1[..., None], 0, y1) - xp.where(is_masked2[..., None], 0, y2)

    def tangents(self, ty1: Any, tlse1: Any, ty2: Any, tlse2: Any) -> tuple[Any, Any]:
        """The derivatives of y and lse in this direction."""
        moved = self.first * self.second * (tlse1 - tlse2)
        ty = self.first[..., None] * ty1 + self.second[..., None] * ty2 + moved[..., None] * self.apart
        return ty, self.first * tlse1 + self.second * tlse2


class CrossEntropyTerms:
    """cross_entropy: what its derivatives have in common. `columns` are the indices of the logits' columns."""

    def __init__(self, xp: Any, columns: Any, logits: Any, targets: Any, lse: Any, options: Options) -> None:
        scale, softcap, self.smooth, z_loss, ignore_index, start, size = options
        self.xp, self.size = xp, size or start + logits.shape[-1]
        self.is_target = columns == targets[..., None]
        self.is_ignored = targets == ignore_index
        self.is_invalid = ((targets < 0) | (targets >= self.size)) & ~self.is_ignored
        self.slope: Any = float(scale)
        self.z = self.slope * logits
        if softcap:
            is_finite = ~xp.isneginf(self.z)
            self.slope = xp.where(is_finite, self.slope * softcap_slope(xp, self.z, softcap), 0)
            self.z = xp.where(is_finite, softcap * xp.tanh(self.z / softcap), self.z)
        self.lse = xp.where(xp.isneginf(lse), 0, lse)
        self.p = xp.exp(self.z - self.lse[..., None])
        self.loss_by_lse = 1 + 2 * z_loss * self.lse  # the derivative

    def _entropy_by_z(self, entropy: Any) -> Any:
        """The derivative of the entropy with respect to z."""
        return self.xp.where(self.p == 0, 0, -self.p * (self.z - self.lse[..., None] + entropy[..., None]))

    def tangents(self, t: Any, entropy: Sequence[Any]) -> list[Any]:
        """The derivatives of loss and lse in the direction t of the logits, and of the entropy if it is given."""
        xp, t = self.xp, t * self.slope
        t_lse = (self.p * t).sum(-1)
        t_target = xp.where(self.is_target, t, 0).sum(-1)
        t_loss = self.loss_by_lse * t_lse - (1 - self.smooth) * t_target - self.smooth * t.sum(-1) / self.size
        found = [xp.where(self.is_invalid, xp.nan, t_loss), t_lse]
        found += [(self._entropy_by_z(one) * t).sum(-1) for one in entropy]
        return [xp.where(self.is_ignored, 0, one) for one in found]

    def gradient(self, dloss: Any, dlse: Any, entropy: Sequence[tuple[Any, Any]]) -> Any:
        """The gradient of the logits. `entropy` has the entropy and its gradient, if there is one."""
        xp = self.xp
        dz = self.p * (dloss * self.loss_by_lse + dlse)[..., None]
        dz = dz - (self.is_target * (1 - self.smooth) + self.smooth / self.size) * dloss[..., None]
        for one, gradient in entropy:
            dz = dz + self._entropy_by_z(one) * gradient[..., None]
        dz = xp.where(self.is_invalid[..., None], xp.nan, dz * self.slope)
        return xp.where(self.is_ignored[..., None], 0, dz)
