"""Dtypes and kinds of arguments that functions refuse.

NumPy computes more than PyTorch defines: it orders complex numbers, and it rounds bools. In PyTorch mode, the calls that
PyTorch refuses raise its errors. Natively, only functions of complex numbers without a mathematical meaning raise, and functions
of integers whose result would be rounded to integers.
"""

import functools
import inspect
import math
from types import FunctionType

import numpy as np

from ...arrays import config, dtypes
from ...arrays.arguments import names_of
from ...arrays.array import Array
from ...arrays.errors import NotTensorError, kind
from ...arrays.overriding import asks
from ...arrays.tensor import Tensor
from ...autograd.mode import get_mode

# A table instead of checks in each op: the rules are PyTorch's, not a consequence of what the ops compute.
# Ops -> kinds of dtypes that they refuse: b for bool, i for integers, c for complex numbers. A capital letter stands for
# a RuntimeError, another one for a NotImplementedError, as in PyTorch.
_KINDS = {
    "b": "_divide_floor abs bitwise_left_shift bitwise_right_shift ceil floor floor_divide fmod linear matmul pow remainder trunc",
    "bc": "clamp median round",
    "bci": "add_layer_norm batch_norm cross_entropy elu gated gelu group_norm hardshrink hardsigmoid hardswish igamma igammac layer_norm leaky_relu "
    "log_softmax logsigmoid nextafter softmax softplus softshrink",
    "bi": "add_rms_norm eigh hypot lu rms_norm silu logaddexp logaddexp2 logcumsumexp",
    "BcI": "dropout",
    "c": "_clipped_error _logistic_error _squared_error amax amin avg_pool binary_cross_entropy copysign digamma entr erf erfc erfcx "
    "erfinv ge gt heaviside i0 i0e i1 i1e le lgamma logit lt masked_softmax max_of_all max_pool min_of_all ndtri nll polygamma "
    "relu_squared scatter_extreme sign special_xlog1py threshold xlogy zeta",
    "i": "lerp",
    "BI": "adjugate cholesky eig inverse linalg_det linalg_solve logabsdet norm pinv qr sign_of_det std svd var",
    "Bc": "hardtanh relu",
    "C": "deg2rad fmax fmin max maximum min minimum rad2deg sort",
    "BC": "argmax argmin topk",
}
_CHARACTERS = {"b": "?", "i": "bBhHiIlLqQ", "c": "FD"}
REFUSED = {name: letters for letters, names in _KINDS.items() for name in names.split()}
# Ops whose result has the dtype of the input, but is a fraction.
_FRACTIONS = set(
    "add_layer_norm add_rms_norm batch_norm cross_entropy dropout group_norm layer_norm rms_norm std var".split()
)
_CATEGORIES = {dtypes.BOOL: "b", dtypes.INT: "i", dtypes.FLOAT: "f"}  # any other one is complex

# Ops of one or two inputs whose first or second input can be a number. All other inputs are tensors.
_FIRST = set(
    "add sub mul div floor_divide _divide_floor _divide_trunc pow remainder bitwise_and bitwise_or bitwise_xor bitwise_left_shift "
    "bitwise_right_shift xlogy special_xlog1py zeta".split()
)
_OF_NUMBERS = {"mul", "floor_divide"}  # which PyTorch accepts without a tensor, as it does `add(1, 2)`
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
    if letter in letters.lower() and (letter == "c" or name in _FRACTIONS or config.pytorch_mode):
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
    if op.name not in _OF_NUMBERS and not any(isinstance(x, (Tensor, Array)) for x in inputs):
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
    "bi": "binary_cross_entropy_with_logits grid_sample grid_sampler huber_loss kl_div rms_norm soft_margin_loss",
    "bic": "batch_norm glu histogramdd rrelu max_unpool1d max_unpool2d max_unpool3d",
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
    "cholesky_solve": "input L", "complex": "real imag", "batch_norm": "running_mean running_var", "cross": "input other", "grid_sample": "input grid",
    "grid_sampler": "input grid", "lu_solve": "LU B b LU_data", "ormqr": "input tau other", "histogramdd": "input weight", "polar": "abs angle", "prelu": "input weight", "solve": "A B",
    "solve_ex": "A B", "tensorsolve": "A B", "vecdot": "x y",
    "conv_transpose1d": "input weight", "conv_transpose2d": "input weight", "conv_transpose3d": "input weight bias", "cdist": "x1 x2",
}  # fmt: skip
# Kinds of arguments -> names of the parameters that have them in PyTorch's functions: T for a tensor, i for an integer, f for a
# float, n for any number, b for a bool, s for a string, I for integers, L for tensors, F for floats. "Tn" is a tensor or a number.
_PARAMETERS = {
    "F": "range",
    "I": "blocksize dilation dims kernel_size normalized_shape output_padding output_size pad padding s shifts size sizes split_sizes "
    "stride",
    "IT": "input_lengths target_lengths",
    "Ii": "destination indices_or_sections split_size_or_sections",
    "L": "params tensors",
    "T": "A B L LD LU LU_data LU_pivots M a abs anchor angle append attn_mask aweights b b_hh b_ih batch1 batch2 bias boundaries count "
    "fweights grid hx imag index indices input input1 input2 key lengths log_probs mask mat mat1 mat2 negative offsets "
    "per_sample_weights pivots pos_weight positive prepend prob query real running_mean running_var sorted_sequence sorter source src "
    "target targets tau tensor1 tensor2 theta values vec vec1 vec2 w_hh w_ih weight weights window x x1 x2 y",
    "Tf": "q tol",
    "Ti": "repeats",
    "Ts": "equation",
    "Tn": "elements exponent max min other test_elements",
    "b": "accumulate adjoint align_corners as_tuple assume_unique batch_first bidirectional ceil_mode check_errors compute_uv count_include_pad "
    "density descending enable_gqa equal_nan full full_matrices has_biases hermitian include_last_offset include_self increasing "
    "invert is_causal keepdim largest left log_input log_target normalized onesided out_int32 periodic pivot replacement requires_grad "
    "return_complex return_counts return_inverse right scale_grad_by_freq some sorted sparse stable swap train training transpose "
    "unbiased unitriangular unpack_data unpack_pivots upper use_input_stats with_replacement wrap zero_infinity",
    "f": "atol base d delta dropout dropout_p eps margin max_norm mean median momentum nan neginf norm_type p posinf rcond rtol scale "
    "sigma std",
    "i": "N bins blank chunks col decimals dense_dim diagonal dim dim0 dim1 dim2 dimension divisor_override downscale_factor edge_order "
    "end_dim from_ groups high hop_length ignore_index ind interpolation_mode k length low m minlength n n_fft num_classes num_groups "
    "num_layers num_samples offset padding_idx padding_mode r row sparse_dim start start_dim step steps storage_offset to "
    "upscale_factor win_length window_length",
    "n": "alpha beta correction dx fill_value initial lambd lower max_val maxnorm min_val negative_slope threshold value",
    "ns": "ord",
    "s": "UPLO approximate driver indexing interpolation norm pad_mode rounding_mode side",
}
# The parameters of functions that have another kind than others of their name. "?" is any kind.
_OTHER_PARAMETERS = {
    "Ii": "randint.low randint.high all.dim any.dim count_nonzero.dim gradient.dim moveaxis.source movedim.source squeeze.dim",
    "T": "one_hot.tensor atan2.other cross.other dist.other expand_as.other fmax.other fmin.other gcd.other heaviside.other hypot.other igamma.other "
    "igammac.other inner.other isclose.other allclose.other kron.other lcm.other ldexp.other logaddexp.other logaddexp2.other "
    "logical_and.other logical_or.other logical_xor.other matmul.other max.other maximum.other min.other minimum.other nextafter.other "
    "ormqr.other reshape_as.other resize_as_.other scaled_dot_product_attention.value type_as.other vdot.other view_as.other",
    "I": "amax.dim amin.dim fft2.dim fftn.dim fftshift.dim hfft2.dim hfftn.dim ifft2.dim ifftn.dim ifftshift.dim ihfft2.dim ihfftn.dim "
    "irfft2.dim irfftn.dim logsumexp.dim matrix_norm.dim mean.dim nanmean.dim nansum.dim norm.dim rfft2.dim rfftn.dim "
    "sum.dim vector_norm.dim",
    "n": "scalar_tensor.s local_response_norm.k arange.end arange.start arange.step dist.p histc.max histc.min multi_margin_loss.margin multi_margin_loss.p pad.value range.end "
    "range.start range.step renorm.p rrelu.upper vector_norm.ord",
    "Tf": "bernoulli.p matrix_rank.atol matrix_rank.rtol normal.mean normal.std pinv.atol pinv.rcond pinv.rtol",
    "Tn": "bitwise_and.input bitwise_left_shift.input bitwise_or.input bitwise_right_shift.input bitwise_xor.input bucketize.input "
    "fill.value scatter.src float_power.input index_fill.value lerp.weight linspace.end linspace.start "
    "logspace.end logspace.start masked_fill.value pow.input remainder.input result_type.tensor1 "
    "result_type.tensor2 searchsorted.values where.input xlog1py.input xlogy.input zeta.input",
    "Is": "conv1d.padding conv2d.padding conv3d.padding",
    "i": "conv_tbc.pad mvlgamma.p multigammaln.p repeat_interleave.output_size select.index select_scatter.index",
    "f": "exponential.lambd hamming_window.alpha hamming_window.beta kaiser_window.beta smooth_l1_loss.beta trapz.dx "
    "uniform.from_ uniform.to",
    "Ib": "std.dim std_mean.dim var.dim var_mean.dim",
    "ns": "norm.p",
    "s": "grid_sample.padding_mode index_reduce.reduce pad.mode qr.mode scatter.reduce scatter_reduce.reduce",
    "?": "apply_rotary_pos_embed.k apply_rotary_pos_embed.q cond.p cross.dim frobenius_norm.dim frombuffer.count gumbel_softmax.tau "
    "masked_softmax.dim native_dropout.train norm.ord nuclear_norm.dim scaled_dot_product_attention.window set_warn_always.b special_xlog1py.input svd_lowrank.q "
    "max_unpool1d.output_size max_unpool2d.output_size max_unpool3d.output_size tensordot.dims multilabel_soft_margin_loss.target",
    "Ti": "max.dim min.dim histogram.bins narrow.start randint_like.high",
    "ITi": "tensor_split.indices_or_sections",
    "ILi": "histogramdd.bins",
    "L": "index_put.indices lstm.hx lstm_cell.hx",
}
# The parameters for which None is a value, although it is not the default here.
_OPTIONAL = frozenset(
    "bias nan running_mean running_var spacing stable to weight.batch_norm weight.instance_norm p.norm start.slice_scatter end.slice_scatter storage_offset requires_grad dim.amax dim.amin".split()
)
# Functions that PyTorch writes in Python and that read their arguments as Python does.
_IN_PYTHON = frozenset("multi_head_attention_forward normalize getitem setitem".split())
_NONE = type(None)
_BUILTIN = frozenset((int, float, complex, bool, str, list, tuple, _NONE))
_OF_KIND = {
    "T": (), "L": (list, tuple), "b": (bool,), "i": (int,), "f": (int, float, bool), "n": (int, float, complex, bool), "s": (str,),
    "I": (int, list, tuple), "F": (int, float, bool, list, tuple),
}  # fmt: skip
_WORDS = {
    "T": "Tensor", "L": "tuple of Tensors", "b": "bool", "i": "int", "f": "float", "n": "Number", "s": "str", "I": "tuple of ints",
    "F": "tuple of floats",
}  # fmt: skip
_NUMBER = (dtypes.BOOL, dtypes.INT, dtypes.FLOAT, dtypes.COMPLEX)
_SCALARS = {"i": (dtypes.INT,), "I": (dtypes.INT,), "f": _NUMBER, "n": _NUMBER}  # tensors without axes that are numbers
_NOT_INTEGERS = frozenset((float, complex, str, list, tuple, _NONE))  # as elements of a list of integers
# Functions whose tensors can be numbers.
_NUMBERS = frozenset("add div divide floor_divide mul multiply sub subtract true_divide".split())


@functools.cache
def _kinds():
    """Returns {parameter or function.parameter: kinds}."""
    tables = _PARAMETERS, _OTHER_PARAMETERS
    return {name: kinds for table in tables for kinds, names in table.items() for name in names.split()}


def _refused_types(name, parameter, default):
    """Returns (the built-in types that a parameter of a function refuses, its kinds)."""
    name = name.rstrip("_")
    kinds = _kinds().get(f"{name}.{parameter}") or _kinds().get(parameter)
    if kinds in (None, "?") or name in _IN_PYTHON:
        return frozenset(), ""
    accepted = {t for k in kinds for t in _OF_KIND[k]}
    if kinds == "T" and name in _NUMBERS:
        accepted |= {int, float, complex, bool}
    if default is None or parameter in _OPTIONAL or f"{parameter}.{name}" in _OPTIONAL:
        accepted.add(_NONE)
    return _BUILTIN - accepted, kinds


class _Rules:
    """What one function refuses: types for each parameter, different dtypes, and kinds of dtypes."""

    def __init__(self, function):
        plain = inspect.unwrap(function)
        code, self.name, own = plain.__code__, function.__name__, names_of(plain)
        count = code.co_argcount
        defaults = dict(zip(own[count - len(plain.__defaults__ or ()) : count], plain.__defaults__ or (), strict=True))
        defaults |= plain.__kwdefaults__ or {}
        found = {n: _refused_types(self.name, n, defaults.get(n, _Rules)) for n in own}
        self.places = {n: i for i, n in enumerate(own)}
        self.kinds = {n: kinds for n, (_, kinds) in found.items()}
        # Lists of integers, and tensors in the place of numbers, are looked into.
        self.watched = {
            n: types.union(
                (list, tuple) if "I" in kinds and "L" not in kinds else (),
                () if not {*"TL"}.isdisjoint(kinds or "T") else (Tensor,),
            )
            for n, (types, kinds) in found.items()
        }
        self.count, self.most = count, math.inf if code.co_flags & inspect.CO_VARARGS else count
        self.alike = [(n, self.places[n]) for n in own if n in _ONE_DTYPE.get(self.name, "").split()]
        self.letters = _COMPOSED.get(self.name, "")

    def check(self, args, kwargs):
        """Checks a call. Returns the places of the lists to look into in further calls with the same types; None to check them all.

        Raises:
            TypeError, RuntimeError, NotImplementedError: PyTorch refuses the arguments.
        """
        if len(args) > self.most:  # the function refuses them, or reads a deprecated order
            return None
        lists, tensors = [], False
        for name, value in (*zip(self.places, args[: self.count]), *kwargs.items()):  # noqa: B905 - not all are given
            if type(value) in self.watched.get(name, ()):
                self.examine(name, value)
                tensors |= isinstance(value, Tensor)
                lists.append(self.places[name] if name not in kwargs else len(args) + [*kwargs].index(name))
        if self.letters and args and isinstance(args[0], Tensor):
            _refuse_kind(self.name, self.letters, args[0])
        if self.alike:
            found = [args[i] if i < len(args) else kwargs.get(n) for n, i in self.alike]
            _refuse_different(self.name, [x.dtype for x in found if isinstance(x, Tensor)])
        return None if self.letters or self.alike or tensors else lists

    def examine(self, name, value):
        """Checks a value of a watched type.

        Raises:
            TypeError: the parameter does not accept it.
        """
        kinds, place = self.kinds[name], f"{self.name}(): argument '{name}' (position {self.places[name] + 1})"
        if (
            isinstance(value, Tensor)
            and value.ndim == 0
            and value.dtype.category in {c for k in kinds for c in _SCALARS.get(k, ())}
        ):
            return
        if type(value) not in (list, tuple) or "I" not in kinds:
            error = NotTensorError if "T" in kinds else TypeError
            raise error(f"{place} must be {' or '.join(_WORDS[k] for k in kinds)}, not {kind(value)}")
        for k, x in enumerate(value):
            if type(x) in _NOT_INTEGERS and not (x is None and name == "output_size"):
                raise TypeError(f"{place} must be tuple of ints, but found element of type {kind(x)} at pos {k}")


def argument_check(function):
    """Returns a function of (args, kwargs) that refuses what PyTorch refuses, or None for a function that needs no check.

    Wrappers of functions composed of ops call it in PyTorch mode, where each argument has the kind that PyTorch's parser asks for,
    and the tables above hold. The rules are read at the first call.
    """
    if asks(function) or not isinstance(inspect.unwrap(function), FunctionType):
        return None
    rules, accepted = None, {}  # the types of accepted arguments: the places of lists

    def check(args, kwargs):
        nonlocal rules
        kinds = (*map(type, args), *kwargs, *map(type, kwargs.values())) if kwargs else (*map(type, args),)
        lists = accepted.get(kinds)
        if lists == []:  # nearly every call
            return
        if lists:
            values = (*args, *kwargs.values())
            if all(_NOT_INTEGERS.isdisjoint(map(type, values[i])) for i in lists):
                return
        if rules is None:
            rules = _Rules(function)
        lists = rules.check(args, kwargs)
        if lists is not None and len(accepted) < 64:
            accepted[kinds] = lists

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
