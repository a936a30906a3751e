# SPDX-License-Identifier: Apache-2.0
"""Importing this module registers all operators of torch.ops.flowk, once per process, and explain()'s part of them."""

from __future__ import annotations

from .._explain import FRAMEWORKS
from . import array_operators, cross_entropy_operators, elementwise_operators, softmax_merge_operator, softmax_operators
from .explained_calls import plans_of
from .registration import NAMES as NAMES

for _family in (
    *(elementwise_operators, array_operators, softmax_operators, softmax_merge_operator),
    cross_entropy_operators,
):
    _family.register_all()
FRAMEWORKS.append(plans_of)
