"""Which implementation scaled dot-product attention may use: PyTorch's names for it, and their effect here."""

import enum
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from ..base.config import fused

__all__ = ["WARN_FOR_UNFUSED_KERNELS", "SDPBackend", "sdpa_kernel"]

__path__: list[str] = []  # PyTorch has `nn.attention.bias`, which is compat/attention_bias.py
WARN_FOR_UNFUSED_KERNELS = False


class SDPBackend(enum.IntEnum):
    """PyTorch's implementations of attention."""

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4


@contextmanager
def sdpa_kernel(backends: "SDPBackend | Iterable[SDPBackend]", set_priority: bool = False) -> Iterator[None]:
    """Within this context attention uses one of some implementations.

    Here MATH alone means the reference (`mytorch.fused(False)`); any other choice leaves it to the library, whose
    fused kernel stands for all of PyTorch's.

    Args:
        backends: one SDPBackend, or several.
        set_priority: accepted; there is one fused kernel.

    Raises:
        AssertionError: something other than SDPBackends.
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
