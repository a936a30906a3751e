# SPDX-License-Identifier: Apache-2.0
"""flowk_permute_many: every pair is permuted as by a call of its own, bit for bit, and nothing else is written."""

from __future__ import annotations

import ctypes
import time
from typing import Any, NamedTuple

import numpy as np
import pytest

import pyflowk
from pyflowk import DType, Status


class Case(NamedTuple):
    kernel: str
    shape: tuple[int, ...]
    axes: tuple[int, ...]
    dtype: str
    src_steps: tuple[int, ...] = ()  # strides of src in elements, if it is not in C order
    dst_steps: tuple[int, ...] = ()
    out_dtype: str = ""


CASES = [
    Case("copy_rows", (512,), (0,), "float32"),
    Case("copy_rows", (2, 3, 256), (1, 0, 2), "float32"),
    Case("copy_rows", (2, 2, 2, 2, 2, 2, 64), (5, 0, 4, 1, 3, 2, 6), "float64"),
    Case("copy_shifted_rows", (3, 5, 301), (1, 0, 2), "uint8"),
    Case("copy_shifted_rows", (3, 5, 1029), (1, 0, 2), "float32"),
    Case("copy_shifted_rows", (4, 200), (0, 1), "int16", (), (200, -1)),
    Case("aligned_tile", (64, 96), (1, 0), "float32"),
    Case("aligned_tile", (3, 64, 128), (0, 2, 1), "float16"),
    Case("general_tile", (31, 77), (1, 0), "float32"),
    Case("general_tile", (5, 7, 9, 4), (3, 1, 0, 2), "float64"),
    Case("aligned_tile", (33, 18), (1, 0), "complex128"),
    Case("byte_tile", (257, 515), (1, 0), "uint8"),
    Case("strided_tile", (20, 30), (1, 0), "int32", (70, 2), (41, 2)),
    # A src that runs downwards is aligned as its last element, not as its pointer.
    Case("general_tile", (31, 78), (1, 0), "float32", (80, -1)),
    Case("aligned_tile", (4, 8), (1, 0), "float32", (8, -1)),
    Case("general_tile", (40, 72), (1, 0), "float32", (72, -1), (), "float16"),
    Case("channels", (2, 512, 3), (0, 2, 1), "uint8"),
    Case("channels", (2, 4, 256), (0, 2, 1), "float16"),
    Case("copy_rows", (3, 300), (0, 1), "float32", (), (), "float16"),
    Case("aligned_tile", (64, 96), (1, 0), "uint8", (), (), "float16"),
    Case("general_tile", (64, 96), (1, 0), "float32", (), (), "float16"),
    Case("general_tile", (31, 77), (1, 0), "float64", (), (), "float32"),
]


def strides_of(shape: tuple[int, ...], steps: tuple[int, ...]) -> np.ndarray:
    """The strides in elements: `steps`, or those of C order."""
    return np.array(steps or np.cumprod([1, *shape[:0:-1]])[::-1].tolist(), np.int64)


class Pairs:
    """`count` pairs of tensors of a case in one buffer, each src `src_shift` elements further off a line than the one
    before it, and each dst `dst_shift`."""

    def __init__(self, case: Case, count: int, src_shift: int, dst_shift: int) -> None:
        self.case = case
        self.types = np.dtype(case.dtype), np.dtype(case.out_dtype or case.dtype)
        self.shapes = case.shape, tuple(case.shape[axis] for axis in case.axes)
        self.strides = strides_of(self.shapes[0], case.src_steps), strides_of(self.shapes[1], case.dst_steps)
        self.offsets: list[list[int]] = [[], []]
        end = 0
        for pair in range(count):
            for side, shift in enumerate((src_shift, dst_shift)):
                lengths = [s * (n - 1) for s, n in zip(self.strides[side].tolist(), self.shapes[side])]
                low, high = (sum(f(length, 0) for length in lengths) for f in (min, max))
                lead = -(-end // 128) * 128 + pair * shift % 32 * self.types[side].itemsize
                self.offsets[side].append(lead - low * self.types[side].itemsize)
                end = lead + (high - low + 1) * self.types[side].itemsize
        self.num_bytes = end + 64

    def views(self, memory: np.ndarray, side: int) -> list[np.ndarray]:
        """All sources or all results, as views of `memory`."""
        strides = self.strides[side] * self.types[side].itemsize
        return [np.ndarray(self.shapes[side], self.types[side], memory, at, strides) for at in self.offsets[side]]


def call_many(library: Any, address: int, pairs: Pairs, *tail: Any, **changes: Any) -> Status:
    """Calls flowk_permute_many(), or flowk_permute_many_explain() if `tail` has the text and its size."""
    pointers = [np.array([address + at for at in side], np.uintp) for side in pairs.offsets]
    shape, axes = np.array(pairs.case.shape, np.int64), np.array(pairs.case.axes, np.int32)
    src, dst = (getattr(DType, dtype.name.upper()) for dtype in pairs.types)
    values = {
        "count": len(pointers[0]),
        "srcs": pointers[0].ctypes.data,
        "src_strides": pairs.strides[0].ctypes.data,
        "src_dtype": src,
        "dsts": pointers[1].ctypes.data,
        "dst_strides": pairs.strides[1].ctypes.data,
        "dst_dtype": dst,
        "rank": len(shape),
        "shape": shape.ctypes.data,
        "axes": axes.ctypes.data,
        "scale": 1.0,
        **changes,
    }
    function = library.flowk_permute_many_explain if len(tail) == 2 else library.flowk_permute_many
    return Status(function(*values.values(), *(tail or (None,))))


def explain_many(library: Any, address: int, pairs: Pairs) -> str:
    text = ctypes.create_string_buffer(20000)
    assert call_many(library, address, pairs, text, len(text)) == Status.SUCCESS
    return text.value.decode()


def random_memory(num_bytes: int) -> np.ndarray:
    """Bytes that are finite numbers in every float type."""
    return np.random.default_rng(7).integers(0, 64, num_bytes, np.uint8)


def aligned(num_bytes: int) -> np.ndarray:
    """random_memory() that starts on a line."""
    memory = np.zeros(num_bytes + 128, np.uint8)
    lead = -memory.ctypes.data % 128
    memory = memory[lead : lead + num_bytes]
    memory[:] = random_memory(num_bytes)
    return memory


@pytest.fixture
def place(arrays: Any) -> Any:
    """Puts bytes where the library can reach them, on a line."""
    return (lambda host: host) if arrays.device is None else arrays.put


@pytest.mark.parametrize("shifts", [(0, 0), (1, 0), (3, 1)], ids=["lines", "src-shifted", "both-shifted"])
@pytest.mark.parametrize("count", [1, 2, 3, 21])
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.kernel}-{case.dtype}-{case.shape}")
def test_every_pair_is_permuted(
    arrays: Any, library: Any, place: Any, thread_order: str, case: Case, count: int, shifts: tuple[int, int]
) -> None:
    pairs = Pairs(case, count, *shifts)
    host = aligned(pairs.num_bytes)
    expected = host.copy()
    for src, dst in zip(pairs.views(expected, 0), pairs.views(expected, 1)):
        dst[...] = src.transpose(case.axes).astype(dst.dtype)
    memory = place(host)
    address = arrays.pointer(memory)
    if shifts == (0, 0):
        text = explain_many(library, address, pairs)
        launches = -(-count // 16)
        assert text.count("  launch: ") == launches
        assert text.count(f"{case.kernel}: ") == launches, text
        assert (f"{min(count, 16)} pairs of tensors" in text) == (count > 1)
    assert call_many(library, address, pairs) == Status.SUCCESS, library.flowk_last_error()
    np.testing.assert_array_equal(arrays.fetch(memory), expected)


def test_pairs_share_a_launch_whatever_their_sources_alignment(arrays: Any, library: Any, place: Any) -> None:
    pairs = Pairs(Case("", (40, 50), (1, 0), "float32"), 8, 1, 0)
    text = explain_many(library, arrays.pointer(place(aligned(pairs.num_bytes))), pairs)
    assert text.count("  launch: ") == 1
    assert "8 pairs of tensors in turn" in text


def test_nothing_to_do_is_success(library: Any) -> None:
    assert pyflowk.permute_many([], (0,)) == []
    assert pyflowk.explain(pyflowk.permute_many, [], (0,)) == "nothing to do: there are no arrays\n"
    pairs = Pairs(CASES[0], 2, 0, 0)
    assert call_many(library, 0, pairs, count=0, srcs=None, dsts=None) == Status.SUCCESS
    text = ctypes.create_string_buffer(100)
    assert call_many(library, 0, pairs, text, len(text), count=0) == Status.SUCCESS
    assert text.value == b"nothing to do: there are no elements\n"
    empty = Pairs(CASES[0]._replace(shape=(0,)), 2, 0, 0)
    assert call_many(library, 0, empty) == Status.SUCCESS


def test_an_explanation_of_no_bytes_writes_none(arrays: Any, library: Any, place: Any) -> None:
    pairs = Pairs(CASES[0], 2, 1, 1)
    text = ctypes.create_string_buffer(b"x" * 64)
    assert call_many(library, arrays.pointer(place(aligned(pairs.num_bytes))), pairs, text, 0) == Status.SUCCESS
    assert text.raw == b"x" * 64 + b"\0"


def test_too_many_blocks_are_refused(library: Any) -> None:
    pairs = Pairs(Case("", (1 << 50, 7), (1, 0), "float32"), 1, 0, 0)
    text = ctypes.create_string_buffer(100)
    for tail in ((), (text, len(text))):
        assert call_many(library, 1 << 20, pairs, *tail) == Status.SIZE_OVERFLOW
        assert b"dsts has too many elements" in library.flowk_last_error()


@pytest.mark.parametrize(
    "sizes",
    [[(1 << 40,), (1 << 41,), (1 << 44,)], [(1 << 42, 3), (7396603090560, 3), (1 << 50, 3)]],
    ids=["rows", "columns"],
)
@pytest.mark.parametrize("shift", [0, 1])
def test_a_grid_that_holds_each_pair_is_enough(library: Any, sizes: list[tuple[int, ...]], shift: int) -> None:
    """Pairs that fit no common launch have one each. If a later one fits none, nothing is written before it."""
    for shape in sizes:
        pairs = Pairs(Case("", shape, tuple(range(len(shape)))[::-1], "int16"), 4, 0, shift)
        single = []
        for pair in range(4):
            alone = Pairs(pairs.case, 0, 0, 0)
            alone.offsets = [[side[pair]] for side in pairs.offsets]
            single.append(call_many(library, 1 << 20, alone, ctypes.create_string_buffer(2000), 2000))
        text = ctypes.create_string_buffer(b"before", 8000)
        assert call_many(library, 1 << 20, pairs, text, len(text)) == max(single)
        if max(single) == Status.SUCCESS:
            assert text.value.decode().count("  launch: ") == 4
        else:
            assert text.value == b"before"


def test_the_first_overlap_is_named(library: Any) -> None:
    """Beside a comparison of every pair's dst with the tensors of all others, in order."""
    rng = np.random.default_rng(3)
    num_overlaps = 0
    for trial in range(600):
        shape = tuple(rng.integers(1, 5, 2).tolist())
        strides = [(s, int(rng.choice([-3, -1, 1, 2]))) for s in (12 * rng.choice([-1, 1, 2], 2)).tolist()]
        case = Case("", shape, (1, 0), "int16", strides[0], strides[1][::-1])
        pairs = Pairs(case, 0, 0, 0)
        rows, columns = map(np.arange, shape)
        offsets = [np.add.outer(rows * step, columns * other).ravel() for step, other in strides]
        # Every other trial has tensors between each other's rows.
        starts = [[int(v) for v in rng.integers(0, (150, 2000)[trial % 2], 8)] for _ in range(2)]
        alone = [set(offsets[0] + s).isdisjoint(offsets[1] + d) for s, d in zip(*starts)]
        starts = [[start for start, apart in zip(side, alone) if apart] for side in starts]
        pairs.offsets = [[2 * start for start in side] for side in starts]
        srcs, dsts = ([set((offset + s).tolist()) for s in side] for offset, side in zip(offsets, starts))
        expected = None
        for i, j in np.ndindex(len(dsts), len(dsts)):
            others = ([("dsts", dsts[j])] if j > i else []) + ([("srcs", srcs[j])] if j != i else [])
            for name, other in others:
                if expected is None and dsts[i] & other:
                    expected = (f"dsts[{i}] (", f"overlaps {name}[{j}] (")
        text = ctypes.create_string_buffer(20000)
        status = call_many(library, 1 << 20, pairs, text, len(text))
        assert status == (Status.OVERLAP if expected else Status.SUCCESS), (trial, expected)
        if expected:
            num_overlaps += 1
            assert all(part in library.flowk_last_error().decode() for part in expected)
    assert 100 < num_overlaps < 500


@pytest.mark.parametrize("order", ["rising", "falling", "shuffled"])
def test_the_check_of_many_pairs_takes_no_time_for_every_two(library: Any, order: str) -> None:
    def seconds(count: int) -> float:
        pairs = Pairs(Case("", (4, 4), (1, 0), "float32"), count, 0, 0)
        places = np.arange(count)
        if order != "rising":
            places = places[::-1] if order == "falling" else np.random.default_rng(1).permutation(count)
        pairs.offsets = [[side[place] for place in places] for side in pairs.offsets]
        pairs.offsets[1][-1] = pairs.offsets[0][-2] + 4  # refused by the check: nothing is planned
        times = []
        for _ in range(15):
            start = time.perf_counter()
            assert call_many(library, 1 << 20, pairs) == Status.OVERLAP
            times.append(time.perf_counter() - start)
        return min(times)

    # 16 times as many pairs take 8 to 14 times as long, and 125 times if every two are compared.
    assert seconds(1024) < 50 * seconds(64)


@pytest.mark.parametrize(
    ("changes", "status", "words"),
    [
        ({"count": -1}, Status.INVALID_ARGUMENT, "count = -1, must be in 0 ... 1024"),
        ({"count": 1025}, Status.INVALID_ARGUMENT, "count = 1025, must be in 0 ... 1024"),
        ({"srcs": None}, Status.NULL_POINTER, "srcs = NULL"),
        ({"dsts": None}, Status.NULL_POINTER, "dsts = NULL"),
        ({"src_dtype": 99}, Status.UNSUPPORTED_DTYPE, "src_dtype = 99"),
        ({"scale": np.inf}, Status.INVALID_ARGUMENT, "scale = inf"),
    ],
)
def test_bad_calls_write_nothing(
    arrays: Any, library: Any, place: Any, changes: dict[str, Any], status: Status, words: str
) -> None:
    pairs = Pairs(CASES[6], 3, 0, 0)
    host = aligned(pairs.num_bytes)
    before, memory = host.copy(), place(host)
    assert call_many(library, arrays.pointer(memory), pairs, **changes) == status
    assert words in library.flowk_last_error().decode()
    np.testing.assert_array_equal(arrays.fetch(memory), before)


@pytest.mark.parametrize(
    ("side", "pair", "to", "status", "words"),
    [
        (0, 2, -1, Status.NULL_POINTER, "srcs[2]"),
        (1, 1, -1, Status.NULL_POINTER, "dsts[1]"),
        (1, 2, "+1", Status.MISALIGNED_POINTER, "dsts[2]"),
        (1, 2, (1, 0), Status.OVERLAP, "dsts[0]"),
        (1, 2, (0, 0), Status.OVERLAP, "srcs[0]"),
        (1, 1, (0, 1), Status.OVERLAP, "srcs[1]"),
    ],
)
def test_bad_pointers_write_nothing(
    arrays: Any, library: Any, place: Any, side: int, pair: int, to: Any, status: Status, words: str
) -> None:
    pairs = Pairs(CASES[6], 3, 0, 0)
    host = aligned(pairs.num_bytes)
    before, memory = host.copy(), place(host)
    address = arrays.pointer(memory)
    if to == -1:
        pairs.offsets[side][pair] = -address
    elif to == "+1":
        pairs.offsets[side][pair] += 1
    else:
        pairs.offsets[side][pair] = pairs.offsets[to[0]][to[1]] + 64 * to[0]
    assert call_many(library, address, pairs) == status
    assert words in library.flowk_last_error().decode()
    np.testing.assert_array_equal(arrays.fetch(memory), before)


# ---- pyflowk.permute_many -------------------------------------------------------------------------------------------


def test_python_permutes_a_list(arrays: Any) -> None:
    hosts = [np.random.default_rng(i).random((3, 40, 50), np.float32) for i in range(18)]
    xs = [arrays.put(host) for host in hosts]
    results = pyflowk.permute_many(xs, (2, 0, 1))
    for result, host in zip(results, hosts, strict=True):
        np.testing.assert_array_equal(arrays.fetch(result), host.transpose(2, 0, 1))
    out = [arrays.put(np.zeros((50, 3, 40), np.float16)) for _ in hosts]
    written = pyflowk.permute_many(xs, [2, 0, -2], dtype="float16", scale=2, out=out)
    assert all(result is array for result, array in zip(written, out))
    for result, host in zip(out, hosts, strict=True):
        np.testing.assert_array_equal(arrays.fetch(result), (2 * host).astype(np.float16).transpose(2, 0, 1))
    assert pyflowk.explain(pyflowk.permute_many, xs, (2, 0, 1)).count("  launch: ") == 2
    assert pyflowk.permute_many([], (0,)) == []


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (lambda xs, out: (xs[0], (1, 0), None), TypeError, "xs is a .*, must be a list or tuple of arrays"),
        (
            lambda xs, out: ([xs[0], out[1]], (1, 0), None),
            ValueError,
            r"xs\[1\] has shape \(6, 4\), must be \(4, 6\)",
        ),
        (lambda xs, out: ([xs[0], 3], (1, 0), None), TypeError, r"xs\[1\] is an int"),
        (lambda xs, out: (xs, (1, 1), None), pyflowk.FlowkValueError, r"axes\[1\] = 1"),
        (lambda xs, out: (xs, (1, 0), out[:1]), ValueError, "out has 1 array, must have 2 as xs has"),
        (lambda xs, out: (xs, (1, 0), xs), ValueError, r"out has shape \(4, 6\), must be \(6, 4\)"),
        (lambda xs, out: (xs, (1, 0), [out[0], out[0]]), pyflowk.FlowkValueError, r"out\[0\] .* overlaps out\[1\]"),
    ],
)
def test_python_refuses_bad_lists(arrays: Any, change: Any, error: type[Exception], words: str) -> None:
    xs = [arrays.put(np.ones((4, 6), np.float32)) for _ in range(2)]
    out = [arrays.put(np.zeros((6, 4), np.float32)) for _ in range(2)]
    given, axes, written = change(xs, out)
    with pytest.raises(error, match=words):
        pyflowk.permute_many(given, axes, out=written)
    for array in out:
        assert not arrays.fetch(array).any()
