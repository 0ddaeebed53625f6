"""Checks of arguments in PyTorch mode, by the signatures of PyTorch's functions.

The library accepts more than PyTorch: numbers and arrays for tensors, 1 for True, 2.0 for 2. In PyTorch mode, a public
function raises PyTorch's TypeError for arguments that fit none of its signatures in `signatures.txt`, which
`docs/make_signatures.py` writes. A combination of types is checked once for each function. Calls by the library itself
may pass anything.

The kinds of an argument are letters: T tensor, n number, i integer, f float, b bool, s string, d dtype, D device, G generator,
I integers, F floats, N numbers, L tensors, O tensors or None, ? None, and . any object. A tensor with one element is a number.
"""

import functools
import pathlib
import sys

import numpy as np

from .._array import Array
from .._tensor import Tensor
from ..base import dtypes
from ..base.errors import NotTensorError, kind
from ..dispatch.bind import METHODS, PUBLIC
from ..engine.mode import get_mode
from ..ops.random import Generator

_SPELLINGS = {"axis": "dim", "keepdims": "keepdim", "x": "input", "a": "input", "x1": "input", "x2": "other"}
_NATIVE = frozenset(("fused", "auto", "act_func"))  # keywords that only this library has
_WORDS = {
    "T": "Tensor", "n": "Number", "i": "int", "f": "float", "b": "bool", "s": "str", "d": "torch.dtype", "D": "torch.device",
    "G": "torch.Generator", "I": "tuple of ints", "F": "tuple of floats", "N": "tuple of Numbers", "L": "tuple of Tensors",
    "O": "tuple of Tensors", "?": "None", ".": "object",
}  # fmt: skip
_INTS, _NUMBERS = (int, np.integer), (int, float, complex, np.number, np.bool_)
_KNOWN = {
    int,
    float,
    bool,
    complex,
    str,
    bytes,
    list,
    tuple,
    dict,
    set,
    type(None),
    np.ndarray,
}  # PyTorch refuses these
_INT64, _UINT64 = 1 << 63, 1 << 64
# Functions whose tensors have one dtype, and functions whose tensors of floats have.
_ONE_DTYPE = frozenset(
    "addbmm addmm addmv baddbmm bilinear cdist cholesky_solve complex conv_transpose1d conv_transpose2d conv_transpose3d cross grid_sample "
    "index_put index_put_ polar prelu solve solve_ex tensorsolve vecdot".split()
)
_ONE_FLOAT = frozenset("cross_entropy lu_solve nll_loss".split())
# Kinds of dtypes that functions of PyTorch refuse in their first tensor, as in `dispatch/refused.py`: h for float16, g for bfloat16.
_KINDS = {
    "B": "gradient trapezoid trapz",
    "BI": "huber_loss kl_div matrix_rank soft_margin_loss solve solve_ex tensorsolve vecdot vector_norm",
    "G": "inv inv_ex inverse logdet matrix_power nuclear_norm pinv pinverse slogdet tensorinv",
    "HG": "fft fft2 fftn hfft hfft2 hfftn ifft ifft2 ifftn ihfft ihfft2 ihfftn irfft irfft2 irfftn quantile rfft rfft2 rfftn",
    "BHG": "vander",
    "I": "hinge_embedding_loss",
    "IHG": "nanquantile stft",
    "b": "histc trace threshold",
    "bi": "avg_pool1d avg_pool2d conv_transpose1d conv_transpose2d conv_transpose3d gumbel_softmax rms_norm",
    "bic": "fractional_max_pool2d fractional_max_pool3d glu grid_sample",
    "bihg": "avg_pool3d local_response_norm lu lu_factor lu_factor_ex solve_triangular",
    "bichg": "histogramdd",
    "c": "adaptive_avg_pool1d adaptive_avg_pool3d interpolate upsample",
    "g": "cholesky cholesky_ex cholesky_inverse cond det eig eigh eigvals eigvalsh qr svd svdvals",
    "hg": "erfcx histogram log_ndtr ndtri pdist",
    "i": "fold max_pool1d unfold",
    "ihg": "multi_margin_loss multilabel_margin_loss",
}
_REFUSED = {name: letters for letters, names in _KINDS.items() for name in names.split()}
_LETTERS = {"bool": "b", "float16": "h", "bfloat16": "g", "float32": "f", "float64": "f"}
# Numbers that may be complex although all tensors are real.
_COMPLEX = frozenset("base exponent fill_value input ord other p self spacing".split())
_BY_VALUE = (list, tuple)  # whose items decide
_MOST = 500  # combinations of types that a function remembers


def _number(x):
    return isinstance(x, Tensor) and x.ndim == 0 and not x.requires_grad


def _integer(x):
    return _number(x) and x.dtype.category == dtypes.INT


def _integers(x):
    return isinstance(x, (list, tuple)) and all(
        _TESTS["i"](item) or (i and isinstance(item, bool)) or (isinstance(item, Tensor) and item.numel() == 1)
        for i, item in enumerate(x)
    )


_TESTS = {
    "T": lambda x: isinstance(x, (Tensor, Array)),
    "n": lambda x: isinstance(x, _NUMBERS) or _number(x),
    "i": lambda x: (isinstance(x, _INTS) and type(x) is not bool) or _integer(x),
    "f": lambda x: isinstance(x, (int, float, np.number)) or _number(x),
    "b": lambda x: isinstance(x, (bool, np.bool_)),
    "s": lambda x: isinstance(x, (str, bytes)),
    "d": lambda x: isinstance(x, dtypes.dtype) or x in (float, int, bool, complex),
    "D": lambda x: not isinstance(x, (bool, float, list, tuple, dict, Tensor, np.ndarray, type(None))),
    "G": lambda x: isinstance(x, Generator),
    "I": _integers,
    "F": lambda x: isinstance(x, (list, tuple)) and all(map(_TESTS["f"], x)),
    "N": lambda x: isinstance(x, (list, tuple)) and all(map(_TESTS["n"], x)),
    "L": lambda x: isinstance(x, (list, tuple)) and all(map(_TESTS["T"], x)),
    "O": lambda x: isinstance(x, (list, tuple)) and all(item is None or _TESTS["T"](item) for item in x),
    "?": lambda x: x is None,
}


def _fits(x, letters):
    """Returns True if a value is of one of the kinds, or of a class that this module does not know."""
    if "." in letters or any(_TESTS[letter](x) for letter in letters):
        return True
    given = type(x)
    if given in (list, tuple):
        return not all(_is_known(type(item)) for item in x)
    return not _is_known(given)


def _is_known(given):
    return given in _KNOWN or given is Tensor or given is Array or issubclass(given, np.generic)


class _Overload:
    """One signature of a function."""

    def __init__(self, text):
        self.kinds, self.required, self.positional, self.rest = {}, [], [], None
        by_position = True
        for item in text.split():
            if item == "*":
                by_position = False
                continue
            name, _, letters = item.lstrip("*").partition(":")
            if item[0] == "*":
                self.rest, by_position = letters.rstrip("="), False
                self.rest_name = name
                continue
            name = "input" if name == "self" else name
            self.kinds[name] = letters.rstrip("=")
            if by_position:
                self.positional.append(name)
            if item[-1] != "=":
                self.required.append(name)

    def bound(self, args, kwargs):
        """Returns (letters, value) of each argument."""
        letters = [self.kinds[name] for name in self.positional] + [self.rest or "."] * len(args)
        named = [(self.kinds.get(_SPELLINGS.get(k, k), self.kinds.get(k, ".")), x) for k, x in kwargs.items()]
        return [*zip(letters, args, strict=False), *named]

    def check_numbers(self, args, kwargs):
        """Checks that the numbers of a call can be represented.

        Raises:
            ValueError: an integer has more than 64 bits.
            OverflowError: a number has.
            RuntimeError: a number is complex, and all tensors are real.
        """
        given = {**dict(zip(self.positional, args, strict=False)), **kwargs}
        for name, x in given.items():
            letters = self.kinds.get(_SPELLINGS.get(name, name), ".")
            if type(x) is int and not -_INT64 <= x < _INT64:
                if "n" in letters and not -_INT64 <= x < _UINT64:
                    raise OverflowError(f"int too big to convert: {x}")
                if "i" in letters and "n" not in letters:
                    raise ValueError(f"Overflow when unpacking long long: {x}")
            if type(x) is complex and "n" in letters and name not in _COMPLEX:
                tensors = [t for t in given.values() if isinstance(t, Tensor)]
                if tensors and not any(t.dtype.is_complex for t in tensors):
                    raise RuntimeError(f"value cannot be converted to type float without overflow: {name}={x}")

    def problem(self, function, args, kwargs):
        """Returns the reason why a call does not fit, or None."""
        values = dict(zip(self.positional, args, strict=False))
        if len(args) > len(self.positional):
            if self.rest is None:
                return (
                    f"{function}() takes {len(self.positional)} positional argument(s) but {len(args)} were given. "
                    "Remove the others, or pass them by name."
                )
            for i, x in enumerate(args[len(self.positional) :], len(self.positional) + 1):
                if not _fits(x, self.rest) and not (i > 1 and type(x) is bool):
                    return f"{function}(): argument '{self.rest_name}' (position {i}) must be {_WORDS[self.rest[0]]}, not {kind(x)}"
        for word, value in kwargs.items():
            name = word if word in self.kinds else _SPELLINGS.get(word, word)
            if name not in self.kinds:
                return f"{function}() got an unexpected keyword argument '{word}'"
            if name in values:
                return f"{function}() got multiple values for argument '{word}'"
            values[name] = value
        for name in self.required:
            if name not in values:
                return f"{function}() missing 1 required positional argument: '{name}'"
        for i, (name, x) in enumerate(values.items(), 1):
            if not _fits(x, self.kinds[name]):
                words = " or ".join(_WORDS[letter] for letter in self.kinds[name] if letter != "?")
                place = f" (position {i})" if i <= len(args) else ""
                return f"{function}(): argument '{name}'{place} must be {words}, not {kind(x)}"
        return None

    def __str__(self):
        return "(" + ", ".join(f"{'/'.join(_WORDS[a] for a in k if a != '?')} {n}" for n, k in self.kinds.items()) + ")"


def _is_number(letters, x):
    return isinstance(x, Tensor) and not x.ndim and not {"T", "."} & {*letters} and bool({*"inf"} & {*letters})


def _check_dtypes(name, values):
    """Checks the dtypes of the tensors of a call.

    Raises:
        RuntimeError: the tensors have several dtypes, or the function refuses the dtype of the first one.
        NotImplementedError: the function refuses the dtype of the first one.
    """
    found = [x.dtype for x in values if isinstance(x, Tensor)]
    if not found:
        return
    letters, first = _REFUSED.get(name, ""), found[0]
    letter = _LETTERS.get(first.name) or ("c" if first.is_complex else "i")
    if letter in letters.lower():
        text = f"{name}: not implemented for {first.name}. Convert the input to another dtype."
        raise (NotImplementedError if letter in letters else RuntimeError)(text)
    if name in _ONE_FLOAT and not (
        name == "cross_entropy" and found[1:2] and found[1].is_floating_point
    ):  # of probabilities
        found = [dtype for dtype in found if dtype.is_floating_point]
    elif name not in _ONE_DTYPE:
        return
    if len({*found}) > 1:
        given = " and ".join(dict.fromkeys(dtype.name for dtype in found))
        raise RuntimeError(f"{name}: expected tensors of the same dtype, got {given}. Convert them with to().")


def _kind_of(x):
    given = type(x)
    if given is int:
        return given if -_INT64 <= x < _INT64 else x
    return (given, *map(type, x)) if given is tuple or given is list else given


def checked(function, name, text):
    """Returns a public function that checks its arguments first.

    Args:
        function: the function.
        name: its public name.
        text: its line of `signatures.txt` after the name.
    """
    overloads, seen, simple, has_rule = [], set(), set(), name in _ONE_DTYPE | _ONE_FLOAT | _REFUSED.keys()

    def check(key, args, kwargs):
        """Returns the arguments, with numbers instead of tensors with one element where a number is expected."""
        if not overloads:
            overloads.extend(map(_Overload, text.split("|")))
        given = {k: v for k, v in kwargs.items() if k not in _NATIVE}
        problems = []
        for overload in overloads:
            found = overload.problem(name, args, given)
            if found is None:
                overload.check_numbers(args, given)
                bound = overload.bound(args, kwargs)
                if any(_is_number(letters, x) for letters, x in bound):
                    values = [x.item() if _is_number(letters, x) else x for letters, x in bound]
                    return values[: len(args)], dict(zip(kwargs, values[len(args) :], strict=True))
                if not any(type(x) is complex for _, x in bound) and len(seen) < _MOST:
                    seen.add(key)
                    if not kwargs and not any(type(x) in _BY_VALUE or ("n" in k and type(x) is int) for k, x in bound):
                        simple.add(tuple(map(type, args)))
                return args, kwargs
            problems.append(found)
        if sys._getframe(2).f_globals.get("__name__", "").partition(".")[0] == "mytorch":
            return args, kwargs
        if len(problems) > 1:
            got = ", ".join([*map(kind, args), *(f"{k}={kind(v)}" for k, v in kwargs.items())])
            expected = " or ".join(map(str, overloads))
            raise TypeError(
                f"{name}() received an invalid combination of arguments - got ({got}), but expected {expected}"
            )
        raise (NotTensorError if "must be Tensor," in problems[0] else TypeError)(problems[0])

    @functools.wraps(function)
    def call(*args, **kwargs):
        if kwargs or tuple(map(type, args)) not in simple:
            key = tuple([_kind_of(x) for x in args])
            if kwargs:
                key = (key, *[(k, _kind_of(x)) for k, x in kwargs.items()])
            if key not in seen:
                args, kwargs = check(key, args, kwargs)
        if has_rule and get_mode().autocast is None:
            _check_dtypes(name, (*args, *kwargs.values()))
        return function(*args, **kwargs)

    return call


@functools.cache
def _table():
    """Returns {section: {name: overloads}}."""
    table, section = {}, {}
    for line in pathlib.Path(__file__).with_suffix(".txt").read_text(encoding="utf-8").splitlines():
        if line[0] == "[":
            section = table[line[1:-1]] = {}
        else:
            name, _, section[name] = line.partition(" ")
    return table


def with_check(section, name, value):
    """Returns a value of a module: for a function whose signature is known, the function that checks its arguments."""
    text = _table().get(section, {}).get(name)
    if text is None or not callable(value) or (" out:" in text and _checks_itself(value)):
        return value
    return checked(value, name, text)


def _checks_itself(function):
    """Returns True for ops of one or two tensors without attributes; see `dispatch/refused.py`."""
    op = getattr(function, "op", None)
    return op is not None and not op.attrs and len(op.inputs) <= 2


def install():
    """Lets the public functions of the imported modules check their arguments. It runs after each import in PyTorch mode."""
    for section in list(_waiting):
        module = sys.modules.get(f"mytorch.{section}".rstrip("."))
        if module is None or getattr(module.__spec__, "_initializing", False):
            continue
        _waiting.discard(section)
        for name in _table()[section]:
            value = vars(module).get(name)
            found = with_check(section, name, value)
            if found is not value:
                setattr(module, name, found)
                if not section and PUBLIC.get(name) is value:
                    PUBLIC[name] = found


def install_methods():
    """Lets the methods of tensors check their arguments."""
    for name, text in _table()["Tensor"].items():
        value = METHODS.get(name)
        if value is not None and Tensor.__dict__.get(name) is value and not _checks_itself(value):
            text = "|".join(f"self:T {overload}" for overload in text.split("|"))
            METHODS[name] = found = checked(value, name, text)
            setattr(Tensor, name, found)


_waiting = {"", "nn.functional", "linalg", "fft", "special"}  # modules that were not imported when `install` last ran
