"""The base of distributions, and the one that turns batch axes into event axes."""

import numpy as np

from .._array import Array, Size
from ..autograd.mode import no_grad
from ..ops.creation import as_tensor
from ..ops.movement import broadcast_tensors
from ..tensor import Tensor


def tensors(*values):
    """Parameters as tensors of one shape."""
    made = [v if isinstance(v, (Tensor, Array)) else None for v in values]
    like = next((t for t in made if t is not None), None)
    made = [as_tensor(float(v), dtype=None if like is None else like.dtype) if t is None else t for t, v in zip(made, values, strict=True)]
    return broadcast_tensors(*made)


class Distribution:
    """A distribution with a batch shape (independent ones side by side) and an event shape (of one draw)."""

    has_rsample = False
    _validate_args = True

    def __init__(self, batch_shape=(), event_shape=(), validate_args=None):
        self._batch_shape = Size(batch_shape)
        self._event_shape = Size(event_shape)
        if validate_args is not None:
            self._validate_args = validate_args

    @staticmethod
    def set_default_validate_args(value):
        """Whether parameters are checked by default."""
        Distribution._validate_args = value

    @property
    def batch_shape(self):
        """The shape of the parameters."""
        return self._batch_shape

    @property
    def event_shape(self):
        """The shape of one draw."""
        return self._event_shape

    def _extended(self, sample_shape):
        return (*tuple(sample_shape), *self._batch_shape, *self._event_shape)

    def _check(self, name, tensor, holds, what):
        """Raise ValueError where a parameter is not what it must be."""
        if self._validate_args and isinstance(tensor, Tensor) and not bool(holds.all()):
            raise ValueError(
                f"Expected parameter {name} of distribution {type(self).__name__} to satisfy the constraint {what}, but found invalid "
                f"values:\n{tensor}"
            )

    def sample(self, sample_shape=()):
        """Draws, without gradient."""
        with no_grad():
            return self.rsample(sample_shape)

    def rsample(self, sample_shape=()):
        """Draws through which gradients reach the parameters."""
        raise NotImplementedError(f"{type(self).__name__} has no rsample.")

    def sample_n(self, n):
        """n draws."""
        return self.sample((n,))

    def log_prob(self, value):
        """The logarithm of the density (or probability) at a value."""
        raise NotImplementedError(f"{type(self).__name__} has no log_prob.")

    def cdf(self, value):
        """The probability of being at most a value."""
        raise NotImplementedError(f"{type(self).__name__} has no cdf.")

    def entropy(self):
        """The entropy in nats."""
        raise NotImplementedError(f"{type(self).__name__} has no entropy.")

    @property
    def stddev(self):
        """The square root of the variance."""
        return self.variance.sqrt()

    def perplexity(self):
        """exp of the entropy."""
        return self.entropy().exp()

    def __repr__(self):
        names = [n for n in getattr(self, "_parameters", ()) if n in self.__dict__]
        return f"{type(self).__name__}(" + ", ".join(f"{n}: {self._shown(n)}" for n in names) + ")"

    def _shown(self, name):
        value = self.__dict__[name]
        return value if value.numel() == 1 else tuple(value.shape)


class Independent(Distribution):
    """The last axes of another distribution's batch taken as one event."""

    def __init__(self, base_distribution, reinterpreted_batch_ndims, validate_args=None):
        shape = tuple(base_distribution.batch_shape)
        n = reinterpreted_batch_ndims
        if n > len(shape):
            raise ValueError(f"Expected reinterpreted_batch_ndims <= len(base_distribution.batch_shape), actual {n} vs {len(shape)}")
        self.base_dist = base_distribution
        self.reinterpreted_batch_ndims = n
        cut = len(shape) - n
        super().__init__(shape[:cut], shape[cut:] + tuple(base_distribution.event_shape), validate_args)

    @property
    def has_rsample(self):
        """As the base."""
        return self.base_dist.has_rsample

    @property
    def mean(self):
        """As the base's."""
        return self.base_dist.mean

    @property
    def variance(self):
        """As the base's."""
        return self.base_dist.variance

    def sample(self, sample_shape=()):
        return self.base_dist.sample(sample_shape)

    def rsample(self, sample_shape=()):
        return self.base_dist.rsample(sample_shape)

    def _summed(self, x):
        n = self.reinterpreted_batch_ndims
        return x.sum(tuple(range(-n, 0))) if n else x

    def log_prob(self, value):
        return self._summed(self.base_dist.log_prob(value))

    def entropy(self):
        return self._summed(self.base_dist.entropy())


def raw(tensor):
    """The NumPy array of a tensor, without its graph."""
    return np.asarray(tensor.detach())
