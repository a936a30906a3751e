# SPDX-License-Identifier: Apache-2.0
"""The cases of `python -m pyflowk bench` on the executor: results checked, bytes counted, wrong results found."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from host_machine import HostMachine

from pyflowk._bench import elementwise_work, measure, permute_work, prelu_work, softmax_terms_work, softmax_work
from pyflowk._bench.plain import launch_of
from pyflowk._bench.rivals import rivals_of
from pyflowk._bench.runner import OPERATORS, make_work, run_case
from pyflowk._bench.tensors import words_of
from pyflowk._bench.work import Work
from pyflowk._native.operations import OPERATIONS

ELEMENTWISE_OPS = sorted(elementwise_work._BY_NAME)
# operator, words of a case on the line, bytes read, bytes written
CASES = [
    ("permute", "f16 3x5x7x4 0,2,1,3", 840, 840),
    ("permute", "u8 33x65 1,0", 2145, 2145),
    ("permute", "c128 3x4x5 2,1,0", 960, 960),
    ("permute", "u8>f16 2x9x7x3 0,3,1,2 0.5", 378, 756),
    ("permute", "f16>u8 2x3x9x7 0,2,3,1 8", 756, 378),
    ("permute", "f32>e4m3 33x17 1,0", 2244, 561),
    ("permute", "float16 4x20x34 0,2,1 src=714,34,1+34 out=816,24,1+2", 5440, 5440),
    ("permute", "uint16>float32 7x66 1,0 src=70,1+1 out=+3", 924, 1848),
    ("elementwise", "add f16 40x33", 5280, 2640),
    ("elementwise", "multiply f32 6x35 6x35 1x35", 980, 840),
    ("elementwise", "where bool,f64,f64,f64 129", 2193, 1032),
    ("elementwise", "copy f32,i32 1000", 4000, 4000),
    ("elementwise", "less bf16,bf16,bool 100", 400, 100),
    ("prelu", "f32 3x5x4x4", 960, 960),
    ("prelu", "f16 3x5x4x4 nhwc backward", 960, 480),
    ("prelu", "f64 2x3x5x7 backward", 3360, 1680),
    ("softmax", "plain f16 40x33", 2640, 2640),
    ("softmax", "dense f32 2x3x4x50", 4800 + 400, 4800),
    ("softmax", "causal bf16 2x2x6x6", 2 * 4 * 21, 288),
    ("softmax", "bias f16 2x2x3x40", 1920, 960),
    ("softmax", "backward f32 7x100", 5600, 2800),
    ("softmax", "head_bias_backward f32 20x2x3x40", 38400, 19200 + 960),
    ("softmax", "key_bias_backward f16 2x2x30x40", 19200, 9600 + 160),
    ("cross_entropy", "forward bf16 9x130", 2340, 0),
    ("cross_entropy", "forward f32 3x5000", 60000, 0),
    ("cross_entropy", "backward f16 9x131", 2358, 2358),
    ("cross_entropy", "backward f32 5x77", 1540, 1540),
    ("cross_entropy", "smoothing f16 9x131", 2358, 0),
    ("cross_entropy", "smoothing_backward f32 5x77", 1540, 1540),
    ("cross_entropy", "softcap bf16 3x5000", 30000, 0),
    ("cross_entropy", "softcap_backward f16 9x131", 2358, 2358),
    ("softmax_terms", "lse f16 9x130", 2340 + 36, 2340),
    ("softmax_terms", "row_scale_backward bf16 9x131", 4716 + 36, 2358),
    ("softmax_terms", "sinks_backward f32 5x77", 3080 + 60, 1540),
    ("softmax_terms", "softcap_backward f32 5x77", 4620, 1540),
    ("softmax_terms", "all f32 5x77", 1540 + 60, 1540),
    ("softmax_terms", "all_backward f16 9x130", 7020 + 180, 2340),
    ("softmax_terms", "batch_invariant bf16 9x130", 2340, 2340),
    ("softmax_merge", "f16 9x130", 2 * (2340 + 36), 2340 + 36),
    ("softmax_merge", "f32 5x77", 2 * (1540 + 20), 1540 + 20),
]


def work_of(op: str, words: str, **more: Any) -> Work:
    return make_work(HostMachine(), op, OPERATORS[op][0].case_of_words(words_of(words)), num_sets=2, **more)


@pytest.mark.parametrize(("op", "words", "read", "written"), CASES, ids=lambda value: str(value))
def test_a_case_on_the_line_is_right_and_counts_its_bytes(op: str, words: str, read: int, written: int) -> None:
    work = work_of(op, words)
    assert (work.read_bytes, work.written_bytes) == (read, written)
    work.run(0)
    assert work.check()
    assert work.plan()


def test_lengths_count_the_columns_that_are_read() -> None:
    work = work_of("softmax", "lengths f32 2x3x4x40")
    assert isinstance(work, softmax_work.SoftmaxWork)
    assert work.read_bytes == 4 * int(work.lengths.sum())
    work.run(0)
    assert work.check()


@pytest.mark.parametrize("op", ELEMENTWISE_OPS)
def test_every_elementwise_operation_is_checked_against_numpy(op: str) -> None:
    takes_floats = "F" in OPERATIONS[elementwise_work._BY_NAME[op]].takes
    for kind in ("f32", "f16") if takes_floats else ("i32",):
        types = elementwise_work.kinds_of(op, kind)
        work = work_of("elementwise", f"{op} {','.join(types)} 5000")
        work.run(0)
        assert work.check(), kind


@pytest.mark.parametrize(("op", "words"), [case[:2] for case in CASES], ids=str)
def test_a_wrong_element_is_found(op: str, words: str) -> None:
    work = work_of(op, words)
    work.run(0)
    out = work.outs[0]
    middle = out.ptr + out.num_bytes // 2 // out.itemsize * out.itemsize
    byte = work.machine.download(middle + out.itemsize - 1, 1)[0]
    work.machine.fill(middle + out.itemsize - 1, int(byte) ^ 1 if out.kind == "bool" else 0x5A, 1)
    assert not work.check()


def test_a_result_that_was_never_written_is_found() -> None:
    for op, words, *_ in CASES:
        assert not work_of(op, words).check(), words


def test_nan_in_a_softmax_is_found() -> None:
    work = work_of("softmax", "plain f32 40x33")
    work.run(0)
    work.machine.upload(work.outs[0].ptr, np.array([np.nan], np.float32))
    assert not work.check() and not work.check_rival()


@pytest.mark.parametrize(("words", "name"), [("lse f32 40x33", "lse"), ("sinks_backward f16 40x33", "dsinks")])
def test_a_wrong_number_of_a_row_is_found(words: str, name: str) -> None:
    work = work_of("softmax_terms", words)
    work.run(0)
    assert work.check()
    memory = work.numbers[0][name].memory
    memory.host.view(np.float32)[39] += 0.001
    assert not work.check()


def test_a_wrong_log_sum_exp_of_a_merge_is_found() -> None:
    work = work_of("softmax_merge", "f32 40x33")
    work.run(0)
    assert work.check()
    work.second_outs[0].memory.host.view(np.float32)[39] += 0.001
    assert not work.check()


def test_a_rival_may_change_nan_and_nothing_else() -> None:
    work = work_of("permute", "f16 500x701 1,0")  # checked at spans
    work.run(0)
    values = work.outs[0].fetch()
    changed = np.where(np.isnan(values), np.float16(np.nan), values)
    work.machine.upload(work.outs[0].ptr, changed)
    assert work.check_rival() and not work.check()
    work.machine.upload(work.outs[0].ptr, np.roll(changed, 1))
    assert not work.check_rival()


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_tensors_that_begin_inside_a_vector_are_checked_too(direction: str) -> None:
    case = {"layout": "nhwc", "shape": (2, 10, 7, 7), "kind": "f32", "direction": direction, "lead": 1}
    work = make_work(HostMachine(), "prelu", case, num_sets=2)
    work.run(0)
    assert work.check()
    out = work.outs[0]
    work.machine.fill(out.ptr - 1, 0, 1)  # before the first element
    assert not work.check()


def test_bytes_between_the_elements_of_a_view_are_watched() -> None:
    case = {"name": "view", "shape": [20, 30], "axes": [1, 0], "kind": "f32", "out_layout": "pads 1:3"}
    work = make_work(HostMachine(), "permute", case, num_sets=2)
    work.run(0)
    assert work.check()
    out = work.outs[0]
    work.machine.fill(out.ptr + 20 * 4, 0, 1)  # in the first row's padding
    assert not work.check()


@pytest.mark.parametrize("index", range(34))
def test_views_of_the_set_with_shorter_extents(index: int) -> None:
    case = dict(permute_work.SETS.cases_of("views")[index])
    case["shape"] = [min(extent, 20 + place) for place, extent in enumerate(case["shape"])]
    work = make_work(HostMachine(), "permute", case, num_sets=2)
    work.run(0)
    assert work.check()


SHORTENED = [
    *(("permute", case) for case in permute_work.SETS.cases_of("images:0:0")[::5]),
    *(("permute", case) for case in permute_work.SETS.cases_of("byte_images:0:1")),
    *(("elementwise", case) for case in elementwise_work.SETS.cases_of("widths:0:1")[::4]),
]


@pytest.mark.parametrize(
    "case", [*permute_work.SETS.cases_of("rows:0:2"), permute_work.SETS.cases_of("keys")[0]], ids=str
)
def test_rows_and_keys_with_fewer_rows(case: dict[str, Any]) -> None:
    case = case | {
        "shape": [*(min(extent, 5 + place) for place, extent in enumerate(case["shape"][:-1])), case["shape"][-1]]
    }
    work = make_work(HostMachine(), "permute", case, num_sets=2)
    work.run(0)
    assert work.check()


@pytest.mark.parametrize(("op", "case"), SHORTENED, ids=str)
def test_images_and_widths_with_shorter_extents(op: str, case: dict[str, Any]) -> None:
    def shorter(shape: Any) -> Any:
        return type(shape)(min(extent, 20 + place) for place, extent in enumerate(shape))

    case = case | {"shape": shorter(case["shape"])}
    if "shapes" in case:
        case["shapes"] = [shorter(shape) for shape in case["shapes"]]
    work = make_work(HostMachine(), op, case, num_sets=2)
    work.run(0)
    assert work.check() and work.row()["part"]


COUNTS = {
    "permute": {"practice": 37, "ttc-f32": 57, "seeds": 16, "small": 14, "random:3:9:u8": 9, "convert": 30,
                "views": 34, "images": 136, "images:5:3": 91, "rows": 80, "rows:3:2": 20, "keys": 60, "keys:3:1": 33,
                "byte_images": 180, "byte_images:3:2": 4},
    "elementwise": {"anchors": 12, "types": 45, "casts": 30, "misaligned": 26, "broadcast": 52, "transposed": 29,
                    "small": 40, "jit": 18, "ternary": 28, "slices": 192, "slices:3:2": 120,
                    "widths": 80, "widths:5:1": 52},
    "prelu": {"nchw": 32, "nhwc:f64": 16, "odd": 48, "odd:3:5:f16": 10, "large": 8, "misaligned": 24},
    "softmax": {"plain": 34, "odd:bf16": 21, "tiny": 32, "dense": 20, "lengths:f32": 10, "small": 54,
                "bias_gradient": 40, "random:7:80": 80, "tritonbench": 196, "tritonbench:bf16": 98},
    "softmax_terms": {"columns": 340, "columns:3:1": 240, "batch_invariant": 136},
    "softmax_merge": {"columns": 26, "columns:3:1": 16},
}  # fmt: skip


@pytest.mark.parametrize("op", COUNTS)
def test_the_sets_have_their_cases(op: str) -> None:
    module = OPERATORS[op][0]
    assert {name: len(module.SETS.cases_of(name)) for name in COUNTS[op]} == COUNTS[op]
    for name in module.RESULT_SETS:
        assert module.SETS.cases_of(name)
    with pytest.raises(KeyError):
        module.SETS.cases_of("nothing")


def test_random_sets_are_the_same_every_time() -> None:
    assert permute_work.SETS.cases_of("random:7:3") == permute_work.SETS.cases_of("random:7:3")
    assert permute_work.SETS.cases_of("random:7:3") != permute_work.SETS.cases_of("random:8:3")
    assert prelu_work.SETS.cases_of("odd:7:3") == prelu_work.SETS.cases_of("odd:7:3")
    assert permute_work.SETS.cases_of("images:7:3") == permute_work.SETS.cases_of("images:7:3")
    assert permute_work.SETS.cases_of("images:7:3") != permute_work.SETS.cases_of("images:8:3")
    for name in ("rows", "keys", "byte_images"):
        assert permute_work.SETS.cases_of(f"{name}:7:3") == permute_work.SETS.cases_of(f"{name}:7:3")
        assert permute_work.SETS.cases_of(f"{name}:7:3") != permute_work.SETS.cases_of(f"{name}:8:3")
    assert elementwise_work.SETS.cases_of("slices") == elementwise_work.SETS.cases_of("slices:7:8")
    assert elementwise_work.SETS.cases_of("widths:7") != elementwise_work.SETS.cases_of("widths:8")


def test_rotation_passes_the_cache() -> None:
    assert [measure.num_buffer_sets(n << 20) for n in (1, 8, 100, 400, 5000)] == [768, 96, 8, 2, 2]
    assert measure.num_buffer_sets(1000) == measure.MAX_SETS
    machine = HostMachine()
    machine.touched_bytes = 64 * 8_000_000
    work = make_work(machine, "permute", permute_work.case_of_words(["f32", "1000x1000", "1,0"]))
    assert work.num_sets == 64 and work.row()["touched_bytes"] == machine.touched_bytes
    addresses = {tensor.ptr for tensors in work.operands for tensor in tensors} | {out.ptr for out in work.outs}
    assert len(addresses) == 128
    assert np.array_equal(work.operands[0][0].fetch().view(np.uint8), work.operands[63][0].fetch().view(np.uint8))


def test_the_figures_of_a_case() -> None:
    seconds = iter([9e9] * 3 + [2e-3, 1e-3, 4e-3] + [2e-3, 3e-3, 4e-3] + [2e-3, 1e-3, 8e-3])
    machine = HostMachine(lambda replay: next(seconds))  # a round that does not count, then memcpy, copy, flowk in turn
    work = make_work(machine, "permute", permute_work.case_of_words(["f32", "100x100", "1,0"]), num_sets=2)
    row = run_case(machine, work, (), rounds=3)
    assert row["right"]
    assert row["fractions"] == {"flowk": pytest.approx(0.25)}
    assert row["copy_us"] == pytest.approx(500)  # the faster copy, per call of two sets
    assert row["gb_s"] == pytest.approx(80_000 / 2e-3 * 1e-9)
    assert row["datasheet"] == pytest.approx(row["gb_s"] / 1000)
    assert [machine.replays[i] for i in (0, 1, 2)] == [machine.replays[i] for i in (9, 10, 11)]


RIVAL_CASES = [
    (op, words) for op, words, *_ in CASES if op != "elementwise" and not re.search(">(u8|e4m3)", words)
] + [
    *(("elementwise", f"{op} {'f32' if 'F' in OPERATIONS[member].takes else 'i32'} 300")
      for op, member in elementwise_work._BY_NAME.items()),
    ("elementwise", "copy f32,f16 300"), ("elementwise", "gelu f16 300"), ("softmax_merge", "f16 9x130"),
    *(("softmax_terms", f"{kind} f32 9x130") for kind in softmax_terms_work.KINDS),
    ("elementwise", "add_multiply f32 4x300 4x300 1x300 4x1"), ("softmax", "lengths f32 2x3x4x40"),
]  # fmt: skip


@pytest.mark.parametrize(("op", "words"), RIVAL_CASES, ids=str)
def test_pytorch_is_a_rival_that_is_checked(op: str, words: str) -> None:
    pytest.importorskip("torch")
    work = work_of(op, words)
    graphs, skipped = rivals_of(work.machine, work, ["torch"])
    assert list(graphs) == ["torch"], skipped
    graphs["torch"]()


@pytest.mark.parametrize("index", range(8))
def test_pytorch_transposes_too(index: int) -> None:
    pytest.importorskip("torch")
    case = elementwise_work.SETS.cases_of("transposed")[-index] | {"shape": (20, 30)}
    work = make_work(HostMachine(), "elementwise", case, num_sets=2)
    graphs, skipped = rivals_of(work.machine, work, ["torch"])
    assert list(graphs) == ["torch"], skipped
    work.poison()
    graphs["torch"]()
    assert work.check_rival()


def test_a_rival_that_is_wrong_or_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch, "softmax", lambda x, dim: x * 0)
    work = work_of("softmax", "plain f32 40x33")
    monkeypatch.setattr("pyflowk._bench.cutensor.library", lambda: (_ for _ in ()).throw(ImportError("no cutensor")))
    graphs, skipped = rivals_of(work.machine, work, ["torch", "cutensor", "quack"])
    assert not graphs
    assert "gives other values" in skipped["torch"] and set(skipped) == {"torch", "cutensor", "quack"}


@pytest.mark.parametrize(
    ("op", "words", "kernel", "blocks"),
    [
        ("permute", "f16 3x5x7 2,0,1", "permute_2", (1, 1, 1)),
        ("elementwise", "copy f32,f16 1000", "cast_to_half", (4, 1, 1)),
        ("prelu", "f32 3x5x4x4", "prelu", (1, 1, 1)),
        ("softmax", "dense f32 2x3x4x50", "softmax_by_mask", (2, 3, 4)),
        ("softmax", "lengths f32 2x3x4x50", "softmax_by_length", (2, 3, 4)),
    ],
)
def test_plain_kernels_have_their_launches(op: str, words: str, kernel: str, blocks: tuple[int, ...]) -> None:
    found, grid, _, parameters = launch_of(work_of(op, words), 0)
    assert (found, grid) == (kernel, blocks)
    assert len(parameters) == {"permute_2": 3, "cast_to_half": 3, "prelu": 6}.get(kernel, 5)


def test_plain_kernels_take_no_views() -> None:
    views = permute_work.SETS.cases_of("views")
    padded_out = next(case for case in views if case["out_layout"].startswith("pads")) | {"shape": [40, 30]}
    misaligned = {"layout": "nchw", "shape": (2, 3, 5, 7), "kind": "f32", "direction": "forward", "lead": 1}
    launch_of(make_work(HostMachine(), "prelu", misaligned, num_sets=2), 0)
    with pytest.raises(TypeError, match="strides"):
        launch_of(make_work(HostMachine(), "permute", padded_out, num_sets=2), 0)
    with pytest.raises(TypeError, match="no plain kernel"):
        launch_of(work_of("softmax", "causal f32 2x2x6x6"), 0)
