# SPDX-License-Identifier: Apache-2.0
"""pyflowk.jax without one of the names of JAX that are not documented: what works, and what is said of the rest."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest
from jax_arrays import ON_GPU, jax
from source_tree import ROOT

WITHOUT = """
import importlib, json, sys
import numpy as np
import jax, jax.numpy as jnp, jax.extend.core, jax.interpreters.ad, jax.interpreters.batching, jax.interpreters.mlir
import pyflowk

X = jnp.asarray([[-1.0, 2.0], [3.0, -4.0]])

def features(f):
    prelu = lambda x: f.prelu(x, jnp.full(1, 0.5))
    softmax = lambda x: f.softmax(x, dtype="float32")
    yield "call", lambda: f.relu(X), [[0, 2], [3, 0]]
    yield "number", lambda: f.leaky_relu(X, 0.5), [[-0.5, 2], [3, -2]]
    yield "jit", lambda: jax.jit(lambda x: f.add(x, x[0]))(X), [[-2, 4], [2, -2]]
    yield "plain", lambda: pyflowk.relu(X), [[0, 2], [3, 0]]
    yield "jvp", lambda: jax.jvp(f.square, (X,), (X,))[1], [[2, 8], [18, 32]]
    yield "grad", lambda: jax.grad(lambda x: prelu(x).sum())(X), [[0.5, 1], [1, 0.5]]
    yield "vmap", lambda: jax.vmap(lambda x: f.permute(x, (0,)))(X), X.tolist()

def outcome(call, expected):
    try:
        return "right" if np.array_equal(call(), expected) else "wrong"
    except Exception as error:
        return f"{type(error).__name__}: {error}"

def run():
    for name in [name for name in sys.modules if name.startswith(("pyflowk.jax", "pyflowk._jax"))]:
        del sys.modules[name]
    import pyflowk
    vars(pyflowk).pop("jax", None)
    found = importlib.import_module("pyflowk.jax")
    return {name: outcome(call, expected) for name, call, expected in features(found)}

outcomes = {"": run()}
for path in sys.argv[1:]:
    module, _, name = path.rpartition(".")
    module = importlib.import_module(module)
    own = getattr(module, name)
    hook = vars(module).get("__getattr__")  # JAX's, for names that it deprecates
    delattr(module, name) if name in vars(module) else None
    if hasattr(module, name):
        def without(wanted, name=name, hook=hook):
            if wanted == name:
                raise AttributeError(name)
            return hook(wanted)
        module.__getattr__ = without
    assert not hasattr(module, name), path
    outcomes[path] = run()
    setattr(module, name, own)
    if hook is not None:
        module.__getattr__ = hook
print(json.dumps(outcomes))
"""

NO_JVP, NO_TRANSPOSE, NO_VMAP = (
    "Differentiation rule for 'flowk_",
    "Transpose rule .*'flowk_",
    "Batching rule for 'flowk_",
)
EVERY = ("call", "number", "jit", "jvp", "grad", "vmap")
NO_PRIMITIVE = "NotImplementedError: flowk_.*: pyflowk.jax needs jax.extend.core.Primitive, which JAX .* does not have"
NO_LOWERING = "NotImplementedError: MLIR translation rule for primitive 'flowk_"
# What each name costs: the sentence for each feature that is lost.
COSTS: dict[str, dict[str, str]] = {
    "jax.core.Tracer": {},
    "jax.extend.core.Primitive": dict.fromkeys(EVERY, NO_PRIMITIVE),
    "jax.interpreters.ad.Zero": {"jvp": NO_JVP, "grad": NO_JVP},
    "jax.interpreters.ad.primitive_jvps": {"jvp": NO_JVP, "grad": NO_JVP},
    "jax.interpreters.ad.is_undefined_primal": {"grad": NO_TRANSPOSE},
    "jax.interpreters.ad.primitive_transposes": {"grad": NO_TRANSPOSE},
    "jax.interpreters.batching.primitive_batchers": {"vmap": NO_VMAP},
    "jax.interpreters.mlir.register_lowering": dict.fromkeys(EVERY, NO_LOWERING),
    "jax.interpreters.mlir.lower_fun": {},
    "jax.lax.pvary": {},
    "jax.lax.pcast": {},
}


@pytest.fixture(scope="module")
def outcomes() -> dict[str, dict[str, str]]:
    present = [path for path in COSTS if not path.startswith("jax.lax") or hasattr(jax.lax, path.split(".")[-1])]
    result = subprocess.run([sys.executable, "-c", WITHOUT, *present], capture_output=True, text=True, cwd=ROOT)
    assert result.returncode == 0, result.stderr
    found: dict[str, dict[str, str]] = json.loads(result.stdout.splitlines()[-1])
    return found


@pytest.mark.skipif(ON_GPU, reason="about names")
def test_with_all_names_everything_works(outcomes: dict[str, dict[str, str]]) -> None:
    assert set(outcomes[""].values()) == {"right"}


@pytest.mark.skipif(ON_GPU, reason="about names")
@pytest.mark.parametrize("path", COSTS)
def test_without_a_name_the_rest_works(path: str, outcomes: dict[str, dict[str, str]]) -> None:
    if path not in outcomes:
        pytest.skip(f"this version of JAX has no {path}")
    for feature, outcome in outcomes[path].items():
        sentence = COSTS[path].get(feature)
        if sentence is None:
            assert outcome == "right", feature
        else:
            assert re.search(sentence, outcome), (feature, outcome)


def test_the_names_stand_in_one_file() -> None:
    for file in (ROOT / "pyflowk").rglob("*.py"):
        if file.name != "jax_names.py":
            text = file.read_text()
            assert "jax.core" not in text and "jax.interpreters" not in text and "jax.extend" not in text, file
