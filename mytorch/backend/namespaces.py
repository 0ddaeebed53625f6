"""NumPy's side of the namespace `xp` that every op is written over, and the class of such namespaces.

An op is written once, over a namespace `xp` with NumPy's names: `numpy_ns` for arrays in host memory, `cupy_ns` (gpu.py) for
arrays on a GPU, and a third one over Tensors (`ops/tensor_ns.py`) when an op's formula is itself to be differentiated. What
the two libraries do not share is evened out here and in gpu.py, so that no op asks where it runs.
"""

import warnings

import numpy as np

from . import numeric
from .einsum import einsum

ndarray = np.ndarray


# 1/0, log(0) and inf - inf are values here, as in PyTorch, not events worth a warning. The filter is
# bound to this library's modules, so NumPy's own settings and a user's code are left alone.
warnings.filterwarnings("ignore", category=RuntimeWarning, module=r"mytorch\.")


class Namespace:
    """An array module with our additions in front; names are looked up in the module once."""

    def __init__(self, module, **own):
        self.module = module
        self.__dict__.update(own)

    def __getattr__(self, name):
        value = getattr(self.module, name)
        self.__dict__[name] = value
        return value

    def __repr__(self):
        return f"<namespace over {self.module.__name__}>"

    def astype(self, x, dtype):
        """x as the NumPy dtype `dtype`; x itself where it has it already."""
        return x if x.dtype == dtype else x.astype(dtype)

    def detach(self, x):
        """x without its graph; raw arrays have none. Formulas use it to choose, not to compute."""
        return x

    def conj(self, x):
        """The complex conjugate; x itself if it is real, or a number."""
        return x.conj() if getattr(x, "dtype", None) is not None and x.dtype.kind == "c" else x

    def is_complex(self, x):
        """Whether x holds complex numbers."""
        return x.dtype.kind == "c"

    def sign(self, x):
        """-1, 0 or 1; for complex numbers z / |z|, which NumPy 1 and CuPy define otherwise."""
        if getattr(x, "dtype", None) is None or x.dtype.kind != "c":
            return self.module.sign(x)
        size = abs(x)
        return x / self.where(size == 0, 1, size)

    def call(self, op, *arrays, **attrs):
        """Run another op's forward within a forward or a formula; returns its output alone."""
        out = op.forward(self, *arrays, **attrs)
        return out[0] if op.residuals else out


def _numpy_scatter_add(x, index, values):
    np.add.at(x, index, values)


def _numpy_einsum(spec, *arrays):
    """Einstein's sum: by products where they pay, by NumPy's loops for integers and few elements; half precision in
    float32, rounded once."""
    kind = arrays[0].dtype
    if kind.itemsize == 2 and kind.kind in "fV":
        return _numpy_einsum(spec, *(a.astype(np.float32) for a in arrays)).astype(kind)
    if kind.kind in "fc" and sum(a.size for a in arrays) > 2048:
        return einsum(numpy_ns, spec, *arrays)
    return np.einsum(spec, *arrays, optimize=len(arrays) > 2)


def _numpy_matmul(a, b, out=None):
    """NumPy's product; in half precision by way of float32, as NumPy has no fast routine for it (and, for
    bfloat16, gives float32 back)."""
    if a.dtype.itemsize == 2 and a.dtype.kind in "fV":
        product = _numpy_matmul(a.astype(np.float32), b.astype(np.float32))
        if out is None:
            return product.astype(a.dtype)
        out[...] = product
        return out
    if a.size * b.shape[-1] > 9216:  # where BLAS may take several threads
        return numpy_ns.large_product(a, b, out)
    return np.matmul(a, b, out)


def _numpy_add_matmul(total, a, b):
    """total += a @ b."""
    total += _numpy_matmul(a, b)


def _numpy_sum(x, axis=None, dtype=None, keepdims=False):
    """NumPy's sum without its Python wrapper (whose warnings are not ours to silence); half precision is
    added up in float32."""
    if dtype is None and x.dtype.itemsize == 2 and x.dtype.kind in "fV":
        return np.asarray(np.add.reduce(x, axis, np.float32, None, keepdims)).astype(x.dtype)
    return np.add.reduce(x, axis, dtype, None, keepdims)


def _numpy_prod(x, axis=None, keepdims=False):
    """NumPy's product without its Python wrapper, as `_numpy_sum`."""
    return np.multiply.reduce(x, axis, None, None, keepdims)


def _numpy_cumsum(x, axis=None):
    return np.add.accumulate(x.reshape(-1) if axis is None else x, 0 if axis is None else axis)


def _numpy_cumprod(x, axis=None):
    return np.multiply.accumulate(x.reshape(-1) if axis is None else x, 0 if axis is None else axis)


def _numpy_max(x, axis=None, keepdims=False):
    return np.maximum.reduce(x, axis, None, None, keepdims)


def _numpy_min(x, axis=None, keepdims=False):
    return np.minimum.reduce(x, axis, None, None, keepdims)


def _numpy_reshape(x, shape):
    return x.reshape(shape)


def _numpy_mean(x, axis=None, keepdims=False):
    """NumPy's mean, as `_numpy_sum`."""
    total = _numpy_sum(x, axis, None, keepdims)
    return total / (x.size // max(total.size, 1)) if total.size else total


numpy_ns = Namespace(
    np,
    cumsum=_numpy_cumsum,
    cumprod=_numpy_cumprod,
    max=_numpy_max,
    mean=_numpy_mean,
    min=_numpy_min,
    prod=_numpy_prod,
    matmul=_numpy_matmul,
    large_product=np.matmul,  # kernels/blas.py puts its own here
    add_matmul=_numpy_add_matmul,
    reshape=_numpy_reshape,
    sum=_numpy_sum,
    swapaxes=ndarray.swapaxes,
    erf=numeric.erf,
    erfc=numeric.erfc,
    scatter_add=_numpy_scatter_add,
    scatter_max=np.maximum.at,
    scatter_min=np.minimum.at,
    einsum=_numpy_einsum,
)
