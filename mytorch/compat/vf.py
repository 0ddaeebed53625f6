"""`torch._VF`: the functions of `torch`, for packages that call them by this older path."""

import sys


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return getattr(sys.modules["mytorch"], name)
