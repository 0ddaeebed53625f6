"""`torch.utils.deterministic`, and the settings of `use_deterministic_algorithms`."""

import sys
from types import ModuleType

from ..arrays import config


class _Deterministic(ModuleType):
    """A module with one setting, which is validated on assignment."""

    mode = warn_only = False
    _fill = True

    def use(self, mode, warn_only):
        """Sets the mode; see `mytorch.use_deterministic_algorithms`."""
        self.mode, self.warn_only = bool(mode), bool(warn_only)
        config.deterministic = self.mode
        config.deterministic_alert = ("warn" if warn_only else "error") if mode else ""
        config.fill_uninitialized = self.mode and self._fill

    @property
    def fill_uninitialized_memory(self):
        """True if `empty` fills memory with NaN or the maximum integer in deterministic mode."""
        return self._fill

    @fill_uninitialized_memory.setter
    def fill_uninitialized_memory(self, mode):
        if not isinstance(mode, bool):
            raise RuntimeError(f"fill_uninitialized_memory: expected a bool, but got {type(mode).__name__}")
        self._fill = mode
        config.fill_uninitialized = self.mode and mode


sys.modules[__name__].__class__ = _Deterministic
