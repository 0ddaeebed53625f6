"""Fourier transforms and their gradients.

The discrete transform is linear, so its gradient is a transform the other way: for y = fft(x), the gradient
of x is the conjugate-transposed transform of the gradient of y.
"""

import numpy as np

from .. import dtypes
from ..tensor import Tensor
from .core import op
from .elementwise import cast
from .movement import cat
from .padding import pad
from .reduction import normalize_dim


@op(dtype="same", name="fft")
def _fft(xp, input, *, dim, inverse, scale):
    """The unscaled transform (the inverse has the other sign), times `scale`."""
    n = input.shape[dim]
    out = xp.fft.ifft(input, axis=dim) * n if inverse else xp.fft.fft(input, axis=dim)
    kind = np.complex128 if input.dtype in (np.float64, np.complex128) else np.complex64
    return (out * scale).astype(kind, copy=False)


_fft.grad(input=lambda g, dim, inverse, scale, xp: xp.call(_fft, g, dim=dim, inverse=not inverse, scale=scale))


def _scale(n, norm, inverse):
    if norm not in (None, "backward", "ortho", "forward"):
        raise RuntimeError(f'Invalid normalization mode: "{norm}"')
    if norm == "ortho":
        return n**-0.5
    return 1.0 / n if inverse == (norm in (None, "backward")) else 1.0


def _sized(input, n, dim):
    """input cut or padded with zeros to n elements along an axis."""
    have = input.shape[dim]
    if n is None or n == have:
        return input
    if n < have:
        return input.narrow(dim, 0, n)
    widths = [0, 0] * (input.ndim - 1 - dim) + [0, n - have]
    return pad(input, widths)


def _complex(input):
    if input.dtype.is_complex:
        return input
    return cast(input, dtypes.complex128 if input.dtype is dtypes.float64 else dtypes.complex64)


def _transform(input, n, dim, norm, inverse):
    d = normalize_dim(dim, input.ndim)
    x = _sized(_complex(input), n, d)
    if x.shape[d] < 1:
        raise RuntimeError(f"Invalid number of data points ({x.shape[d]}) specified")
    return _fft(x, dim=d, inverse=inverse, scale=_scale(x.shape[d], norm, inverse))


def fft(input, n=None, dim=-1, norm=None):
    """The discrete Fourier transform along an axis."""
    return _transform(input, n, dim, norm, False)


def ifft(input, n=None, dim=-1, norm=None):
    """The inverse transform along an axis."""
    return _transform(input, n, dim, norm, True)


def rfft(input, n=None, dim=-1, norm=None):
    """The first half of the transform of real numbers, n // 2 + 1 elements."""
    d = normalize_dim(dim, input.ndim)
    full = _transform(input, n, d, norm, False)
    return full.narrow(d, 0, full.shape[d] // 2 + 1)


def irfft(input, n=None, dim=-1, norm=None):
    """Real numbers from the first half of their transform; n is 2 * (size - 1) if not given."""
    d = normalize_dim(dim, input.ndim)
    n = 2 * (input.shape[d] - 1) if n is None else n
    x = _sized(_complex(input), n // 2 + 1, d)
    first = x.narrow(d, 0, 1)
    mirrored = x.narrow(d, 1, (n - 1) // 2).flip(d).conj()
    first = _realised(first)
    middle = x.narrow(d, 1, n // 2) if n > 1 else x.narrow(d, 0, 0)
    if n % 2 == 0 and n > 1:
        last = _realised(x.narrow(d, n // 2, 1))
        middle = cat([x.narrow(d, 1, n // 2 - 1), last], d)
    return _transform(cat([first, middle, mirrored], d), None, d, norm, True).real


def _realised(x):
    """Without the imaginary part, which a transform of real numbers does not have there."""
    return _complex(x.real)


def _several(transform):
    def over(input, s=None, dim=None, norm=None):
        dims = tuple(range(-len(s), 0)) if dim is None and s is not None else tuple(range(input.ndim)) if dim is None else tuple(dim)
        sizes = (None,) * len(dims) if s is None else tuple(s)
        for n, d in zip(sizes, dims, strict=True):
            input = transform(input, n, d, norm)
        return input

    return over


fftn, ifftn = _several(fft), _several(ifft)


def rfftn(input, s=None, dim=None, norm=None):
    """The transform of real numbers over several axes, half of the last one."""
    dims = tuple(range(input.ndim)) if dim is None else tuple(dim)
    sizes = (None,) * len(dims) if s is None else tuple(s)
    out = rfft(input, sizes[-1], dims[-1], norm)
    return fftn(out, sizes[:-1] if s is not None else None, dims[:-1], norm) if len(dims) > 1 else out


def irfftn(input, s=None, dim=None, norm=None):
    """The inverse of rfftn."""
    dims = tuple(range(input.ndim)) if dim is None else tuple(dim)
    sizes = (None,) * len(dims) if s is None else tuple(s)
    out = ifftn(input, sizes[:-1] if s is not None else None, dims[:-1], norm) if len(dims) > 1 else input
    return irfft(out, sizes[-1], dims[-1], norm)


def _two(transform):
    def over_two(input, s=None, dim=(-2, -1), norm=None):
        return transform(input, s, dim, norm)

    return over_two


fft2, ifft2, rfft2, irfft2 = (_two(f) for f in (fftn, ifftn, rfftn, irfftn))


def fftfreq(n, d=1.0, *, dtype=None, device=None, requires_grad=False):
    """The frequencies of fft's elements, in cycles per unit of d."""
    return Tensor._wrap(np.fft.fftfreq(n, d).astype(dtypes.as_numpy(dtype or dtypes.default_dtype())))


def rfftfreq(n, d=1.0, *, dtype=None, device=None, requires_grad=False):
    """The frequencies of rfft's elements."""
    return Tensor._wrap(np.fft.rfftfreq(n, d).astype(dtypes.as_numpy(dtype or dtypes.default_dtype())))


def fftshift(input, dim=None):
    """Frequency zero moved to the middle."""
    dims = tuple(range(input.ndim)) if dim is None else dim if isinstance(dim, (tuple, list)) else (dim,)
    return input.roll(tuple(input.shape[d] // 2 for d in dims), tuple(dims))


def ifftshift(input, dim=None):
    """The inverse of fftshift."""
    dims = tuple(range(input.ndim)) if dim is None else dim if isinstance(dim, (tuple, list)) else (dim,)
    return input.roll(tuple(-(input.shape[d] // 2) for d in dims), tuple(dims))


