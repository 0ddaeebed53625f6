"""Dtypes and kinds of arguments that functions refuse.

NumPy computes more than PyTorch defines: it orders complex numbers, and it rounds bools. In PyTorch mode, the calls that
PyTorch refuses raise its errors. Natively, only functions of complex numbers without a mathematical meaning raise.
"""

import functools
import inspect
from types import FunctionType

import numpy as np

from ...arrays import config, dtypes
from ...arrays.arguments import names_of
from ...arrays.array import Array
from ...arrays.errors import kind
from ...arrays.tensor import Tensor
from ...autograd.mode import get_mode

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
    if not any(isinstance(x, (Tensor, Array)) for x in inputs):
        raise TypeError(
            f"{op.name}() received an invalid combination of arguments - got ({', '.join(map(kind, inputs))}), but expected at least "
            "one Tensor"
        )


# Functions composed of ops -> kinds of dtypes that they refuse in PyTorch mode, as above, and h for float16, x for bfloat16.
_COMPOSED_KINDS = {
    "B": "gradient",
    "BC": "isin",
    "BI": "matrix_rank vecdot",
    "BIc": "scaled_dot_product_attention",
    "b": "avg_pool1d avg_pool2d avg_pool3d conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d histc "
    "local_response_norm threshold trace",
    "bi": "binary_cross_entropy_with_logits grid_sample grid_sampler",
    "bic": "glu max_unpool1d max_unpool2d max_unpool3d",
    "bihx": "cholesky_solve solve_triangular triangular_solve",
    "c": "adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d fractional_max_pool2d fractional_max_pool3d interpolate "
    "upsample upsample_bilinear upsample_nearest",
    "hx": "cdist cholesky_inverse cond eig eigh eigvals eigvalsh erfcx histogram log_ndtr lu_solve ndtri qr solve solve_ex svd svdvals "
    "tensorsolve",
    "HX": "fft fft2 fftn hfft hfft2 hfftn ifft ifft2 ifftn ihfft ihfft2 ihfftn inv inv_ex irfft irfft2 irfftn logdet pinverse rfft "
    "rfft2 rfftn slogdet tensorinv",
    "ic": "nll_loss",
    "ihx": "householder_product lu_factor lu_factor_ex lu multi_margin_loss multilabel_margin_loss ormqr",
}
_COMPOSED = {name: letters for letters, names in _COMPOSED_KINDS.items() for name in names.split()}
# Functions composed of ops -> arguments that have one dtype.
_ONE_DTYPE = {
    "addbmm": "input batch1 batch2", "addmm": "input mat1 mat2", "addmv": "input mat vec", "bilinear": "input1 input2 weight bias",
    "cholesky_solve": "input L", "complex": "real imag", "cross": "input other", "grid_sample": "input grid",
    "grid_sampler": "input grid", "lu_solve": "LU B b LU_data", "polar": "abs angle", "prelu": "input weight", "solve": "A B",
    "solve_ex": "A B", "tensorsolve": "A B", "vecdot": "x y",
    "conv_transpose1d": "input weight", "conv_transpose2d": "input weight", "conv_transpose3d": "input weight bias", "cdist": "x1 x2",
}  # fmt: skip
# Functions composed of ops -> arguments that are tensors, not numbers or lists.
_TENSORS = {
    "addcdiv": "input tensor1 tensor2", "addcmul": "input tensor1 tensor2", "bilinear": "input1 input2 weight", "dist": "input other",
    "pairwise_distance": "x1 x2", "complex": "real imag", "heaviside": "input values", "max": "input", "min": "input", "soft_margin_loss": "input target", "vecdot": "x y", "polar": "abs angle",
    **dict.fromkeys(
        "alias_copy alpha_dropout as_strided_scatter celu clamp clamp_max clamp_min clone dropout elu feature_alpha_dropout frac gelu "
        "hardshrink hardsigmoid hardswish histc kl_div leaky_relu logit logsigmoid mish mvlgamma nan_to_num nonzero positive relu relu6 "
        "resolve_conj resolve_neg round rsub selu silu sinc softplus softshrink tanhshrink threshold unique "
        "unique_consecutive".split(), "input",
    ),
}  # fmt: skip
# Arguments with a default of True or False that PyTorch does not check, or that it does not have.
_ANY_FLAG = frozenset(
    "auto average_attn_weights center fused get_infos inplace is_causal need_weights pin_memory requires_grad return_indices "
    "sparse_grad stable sym use_separate_proj_weight antialias".split()
)
_IN_PYTHON = "multi_head_attention_forward"  # whose flags PyTorch does not check
_BUILTIN = frozenset((int, float, complex, bool, str, list, tuple, type(None)))


def argument_check(function):
    """Returns a function of (args, kwargs) that refuses what PyTorch refuses, or None if there is no rule for the function.

    Wrappers of functions composed of ops call it in PyTorch mode. There, a flag is a bool, and the tables above hold.
    """
    plain = inspect.unwrap(function)
    if not isinstance(plain, FunctionType) or hasattr(function, "spellings"):
        return None
    name, own = function.__name__, names_of(plain)
    count = plain.__code__.co_argcount
    defaults = dict(zip(own[count - len(plain.__defaults__ or ()) : count], plain.__defaults__ or (), strict=True))
    defaults |= plain.__kwdefaults__ or {}
    places = {n: i if i < count else count for i, n in enumerate(own)}  # keyword-only: after all positions
    flags = [(n, places[n]) for n in own if type(defaults.get(n)) is bool and n not in _ANY_FLAG and name != _IN_PYTHON]
    tensors = [(n, places[n]) for n in own if n in _TENSORS.get(name, "").split()]
    alike = [(n, places[n]) for n in own if n in _ONE_DTYPE.get(name, "").split()]
    letters = _COMPOSED.get(name, "")
    if not (flags or tensors or alike or letters):
        return None
    first_flag = min((i for _, i in flags), default=count)

    def check(args, kwargs):
        if len(args) > first_flag or kwargs:
            for n, i in flags:
                value = args[i] if i < len(args) < count + 1 else kwargs.get(n, True)
                if type(value) is not bool and type(value) in _BUILTIN:
                    raise TypeError(f"{name}(): argument '{n}' (position {i + 1}) must be bool, not {kind(value)}")
        for n, i in tensors:
            value = args[i] if i < len(args) else kwargs.get(n, check)
            if type(value) in _BUILTIN:
                raise TypeError(f"{name}(): argument '{n}' (position {i + 1}) must be Tensor, not {kind(value)}")
        if alike:
            found = [args[i] if i < len(args) else kwargs.get(n) for n, i in alike]
            _refuse_different(name, [x.dtype for x in found if isinstance(x, Tensor)])
        if letters and args and isinstance(args[0], Tensor):
            _refuse_kind(name, letters, args[0])

    return check


def _refuse_different(name, found):
    if len(set(found)) > 1 and get_mode().autocast is None:
        raise RuntimeError(
            f"{name}: expected all tensors to have the same dtype, got {' and '.join(map(str, found))}. Convert one with to()."
        )


def _refuse_kind(name, letters, tensor):
    dtype = tensor.dtype
    letter = _CATEGORIES.get(dtype.category, "c")
    if letter == "f":
        letter = "" if dtype.itemsize > 2 else "h" if dtype.name == "float16" else "x"
    if letter and letter in letters.lower() and get_mode().autocast is None:
        error = NotImplementedError if letter in letters else RuntimeError
        raise error(f'"{name}" is not implemented for {dtype.name}. Convert the inputs to another dtype.')


def refuse_grad(function, always=False, /, **arguments):
    """Checks that arguments for which PyTorch's function has no derivative do not require gradients.

    Args:
        function: the name of the function.
        always: the function has no derivative here either. Otherwise the arguments are refused in PyTorch mode only.
        arguments: the arguments.

    Raises:
        RuntimeError: an argument requires gradients while recording.
    """
    for name, value in arguments.items():
        if value is not None and (always or config.pytorch_mode) and getattr(value, "requires_grad", False):
            if get_mode().grad:
                raise RuntimeError(
                    f"The function '{function}' is not differentiable with respect to argument '{name}'. This input cannot have "
                    "requires_grad True. Use detach()."
                )


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
