"""`torch.cpu`: the CPU as one device with one stream, and deprecated names for mixed precision."""

import contextlib
from types import SimpleNamespace

from .. import amp as _amp
from ..arrays.dtypes import bfloat16
from ..arrays.errors import warn


def _deprecated(name):
    instead = f"Please use `torch.amp.{name}('cpu', args...)` instead."
    warn(f"`torch.cpu.amp.{name}(args...)` is deprecated. {instead}", FutureWarning)


class autocast(_amp.autocast):
    """Automatic mixed precision on the CPU; the same as `amp.autocast("cpu", …)`."""

    def __init__(self, enabled=True, dtype=bfloat16, cache_enabled=True):
        _deprecated("autocast")
        super().__init__("cpu", dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)

    def clone(self):
        return _amp.autocast("cpu", self.fast_dtype, self.enabled, self.cache_enabled)


class GradScaler(_amp.GradScaler):
    """Gradient scaling on the CPU; the same as `amp.GradScaler("cpu", …)`."""

    def __init__(self, init_scale=2.0**16, growth_factor=2.0, backoff_factor=0.5, growth_interval=2000, enabled=True):
        _deprecated("GradScaler")
        super().__init__("cpu", init_scale, growth_factor, backoff_factor, growth_interval, enabled)


amp = SimpleNamespace(autocast=autocast, GradScaler=GradScaler)


class Stream:
    """A stream of the CPU, which has no effect because operations run in order."""

    def wait_stream(self, stream):
        """Does nothing."""


def is_available():
    """Returns True."""
    return True


def device_count():
    """Returns 1."""
    return 1


def current_device():
    """Returns "cpu"."""
    return "cpu"


def set_device(device):
    """Does nothing."""


def synchronize(device=None):
    """Does nothing, because operations on the CPU are synchronous."""


def current_stream(device=None):
    """Returns the stream of the CPU."""
    return Stream()


def stream(stream):
    """Returns a context without effect."""
    return contextlib.nullcontext()
