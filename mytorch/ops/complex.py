"""Complex numbers: parts, conjugates, polar form, and views of pairs of reals.

The gradient of a real loss with respect to z = x + iy is dL/dx + i dL/dy, as in PyTorch.
"""

import math

import numpy as np

from ..base import dtypes
from ..dispatch.bind import _attribute, public
from ..dispatch.op import op
from .elementwise import cast, where
from .movement import broadcast_tensors, stack


@op(dtype="same", view=True, name="view_as_complex", holomorphic=False, autocast_cpu="float32")
def _as_complex(xp, input):
    kind = np.complex128 if input.dtype == np.float64 else np.complex64
    return (input if input.strides[-1] == input.itemsize else xp.ascontiguousarray(input)).view(kind)[..., 0]


@op(dtype="same", view=True, name="view_as_real", holomorphic=False)
def _as_real(xp, input):
    return input[..., None].view(np.float64 if input.dtype == np.complex128 else np.float32)


_as_complex.grad(input=lambda g, xp: xp.call(_as_real, g))
_as_real.grad(input=lambda g, xp: xp.call(_as_complex, g))


@public(inplace=False)
def view_as_complex(input):
    """Pairs of reals in the last axis as complex numbers, in the same memory.

    Raises:
        RuntimeError: the pairs do not lie in memory as those of complex numbers do.
    """
    if not input.ndim:
        raise RuntimeError("Input tensor must have one or more dimensions")
    if input.shape[-1] != 2:
        raise RuntimeError(f"Tensor must have a last dimension of size 2, got {tuple(input.shape)}")
    *strides, last = input.stride()
    if not input.numel():
        return _as_complex(input.contiguous())
    if last != 1:
        raise RuntimeError(f"Tensor must have a last dimension with stride 1, got {last}")
    if any(s % 2 for s, n in zip(strides, input.shape, strict=False) if n != 1):
        raise RuntimeError(f"Tensor must have a stride divisible by 2 for all but last dimension, got {strides}")
    return _as_complex(input)


@public(inplace=False)
def view_as_real(input):
    """Complex numbers as pairs of reals in a new last axis."""
    if not input.dtype.is_complex:
        raise RuntimeError("view_as_real is only supported for complex tensors")
    return _as_real(input)


@public(inplace=False)
def real(input):
    """The real part; a real tensor is its own."""
    return view_as_real(input).select(-1, 0) if input.dtype.is_complex else input


@public(inplace=False)
def imag(input):
    """The imaginary part."""
    if not input.dtype.is_complex:
        raise RuntimeError("imag is not implemented for tensors with non-complex dtypes.")
    return view_as_real(input).select(-1, 1)


@public(method=False)
def complex(real, imag):
    """real + i imag."""
    return view_as_complex(stack(broadcast_tensors(real, imag), -1))


@public(method=False)
def polar(abs, angle):
    """abs * exp(i angle)."""
    return complex(abs * angle.cos(), abs * angle.sin())


@op(dtype="same", name="conj", holomorphic=False)
def _conj(xp, input):
    return xp.conjugate(input)


_conj.grad(input=lambda g, xp: xp.call(_conj, g))


@public(inplace=False, names=("conj_physical",))
def conj(input):
    """The complex conjugate; a real tensor is its own."""
    return _conj(input) if input.dtype.is_complex else input


@public(inplace=False)
def resolve_conj(input):
    """input: conjugates are never lazy here."""
    return input


@public(inplace=False)
def resolve_neg(input):
    """input: negations are never lazy here."""
    return input


@public(inplace=False)
def angle(input):
    """The angle of a complex number; 0 or pi for a real one."""
    if input.dtype.is_complex:
        pairs = view_as_real(input)
        return pairs.select(-1, 1).atan2(pairs.select(-1, 0))
    x = input if input.dtype.is_floating_point else cast(input, dtypes.default_dtype())
    return where(x.isnan(), x, (x < 0).to(x.dtype) * math.pi)


def _part(part):
    """A setter of the real or imaginary part."""

    def write(self, value):
        value = value.real if getattr(value, "dtype", self.dtype).is_complex and hasattr(value, "real") else value
        part(self)[...] = value

    return write


_attribute("real", real, _part(real))
_attribute("imag", imag, _part(imag))
