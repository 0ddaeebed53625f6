"""Matrix products by cuBLASLt, over the fake libraries and on a GPU; its constants compared with the real library."""

import ctypes
import os
from importlib import metadata
from pathlib import Path

import pytest

import mytorch
from mytorch.kernels import cublas
from tests.own_process import run_checks

HERE = Path(__file__).parent


@pytest.mark.cpu_only
def test_over_the_fake_libraries():
    run_checks(HERE / "check_products.py", HERE / "check_plans.py", TRITON_INTERPRET="1")


@pytest.mark.gpu
def test_on_the_gpu():
    if not mytorch.cuda.is_available():
        pytest.skip("there is no GPU")
    run_checks(HERE / "check_products.py", MYTORCH_KERNELS_ON="cuda")


def _libraries():
    """libcublasLt of pip's packages; making descriptors needs no GPU."""
    found = []
    for package in ("nvidia-cublas", "nvidia-cublas-cu13", "nvidia-cublas-cu12"):
        try:
            files = metadata.files(package) or []
        except metadata.PackageNotFoundError:
            continue
        found += [str(f.locate()) for f in files if f.name.startswith("libcublasLt.so.")]
    return found + [p for p in os.environ.get("MYTORCH_TEST_CUBLASLT", "").split(":") if p]


@pytest.mark.cpu_only
@pytest.mark.parametrize("path", _libraries())
def test_attributes_of_the_library(path):
    """Every attribute that is set has the size that the library stores, and reads back."""
    library = ctypes.CDLL(path)
    for name, arguments in cublas._SIGNATURES.items():
        getattr(library, name).argtypes = arguments

    def check(what, arguments, attributes):
        handle = ctypes.c_void_p()
        assert getattr(library, what + "Create")(ctypes.byref(handle), *arguments) == 0
        get = getattr(library, what + "GetAttribute")
        get.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
        written = ctypes.c_size_t()
        for attribute, value in attributes.items():
            assert get(handle, attribute, None, 0, ctypes.byref(written)) == 0
            assert written.value == ctypes.sizeof(value), f"{what} {attribute} has {written.value} bytes"
            assert (
                getattr(library, what + "SetAttribute")(handle, attribute, ctypes.byref(value), ctypes.sizeof(value))
                == 0
            )
            back = type(value)()
            assert get(handle, attribute, ctypes.byref(back), ctypes.sizeof(back), ctypes.byref(written)) == 0
            assert back.value == value.value
        assert getattr(library, what + "Destroy")(handle) == 0

    i32, u32, u64, i64 = ctypes.c_int32, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_int64
    operation = {
        cublas.DESC_TRANSA: i32(1), cublas.DESC_TRANSB: i32(1), cublas.DESC_EPILOGUE: u32(164), cublas.DESC_BIAS_POINTER: u64(1 << 40),
        cublas.DESC_AUX_POINTER: u64(1 << 40), cublas.DESC_AUX_LD: i64(64),
    }  # fmt: skip
    for compute, scale in ((cublas.COMPUTE_32F, 0), (cublas.COMPUTE_32F_FAST_TF32, 0), (cublas.COMPUTE_64F, 1)):
        check("cublasLtMatmulDesc", (compute, scale), operation)
    batch = {cublas.LAYOUT_BATCH_COUNT: i32(3), cublas.LAYOUT_BATCH_OFFSET: i64(99)}
    for kind in cublas._TYPES.values():
        check("cublasLtMatrixLayout", (kind, 5, 7, 6), {0: u32(kind), 2: u64(5), 3: u64(7), 4: i64(6), **batch})
    alignments = {attribute: u32(16) for attribute in cublas.PREF_ALIGNMENTS}
    check(
        "cublasLtMatmulPreference",
        (),
        {cublas.PREF_WORKSPACE: u64(32 << 20), cublas.PREF_REDUCTIONS: u32(2), **alignments},
    )
    library.cublasLtGetStatusName.restype = ctypes.c_char_p
    assert library.cublasLtGetStatusName(cublas.NOT_SUPPORTED) == b"CUBLAS_STATUS_NOT_SUPPORTED"
