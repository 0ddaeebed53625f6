"""`torch.utils.deterministic`, and the settings of `use_deterministic_algorithms`."""

import sys
from types import ModuleType

from ..arrays import config
from ..ops.dispatch.bind import public_names


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


_settings = sys.modules[__name__]
_settings.__class__ = _Deterministic


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Selects deterministic algorithms: disables GPU kernels whose order of summation is unspecified.

    All other algorithms are always deterministic. In this mode, `empty` fills its memory as in PyTorch; see
    `fill_uninitialized_memory`.

    Args:
        mode: True or False.
        warn_only: stored, for `is_deterministic_algorithms_warn_only_enabled`.
    """
    _settings.use(mode, warn_only)


def are_deterministic_algorithms_enabled():
    """Returns the mode of `use_deterministic_algorithms`."""
    return _settings.mode > 0


def is_deterministic_algorithms_warn_only_enabled():
    """Returns `warn_only` of `use_deterministic_algorithms`."""
    return _settings.warn_only


def set_deterministic_debug_mode(debug_mode):
    """Sets `use_deterministic_algorithms` by a number or name: 0 or "default", 1 or "warn", 2 or "error"."""
    words = ("default", "warn", "error")
    if isinstance(debug_mode, str) and debug_mode not in words:
        raise RuntimeError(f"invalid value of debug_mode, expected one of {', '.join(words)}, but got {debug_mode}")
    level = words.index(debug_mode) if isinstance(debug_mode, str) else debug_mode
    if not isinstance(level, int):
        raise TypeError(f"debug_mode must be str or int, but got {type(debug_mode)}")
    if level not in (0, 1, 2):
        raise RuntimeError(f"invalid value of debug_mode, expected 0, 1, or 2, but got {debug_mode}")
    use_deterministic_algorithms(level > 0, warn_only=level == 1)


def get_deterministic_debug_mode():
    """Returns 0, 1 or 2; see `set_deterministic_debug_mode`."""
    return (1 if _settings.warn_only else 2) if _settings.mode else 0


TORCH_NAMES = {
    "mytorch": public_names(
        {
            f.__name__: f
            for f in (
                use_deterministic_algorithms,
                are_deterministic_algorithms_enabled,
                is_deterministic_algorithms_warn_only_enabled,
                set_deterministic_debug_mode,
                get_deterministic_debug_mode,
            )
        }
    )
}
