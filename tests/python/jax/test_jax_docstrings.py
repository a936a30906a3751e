# SPDX-License-Identifier: Apache-2.0
"""The examples in the texts of pyflowk.jax print what the texts say."""

from __future__ import annotations

import pytest
from docstring_examples import check_examples, names_with_examples
from jax_arrays import jax, jnp

import pyflowk.jax

EXAMPLES = {"masked_softmax", "permute", "prelu", "relu"}


def test_these_functions_and_no_others_have_examples() -> None:
    assert names_with_examples(pyflowk.jax) == EXAMPLES


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_example_of_a_function(name: str) -> None:
    check_examples(f"jax.{name}", getattr(pyflowk.jax, name), jax=jax, jnp=jnp, pyflowk=pyflowk)
