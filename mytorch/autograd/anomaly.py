"""Anomaly mode: name the forward op that a failing or NaN gradient came from."""

from ..engine.mode import get_mode, reset_mode, set_anomaly, set_mode


class detect_anomaly(set_anomaly):
    """Within the block, forward ops remember their stack, and backward raises at the first NaN.

    Args:
        check_nan: whether NaN counts as an anomaly, besides exceptions. (It always does here.)
    """

    def __init__(self, check_nan: bool = True):
        super().__init__(True)

    def clone(self):
        return type(self)()


class set_detect_anomaly(set_anomaly):
    """Switch anomaly mode at once; back at the end when used in `with`."""

    def __init__(self, mode: bool, check_nan: bool = True):
        super().__init__(mode)
        self._before = set_mode(get_mode().replace(anomaly=mode))

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        reset_mode(self._before)


def is_anomaly_enabled() -> bool:
    """Whether anomaly mode is on."""
    return get_mode().anomaly
