# SPDX-License-Identifier: Apache-2.0
"""The examples in the texts of pyflowk.torch print what the texts say."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from docstring_examples import check_examples, names_with_examples  # noqa: E402

import pyflowk.torch  # noqa: E402

EXAMPLES = {"GELU", "MaskedSoftmax", "PReLU"}


def test_these_modules_and_no_others_have_examples() -> None:
    assert names_with_examples(pyflowk.torch) == EXAMPLES


@pytest.mark.usefixtures("host_library")
@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_example_of_a_module(name: str) -> None:
    check_examples(f"torch.{name}", getattr(pyflowk.torch, name), torch=torch, pyflowk=pyflowk)
