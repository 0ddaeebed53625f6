"""From a constraint to a transform that maps unconstrained numbers into it.

`biject_to(constraint)` gives a bijection, `transform_to(constraint)` a map that need not be one but
is cheap and well conditioned. Both are registries to which one may add with `register`.
"""

from numbers import Number

from . import constraints, transforms

__all__ = ["ConstraintRegistry", "biject_to", "transform_to"]


class ConstraintRegistry:
    """Factories of transforms by the type of constraint."""

    def __init__(self):
        self._registry = {}

    def register(self, constraint, factory=None):
        """Register factory(constraint) -> Transform for a constraint or its class, or decorate it.

        Raises:
            TypeError: the first argument is neither.
        """
        if factory is None:
            return lambda factory: self.register(constraint, factory)
        kind = type(constraint) if isinstance(constraint, constraints.Constraint) else constraint
        if not (isinstance(kind, type) and issubclass(kind, constraints.Constraint)):
            raise TypeError(f"Expected constraint to be either a Constraint subclass or instance, but got {constraint}")
        self._registry[kind] = factory
        return factory

    def __call__(self, constraint):
        """The transform for a constraint.

        Raises:
            NotImplementedError: none is registered.
        """
        kind = type(constraint)
        if kind not in self._registry:
            raise NotImplementedError(f"Cannot transform {kind.__name__} constraints")
        return self._registry[kind](constraint)


biject_to, transform_to = ConstraintRegistry(), ConstraintRegistry()


def _both(*kinds):
    """Register in both registries: a factory of (constraint, registry)."""

    def register(factory):
        for registry in (biject_to, transform_to):
            for kind in kinds:
                registry.register(kind, lambda c, registry=registry: factory(c, registry))
        return factory

    return register


@_both(constraints.real)
def _real(constraint, registry):
    return transforms.identity_transform


@_both(constraints.independent)
def _independent(constraint, registry):
    base = registry(constraint.base_constraint)
    return transforms.IndependentTransform(base, constraint.reinterpreted_batch_ndims)


def _shifted(first, loc, scale):
    return transforms.ComposeTransform([first, transforms.AffineTransform(loc, scale)])


@_both(constraints.greater_than, constraints.greater_than_eq)
def _greater_than(constraint, registry):
    return _shifted(transforms.ExpTransform(), constraint.lower_bound, 1)


@_both(constraints.less_than)
def _less_than(constraint, registry):
    return _shifted(transforms.ExpTransform(), constraint.upper_bound, -1)


@_both(constraints.interval, constraints.half_open_interval)
def _interval(constraint, registry):
    low, high = constraint.lower_bound, constraint.upper_bound
    if isinstance(low, Number) and isinstance(high, Number) and (low, high) == (0, 1):
        return transforms.SigmoidTransform()
    return _shifted(transforms.SigmoidTransform(), low, high - low)


@_both(constraints.corr_cholesky)
def _corr_cholesky(constraint, registry):
    return transforms.CorrCholeskyTransform()


@_both(constraints.cat)
def _cat(constraint, registry):
    parts = [registry(c) for c in constraint.cseq]
    return transforms.CatTransform(parts, constraint.dim, constraint.lengths)


@_both(constraints.stack)
def _stack(constraint, registry):
    return transforms.StackTransform([registry(c) for c in constraint.cseq], constraint.dim)


biject_to.register(constraints.simplex, lambda c: transforms.StickBreakingTransform())
transform_to.register(constraints.simplex, lambda c: transforms.SoftmaxTransform())
transform_to.register(constraints.lower_cholesky, lambda c: transforms.LowerCholeskyTransform())
for _matrix in (constraints.positive_definite, constraints.positive_semidefinite):
    transform_to.register(_matrix, lambda c: transforms.PositiveDefiniteTransform())
