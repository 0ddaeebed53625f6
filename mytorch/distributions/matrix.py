"""Multivariate normal distributions, and distributions of matrices."""

import math
import warnings
from collections.abc import Iterable

from ..arrays.array import Size
from ..arrays.tensor import Tensor
from ..linalg import slogdet, solve_triangular
from ..ops.creation import arange, eye
from ..ops.decompositions import cholesky
from ..ops.elementwise import where
from ..ops.linalg import matmul
from ..ops.random import randn
from ..ops.special import mvlgamma
from . import constraints
from .continuous import Beta, Chi2
from .distribution import Distribution, ExponentialFamily, Family
from .utils import broadcast_all, finfo, joint_shape, lazy_property, size, vec_to_tril_matrix

__all__ = "LKJCholesky LowRankMultivariateNormal MultivariateNormal Wishart".split()

_MATRICES = {
    "covariance_matrix": constraints.positive_definite,
    "precision_matrix": constraints.positive_definite,
    "scale_tril": constraints.lower_cholesky,
}


def _identity(matrix):
    return eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)


def mahalanobis(factor, x):
    """Return |L^-1 x|^2 for triangular L (..., n, n) and x (..., n), with one solve per L."""
    shape = joint_shape(x.shape[:-1], factor.shape[:-2])
    cut = len(shape) - (factor.ndim - 2)
    lead, batch, n = shape[:cut], shape[cut:], x.shape[-1]
    columns = x.expand(size(shape, (n,))).reshape(lead.numel(), *batch, n).movedim(0, -1)
    solved = solve_triangular(factor.expand(size(batch, (n, n))), columns, upper=False)
    return (solved**2).sum(-2).movedim(-1, 0).reshape(shape)


def log_diagonal(factor):
    """Sum the logarithms of the diagonal: half the log determinant of L L^T."""
    return factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)


def _times(matrix, vector):
    return matmul(matrix, vector.unsqueeze(-1)).squeeze(-1)


def _precision_to_tril(precision):
    """Return the factor L of the inverse of a precision, from the precision's factor U^T U."""
    flipped = cholesky(precision.flip((-2, -1))).flip((-2, -1)).mT
    return solve_triangular(flipped, _identity(precision).expand(precision.shape), upper=False)


class _OfCovariance(Family):
    """Base class that stores a covariance, precision or triangular factor, and computes the others on first access."""

    has_rsample = True

    def _keep_matrix(self, batch_shape, given, error=ValueError):
        """Expand the given matrix to the batch, and keep the original for its factor."""
        given = [(name, matrix) for name, matrix in given.items() if matrix is not None]
        if len(given) != 1:
            raise error("Exactly one of covariance_matrix or precision_matrix or scale_tril may be specified.")
        ((name, matrix),) = given
        if matrix.ndim < 2:
            raise ValueError(f"{name} must be at least two-dimensional, with optional leading batch dimensions")
        batch = joint_shape(matrix.shape[:-2], batch_shape)
        setattr(self, name, matrix.expand(size(batch, matrix.shape[-2:])))
        self._matrix = name, matrix
        return batch

    def _keep_factor(self):
        """Compute the triangular factor. Subclasses may define the attribute as a property with a setter."""
        name, matrix = self._matrix
        factor_of = {"covariance_matrix": cholesky, "precision_matrix": _precision_to_tril}
        self._unbroadcasted_scale_tril = factor_of.get(name, lambda m: m)(matrix)

    def _whole(self, matrix):
        return matrix.expand(size(self._batch_shape, matrix.shape[-2:]))

    @lazy_property
    def scale_tril(self):
        """The lower triangular Cholesky factor of the covariance."""
        return self._whole(self._unbroadcasted_scale_tril)

    @lazy_property
    def covariance_matrix(self):
        """The covariance matrix."""
        return self._whole(matmul(self._unbroadcasted_scale_tril, self._unbroadcasted_scale_tril.mT))

    @lazy_property
    def precision_matrix(self):
        """The inverse of the covariance matrix."""
        identity = _identity(self._unbroadcasted_scale_tril).expand(self._unbroadcasted_scale_tril.shape)
        inverse = solve_triangular(self._unbroadcasted_scale_tril, identity, upper=False)
        return self._whole(matmul(inverse.mT, inverse))


class MultivariateNormal(_OfCovariance):
    """The multivariate normal distribution, with exactly one of three matrices.

    Args:
        loc: mean, (..., n).
        covariance_matrix: covariance, (..., n, n).
        precision_matrix: inverse of the covariance, (..., n, n).
        scale_tril: lower triangular factor of the covariance, (..., n, n).

    Raises:
        ValueError: if not exactly one matrix is given, or it is not positive definite.

    Example:
        >>> d = mytorch.distributions.MultivariateNormal(mytorch.zeros(2), mytorch.eye(2))
        >>> d.event_shape, round(d.log_prob(mytorch.zeros(2)).item(), 4)
        (mytorch.Size([2]), -1.8379)
    """

    _parameters = {"loc": constraints.real_vector, **_MATRICES}
    _defaults = dict.fromkeys(_MATRICES)
    support = constraints.real_vector

    def _accept(self, given, validate_args):
        loc = given.pop("loc")
        if loc.ndim < 1:
            raise ValueError("loc must be at least one-dimensional.")
        batch = self._keep_matrix(loc.shape[:-1], given)
        self.loc = loc.expand(size(batch, loc.shape[-1:]))
        Distribution.__init__(self, batch, loc.shape[-1:], validate_args=validate_args)
        self._keep_factor()

    mean = mode = property(lambda self: self.loc)

    @property
    def variance(self) -> Tensor:
        """The diagonal of the covariance."""
        return (self._unbroadcasted_scale_tril**2).sum(-1).expand(size(self._batch_shape, self._event_shape))

    def _draw(self, shape):
        return self.loc + _times(self._unbroadcasted_scale_tril, randn(shape, **self._options))

    def _log_prob(self, value):
        distance = mahalanobis(self._unbroadcasted_scale_tril, value - self.loc)
        return -0.5 * (self._event_shape[0] * math.log(2 * math.pi) + distance) - log_diagonal(
            self._unbroadcasted_scale_tril
        )

    def entropy(self) -> Tensor:
        constant = 0.5 * self._event_shape[0] * (1.0 + math.log(2 * math.pi))
        return (constant + log_diagonal(self._unbroadcasted_scale_tril)).expand(self._batch_shape)


class LowRankMultivariateNormal(Family):
    """The multivariate normal distribution with covariance W W^T + diag(d), computed in linear time.

    Args:
        loc: mean, (..., n).
        cov_factor: factor W, (..., n, m).
        cov_diag: positive diagonal d, (..., n).
        validate_args: check parameters and values.

    Raises:
        ValueError: if the shapes do not match.
    """

    arg_constraints = {
        "loc": constraints.real_vector,
        "cov_factor": constraints.independent(constraints.real, 2),
        "cov_diag": constraints.independent(constraints.positive, 1),
    }
    support = constraints.real_vector
    has_rsample = True
    _batched = ("loc", "cov_factor", "cov_diag", *_MATRICES)

    def __init__(self, loc: Tensor, cov_factor: Tensor, cov_diag: Tensor, validate_args: bool | None = None) -> None:
        if loc.ndim < 1:
            raise ValueError("loc must be at least one-dimensional.")
        event = loc.shape[-1:]
        if cov_factor.ndim < 2:
            raise ValueError("cov_factor must be at least two-dimensional, with optional leading batch dimensions")
        if cov_factor.shape[-2:-1] != event:
            raise ValueError(f"cov_factor must be a batch of matrices with shape {event[0]} x m")
        if cov_diag.shape[-1:] != event:
            raise ValueError(f"cov_diag must be a batch of vectors with shape {event}")
        try:
            batch = joint_shape(loc.shape[:-1], cov_factor.shape[:-2], cov_diag.shape[:-1])
        except ValueError:
            raise ValueError(
                f"Incompatible batch shapes: loc {loc.shape}, cov_factor {cov_factor.shape}, cov_diag {cov_diag.shape}"
            ) from None
        self.loc, self.cov_diag = (x.expand(size(batch, event)) for x in (loc, cov_diag))
        self.cov_factor = cov_factor.expand(size(batch, cov_factor.shape[-2:]))
        Distribution.__init__(self, batch, event, validate_args=validate_args)
        self._W, self._D = cov_factor, cov_diag
        inner = matmul(self._scaled, cov_factor)
        self._capacitance = cholesky(inner + _identity(inner))

    _scaled = property(lambda self: self._W.mT / self._D.unsqueeze(-2))  # W^T D^-1
    mean = mode = property(lambda self: self.loc)

    @property
    def variance(self) -> Tensor:
        """The diagonal of the covariance."""
        return ((self._W**2).sum(-1) + self._D).expand(size(self._batch_shape, self._event_shape))

    _whole = _OfCovariance._whole

    @lazy_property
    def scale_tril(self):
        """The lower triangular Cholesky factor of the covariance."""
        root = self._D.sqrt().unsqueeze(-1)
        inner = matmul(self._W / root, (self._W / root).mT)
        return self._whole(root * cholesky(inner + _identity(inner)))

    @lazy_property
    def covariance_matrix(self):
        """The covariance, W W^T + diag(d)."""
        return self._whole(matmul(self._W, self._W.mT) + self._D.diag_embed())

    def _reduced(self):
        """Return C^-1 W^T D^-1, where C is the factor of I + W^T D^-1 W."""
        scaled = self._scaled
        shape = size(scaled.shape[:-2], self._capacitance.shape[-2:])
        return solve_triangular(self._capacitance.expand(shape), scaled, upper=False)

    @lazy_property
    def precision_matrix(self):
        """The inverse of the covariance, by the Woodbury identity."""
        reduced = self._reduced()
        return self._whole(self._D.reciprocal().diag_embed() - matmul(reduced.mT, reduced))

    def log_determinant(self):
        """Return the log determinant of the covariance."""
        return 2 * log_diagonal(self._capacitance) + self._D.log().sum(-1)

    def distance(self, x):
        """Return x^T covariance^-1 x."""
        return (x**2 / self._D).sum(-1) - mahalanobis(self._capacitance, _times(self._scaled, x))

    def _draw(self, shape):
        low = randn(size(shape[:-1], self.cov_factor.shape[-1:]), **self._options)
        own = randn(shape, **self._options)
        return self.loc + _times(self._W, low) + self._D.sqrt() * own

    def _log_prob(self, value):
        constant = self._event_shape[0] * math.log(2 * math.pi)
        return -0.5 * (constant + self.log_determinant() + self.distance(value - self.loc))

    def entropy(self) -> Tensor:
        constant = self._event_shape[0] * (1.0 + math.log(2 * math.pi))
        return (0.5 * (constant + self.log_determinant())).expand(self._batch_shape)


class Wishart(_OfCovariance, ExponentialFamily):
    """The Wishart distribution of positive definite matrices: the sum of df outer products of normal vectors.

    Args:
        df: degrees of freedom, greater than p - 1.
        covariance_matrix: covariance, (..., p, p).
        precision_matrix: inverse of the covariance, instead of it.
        scale_tril: lower triangular factor of the covariance, instead of it.

    Raises:
        AssertionError: if not exactly one matrix is given.
        ValueError: if df is too small, or the matrix is not positive definite.
    """

    support = constraints.positive_definite
    _mean_carrier_measure = 0
    _parameters = {"df": constraints.dependent, **_MATRICES}
    _defaults = dict.fromkeys(_MATRICES)

    def _accept(self, given, validate_args):
        df = given.pop("df")
        batch = self._keep_matrix(getattr(df, "shape", ()), given, AssertionError)
        matrix = self._matrix[1]
        (freedom,) = broadcast_all(df)
        freedom = freedom.to(matrix.device).to(matrix.dtype)
        self.df, p = freedom.expand(batch), matrix.shape[-1]
        if bool((self.df <= p - 1).any()):
            raise ValueError(f"Value of df={df} expected to be greater than ndim - 1 = {p - 1}.")
        if bool((self.df < p).any()):
            warnings.warn(
                "Low df values detected. Singular samples are highly likely to occur for ndim - 1 < df < ndim.",
                stacklevel=3,
            )
        Distribution.__init__(self, batch, matrix.shape[-2:], validate_args=validate_args)
        self._keep_factor()

    @property
    def arg_constraints(self):
        """The constraints: df is greater than p - 1."""
        return {**_MATRICES, "df": constraints.greater_than(self._event_shape[-1] - 1)}

    _df = property(lambda self: self.df.unsqueeze(-1).unsqueeze(-1))
    mean = property(lambda self: self._df * self.covariance_matrix)

    @property
    def mode(self) -> Tensor:
        """The mode; NaN for df up to p + 1."""
        factor = self._df - self._event_shape[-1] - 1
        return where(factor <= 0, math.nan, factor) * self.covariance_matrix

    @property
    def variance(self) -> Tensor:
        """The variance of each entry."""
        v = self.covariance_matrix
        d = v.diagonal(dim1=-2, dim2=-1)
        return self._df * (v**2 + d.unsqueeze(-1) * d.unsqueeze(-2))

    def _bartlett_sampling(self, sample_shape=Size()):
        """Draw L A A^T L^T. A is lower triangular, with roots of chi-squared draws on the diagonal and normal draws below."""
        p, options = self._event_shape[-1], self._options
        steps = arange(p, **options)
        roots = Chi2(self.df.unsqueeze(-1) - steps).rsample(sample_shape).sqrt()
        below = size(sample_shape, self._batch_shape, (p * (p - 1) // 2,))
        normal = randn(below, **options)
        noise = roots.clamp(min=finfo(self.df).eps).diag_embed()
        if p > 1:
            noise = noise + vec_to_tril_matrix(normal, diag=-1)
        factor = matmul(self._unbroadcasted_scale_tril, noise)
        return matmul(factor, factor.mT)

    def rsample(self, sample_shape: Iterable[int] = Size(), max_try_correction: int = 10) -> Tensor:
        """Draws samples with gradients; numerically singular ones are drawn again.

        Args:
            sample_shape: leading shape of the samples.
            max_try_correction: maximum number of repetitions.
        """
        sample = self._bartlett_sampling(sample_shape)
        for _ in range(max_try_correction):
            good = self.support.check(sample)
            if bool(good.all()):
                break
            sample = where(good.unsqueeze(-1).unsqueeze(-1), sample, self._bartlett_sampling(sample_shape))
        return sample

    def _log_prob(self, value):
        nu, p = self.df, self._event_shape[-1]
        trace = (self.precision_matrix * value).sum((-2, -1))  # both are symmetric
        scale = nu * (p * math.log(2) / 2 + log_diagonal(self._unbroadcasted_scale_tril))
        return (nu - p - 1) / 2 * slogdet(value)[1] - scale - mvlgamma(nu / 2, p) - trace / 2

    def entropy(self) -> Tensor:
        nu, p = self.df, self._event_shape[-1]
        steps = arange(p, **self._options) / 2
        psi = ((nu / 2).unsqueeze(-1) - steps).digamma().sum(-1)
        scale = (p + 1) * (p * math.log(2) / 2 + log_diagonal(self._unbroadcasted_scale_tril))
        return scale + mvlgamma(nu / 2, p) - (nu - p - 1) / 2 * psi + nu * p / 2

    @property
    def _natural_params(self):
        return -self.precision_matrix / 2, (self.df - self._event_shape[-1] - 1) / 2

    def _log_normalizer(self, x, y):
        p = self._event_shape[-1]
        half = y + (p + 1) / 2
        return half * (math.log(2) * p - slogdet(-2 * x)[1]) + mvlgamma(half, p)


class LKJCholesky(Family):
    """The LKJ distribution of Cholesky factors of correlation matrices, with density det(R)^(concentration - 1).

    Args:
        dim: size of the matrices, at least 2.
        concentration: 1 for the uniform distribution; greater values give weaker correlations.
        validate_args: check parameters and values.
    Source: Lewandowski, Kurowicka and Joe, 2009 (the onion method).
    """

    _parameters = {"concentration": constraints.positive}
    support = constraints.corr_cholesky

    def __init__(self, dim: int, concentration: Tensor | float = 1.0, validate_args: bool | None = None) -> None:
        if dim < 2:
            raise ValueError(f"Expected dim to be an integer greater than or equal to 2. Found dim={dim}.")
        self.dim = dim
        self._keep(concentration=concentration)
        Distribution.__init__(self, self.concentration.shape, (dim, dim), validate_args=validate_args)

    def _draw(self, shape):
        eta, d = self.concentration.unsqueeze(-1), self.dim
        before = (arange(d, **self._options) - 1).clamp(min=0)
        lengths = Beta(before + 0.5, eta + 0.5 * (d - 2) - 0.5 * before)._draw(shape[:-1])
        normal = randn(shape, **self._options).tril(-1)
        norms = (normal**2).sum(-1, keepdim=True).sqrt()
        below = lengths.sqrt().unsqueeze(-1) * normal / where(norms == 0, 1.0, norms)
        rest = (1 - (below**2).sum(-1)).clamp(min=finfo(eta).tiny).sqrt()
        return below + rest.diag_embed()

    def _log_prob(self, value):
        eta, d = self.concentration, self.dim
        order = arange(2, d + 1, **self._options)
        powers = 2 * (eta - 1).unsqueeze(-1) + d - order
        unnormalised = (powers * value.diagonal(dim1=-2, dim2=-1)[..., 1:].log()).sum(-1)
        alpha = eta + 0.5 * (d - 1)
        normalizer = mvlgamma(alpha - 0.5, d - 1) - (d - 1) * alpha.lgamma()
        return unnormalised - normalizer - 0.5 * (d - 1) * math.log(math.pi)
