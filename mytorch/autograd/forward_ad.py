"""Forward-mode differentiation: tensors that carry a tangent.

    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, v)
        y, dy = forward_ad.unpack_dual(f(dual))  # dy is the Jacobian of f at x, times v

autograd/forward_mode.py computes the tangents of ops.
"""

from typing import Any, NamedTuple

from ..arrays.tensor import Tensor
from .forward_mode import Level, enabled
from .mode import get_mode, set_mode

_levels: list[Level] = []


def __getattr__(name):
    if name == "_current_level":
        return len(_levels) - 1
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class UnpackedDualTensor(NamedTuple):
    """The result of `unpack_dual`.

    Attributes:
        primal: the tensor without its tangent.
        tangent: the tangent, or None.
    """

    primal: Tensor
    tangent: Tensor | None


def enter_dual_level() -> int:
    """Starts a level of forward mode. Prefer the context manager `dual_level`.

    Returns:
        The number of the level.

    Raises:
        RuntimeError: a level is already active. Use `func.jvp` for nested derivatives.
    """
    if _levels:
        raise RuntimeError(
            "Nested forward mode AD is not supported at the moment. If you need this feature, please use func.jvp, which nests."
        )
    level = Level()
    _levels.append(level)
    set_mode(get_mode().replace(interpreter=level))
    return 0


def exit_dual_level(*, level: int | None = None) -> None:
    """Ends a level of forward mode and deletes its tangents.

    Args:
        level: number of the level (default: the current level).

    Raises:
        RuntimeError: `level` is not the current level.
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
    """Returns a view of a tensor with a tangent. Operations on the view compute the tangents of their results.

    Args:
        tensor: the primal, floating point or complex.
        tangent: the tangent, of the same shape and dtype as `tensor`.
        level: number of the level (default: the current level).

    Raises:
        ValueError: the primal or the tangent is not floating point or complex.
        RuntimeError: no level is active, shapes or dtypes differ, or the tangent already has a tangent.

    Example:
        >>> fwAD = mytorch.autograd.forward_ad
        >>> with fwAD.dual_level():
        ...     x = fwAD.make_dual(tensor(3.0), tensor(1.0))
        ...     fwAD.unpack_dual(x * x).tangent.item()
        6.0
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
        raise RuntimeError(
            f"Expected the tangent to have the dtype of the tensor, {tensor.dtype}, got {tangent.dtype}."
        )
    if current.tangent(tangent) is not None:
        raise RuntimeError("The tangent has a forward gradient at the same level. This is not supported.")
    return current.dual(tensor, tangent)


def unpack_dual(tensor: Tensor, *, level: int | None = None) -> UnpackedDualTensor:
    """Splits a tensor into its primal and its tangent.

    Args:
        tensor: any tensor.
        level: number of the level (default: the current level).

    Returns:
        A named tuple (primal, tangent). The tangent is None for a tensor without a tangent and after the end of the level.
    """
    number = len(_levels) - 1 if level is None else level
    if not 0 <= number < len(_levels):
        return UnpackedDualTensor(tensor, None)
    current = _levels[number]
    tangent = current.shown(tensor)
    return UnpackedDualTensor(current.primal(tensor), tangent)


class dual_level:
    """Starts a level of forward mode for a `with` block. Tangents exist only inside the block.

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
    """Returns True if ops compute tangents."""
    return enabled.get()


class _set_fwd_grad_enabled:
    """Enables or disables the computation of tangents, immediately or for a `with` block."""

    def __init__(self, mode: bool) -> None:
        self.before = enabled.get()
        enabled.set(mode)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: Any) -> None:
        enabled.set(self.before)
