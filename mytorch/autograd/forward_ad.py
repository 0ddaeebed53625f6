"""Forward mode: tensors with tangents, as PyTorch's `torch.autograd.forward_ad`; transforms/forward_mode.py says how tangents follow through ops.

with forward_ad.dual_level():
    dual = forward_ad.make_dual(x, v)
    y, dy = forward_ad.unpack_dual(f(dual))  # dy is the Jacobian of f at x times v
"""

from typing import Any, NamedTuple

from .._tensor import Tensor
from ..engine.mode import get_mode, set_mode
from ..transforms.forward_mode import Level

_levels: list[Level] = []
_enabled = True


def __getattr__(name):
    if name == "_current_level":
        return len(_levels) - 1
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class UnpackedDualTensor(NamedTuple):
    """A primal and its tangent, which is None for a tensor without one."""

    primal: Tensor
    tangent: Tensor | None


def enter_dual_level() -> int:
    """Begin a level; `dual_level` is the context manager.

    Raises:
        RuntimeError: there is one already. `func.jvp` nests.
    """
    if _levels:
        raise RuntimeError(
            "Nested forward mode AD is not supported at the moment. If you need this feature, please use func.jvp, which nests."
        )
    level = Level()
    _levels.append(level)
    if _enabled:
        set_mode(get_mode().replace(interpreter=level))
    return 0


def exit_dual_level(*, level: int | None = None) -> None:
    """End the level: its tangents are gone.

    Raises:
        RuntimeError: it is not the one that was begun last.
    """
    if level is None:
        level = len(_levels) - 1
    if level != len(_levels) - 1 or not _levels:
        raise RuntimeError(
            "Trying to exit a forward AD level that was not the last one that was created. This is not supported."
        )
    last = _levels.pop()
    if get_mode().interpreter is last:
        set_mode(get_mode().replace(interpreter=last.outer))
    last.close()


def _level(given):
    number = len(_levels) - 1 if given is None else given
    if not 0 <= number < len(_levels):
        raise RuntimeError(
            "Trying to create a dual Tensor for forward AD outside of a level: no dual level exists. Make sure to "
            "enter_dual_level() first."
        )
    return _levels[number]


def make_dual(tensor: Tensor, tangent: Tensor, *, level: int | None = None) -> Tensor:
    """A view of `tensor` that carries `tangent` through what is computed from it within the level.

    Args:
        tensor, tangent: of equal shape and dtype, floating point or complex.
        level: the only one.

    Raises:
        ValueError: one of them is not floating point or complex.
        RuntimeError: no level was begun, shapes or dtypes differ, or the tangent has a tangent itself.
    """
    current = _level(level)
    for what, t in (("primal", tensor), ("tangent", tangent)):
        if not (t.dtype.is_floating_point or t.dtype.is_complex):
            raise ValueError(f"Expected {what} to be floating point or complex, but got: {t.dtype}")
    if tuple(tensor.shape) != tuple(tangent.shape):
        raise RuntimeError(
            "Trying to set a forward gradient that has a different size than that of the original Tensor, this is not "
            f"supported. Tensor is of size {list(tensor.shape)} while the given forward gradient is of size {list(tangent.shape)}."
        )
    if tensor.dtype is not tangent.dtype:
        raise RuntimeError(f"Expected the tangent's dtype to be the tensor's, {tensor.dtype}, got {tangent.dtype}.")
    if current.tangent(tangent) is not None:
        raise RuntimeError("The tangent has a forward gradient at the same level. This is not supported.")
    return current.dual(tensor, tangent)


def unpack_dual(tensor: Tensor, *, level: int | None = None) -> UnpackedDualTensor:
    """The primal, a view of `tensor`, and its tangent; None where it has none or the level has ended."""
    number = len(_levels) - 1 if level is None else level
    if not 0 <= number < len(_levels):
        return UnpackedDualTensor(tensor, None)
    current = _levels[number]
    tangent = current.tangent(tensor)
    return UnpackedDualTensor(current.primal(tensor), tangent)


class dual_level:
    """A block with a level of forward mode; `as` gives its number.

    Example:
        >>> with mytorch.autograd.forward_ad.dual_level():
        ...     dual = mytorch.autograd.forward_ad.make_dual(tensor([1.0, 2.0]), tensor([1.0, 10.0]))
        ...     mytorch.autograd.forward_ad.unpack_dual(dual * dual).tangent.tolist()
        [2.0, 40.0]
    """

    def __enter__(self) -> int:
        return enter_dual_level()

    def __exit__(self, *exc: Any) -> None:
        exit_dual_level()


def _is_fwd_grad_enabled() -> bool:
    """Whether tangents follow through ops."""
    return _enabled


class _set_fwd_grad_enabled:
    """Switch that on or off: at once, and back at the end of a `with`."""

    def __init__(self, mode: bool) -> None:
        global _enabled
        self.before, _enabled = _enabled, mode
        self._switch()

    def _switch(self):
        if _levels:
            set_mode(get_mode().replace(interpreter=_levels[-1] if _enabled else _levels[-1].outer))

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: Any) -> None:
        global _enabled
        _enabled = self.before
        self._switch()
