"""Pruning: parts of a parameter held at zero by a mask.

A pruned parameter lives on as `<name>_orig`, its mask is the buffer `<name>_mask`, and `<name>` is their product,
recomputed before every forward.
"""

import numbers
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

from ..._tensor import Tensor
from ...base.arguments import describe
from ...ops.creation import ones_like, zeros_like
from ...ops.random import rand, rand_like
from ..module import Module
from .vectors import parameters_to_vector


class BasePruningMethod(ABC):
    """How to choose what is pruned; a subclass defines `PRUNING_TYPE` and `compute_mask`.

    `PRUNING_TYPE` says what the mask of an earlier method leaves to a later one: "unstructured", the elements that
    are left; "structured", the channels (along `self.dim`) that are left; "global", everything.
    """

    PRUNING_TYPE: str
    _tensor_name: Any = None  # the name of the parameter that `apply` was given

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self._tensor_name, self.apply_mask(module))

    @abstractmethod
    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The mask of tensor `t`, on top of `default_mask`."""

    def apply_mask(self, module: Module) -> Tensor:
        """The pruned tensor: mask times original."""
        if self._tensor_name is None:
            raise AssertionError(f"Module {module} has to be pruned")
        original = getattr(module, self._tensor_name + "_orig")
        return getattr(module, self._tensor_name + "_mask").to(original.dtype) * original

    @classmethod
    def apply(
        cls, module: Module, name: str, *args: Any, importance_scores: Tensor | None = None, **kwargs: Any
    ) -> "BasePruningMethod":
        """Prune `module.<name>`, on top of earlier prunings of it; returns the method, which is a forward pre-hook.

        Args:
            importance_scores: a tensor of the parameter's shape to choose by, instead of its values.
        """
        method = cls(*args, **kwargs)
        method._tensor_name = name
        earlier = _keys(module, name)
        if len(earlier) > 1:
            raise AssertionError(
                f"Avoid adding multiple pruning hooks to the same tensor {name} of module {module}. Use a PruningContainer."
            )
        if earlier:
            old = module._forward_pre_hooks.pop(earlier[0])
            container = old if isinstance(old, PruningContainer) else PruningContainer(old)
            container.add_pruning_method(method)
            method = container
        original = getattr(module, name)
        scores = original if importance_scores is None else importance_scores
        if tuple(scores.shape) != tuple(original.shape):
            raise AssertionError(
                f"importance_scores should have the same shape as parameter {name} of {module}, "
                f"got {scores.shape} vs {original.shape}"
            )
        first = not isinstance(method, PruningContainer)
        if first:
            module.register_parameter(name + "_orig", original)
            del module._parameters[name]
            mask = ones_like(original)
        else:
            mask = getattr(module, name + "_mask").detach().clone()
        try:
            module.register_buffer(name + "_mask", method.compute_mask(scores.detach(), default_mask=mask))
            setattr(module, name, method.apply_mask(module))
            module.register_forward_pre_hook(method)
        except Exception:
            if first:
                module.register_parameter(name, original)
                del module._parameters[name + "_orig"]
            raise
        return method

    def prune(self, t: Tensor, default_mask: Tensor | None = None, importance_scores: Tensor | None = None) -> Tensor:
        """A pruned copy of a tensor.

        Args:
            t: the tensor.
            default_mask: what is pruned already; ones if None.
            importance_scores: scores that decide; t itself if None.
        """
        scores = t if importance_scores is None else importance_scores
        if tuple(scores.shape) != tuple(t.shape):
            raise AssertionError(
                f"importance_scores should have the same shape as tensor t, got {scores.shape} vs {t.shape}"
            )
        default_mask = ones_like(t) if default_mask is None else default_mask
        return t * self.compute_mask(scores.detach(), default_mask=default_mask)

    def remove(self, module: Module) -> None:
        """Make the pruned values those of the parameter, and forget the mask."""
        if self._tensor_name is None:
            raise AssertionError(f"Module {module} has to be pruned before pruning can be removed")
        name = self._tensor_name
        weight = self.apply_mask(module)
        if hasattr(module, name):
            delattr(module, name)
        original = getattr(module, name + "_orig")
        original.data = weight.data
        del module._parameters[name + "_orig"], module._buffers[name + "_mask"]
        setattr(module, name, original)


def _keys(module, name):
    """The keys of the pruning hooks of a parameter."""
    hooks = module._forward_pre_hooks.items()
    return [k for k, h in hooks if isinstance(h, BasePruningMethod) and h._tensor_name == name]


class PruningContainer(BasePruningMethod):
    """Several prunings of one tensor, one on top of the other."""

    def __init__(self, *args: BasePruningMethod) -> None:
        self._pruning_methods: tuple[Any, ...] = ()
        if len(args) == 1:
            self._tensor_name = args[0]._tensor_name
        for method in args:
            self.add_pruning_method(method)

    def add_pruning_method(self, method: BasePruningMethod | None) -> None:
        """Add a method for the same tensor.

        Raises:
            TypeError: not a method. ValueError: a method for another tensor.
        """
        if method is not None and not isinstance(method, BasePruningMethod):
            raise TypeError(f"{type(method)} is not a BasePruningMethod subclass")
        if method is not None and self._tensor_name != method._tensor_name:
            raise ValueError(
                f"Can only add pruning methods acting on the parameter named '{self._tensor_name}' to PruningContainer "
                f"{self}. Found '{method._tensor_name}'"
            )
        self._pruning_methods += (method,)

    def __len__(self):
        return len(self._pruning_methods)

    def __iter__(self):
        return iter(self._pruning_methods)

    def __getitem__(self, index):
        return self._pruning_methods[index]

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The mask of the last method, in the place that the earlier ones left to it."""
        method = self._pruning_methods[-1]
        mask = default_mask.to(t.dtype)
        if method.PRUNING_TYPE == "unstructured":
            left: Any = default_mask == 1
        elif method.PRUNING_TYPE == "structured":
            left = _channels_left(t, default_mask, method)
        elif method.PRUNING_TYPE == "global":
            left = (slice(None),) * t.ndim
        else:
            raise ValueError(f"Unrecognized PRUNING_TYPE {method.PRUNING_TYPE}")
        mask = mask.clone() if mask is default_mask else mask
        mask[left] = method.compute_mask(t[left], default_mask=default_mask[left]).to(mask.dtype)
        return mask


def _channels_left(t, mask, method):
    if not hasattr(method, "dim"):
        raise AttributeError('Pruning methods of PRUNING_TYPE "structured" need to have the attribute `dim` defined.')
    dim = method.dim + t.ndim if method.dim < 0 else method.dim
    if dim < 0:
        raise IndexError(f"Index is out of bounds for tensor with dimensions {t.ndim}")
    others = [d for d in range(t.ndim) if d != dim]
    left = [slice(None)] * t.ndim
    left[dim] = mask.sum(others) != 0
    return tuple(left)


class Identity(BasePruningMethod):
    """Nothing is pruned; the parameter only gets a mask of ones."""

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The mask as it is."""
        return default_mask


class _ByAmount(BasePruningMethod):
    """What takes a number of elements or channels: an int, or a share between 0 and 1."""

    def __init__(self, amount: float) -> None:
        _check_amount(amount)
        self.amount = amount


class RandomUnstructured(_ByAmount):
    """`amount` elements, chosen at random."""

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """Zeros where the largest of random numbers are."""
        count = _count(self.amount, t.numel())
        return _without(default_mask, rand_like(t).reshape(-1).topk(count).indices) if count else default_mask.clone()


class L1Unstructured(_ByAmount):
    """The `amount` elements that are smallest in absolute value."""

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """Zeros where the smallest elements are."""
        count = _count(self.amount, t.numel())
        if not count:
            return default_mask.clone()
        return _without(default_mask, t.abs().reshape(-1).topk(count, largest=False).indices)

    @classmethod
    def apply(  # type: ignore[override]
        cls, module: Module, name: str, amount: float, importance_scores: Tensor | None = None
    ) -> BasePruningMethod:
        """Prune `module.<name>`.

        Args:
            module: the layer that owns the parameter.
            name: the parameter's name.
            amount: a number of elements or channels if int, a share if float.
            importance_scores: scores that decide instead of the magnitudes.
        """
        return super().apply(module, name, amount=amount, importance_scores=importance_scores)


class _Structured(_ByAmount):
    """What takes channels along `dim`: all but those that `_kept` names."""

    PRUNING_TYPE = "structured"
    _kept: Callable[[Tensor, int], Tensor]

    def __init__(self, amount: float, dim: int = -1) -> None:
        super().__init__(amount)
        self.dim = dim

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """Zeros in the channels that are taken."""
        _check_structured(t, self.dim)
        count = _count(self.amount, t.shape[self.dim])
        return _only(t, self.dim, self._kept(t, count), default_mask) if count else default_mask


class RandomStructured(_Structured):
    """`amount` whole channels along `dim`, chosen at random."""

    def _kept(self, t, count):
        chances = rand(t.shape[self.dim])
        return (chances > chances.kthvalue(count).values).to(t.device)


class LnStructured(_Structured):
    """The `amount` channels along `dim` of the smallest n-norm.

    Args:
        amount: a number of elements or channels if int, a share if float.
        n: order of the norm.
        dim: the axis of the channels.
    """

    def __init__(self, amount: float, n: float, dim: int = -1) -> None:
        super().__init__(amount, dim)
        self.n = n

    def _kept(self, t, count):
        norms = t.norm(self.n, [d for d in range(t.ndim) if d != self.dim % t.ndim])
        return norms.topk(t.shape[self.dim] - count).indices

    @classmethod
    def apply(  # type: ignore[override]
        cls, module: Module, name: str, amount: float, n: float, dim: int, importance_scores: Tensor | None = None
    ) -> BasePruningMethod:
        """Prune `module.<name>`.

        Args:
            module: the layer that owns the parameter.
            name: the parameter's name.
            amount: a number of elements or channels if int, a share if float.
            n: order of the norm.
            dim: the axis of the channels.
            importance_scores: scores that decide instead of the magnitudes.
        """
        return super().apply(module, name, amount=amount, n=n, dim=dim, importance_scores=importance_scores)


class CustomFromMask(BasePruningMethod):
    """What a given mask says."""

    PRUNING_TYPE = "global"

    def __init__(self, mask: Tensor) -> None:
        self.mask = mask

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """The product of both masks."""
        if tuple(default_mask.shape) != tuple(self.mask.shape):
            raise AssertionError(
                f"default_mask shape {default_mask.shape} must match self.mask shape {self.mask.shape}"
            )
        return default_mask * self.mask.to(default_mask.dtype)


def identity(module: Module, name: str) -> Module:
    """Give a parameter a mask of ones; returns the module."""
    Identity.apply(module, name)
    return module


def random_unstructured(module: Module, name: str, amount: float) -> Module:
    """Prune `amount` (a number or a share) of a parameter's elements at random; returns the module."""
    RandomUnstructured.apply(module, name, amount)
    return module


def l1_unstructured(module: Module, name: str, amount: float, importance_scores: Tensor | None = None) -> Module:
    """Prune the `amount` (a number or a share) of a parameter's smallest elements; returns the module.

    Example:
        >>> layer = nn.Linear(4, 2)
        >>> _ = nn.utils.prune.l1_unstructured(layer, "weight", amount=0.5)
        >>> int((layer.weight == 0).sum())
        4
    """
    L1Unstructured.apply(module, name, amount, importance_scores)
    return module


def random_structured(module: Module, name: str, amount: float, dim: int) -> Module:
    """Prune `amount` (a number or a share) of the channels along `dim` at random; returns the module."""
    RandomStructured.apply(module, name, amount, dim)
    return module


def ln_structured(
    module: Module, name: str, amount: float, n: float, dim: int, importance_scores: Tensor | None = None
) -> Module:
    """Prune the `amount` of the channels along `dim` of the smallest n-norm; returns the module."""
    LnStructured.apply(module, name, amount, n, dim, importance_scores)
    return module


def custom_from_mask(module: Module, name: str, mask: Tensor) -> Module:
    """Prune a parameter where a mask is zero; returns the module.

    Args:
        mask: 1 to keep an element, 0 to prune it.
    """
    CustomFromMask.apply(module, name, mask)
    return module


def global_unstructured(
    parameters: Iterable[tuple[Module, str]], pruning_method: type[BasePruningMethod],
    importance_scores: dict[tuple[Module, str], Tensor] | None = None, **kwargs: Any,
) -> None:  # fmt: skip
    """Prune several parameters as if they were one vector.

    Args:
        parameters: (module, name) pairs.
        pruning_method: a class of unstructured methods; the keyword arguments are its own.
        importance_scores: {(module, name): tensor} to choose by instead of the values.

    Raises:
        TypeError: parameters can't be iterated over, scores are no dict, or the method is of another kind.
    """
    if not isinstance(parameters, Iterable):
        raise TypeError("global_unstructured(): parameters is not an Iterable")
    parameters = list(parameters)
    scores = {} if importance_scores is None else importance_scores
    if not isinstance(scores, dict):
        raise TypeError("global_unstructured(): importance_scores must be of type dict")
    values = parameters_to_vector([scores.get((m, n), getattr(m, n)).detach() for m, n in parameters])
    before = parameters_to_vector([getattr(m, n + "_mask", ones_like(getattr(m, n))) for m, n in parameters])
    method = pruning_method(**kwargs)
    if method.PRUNING_TYPE != "unstructured":
        raise TypeError(
            'Only "unstructured" PRUNING_TYPE supported for the `pruning_method`. '
            f"Found method {pruning_method} of type {method.PRUNING_TYPE}"
        )
    method._tensor_name = "temp"
    mask = PruningContainer(method).compute_mask(values, before)
    start = 0
    for module, name in parameters:
        param = getattr(module, name)
        custom_from_mask(module, name, mask[start : start + param.numel()].reshape(param.shape))
        start += param.numel()


def remove(module: Module, name: str) -> Module:
    """Make a pruning permanent: the parameter takes the pruned values; returns the module.

    Raises:
        ValueError: the parameter is not pruned.
    """
    for key in _keys(module, name):
        module._forward_pre_hooks[key].remove(module)
        del module._forward_pre_hooks[key]
        return module
    raise ValueError(f"Parameter '{name}' of module {module} has to be pruned before pruning can be removed")


def is_pruned(module: Module) -> bool:
    """Whether a parameter of the module, or of one below it, is pruned."""
    return any(isinstance(hook, BasePruningMethod) for m in module.modules() for hook in m._forward_pre_hooks.values())


def _check_amount(amount):
    if not isinstance(amount, numbers.Real):
        raise TypeError(f"Invalid type for amount: {amount}. Must be int or float.")
    whole = isinstance(amount, numbers.Integral)
    if (whole and amount < 0) or (not whole and not 0.0 <= float(amount) <= 1.0):
        raise ValueError(f"amount={amount} should either be a float in the range [0, 1] or a non-negative integer")


def _check_structured(t, dim):
    if t.ndim <= 1:
        raise ValueError(
            "Structured pruning can only be applied to multidimensional tensors. "
            f"Found tensor of shape {t.shape} with {t.ndim} dims"
        )
    if dim >= t.ndim:
        raise IndexError(f"Invalid index {dim} for tensor of size {t.shape}")


def _count(amount, size):
    """How many of `size` to prune."""
    count = amount if isinstance(amount, numbers.Integral) else round(amount * size)
    if count > size:
        raise ValueError(f"amount={count} should be smaller than the number of parameters to prune={size}")
    return count


def _without(mask, positions):
    """The mask with zeros at flat positions."""
    flat = mask.clone().reshape(-1)
    flat[positions] = 0
    return flat.reshape(mask.shape)


def _only(t, dim, channels, mask):
    """The mask within some channels, zeros elsewhere."""
    kept = zeros_like(t)
    place = [slice(None)] * t.ndim
    place[dim] = channels
    kept[tuple(place)] = 1
    return kept * mask.to(kept.dtype)


describe(
    globals(),
    module="the layer that owns the parameter.",
    name="the parameter's name.",
    amount="a number of elements or channels if int, a share if float.",
    n="order of the norm.",
    dim="the axis of the channels.",
    importance_scores="scores that decide instead of the magnitudes.",
)
