"""The exceptions of the library and the words its messages are made of.

Built-in exceptions are used wherever PyTorch uses them, because programs catch those: RuntimeError
for shapes and states, ValueError for values, TypeError for kinds, IndexError for positions. The
subclasses here exist for what a caller may want to catch by name.
"""

import functools
import importlib
import sys
import warnings

import numpy as np


class GraphFreedError(RuntimeError):
    """A backward pass reached a node whose saved arrays were already given up."""


class InPlaceError(RuntimeError):
    """An array saved for backward was changed in place before backward used it."""


class DeviceError(RuntimeError):
    """Arrays of one operation lie on different devices, or a device is not there."""


class OutOfMemoryError(RuntimeError):
    """A GPU's memory does not hold the requested allocation."""


class LinAlgError(np.linalg.LinAlgError, RuntimeError):
    """A matrix is singular, or not positive definite: NumPy's error, and PyTorch's kind of it."""


class CaptureError(RuntimeError):
    """Something that a CUDA graph can't hold was done while one was captured."""


def warn(text, category=UserWarning):
    """Warn at the innermost line that is not this library's: the user's."""
    frame, level = sys._getframe(1), 2
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "mytorch":
        frame, level = frame.f_back, level + 1
    warnings.warn(text, category, stacklevel=level)


@functools.cache
def warn_once(text, category=UserWarning):
    """As `warn`, the first time that a text is given."""
    warn(text, category)


def kind(value):
    """Name a value's kind for a message: `Tensor`, `list`, `NoneType`."""
    return type(value).__name__


def needed(name, why):
    """A module of an optional package.

    Raises:
        ImportError: the package is not installed; in the words `why`.
    """
    try:
        package = name.partition(".")[0]
        importlib.import_module(package)  # may be refused, though a module in it was imported before
        return importlib.import_module(name)
    except ImportError:
        raise ImportError(why) from None


def require_tensor(name, input):
    """Refuse an input that is no array of any kind.

    Raises:
        TypeError: in PyTorch's words.
    """
    if not hasattr(input, "ndim"):
        raise TypeError(f"{name}(): argument 'input' (position 1) must be Tensor, not {kind(input)}")


def shapes(*arrays):
    """Join the shapes of several arrays for a message: `(2, 3) and (4,)`."""
    return " and ".join(str(tuple(a.shape)) for a in arrays)
