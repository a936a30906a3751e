# SPDX-License-Identifier: Apache-2.0
"""ElementwiseKernel: its strings, its types, what NVRTC makes of them, and on a GPU what it computes."""

from __future__ import annotations

import sys
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from elementwise_cases import DTYPES, converted, rounded

import pyflowk
from pyflowk import ElementwiseKernel
from pyflowk._arrays.dtypes import number_type
from pyflowk._elementwise import jit as _jit
from pyflowk._native.abi import DType
from pyflowk._program import INPUT, MEMBER, Program

gpu = pytest.mark.gpu
FUSED = ("T x, T y", "T z", "z = x * y + 1")


# ---- the strings ----------------------------------------------------------------------------------------------------


def test_parameters_are_types_and_names() -> None:
    kernel = ElementwiseKernel("T x, float32 y,bool  flag , U u", "int8 z", "z = 1", name="named")
    parsed = [(p.name, p.type_name, p.dtype) for p in (*kernel.in_params, kernel.out_param)]
    assert parsed == [
        ("x", "T", None),
        ("y", "float32", DType.FLOAT32),
        ("flag", "bool", DType.BOOL),
        ("u", "U", None),
        ("z", "int8", DType.INT8),
    ]
    assert repr(kernel) == "<pyflowk.ElementwiseKernel named>"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("x", "T z", "z = x"), r"in_params = 'x': 'x' must be a type and a name"),
        (("T x y", "T z", "z = x"), r"in_params = 'T x y': 'T x y' must be a type and a name"),
        (("T 2x", "T z", "z = x"), r"'T 2x' must be a type and a name"),
        (("Float x", "T z", "z = x"), r"'Float' must be one letter, bool, an integer or a float type"),
        (("complex64 x", "T z", "z = x"), r"'complex64' must be one letter"),
        (("raw T x", "T z", "z = x"), r"raw parameters are not taken"),
        (("T x", "T z, T w", "z = x"), r"out_params = 'T z, T w' names 2 outputs, must name one"),
        (("T x", "", "z = x"), r"out_params = '' names 0 outputs, must name one"),
        (("", "T z", "z = 1"), r"in_params names no input"),
        (("T x, T x", "T z", "z = x"), r"the parameters x, x, z must have different names"),
        (("T z", "T z", "z = z"), r"the parameters z, z must have different names"),
        (("T x", "T z", "z = x", "a b"), r"name = 'a b', must be an identifier"),
    ],
)
def test_bad_strings_are_a_value_error(arguments: tuple[str, ...], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        ElementwiseKernel(*arguments)


# ---- types and shapes -----------------------------------------------------------------------------------------------


def array_of(dtype: Any, shape: tuple[int, ...] = (4, 5)) -> tuple[Any, ...]:
    """An array as its kind reads it."""
    array = np.ones(shape, dtype)
    return array.shape, array.strides, array.dtype


def formula_of(program: Program) -> Any:
    """What the one step of a kernel's call runs."""
    (step,) = program.steps
    return step.kernels._formula  # type: ignore[union-attr]


def test_letters_stand_for_the_types_of_the_arrays() -> None:
    kernel = ElementwiseKernel("T x, U y, T a", "U z", "z = x")
    program = kernel._plan((array_of(np.float16), array_of(np.int32, (5,)), float), (None,), None)
    formula = formula_of(program)
    assert [(v.dtype, v.is_number) for v in formula.inputs] == [
        (DType.FLOAT16, False),
        (DType.INT32, False),
        (DType.FLOAT16, True),
    ]
    assert formula.output.dtype == DType.INT32
    assert formula.aliases == (("T", DType.FLOAT16), ("U", DType.INT32))
    (result,), (step,) = program.results, program.steps
    assert result is not None and (result.shape, result.dtype) == ((4, 5), np.int32)
    assert [value for _, kind, value in step.slots if kind == INPUT] == [0, 1]
    numbers = [value.at for _, kind, value in step.slots if kind == MEMBER]
    assert [(at, formula.inputs[at].dtype) for at in numbers] == [(2, DType.FLOAT16)]


def test_a_letter_of_numbers_alone_has_their_type() -> None:
    kernel = ElementwiseKernel("T x, U a", "T z", "z = x + a")
    for number, dtype in ((int, DType.INT64), (float, DType.FLOAT64), (bool, DType.BOOL), (DType.INT8, DType.INT8)):
        program = kernel._plan((array_of(np.float32), number), (None,), None)
        assert formula_of(program).inputs[1].dtype == dtype


def test_types_and_shapes_that_do_not_fit_are_errors() -> None:
    kernel = ElementwiseKernel("T x, T y", "float32 z", "z = x + y")
    with pytest.raises(TypeError, match="y has dtype int32, must be float32, which T stands for"):
        kernel._plan((array_of(np.float32), array_of(np.int32)), (None,), None)
    with pytest.raises(TypeError, match="out has dtype int8, must be float32, which float32 stands for"):
        kernel._plan((array_of(np.float32), array_of(np.float32)), (array_of(np.int8),), None)
    with pytest.raises(TypeError, match="x has dtype complex64, must be bool, integers or floats"):
        kernel._plan((array_of(np.complex64), array_of(np.complex64)), (None,), None)
    with pytest.raises(ValueError, match=r"shapes do not broadcast to one: x of \(4, 5\), y of \(4,\)"):
        kernel._plan((array_of(np.float32), array_of(np.float32, (4,))), (None,), None)
    with pytest.raises(ValueError, match=r"out has shape \(5,\), to which x of shape \(4, 5\) does not broadcast"):
        kernel._plan((array_of(np.float32), array_of(np.float32)), (array_of(np.float32, (5,)),), None)
    with pytest.raises(TypeError, match="U of z is decided by no array: pass out"):
        ElementwiseKernel("T x", "U z", "z = x")._plan((array_of(np.float32),), (None,), None)
    four = ElementwiseKernel("T a, T b, T c, T d", "T z", "z = a + b + c + d")
    with pytest.raises(ValueError, match="got 4 arrays, must be at most 3"):
        four._plan((array_of(np.float32),) * 4, (None,), None)


def test_host_arrays_and_wrong_counts_are_a_type_error(host_library: None) -> None:
    kernel = ElementwiseKernel(*FUSED, name="fused")
    x = np.ones(3, np.float32)
    with pytest.raises(
        TypeError, match=r"fused runs on a GPU only, but x is a host array: .*asarray.x. copies it there"
    ):
        kernel(x, x)
    with pytest.raises(TypeError, match="fused takes 2 inputs, got 1"):
        kernel(x)
    with pytest.raises(TypeError, match="x and y are numbers, one at least must be an array"):
        kernel(1, 2)


def test_without_cuda_core_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.core", None)
    formula = formula_of(ElementwiseKernel(*FUSED)._plan((array_of(np.float32),) * 2, (None,), None))
    with pytest.raises(ImportError, match=r"needs cuda.core and NVRTC \(pip install 'pyflowk\[jit\]'\)"):
        _jit.compile_kernel(formula, "elementwise_contiguous", 4, "sm_90")


# ---- NVRTC, which needs no GPU --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def nvrtc() -> None:
    """Skips if there is no NVRTC."""
    try:
        from cuda.bindings import nvrtc

        error, *_ = nvrtc.nvrtcVersion()
        assert int(error) == 0
        import cuda.core.utils  # noqa: F401
    except Exception as error:  # each layer of cuda-python raises classes of its own
        pytest.skip(f"no NVRTC: {error}")


@pytest.fixture
def no_disk_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_jit, "_disk_cache", lambda: None)


def compiled(
    kernel: ElementwiseKernel, *operands: Any, name: str = "elementwise_contiguous", pack_elements: int = 4
) -> Any:
    return _jit.compile_kernel(formula_of(kernel._plan(operands, (None,), None)), name, pack_elements, "sm_90")


@pytest.mark.usefixtures("nvrtc", "no_disk_cache")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_formula_compiles_for_every_type(dtype: np.dtype) -> None:
    pack_elements = 16 // dtype.itemsize
    if _jit._toolkit_headers() is None and number_type(dtype, "x") in _jit._HEADERS:
        pytest.skip("no cuda_fp16.h: pip install nvidia-cuda-runtime")
    kernel = ElementwiseKernel("T x, T y, T a", "T z", "z = x * y + T(a)", name="every_type")
    code = compiled(kernel, array_of(dtype), array_of(dtype, (5,)), int, pack_elements=pack_elements)
    assert len(bytes(code.code)) > 1000


@pytest.mark.usefixtures("nvrtc", "no_disk_cache")
def test_preambles_several_statements_and_mixed_types_compile() -> None:
    kernel = ElementwiseKernel(
        "float32 x, int8 y, bool keep",
        "float64 z",
        "float square = squared(x); z = keep ? square + y : sqrtf(square)",
        preamble="__device__ float squared(float x) { return x * x; }",
    )
    for name in (
        "elementwise_contiguous",
        "elementwise_strided",
        "elementwise_broadcast",
        "elementwise_aligned_tiles",
        "elementwise_shifted_tiles",
        "elementwise_broadcast_rows",
    ):
        operands = array_of(np.float32), array_of(np.int8), array_of(bool)
        assert compiled(kernel, *operands, name=name, pack_elements=2)


@pytest.mark.usefixtures("nvrtc", "no_disk_cache")
def test_a_formula_that_does_not_compile_is_a_value_error_with_the_compiler_s_words() -> None:
    kernel = ElementwiseKernel("T x", "T z", "z = x +\n nothing", name="broken")
    with pytest.raises(pyflowk.FlowkValueError, match=r"broken does not compile") as caught:
        compiled(kernel, array_of(np.float32))
    assert 'broken(2): error: identifier "nothing" is undefined' in str(caught.value)


@pytest.mark.usefixtures("nvrtc")
def test_the_disk_cache_gives_back_the_same_kernel(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    utils = pytest.importorskip("cuda.core.utils")
    if not hasattr(utils, "FileStreamProgramCache"):
        pytest.skip("this cuda.core has no program cache on disk")
    cache = utils.FileStreamProgramCache(tmp_path)
    monkeypatch.setattr(_jit, "_disk_cache", lambda: cache)
    kernel = ElementwiseKernel(*FUSED)
    first = compiled(kernel, array_of(np.float32), array_of(np.float32))
    monkeypatch.setattr(_jit, "_compile", lambda *_: pytest.fail("compiled again"))
    again = compiled(kernel, array_of(np.float32), array_of(np.float32))
    assert bytes(again.code) == bytes(first.code)
    assert [*again.symbol_mapping] == [*first.symbol_mapping]
    assert again.symbol_mapping.popitem()[1].startswith(b"_ZN5flowk6detail22elementwise_contiguous")


# ---- on a GPU -------------------------------------------------------------------------------------------------------

SHAPES = (
    ((1003,), (1003,)),
    ((64, 130), (130,)),
    ((64, 130), (64, 1)),
    ((3, 1, 130), (64, 1)),
    ((0, 5), (5,)),
    ((), ()),
)


@gpu
@pytest.mark.usefixtures("nvrtc")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_kernel_computes_its_formula_in_every_type(dtype: np.dtype) -> None:
    kernel = ElementwiseKernel("T x, T y", "T z", "z = x > y ? x : y", name="larger")
    rng = np.random.default_rng(2)
    for first, second in SHAPES:
        x, y = (converted(rng.integers(0, 9, shape).astype(np.int32), dtype) for shape in (first, second))
        result = kernel(pyflowk.asarray(x), pyflowk.asarray(y))
        assert result.dtype == dtype
        np.testing.assert_array_equal(
            result.to_numpy().astype(np.float64), np.maximum(x.astype(np.float64), y.astype(np.float64))
        )


@gpu
@pytest.mark.usefixtures("nvrtc")
def test_numbers_are_operands_and_narrow_floats_are_rounded_once() -> None:
    kernel = ElementwiseKernel("T x, T a, int32 shift", "T z", "z = a * x + shift")
    for dtype in (np.float16, ml_dtypes.bfloat16, np.float32, np.float64):
        x = np.linspace(-3, 3, 1001).astype(dtype)
        a = np.array(0.3, dtype).astype(np.float64)
        result = kernel(pyflowk.asarray(x), 0.3, 2).to_numpy()
        expected = rounded(x.astype(np.float64) * a + 2, np.dtype(dtype)).astype(np.float64)
        step = float(ml_dtypes.finfo(dtype).eps) * 4
        np.testing.assert_allclose(result.astype(np.float64), expected, atol=step)
    with pytest.raises(OverflowError, match="out of bounds for int32"):
        kernel(pyflowk.asarray(x), 0.3, 2**40)
    with pytest.raises(TypeError, match="shift is a float, must be an integer"):
        kernel(pyflowk.asarray(x), 0.3, 2.5)


@gpu
@pytest.mark.usefixtures("nvrtc")
def test_views_and_out_work_as_in_the_built_in_functions() -> None:
    kernel = ElementwiseKernel(*FUSED)
    x = np.arange(70 * 130, dtype=np.float32).reshape(70, 130) % 100
    device = pyflowk.asarray(np.ascontiguousarray(x.T))
    transposed = device._view(0, (70, 130), (4, 70 * 4), np.float32)
    np.testing.assert_array_equal(kernel(transposed, pyflowk.asarray(x)).to_numpy(), x * x + 1)
    out = pyflowk.asarray(x)
    assert kernel(out, out, out) is out
    np.testing.assert_array_equal(out.to_numpy(), x * x + 1)
    wide = pyflowk.asarray(np.zeros((70, 260), np.float32))
    kernel(pyflowk.asarray(x), pyflowk.asarray(x), out=wide._view(0, (70, 130), (260 * 4, 8), np.float32))
    np.testing.assert_array_equal(wide.to_numpy()[:, ::2], x * x + 1)
    assert not wide.to_numpy()[:, 1::2].any()
    with pytest.raises(pyflowk.FlowkError, match=r"out .* x"):
        kernel(device._view(0, (100,), (4,), np.float32), 1.0, out=device._view(16, (100,), (4,), np.float32))


@gpu
@pytest.mark.usefixtures("nvrtc")
def test_torch_tensors_give_torch_tensors() -> None:
    torch = pytest.importorskip("torch")
    kernel = ElementwiseKernel(*FUSED)
    x = torch.randn(1000, 33, device="cuda", dtype=torch.bfloat16)
    assert torch.equal(kernel(x, x[0]), (x.float() * x[0].float() + 1).to(torch.bfloat16))


@gpu
@pytest.mark.usefixtures("nvrtc")
def test_later_calls_give_what_the_first_one_gives() -> None:
    """They take the fast path, with other numbers, addresses and alignments."""
    kernel = ElementwiseKernel("T x, T y, float32 a, int8 b", "T z", "z = a * x * y + b", name="later_calls")
    memory = [pyflowk.asarray(np.arange(4096, dtype=np.float32) % 97 - offset) for offset in (3, 5, 0)]
    for _ in range(2):
        for start in (0, 4, 8, 16, 1024):
            views = [array._view(start, (1000,), (4,), np.float32) for array in memory]
            x, y = (view.to_numpy() for view in views[:2])
            for number in (0.5, -1.25, 2.0):
                expected = np.float32(number) * x * y + 3
                np.testing.assert_allclose(kernel(views[0], views[1], number, 3).to_numpy(), expected, rtol=1e-6)
                assert kernel(views[0], views[1], number, 3, out=views[2]) is views[2]
                np.testing.assert_allclose(views[2].to_numpy(), expected, rtol=1e-6)
