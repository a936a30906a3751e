# SPDX-License-Identifier: Apache-2.0
"""The arguments of the softmax functions in C, except pointers, from shapes, strides and dtypes, checked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from ctypes import c_int, c_int32, sizeof
from typing import Any, NamedTuple

import numpy as np

from .._arguments import boolean, integer_in, non_negative, shown
from .._arrays.adapters.base import Geometry, Signature
from .._arrays.dtypes import (
    FLOAT_TYPES,
    coefficient_types,
    dtype_like,
    dtype_name,
    element_strides,
    float_type,
    has_contiguous_rows,
    is_contiguous,
    listed,
    named_type,
    softmax_results,
    strides_in_order,
    type_of_elements,
    wrong_dtype,
)
from .._arrays.frameworks import cached
from .._native.abi import DType, SoftmaxMask
from .._native.c_types import Int64Pointer, SoftmaxMaskPointer, int64s
from .._pipeline import no_array
from .array_checks import check_like, check_per_row, check_row_out, check_type, result_type

# The arrays of masked_softmax after x: parameters, and their fields in flowk_softmax_mask.
OF_MASK = {"mask": "dense", "lengths": "lengths", "bias": "bias", "sinks": "sinks", "row_scale": "row_scale"}
PER_ROW = ("sinks", "row_scale")  # which broadcast to x's shape without the last dimension
CONTIGUOUS = ("dlse", "lse")  # of one value per row
MEMBERS = {**OF_MASK, "scores": "x", "dlse": "dlse", "lse": "lse"}  # with those of its gradient
OF_GRADIENT = ("dlse", "lengths", "scores", "sinks", "lse", "row_scale")  # of masked_softmax_backward after y
MERGED = ("y1", "lse1", "y2", "lse2")  # the arrays of softmax_merge
_BYTES = (DType.BOOL, DType.UINT8)
_INTEGERS = (DType.INT32, DType.INT64)


# Parameters of other libraries' attention and softmax functions, and what is meant here.
_OTHER_NAMES = {
    "attn_mask": "pass mask, where True means masked out (~attn_mask for PyTorch's), or bias for one that is added",
    "is_causal": "pass causal=True, whose diagonal ends in the last column; PyTorch's starts in the first: "
    "causal_offset=q - k gives that",
    "key_padding_mask": "pass mask of shape (b, 1, 1, k), where True means masked out",
    "where": "pass mask, where True means masked out: the opposite of where",
    "side": "lengths count columns from the left; lengths_from_right=True counts them from the right",
    "padding_side": "lengths count the tokens of a row: pass lengths_from_right=True if the padding is on the left",
    "axis": "masked_softmax sums over the last dimension: permute x before it",
    "dim": "masked_softmax sums over the last dimension: permute x before it",
}


def other_name(name: str) -> TypeError:
    """The exception for a parameter that masked_softmax does not have."""
    return TypeError(
        f"masked_softmax has no parameter {name}: {_OTHER_NAMES.get(name, 'help(pyflowk.masked_softmax) lists them')}"
    )


def host_lengths(lengths: Any) -> np.ndarray[Any, Any]:
    """Lengths that are given as an int, or as lists of them."""
    try:
        values = np.asarray(lengths)
    except (TypeError, ValueError) as error:  # lists of several lengths
        raise TypeError(f"lengths is {shown(lengths)}, must be an array, integers in a list, or an integer") from error
    if values.dtype.kind not in "iu" and values.size:
        raise TypeError(f"lengths is {shown(lengths)}, must be an array, integers in a list, or an integer")
    return values.astype(np.int64)


class Options(NamedTuple):
    """The options that a plan depends on, in the order of masked_softmax's signature. A plan serves every scale."""

    lengths_from_right: bool = False
    causal: bool = False
    causal_offset: int = 0
    window: int | None = None
    softcap: float = 0.0
    log: bool = False
    batch_invariant: bool = False
    return_lse: bool = False
    dtype: DType | None = None
    return_dsinks: bool = False  # of the gradient

    def mask(self) -> SoftmaxMask:
        """The struct for C without the mask, the lengths and the bias."""
        struct = SoftmaxMask(struct_bytes=sizeof(SoftmaxMask), lengths_from_right=self.lengths_from_right)
        struct.causal, struct.causal_offset, struct.window = self.causal, self.causal_offset, self.window or 0
        struct.softcap, struct.batch_invariant = self.softcap, self.batch_invariant
        return struct

    @property
    def num_results(self) -> int:
        return 1 + (self.return_lse or self.return_dsinks)


# By type too: 2.0 is equal to 2, and True to 1, which are refused.
@cached(4096)
def checked_options(*values: Any, **named: Any) -> Options:
    """The caller's options, equal for equal plans. ValueError or TypeError names an option that is wrong."""
    given = Options(*values, **named)
    return Options(
        boolean(given.lengths_from_right, "lengths_from_right"),
        boolean(given.causal, "causal"),
        integer_in(given.causal_offset, "causal_offset", -(2**62), 2**62, "2**62"),
        None if given.window is None else integer_in(given.window, "window", 1, 2**62, "2**62"),
        non_negative(given.softcap, "softcap"),
        boolean(given.log, "log"),
        boolean(given.batch_invariant, "batch_invariant"),
        boolean(given.return_lse, "return_lse"),
        None if given.dtype is None else named_type(given.dtype, FLOAT_TYPES),
        boolean(given.return_dsinks, "return_dsinks"),
    )


class Arguments(NamedTuple):
    """C values, and what results are like."""

    strides: tuple[Int64Pointer, ...]  # of x, or of dy and y
    code: c_int  # of x, or of dy and y
    written: tuple[Any, ...]  # strides and type of the output, rank, shape
    mask: SoftmaxMask  # without its arrays' pointers
    mask_pointer: SoftmaxMaskPointer | None  # None: nothing is masked out, nothing added
    out_like: tuple[tuple[int, ...], Any]  # shape and dtype of a new output
    lse_like: tuple[tuple[int, ...], Any]


def arguments_of(
    arrays: dict[str, Signature],
    out: Geometry | None,
    options: Options,
    order: tuple[int, ...] | None = None,
    out_name: str = "out",
) -> Arguments:
    """`arrays` are x, or dy and y, and then the call's arrays of OF_MASK, by their names. A new output has the
    dimensions in memory that `order` says, as Buffer has it; `out_name` is the parameter of another one.

    Raises ValueError or TypeError for what the library cannot see or would name otherwise.
    """
    for each, signature in arrays.items():
        if not isinstance(signature, tuple):
            raise no_array(each, signature)
    name, (shape, _, first_dtype) = next(iter(arrays.items()))
    shape = tuple(shape)
    code = check_arrays({each: (tuple(extents), dtype) for each, (extents, _, dtype) in arrays.items()})
    out_dtype = first_dtype if options.dtype is None else dtype_like(options.dtype, first_dtype)
    out_code = options.dtype or code
    if out is not None:
        if options.dtype is not None:
            check_like(out_name, (out[0], out[2]), (shape, out_dtype), out_code)
        elif tuple(out[0]) != shape:
            raise ValueError(f"{out_name} has shape {tuple(out[0])}, must be {shape}")
        out_code = float_type(out[2], out_name)
    check_result(out_code, code, name, first_dtype, None if out is None else out[2], out_name)
    struct, firsts = options.mask(), []
    struct.kept = []  # what its members point to
    for each, (extents, strides, dtype) in arrays.items():
        in_elements = element_strides(dtype, extents, strides, each)
        if each not in MEMBERS:
            firsts.append(int64s(in_elements))
            continue
        if each in CONTIGUOUS:
            continue
        # The lengths have x's first dimensions. The others broadcast as in NumPy: to x's last dimensions, or to those
        # of the rows.
        rank = len(shape) - (each == "lengths" or each in PER_ROW)
        over_x = broadcast_strides(extents, in_elements, rank, from_left=each == "lengths")
        struct.kept.append(int64s(over_x))
        setattr(struct, f"{MEMBERS[each]}_strides", struct.kept[-1].value)
        if each in ("lengths", "bias"):
            setattr(struct, f"{each}_dtype", type_of_elements(dtype))
    masks = struct.causal or struct.window or struct.softcap or struct.batch_invariant
    out_strides = strides_in_order(shape, order) if out is None else element_strides(out[2], out[0], out[1], out_name)
    return Arguments(
        strides=tuple(firsts),
        code=c_int(code),
        written=(int64s(out_strides), c_int(out_code), c_int32(len(shape)), int64s(shape)),
        mask=struct,
        mask_pointer=SoftmaxMaskPointer.to(struct) if masks else None,
        out_like=(shape, out_dtype),
        lse_like=(shape[:-1], dtype_like(result_type(code), first_dtype)),
    )


def check_arrays(arrays: dict[str, tuple[tuple[int, ...], Any]]) -> DType:
    """The type of x, or of dy and y. ValueError or TypeError if the shapes and dtypes do not fit together; `arrays` are
    those of arguments_of()."""
    name, (shape, dtype) = next(iter(arrays.items()))
    if not shape:
        raise ValueError(f"{name} has no dimensions, must have >= 1")
    code = float_type(dtype, name)
    for other, (extents, other_dtype) in arrays.items():
        if other in ("y", "scores"):
            check_like(other, (extents, other_dtype), (shape, dtype), code, name)
        elif other in CONTIGUOUS:
            check_per_row(other, extents, other_dtype, shape[:-1], result_type(code))
        elif other in PER_ROW:
            check_type(other, other_dtype, (result_type(code),))
            if not broadcasts(extents, shape[:-1]):
                text = f"{other} has shape {extents}, must broadcast to {shape[:-1]}"
                if len(shape) > 2 and extents == shape[-3:-2]:
                    text += f": pass {other}[:, None]"
                raise ValueError(text)
        elif other == "lengths":
            check_type(other, other_dtype, _INTEGERS)
            if len(extents) >= len(shape) or not all(n in (1, x_n) for n, x_n in zip(extents, shape)):
                raise ValueError(
                    f"lengths has shape {extents}, must be the first of {name}'s {shape[:-1]}, or 1 in place of any"
                )
        elif other != name:
            if other == "mask":
                check_type(other, other_dtype, _BYTES)
            else:  # beside dy, of y's dtype, it is as x or float32
                allowed = softmax_results(code) if name in ("dy", "y") else coefficient_types(code)
                if float_type(other_dtype, other) not in allowed:
                    raise wrong_dtype(other, other_dtype, f"{listed(allowed)} beside {name} of {dtype}")
            if not broadcasts(extents, shape):
                text = f"{other} has shape {extents}, must broadcast to {name} of {shape}"
                if len(shape) > 2 and extents == (shape[0], shape[-1]):
                    text += f": pass {other}[:, {'None, ' * (len(shape) - 2)}:]"
                raise ValueError(text)
    return code


def check_result(
    out_code: DType, code: DType, name: str, dtype: Any, out_dtype: Any = None, out_name: str = "out"
) -> None:
    """TypeError if a softmax of array `name`, of type `code`, has no results of type `out_code`, which is the option
    dtype, or the type of an array of dtype `out_dtype` in parameter `out_name`."""
    if out_code not in softmax_results(code):
        result = f"dtype = {dtype_name(out_code)}" if out_dtype is None else f"{out_name} has dtype {out_dtype}"
        raise TypeError(f"{result}, must be {listed(softmax_results(code))} beside {name} of {dtype}")


def check_wanted(name: str, out: Geometry | None, like: tuple[tuple[int, ...], Any] | None) -> None:
    """TypeError or ValueError if the array for lse or dsinks, lse_out or dsinks_out, is not like that; `like` is None
    if that result is not wanted."""
    if out is None:
        return
    if like is None:
        raise TypeError(f"{name} is given without return_{name.removesuffix('_out')}=True")
    check_row_out(name, out, like[0], float_type(like[1], name))


def check_gradient(options: Options, given: Iterable[str]) -> None:
    """TypeError if an array is missing that the gradient of a softcap or of sinks needs."""
    needs = [("scores", "softcap")] if options.softcap else []
    needs += [("sinks", "return_dsinks"), ("lse", "return_dsinks")] if options.return_dsinks else []
    for name, option in needs:
        if name not in given:
            raise TypeError(f"{name} is missing: {option} needs it")


def check_merge(y1: tuple[Any, ...], lse1: tuple[Any, ...], y2: tuple[Any, ...], lse2: tuple[Any, ...]) -> DType:
    """The type of y1, from (shape, dtype) of each array. ValueError or TypeError if they do not fit together."""
    shape, dtype = y1
    code = float_type(dtype, "y1")
    if not shape:
        raise ValueError("y1 has no dimensions, must have >= 1")
    check_like("y2", y2, (tuple(shape), dtype), code, "y1")
    for name, one in (("lse1", lse1), ("lse2", lse2)):
        check_per_row(name, one[0], one[1], tuple(shape[:-1]), result_type(code))
    return code


def copied_inputs(names: tuple[str, ...], signatures: tuple[Signature, ...]) -> dict[int, tuple[str, Geometry]]:
    """The inputs whose rows are not contiguous, and a dlse or lse that is not, as on_copies() takes them. Those that
    broadcast over the row are views that repeat their last elements; a copy has no other repeated dimension. The first
    input is x or dy."""
    shape = tuple(signatures[0][0]) if isinstance(signatures[0], tuple) else ()
    copied: dict[int, tuple[str, Geometry]] = {}
    if not shape or 0 in shape:
        return copied
    for place, (name, signature) in enumerate(zip(names, signatures)):
        if not isinstance(signature, tuple) or name == "lengths" or name in PER_ROW:
            continue
        extents, strides, dtype = tuple(signature[0]), tuple(signature[1]), signature[2]
        if name in ("mask", "bias") and broadcasts(extents, shape):
            extents = tuple(1 if stride == 0 else extent for extent, stride in zip(extents[:-1], strides))
            extents, strides = (*extents, shape[-1]), strides if signature[0][-1:] == shape[-1:] else (*strides[:-1], 0)
        elif name in CONTIGUOUS:
            if not is_contiguous(signature, name):
                copied[place] = (name, (extents, strides, dtype))
            continue
        elif extents != shape:
            continue
        if not has_contiguous_rows((extents, strides, dtype), name):
            copied[place] = (name, (extents, strides, dtype))
    return copied


def order_in_memory(strides: Sequence[int]) -> tuple[int, ...]:
    """The dimensions of an array from the outermost in memory to the innermost."""
    return tuple(sorted(range(len(strides)), key=lambda d: -abs(strides[d])))


def broadcast_strides(
    extents: tuple[int, ...], strides: tuple[int, ...], rank: int, from_left: bool = False
) -> tuple[int, ...]:
    """The strides of an array that is broadcast to `rank` dimensions, of which it has the last ones, or the first."""
    repeated = tuple(0 if extent == 1 else stride for extent, stride in zip(extents, strides))
    zeros = (0,) * (rank - len(extents))
    return repeated + zeros if from_left else zeros + repeated


def broadcasts(extents: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    missing = len(shape) - len(extents)
    return missing >= 0 and all(n in (1, x_n) for n, x_n in zip(extents, shape[missing:]))
