"""`torch.__future__`, and settings of PyTorch that have one value here."""

from ..autograd.mode import get_mode
from ..autograd.walk import is_checkpoint_valid

_multithreading = [True]


def is_multithreading_enabled():
    """Returns the setting of `set_multithreading_enabled`."""
    return _multithreading[0]


class set_multithreading_enabled:
    """Stores a setting without effect: the backward pass on the CPU always runs in the calling thread.

    Args:
        mode: True or False. At its end, a `with` block restores the previous value.
    """

    def __init__(self, mode):
        self.before = _multithreading[0]
        _multithreading[0] = mode

    def __enter__(self):
        return self

    def __exit__(self, *error):
        _multithreading[0] = self.before


def _profiler_enabled():
    """Return True while a profiler records."""
    return get_mode().profile is not None


_is_checkpoint_valid = is_checkpoint_valid


def get_swap_module_params_on_conversion():
    """Returns False: `Module.to` changes parameters, and does not swap them."""
    return False


def get_overwrite_module_params_on_conversion():
    """Returns False: `Module.to` keeps the parameters."""
    return False


def _keep(name, value):
    if value:
        raise NotImplementedError(f"{name}: mytorch always changes the parameters in place. Pass False.")


def set_swap_module_params_on_conversion(value):
    """Accepts False.

    Args:
        value: the setting.

    Raises:
        NotImplementedError: `value` is True.
    """
    _keep("set_swap_module_params_on_conversion", value)


def set_overwrite_module_params_on_conversion(value):
    """Accepts False.

    Args:
        value: the setting.

    Raises:
        NotImplementedError: `value` is True.
    """
    _keep("set_overwrite_module_params_on_conversion", value)
