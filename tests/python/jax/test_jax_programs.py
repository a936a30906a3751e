# SPDX-License-Identifier: Apache-2.0
"""pyflowk.jax inside programs: vmap, loops, conditions, checkpoint, shard_map, export, donation, threads."""

from __future__ import annotations

import contextlib
import ctypes
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from jax_arrays import ON_GPU, assert_close, assert_same, flowk_jax, jax, jnp

from pyflowk._jax import handlers
from pyflowk._native import abi
from pyflowk._native import library as native

X = jnp.asarray(np.random.default_rng(2).normal(size=(4, 3, 5)), jnp.float32)
ALPHA = jnp.asarray([0.1, 0.2, 0.3])


def layers(x: Any, alpha: Any) -> Any:
    """Every primitive once."""
    y = flowk_jax.permute(flowk_jax.gelu(x), (0, 2, 1), dtype="float16", scale=2.0)
    y = flowk_jax.prelu(flowk_jax.cast(y, "float32"), alpha, 2)
    y = flowk_jax.lerp(flowk_jax.batch_transpose(y), x, flowk_jax.add(x, 1))
    return flowk_jax.masked_softmax(y, causal=True, bias=x, scale=0.5)


def layers_by_jax_numpy(x: Any, alpha: Any) -> Any:
    y = (jax.nn.gelu(x, approximate=False) * 2).astype("float16").astype("float32")
    y = jnp.where(y > 0, y, alpha[:, None] * y)
    z = 0.5 * (y + (x + 1) * (x - y)) + x
    q, k = x.shape[-2:]
    kept = jnp.arange(k) <= jnp.arange(q)[:, None] + (k - q)
    return jnp.where(kept, jax.nn.softmax(jnp.where(kept, z, -jnp.inf)), 0)


def loss(x: Any, alpha: Any) -> Any:
    return (layers(x, alpha) ** 2).sum()


def test_a_training_step_is_that_of_jax_numpy() -> None:
    assert_close(jax.jit(layers)(X, ALPHA), layers_by_jax_numpy(X, ALPHA), 1e-5)
    assert_close(layers(X, ALPHA), jax.jit(layers)(X, ALPHA))
    ours = jax.jit(jax.grad(loss, (0, 1)))(X, ALPHA)
    expected = jax.jit(jax.grad(lambda *given: (layers_by_jax_numpy(*given) ** 2).sum(), (0, 1)))(X, ALPHA)
    for one, other in zip(ours, expected):
        assert_close(one, other, 2e-3)  # float16 inside


def test_vmap_is_a_loop_for_every_operand_and_axis() -> None:
    def elementwise(x: Any, y: Any) -> Any:
        return flowk_jax.add(x, y), flowk_jax.where(x > 0, y, 1.0), flowk_jax.relu(x), flowk_jax.fma(x, y, x)

    y = jnp.asarray(np.random.default_rng(3).normal(size=(3, 5, 4)), jnp.float32)
    ours = jax.vmap(elementwise, (0, None))(X, y[..., 0])
    for index in range(4):
        for one, each in zip(ours, elementwise(X[index], y[..., 0])):
            assert_same(one[index], each)
    for axes in [(0, 2), (2, 1)]:
        other = jnp.moveaxis(y, 2, 1) if axes[1] == 1 else y
        given = (X, other) if axes == (0, 2) else (jnp.moveaxis(X, 0, 2), other)
        ours = jax.vmap(elementwise, axes)(*given)
        for index in range(4):
            expected = elementwise(jnp.take(given[0], index, axes[0]), jnp.take(given[1], index, axes[1]))
            for one, each in zip(ours, expected):
                assert_same(one[index], each)
    for axis in range(3):
        ours = jax.vmap(lambda x: flowk_jax.permute(x, (1, 0)), axis)(X)
        assert_same(ours, jnp.moveaxis(X, axis, 0).swapaxes(1, 2))
    twice = jax.vmap(jax.vmap(flowk_jax.gelu, 1), 2)(X)
    assert_same(twice, flowk_jax.gelu(X).transpose(2, 1, 0))


def test_scan_cond_while_and_checkpoint() -> None:
    def step(x: Any, _: Any) -> Any:
        y = jax.lax.cond(x.sum() > 0, flowk_jax.relu, lambda x: flowk_jax.softmax(x), x)
        return flowk_jax.add(y, 0.25), flowk_jax.permute(y, (2, 1, 0))

    def by_hand(x: Any) -> Any:
        for _ in range(3):
            x = step(x, None)[0]
        return x

    last, stacked = jax.jit(lambda x: jax.lax.scan(step, x, None, length=3))(X)
    assert stacked.shape == (3, 5, 3, 4)
    assert_close(last, by_hand(X))
    assert_close(
        jax.jit(jax.grad(lambda x: jax.lax.scan(step, x, None, length=3)[0].sum()))(X),
        jax.grad(lambda x: by_hand(x).sum())(X),
    )
    doubled = jax.jit(lambda x: jax.lax.while_loop(lambda x: x.max() < 100, lambda x: flowk_jax.multiply(x, 2), x))(X)
    assert 100 <= doubled.max() < 200
    kept = jax.jit(jax.grad(jax.checkpoint(loss), (0, 1)))(X, ALPHA)
    for one, other in zip(kept, jax.jit(jax.grad(loss, (0, 1)))(X, ALPHA)):
        assert_close(one, other)


def shard_map(function: Any, mesh: Any, in_specs: Any, out_specs: Any) -> Any:
    try:
        from jax import shard_map as mapped
    except ImportError:
        from jax.experimental.shard_map import shard_map as mapped
    return mapped(function, mesh=mesh, in_specs=in_specs, out_specs=out_specs)


def test_shard_map_over_all_devices() -> None:
    devices = np.array(jax.devices()[:4])
    if len(devices) < 2 and not ON_GPU:
        pytest.fail("the tests' conftest asks for 4 devices on the CPU")
    mesh = jax.sharding.Mesh(devices, ("d",))
    specs = jax.sharding.PartitionSpec("d"), jax.sharding.PartitionSpec()
    x = jnp.concatenate([X] * len(devices))
    ours = jax.jit(shard_map(lambda x, alpha: layers(x, alpha), mesh, specs, specs[0]))
    if hasattr(jax, "shard_map"):  # before, an operand must vary along the same axes as the others
        assert_close(ours(x, ALPHA), layers(x, ALPHA))
        gradients = jax.jit(jax.grad(lambda x, alpha: (ours(x, alpha) ** 2).sum(), (0, 1)))(x, ALPHA)
        for one, other in zip(gradients, jax.jit(jax.grad(loss, (0, 1)))(x, ALPHA)):
            assert_close(one, other, 1e-4)
    varying = jax.jit(shard_map(lambda x: flowk_jax.softmax(flowk_jax.gelu(x)), mesh, specs[:1], specs[0]))
    assert_close(varying(x), flowk_jax.softmax(flowk_jax.gelu(x)))


def test_arrays_over_several_devices_go_through_jit() -> None:
    devices = np.array(jax.devices()[:4])
    sharding = jax.sharding.NamedSharding(jax.sharding.Mesh(devices, ("d",)), jax.sharding.PartitionSpec("d"))
    x = jax.device_put(jnp.concatenate([X] * len(devices)), sharding)
    assert_close(jax.jit(layers)(x, ALPHA), layers(jnp.concatenate([X] * len(devices)), ALPHA))
    for device in devices:
        assert flowk_jax.relu(jax.device_put(X, device)).devices() == {device}


def exported(platforms: Any = None, shape: Any = None) -> Any:
    export = pytest.importorskip("jax.export")
    checks = [export.DisabledSafetyCheck.custom_call(name) for name in flowk_jax.CUSTOM_CALLS]
    shape = X.shape if shape is None else export.symbolic_shape(shape)
    program = export.export(jax.jit(layers), platforms=platforms, disabled_checks=checks)
    return program(jax.ShapeDtypeStruct(shape, X.dtype), ALPHA)


def test_exported_programs_run() -> None:
    assert_close(exported().call(X, ALPHA), layers(X, ALPHA))
    assert exported(["cpu", "cuda"]).platforms == ("cpu", "cuda")
    assert_close(exported(["cpu", "cuda"]).call(X, ALPHA), layers(X, ALPHA))
    anything = exported(shape="batch, 3, columns")
    for shape in [(2, 3, 5), (7, 3, 4)]:
        x = jnp.ones(shape)
        assert_close(anything.call(x, ALPHA), layers(x, ALPHA))


def test_a_stored_program_runs_in_a_process_that_imports_pyflowk_jax(tmp_path: Path) -> None:
    pytest.importorskip("flatbuffers")
    (tmp_path / "program").write_bytes(exported().serialize())
    np.savez(tmp_path / "arrays", x=X, alpha=ALPHA, expected=layers(X, ALPHA))
    code = (
        "import numpy as np, pyflowk.jax\nfrom jax import export\n"
        "given = np.load('arrays.npz'); program = export.deserialize(open('program', 'rb').read())\n"
        "np.testing.assert_allclose(program.call(given['x'], given['alpha']), given['expected'], 1e-5)\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env={**os.environ}, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr


def test_donated_arrays_are_right() -> None:
    expected = np.asarray(layers(X, ALPHA))
    step = jax.jit(lambda x: (layers(x, ALPHA), flowk_jax.add(x, 1)), donate_argnums=0)
    x = jnp.array(X)
    for _ in range(3):
        result, x = step(jnp.array(X))
        assert_close(result, expected)
        assert_close(x, np.asarray(X) + 1)


def test_threads_call_at_the_same_time() -> None:
    """Not bit for bit: a sum's order depends on addresses modulo 128, and JAX's buffers lie at multiples of 64."""
    program, gradient = jax.jit(layers), jax.jit(jax.grad(loss))
    inputs = [X + index for index in range(6)]
    expected = [(program(x, ALPHA), gradient(x, ALPHA), flowk_jax.softmax(x)) for x in inputs]
    wrong: list[Any] = []

    def work(index: int) -> None:
        for _ in range(10):
            x = inputs[index]
            found = (program(x, ALPHA), gradient(x, ALPHA), flowk_jax.softmax(x))
            if not all(np.allclose(one, other, 1e-5, 1e-6) for one, other in zip(found, expected[index])):
                wrong.append(index)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@contextlib.contextmanager
def counted(name: str) -> Iterator[list[int]]:
    """Counts the handlers' calls of a C function on the default device, while the block runs."""
    platform, backend = (1, "cuda") if ON_GPU else (0, "simt")
    functions, library = native.open_backend(backend), handlers.load()
    names, calls = list(abi.FUNCTIONS), [0]
    restype, argtypes = abi.FUNCTIONS[name]

    @ctypes.CFUNCTYPE(restype, *argtypes)
    def count(*arguments: Any) -> int:
        calls[0] += 1
        return int(getattr(functions, name)(*arguments))

    def set_to(replaced: dict[str, Any]) -> None:
        chosen = [ctypes.cast(replaced.get(one) or getattr(functions, one), ctypes.c_void_p) for one in names]
        library.flowk_jax_set_library(platform, (ctypes.c_void_p * len(chosen))(*chosen), b"")

    set_to({name: count})
    try:
        yield calls
    finally:
        jax.effects_barrier()
        set_to({})


def test_many_calls_of_one_program_are_right_and_on_a_gpu_replayed_as_a_graph() -> None:
    def chain(x: Any) -> Any:
        for _ in range(8):
            x = flowk_jax.abs(x)
        return x

    x = -jnp.arange(12.0).reshape(3, 4)
    with counted("flowk_unary") as calls:
        program = jax.jit(chain)
        for index in range(50):
            assert_same(program(x - index), np.asarray(index - x))
    assert calls[0] == 8 * 50 if not ON_GPU else calls[0] < 4 * 50
