# SPDX-License-Identifier: Apache-2.0
"""The campaign: random calls of every function, checked against references in extended precision.

`pytest tests/python/campaign --campaign=200000 --campaign-seed=7` runs so many cases; without the options a fixed slice
runs. Processes with different seeds run different cases. A failure prints the smallest case that hypothesis finds, and
the command that finds it again.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple

import hypothesis
import numpy as np
import pytest
from bad_input_campaign import case_of, check_bad_input
from campaign_case import Arena, Case, check_memory, run_case
from campaign_shapes import generator
from elementwise_campaign import elementwise_case
from hypothesis import strategies as st
from library_under_test import THREAD_ORDERS
from overlap_campaign import check_overlap, crowded_case
from permute_campaign import batch_transpose_case, permute_case, permute_convert_case
from prelu_campaign import prelu_backward_case, prelu_case
from python_campaign import check_elementwise, check_permute, check_prelu, check_softmax
from softmax_campaign import softmax_backward_case, softmax_case

# NumPy warns of the values that the campaign is about.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

CASES_PER_SEARCH = 500  # of one seed: hypothesis keeps all that it has drawn in memory

Check = Callable[[random.Random, Any, Any], None]


def described(make: Callable[..., Case], run: Callable[..., None]) -> Check:
    """run(r, arrays, library, case) for a case that is printed where it fails."""

    def check(r: random.Random, arrays: Any, library: Any) -> None:
        case = make(r, library)
        try:
            run(r, arrays, library, case)
        except BaseException:
            hypothesis.note(case.describe())
            raise

    return check


def call_of(make: Callable[..., Case]) -> Check:
    """The check that such a case succeeds and is right."""
    return described(make, lambda r, arrays, library, case: run_case(arrays, library, case, generator(r)))


def python(check: Callable[[random.Random, Any], None]) -> Check:
    return lambda r, arrays, library: check(r, arrays)


class Family(NamedTuple):
    check: Check
    percent: int  # of all cases


FAMILIES = {
    "permute": Family(call_of(lambda r, _: permute_case(r)), 13),
    "batch_transpose": Family(call_of(lambda r, _: batch_transpose_case(r)), 3),
    "permute_convert": Family(call_of(lambda r, _: permute_convert_case(r)), 9),
    "elementwise": Family(call_of(lambda r, _: elementwise_case(r)), 22),
    "prelu": Family(call_of(lambda r, _: prelu_case(r)), 3),
    "prelu_backward": Family(call_of(prelu_backward_case), 5),
    "softmax": Family(call_of(lambda r, _: softmax_case(r)), 10),
    "softmax_backward": Family(call_of(lambda r, _: softmax_backward_case(r)), 5),
    "overlap": Family(described(crowded_case, check_overlap), 8),
    "bad_input": Family(described(case_of, check_bad_input), 7),
    "pyflowk_elementwise": Family(python(check_elementwise), 8),
    "pyflowk_permute": Family(python(check_permute), 3),
    "pyflowk_prelu": Family(python(check_prelu), 2),
    "pyflowk_softmax": Family(python(check_softmax), 2),
}


def test_the_families_share_all_cases() -> None:
    assert sum(family.percent for family in FAMILIES.values()) == 100


def test_a_byte_outside_the_outputs_that_changes_is_found(arrays: Any) -> None:
    for seed in range(20):
        case = permute_case(random.Random(seed))
        arena = Arena(arrays, list(case.tensors.values()), np.random.default_rng(seed))
        for at in (0, arena.bytes.size - 1):  # the first and the last red zone
            changed = arena.bytes.copy()
            changed[at] ^= 1
            arena.memory = arrays.put(changed)
            with pytest.raises(AssertionError, match="1 bytes outside the outputs changed"):
                check_memory(case, arena)


@pytest.mark.parametrize("name", FAMILIES)
def test_any_call_is_as_the_header_says(
    arrays: Any, library: Any, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, name: str
) -> None:
    total, first_seed = request.config.getoption("--campaign"), request.config.getoption("--campaign-seed")
    family = FAMILIES[name]
    count = -(-total * family.percent // 100)
    per_search = min(count, CASES_PER_SEARCH)

    def check(r: random.Random) -> None:
        monkeypatch.setenv("FLOWK_SIMT_THREAD_ORDER", r.choice(THREAD_ORDERS))
        try:
            family.check(r, arrays, library)
        except BaseException:
            hypothesis.note(f"again: pytest {__file__} -k '[{name}]' --campaign={total} --campaign-seed={seed}")
            raise

    for seed in range(first_seed, first_seed - (-count // per_search)):
        search(check, per_search, seed)


def search(check: Callable[[random.Random], None], count: int, seed: int) -> None:
    """Runs the check `count` times; a failure is that of the smallest case that hypothesis finds."""
    settings = hypothesis.settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[hypothesis.Phase.generate, hypothesis.Phase.shrink],
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    hypothesis.seed(seed)(settings(hypothesis.given(st.randoms(use_true_random=False))(check)))()
