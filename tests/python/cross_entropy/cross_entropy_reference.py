# SPDX-License-Identifier: Apache-2.0
"""Cross-entropy and its gradient in extended precision, and how far from them a result may be."""

from __future__ import annotations

from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

Wide = np.longdouble
DTYPES: dict[str, Any] = {
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float32": np.dtype(np.float32),
    "float64": np.dtype(np.float64),
}
EPSILON = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-22, "float64": 2.0**-50}


class Reference(NamedTuple):
    """The results per row, in extended precision; z has the shape of the logits."""

    loss: Any
    lse: Any
    entropy: Any
    z: Any


def scores(logits: Any, scale: float = 1.0, softcap: float = 0.0) -> Any:
    x = Wide(scale) * np.asarray(logits, Wide)
    if softcap == 0:
        return x
    return np.where(np.isneginf(x), x, Wide(softcap) * np.tanh(x / Wide(softcap)))


def reference(
    logits: Any,
    targets: Any,
    *,
    scale: float = 1.0,
    softcap: float = 0.0,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    ignore_index: int = -100,
) -> Reference:
    """Of logits (rows, columns)."""
    with np.errstate(all="ignore"):
        z = scores(logits, scale, softcap)
        largest = z.max(-1, keepdims=True)
        largest = np.where(np.isneginf(largest), 0, largest)
        e = np.exp(z - largest)
        lse = largest[:, 0] + np.log(e.sum(-1))
        p = np.exp(z - np.where(np.isneginf(lse), 0, lse)[:, None])
        entropy = np.where(np.isneginf(lse), 0, lse - np.where(p == 0, 0, p * z).sum(-1))
        entropy = np.where(np.isnan(lse), lse, entropy)
        is_valid = (targets >= 0) & (targets < z.shape[-1])
        of_target = z[np.arange(len(z)), np.where(is_valid, targets, 0)]
        loss = _minus(lse, of_target)
        if label_smoothing:
            loss = (1 - Wide(label_smoothing)) * loss + Wide(label_smoothing) * _minus(lse, z.mean(-1))
        if z_loss:
            loss = loss + Wide(z_loss) * lse**2
        loss = np.where(is_valid, loss, np.nan)
        ignored = targets == ignore_index
        return Reference(*(np.where(ignored, 0, one) for one in (loss, lse, entropy)), z)


def _minus(lse: Any, z: Any) -> Any:
    """lse - z; infinity for z = -infinity in a row of nothing else."""
    return np.where(np.isneginf(z) & ~np.isnan(lse), np.inf, lse - z)


def gradient(
    logits: Any,
    targets: Any,
    dloss: Any = 0.0,
    dlse: Any = 0.0,
    dentropy: Any = 0.0,
    *,
    scale: float = 1.0,
    softcap: float = 0.0,
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    ignore_index: int = -100,
) -> Any:
    """Of logits (rows, columns)."""
    with np.errstate(all="ignore"):
        known = reference(logits, targets, scale=scale, softcap=softcap)
        rows, columns = known.z.shape
        z, lse = known.z, np.where(np.isneginf(known.lse), 0, known.lse)[:, None]
        dloss, dlse, dentropy = (
            np.broadcast_to(np.asarray(one, Wide), rows)[:, None] for one in (dloss, dlse, dentropy)
        )
        p = np.exp(z - lse)
        e, w = Wide(label_smoothing), Wide(z_loss)
        dz = p * (dloss * (1 + 2 * w * lse) + dlse) - dloss * e / columns
        dz -= np.where(p == 0, 0, p * (z - lse + known.entropy[:, None])) * dentropy
        is_valid = (targets >= 0) & (targets < columns)
        dz[np.arange(rows)[is_valid], targets[is_valid]] -= ((1 - e) * dloss)[is_valid, 0]
        if softcap:
            dz *= np.where(np.isneginf(z), 0, 1 - (z / Wide(softcap)) ** 2)
        dz *= Wide(scale)
        dz[~is_valid] = np.nan
        dz[targets == ignore_index] = 0
        return dz


def close(actual: Any, expected: Any, error: Any) -> None:
    actual, expected = np.asarray(actual, np.longdouble), np.asarray(expected, np.longdouble)
    assert actual.shape == expected.shape
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(actual[~finite], expected[~finite])
    assert np.all(np.abs(actual - expected)[finite] <= np.broadcast_to(error, expected.shape)[finite])


def row_error(known: Any, name: str) -> Any:
    """The bound of a loss, an lse or an entropy: roundings at the size of the largest z."""
    with np.errstate(all="ignore"):
        largest = np.nanmax(np.where(np.isfinite(known.z), np.abs(known.z), 0), -1) + np.log(known.z.shape[-1]) + 1
    return largest * (2.0**-46 if name == "float64" else 2.0**-20)


def gradient_error(known: Any, expected: Any, grads: Any, error: Any, name: str, options: dict[str, Any]) -> Any:
    """The bound of a gradient: its rounding; p, which is off by the errors of lse and z; roundings of the terms."""
    p = np.exp(np.where(np.isfinite(known.z), known.z, -np.inf) - np.where(known.lse == 0, 99, known.lse)[:, None])
    size = np.abs(options.get("scale", 1.0)) * sum(np.abs(np.asarray(one, np.float64)) for one in grads)[:, None]
    terms = p * 3 * error[:, None] * (1 + np.abs(known.z)) + (2.0**-46 if name == "float64" else 2.0**-20)
    return EPSILON[name] * np.abs(expected) + size * terms + {"float16": 2.0**-25}.get(name, 0)
