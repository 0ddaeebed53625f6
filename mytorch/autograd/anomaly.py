"""Anomaly mode: report the forward op whose backward failed or returned NaN."""

from ..arrays import config
from ..arrays.errors import warn
from .mode import get_mode, reset_mode, set_anomaly, set_mode


def _setting(mode, check_nan):
    """Returns the field `anomaly` of a Mode: False, "nan" to check gradients for NaN, or "errors"."""
    return ("nan" if check_nan else "errors") if mode else False


class detect_anomaly(set_anomaly):
    """Makes backward in a `with` block report the forward op that caused an error or a NaN gradient.

    Forward ops store their Python stack, and backward raises an error at the first NaN. This slows training down, so use
    it only to debug.

    Args:
        check_nan: raise an error at the first NaN gradient (default: True).

    Example:
        >>> x = tensor(0.0, requires_grad=True)
        >>> with mytorch.autograd.detect_anomaly():
        ...     (mytorch.sqrt(x) * 0).backward()
        Traceback (most recent call last):
        ...
        RuntimeError: ...
    """

    def __init__(self, check_nan: bool = True):
        super().__init__(_setting(True, check_nan))
        if config.pytorch_mode:
            warn(
                "Anomaly Detection has been enabled. This mode will increase the runtime and should only be enabled for debugging."
            )

    def clone(self):
        return type(self)(self.mode == "nan")


class set_detect_anomaly(set_anomaly):
    """Enables or disables anomaly mode, immediately or for a `with` block. See `detect_anomaly`.

    Args:
        mode: True to enable, False to disable.
        check_nan: raise an error at the first NaN gradient (default: True).
    """

    def __init__(self, mode: bool, check_nan: bool = True):
        super().__init__(mode)
        self._before = set_mode(get_mode().replace(anomaly=_setting(mode, check_nan)))

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        reset_mode(self._before)


def is_anomaly_enabled() -> bool:
    """Returns True if anomaly mode is on."""
    return bool(get_mode().anomaly)


TORCH_NAMES = {"mytorch": {"set_anomaly_enabled": set_detect_anomaly, "is_anomaly_enabled": is_anomaly_enabled}}
