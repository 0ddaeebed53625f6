"""Selection of the implementation of scaled dot-product attention, with PyTorch's names."""

import enum
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from ...arrays.config import fused

__all__ = ["WARN_FOR_UNFUSED_KERNELS", "SDPBackend", "sdpa_kernel"]

WARN_FOR_UNFUSED_KERNELS = False


class SDPBackend(enum.Enum):
    """The implementations of attention in PyTorch.

    Attributes:
        ERROR: no implementation.
        MATH: the reference.
        FLASH_ATTENTION: a fused kernel.
        EFFICIENT_ATTENTION: a fused kernel.
        CUDNN_ATTENTION: a fused kernel.
        OVERRIDEABLE: a fused kernel.
    """

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4

    def __int__(self):
        return self.value


@contextmanager
def sdpa_kernel(backends: "SDPBackend | Iterable[SDPBackend]", set_priority: bool = False) -> Iterator[None]:
    """Selects the implementations that attention may use, as a context manager.

    `SDPBackend.MATH` alone selects the reference, as `mytorch.fused(False)` does. With any other selection, the library
    chooses between the reference and its fused kernel.

    Args:
        backends: one `SDPBackend`, or several.
        set_priority: accepted for compatibility, without effect (default: False).

    Raises:
        AssertionError: `backends` contains other objects.

    Example:
        >>> q = mytorch.ones(1, 1, 2, 4)
        >>> with nn.attention.sdpa_kernel(nn.attention.SDPBackend.MATH):
        ...     out = F.scaled_dot_product_attention(q, q, q)
        >>> tuple(out.shape)
        (1, 1, 2, 4)
    """
    chosen = [backends] if isinstance(backends, SDPBackend) else list(backends)
    if not chosen or not all(isinstance(b, SDPBackend) for b in chosen):
        raise AssertionError(
            f"Backend must be an instance of SDPBackend or a list of SDPBackend instances, got {backends!r}"
        )
    if set(chosen) == {SDPBackend.MATH}:
        with fused(False):
            yield
    else:
        yield
