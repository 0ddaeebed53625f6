"""Functions of `torch` that are built from ops: older names of linear algebra, and short-time Fourier transforms."""

import itertools
import math
import operator
from collections import namedtuple

import numpy as np

from . import fft, linalg
from .arrays import dtypes
from .arrays.array import on_input_device
from .arrays.errors import warn
from .arrays.tensor import Tensor
from .autograd.function import Function
from .compat import return_types
from .ops.creation import ones
from .ops.decompositions import in_column_order
from .ops.dispatch.bind import PUBLIC, found_by_pickle, public_names
from .ops.dispatch.out import takes_out
from .ops.dispatch.precision import in_precision
from .ops.dispatch.unwrap import on_device_of, raw_of, to_cpu
from .ops.elementwise import where
from .ops.elementwise import without_derivative as _without_derivative
from .ops.functional import pad
from .ops.movement import stack
from .ops.random import normal
from .ops.reduction import normalize_dim
from .ops.scatter import reduction_name

_Geqrf, _Histogram, _Svd, _Triangular, _Qr, _Lu = (
    return_types.add(namedtuple(name, fields), name)
    for name, fields in {
        "geqrf": "a tau", "histogramdd": "hist bin_edges", "svd": "U S V", "triangular_solve": "solution cloned_coefficient",
        "qr": "Q R", "lu_unpack": "P L U",
    }.items()
)  # fmt: skip


# -- linear algebra -----------------------------------------------------------------------------------------------


def svd(input, some=True, compute_uv=True):
    """Computes the singular value decomposition input = U diag(S) Vᴴ. Prefer `linalg.svd`.

    Args:
        input: (…, M, N).
        some: return only the first min(M, N) vectors.
        compute_uv: if False, U and V are zeros.
    """
    U, S, Vh = linalg.svd(input, full_matrices=not some)
    if not compute_uv:
        U, V = (input.new_zeros((*input.shape[:-2], n, n)) for n in input.shape[-2:])
        return _Svd(U, S, V)
    return _Svd(U, S, Vh.mH)


def qr(input, some=True):
    """Computes the QR decomposition (Q, R), reduced if `some`. Prefer `linalg.qr`."""
    return _Qr(*linalg.qr(input, "reduced" if some else "complete"))


def lu_unpack(LU_data, LU_pivots, unpack_data=True, unpack_pivots=True):
    """Returns (P, L, U) of the result of `lu`.

    Args:
        LU_data: L and U in one matrix.
        LU_pivots: row exchanges.
        unpack_data: compute L and U.
        unpack_pivots: compute P.
    """
    return _Lu(*linalg.lu_unpack(LU_data, LU_pivots, unpack_data, unpack_pivots))


@in_precision()
def geqrf(input):
    """Computes (reflectors, tau) of the QR decomposition in LAPACK's format: R, and the Householder vectors below it.

    `ormqr` and `linalg.householder_product` accept the result.
    """
    if input.ndim < 2:
        raise RuntimeError(f"torch.geqrf: input must have at least 2 dimensions, got {input.ndim}.")
    if input.dtype.itemsize < 4 or not (input.dtype.is_floating_point or input.dtype.is_complex):
        raise NotImplementedError(f"geqrf: not implemented for {input.dtype}")
    reflectors, tau = np.linalg.qr(to_cpu(input), mode="raw")
    parts = on_device_of(np.swapaxes(np.ascontiguousarray(reflectors), -1, -2), input), on_device_of(tau, input)
    return _Geqrf(*[_without_derivative(part, input, name="geqrf") for part in parts])


@in_precision()
def ormqr(input, tau, other, left=True, transpose=False):
    """Multiplies a matrix by the square Q of `geqrf`: Q other, or other Q; Qᴴ instead of Q if `transpose`.

    Args:
        input: reflectors, (…, M, N).
        tau: factors of the reflectors, (…, K).
        other: (…, M, C), or (…, C, M) if not left.
        left: multiply from the left.
        transpose: use Qᴴ.

    Raises:
        RuntimeError: if the shapes do not match.
    """
    side = -2 if left else -1
    if input.ndim < 2 or other.ndim < 2:
        word = "input" if input.ndim < 2 else "other"
        raise RuntimeError(f"torch.ormqr: {word} must have at least 2 dimensions.")
    if other.shape[side] < tau.shape[-1]:
        raise RuntimeError(f"torch.ormqr: other.shape[{side}] must be greater than or equal to tau.shape[-1]")
    if other.shape[side] != input.shape[-2]:
        raise RuntimeError(f"torch.ormqr: other.shape[{side}] must be equal to input.shape[-2]")
    if tau.shape[-1] > input.shape[-1]:
        raise RuntimeError(f"torch.ormqr: expected at most {input.shape[-1]} factors tau, got {tau.shape[-1]}")
    for word, batch in (("tau", tau.shape[:-1]), ("other", other.shape[:-2])):
        if batch != input.shape[:-2]:
            raise RuntimeError(f"torch.ormqr: Expected batch dimensions of {word} to be equal to input.shape[:-2]")
    Q = linalg._reflected(input, tau, input.shape[-2])
    Q = Q.mH if transpose else Q
    return in_column_order(Q @ other if left else other @ Q)


def pinverse(input, rcond=1e-15):
    """Computes the pseudo-inverse. Prefer `linalg.pinv`."""
    return linalg.pinv(input, rtol=rcond)


def lu(A, pivot=True, get_infos=False):
    """Computes (LU, pivots) like `linalg.lu_factor`, and the infos if `get_infos`.

    Args:
        A: (…, M, N).
        pivot: exchange rows for stability.
        get_infos: return an error code for each matrix.
    """
    LU, pivots, info = linalg.lu_factor_ex(A, pivot=pivot)
    return (LU, pivots, info) if get_infos else (LU, pivots)


def lu_solve(b, LU_data, LU_pivots):
    """Solves A X = b with the result of lu_factor for A.

    Args:
        b: (…, N, K).
        LU_data: factors, (…, N, N).
        LU_pivots: row exchanges, (…, N).
    """
    return linalg.lu_solve(LU_data, LU_pivots, b)


def vander(x, N=None, increasing=False):
    """Returns a Vandermonde matrix: the powers of a vector's elements.

    Args:
        x: a vector.
        N: number of columns (default: len(x)).
        increasing: powers increase from left to right.
    """
    if x.ndim != 1:
        raise RuntimeError("x must be a one-dimensional tensor.")
    if N is not None and N < 0:
        raise RuntimeError("N must be non-negative.")
    columns = len(x) if N is None else N
    out = linalg.vander(x, N=max(columns, 2))[:, :columns]
    return out if increasing else out.flip(-1)


@in_precision()
def triangular_solve(b, A, upper=True, transpose=False, unitriangular=False):
    """Solves A X = b (or Aᵀ X = b) for triangular A, and returns (X, A).

    Args:
        b: (…, N, K).
        A: (…, N, N).
        upper: A is upper triangular.
        transpose: solve with Aᵀ.
        unitriangular: assume that the diagonal of A is 1.
    """
    if A.dtype is not b.dtype:
        raise RuntimeError(
            f"triangular_solve: Expected b and A to have the same dtype, but found {b.dtype} and {A.dtype}."
        )
    triangle = A.triu() if upper else A.tril()
    triangle, upper = (triangle.mT, not upper) if transpose else (triangle, upper)
    return _Triangular(
        linalg.solve_triangular(triangle, b, upper=upper, unitriangular=unitriangular), in_column_order(A.clone())
    )


def svd_lowrank(A, q=6, niter=2, M=None):
    """Computes (U, S, V) of an approximation of rank q, with random projections.

    Args:
        A: (…, M, N).
        q: the rank.
        niter: number of power iterations, which increase the accuracy.
        M: matrix to subtract from A first.

    Source: N. Halko, P. Martinsson, J. Tropp, "Finding structure with randomness" (2009), algorithm 5.1.
    """
    A = A if M is None else A - M
    wide = A.shape[-2] < A.shape[-1]
    B = A.mH if wide else A
    Q = linalg.qr(B @ normal(0.0, 1.0, (B.shape[-1], q), dtype=A.dtype)).Q
    for _ in range(niter):
        Q = linalg.qr(B @ linalg.qr(B.mH @ Q).Q).Q
    U, S, Vh = linalg.svd(Q.mH @ B, full_matrices=False)
    U, V = Q @ U, Vh.mH
    return _Svd(V, S, U) if wide else _Svd(U, S, V)


def pca_lowrank(A, q=None, center=True, niter=2):
    """Computes (U, S, V) of the first q principal components of the rows of A.

    Args:
        A: (…, M, N), with one sample per row.
        q: the rank (default: min(6, M, N)).
        center: subtract the means of the columns first.
        niter: number of power iterations.
    """
    q = min(6, *A.shape[-2:]) if q is None else q
    return svd_lowrank(A - A.mean(-2, keepdim=True) if center else A, q, niter)


# -- short-time Fourier transforms --------------------------------------------------------------------------------


def _full_window(window, win_length, n_fft, like):
    """Return the window (default: ones), centered in n_fft samples."""
    if window is None:
        if n_fft > 1:
            warn(
                "A window was not provided. A rectangular window will be applied, which is known to cause spectral leakage. Other "
                "windows such as torch.hann_window or torch.hamming_window are recommended to reduce spectral leakage."
            )
        window = ones(win_length, dtype=like.dtype if like.dtype.is_floating_point else None)
    if tuple(window.shape) != (win_length,):
        raise RuntimeError(
            f"stft: expected a 1D window tensor of size equal to win_length={win_length}, but got window with size {list(window.shape)}"
        )
    left = (n_fft - win_length) // 2
    return pad(window, (left, n_fft - win_length - left)) if win_length < n_fft else window


def stft(
    input, n_fft, hop_length=None, win_length=None, window=None, center=True, pad_mode="reflect", normalized=False,
    onesided=None, return_complex=None,
):  # fmt: skip
    """Computes the short-time Fourier transform: the spectrum of each windowed frame.

    Args:
        input: (time) or (batch, time).
        n_fft: number of samples in a frame.
        hop_length: number of samples between frames (default: n_fft // 4).
        win_length: length of the window (default: n_fft).
        window: (win_length,) (default: ones).
        center: pad the signal so that frame t is centered at t * hop_length.
        pad_mode: mode of the padding; see `nn.functional.pad`.
        normalized: divide by sqrt(n_fft).
        onesided: return only the first n_fft // 2 + 1 frequencies (default for real signals).
        return_complex: if False, return pairs of real numbers in an additional last axis.

    Returns:
        (batch, frequencies, frames), complex.

    Raises:
        RuntimeError: if the signal is shorter than a frame, or a size is invalid.
    """
    hop_length = n_fft // 4 if hop_length is None else hop_length
    win_length = n_fft if win_length is None else win_length
    if input.ndim not in (1, 2):
        raise RuntimeError(f"stft: expected a 1D or 2D tensor, but got {input.ndim}D")
    if hop_length <= 0:
        raise RuntimeError(f"stft: expected hop_length > 0, but got hop_length={hop_length}")
    if not 0 < win_length <= n_fft:
        raise RuntimeError(f"stft: expected 0 < win_length <= n_fft, but got win_length={win_length}")
    complex_input = input.dtype.is_complex or (window is not None and window.dtype.is_complex)
    if return_complex is None and not complex_input:
        raise RuntimeError(
            "stft requires the return_complex parameter be given for real inputs, and will further require that return_complex=True in a future PyTorch release."
        )
    x = input.unsqueeze(0) if input.ndim == 1 else input
    if center:
        x = pad(x.unsqueeze(1), (n_fft // 2, n_fft // 2), mode=pad_mode).squeeze(1)
    if not 0 < n_fft <= x.shape[-1]:
        raise RuntimeError(f"stft: expected 0 < n_fft < {x.shape[-1]}, but got n_fft={n_fft}")
    frames = x.unfold(-1, n_fft, hop_length) * _full_window(window, win_length, n_fft, x)
    onesided = not complex_input if onesided is None else onesided
    if onesided and complex_input:
        raise RuntimeError("stft: cannot have onesided output if window or input is complex")
    spectrum = (fft.rfft if onesided else fft.fft)(frames, norm="ortho" if normalized else None).transpose(1, 2)
    spectrum = spectrum.squeeze(0) if input.ndim == 1 else spectrum
    return spectrum if return_complex or (complex_input and return_complex is None) else spectrum.view_as_real()


def istft(
    input, n_fft, hop_length=None, win_length=None, window=None, center=True, normalized=False, onesided=None, length=None,
    return_complex=False,
):  # fmt: skip
    """Computes the signal with the closest `stft` (least squares over overlapping frames).

    Args:
        input: complex (…, F, T).
        n_fft: number of samples in a frame.
        hop_length: number of samples between frames (default: n_fft // 4).
        win_length: length of the window (default: n_fft).
        window: (win_length,) (default: ones).
        center: the frames are centered.
        normalized: the transform was divided by sqrt(n_fft).
        onesided: F is n_fft // 2 + 1.
        length: number of samples of the result.
        return_complex: the signal is complex.

    Raises:
        RuntimeError: if the input is not complex, or the windows do not cover a sample.

    Source: D. Griffin, J. Lim, "Signal estimation from modified short-time Fourier transform" (1984).
    """
    if not input.dtype.is_complex:
        raise RuntimeError(
            "istft requires a complex-valued input tensor matching the output from stft with return_complex=True."
        )
    hop_length = n_fft // 4 if hop_length is None else hop_length
    win_length = n_fft if win_length is None else win_length
    x = (input.unsqueeze(0) if input.ndim == 2 else input).transpose(1, 2)
    bins, count = x.shape[-1], x.shape[1]
    onesided = bins != n_fft if onesided is None else onesided
    if bins != (n_fft // 2 + 1 if onesided else n_fft):
        raise RuntimeError(
            f"istft: expected the frequency dimension (3rd to the last) of the input tensor to match n_fft / 2 + 1 when onesided=True, but got {bins}"
        )
    norm = "ortho" if normalized else None
    half = x[..., : n_fft // 2 + 1]  # also for spectra without conjugate symmetry
    frames = fft.ifft(x, norm=norm) if return_complex else fft.irfft(half, n_fft, norm=norm)
    real_kind = dtypes.float64 if input.dtype is dtypes.complex128 else dtypes.float32
    window = _full_window(window, win_length, n_fft, ones(1, dtype=real_kind))
    total = n_fft + hop_length * (count - 1)
    place = on_device_of((np.arange(count)[:, None] * hop_length + np.arange(n_fft)).reshape(-1), frames)
    signal = frames.new_zeros((len(frames), total)).index_add(1, place, (frames * window).reshape(len(frames), -1))
    weight = window.new_zeros(total).index_add(0, place, (window * window).expand(count, n_fft).reshape(-1))
    start = n_fft // 2 if center else 0
    end = start + length if length is not None else total - (n_fft // 2 if center else 0)
    signal, weight = signal[:, start:end], weight[start:end]
    if float(weight.detach().abs().min()) < 1e-11:
        raise RuntimeError("istft: window overlap add min: 1e-11; the windows do not cover all samples.")
    signal = signal / weight
    if length is not None and signal.shape[-1] < length:
        warn(
            "istft: The length of signal is shorter than the length parameter. Result is being padded with zeros in the tail."
        )
        signal = pad(signal, (0, length - signal.shape[-1]))
    return signal.squeeze(0) if input.ndim == 2 else signal


# -- other functions ----------------------------------------------------------------------------------------------


@on_input_device
def histogramdd(input, bins, range=None, weight=None, density=False):
    """Computes the histogram of points (n, d) over a grid of d axes: (hist, bin_edges).

    Args:
        input: the points.
        bins: number of bins per axis, or a list of numbers or of edges, one per axis.
        range: (minimum, maximum) of each axis.
        weight: weight of each point.
        density: normalize the integral to 1.

    Raises:
        RuntimeError: if the number of bins differs from the number of axes, or edges decrease or are missing.
    """
    raw = raw_of(input).reshape(math.prod(input.shape[:-1]), input.shape[-1])
    limits = None if range is None else list(zip(range[::2], range[1::2], strict=True))
    bins = [raw_of(b) if isinstance(b, Tensor) else b for b in bins] if isinstance(bins, (list, tuple)) else bins
    if isinstance(bins, list) and len(bins) != raw.shape[1]:
        raise RuntimeError(
            f"histogramdd: expected {raw.shape[1]} sequences of bin edges for a {raw.shape[1]}-dimensional histogram but got {len(bins)}"
        )
    if any(isinstance(b, int) and b <= 0 for b in (bins if isinstance(bins, list) else [bins])):
        raise RuntimeError(f"histogramdd: bins must be > 0, but got {bins}")
    if isinstance(bins, list) and any(np.ndim(b) and not np.size(b) for b in bins):
        raise RuntimeError(
            "histogramdd: expected at least one edge for each axis, got a tensor of bins without elements."
        )
    if isinstance(bins, list) and any(np.ndim(b) and np.any(np.diff(b) < 0) for b in bins):
        raise RuntimeError("histogramdd: expected non-decreasing edges of bins.")
    if weight is not None and tuple(getattr(weight, "shape", ())) != tuple(input.shape[:-1]):
        raise RuntimeError(
            f"histogramdd: expected a weight for each of the points {list(input.shape[:-1])}, but got {weight}"
        )
    weights = None if weight is None else raw_of(weight).reshape(-1)
    hist, edges = np.histogramdd(raw, bins, limits, density=density, weights=weights)
    found = [Tensor._wrap(a.astype(raw.dtype)) for a in (hist, *edges)]
    found = [_without_derivative(a, input, name="histogramdd") for a in found]
    return _Histogram(found[0], tuple(found[1:]))


class _Extreme(Function):
    """The largest or smallest rows of a segment. Equal ones share the gradient; NaN is the extreme of NaN."""

    @staticmethod
    def forward(ctx, segment, largest):
        value = segment.amax(0) if largest else segment.amin(0)
        chosen = ((segment == value) | (segment.isnan() & value.isnan())).to(segment.dtype)
        ctx.save_for_backward(chosen / chosen.sum(0))
        return value

    @staticmethod
    def backward(ctx, g):
        (shares,) = ctx.saved_tensors
        return g * shares, None


_SEGMENTS = {  # reduction of a segment, combination with the initial value, result of an empty segment
    "sum": (lambda x: x.sum(0), operator.add, 0.0),
    "mean": (lambda x: x.sum(0), operator.add, math.nan),
    "amax": (lambda x: _Extreme.apply(x, True), lambda x, initial: where(x < initial, initial, x), -math.inf),
    "amin": (lambda x: _Extreme.apply(x, False), lambda x, initial: where(x > initial, initial, x), math.inf),
    "prod": (lambda x: x.prod(0), operator.mul, 1.0),
}


def segment_reduce(data, reduce, *, lengths=None, indices=None, offsets=None, axis=0, unsafe=False, initial=None):
    """Reduces consecutive segments of an axis: "sum", "mean", "amax", "amin" or "prod".

    Args:
        data: the tensor, of floats.
        reduce: the reduction.
        lengths: integers (…, segments), the lengths of the segments along `axis`; the earlier axes match those of `data`.
        indices: for compatibility with PyTorch.
        offsets: integers (…, segments + 1), the start of each segment and the end of the last one; `lengths` are then ignored.
        axis: the axis of the segments, the last one of `lengths` or `offsets` (default: 0).
        unsafe: do not require that the lengths add up to the size of the axis (default: False).
        initial: result of an empty segment, and start value of other segments (default: depends on the reduction).

    Raises:
        RuntimeError: neither lengths nor offsets are given, `indices` is, a length is negative, a segment ends outside of the axis, or
            shapes do not match.
        NotImplementedError: `data` is not floating-point, or lengths are not integers.

    Example:
        >>> mytorch.segment_reduce(tensor([1.0, 2.0, 3.0]), "sum", lengths=tensor([1, 2])).tolist()
        [1.0, 5.0]
    """
    reduce, axis = reduction_name(reduce), normalize_dim(axis, data.ndim)
    if indices is not None:
        raise RuntimeError("segment_reduce(): indices based reduction is not supported yet. Use lengths or offsets.")
    given = lengths if offsets is None else offsets
    if given is None:
        raise RuntimeError("segment_reduce(): Either lengths or offsets must be defined.")
    if not data.dtype.is_floating_point or given.dtype.is_floating_point or given.dtype.is_complex:
        raise NotImplementedError(
            f"segment_reduce: expected floats and integer lengths, not implemented for {data.dtype} and {given.dtype}."
        )
    lead, size = tuple(data.shape[:axis]), data.shape[axis]
    if given.ndim != axis + 1 or tuple(given.shape[:-1]) != lead:
        raise RuntimeError(
            f"segment_reduce: expected lengths or offsets of the shape {(*lead, 'segments')}, got {tuple(given.shape)}."
        )
    numbers = to_cpu(raw_of(given)).astype(np.int64)
    if offsets is None:
        if (numbers < 0).any():
            raise RuntimeError("segment_reduce(): lengths contains negative value!")
        if not unsafe and (numbers.sum(-1) != size).any():
            raise RuntimeError(
                f"segment_reduce(): Expected all rows of lengths along axis to sum to data.size({axis}), {size}, when !unsafe."
            )
        numbers = np.concatenate([np.zeros((*lead, 1), np.int64), numbers.cumsum(-1)], -1)
    if numbers.size and (numbers.min() < 0 or numbers.max() > size or (np.diff(numbers) < 0).any()):
        raise RuntimeError(f"segment_reduce(): Expected ascending offsets from 0 to {size}, got {numbers.tolist()}.")
    rows = []
    for where_ in np.ndindex(*lead):
        rows += [_reduced(data[where_][a:b], reduce, initial) for a, b in itertools.pairwise(numbers[where_].tolist())]
    shape = (*lead, numbers.shape[-1] - 1, *data.shape[axis + 1 :])
    return stack(rows).reshape(shape) if rows else data.new_zeros(shape)


def _reduced(segment, reduce, initial):
    of_segment, join, default = _SEGMENTS[reduce]
    if not len(segment):
        return segment.new_full(segment.shape[1:], default if initial is None else initial)
    value = of_segment(segment)
    if initial is not None:
        value = join(value, initial)
    return value / len(segment) if reduce == "mean" else value


_VIEWS = (
    "as_strided detach diagonal expand permute select split split_with_sizes squeeze t transpose unbind unfold unsqueeze "
    "view_as_complex view_as_real view"
).split()


def _copied(name):
    """Return the function `name_copy`: a copy of the view `name`."""

    def copy(input, *args, **kwargs):
        found = getattr(Tensor, name)(input, *args, **kwargs)
        return (
            tuple(x.contiguous().clone() for x in found)
            if isinstance(found, (tuple, list))
            else found.contiguous().clone()
        )

    copy.__name__ = copy.__qualname__ = name + "_copy"
    copy.__doc__ = f"Returns a copy of the view `Tensor.{name}`; `out` is a tensor for the result."
    return copy


def slice_copy(input, dim=0, start=None, end=None, step=1):
    """Returns a copy of input[start:end:step] along `dim`.

    Args:
        dim: the axis.
        start: as in a slice.
        end: as in a slice.
        step: as in a slice.
    """
    return input[(slice(None),) * (dim % input.ndim) + (slice(start, end, step),)].clone()


orgqr = linalg.householder_product
FUNCTIONS = {
    "alias_copy": Tensor.clone, "geqrf": geqrf, "histogramdd": histogramdd,
    "istft": istft, "lu": lu, "lu_solve": lu_solve, "lu_unpack": lu_unpack, "matrix_exp": linalg.matrix_exp,
    "matrix_power": linalg.matrix_power, "orgqr": orgqr, "ormqr": ormqr,
    "pca_lowrank": pca_lowrank, "pinverse": pinverse, "qr": qr, "segment_reduce": segment_reduce, "_segment_reduce": segment_reduce,
    "slice_copy": slice_copy, "stft": stft, "svd": svd, "svd_lowrank": svd_lowrank, "triangular_solve": triangular_solve,
    **{f"{name}_copy": _copied(name) for name in _VIEWS},
}  # fmt: skip

TORCH_NAMES = {
    "mytorch": {
        **{name: found_by_pickle(takes_out(f), name) for name, f in FUNCTIONS.items()},
        **public_names({"vander": vander}),
    }
}

_ELSEWHERE = frozenset(
    "atleast_1d atleast_2d atleast_3d broadcast_tensors cartesian_prod block_diag cdist chain_matmul einsum norm meshgrid "
    "split tensordot unique unique_consecutive unravel_index".split()
)


def __getattr__(name):
    if name not in _ELSEWHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return PUBLIC[name]
