# SPDX-License-Identifier: Apache-2.0
"""Importing this module registers all operators of torch.ops.flowk, once per process."""

from __future__ import annotations

from . import array_operators, cross_entropy_operators, elementwise_operators, softmax_operators
from .registration import NAMES as NAMES

for _family in (elementwise_operators, array_operators, softmax_operators, cross_entropy_operators):
    _family.register_all()
