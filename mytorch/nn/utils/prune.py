"""Pruning: masks that set parts of a parameter to zero.

The parameter becomes `<name>_orig`, and its mask is the buffer `<name>_mask`. Before every forward, `<name>` is
computed as their product.
"""

import numbers
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

from ...arrays.arguments import describe
from ...arrays.tensor import Tensor
from ...ops.creation import ones_like, zeros_like
from ...ops.random import rand, rand_like
from ..module import Module
from .vectors import parameters_to_vector


class BasePruningMethod(ABC):
    """The base class of pruning methods. A subclass defines `PRUNING_TYPE` and `compute_mask`.

    `PRUNING_TYPE` determines the elements that a method can still prune after an earlier method:

    * "unstructured": the elements that are not pruned.
    * "structured": the channels along `self.dim` that are not pruned.
    * "global": all elements.
    """

    PRUNING_TYPE: str
    _tensor_name: Any = None  # name of the parameter, set by `apply`

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self._tensor_name, self.apply_mask(module))

    @abstractmethod
    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        """Returns the mask of a tensor.

        Args:
            t: the tensor, or its importance scores.
            default_mask: mask of the earlier methods.
        """

    def apply_mask(self, module: Module) -> Tensor:
        """Returns the pruned tensor, mask times original.

        Args:
            module: the pruned module.
        """
        if self._tensor_name is None:
            raise AssertionError(f"Module {module} has to be pruned")
        original = getattr(module, self._tensor_name + "_orig")
        return getattr(module, self._tensor_name + "_mask").to(original.dtype) * original

    @classmethod
    def apply(
        cls, module: Module, name: str, *args: Any, importance_scores: Tensor | None = None, **kwargs: Any
    ) -> "BasePruningMethod":
        """Prunes `module.<name>`, in addition to earlier methods.

        Args:
            module: the module with the parameter.
            name: name of the parameter.
            args: arguments of the constructor.
            importance_scores: tensor with the shape of the parameter, used instead of its values to select elements.
            kwargs: keyword arguments of the constructor.

        Returns:
            The pruning method, which is registered as a forward pre-hook.
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
        if first:  # the parameter becomes a plain attribute, computed from `_orig` and `_mask`
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
            if first:  # restore the module
                module.register_parameter(name, original)
                del module._parameters[name + "_orig"]
            raise
        return method

    def prune(self, t: Tensor, default_mask: Tensor | None = None, importance_scores: Tensor | None = None) -> Tensor:
        """Returns a pruned copy of a tensor.

        Args:
            t: the tensor.
            default_mask: mask of elements that are pruned already. By default, ones.
            importance_scores: tensor with the shape of `t`, used instead of its values to select elements.
        """
        scores = t if importance_scores is None else importance_scores
        if tuple(scores.shape) != tuple(t.shape):
            raise AssertionError(
                f"importance_scores should have the same shape as tensor t, got {scores.shape} vs {t.shape}"
            )
        default_mask = ones_like(t) if default_mask is None else default_mask
        return t * self.compute_mask(scores.detach(), default_mask=default_mask)

    def remove(self, module: Module) -> None:
        """Makes the pruning permanent: stores the pruned values in the parameter and deletes the mask.

        Args:
            module: the pruned module.
        """
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
    """Returns the keys of the pruning hooks of a parameter."""
    hooks = module._forward_pre_hooks.items()
    return [k for k, h in hooks if isinstance(h, BasePruningMethod) and h._tensor_name == name]


class PruningContainer(BasePruningMethod):
    """Several pruning methods of one tensor, applied one after the other.

    Args:
        args: the pruning methods.
    """

    def __init__(self, *args: BasePruningMethod) -> None:
        self._pruning_methods: tuple[Any, ...] = ()
        if len(args) == 1:
            self._tensor_name = args[0]._tensor_name
        for method in args:
            self.add_pruning_method(method)

    def add_pruning_method(self, method: BasePruningMethod | None) -> None:
        """Adds a method for the same tensor.

        Args:
            method: the pruning method.

        Raises:
            TypeError: `method` is not a pruning method.
            ValueError: `method` prunes another tensor.
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
        """Returns the mask of the last method, limited to the elements that the earlier methods left.

        Args:
            t: the tensor, or its importance scores.
            default_mask: mask of the earlier methods.
        """
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
    """Prunes nothing. The parameter receives a mask of ones."""

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        return default_mask


class _ByAmount(BasePruningMethod):
    """The base class of methods that prune a number or fraction of elements or channels."""

    def __init__(self, amount: float) -> None:
        _validate_pruning_amount_init(amount)
        self.amount = amount


class RandomUnstructured(_ByAmount):
    """Prunes elements at random.

    Args:
        amount: number of elements if it is an int, fraction of the elements if it is a float.
    """

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        count = _compute_nparams_toprune(self.amount, t.numel())
        return _without(default_mask, rand_like(t).reshape(-1).topk(count).indices) if count else default_mask.clone()


class L1Unstructured(_ByAmount):
    """Prunes the elements with the smallest absolute values.

    Args:
        amount: number of elements if it is an int, fraction of the elements if it is a float.
    """

    PRUNING_TYPE = "unstructured"

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        count = _compute_nparams_toprune(self.amount, t.numel())
        if not count:
            return default_mask.clone()
        return _without(default_mask, t.abs().reshape(-1).topk(count, largest=False).indices)

    @classmethod
    def apply(  # type: ignore[override]
        cls, module: Module, name: str, amount: float, importance_scores: Tensor | None = None
    ) -> BasePruningMethod:
        return super().apply(module, name, amount=amount, importance_scores=importance_scores)


class _Structured(_ByAmount):
    """The base class of methods that prune channels along `dim`. `_kept` selects the remaining channels."""

    PRUNING_TYPE = "structured"
    _kept: Callable[[Tensor, int], Tensor]

    def __init__(self, amount: float, dim: int = -1) -> None:
        super().__init__(amount)
        self.dim = dim

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        _validate_structured_pruning(t, self.dim)
        count = _compute_nparams_toprune(self.amount, t.shape[self.dim])
        return _only(t, self.dim, self._kept(t, count), default_mask) if count else default_mask


class RandomStructured(_Structured):
    """Prunes whole channels at random.

    Args:
        amount: number of channels if it is an int, fraction of the channels if it is a float.
        dim: dimension of the channels (default: -1).
    """

    def _kept(self, t, count):
        chances = rand(t.shape[self.dim])
        return (chances > chances.kthvalue(count).values).to(t.device)


class LnStructured(_Structured):
    """Prunes the channels with the smallest norms.

    Args:
        amount: number of channels if it is an int, fraction of the channels if it is a float.
        n: order of the norm.
        dim: dimension of the channels (default: -1).
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
        return super().apply(module, name, amount=amount, n=n, dim=dim, importance_scores=importance_scores)


class CustomFromMask(BasePruningMethod):
    """Prunes the zeros of a given mask.

    Args:
        mask: 1 for each element to keep, 0 for each element to prune.
    """

    PRUNING_TYPE = "global"

    def __init__(self, mask: Tensor) -> None:
        self.mask = mask

    def compute_mask(self, t: Tensor, default_mask: Tensor) -> Tensor:
        if tuple(default_mask.shape) != tuple(self.mask.shape):
            raise AssertionError(
                f"default_mask shape {default_mask.shape} must match self.mask shape {self.mask.shape}"
            )
        return default_mask * self.mask.to(default_mask.dtype)


def identity(module: Module, name: str) -> Module:
    """Adds a mask of ones to a parameter, without pruning elements. Returns the module.

    Example:
        >>> layer = nn.utils.prune.identity(nn.Linear(4, 2), "weight")
        >>> layer.weight_mask.sum().item()
        8.0
    """
    Identity.apply(module, name)
    return module


def random_unstructured(module: Module, name: str, amount: float) -> Module:
    """Prunes elements of a parameter at random. Returns the module.

    Args:
        amount: number of elements if it is an int, fraction of the elements if it is a float.

    Example:
        >>> layer = nn.utils.prune.random_unstructured(nn.Linear(4, 2), "weight", amount=3)
        >>> int((layer.weight_mask == 0).sum())
        3
    """
    RandomUnstructured.apply(module, name, amount)
    return module


def l1_unstructured(module: Module, name: str, amount: float, importance_scores: Tensor | None = None) -> Module:
    """Prunes the elements of a parameter with the smallest absolute values. Returns the module.

    Args:
        amount: number of elements if it is an int, fraction of the elements if it is a float.

    Example:
        >>> layer = nn.Linear(4, 2)
        >>> _ = nn.utils.prune.l1_unstructured(layer, "weight", amount=0.5)
        >>> int((layer.weight == 0).sum())
        4
    """
    L1Unstructured.apply(module, name, amount, importance_scores)
    return module


def random_structured(module: Module, name: str, amount: float, dim: int) -> Module:
    """Prunes channels of a parameter at random. Returns the module.

    Args:
        amount: number of channels if it is an int, fraction of the channels if it is a float.

    Example:
        >>> layer = nn.utils.prune.random_structured(nn.Linear(4, 2), "weight", amount=1, dim=0)
        >>> layer.weight_mask.sum().item()
        4.0
    """
    RandomStructured.apply(module, name, amount, dim)
    return module


def ln_structured(
    module: Module, name: str, amount: float, n: float, dim: int, importance_scores: Tensor | None = None
) -> Module:
    """Prunes the channels of a parameter with the smallest norms. Returns the module.

    Args:
        amount: number of channels if it is an int, fraction of the channels if it is a float.
        n: order of the norm.

    Example:
        >>> layer = nn.utils.prune.ln_structured(nn.Linear(4, 2), "weight", amount=1, n=2, dim=0)
        >>> layer.weight_mask.sum().item()
        4.0
    """
    LnStructured.apply(module, name, amount, n, dim, importance_scores)
    return module


def custom_from_mask(module: Module, name: str, mask: Tensor) -> Module:
    """Prunes the elements of a parameter at the zeros of a mask. Returns the module.

    Args:
        mask: 1 for each element to keep, 0 for each element to prune.

    Example:
        >>> layer = nn.utils.prune.custom_from_mask(nn.Linear(2, 1), "bias", mask=mytorch.zeros(1))
        >>> (layer.bias == 0).tolist()
        [True]
    """
    CustomFromMask.apply(module, name, mask)
    return module


def global_unstructured(
    parameters: Iterable[tuple[Module, str]], pruning_method: type[BasePruningMethod],
    importance_scores: dict[tuple[Module, str], Tensor] | None = None, **kwargs: Any,
) -> None:  # fmt: skip
    """Prunes several parameters as if they were one vector.

    Args:
        parameters: (module, name) pairs.
        pruning_method: class of an unstructured pruning method.
        importance_scores: dict {(module, name): tensor} of scores used instead of the values to select elements.
        kwargs: keyword arguments of the pruning method.

    Raises:
        TypeError: `parameters` is not iterable, `importance_scores` is not a dict, or the method is not unstructured.

    Example:
        >>> model = nn.Sequential(nn.Linear(4, 2), nn.Linear(2, 1))
        >>> pairs = [(model[0], "weight"), (model[1], "weight")]
        >>> nn.utils.prune.global_unstructured(pairs, nn.utils.prune.L1Unstructured, amount=0.5)
        >>> sum(int((m.weight == 0).sum()) for m in model)
        5
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
    """Makes a pruning permanent: stores the pruned values in the parameter and deletes the mask. Returns the module.

    Raises:
        ValueError: the parameter is not pruned.
    """
    for key in _keys(module, name):
        module._forward_pre_hooks[key].remove(module)
        del module._forward_pre_hooks[key]
        return module
    raise ValueError(f"Parameter '{name}' of module {module} has to be pruned before pruning can be removed")


def is_pruned(module: Module) -> bool:
    """Returns True if a parameter of the module or of a submodule is pruned."""
    return any(isinstance(hook, BasePruningMethod) for m in module.modules() for hook in m._forward_pre_hooks.values())


def _validate_pruning_amount_init(amount):
    if not isinstance(amount, numbers.Real):
        raise TypeError(f"Invalid type for amount: {amount}. Must be int or float.")
    is_integer = isinstance(amount, numbers.Integral)
    if (is_integer and amount < 0) or (not is_integer and not 0.0 <= float(amount) <= 1.0):
        raise ValueError(f"amount={amount} should either be a float in the range [0, 1] or a non-negative integer")


def _validate_structured_pruning(t, dim):
    if t.ndim <= 1:
        raise ValueError(
            "Structured pruning can only be applied to multidimensional tensors. "
            f"Found tensor of shape {t.shape} with {t.ndim} dims"
        )
    if dim >= t.ndim:
        raise IndexError(f"Invalid index {dim} for tensor of size {t.shape}")


def _compute_nparams_toprune(amount, tensor_size):
    """Returns the number of elements or channels to prune, out of `tensor_size`."""
    count = amount if isinstance(amount, numbers.Integral) else round(amount * tensor_size)
    if count > tensor_size:
        raise ValueError(f"amount={count} should be smaller than the number of parameters to prune={tensor_size}")
    return count


_validate_pruning_amount = _compute_nparams_toprune


def _without(mask, positions):
    """Returns the mask with zeros at the given positions of the flattened mask."""
    flat = mask.clone().reshape(-1)
    flat[positions] = 0
    return flat.reshape(mask.shape)


def _only(t, dim, channels, mask):
    """Returns the mask within the given channels, and zeros elsewhere."""
    selected = zeros_like(t)
    index = [slice(None)] * t.ndim
    index[dim] = channels
    selected[tuple(index)] = 1
    return selected * mask.to(selected.dtype)


describe(
    globals(),
    module="the module with the parameter.",
    name="name of the parameter.",
    dim="dimension of the channels.",
    importance_scores="tensor with the shape of the parameter, used instead of its values to select elements or channels.",
)
