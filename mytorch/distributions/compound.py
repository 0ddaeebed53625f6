"""Distributions built from others: independent axes, transformed distributions, mixtures."""

from collections.abc import Iterable
from typing import Any

from ..arrays.array import Size
from ..arrays.tensor import Tensor
from ..autograd.mode import no_grad
from . import constraints
from .discrete import Categorical
from .distribution import Distribution
from .transforms import ComposeTransform, Transform
from .utils import forwarded, size, sum_rightmost

__all__ = "Independent MixtureSameFamily TransformedDistribution".split()


class Independent(Distribution):
    """Treats the last batch axes of a distribution as one event.

    Args:
        reinterpreted_batch_ndims: number of batch axes.
        validate_args: check parameters and values.

    Raises:
        ValueError: if the distribution has fewer batch axes.

    Example:
        >>> D = mytorch.distributions
        >>> d = D.Independent(D.Normal(mytorch.zeros(2, 3), 1.0), 1)
        >>> d.batch_shape, d.event_shape, d.log_prob(mytorch.zeros(2, 3)).shape
        (mytorch.Size([2]), mytorch.Size([3]), mytorch.Size([2]))
    """

    arg_constraints = {}
    _batched = ()

    def __init__(
        self, base_distribution: Distribution, reinterpreted_batch_ndims: int, validate_args: bool | None = None
    ) -> None:
        base, n = base_distribution, reinterpreted_batch_ndims
        if n > len(base.batch_shape):
            raise ValueError(
                "Expected reinterpreted_batch_ndims <= len(base_distribution.batch_shape), "
                f"actual {n} vs {len(base.batch_shape)}"
            )
        self.base_dist, self.reinterpreted_batch_ndims = base, n
        cut = len(base.batch_shape) - n
        whole = size(base.batch_shape, base.event_shape)
        super().__init__(whole[:cut], whole[cut:], validate_args=validate_args)

    def expand(self, batch_shape: Iterable[int], _instance: Any = None) -> Distribution:
        new: Any = super().expand(batch_shape, _instance)
        inner = self._event_shape[: self.reinterpreted_batch_ndims]
        new.base_dist = self.base_dist.expand(size(batch_shape, inner))
        return new

    has_rsample, mean, mode, variance = forwarded("base_dist", "has_rsample mean mode variance")

    @property
    def has_enumerate_support(self):
        """True if the base has enumerable support and reinterpreted_batch_ndims is 0."""
        return self.reinterpreted_batch_ndims == 0 and self.base_dist.has_enumerate_support

    @constraints.dependent_property
    def support(self) -> constraints.Constraint:
        """The support of the base, with more event axes."""
        n = self.reinterpreted_batch_ndims
        return constraints.independent(self.base_dist.support, n) if n else self.base_dist.support

    def sample(self, sample_shape: Iterable[int] = Size()) -> Tensor:
        return self.base_dist.sample(sample_shape)

    def rsample(self, sample_shape: Iterable[int] = Size()) -> Tensor:
        return self.base_dist.rsample(sample_shape)

    def log_prob(self, value):
        return sum_rightmost(self.base_dist.log_prob(value), self.reinterpreted_batch_ndims)

    def entropy(self) -> Tensor:
        return sum_rightmost(self.base_dist.entropy(), self.reinterpreted_batch_ndims)

    def enumerate_support(self, expand=True):
        if self.reinterpreted_batch_ndims > 0:
            raise NotImplementedError("Enumeration over cartesian product is not implemented")
        return self.base_dist.enumerate_support(expand)

    def __repr__(self):
        return f"{type(self).__name__}({self.base_dist}, {self.reinterpreted_batch_ndims})"


class TransformedDistribution(Distribution):
    """The distribution of t(x), for x from a base distribution.

    Args:
        base_distribution: the base. If a transform requires event axes, the last batch axes become event axes.
        transforms: a transform, or a list of transforms in order of application.
        validate_args: check parameters and values.

    Raises:
        ValueError: if transforms has another type, or the base has too few axes.
    """

    arg_constraints = {}
    _batched: tuple[str, ...] = ()

    def __init__(
        self,
        base_distribution: Distribution,
        transforms: Transform | list[Transform],
        validate_args: bool | None = None,
    ) -> None:
        base = base_distribution
        self.transforms = [transforms] if isinstance(transforms, Transform) else transforms
        if not isinstance(self.transforms, list):
            raise ValueError(f"transforms must be a Transform or list, but was {transforms}")
        if not all(isinstance(t, Transform) for t in self.transforms):
            raise ValueError("transforms must be a Transform or a list of Transforms")
        whole = ComposeTransform(self.transforms)
        need, given = whole.domain.event_dim, whole.codomain.event_dim
        base_shape, base_dim = size(base.batch_shape, base.event_shape), len(base.event_shape)
        if len(base_shape) < need:
            raise ValueError(f"base_distribution needs to have shape with size at least {need}, but got {base_shape}.")
        shape = whole.forward_shape(base_shape)
        wider = whole.inverse_shape(shape)
        if wider != base_shape:
            base = base.expand(wider[: len(wider) - base_dim])
        self.base_dist = Independent(base, need - base_dim) if need > base_dim else base
        cut = len(shape) - max(given, base_dim + given - need)
        super().__init__(shape[:cut], shape[cut:], validate_args=validate_args)

    def expand(self, batch_shape: Iterable[int], _instance: Any = None) -> Distribution:
        new: Any = super().expand(batch_shape, _instance)
        shape = size(batch_shape, self._event_shape)
        for t in reversed(self.transforms):
            shape = t.inverse_shape(shape)
        new.base_dist = self.base_dist.expand(shape[: len(shape) - len(self.base_dist.event_shape)])
        return new

    has_rsample = property(lambda self: self.base_dist.has_rsample)

    @constraints.dependent_property(is_discrete=False)
    def support(self) -> constraints.Constraint:
        """The codomain of the last transform, with the event axes."""
        if not self.transforms:
            return self.base_dist.support
        last = self.transforms[-1].codomain
        extra = len(self._event_shape) - last.event_dim
        return constraints.independent(last, extra) if extra > 0 else last

    def _forward(self, x):
        for t in self.transforms:
            x = t(x)
        return x

    def sample(self, sample_shape: Iterable[int] = Size()) -> Tensor:
        with no_grad():
            return self._forward(self.base_dist.sample(sample_shape))

    def rsample(self, sample_shape: Iterable[int] = Size()) -> Tensor:
        return self._forward(self.base_dist.rsample(sample_shape))

    def log_prob(self, value):
        self._check_sample(value)
        n, total, y = len(self._event_shape), 0.0, value
        for t in reversed(self.transforms):
            x = t.inv(y)
            n += t.domain.event_dim - t.codomain.event_dim
            total = total - sum_rightmost(t.log_abs_det_jacobian(x, y), n - t.domain.event_dim)
            y = x
        return total + sum_rightmost(self.base_dist.log_prob(y), n - len(self.base_dist.event_shape))

    def _turned(self, p):
        """Return p or 1 - p, for increasing or decreasing transforms."""
        sign = ComposeTransform(self.transforms).sign
        return p if isinstance(sign, int) and sign == 1 else sign * (p - 0.5) + 0.5

    def cdf(self, value: Tensor) -> Tensor:
        for t in reversed(self.transforms):
            value = t.inv(value)
        if self._validate_args:
            self.base_dist._validate_sample(value)
        return self._turned(self.base_dist.cdf(value))

    def icdf(self, value: Tensor) -> Tensor:
        return self._forward(self.base_dist.icdf(self._turned(value)))


class MixtureSameFamily(Distribution):
    """A mixture of distributions. A Categorical selects a component along the last batch axis.

    Args:
        mixture_distribution: a Categorical over k components.
        component_distribution: a distribution with batch shape (..., k).
        validate_args: check parameters and values.

    Raises:
        ValueError: if a distribution has another type, or the shapes do not match.
    """

    arg_constraints = {}
    has_rsample = False
    _batched = ()

    def __init__(
        self, mixture_distribution: Categorical, component_distribution: Distribution, validate_args: bool | None = None
    ) -> None:
        mixture, component = mixture_distribution, component_distribution
        if not isinstance(mixture, Categorical):
            raise ValueError("The Mixture distribution needs to be an instance of torch.distributions.Categorical")
        if not isinstance(component, Distribution):
            raise ValueError("The Component distribution needs to be an instance of torch.distributions.Distribution")
        k, batch = mixture.param_shape[-1], component.batch_shape[:-1]
        for a, b in zip(reversed(mixture.batch_shape), reversed(batch), strict=False):
            if 1 not in (a, b) and a != b:
                raise ValueError(
                    f"`mixture_distribution.batch_shape` ({mixture.batch_shape}) is not compatible with "
                    f"`component_distribution.batch_shape`({batch})"
                )
        if k != component.batch_shape[-1]:
            raise ValueError(
                f"`mixture_distribution component` ({k}) does not equal `component_distribution.batch_shape[-1]`"
                f" ({component.batch_shape[-1]})"
            )
        self._mixture_distribution, self._component_distribution = mixture, component
        self._num_component, self._event_ndims = k, len(component.event_shape)
        super().__init__(batch, component.event_shape, validate_args=validate_args)

    def expand(self, batch_shape: Iterable[int], _instance: Any = None) -> Distribution:
        new: Any = super().expand(batch_shape, _instance)
        new._component_distribution = self._component_distribution.expand(size(batch_shape, (self._num_component,)))
        new._mixture_distribution = self._mixture_distribution.expand(batch_shape)
        return new

    @constraints.dependent_property
    def support(self) -> constraints.Constraint:
        """The values that all components allow."""
        return constraints.MixtureSameFamilyConstraint(self._component_distribution.support)

    mixture_distribution = property(lambda self: self._mixture_distribution)
    component_distribution = property(lambda self: self._component_distribution)

    def _mixed(self, x):
        """Return the weighted mean of x, (..., k, event), over components."""
        p = self._mixture_distribution.probs
        return (p.reshape(*p.shape, *[1] * self._event_ndims) * x).sum(-1 - self._event_ndims)

    @property
    def mean(self) -> Tensor:
        """The weighted mean of the components' means."""
        return self._mixed(self._component_distribution.mean)

    @property
    def variance(self) -> Tensor:
        """The mean of the variances plus the variance of the means."""
        parts = self._component_distribution
        return self._mixed(parts.variance) + self._mixed((parts.mean - self._pad(self.mean)) ** 2)

    def _pad(self, x):
        return x.unsqueeze(-1 - self._event_ndims)

    def cdf(self, x: Tensor) -> Tensor:
        return (self._component_distribution.cdf(self._pad(x)) * self._mixture_distribution.probs).sum(-1)

    def log_prob(self, x):
        self._check_sample(x)
        weights = self._mixture_distribution.logits.log_softmax(-1)
        return (self._component_distribution.log_prob(self._pad(x)) + weights).logsumexp(-1)

    def sample(self, sample_shape: Iterable[int] = Size()) -> Tensor:
        with no_grad():
            shape = self._extended_shape(sample_shape)
            axis = len(shape) - self._event_ndims
            chosen = self._mixture_distribution.sample(sample_shape)
            parts = self._component_distribution.sample(sample_shape)
            missing = axis - chosen.ndim  # batch axes of the components only
            lead = chosen.shape[: len(Size(sample_shape))]
            chosen = chosen.reshape(*lead, *[1] * missing, *chosen.shape[len(lead) :], *[1] * (self._event_ndims + 1))
            index = chosen.expand(size(shape[:axis], (1,), self._event_shape))
            return parts.gather(axis, index).squeeze(axis)

    def __repr__(self):
        parts = self._mixture_distribution, self._component_distribution
        return "MixtureSameFamily(\n  {},\n  {})".format(*parts)
