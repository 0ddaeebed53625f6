"""`torch.ops.aten`: PyTorch's names of operators, for the operations of this library.

`torch.ops.aten.add` is a packet, and `torch.ops.aten.add.Tensor` is one overload of it. Both call the public function with the
arguments in PyTorch's order. Dispatch modes receive the same overloads (`utils/_python_dispatch.py`).
"""

import functools
import sys

from .. import fft, linalg, special
from ..arrays import dtypes
from ..arrays.tensor import Tensor
from ..ops import functional as F
from ..ops.creation import empty, full
from ..ops.dispatch.record import RECORDS
from .stubs import AbsentError

# Overloads that PyTorch's operators have. All overloads of an operator run the same function.
_OVERLOADS = frozenset(
    "default Tensor Scalar int out Tensor_out Scalar_out dim dim_IntList dim_max dim_min dims values using_ints Scalar_Tensor "
    "Tensor_Scalar Tensor_Tensor Scalar_Scalar self Self ScalarSelf ScalarOther correction start start_step memory_format "
    "generator low low_generator sizes src value vec x unary_out other dtype dtype_layout input mode ScalarOpt_dim "
    "Tensor_mode Scalar_mode IntegralSelf reduce value_reduce two int_Scalar int_Tensor trunc names stable hacked_twin "
    "self_int self_Tensor equation p NumberTensor ScalarSelf_dim raw Tensor_Tensor_out batch dimname float complex copy msg device".split()
)


def _layer_norm(input, normalized_shape, weight, bias, eps):
    axes = tuple(range(-len(normalized_shape), 0))
    mean = input.mean(axes, keepdim=True)
    rstd = (input.var(axes, keepdim=True, correction=0) + eps).rsqrt()
    return F.layer_norm(input, normalized_shape, weight, bias, eps), mean, rstd


def _group_norm(input, weight, bias, N, C, HxW, group, eps):
    groups = input.reshape(N, group, -1)
    rstd = (groups.var(-1, correction=0) + eps).rsqrt()
    return F.group_norm(input, group, weight, bias, eps), groups.mean(-1), rstd


def _batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps):
    axes = (0, *range(2, input.ndim))
    empty_stats = empty(0, dtype=input.dtype, device=input.device)
    mean = input.mean(axes) if training else empty_stats
    rstd = (input.var(axes, correction=0) + eps).rsqrt() if training else empty_stats
    return F.batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps), mean, rstd


def _convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups):
    d = len(stride)
    if input.ndim - 2 != d:
        stride, padding, dilation, output_padding = (
            v * (input.ndim - 2) for v in (stride, padding, dilation, output_padding)
        )
        d = input.ndim - 2
    if transposed:
        transpose = getattr(F, f"conv_transpose{d}d")
        return transpose(
            input, weight, bias, tuple(stride), tuple(padding), tuple(output_padding), groups, tuple(dilation)
        )
    return getattr(F, f"conv{d}d")(input, weight, bias, tuple(stride), tuple(padding), tuple(dilation), groups)


def _dropout(input, p, train):
    if not train:
        return input, full(input.shape, True, device=input.device)
    kept = full(input.shape, 1 - p, device=input.device).bernoulli().to(dtypes.bool_)
    return input * kept / (1 - p) if p < 1 else input * 0, kept


def _slice(input, dim=0, start=None, end=None, step=1):
    if type(dim) is not int:
        return input[dim]  # of `__getitem__`, with its index
    return input[(slice(None),) * (dim % input.ndim) + (slice(start, end, step),)]


def _select(input, dim, index=None):
    return input[dim] if index is None else input.select(dim, index)


def _index(input, indices):
    return input[tuple(slice(None) if i is None else i for i in indices)]


def _index_put(input, indices, values, accumulate=False):
    full_indices = [slice(None) if i is None else i for i in indices]
    if all(isinstance(i, Tensor) for i in full_indices):
        return input.index_put(tuple(full_indices), values, accumulate)
    out = input.clone()
    if accumulate:
        values = out[tuple(full_indices)] + values
    out[tuple(full_indices)] = values
    return out


def _cast(input, *args, layout=None, pin_memory=None, **options):
    return input.to(*args, **{**options, "copy": True})


def _log_softmax(input, dim, half_to_float=False, dtype=None):
    return F.log_softmax(input, dim, dtype=dtypes.float32 if half_to_float is True else dtype)


def _softmax(input, dim, half_to_float=False, dtype=None):
    return F.softmax(input, dim, dtype=dtypes.float32 if half_to_float is True else dtype)


def _embedding(weight, indices, padding_idx=-1, scale_grad_by_freq=False, sparse=False):
    return F.embedding(indices, weight, None if padding_idx < 0 else padding_idx, scale_grad_by_freq=scale_grad_by_freq)


def _full(size, fill_value, **options):
    return full(size, fill_value, **{k: v for k, v in options.items() if v is not None})


def _max_pool(d):
    def pool(input, kernel_size, stride=(), padding=0, dilation=1, ceil_mode=False):
        options = {"stride": stride or None, "padding": padding, "dilation": dilation, "ceil_mode": ceil_mode}
        return getattr(F, f"max_pool{d}d")(input, kernel_size, return_indices=True, **options)

    return pool


# Operator -> function of PyTorch's arguments, if no public function has the name and the arguments.
_SPECIAL = {
    "_adaptive_avg_pool2d": F.adaptive_avg_pool2d,
    "_adaptive_avg_pool3d": F.adaptive_avg_pool3d,
    # The arguments after the ninth are flags of cuDNN, which do not change the result.
    "_convolution": lambda *args, **flags: _convolution(*args[:9]),
    "_local_scalar_dense": lambda input: input.item(),
    "_log_softmax": _log_softmax,
    "_reshape_alias": lambda input, size, stride: input.reshape(size),
    "_softmax": _softmax,
    "_to_copy": _cast,
    "_unsafe_view": lambda input, size: input.reshape(size),
    "alias": lambda input: input.view_as(input),
    "constant_pad_nd": lambda input, pad, value=0: F.pad(input, tuple(pad), value=value),
    "convolution": _convolution,
    "embedding": _embedding,
    "full": _full,
    "index": _index,
    "index_put": _index_put,
    "lift_fresh": lambda input: input,
    "max_pool2d_with_indices": _max_pool(2),
    "max_pool3d_with_indices": _max_pool(3),
    "native_batch_norm": _batch_norm,
    "native_dropout": _dropout,
    "native_group_norm": _group_norm,
    "native_layer_norm": _layer_norm,
    "select": _select,
    "sigmoid_backward": lambda grad, output: grad * output * (1 - output),
    "slice": _slice,
    "sym_size": lambda input, dim: input.shape[dim],
    "tanh_backward": lambda grad, output: grad * (1 - output * output),
    "threshold_backward": lambda grad, input, threshold: grad * (input > threshold),
}
_PREFIXES = {"linalg_": linalg, "fft_": fft, "special_": special}
# Name of an op of this library -> PyTorch's operator and overload, if they differ from the name and "default".
_OPERATORS = {
    "addcdiv": "addcdiv.default", "clone_ordered": "clone.default", "convolution_input": "convolution.default", "cross_entropy": "cross_entropy_loss.default",
    "flatten": "flatten.using_ints", "index": "index.Tensor", "index_write": "index_put.default", "lerp": "lerp.Scalar",
    "lerp_by_tensor": "lerp.Tensor", "logsigmoid": "log_sigmoid.default",
    "masked_fill": "masked_fill.Scalar", "matmul": "mm.default", "mean": "mean.default", "pad": "constant_pad_nd.default",
    "permute": "permute.default", "pow": "pow.Tensor_Scalar", "reshape": "view.default", "slice": "slice.Tensor",
    "softmax": "_softmax.default", "log_softmax": "_log_softmax.default", "squared_error": "mse_loss.default",
    "to": "_to_copy.default", "to_dtype": "_to_copy.default", "transpose": "transpose.int", "where": "where.self", "split": "split.Tensor",
    "select": "select.int", "std": "std.correction", "var": "var.correction",
}  # fmt: skip
_BINARY = frozenset(
    "add sub mul div remainder fmod floor_divide eq ne lt le gt ge bitwise_and bitwise_or bitwise_xor rsub true_divide "
    "copysign atan2 pow".split()
)
_REDUCTIONS = {
    "sum": "dim_IntList",
    "mean": "dim",
    "amax": "default",
    "amin": "default",
    "prod": "dim_int",
    "max": "dim",
}


def _function(name):
    """Returns the public function of an operator, or None."""
    if name in _SPECIAL:
        return _SPECIAL[name]
    top = sys.modules["mytorch"]
    for prefix, module in _PREFIXES.items():
        if name.startswith(prefix) and callable(found := getattr(module, name[len(prefix) :], None)):
            return found
    if name.startswith("__"):
        return None
    if not name.startswith("_") and not hasattr(Tensor, name) and hasattr(F, name):
        return getattr(F, name)
    method = getattr(Tensor, name, None)
    if callable(method) and not name.startswith("_"):
        return method
    found = getattr(top, name, None)
    return found if callable(found) and not isinstance(found, type) else None


class OpOverload:
    """One overload of an operator, such as `torch.ops.aten.add.Tensor`.

    Args:
        overload: name of the overload.
    """

    def __init__(self, packet, overload):
        self.overloadpacket = self._overloadpacket = packet
        self._overloadname, self.namespace = overload, "aten"
        self.__name__ = self.__qualname__ = f"{packet.__name__}.{overload}"
        self.__module__ = "torch._ops.aten"
        self.record = None  # the op of this library that a dispatch mode called

    def __deepcopy__(self, memo):
        return self

    def name(self):
        """Returns the name with the namespace, such as "aten::add.Tensor"."""
        base = f"aten::{self.overloadpacket.__name__}"
        return base if self._overloadname == "default" else f"{base}.{self._overloadname}"

    def __call__(self, *args, **kwargs):
        record = self.record
        if (
            record is not None
            and not record.variadic
            and kwargs.keys() <= record.attr_names
            and len(args) <= len(record.inputs)
        ):
            return record.dispatch(*args, **kwargs)
        return self.overloadpacket(*args, **kwargs)

    def __str__(self):
        return f"aten.{self.__name__}"

    def __repr__(self):
        return f"<OpOverload(op='aten.{self.overloadpacket.__name__}', overload='{self._overloadname}')>"


class OpOverloadPacket:
    """All overloads of an operator, such as `torch.ops.aten.add`.

    Args:
        name: name of the operator.
        function: function that computes it.
    """

    def __init__(self, name, function):
        self.__name__ = self.__qualname__ = name
        self.__module__ = "torch._ops.aten"
        self._function = function

    def __call__(self, *args, **kwargs):
        return self._function(*args, **kwargs)

    def __deepcopy__(self, memo):
        return self  # as in PyTorch: a copy of a table with operators as keys has the same keys

    def __getattr__(self, name):
        if name.startswith("__") or name not in _OVERLOADS:
            raise AttributeError(f"The underlying op of 'aten.{self.__name__}' has no overload name '{name}'")
        found = self.__dict__[name] = OpOverload(self, name)
        return found

    def overloads(self):
        """Returns the names of the overloads that a program has used."""
        return [name for name, value in self.__dict__.items() if isinstance(value, OpOverload)]

    def __str__(self):
        return f"aten.{self.__name__}"

    def __repr__(self):
        return f"<OpOverloadPacket(op='aten.{self.__name__}')>"


# Operators that packages only use as keys of a table. A call raises AbsentError.
_ONLY_NAMED = frozenset(
    "_assert_scalar _assert_tensor_metadata _convert_weight_to_int4pack _convert_weight_to_int4pack_for_cpu _dyn_quant_matmul_4bit "
    "_dyn_quant_pack_4bit_weight _efficient_attention_backward _efficient_attention_forward _efficientzerotensor "
    "_embedding_bag_forward_only _fft_c2c _flash_attention_backward _flash_attention_forward _grouped_mm _int_mm _is_all_true "
    "_mkldnn_transpose _native_batch_norm_legit _native_batch_norm_legit_no_training _nnz _pin_memory "
    "_scaled_dot_product_cudnn_attention _scaled_dot_product_cudnn_attention_backward _scaled_dot_product_efficient_attention "
    "_scaled_dot_product_flash_attention _scaled_dot_product_flash_attention_backward _scaled_mm _scaled_mm_v2 _sparse_addmm "
    "_sparse_mm_reduce_impl _unsafe_index _weight_int4pack_mm _weight_int4pack_mm_for_cpu _weight_int4pack_mm_with_scales_and_zeros "
    "cudnn_batch_norm gelu_backward miopen_batch_norm numpy_T silu_backward sym_constrain_range_for_size sym_numel upsample_bilinear2d".split()
)


def _refusing(name):
    def refuse(*args, **kwargs):
        raise AbsentError(
            f"torch.ops.aten.{name}: expected an operator that runs in this library. Use a public function of torch."
        )

    return refuse


@functools.cache
def packet(name):
    """Returns the packet of an operator.

    Args:
        name: PyTorch's name, such as "add".

    Raises:
        AbsentError: this library has no function for the operator.
    """
    function = _refusing(name) if name in _ONLY_NAMED else _function(name)
    if function is None:
        raise AbsentError(
            f"torch.ops.aten.{name}: expected an operator of this library, got an unknown name. Use a public function of torch."
        )
    return OpOverloadPacket(name, function)


def overload_of(record, inputs, attrs):
    """Returns the overload of an op that runs.

    Args:
        record: the op of this library.
        attrs: its attributes.
    """
    name, overload = _named(record.name, inputs, attrs)
    found = getattr(_packet_of(name, record), overload)
    found.record = RECORDS.get(record.name, record)
    return found


def overload_of_function(function, args, kwargs):
    """Returns the overload of a public function or method.

    Args:
        args: positional arguments of the call.
        kwargs: keyword arguments of the call.
    """
    own = function.__name__
    own = {"__getitem__": "slice", "__setitem__": "index_put_"}.get(own, own)
    attrs = {"index": args[1]} if own == "slice" else kwargs
    if own in _REDUCTIONS and len(args) > 1:
        attrs = {"dim": args[1]}
    in_place = own.endswith("_") and not own.endswith("__")
    name, overload = _named(own.removesuffix("_") if in_place else own, args, attrs)
    return getattr(_packet_of(name + "_" * in_place, function), overload)


def _named(own, inputs, attrs):
    """Returns PyTorch's (operator, overload) for the name of an op and its arguments."""
    name, _, overload = _OPERATORS.get(own, own).partition(".")
    if name in _BINARY and len(inputs) > 1:
        tensors = _is_tensor(inputs[1]) or name in (
            "add",
            "sub",
            "mul",
            "div",
        )  # PyTorch makes tensors of Python numbers
        overload = "Tensor_" * (name == "pow") + ("Tensor" if tensors else "Scalar")
    elif name in _REDUCTIONS and attrs.get("dim") is not None:
        overload = _REDUCTIONS[name]
    elif own == "matmul":
        name = _product(*inputs[:2])
    elif name == "slice" and _is_select(attrs):
        name, overload = "select", "int"
    return name, overload if overload in _OVERLOADS else "default"


def _is_tensor(value):
    return isinstance(value, Tensor)


def _product(first, second):
    dims = getattr(first, "ndim", 0), getattr(second, "ndim", 0)
    return {(2, 2): "mm", (1, 1): "dot", (2, 1): "mv", (3, 3): "bmm"}.get(dims, "matmul")


def _is_select(attrs):
    index = attrs.get("index", ())
    return type(index) is int or (type(index) is tuple and any(type(i) is int for i in index))


@functools.cache
def _packet_of(name, record):
    """Returns the packet of an op; if no public function has its name, the packet calls the op."""
    try:
        return packet(name)
    except AbsentError:
        return OpOverloadPacket(name, record)
