"""Complex numbers: parts, conjugates, polar form, and views of pairs of reals.

The gradient of a real loss with respect to z = x + iy is dL/dx + i dL/dy, as in PyTorch.
"""

import math

import numpy as np

from ..arrays import dtypes
from ..arrays.memory_format import iterator
from .dispatch.bind import _attribute, public
from .dispatch.op import op, own
from .dispatch.precision import in_precision
from .dispatch.refused import refuses
from .elementwise import cast, where
from .movement import broadcast_tensors, laid_by, stack


@op(dtype="same", view=True, name="view_as_complex", holomorphic=False)
def _as_complex(xp, input):
    if input.dtype not in (np.float32, np.float64):
        name = dtypes.from_numpy(input.dtype).name
        raise RuntimeError(
            f"view_as_complex is only supported for float and double tensors, but got {name}. Convert it first."
        )
    kind = np.complex128 if input.dtype == np.float64 else np.complex64
    return (input if input.strides[-1] == input.itemsize else xp.ascontiguousarray(input)).view(kind)[..., 0]


@op(dtype="same", view=True, name="view_as_real", holomorphic=False)
def _as_real(xp, input):
    return input[..., None].view(np.float64 if input.dtype == np.complex128 else np.float32)


_as_complex.grad(input=lambda g, xp: xp.call(_as_real, g))
_as_real.grad(input=lambda g, xp: xp.call(_as_complex, g))


@public(inplace=False)
def view_as_complex(input):
    """Views pairs of real numbers in the last axis as complex numbers, in the same memory.

    Args:
        input: tensor whose last axis has size 2.

    Raises:
        RuntimeError: the memory layout of the pairs is not the layout of complex numbers.

    Example:
        >>> mytorch.view_as_complex(tensor([[1.0, 2.0], [3.0, 4.0]])).tolist()
        [(1+2j), (3+4j)]
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
    """Views complex numbers as pairs of real numbers in a new last axis, in the same memory.

    Example:
        >>> mytorch.view_as_real(tensor([1 + 2j, 3 + 4j])).tolist()
        [[1.0, 2.0], [3.0, 4.0]]
    """
    if not input.dtype.is_complex:
        raise RuntimeError("view_as_real is only supported for complex tensors")
    return _as_real(input)


@public(inplace=False)
def real(input):
    """Returns the real part.

    Example:
        >>> mytorch.real(tensor([1 + 2j])).tolist()
        [1.0]
    """
    return view_as_real(input).select(-1, 0) if input.dtype.is_complex else input


@public(inplace=False)
def imag(input):
    """Returns the imaginary part.

    Example:
        >>> mytorch.imag(tensor([1 + 2j])).tolist()
        [2.0]
    """
    if not input.dtype.is_complex:
        raise RuntimeError("imag is not implemented for tensors with non-complex dtypes.")
    return view_as_real(input).select(-1, 1)


@public(method=False)
@refuses("BCI")
def complex(real, imag):
    """Creates complex numbers from real and imaginary parts.

    Args:
        real: real parts.
        imag: imaginary parts.

    Example:
        >>> mytorch.complex(tensor([1.0]), tensor([2.0])).tolist()
        [(1+2j)]
    """
    return own(laid_by(iterator, view_as_complex(stack(broadcast_tensors(real, imag), -1)), real, imag))


@public(method=False)
@refuses("BCI")
@in_precision()
def polar(abs, angle):
    """Creates complex numbers from absolute values and angles: abs * exp(i * angle).

    Args:
        abs: absolute values.
        angle: angles in radians.

    Example:
        >>> mytorch.polar(tensor([2.0]), tensor([0.0])).tolist()
        [(2+0j)]
    """
    return own(laid_by(iterator, complex(abs * angle.cos(), abs * angle.sin()), abs, angle))


@op(dtype="same", name="conj", holomorphic=False, layout=iterator)
def _conj(xp, input):
    return xp.conjugate(input)


_conj.grad(input=lambda g, xp: xp.call(_conj, g))


@public(inplace=False, names=("conj_physical",))
def conj(input):
    """Computes the complex conjugate; returns a real tensor unchanged.

    Example:
        >>> mytorch.conj(tensor([1 + 2j])).tolist()
        [(1-2j)]
    """
    return _conj(input) if input.dtype.is_complex else input


@public(inplace=False)
def resolve_conj(input):
    """Returns the input unchanged, since mytorch computes conjugates immediately."""
    return input


@public(inplace=False)
def resolve_neg(input):
    """Returns the input unchanged, since mytorch computes negations immediately."""
    return input


@public(inplace=False)
def angle(input):
    """Computes the angle of each complex number; 0 or pi for real numbers.

    Example:
        >>> mytorch.angle(tensor([1.0, -1.0, 1j])).rad2deg().round().tolist()
        [0.0, 180.0, 90.0]
    """
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
