"""Anomaly mode: report the forward op whose backward failed or returned NaN."""

from ..engine.mode import get_mode, reset_mode, set_anomaly, set_mode


class detect_anomaly(set_anomaly):
    """Makes backward in a `with` block report the forward op that caused an error or a NaN gradient.

    Forward ops store their Python stack, and backward raises an error at the first NaN. This slows training down, so use
    it only to debug.

    Args:
        check_nan: for compatibility with PyTorch; NaN gradients always raise an error.

    Example:
        >>> x = tensor(0.0, requires_grad=True)
        >>> with mytorch.autograd.detect_anomaly():
        ...     (mytorch.sqrt(x) * 0).backward()
        Traceback (most recent call last):
        ...
        RuntimeError: ...
    """

    def __init__(self, check_nan: bool = True):
        super().__init__(True)

    def clone(self):
        return type(self)()


class set_detect_anomaly(set_anomaly):
    """Enables or disables anomaly mode, immediately or for a `with` block. See `detect_anomaly`.

    Args:
        mode: True to enable, False to disable.
        check_nan: for compatibility with PyTorch; NaN gradients always raise an error.
    """

    def __init__(self, mode: bool, check_nan: bool = True):
        super().__init__(mode)
        self._before = set_mode(get_mode().replace(anomaly=mode))

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        reset_mode(self._before)


def is_anomaly_enabled() -> bool:
    """Returns True if anomaly mode is on."""
    return get_mode().anomaly
