# SPDX-License-Identifier: Apache-2.0
"""What every operator's cases share: rotating buffers, the C call on each, the check, and the row of the report."""

from __future__ import annotations

import ctypes
import gc
import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from .._native.c_types import StreamHandle
from .._native.errors import error_of
from .measure import Row, num_buffer_sets
from .tensors import POISON, Array, Tensor, sample


class Work:
    """One case on rotating buffers. A subclass sets the attributes below, defines `arguments_of` and `expected`, and
    ends its __init__ with rotate().

    kind, types, shape_text, note   what names the case, as text; `part` is the part of its set with a mean of its own
    function                        the C function without `flowk_`
    workspace                       the C arguments between those of arguments_of() and the stream
    read_bytes, written_bytes       the bytes that must be moved at least
    operands, outs                  a list of tensors, and a tensor, per buffer set
    second_outs                     a tensor per buffer set, if there is a second result
    """

    op: ClassVar[str] = ""
    poison_byte: ClassVar[int] = POISON
    kind = note = part = types = shape_text = function = ""
    workspace: tuple[Any, ...] = ()
    read_bytes = written_bytes = 0

    def __init__(self, machine: Any, moved_bytes: int, num_sets: int | None = None) -> None:
        self.machine = machine
        self.num_sets = num_sets or num_buffer_sets(moved_bytes, machine.touched_bytes)
        self.operands: list[list[Tensor]] = []
        self.outs: list[Tensor] = []
        self.second_outs: list[Tensor] = []

    def rotate(self, operands: list[Tensor], out: Tensor) -> None:
        """Makes equal `operands` and `outs` for every buffer set, and the arguments of the call on each."""
        self.operands = [operands] + [[tensor.again() for tensor in operands] for _ in range(self.num_sets - 1)]
        self.outs = [out] + [out.again() for _ in range(self.num_sets - 1)]
        self.poison()
        self.calls = [self.arguments_of(i) for i in range(self.num_sets)]
        self._bound = getattr(self.machine.c, f"flowk_{self.function}")
        self._stream = StreamHandle(self.machine.stream)

    def allocate_workspace(self, *sizes: Any) -> None:
        """Sets `workspace` to memory of the bytes that the C function needs for these sizes."""
        num_bytes = ctypes.c_size_t()
        query = getattr(self.machine.c, f"flowk_{self.function}_workspace_bytes")
        self.check_status(query(*sizes, ctypes.addressof(num_bytes)))
        self._memory = Tensor(self.machine, "u8", [max(num_bytes.value, 16)])
        self._memory.poison(0xFF)  # NaN, if it is read unwritten
        self.workspace = self._memory.arguments()[0], num_bytes.value

    def poison(self) -> None:
        """Overwrites the first results with bytes that no result has."""
        for out in (*self.outs[:1], *self.second_outs[:1]):
            out.poison(self.poison_byte)

    def arguments_of(self, i: int) -> tuple[Any, ...]:
        """The C arguments on buffer set i, without the stream."""
        raise NotImplementedError

    def run(self, i: int) -> None:
        """flowk's call on buffer set i."""
        self.check_status(self._bound(*self.calls[i], *self.workspace, self._stream))

    def check_status(self, status: int) -> None:
        """FlowkError with the library's text if a call failed."""
        if status:
            raise error_of(self.machine.c, status)

    def plan(self) -> str:
        """explain()'s text."""
        text = ctypes.create_string_buffer(4096)
        explain = getattr(self.machine.c, f"flowk_{self.function}_explain")
        self.check_status(explain(*self.calls[0], text, len(text)))
        return text.value.decode()

    # ---- the check

    def expected(self, index: list[Array]) -> Array:
        """The result at a multi-index of out."""
        raise NotImplementedError

    def is_close(self, got: Array, expected: Array, index: list[Array]) -> bool:
        """Whether elements of the result are right; by default if their bits are the expected ones."""
        return bool(np.array_equal(_bits(got), _bits(expected)))

    def _sampled(self) -> tuple[Array, list[Array], Array]:
        """The first output's memory, the multi-index of a sample of its elements, and these elements."""
        fetched, index = self.outs[0].fetch(), sample(self.outs[0].shape)
        return fetched, index, fetched[self.outs[0].offsets(index)]

    def check(self) -> bool:
        """Whether the first output is right at a sample of its elements, and untouched between the elements."""
        fetched, index, got = self._sampled()
        return self.is_close(got, self.expected(index), index) and self._is_untouched_between(fetched)

    def _is_untouched_between(self, fetched: Array) -> bool:
        """Whether the first output's memory holds the poison where no element is."""
        out = self.outs[0]
        if out.num_elements == math.prod(out.shape):
            return True
        is_element = np.zeros(out.num_elements, bool)
        strides = [stride * is_element.itemsize for stride in out.strides]
        np.ndarray(out.shape, bool, is_element, out.first, strides)[...] = True
        return bool((is_element | self._is_poisoned(fetched)).all())

    def is_written(self, fetched: Array) -> bool:
        """Whether no element of an output has the poison's bits."""
        return not bool(self._is_poisoned(fetched).any())

    def _is_poisoned(self, fetched: Array) -> Array:
        """Which elements of an output's memory have the poison's bits: by words, because a comparison of single bytes
        takes longer than all else of a case."""
        word = min(fetched.itemsize, 8)
        poison = int.from_bytes(bytes([self.poison_byte]) * word, "little")
        poisoned: Array = _bits(fetched).reshape(-1).view(f"u{word}") == poison
        if fetched.itemsize > word:
            poisoned = np.all(poisoned.reshape(-1, fetched.itemsize // word), 1)
        return poisoned

    def check_rival(self) -> bool:
        """Whether a sample is roughly right, within 2 %: rivals have roundings and NaNs of their own."""
        _, index, got = self._sampled()
        return is_roughly(got, self.expected(index))

    # ---- rivals

    def formula(self, torch: Any) -> Callable[..., Any] | None:
        """PyTorch's function of rival_operands(), which returns its result or writes it to one; None: no such case."""
        return None

    def rival_operands(self, i: int) -> list[Tensor]:
        """The tensors that formula() takes."""
        return self.operands[i]

    def rival_out(self) -> Tensor:
        """outs[0] in the shape of a result of formula()."""
        return self.outs[0]

    # ---- the report

    def row(self) -> Row:
        """The case, before it is timed."""
        return {
            "op": self.op, "kind": self.kind, "types": self.types, "shape": self.shape_text, "note": self.note,
            "part": self.part, "read_bytes": self.read_bytes, "written_bytes": self.written_bytes,
            "touched_bytes": self.num_sets * self.moved_bytes,
        }  # fmt: skip

    @property
    def moved_bytes(self) -> int:
        return self.read_bytes + self.written_bytes


class CopyWork(Work):
    """The yardstick: copies of the same number of bytes, by cudaMemcpyAsync and by flowk's contiguous copy."""

    op = "copy"
    function = "permute"

    def __init__(self, machine: Any, moved_bytes: int, num_sets: int) -> None:
        super().__init__(machine, moved_bytes, num_sets)
        src = Tensor(machine, "u8", [max(16, moved_bytes // 2 // 16 * 16)], "bits")
        self.rotate([src], Tensor(machine, "u8", src.shape))

    def arguments_of(self, i: int) -> tuple[Any, ...]:
        return permute_arguments(self.operands[i][0], [0], self.outs[i])

    def memcpy(self, i: int) -> None:
        src, dst = self.operands[i][0], self.outs[i]
        self.machine.copy(dst.ptr, src.ptr, src.num_bytes)


def permute_arguments(x: Tensor, axes: Sequence[int], out: Tensor) -> tuple[Any, ...]:
    """The arguments of flowk_permute() without the stream."""
    src, src_strides, dtype = x.arguments()
    dst, dst_strides, _ = out.arguments()
    return src, src_strides, dst, dst_strides, *geometry(x.shape, axes), dtype


def geometry(shape: Sequence[int], axes: Sequence[int]) -> tuple[Any, ...]:
    """Rank, shape and axes as C values."""
    rank = len(shape)
    return rank, (ctypes.c_int64 * max(rank, 1))(*shape), (ctypes.c_int32 * max(rank, 1))(*axes)


def by(numbers: Sequence[int], separator: str = "x") -> str:
    return separator.join(map(str, numbers))


def free_memory() -> None:
    """Frees the buffers of a case that is done. The garbage collector does not visit again what is left."""
    gc.collect()
    gc.freeze()


def _bits(values: Array) -> Array:
    raw: Array = np.ascontiguousarray(values).view(np.uint8)
    return raw


def is_roughly(got: Array, expected: Array) -> bool:
    """Whether the bits are the same, or finite floats within 2 %, or within 0.1 % of the largest."""
    if np.array_equal(_bits(got), _bits(expected)) or expected.dtype.kind not in "fV":
        return bool(np.array_equal(_bits(got), _bits(expected)))
    wide, exact = got.astype(np.float64), expected.astype(np.float64)
    finite = np.isfinite(exact)
    scale = np.abs(exact[finite]).max(initial=0)
    with np.errstate(invalid="ignore"):
        close = np.abs(wide - exact) <= 0.02 * np.abs(exact) + 1e-3 * scale
    return bool((close | ~finite).all())
