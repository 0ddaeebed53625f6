"""Transforms from unconstrained numbers to a constraint.

`biject_to(constraint)` returns a bijection. `transform_to(constraint)` returns a map that is cheap and well conditioned, but
not necessarily a bijection. You can add factories to both with `register`.
"""

from functools import partial
from numbers import Number

from . import constraints, transforms

__all__ = ["ConstraintRegistry", "biject_to", "transform_to"]


class ConstraintRegistry:
    """A registry of transform factories by type of constraint."""

    def __init__(self):
        self._registry = {}

    def register(self, constraint, factory=None):
        """Registers a factory for a constraint or its class. It can be used as a decorator.

        Args:
            constraint: a Constraint or a subclass.
            factory: function of a constraint that returns a Transform.

        Raises:
            TypeError: if constraint has another type.
        """
        if factory is None:
            return lambda factory: self.register(constraint, factory)
        kind = type(constraint) if isinstance(constraint, constraints.Constraint) else constraint
        if not (isinstance(kind, type) and issubclass(kind, constraints.Constraint)):
            raise TypeError(f"Expected constraint to be either a Constraint subclass or instance, but got {constraint}")
        self._registry[kind] = factory
        return factory

    def __call__(self, constraint):
        """Returns the transform for a constraint.

        Raises:
            NotImplementedError: if no factory is registered.
        """
        kind = type(constraint)
        if kind not in self._registry:
            raise NotImplementedError(f"Cannot transform {kind.__name__} constraints")
        return self._registry[kind](constraint)


biject_to, transform_to = ConstraintRegistry(), ConstraintRegistry()


def _interval(low, high):
    if isinstance(low, Number) and isinstance(high, Number) and (low, high) == (0, 1):
        return transforms.SigmoidTransform()
    return _shifted(transforms.SigmoidTransform(), low, high - low)


def _shifted(first, loc, scale):
    return transforms.ComposeTransform([first, transforms.AffineTransform(loc, scale)])


# Factories of (constraint, registry) by constraint, for both registries.
_IN_BOTH = {
    constraints.real: lambda c, registry: transforms.identity_transform,
    constraints.independent: lambda c, registry: transforms.IndependentTransform(
        registry(c.base_constraint), c.reinterpreted_batch_ndims
    ),
    constraints.greater_than: lambda c, registry: _shifted(transforms.ExpTransform(), c.lower_bound, 1),
    constraints.greater_than_eq: lambda c, registry: _shifted(transforms.ExpTransform(), c.lower_bound, 1),
    constraints.less_than: lambda c, registry: _shifted(transforms.ExpTransform(), c.upper_bound, -1),
    constraints.interval: lambda c, registry: _interval(c.lower_bound, c.upper_bound),
    constraints.half_open_interval: lambda c, registry: _interval(c.lower_bound, c.upper_bound),
    constraints.corr_cholesky: lambda c, registry: transforms.CorrCholeskyTransform(),
    constraints.cat: lambda c, registry: transforms.CatTransform([registry(p) for p in c.cseq], c.dim, c.lengths),
    constraints.stack: lambda c, registry: transforms.StackTransform([registry(p) for p in c.cseq], c.dim),
}
for _registry in (biject_to, transform_to):
    for _constraint, _factory in _IN_BOTH.items():
        _registry.register(_constraint, partial(_factory, registry=_registry))

biject_to.register(constraints.simplex, lambda c: transforms.StickBreakingTransform())
transform_to.register(constraints.simplex, lambda c: transforms.SoftmaxTransform())
transform_to.register(constraints.lower_cholesky, lambda c: transforms.LowerCholeskyTransform())
for _matrix in (constraints.positive_definite, constraints.positive_semidefinite):
    transform_to.register(_matrix, lambda c: transforms.PositiveDefiniteTransform())
