"""Types for `make_stubs.py` that are not available at run time: types of arguments by name, types of results, and overloads.

Each table maps a type to the names that have this type. In the stubs, `_int`, `_float` and `_bool` are the types of Python:
`int`, `float` and `bool` are also dtypes of `mytorch` and methods of Tensor.
"""

# Modules that get a stub besides the packages.
SURFACES = "linalg fft special random nn.functional".split()  # names that these modules import are public too
MODULES = [*SURFACES, *"arrays.tensor arrays.array amp autograd.mode ops.random autograd.function".split()]
HELPERS = tuple(
    f"mytorch.{w}"
    for w in "ops.dispatch.out ops.dispatch.bind ops.dispatch.op ops.dispatch.precision ops.dispatch.inplace kernels arrays.array".split()
)
INTERNAL = (
    "ops kernels arrays files compat cli playground tools utils.tensorboard".split()
)  # packages without public names


def _table(rows):
    """Converts {type: "name name …"} to {name: type}."""
    return {name: kind for kind, names in rows.items() for name in names.split()}


# The type of an argument by its name; "| None" is added where None is the default.
ARGUMENTS = _table({
    "Tensor": """input self weight bias target index mask mask1 src source tensor1 tensor2 mat mat1 mat2 vec vec1 vec2 batch1 batch2 A B L
        LU LU_data LU_pivots pivots tau x1 x2 input1 input2 input3 y grid theta anchor positive negative log_probs targets
        elements test_elements sorted_sequence boundaries query key query_weight in_proj_weight in_proj_bias
        out_proj_weight out_proj_bias q_proj_weight k_proj_weight v_proj_weight bias_k bias_v static_k static_v key_padding_mask
        attn_mask pos_weight per_sample_weights offsets residual cos sin logits condition var window running_mean running_var real imag
        angle v fweights aweights prob sorter prepend append batch other_tensor mat_a mat_b offs linear_weight linear_bias row_indices
        col_indices anchors positives negatives cu_seqlens tensors1 lengths Q x tensor gradient weights indices ndarray""",
    "_Operand": "other value values min max posinf neginf end_value nan",
    "_Number": """alpha beta fill_value start end step low high eps p lambd negative_slope threshold lower min_val max_val rtol
        atol std mean sigma median base maxnorm max_norm dx rcond momentum label_smoothing margin dropout_p tol softcap epsilon
        norm_type scale delta correction from_ to""",
    "_Number | str": "ord", "_Ints | Tensor": "indices_or_sections split_size_or_sections repeats", "Sequence[_float]": "range",
    "Callable[..., Any]": "hook callable function distance_function", "Sequence[Tensor] | Tensor": "inputs",
    "_int": """dim dim0 dim1 dim2 axis0 axis1 k n N m diagonal offset chunks dimension sections steps num_samples decimals minlength
        num_classes groups num_groups padding_idx ignore_index start_dim end_dim storage_offset blank upscale_factor downscale_factor
        n_fft hop_length win_length length window_length seed edge_order row col num_heads embed_dim_to_check unsqueeze_dim
        divisor_override head_dim max_position_embeddings q niter count pow r embed_dim""",
    "_Dims": "dims axes axis shifts",
    "_Ints": "kernel_size stride padding dilation output_padding output_size bins window_size scale_size",
    "_Shape": "size sizes shape normalized_shape split_sizes physical_layout pad repeats_shape",
    "_bool": """upper keepdim keepdims unbiased largest sorted descending stable inplace training train requires_grad pin_memory non_blocking copy
        equal_nan right upper_triangular left unitriangular transpose hermitian full_matrices compute_uv accumulate include_self
        return_inverse return_counts return_indices ceil_mode count_include_pad align_corners recompute_scale_factor antialias is_causal
        enable_gqa scale_grad_by_freq sparse include_last_offset log_target log_input full swap zero_infinity replacement out_int32 some
        center normalized onesided return_complex density hard periodic increasing with_replacement assume_unique invert as_tuple
        need_weights average_attn_weights use_separate_proj_weight add_zero_attn unpack_data unpack_pivots pivot check_errors get_infos
        adjoint fused size_average causal wrap retain_graph create_graph force""",
    "_DType": "dtype out_dtype", "_dtype": "type1 type2",
    "_Device": "device",
    "_bool | str": "reduce",
    "str": "reduction mode padding_mode rounding_mode interpolation side compute_mode equation indexing approximate UPLO act_func driver norm",
    "Generator": "generator",
    "Sequence[Tensor]": "tensors matrices grads",
    "Any": "out layout memory_format data obj args kwargs named options names",
})  # fmt: skip

# The type of an argument of one function.
SPECIFIC = _table({
    "_Dims": """sum.dim mean.dim nansum.dim nanmean.dim var.dim std.dim var_mean.dim std_mean.dim amax.dim amin.dim norm.dim logsumexp.dim all.dim
        any.dim count_nonzero.dim squeeze.dim vector_norm.dim matrix_norm.dim prod.dim aminmax.dim softmin.dim unique.dim sort.dim
        std.dim fftshift.dim ifftshift.dim fftn.dim ifftn.dim rfftn.dim irfftn.dim hfftn.dim ihfftn.dim fft2.dim ifft2.dim rfft2.dim irfft2.dim
        hfft2.dim ihfft2.dim nuclear_norm.dim frobenius_norm.dim masked_softmax.dim renorm.dims flip.dims roll.dims roll.shifts
        moveaxis.source moveaxis.destination movedim.source movedim.destination normalize.dim tensorsolve.dims""",
    "_Operand": "lerp.end pow.input where.input where.self float_power.input pow.exponent float_power.exponent lerp.weight xlogy.input",
    "_Ints": "pad.pad conv_tbc.pad from_file.size fold.output_size interpolate.size upsample.size",
    "_Shape | _int": "layer_norm.normalized_shape rms_norm.normalized_shape add_layer_norm.normalized_shape add_rms_norm.normalized_shape",
    "Sequence[_float] | _float": "interpolate.scale_factor upsample.scale_factor gradient.spacing",
    "Tensor | _Number": "normal.mean normal.std bernoulli.p bernoulli_.p",
    "_float": "dropout.p gumbel_softmax.tau",
    "_Ints | str": "conv1d.padding conv2d.padding conv3d.padding",
    "_Number | str": "norm.p cond.p matrix_norm.ord",
    "_Shape | None": "fft.s fft2.s fftn.s ifft2.s ifftn.s rfft2.s rfftn.s irfft2.s irfftn.s hfft2.s hfftn.s ihfft2.s ihfftn.s",
    "Tensor": "allclose.other equal.other is_same_size.other is_set_to.other expand_as.other view_as.other reshape_as.other type_as.other dot.other matmul.other bmm.other kron.other",
    "np.ndarray[Any, Any]": "from_numpy.ndarray", "Sequence[Tensor]": "index_put.indices",
    "Any": "__getitem__.index __setitem__.index tensordot.dims as_subclass.cls ctc_loss.input_lengths ctc_loss.target_lengths",
})  # fmt: skip
SURE = (
    "dtype device generator requires_grad reduction".split()
)  # these have the same type in all functions; other names only in functions of tensors
VARIADIC = _table({
    "_int | _Shape": "size shape sizes repeats dims dim tile",
    "Tensor": "tensors matrices operands arrays",
    "_Shape": "shapes",
})  # fmt: skip

# Result types of functions that do not return a Tensor and have no annotation.
RETURNS = _table({
    "_bool": """allclose equal can_cast is_complex is_conj is_floating_point is_inference is_neg is_nonzero is_same_size is_signed is_tensor is_storage
        is_contiguous is_pinned is_set_to is_coalesced is_shared is_distributed __bool__ __contains__ _is_view build_graph_enabled
        is_grad_enabled is_inference_mode_enabled is_autocast_enabled set_flush_denormal are_deterministic_algorithms_enabled
        is_deterministic_algorithms_warn_only_enabled is_warn_always_enabled is_anomaly_enabled is_anomaly_check_nan_enabled is_available""",
    "_int": """numel nelement dim ndimension element_size data_ptr get_device storage_offset dense_dim sparse_dim _nnz __len__ __int__ __index__ __hash__
        get_num_threads get_num_interop_threads initial_seed seed get_deterministic_debug_mode""",
    "_float": "__float__", "_complex": "__complex__",
    "Self ": "__enter__", "None ": "__exit__ cuda.seed cuda.manual_seed", "Tensor": """linalg.cond hspmm smm spmm sspaddmm sparse_compressed_tensor sparse_coo_tensor
        sparse_csc_tensor sparse_csr_tensor _coalesced_ _indices _values""",
    "_int | _float | _bool": "item",
    "str": "typename __repr__ __str__ __format__ get_float32_matmul_precision",
    "_dtype": "promote_types result_type get_default_dtype get_autocast_dtype", "_device": "get_default_device",
    "Size": "broadcast_shapes", "np.ndarray[Any, Any]": "numpy __array__", "list[Any]": "tolist",
    "None": """backward retain_grad __setitem__ __delitem__ __init__ record_stream set_default_dtype set_default_device set_default_tensor_type
        set_printoptions set_num_threads set_num_interop_threads use_deterministic_algorithms set_float32_matmul_precision
        set_deterministic_debug_mode set_warn_always set_rng_state save""",
    "tuple[Tensor, ...]": """chunk split split_with_sizes tensor_split unbind hsplit vsplit dsplit unsafe_chunk unsafe_split unsafe_split_with_sizes split_copy split_with_sizes_copy unbind_copy
        meshgrid broadcast_tensors gradient block_diag_parts atleast""",
    "tuple[Tensor, Tensor]": """std_mean var_mean native_dropout max_pool1d_with_indices max_pool2d_with_indices max_pool3d_with_indices
        adaptive_max_pool1d_with_indices adaptive_max_pool2d_with_indices adaptive_max_pool3d_with_indices lstm_cell rnn_tanh rnn_relu
        gru precompute_rotary_cos_sin apply_rotary_pos_embed fractional_max_pool2d_with_indices fractional_max_pool3d_with_indices
        add_layer_norm add_rms_norm batch_norm_update_stats""",
    "tuple[Tensor, Tensor, Tensor]": "lstm native_layer_norm native_group_norm native_batch_norm",
    "tuple[Tensor, Tensor | None]": "multi_head_attention_forward",
    "tuple[_int, ...]": "dim_order", "Iterator[Tensor]": "__iter__", "Generator": "manual_seed",
    "Tensor | tuple[Tensor, ...]": "atleast_1d atleast_2d atleast_3d",
    "RemovableHandle": "register_hook register_post_accumulate_grad_hook",
    "Self": "requires_grad_", "Any ": "untyped_storage storage_type",
    "Any": """load new compile typename_ accelerate cond while_loop vmap to_dlpack storage __reduce_ex__ __reduce__ __deepcopy__ __dlpack__ __dlpack_device__ __array_wrap__
        __cuda_array_interface__ _extra_state histogramdd lu""",
})  # fmt: skip

# Fields of named tuples, and the functions that return these tuples.
FIELDS = _table({
    "values indices": "sort topk kthvalue mode cummax cummin", "min max": "aminmax", "mantissa exponent": "frexp", "hist bin_edges": "histogram",
    "sign logabsdet": "slogdet", "U S V": "svd svd_lowrank pca_lowrank", "Q R": "qr", "P L U": "lu_unpack", "solution cloned_coefficient": "triangular_solve",
    "eigenvalues eigenvectors": "eigh eig", "LU pivots": "lu_factor", "LU pivots info": "lu_factor_ex", "L info": "cholesky_ex",
    "inverse info": "inv_ex", "a tau": "geqrf", "result info": "solve_ex", "solution residuals rank singular_values": "lstsq", "LD pivots": "ldl_factor",
    "LD pivots info": "ldl_factor_ex",
})  # fmt: skip
FIELDS_OF = {"linalg.svd": "U S Vh", "linalg.lu": "P L U", "linalg.slogdet": "sign logabsdet"}

# Overloads of functions and methods: the arguments after the tensor, and the type of the result.
_BY_DIM = ("*, out: Any = ... -> Tensor", "dim: _int, keepdim: _bool = ..., *, out: Any = ... -> {values indices}")
_BY_AXIS = ("*, axis: _int, keepdims: _bool = ... -> {values indices}", "other: Tensor, *, out: Any = ... -> Tensor")
_SIZES = ("*{0}: _int -> Tensor", "{0}: _Shape -> Tensor")
OVERLOADS = {
    "max": (*_BY_DIM, *_BY_AXIS), "min": (*_BY_DIM, *_BY_AXIS), "median": _BY_DIM, "nanmedian": _BY_DIM,
    "nonzero": ("*, as_tuple: Literal[False] = ..., out: Any = ... -> Tensor", "*, as_tuple: Literal[True] -> tuple[Tensor, ...]"),
    "unique": (
        "sorted: _bool = ..., return_inverse: Literal[False] = ..., return_counts: Literal[False] = ..., dim: _int | None = ... -> Tensor",
        "sorted: _bool = ..., return_inverse: _bool = ..., return_counts: _bool = ..., dim: _int | None = ... -> Any",
    ),
    "unique_consecutive": (
        "return_inverse: Literal[False] = ..., return_counts: Literal[False] = ..., dim: _int | None = ... -> Tensor",
        "return_inverse: _bool = ..., return_counts: _bool = ..., dim: _int | None = ... -> Any",
    ),
    "Tensor.size": ("dim: None = ... -> Size", "dim: _int -> _int"),
    "Tensor.stride": ("dim: None = ... -> tuple[_int, ...]", "dim: _int -> _int"),
    "Tensor.type": ("dtype: None = ... -> str", "dtype: _DType | str, non_blocking: _bool = ... -> Tensor"),
    "Tensor.view": ("*shape: _int -> Tensor", "shape: _Shape -> Tensor", "dtype: _dtype -> Tensor"),
    "Tensor.to": (
        "dtype: _dtype, non_blocking: _bool = ..., copy: _bool = ..., *, memory_format: Any = ... -> Tensor",
        "device: _Device = ..., dtype: _DType = ..., non_blocking: _bool = ..., copy: _bool = ..., *, memory_format: Any = ... -> Tensor",
        "other: Tensor, non_blocking: _bool = ..., copy: _bool = ... -> Tensor",
    ),
    "mytorch.where": ("condition: Tensor -> tuple[Tensor, ...]", "condition: Tensor, input: _Operand, other: _Operand, *, out: Any = ... -> Tensor"),
}  # fmt: skip

PROPERTIES = _table({
    "Size": "shape", "_dtype": "dtype", "_device": "device", "_int": "ndim itemsize nbytes output_nr _version",
    "_bool": "is_cuda requires_grad is_leaf retains_grad is_sparse is_quantized is_meta is_mkldnn is_nested is_cpu is_complex",
    "str": "name", "Tensor": "data real imag T H mT mH", "Tensor | None": "grad _base", "Any": "edge grad_fn _mt_data _mt_edge _mt_view",
})  # fmt: skip

# Attributes and base classes that are not visible at run time.
CLASS_EXTRAS = {
    "Array": (
        "Tensor",
        ["_array: Any", "_cell: Any"],
    ),  # `.data` and `.grad` are Arrays; for type checkers, they are Tensors
    "Size": (
        "tuple[_int, ...]",
        [
            "def __add__(self, other: tuple[_int, ...]) -> Size: ...  # type: ignore[override]",
            "@overload",
            "def __getitem__(self, key: SupportsIndex) -> _int: ...",
            "@overload",
            "def __getitem__(self, key: slice[Any, Any, Any]) -> Size: ...",
            "def __mul__(self, count: SupportsIndex) -> Size: ...",
            "def __radd__(self, other: tuple[_int, ...]) -> Size: ...",
            "def __rmul__(self, count: SupportsIndex) -> Size: ...",
        ],
    ),
    "ModeSwitch": ("", ["def __call__(self, function: _F) -> _F: ..."]),
    "_Bare": (
        "ModeSwitch",
        [
            "@overload",
            "def __new__(cls, function: None = None) -> Self: ...",
            "@overload",
            "def __new__(cls, function: _F) -> _F: ...  # type: ignore[misc]",
            "def __init__(self, function: Any = None) -> None: ...",
        ],
    ),
    "Tensor": ("", ["_mt_data: Array", "_mt_edge: Any", "_mt_view: Any", "_post_accumulate_grad_hooks: Any"]),
}
OPERATORS = "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift".split()
RESULTS_OF = {
    "Tensor": {"_wrap": "Tensor", "_of": "Tensor", "view_as": "Tensor", "__repr__": "str"}, "Size": {"numel": "_int"},
    "RemovableHandle": {"remove": "None"},
}  # fmt: skip
DUNDERS = {f"__{side}{word}__" for side in ("", "r", "i") for word in OPERATORS} | set(
    """__init__ __call__ __enter__ __exit__ __iter__ __len__ __getitem__ __setitem__ __delitem__ __contains__ __bool__ __int__ __float__ __complex__
    __index__ __neg__ __pos__ __abs__ __invert__ __eq__ __ne__ __lt__ __le__ __gt__ __ge__ __hash__ __array__ __getattr__ __setattr__ __dir__
    __next__ __or__ __ior__ __ror__ __reversed__ __version__""".split()
)
HEADER = """# Generated by docs/make_stubs.py from the library at run time; change that or the library, not this file.
from builtins import bool as _bool, complex as _complex, float as _float, int as _int
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, SupportsIndex, TypeVar, overload

import numpy as np
from typing_extensions import Self

from mytorch.arrays.devices import device as _device
from mytorch.arrays.dtypes import dtype as _dtype
{imports}
_F = TypeVar("_F", bound=Callable[..., Any])
_Number = _int | _float | _bool | _complex
_Operand = Tensor | _Number | np.ndarray[Any, Any]
_Shape = Sequence[_int]
_Ints = _int | Sequence[_int]
_Dims = _int | Sequence[_int]
_DType = _dtype | type[Any] | str
_Device = _device | str | _int | None
"""
HOME = {"Tensor": "mytorch.arrays.tensor", "RemovableHandle": "mytorch.arrays.tensor", "Size": "mytorch.arrays.array", "Array": "mytorch.arrays.array",
        "Generator": "mytorch.ops.random"}  # fmt: skip
