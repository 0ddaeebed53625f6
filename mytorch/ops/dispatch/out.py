"""The argument `out` of functions: the result is written into a tensor that the user passes.

The function computes its result without `out` and then copies it, so `out` does not save time. It exists for programs
that use it. As in PyTorch, a tensor of another shape is resized, with a warning if it has elements. A dtype of a lower
kind raises an error, and `out` cannot be combined with recording.
"""

import functools
import inspect

from ...arrays import config, dtypes
from ...arrays.arguments import names_of, suggestion
from ...arrays.dtypes import word_of
from ...arrays.errors import warn
from ...arrays.overriding import NOTHING, asking, can_override, overriding
from ...autograd.mode import get_mode
from .errors import not_a_tensor
from .overlap import refuse_overlap, refuse_shared
from .refused import argument_check


def check_out(out, inputs, name):
    """Checks that PyTorch's function has an argument `out`, and that it shares no memory with an input.

    Raises:
        TypeError: PyTorch's function has no argument `out` (in PyTorch mode).
        RuntimeError: the memory is shared.
    """
    if isinstance(out, (tuple, list)) and name in _APART:
        for part in out:
            check_out(part, inputs, name)
    if not hasattr(out, "_version_counter") and not hasattr(out, "_mt_data"):
        return
    if config.pytorch_mode and name in _WITHOUT_OUT:
        raise TypeError(f"{name}() got an unexpected keyword argument 'out'")
    if get_mode().interpreter:
        get_mode().interpreter.check_out((out, *inputs))
    for x in inputs:
        for item in x if isinstance(x, (list, tuple)) else (x,):
            if hasattr(item, "_mt_data"):
                refuse_overlap(out, item, name, elementwise=name not in _APART)


# Functions whose `out` has exactly the dtype of the result.
_SAME_DTYPE = frozenset(
    "abs absolute addbmm addmm addmv amax amin aminmax argmax argmin baddbmm bitwise_not bmm bucketize ceil chain_matmul cholesky clamp complex "
    "clamp_max clamp_min clip cross diag dot eigvalsh float_power floor frac gather hardshrink heaviside histc index_add index_copy "
    "index_select inner inverse isin log_softmax logcumsumexp lu_solve masked_select matmul matrix_norm matrix_power mm msort multi_dot "
    "multinomial mv nan_to_num nanquantile narrow_copy neg norm nuclear_norm polar quantile renorm round scatter scatter_add scatter_reduce "
    "searchsorted sgn sign signbit slice_scatter softmax softplus take take_along_dim tensordot tril triu trunc vdot where".split()
)
# Functions whose `out` cannot be an input.
_APART = frozenset(
    "cat column_stack concat concatenate dstack gather hstack index_add index_copy index_select kron kthvalue masked_select row_stack stack take "
    "take_along_dim vstack".split()
)
_JOINS = frozenset("cat column_stack concat concatenate dstack hstack row_stack stack vstack".split())


# Functions of PyTorch without an argument `out`.
_WITHOUT_OUT = frozenset(
    "adaptive_avg_pool1d adaptive_max_pool1d adjoint argsort argwhere atleast_1d atleast_2d atleast_3d avg_pool1d block_diag "
    "broadcast_tensors cdist celu chunk clone conj corrcoef cosine_similarity count_nonzero cov cumulative_trapezoid det detach "
    "diag_embed diagflat diagonal dist einsum fill flatten fliplr flipud flip gradient group_norm hsplit imag isclose isfinite "
    "isinf isnan isreal kl_div logdet matrix_exp pairwise_distance pdist pinverse positive put ravel real relu repeat_interleave "
    "resolve_conj resolve_neg roll rot90 rsub selu split squeeze std_mean t tensor_split tile trapezoid trapz unbind unique "
    "unique_consecutive unravel_index unsqueeze var_mean view_as_real vsplit".split()
)


_NOT_DIFFERENTIABLE = "{}(): functions with out=... arguments don't support automatic differentiation, but one of the arguments requires grad."


def write_out(result, out, name, exact=False):
    """Copies a result, or a tuple of results, into `out`. Returns `out`.

    Args:
        out: the tensor or tuple of tensors to write to.
        name: name of the function.
        exact: require equal dtypes, as for values and their indices.

    Raises:
        RuntimeError: a tensor requires gradients, or the dtype of `out` cannot store the result.
        TypeError: `out` is not a tensor, or not a tuple of the right length.
    """
    if isinstance(result, (tuple, list)):
        if not isinstance(out, (tuple, list)) or len(out) != len(result):
            raise TypeError(f"{name}(): argument 'out' must be a tuple of {len(result)} Tensors.")
        exact = exact or "indices" in getattr(result, "_fields", ())
        written = [write_out(r, o, name, exact) for r, o in zip(result, out, strict=True)]
        return type(result)(*written) if hasattr(result, "_fields") else type(out)(written)
    if not hasattr(out, "copy_"):
        raise TypeError(f"{name}(): argument 'out' must be Tensor, not {type(out).__name__}")
    if out.device != result.device:
        raise RuntimeError(
            f"{name}: expected out on the device of the result, {result.device}, got {out.device}. Move it with to()."
        )
    if get_mode().grad and (result.requires_grad or (out.requires_grad and result.dtype.category >= dtypes.FLOAT)):
        raise RuntimeError(_NOT_DIFFERENTIABLE.format(name))
    exact = exact or name in _SAME_DTYPE
    if name in ("abs", "absolute") and out.dtype.is_complex:
        exact = False  # the result of complex numbers is real
    if name in ("all", "any") and out.dtype.name not in ("bool", "uint8"):
        raise RuntimeError(f"{name} only supports bool tensor for result, got: {out.dtype}")
    given, wanted = (word_of(t.dtype) for t in (result, out))
    if exact and given != wanted:
        raise RuntimeError(f"{name}: expected scalar type {given} but got {wanted} for argument 'out'")
    if result.dtype.category > out.dtype.category:
        error = TypeError if name in _JOINS else RuntimeError
        raise error(f"result type {given} can't be cast to the desired output type {wanted}")
    refuse_shared(out, name)
    if tuple(out.shape) != tuple(result.shape):
        if out.numel():
            warn(
                f"An output with one or more elements was resized since it had shape {list(out.shape)}, which does not "
                f"match the required output shape {list(result.shape)}. This behavior is deprecated, and in a future "
                "PyTorch release outputs will not be resized unless they have zero elements."
            )
        # Resized and given the order of axes of the result, so that `out` looks like the result of a call without it.
        out.resize_(tuple(result.shape))
        if not (result.is_contiguous() or name.startswith("fft")):  # PyTorch's transforms resize in row-major order
            out.as_strided_(tuple(result.shape), result.stride(), out.storage_offset())
    (out if result.dtype.category >= dtypes.FLOAT else out.detach()).copy_(result)
    return out


# Names of arguments in PyTorch's schemas and in NumPy -> names that functions of this library have instead.
_FURTHER_NAMES = {
    "input": "A tensor tensors x b L self", "x1": "input", "a": "input", "x2": "other", "other": "B", "b": "B",
    "element": "elements", "test_element": "test_elements", "sections": "indices_or_sections",
    "indices": "indices_or_sections", "tensor_indices_or_sections": "indices_or_sections", "input2": "L tau",
    "input3": "other", "the_template": "other", "scalar": "tensor1", "scalar1": "tensor1", "scalar2": "tensor2",
}  # fmt: skip


def in_own_names(names, kwargs):
    """Returns keyword arguments by the names of a function, where PyTorch's schema has others, or None if that changes nothing.

    Args:
        names: the names of the arguments of the function.
    """
    renamed = {}
    for word, value in kwargs.items():
        if word not in names:
            further = _FURTHER_NAMES.get(word, "").split()
            word = next((own for own in further if own in names and own not in kwargs), word)
        if word in renamed:
            return None
        renamed[word] = value
    return renamed if renamed.keys() != kwargs.keys() else None


_IN_DTYPE_OF_OUT = frozenset(
    ("sum", "prod", "cumsum", "cumprod")
)  # which convert the input to the dtype of `out` first


def takes_out(function):
    """Adds an argument `out` to a function. Ops, and functions that already have it, are returned unchanged."""
    if hasattr(function, "op") or not inspect.isfunction(function) or "out" in names_of(inspect.unwrap(function)):
        return function
    check = argument_check(function)

    @functools.wraps(function)
    def with_out(*args, out=None, **kwargs):
        if overriding.on:
            given = kwargs if out is None else {**kwargs, "out": out}
            if can_override(args, given) and (result := overriding.ask(with_out, args, given)) is not NOTHING:
                return result
        if out is not None and function.__name__ in _IN_DTYPE_OF_OUT and hasattr(out, "dtype"):
            if kwargs.get("dtype") is None:
                kwargs["dtype"] = out.dtype
            if get_mode().grad and any(getattr(x, "requires_grad", False) for x in args[:1]):
                raise RuntimeError(_NOT_DIFFERENTIABLE.format(function.__name__))  # also if that dtype has no gradient
        if check is not None and config.pytorch_mode:
            check(args, kwargs)
        try:
            result = function(*args, **kwargs)
        except TypeError as error:
            if (result := overriding.refused(with_out, args, kwargs)) is not NOTHING:
                return result
            # Perhaps because of other names. Trying first keeps the usual call free of this.
            words = in_own_names(names_of(inspect.unwrap(function)), kwargs) if kwargs else None
            if words is None:
                if (hint := suggestion(error, function, kwargs)) is not None:
                    raise hint from None
                raise
            result = function(*args, **words)
        except AttributeError as error:
            if (result := overriding.refused(with_out, args, kwargs)) is not NOTHING:
                return result
            raise not_a_tensor(error, function.__name__, args) from None
        if out is None:
            return result
        check_out(out, args, function.__name__)
        # A norm in a complex dtype is real.
        if kwargs.get("dtype") is not None and hasattr(out, "dtype") and result.dtype != out.dtype:
            raise RuntimeError(f"Expected out tensor to have dtype {result.dtype}, but got {out.dtype} instead")
        return write_out(result, out, function.__name__)

    with_out.__wrapped__ = SignatureExtra(function, "out", None)
    return asking(with_out)


class SignatureExtra:
    """The signature of a function with one additional argument, for `inspect.signature`."""

    def __init__(self, function, name, default):
        self.__wrapped__ = function
        self.name, self.default = name, default

    @property
    def __signature__(self):
        own = inspect.signature(self.__wrapped__)
        given = [p for p in own.parameters.values() if p.name != self.name]
        last = len(given) - any(p.kind is p.VAR_KEYWORD for p in given)
        further = inspect.Parameter(self.name, inspect.Parameter.KEYWORD_ONLY, default=self.default)
        return own.replace(parameters=[*given[:last], further, *given[last:]])
