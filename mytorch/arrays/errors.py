"""The exceptions of the library, and helpers for error messages.

The library raises the same built-in exceptions as PyTorch, because programs catch them: RuntimeError for shapes and
states, ValueError for values, TypeError for types, IndexError for positions. The subclasses in this module allow programs
to catch an error by name.
"""

import functools
import importlib
import itertools
import os
import sys
import warnings

import numpy as np

from . import config


class GraphFreedError(RuntimeError):
    """Raised if backward reaches a node whose saved tensors an earlier backward pass has freed."""


class InPlaceError(RuntimeError):
    """Raised if a tensor that backward needs was changed in place."""


class DeviceError(RuntimeError):
    """Raised if the inputs of an operation are on different devices, or if a device is not available."""


class NoGPUError(DeviceError, AssertionError):
    """Raised if CuPy or a GPU is missing. It is also an AssertionError, as in a PyTorch without CUDA."""


class OutOfMemoryError(RuntimeError):
    """Raised if the GPU does not have enough memory for an allocation."""


class HostMemoryError(MemoryError, RuntimeError):
    """Raised if the machine does not have enough memory for an allocation. It is also a RuntimeError, as in PyTorch."""


class NotTensorError(TypeError, AttributeError):
    """Raised if an argument is not a tensor. PyTorch's functions raise a TypeError, or an AttributeError if they are written in Python."""


class LinAlgError(np.linalg.LinAlgError, RuntimeError):
    """Raised if a matrix is singular or not positive definite. It is a subclass of the error of NumPy and of RuntimeError."""


class CaptureError(RuntimeError):
    """Raised if a program executes an operation during the capture of a CUDA graph that a graph cannot contain."""


def alert_nondeterministic(name):
    """Raises PyTorch's error for an operation without a deterministic implementation, in deterministic mode.

    Raises:
        RuntimeError: `use_deterministic_algorithms(True)` is active; with `warn_only`, this is a warning.
    """
    if config.deterministic_alert:
        text = f"{name} does not have a deterministic implementation, but you set 'torch.use_deterministic_algorithms(True)'."
        if config.deterministic_alert == "error":
            raise RuntimeError(text)
        warn(text)


def warn_as_pytorch(text, category=UserWarning):
    """Issues a warning of PyTorch about a call that works, in PyTorch mode only."""
    if config.pytorch_mode:
        warn(text, category)


# In the names of the library's files in stacks.
PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def stack():
    """Yields (file, line number, name of the function, name of the module) of the callers, innermost first.

    Warnings, the profiler, error messages of `export` and `CapturedTraceback` need the line of a program, as in PyTorch.
    """
    frame = sys._getframe(1)
    while frame is not None:
        yield frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name, frame.f_globals.get("__name__", "")
        frame = frame.f_back


def warn(text, category=UserWarning):
    """Issues a warning for the innermost line outside of this library."""
    inside = itertools.takewhile(lambda caller: caller[3].partition(".")[0] == "mytorch", stack())
    warnings.warn(text, category, stacklevel=1 + len(list(inside)))


@functools.cache
def warn_once(text, category=UserWarning):
    """Calls `warn` for the first use of each text."""
    warn(text, category)


def kind(value):
    """Returns the name of the type of a value for a message, such as `Tensor`, `list` or `NoneType`."""
    return type(value).__name__


def needed(name, why):
    """Imports a module of an optional package.

    Args:
        name: name of the module.
        why: error message.

    Raises:
        ImportError: the package is not installed.
    """
    try:
        package = name.partition(".")[0]
        importlib.import_module(package)  # this import can fail even if a module of the package was imported before
        return importlib.import_module(name)
    except ImportError:
        raise ImportError(why) from None


def require_tensor(name, input):
    """Checks that an input is a tensor or an array.

    Raises:
        TypeError: it is not; the message is equal to the message of PyTorch.
    """
    if not hasattr(input, "ndim"):
        raise TypeError(f"{name}(): argument 'input' (position 1) must be Tensor, not {kind(input)}")


def shapes(*arrays):
    """Returns the shapes of several arrays for a message, such as `(2, 3) and (4,)`."""
    return " and ".join(str(tuple(a.shape)) for a in arrays)
