"""`torch._C.DispatchKey` and the guard that excludes autocast, for packages that register operators for dispatch keys."""

import enum

from ..amp import autocast
from ..autograd.mode import get_mode

_DEVICES = "CPU CUDA XPU MPS"
_GROUPS = ("", "Autograd", "Autocast", "Sparse", "Quantized")


class _Key(enum.Enum):
    @property
    def device_type(self):
        """The device type of a key of autocast, such as "cpu"; None for other keys."""
        return self.name.removeprefix("Autocast").lower() if self.name.startswith("Autocast") else None


DispatchKey = _Key(
    "DispatchKey",
    ["Undefined", "Meta", *(f"{group}{device}" for group in _GROUPS for device in _DEVICES.split())],  # type: ignore[call-arg]
)


class DispatchKeySet:
    """A set of dispatch keys."""

    def __init__(self, key):
        self._keys = frozenset((key,))

    def __or__(self, other):
        found = DispatchKeySet(None)
        found._keys = self._keys | other._keys
        return found

    def has(self, key):
        """Returns True if the key is in the set."""
        return key in self._keys


class _ExcludeDispatchKeyGuard:
    """A context in which dispatch keys of autocast are excluded: autocast is disabled for their devices.

    Args:
        keys: a DispatchKeySet of keys of autocast.
    """

    def __init__(self, keys):
        devices = {key.device_type for key in keys._keys}
        if None in devices:
            raise NotImplementedError(
                "_ExcludeDispatchKeyGuard: expected keys of autocast, such as DispatchKey.AutocastCPU, got others."
            )
        self._devices = devices

    def __enter__(self):
        policy = get_mode().autocast
        active = policy is not None and policy.device_type in self._devices
        self._disabled = autocast(policy.device_type, enabled=False) if active else None
        if active:
            self._disabled.__enter__()
        return self

    def __exit__(self, *error):
        if self._disabled is not None:
            self._disabled.__exit__(*error)
