"""Helpers of the kernel tests: random arrays in each dtype, references in float64, tolerances."""

import importlib.util
import os
import sys
import types

import ml_dtypes
import numpy as np

from mytorch.arrays import config, cupy_ns, numpy_ns

COMPILE_ONLY = "MYTORCH_COMPILE_ONLY" in os.environ  # launches are compiled for an H200, results are not computed
ON_GPU = os.environ.get("MYTORCH_KERNELS_ON") == "cuda"
xp = cupy_ns() if ON_GPU else numpy_ns
config.convolution_tf32 = False  # results are compared with float64's

if importlib.util.find_spec("torch") is None:  # the interpreter looks up this one name, and no more
    sys.modules["torch"] = types.ModuleType("torch")
    sys.modules["torch"].Tensor = type("Tensor", (), {})

DTYPES = {"fp32": np.dtype(np.float32), "fp16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16)}
NEAR = {"float32": 2e-5, "float16": 4e-3, "bfloat16": 3e-2}  # of the largest element
rng = np.random.default_rng(0)


def dev(x):
    """A NumPy array where the kernels run."""
    return xp.asarray(x) if ON_GPU else x


def host(x):
    """Converts an array of the kernels to a NumPy array."""
    return xp.asnumpy(x) if ON_GPU and not isinstance(x, np.ndarray) else x


def channels_last(x):
    """Returns an array (N, C, …) with its channels last in memory."""
    return x.transpose(0, *range(2, x.ndim), 1).copy().transpose(0, -1, *range(1, x.ndim - 1))


def rand(*shape, dtype="fp32", scale=1.0, shift=0.0):
    """Returns normal numbers on the kernels' device and, rounded to dtype, as a float64 NumPy array."""
    x = np.asarray(rng.standard_normal(shape) * scale + shift).astype(DTYPES[dtype])
    return dev(x), x.astype(np.float64)


def near(got, want, factor=1.0):
    """Check got against float64 `want`, to the precision of got's dtype."""
    got = host(got)
    assert got.shape == want.shape, f"shape {got.shape}, wanted {want.shape}"
    if COMPILE_ONLY:
        return
    error = np.abs(got.astype(np.float64) - want)
    bound = NEAR[got.dtype.name] * factor * max(np.abs(want).max(initial=0.0), 0.1)
    assert not np.isnan(error).any(), "NaN"
    assert error.max(initial=0.0) <= bound, f"error {error.max():.3g} above {bound:.3g}"
