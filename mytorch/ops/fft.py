"""Fourier transforms and their gradients.

The discrete transform is linear, y = F x, so the gradient of x is Fᴴ times the gradient of y. F is symmetric, so Fᴴ is its
complex conjugate: the unscaled transform with the opposite sign in the exponent.
"""

import operator

import numpy as np

from ..arrays import dtypes
from ..arrays.arguments import describe
from ..arrays.memory_format import axes_strides, in_rows, placed
from ..arrays.tensor import Tensor
from .dispatch.op import op
from .dispatch.unwrap import raw_of
from .elementwise import cast, named
from .movement import cat
from .padding import _pad, pad
from .reduction import normalize_dim


def _by_axes(out, raws, attrs):
    """Returns a transform with its axes in the order `axes` in memory."""
    axes = attrs.get("axes")
    if axes is None or len(axes) != out.ndim:  # an axis more for a batch of vmap
        return in_rows(out)
    return placed(out, axes_strides(out.shape, axes))


@op(dtype="same", name="fft", holomorphic=False, layout=_by_axes)
def _fft(xp, input, *, dim, inverse, scale, axes=None, half=False, real=False):
    """Returns the unscaled transform times `scale`. The inverse has the opposite sign in the exponent.

    Args:
        axes: order of the result's axes in memory, outermost first.
        half: return the first n // 2 + 1 elements.
        real: return the real part.
    """
    n = input.shape[dim]
    # NumPy's ifft divides by n; undo this, since `scale` contains the normalization.
    out = xp.fft.ifft(input, axis=dim) * n if inverse else xp.fft.fft(input, axis=dim)
    dtype = np.complex128 if input.dtype in (np.float64, np.complex128) else np.complex64
    # NumPy 1 returns complex128 for float32 too.
    out = (out * scale).astype(dtype, copy=False)
    if half:
        out = out[(slice(None),) * dim + (slice(n // 2 + 1),)]
    return xp.real(out) if real else out


def _fft_grad(g, dim, inverse, scale, half, shape, xp):
    if half:  # the gradient of the other half is 0
        widths = [(0, 0)] * len(shape)
        widths[dim] = (0, shape[dim] - g.shape[dim])
        g = xp.call(_pad, g, widths=tuple(widths))
    return xp.call(_fft, g, dim=dim, inverse=not inverse, scale=scale)


_fft.grad(input=_fft_grad)


def _axes_in_memory(input, dims):
    """Returns the order of a transform's axes in memory as PyTorch chooses it: the transformed axes are innermost."""
    strides = raw_of(input).strides
    others = [d for d in range(input.ndim) if d not in dims]
    return (*sorted(others, key=lambda d: -strides[d]), *dims)


def _scale(n, norm, inverse):
    if norm not in (None, "backward", "ortho", "forward"):
        raise RuntimeError(f'Invalid normalization mode: "{norm}"')
    # backward: 1/n on the inverse. forward: 1/n on the forward transform. ortho: 1/sqrt(n) on both.
    if norm == "ortho":
        return n**-0.5
    return 1.0 / n if inverse == (norm in (None, "backward")) else 1.0


def _sized(input, n, dim):
    """Returns the input truncated or padded with zeros to n elements along an axis."""
    have = input.shape[dim]
    if n is None or n == have:
        return input
    if n < have:
        return input.narrow(dim, 0, n)
    return pad(input, [0, 0] * (input.ndim - 1 - dim) + [0, n - have])


def _complex(input):
    if input.dtype.is_complex:
        return input
    return cast(input, dtypes.complex128 if input.dtype is dtypes.float64 else dtypes.complex64)


def _transform(input, n, dim, norm, inverse, axes=None, **part):
    d = normalize_dim(dim, input.ndim)
    x = _sized(input, n, d)
    if x.shape[d] < 1:
        raise RuntimeError(f"Invalid number of data points ({x.shape[d]}) specified")
    axes = _axes_in_memory(x, (d,)) if axes is None else axes
    return _fft(_complex(x), dim=d, inverse=inverse, scale=_scale(x.shape[d], norm, inverse), axes=axes, **part)


def fft(input, n=None, dim=-1, norm=None):
    """Computes the discrete Fourier transform along a dimension.

        result[k] = sum_t input[t] * exp(-2 * pi * i * k * t / n)

    Args:
        n: length of the dimension, which is first truncated or padded with zeros (default: its size).
        norm: "backward" (default, no scale), "ortho" (1 / sqrt(n)) or "forward" (1 / n).

    Example:
        >>> mytorch.fft.fft(tensor([1.0, 0.0, 0.0, 0.0])).real.tolist()  # an impulse contains all frequencies
        [1.0, 1.0, 1.0, 1.0]
    """
    return _transform(input, n, dim, norm, False)


def ifft(input, n=None, dim=-1, norm=None):
    """Computes the inverse of `fft` along a dimension.

    Example:
        >>> x = tensor([1.0, 2.0, 3.0])
        >>> mytorch.allclose(mytorch.fft.ifft(mytorch.fft.fft(x)).real, x)
        True
    """
    return _transform(input, n, dim, norm, True)


def rfft(input, n=None, dim=-1, norm=None):
    """Computes the first half of the Fourier transform of real numbers, n // 2 + 1 elements.

    Args:
        input: real numbers.
    """
    if input.dtype.is_complex:
        raise RuntimeError(
            f"rfft expects a real input tensor, and rfftn expects a real-valued input tensor, but got {input.dtype}"
        )
    d = normalize_dim(dim, input.ndim)
    # The spectrum of real numbers is conjugate symmetric, so its second half is redundant.
    return _transform(input, n, d, norm, False, half=True)


def irfft(input, n=None, dim=-1, norm=None):
    """Computes real numbers from the first half of their Fourier transform.

    Args:
        input: complex numbers, n // 2 + 1 elements along the dimension.
        n: length of the result (default: 2 * (size - 1)).
    """
    d = normalize_dim(dim, input.ndim)
    n = 2 * (input.shape[d] - 1) if n is None else n
    x = _sized(_complex(input), n // 2 + 1, d)
    axes = _axes_in_memory(x, (d,))
    # Rebuild the full spectrum: X[n - k] = conj(X[k]). The elements for k = 0 and, if n is even, k = n / 2 are real.
    first = _real_part(x.narrow(d, 0, 1))
    mirrored = x.narrow(d, 1, (n - 1) // 2).flip(d).conj()
    middle = x.narrow(d, 1, n // 2) if n > 1 else x.narrow(d, 0, 0)
    if n % 2 == 0 and n > 1:
        last = _real_part(x.narrow(d, n // 2, 1))
        middle = cat([x.narrow(d, 1, n // 2 - 1), last], d)
    return _transform(cat([first, middle, mirrored], d), None, d, norm, True, axes, real=True)


def _real_part(x):
    """Returns x without its imaginary part, which is 0 in the spectrum of a real signal."""
    return _complex(x.real)


_OPPOSITE = {None: "forward", "backward": "forward", "forward": "backward"}


def hfft(input, n=None, dim=-1, norm=None):
    """Computes the real Fourier transform of a signal with conjugate symmetry from the first half of the signal.

    Args:
        input: complex numbers, n // 2 + 1 elements along the dimension.
        n: length of the result (default: 2 * (size - 1)).
    """
    # fft(x) = n conj(ifft(conj(x))), so a conjugate and the opposite normalization turn irfft into hfft.
    return irfft(_complex(input).conj(), n, dim, _OPPOSITE.get(norm, norm))


def ihfft(input, n=None, dim=-1, norm=None):
    """Computes the inverse of `hfft`: the first half of the inverse Fourier transform of real numbers.

    Args:
        input: real numbers.
    """
    return rfft(input, n, dim, _OPPOSITE.get(norm, norm)).conj()


def _axes(input, s, dim):
    """Returns (sizes, axes) of a transform over several axes. A size of None keeps the size of the input."""
    s = (s,) if isinstance(s, int) else s
    dim = (dim,) if isinstance(dim, int) else dim
    if dim is None:
        dim = range(input.ndim) if s is None else range(input.ndim - len(s), input.ndim)
    dims = tuple(normalize_dim(d, input.ndim) for d in dim)
    if len(set(dims)) != len(dims):
        raise RuntimeError("FFT dims must be unique")
    if s is not None and len(s) != len(dims):
        raise RuntimeError("When given, dim and shape arguments must have the same length")
    return (None,) * len(dims) if s is None else tuple(None if n == -1 else n for n in s), dims


def _over(inverse, input, sizes, dims, norm, last=()):
    """Transforms several axes. `last` is the axis that was transformed before."""
    for n, d in zip(sizes, dims, strict=True):
        input = _sized(input, n, d)
    strides = raw_of(input).strides
    axes = _axes_in_memory(input, (*sorted(dims, key=lambda d: -strides[d]), *last))
    for d in dims:
        input = _transform(input, None, d, norm, inverse, axes)
    return input


def fftn(input, s=None, dim=None, norm=None):
    """Computes the Fourier transform along several dimensions, by default all.

    Args:
        dim: dimensions to transform (default: all, or the last len(s)).
    """
    return _over(False, _complex(input), *_axes(input, s, dim), norm)


def ifftn(input, s=None, dim=None, norm=None):
    """Computes the inverse of `fftn`.

    Args:
        dim: dimensions to transform (default: all, or the last len(s)).
    """
    return _over(True, _complex(input), *_axes(input, s, dim), norm)


def _last_first(first, others):
    """Returns a transform over several axes with a special transform of the last axis, before or after the other axes."""

    @named(f"{first.__name__}n", first=first.__name__, others=others.__name__)
    def half(input, s=None, dim=None, norm=None):
        """Computes `{first}` along the last of several dimensions and `{others}` along the others.

        Args:
            s: signal sizes along the dimensions (default: the sizes of `input`).
            dim: dimensions to transform (default: all, or the last len(s)).
            norm: "forward", "backward" or "ortho", as in `fft` (default: None, "backward").
        """
        sizes, dims = _axes(input, s, dim)
        if not dims:
            raise RuntimeError(f"{first.__name__}n must transform at least one axis")
        # rfft needs a real input, so it is first. irfft gives a real output, so it is last.
        if first in (rfft, ihfft):
            out = first(input, sizes[-1], dims[-1], norm)
            return _over(others is ifft, out, sizes[:-1], dims[:-1], norm, dims[-1:] if first is rfft else ())
        return first(_over(others is ifft, _complex(input), sizes[:-1], dims[:-1], norm), sizes[-1], dims[-1], norm)

    return half


rfftn, irfftn = _last_first(rfft, fft), _last_first(irfft, ifft)
hfftn, ihfftn = _last_first(hfft, fft), _last_first(ihfft, ifft)


def _two(transform):
    @named(transform.__name__[:-1] + "2", transform=transform.__name__)
    def over_two(input, s=None, dim=(-2, -1), norm=None):
        """Computes `{transform}` over two dimensions.

        Args:
            s: signal sizes along the dimensions (default: the sizes of `input`).
            dim: dimensions to transform (default: the last two).
            norm: "forward", "backward" or "ortho", as in `fft` (default: None, "backward").
        """
        return transform(input, s, dim, norm)

    return over_two


fft2, ifft2, rfft2, irfft2 = (_two(f) for f in (fftn, ifftn, rfftn, irfftn))
hfft2, ihfft2 = _two(hfftn), _two(ihfftn)


def fftfreq(n, d=1.0, *, dtype=None, device=None, requires_grad=False):
    """Returns the frequencies of the elements of `fft`, in cycles per unit of d.

    Args:
        n: length of the transform.
        d: distance of the samples (default: 1.0).
        device: device of the result (default: the default device).
    """
    raw = np.fft.fftfreq(operator.index(n), d).astype(dtypes.as_numpy(dtype or dtypes.default_dtype()))
    return Tensor._wrap(raw).to(device).requires_grad_(requires_grad)


def rfftfreq(n, d=1.0, *, dtype=None, device=None, requires_grad=False):
    """Returns the frequencies of the elements of `rfft`.

    Args:
        n: length of the transform.
        d: distance of the samples (default: 1.0).
        device: device of the result (default: the default device).
    """
    raw = np.fft.rfftfreq(operator.index(n), d).astype(dtypes.as_numpy(dtype or dtypes.default_dtype()))
    return Tensor._wrap(raw).to(device).requires_grad_(requires_grad)


def fftshift(input, dim=None):
    """Moves the zero frequency to the center.

    Args:
        input: result of a Fourier transform.
        dim: dimensions to shift (default: all).
    """
    dims = range(input.ndim) if dim is None else dim if isinstance(dim, (tuple, list)) else (dim,)
    return input.roll(tuple(input.shape[d] // 2 for d in dims), tuple(dims))


def ifftshift(input, dim=None):
    """Computes the inverse of `fftshift`.

    Args:
        input: result of `fftshift`.
        dim: dimensions to shift (default: all).
    """
    dims = range(input.ndim) if dim is None else dim if isinstance(dim, (tuple, list)) else (dim,)
    return input.roll(tuple(-(input.shape[d] // 2) for d in dims), tuple(dims))


describe(
    globals(),
    n="length of the dimension, which is first truncated or padded with zeros (default: its size).",
    s="lengths of the dimensions, which are first truncated or padded with zeros (default: their sizes).",
    norm='"backward" (default) scales inverse transforms by 1 / n, "forward" the others; "ortho" scales both by 1 / sqrt(n).',
)
