# SPDX-License-Identifier: Apache-2.0
"""The examples in the texts of pyflowk's functions print what the texts say. test_torch_docstrings.py and
test_jax_docstrings.py test those of pyflowk.torch and pyflowk.jax."""

from __future__ import annotations

import numpy as np
import pytest
from docstring_examples import check_examples, names_with_examples

import pyflowk
import pyflowk.memory

# The functions that matter have an example, and no other one has an example that is not run.
OF_NUMPY = {
    *("permute", "batch_transpose", "transpose", "swapaxes", "moveaxis", "permute_many", "cast"),
    *("add", "add_multiply", "fma", "scale", "where", "clip"),
    *("relu", "gelu", "silu_mul", "leaky_relu", "prelu", "prelu_backward"),
    *("softmax", "log_softmax", "masked_softmax", "masked_softmax_backward", "softmax_merge"),
    "masked_softmax_backward_dbias",
    *("cross_entropy", "explain", "prepare", "tune"),
}
ON_A_GPU = {"ElementwiseKernel", "asarray", "empty"}
OF_MEMORY_ON_A_GPU = {"statistics", "copy_async"}


def test_these_functions_and_no_others_have_examples() -> None:
    assert names_with_examples(pyflowk) == OF_NUMPY | ON_A_GPU
    assert names_with_examples(pyflowk.memory) == OF_MEMORY_ON_A_GPU


@pytest.mark.usefixtures("host_library")
@pytest.mark.parametrize("name", sorted(OF_NUMPY))
def test_example_of_numpy_arrays(name: str) -> None:
    check_examples(name, getattr(pyflowk, name), np=np, pyflowk=pyflowk)


@pytest.mark.gpu
@pytest.mark.parametrize("name", sorted(ON_A_GPU))
def test_example_on_a_gpu(name: str) -> None:
    check_examples(name, getattr(pyflowk, name), np=np, pyflowk=pyflowk)


@pytest.mark.gpu
@pytest.mark.parametrize("name", sorted(OF_MEMORY_ON_A_GPU))
def test_example_of_memory_on_a_gpu(name: str) -> None:
    check_examples(f"memory.{name}", getattr(pyflowk.memory, name), np=np, pyflowk=pyflowk)
