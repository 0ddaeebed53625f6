"""Older names of `mytorch.amp` for the GPU: `autocast()`, `GradScaler()`, `custom_fwd`, `custom_bwd`."""

import functools

from .. import amp
from ..arrays import cuda_available, dtypes


class autocast(amp.autocast):
    """Automatic mixed precision on the GPU; the same as `amp.autocast("cuda", …)`.

    Args:
        enabled: if False, the context has no effect.
        dtype: half-precision dtype.
        cache_enabled: reuse converted weights.
    """

    def __init__(self, enabled: bool = True, dtype: dtypes.dtype = dtypes.float16, cache_enabled: bool = True):
        super().__init__("cuda", dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)

    def clone(self) -> "autocast":
        return type(self)(self.enabled, self.fast_dtype, self.cache_enabled)


class GradScaler(amp.GradScaler):
    """Gradient scaling on the GPU; the same as `amp.GradScaler("cuda", …)`.

    Args:
        init_scale: initial loss scale.
        growth_factor: factor of the scale after `growth_interval` steps without overflow.
        backoff_factor: factor of the scale after an overflow.
        growth_interval: number of steps without overflow before the scale grows.
        enabled: if False, the scaler has no effect.
    """

    def __init__(
        self, init_scale: float = 2.0**16, growth_factor: float = 2.0, backoff_factor: float = 0.5,
        growth_interval: int = 2000, enabled: bool = True,
    ):  # fmt: skip
        super().__init__("cuda", init_scale, growth_factor, backoff_factor, growth_interval, enabled)


custom_fwd = functools.partial(amp.custom_fwd, device_type="cuda")
custom_bwd = functools.partial(amp.custom_bwd, device_type="cuda")


def amp_definitely_not_available() -> bool:
    """Returns True if there is no GPU."""
    return not cuda_available()


__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd"]
