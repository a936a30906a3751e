# SPDX-License-Identifier: Apache-2.0
"""tune(), save_plans(), load_plans() and FLOWK_PLANS: what was measured is taken, kept and refused as documented."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from ctypes import addressof, c_double, c_int32, c_int64
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyflowk
from pyflowk import FlowkValueError, Status

SHAPES = iter(range(31, 131))  # every test has shapes of its own: plans hold for the process


def new_case(arrays: Any, dtype: str = "float32") -> tuple[np.ndarray, Any, Any]:
    """(values, x, out) of a permute by (2, 0, 1) that no other test has, out poisoned."""
    values = np.random.default_rng(0).integers(0, 100, (next(SHAPES), 9, 14)).astype(dtype)
    shape = values.transpose(2, 0, 1).shape
    return values, arrays.put(values), arrays.put(np.full(shape, 77, dtype))


def lines_of(path: Path) -> list[str]:
    return path.read_text().splitlines()


def test_a_tuned_permute_is_right_and_explained(arrays: Any) -> None:
    values, x, out = new_case(arrays)
    assert "measured" not in pyflowk.explain(pyflowk.permute, x, (2, 0, 1), out=out)
    times = pyflowk.tune(pyflowk.permute, x, (2, 0, 1), out=out, max_trials=6)
    assert 0 < times.measured_us <= times.modelled_us
    assert np.array_equal(arrays.fetch(out), values.transpose(2, 0, 1))
    found = re.search(r"measured: (\S+) us; .*: (\S+) us", pyflowk.explain(pyflowk.permute, x, (2, 0, 1), out=out))
    assert found and [float(one) for one in found.groups()] == [
        pytest.approx(times.measured_us, abs=0.006),
        pytest.approx(times.modelled_us, abs=0.006),
    ]
    out = arrays.put(np.full(arrays.fetch(out).shape, 77, "float32"))
    pyflowk.permute(x, (2, 0, 1), out=out)
    assert np.array_equal(arrays.fetch(out), values.transpose(2, 0, 1))


def test_a_measured_plan_of_a_conversion_is_kept(arrays: Any) -> None:
    values, x, _ = new_case(arrays, "float32")
    options = {"out": arrays.put(np.full((14, len(values), 9), 77, "float16")), "dtype": "float16"}
    times = pyflowk.tune(pyflowk.permute, x, (2, 0, 1), max_trials=6, **options)
    assert f"measured: {times.measured_us:.2f} us" in pyflowk.explain(pyflowk.permute, x, (2, 0, 1), **options)
    pyflowk.permute(x, (2, 0, 1), **options)
    assert np.array_equal(arrays.fetch(options["out"]), values.transpose(2, 0, 1).astype("float16"))


def test_a_conversion_and_a_byte_permute_are_tuned(arrays: Any) -> None:
    values, x, _ = new_case(arrays, "uint8")
    assert pyflowk.tune("permute", x, (2, 0, 1), max_trials=4).measured_us > 0
    times = pyflowk.tune(pyflowk.permute, x, (2, 0, 1), dtype="float16", scale=0.5, max_trials=4)
    assert times.measured_us > 0
    halves = pyflowk.permute(x, (2, 0, 1), dtype="float16", scale=0.5)
    assert np.array_equal(arrays.fetch(halves), (values.transpose(2, 0, 1) * 0.5).astype(np.float16))
    assert np.array_equal(arrays.fetch(pyflowk.permute(x, (2, 0, 1))), values.transpose(2, 0, 1))


def test_a_copy_has_one_plan(arrays: Any, tmp_path: Path) -> None:
    values, x, _ = new_case(arrays)
    times = pyflowk.tune(pyflowk.permute, x, (0, 1, 2), out=arrays.put(np.zeros_like(values)))
    assert times.measured_us == times.modelled_us > 0
    assert "measured" not in pyflowk.explain(pyflowk.permute, x, (0, 1, 2))


def test_copies_before_another_operator_are_tuned(arrays: Any) -> None:
    _, x, _ = new_case(arrays)
    reversed_x = x.transpose(2, 1, 0)
    assert pyflowk.tune(pyflowk.masked_softmax, reversed_x, lengths=[5] * 14, max_trials=3).measured_us > 0
    with pytest.raises(ValueError, match="softmax of these arguments does not permute"):
        pyflowk.tune(pyflowk.softmax, x)


@pytest.mark.parametrize("trials", [0, 4097])
def test_max_trials_is_bounded(arrays: Any, library: Any, trials: int) -> None:
    values, x, out = new_case(arrays)
    with pytest.raises(ValueError, match=f"max_trials = {trials}, must be in 1 ... 4096"):
        pyflowk.tune(pyflowk.permute, x, (2, 0, 1), out=out, max_trials=trials)
    shape, axes = (c_int64 * 3)(*values.shape), (c_int32 * 3)(2, 0, 1)
    status = library.flowk_permute_tune(
        arrays.pointer(x),
        None,
        12,
        arrays.pointer(out),
        None,
        12,
        3,
        addressof(shape),
        addressof(axes),
        1.0,
        trials,
        None,
        None,
        None,
    )
    assert status == Status.INVALID_ARGUMENT
    assert library.flowk_last_error() == f"max_trials = {trials}, must be in 1 ... 4096".encode()
    assert (arrays.fetch(out) == 77).all()


def test_no_elements_take_no_time(library: Any) -> None:
    times = c_double(5), c_double(5)
    shape, axes = (c_int64 * 2)(0, 4), (c_int32 * 2)(1, 0)
    status = library.flowk_permute_tune(
        None, None, 12, None, None, 12, 2, addressof(shape), addressof(axes), 1.0, 8, *map(addressof, times), None
    )
    assert status == Status.SUCCESS and [one.value for one in times] == [0, 0]


def test_plans_are_saved_and_loaded(arrays: Any, tmp_path: Path) -> None:
    path = tmp_path / "plans.txt"
    _, x, out = new_case(arrays)
    pyflowk.tune(pyflowk.permute, x, (2, 0, 1), out=out, max_trials=6)
    pyflowk.save_plans(path)
    header, *plans = lines_of(path)
    assert header.startswith("# flowk plans, format 1")
    assert pyflowk.load_plans(path) == (len(plans), 0)
    other = [re.sub('"[^"]+"', '"Another GPU"', plans[0]), re.sub(r"^\d+", "99999", plans[0])]
    path.write_text("\n".join([header, *plans, *other]) + "\n")
    assert pyflowk.load_plans(path) == (len(plans), 2)


PROGRAM = """
import sys

import numpy as np
import pyflowk

def aligned(*shape):  # a plan holds for addresses modulo 128
    memory = np.zeros(128 + 31 * 9 * 14 * 4, np.uint8)
    start = -memory.ctypes.data % 128
    return memory[start : start + 31 * 9 * 14 * 4].view("float32").reshape(shape)


x, out = aligned(31, 9, 14), aligned(14, 31, 9)
if sys.argv[1] == "cuda":
    x, out = pyflowk.asarray(x), pyflowk.asarray(out)
if len(sys.argv) > 2:
    pyflowk.tune(pyflowk.permute, x, (2, 0, 1), out=out, max_trials=6)
    pyflowk.save_plans(sys.argv[2])
try:
    print(pyflowk.explain(pyflowk.permute, x, (2, 0, 1), out=out))
except pyflowk.FlowkValueError as error:
    print(error)
"""


def printed_by_program(arrays: Any, *arguments: str, plans: str) -> str:
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, "simt" if arrays.device is None else "cuda", *arguments],
        env={**os.environ, "FLOWK_PLANS": plans},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_plans_of_another_process_are_taken_from_the_environment(arrays: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "plans.txt")
    measured = printed_by_program(arrays, path, plans="")
    assert "measured: " in measured
    assert printed_by_program(arrays, plans=path) == measured
    assert "measured: " not in printed_by_program(arrays, plans="")


def test_a_corrupted_file_of_the_environment_is_refused(arrays: Any, tmp_path: Path) -> None:
    path = tmp_path / "plans.txt"
    path.write_text("something else\n")
    printed = printed_by_program(arrays, plans=str(path))
    assert "has line 1, must be as flowk_plans_save() writes it: something else" in printed


def test_a_copy_of_elementwise_loads_the_file_of_the_environment_too(arrays: Any, tmp_path: Path) -> None:
    path = tmp_path / "plans.txt"
    path.write_text("something else\n")
    call = f"""if True:
        import numpy as np, pyflowk
        x, out = np.ones((31, 40), np.float32), np.ones((40, 31), np.float32)
        if {arrays.device is not None}:
            x, out = pyflowk.asarray(x), pyflowk.asarray(out)
        try:
            pyflowk.cast(x.T, out=out)
        except pyflowk.FlowkValueError as error:
            print(error)"""
    environment = {**os.environ, "FLOWK_PLANS": str(path)}
    ran = subprocess.run([sys.executable, "-c", call], env=environment, capture_output=True, text=True)
    assert ran.returncode == 0 and "has line 1, must be as flowk_plans_save() writes it" in ran.stdout, ran.stderr


LOGGED = """
import sys
import threading

import numpy as np
import pyflowk

def array(dtype, *shape):  # its address is a multiple of 128
    memory = np.zeros(128 + np.prod(shape) * np.dtype(dtype).itemsize, np.uint8)
    values = memory[-memory.ctypes.data % 128 :][: memory.size - 128].view(dtype).reshape(shape)
    return pyflowk.asarray(values) if sys.argv[1] == "cuda" else values


calls = [
    ((array("float32", 31, 9, 14), (2, 0, 1)), {"out": array("float32", 14, 31, 9)}),
    ((array("float16", 4, 21, 34)[:, 1:], (0, 2, 1)), {"out": array("float16", 4, 34, 24)[:, :, 2:22]}),
    ((array("uint8", 5, 6, 70, 3), (0, 3, 1, 2)), {"out": array("float32", 5, 3, 6, 70), "scale": 1 / 255}),
    ((array("float16", 9, 70), (1, 0)), {"out": array("float32", 70, 9), "scale": 0.1 + 0.2}),
    ((array("int32", 7, 66)[:, ::-1], (1, 0)), {"out": array("int32", 66, 7)}),
    ((array("float32", 40, 12), (0, 1)), {"out": array("float32", 40, 12)}),
]


def call_all():
    for arguments, options in calls:
        options = options | ({"dtype": "float32"} if "scale" in options else {})
        pyflowk.permute(*arguments, **options)
        plans.append(pyflowk.explain(pyflowk.permute, *arguments, **options))


plans = []  # printed by one thread: print() of several can write other bytes (cpython#118138)
threads = [threading.Thread(target=call_all) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print("\\n".join(plans))
"""
LOG = [
    "float32 31x9x14 2,0,1",
    "float16 4x20x34 0,2,1 src=714,34,1+34 out=816,24,1+2",
    "uint8>float32 5x6x70x3 0,3,1,2 0.00392156862745098",
    "float16>float32 9x70 1,0 0.30000000000000004",
    "float32 7x66 1,0 src=66,-1+1",
]


def run_logged(arrays: Any, **environment: str) -> str:
    command = [sys.executable, "-c", LOGGED, "simt" if arrays.device is None else "cuda"]
    ran = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_a_log_has_each_problem_once_and_is_tuned(arrays: Any, tmp_path: Path) -> None:
    log, plans = tmp_path / "log.txt", tmp_path / "plans.txt"
    for _ in range(2):  # the second process finds the lines of the first
        assert "measured: " not in run_logged(arrays, FLOWK_LOG_SHAPES=str(log))
        assert sorted(lines_of(log)) == sorted(LOG)
    command = [sys.executable, "-m", "pyflowk", "tune", "--plans", str(plans), "--trials", "3", "--from-log", str(log)]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert all(f"{case}: " in ran.stdout for case in LOG)
    assert run_logged(arrays, FLOWK_PLANS=str(plans)).count("measured: ") == 4 * len(LOG)


def test_a_log_that_cannot_be_written_is_named(arrays: Any, tmp_path: Path) -> None:
    call = """if True:
        import numpy as np, pyflowk
        for _ in range(2):
            try:
                pyflowk.permute(np.ones((31, 40), np.float32), (1, 0))
            except pyflowk.FlowkValueError as error:
                print(error)"""
    path = str(tmp_path / "no" / "log.txt")
    environment = {**os.environ, "FLOWK_LOG_SHAPES": path}
    ran = subprocess.run([sys.executable, "-c", call], env=environment, capture_output=True, text=True)
    assert ran.stdout.count(f'FLOWK_LOG_SHAPES = "{path}" cannot be written: No such file') == 2, ran.stderr


@pytest.mark.parametrize("change", ["word", "short", "long", "rank", "choice", "header", "missing"])
def test_a_corrupted_file_is_refused(arrays: Any, tmp_path: Path, change: str) -> None:
    path = tmp_path / "plans.txt"
    _, x, out = new_case(arrays)
    pyflowk.tune(pyflowk.permute, x, (2, 0, 1), out=out, max_trials=3)
    pyflowk.save_plans(path)
    header, *plans = lines_of(path)
    words = plans[-1].split(" ")
    at = next(index for index, word in enumerate(words) if word.endswith('"')) + 1  # the count
    if change == "word":
        words[at + 2] = "x"
    elif change == "short":
        words = words[:-1]
    elif change == "long":
        words.append("1")
    elif change == "rank":
        words[at] = str(int(words[at]) - 3)
    elif change == "choice":
        words[-4] = "-2"
    if change != "missing":
        header = "" if change == "header" else header
        path.write_text("\n".join([header, *plans[:-1], " ".join(words)]) + "\n")
    else:
        path.unlink()
    where = "cannot be read" if change == "missing" else f"has line {1 if change == 'header' else len(plans) + 1}"
    with pytest.raises(FlowkValueError, match=where):
        pyflowk.load_plans(path)


def test_a_path_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FlowkValueError, match="cannot be written: No such file"):
        pyflowk.save_plans(tmp_path / "no" / "plans.txt")


@pytest.mark.parametrize("function", [pyflowk.save_plans, pyflowk.load_plans])
def test_what_is_no_path_is_refused_by_name(function: Any) -> None:
    with pytest.raises(TypeError, match="path is an int, must be a path"):
        function(5)
    with pytest.raises(ValueError, match="path has a NUL"):
        function("a\0b")


@pytest.mark.parametrize("trials", [None, 2.5, "8"])
def test_max_trials_is_an_integer(trials: Any) -> None:
    with pytest.raises(TypeError, match="max_trials"):
        pyflowk.tune(pyflowk.permute, np.ones((3, 4)), (1, 0), max_trials=trials)


def test_tune_takes_no_stream() -> None:
    with pytest.raises(TypeError, match="tune takes no stream"):
        pyflowk.tune(pyflowk.permute, np.ones((3, 4)), (1, 0), stream=0)


def test_the_command_keeps_plans(tmp_path: Path) -> None:
    path = tmp_path / "plans.txt"
    command = [sys.executable, "-m", "pyflowk", "tune", "--plans", str(path), "--trials", "3"]
    for cases in (["f32 33x7x13 2,0,1"], ["u8>f16 34x7x13 2,0,1 0.5", "f16 35x7x13 2,0,1"]):
        ran = subprocess.run([*command, *cases], capture_output=True, text=True)
        assert ran.returncode == 0, ran.stderr
        assert all(f"{case}: " in ran.stdout for case in cases)
    assert len(lines_of(path)) == 4
    for wrong in ("f32 33x7 1", "f32 33x7", "f32 33x7 1,0 in=3", "f32 33x7 1,0 src=1", "f32 33x7 1,0 out=1,a", ""):
        ran = subprocess.run([*command, wrong], capture_output=True, text=True)
        assert ran.returncode == 1 and "Traceback" not in ran.stderr and "the tune cannot run: " in ran.stderr
