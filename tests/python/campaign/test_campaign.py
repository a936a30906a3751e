# SPDX-License-Identifier: Apache-2.0
"""The campaign: random calls of every function, checked against references in extended precision.

`pytest tests/python/campaign --campaign=200000 --campaign-seed=7` runs 200,000 cases; without the options a fixed slice
runs. Processes with different seeds run different cases. A failure prints the smallest case that hypothesis finds, and
the command that finds it again.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import hypothesis
import numpy as np
import pytest
from bad_input_campaign import case_of, check_bad_input
from campaign_case import Arena, Case, check_memory, run_case
from campaign_makers import MAKERS, PYTHON_CHECKS
from campaign_shapes import generator
from hypothesis import strategies as st
from library_under_test import THREAD_ORDERS
from overlap_campaign import check_overlap, crowded_case

from pyflowk._native.abi import Status

# NumPy warns of the values that the campaign is about.
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

CASES_PER_SEARCH = 500  # of one seed: hypothesis keeps all that it has drawn in memory

Check = Callable[[random.Random, Any, Any], object]


def described(make: Callable[..., Case], run: Callable[..., object]) -> Check:
    """run(r, arrays, library, case) for a case that is printed if it fails."""

    def check(r: random.Random, arrays: Any, library: Any) -> None:
        case = make(r, library)
        try:
            run(r, arrays, library, case)
        except BaseException:
            hypothesis.note(case.describe())
            raise

    return check


def call_of(name: str) -> Check:
    """The check that such a case succeeds and is right."""
    return described(
        lambda r, library: MAKERS[name](r, library, 0),
        lambda r, arrays, library, case: run_case(arrays, library, case, generator(r)),
    )


def python(name: str) -> Check:
    return lambda r, arrays, library: PYTHON_CHECKS[name](r, arrays)


PERCENT_OF_CASES = {
    "permute": 12,
    "batch_transpose": 3,
    "permute_convert": 9,
    "elementwise": 18,
    "prelu": 3,
    "prelu_backward": 5,
    "softmax": 9,
    "softmax_backward": 5,
    "softmax_dbias": 1,
    "softmax_merge": 1,
    "cross_entropy": 2,
    "cross_entropy_backward": 2,
    "overlap": 8,
    "bad_input": 7,
    "pyflowk_elementwise": 8,
    "pyflowk_permute": 3,
    "pyflowk_prelu": 2,
    "pyflowk_softmax": 2,
}
FAMILIES = {
    **{name: call_of(name) for name in MAKERS},
    **{name: python(name) for name in PYTHON_CHECKS},
    "overlap": described(crowded_case, check_overlap),
    "bad_input": described(case_of, check_bad_input),
}


def test_the_families_share_all_cases() -> None:
    assert PERCENT_OF_CASES.keys() == FAMILIES.keys()
    assert sum(PERCENT_OF_CASES.values()) == 100


def test_a_byte_outside_the_outputs_that_changes_is_found(arrays: Any) -> None:
    for seed in range(20):
        case = MAKERS["permute"](random.Random(seed), None, 0)
        arena = Arena(arrays, list(case.tensors.values()), np.random.default_rng(seed))
        for at in (0, arena.bytes.size - 1):  # the first and the last red zone
            changed = arena.bytes.copy()
            changed[at] ^= 1
            arena.memory = arrays.put(changed)
            with pytest.raises(AssertionError, match="1 bytes outside the outputs changed"):
                check_memory(case, arena)


def test_every_status_of_a_bad_argument_is_reached(arrays: Any, library: Any) -> None:
    reached = set()
    for seed in range(300):
        r = random.Random(seed)
        reached.add(check_bad_input(r, arrays, library, case_of(r, library)))
    assert reached == {status for status in Status if Status.SUCCESS < status <= Status.SIZE_OVERFLOW}


@pytest.mark.parametrize("name", FAMILIES)
def test_any_call_is_as_the_header_says(
    arrays: Any, library: Any, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, name: str
) -> None:
    total, first_seed = request.config.getoption("--campaign"), request.config.getoption("--campaign-seed")
    count = -(-total * PERCENT_OF_CASES[name] // 100)
    per_search = min(count, CASES_PER_SEARCH)

    def check(r: random.Random) -> None:
        monkeypatch.setenv("FLOWK_SIMT_THREAD_ORDER", r.choice(THREAD_ORDERS))
        try:
            FAMILIES[name](r, arrays, library)
        except BaseException:
            hypothesis.note(f"again: pytest {__file__} -k '[{name}]' --campaign={total} --campaign-seed={seed}")
            raise

    for seed in range(first_seed, first_seed - (-count // per_search)):
        search(check, per_search, seed)


def search(check: Callable[[random.Random], None], count: int, seed: int) -> None:
    """Runs the check `count` times; a failure shows the smallest case that hypothesis finds."""
    settings = hypothesis.settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[hypothesis.Phase.generate, hypothesis.Phase.shrink],
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    hypothesis.seed(seed)(settings(hypothesis.given(st.randoms(use_true_random=False))(check)))()
