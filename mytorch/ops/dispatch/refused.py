"""Dtypes and kinds of arguments that functions refuse.

NumPy computes more than PyTorch defines: it orders complex numbers, and it rounds bools. In PyTorch mode, the calls that
PyTorch refuses raise its errors. Natively, only functions of complex numbers without a mathematical meaning raise.
"""

import functools
import inspect

import numpy as np

from ...arrays import config, dtypes
from ...arrays.arguments import names_of
from ...arrays.array import Array
from ...arrays.errors import kind
from ...arrays.tensor import Tensor

# A table instead of checks in each op: the rules are PyTorch's, not a consequence of what the ops compute.
# Ops -> kinds of dtypes that they refuse: b for bool, i for integers, c for complex numbers. A capital letter stands for
# a RuntimeError, another one for a NotImplementedError, as in PyTorch.
_KINDS = {
    "b": "_divide_floor abs bitwise_left_shift bitwise_right_shift ceil floor floor_divide fmod linear matmul pow remainder trunc",
    "bc": "clamp median round",
    "bci": "batch_norm cross_entropy elu gated gelu group_norm hardshrink hardsigmoid hardswish igamma igammac layer_norm leaky_relu "
    "log_softmax logsigmoid nextafter softmax softplus softshrink",
    "bi": "eigh hypot lu rms_norm silu logaddexp logaddexp2 logcumsumexp",
    "BcI": "dropout",
    "c": "_clipped_error _logistic_error _squared_error amax amin avg_pool binary_cross_entropy copysign digamma entr erf erfc erfcx "
    "erfinv ge gt heaviside i0 i0e i1 i1e le lgamma logit lt masked_softmax max_of_all max_pool min_of_all ndtri nll polygamma "
    "relu_squared scatter_extreme sign special_xlog1py threshold xlogy zeta",
    "i": "lerp",
    "BI": "adjugate cholesky eig inverse linalg_det linalg_solve logabsdet norm pinv qr sign_of_det std svd var",
    "Bc": "hardtanh relu",
    "C": "fmax fmin max maximum min minimum sort",
    "BC": "argmax argmin topk",
}
_CHARACTERS = {"b": "?", "i": "bBhHiIlLqQ", "c": "FD"}
REFUSED = {name: letters for letters, names in _KINDS.items() for name in names.split()}
_CATEGORIES = {dtypes.BOOL: "b", dtypes.INT: "i", dtypes.FLOAT: "f"}  # any other one is complex

# Ops of one or two inputs whose first or second input can be a number. All other inputs are tensors.
_FIRST = set(
    "add sub mul div floor_divide _divide_floor _divide_trunc pow remainder bitwise_and bitwise_or bitwise_xor bitwise_left_shift "
    "bitwise_right_shift xlogy special_xlog1py zeta".split()
)
SECOND = _FIRST | set("copysign eq fmod ge gt le lt ne".split())


def characters(name):
    """Returns the characters of the NumPy dtypes that an op refuses."""
    return "".join(_CHARACTERS[letter] for letter in REFUSED.get(name, "").lower())


def _dtype(x):
    if isinstance(x, Array):
        x = x._array
    return dtypes.from_numpy(x.dtype) if hasattr(x, "dtype") else dtypes.of_number(int(x) if type(x) is bool else x)


def check_dtypes(name, values):
    """Checks the promoted dtype of the inputs of an op: Arrays, raw arrays and numbers.

    Raises:
        NotImplementedError, RuntimeError: the op refuses the dtype.
    """
    letters = REFUSED[name]
    found = [_dtype(x) for x in values if x is not None]
    highest = max(filter(None, found), key=lambda d: d.category, default=dtypes.bool_)
    letter = _CATEGORIES.get(highest.category, "c")
    if letter in letters.lower() and (letter == "c" or config.pytorch_mode):
        if letter in letters:
            raise NotImplementedError(
                f'"{name}" is not implemented for {highest.name}. Convert the inputs to another dtype.'
            )
        raise RuntimeError(f"{name}: expected inputs of another dtype, got {highest.name}. Convert them first.")


def check_arguments(op, inputs):
    """Checks that the inputs of a function with one or two inputs are tensors or, where PyTorch allows it, numbers.

    Raises:
        TypeError: an input is something else.
    """
    for i, x in enumerate(inputs[: op.required]):
        if not isinstance(x, (Tensor, Array)) and not (
            op.name in (SECOND if i else _FIRST) and isinstance(x, (int, float, complex, np.generic))
        ):
            raise TypeError(f"{op.name}(): argument {op.inputs[i]!r} (position {i + 1}) must be Tensor, not {kind(x)}")


def refuses(letters):
    """Decorates a function of tensors that refuses some kinds of dtypes of its inputs; see `_KINDS`."""
    kinds = letters.lower().replace("i", "iu")

    def decorate(function):
        name = function.__name__
        REFUSED[name] = letters

        @functools.wraps(function)
        def checked(*args, **kwargs):
            found = [x._mt_data for x in (*args, *kwargs.values()) if isinstance(x, (Tensor, Array))]
            if any(x._array.dtype.kind in kinds for x in found):
                check_dtypes(name, found)
            return function(*args, **kwargs)

        return checked

    return decorate


def takes_tensors(*names, index="iu"):
    """Decorates a function whose arguments with these names are tensors, which is checked in PyTorch mode.

    Args:
        names: names of the arguments. An argument `index` has 32 or 64 bits.
        index: "long" if the argument `index` has 64 bits.
    """

    def decorate(function):
        own = names_of(inspect.unwrap(function))
        positions = [(own.index(name), name) for name in names]

        @functools.wraps(function)
        def checked(*args, **kwargs):
            if config.pytorch_mode:
                for i, name in positions:
                    x = args[i] if i < len(args) else kwargs.get(name, function)
                    if x is not function and not isinstance(x, (Tensor, Array)):
                        raise TypeError(
                            f"{function.__name__}(): argument {name!r} (position {i + 1}) must be Tensor, not {kind(x)}"
                        )
                    if name == "index" and x is not function and x.dtype.itemsize < (8 if index == "long" else 4):
                        wanted = "int64" if index == "long" else "int32 or int64"
                        error = IndexError if function.__name__ == "index_fill" else RuntimeError
                        raise error(
                            f"{function.__name__}(): expected dtype {wanted} for index, got {x.dtype}. Convert it with long()."
                        )
                    if name == "source" and x is not function and args and x.dtype is not args[0].dtype:
                        raise RuntimeError(
                            f"{function.__name__}(): expected self and source to have the same dtype, got {args[0].dtype} and {x.dtype}."
                        )
            return function(*args, **kwargs)

        return checked

    return decorate
