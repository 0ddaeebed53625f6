"""Write the type stubs (`*.pyi`) of the modules whose names are made at run time, by looking at the imported library.

    python docs/make_stubs.py            writes them
    python docs/make_stubs.py --check    exits with 1 and names the files that are not up to date

`Tensor`'s methods, the functions of `mytorch`, `nn.functional` and `linalg`, and layers that are made from tables have no `def`
that a type checker or an editor could find. Signatures come from the records (`Op.__signature__`) and from `inspect.signature`; an
argument that the source annotates keeps its annotation, any other gets the type that the tables below give to its name.
Packages get a stub that exports what they import (`from .linear import Linear as Linear`), as PEP 484 asks of typed libraries.
"""

import ast
import functools
import importlib
import inspect
import keyword
import re
import sys
import types
import typing
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

# Modules that get a stub besides the packages. What these import from one another is exported, too.
SURFACES = "linalg fft special random nn.functional".split()  # what these import is there for users, too
MODULES = [*SURFACES, *"tensor _array amp graph.mode ops.random autograd.function".split()]
HELPERS = tuple(f"mytorch.{w}" for w in "ops.out ops.bind ops.core ops.precision ops.inplace kernels _array".split())
INTERNAL = "ops kernels base backend graph files compat cli utils.tensorboard".split()  # no user imports these packages


def _table(rows):
    """{type: "name name …"} as {name: type}."""
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
)  # these mean the same everywhere, others in functions of tensors
VARIADIC = _table({
    "_int | _Shape": "size shape sizes repeats dims dim tile",
    "Tensor": "tensors matrices operands arrays",
    "_Shape": "shapes",
})  # fmt: skip

# What functions return that do not return a Tensor, nor say it.
RETURNS = _table({
    "_bool": """allclose equal can_cast is_complex is_conj is_floating_point is_inference is_neg is_nonzero is_same_size is_signed is_tensor is_storage
        is_contiguous is_pinned is_set_to is_coalesced is_shared is_distributed __bool__ __contains__ _is_view build_graph_enabled
        is_grad_enabled is_inference_mode_enabled is_autocast_enabled set_flush_denormal are_deterministic_algorithms_enabled
        is_deterministic_algorithms_warn_only_enabled is_warn_always_enabled is_anomaly_enabled is_anomaly_check_nan_enabled is_available""",
    "_int": """numel nelement dim ndimension element_size data_ptr get_device storage_offset dense_dim sparse_dim __len__ __int__ __index__ __hash__
        get_num_threads get_num_interop_threads initial_seed seed get_deterministic_debug_mode""",
    "_float": "__float__", "_complex": "__complex__",
    "Self ": "__enter__", "None ": "__exit__ cuda.seed cuda.manual_seed", "Tensor": "linalg.cond",
    "_int | _float | _bool": "item",
    "str": "typename __repr__ __str__ __format__ get_float32_matmul_precision",
    "_dtype": "promote_types result_type get_default_dtype get_autocast_dtype", "_device": "get_default_device",
    "Size": "broadcast_shapes", "np.ndarray[Any, Any]": "numpy __array__", "list[Any]": "tolist",
    "None": """backward retain_grad __setitem__ __delitem__ __init__ record_stream set_default_dtype set_default_device set_default_tensor_type
        set_printoptions set_num_threads set_num_interop_threads use_deterministic_algorithms set_float32_matmul_precision
        set_deterministic_debug_mode set_warn_always set_rng_state save""",
    "tuple[Tensor, ...]": """chunk split split_with_sizes tensor_split unbind hsplit vsplit dsplit unsafe_chunk unsafe_split unsafe_split_with_sizes
        meshgrid broadcast_tensors gradient block_diag_parts atleast""",
    "tuple[Tensor, Tensor]": """std_mean var_mean native_dropout max_pool1d_with_indices max_pool2d_with_indices max_pool3d_with_indices
        adaptive_max_pool1d_with_indices adaptive_max_pool2d_with_indices adaptive_max_pool3d_with_indices lstm_cell rnn_tanh rnn_relu
        gru precompute_rotary_cos_sin apply_rotary_pos_embed fractional_max_pool2d_with_indices fractional_max_pool3d_with_indices
        add_layer_norm add_rms_norm""",
    "tuple[Tensor, Tensor, Tensor]": "lstm native_layer_norm native_group_norm native_batch_norm",
    "tuple[Tensor, Tensor | None]": "multi_head_attention_forward",
    "tuple[_int, ...]": "dim_order", "Iterator[Tensor]": "__iter__", "Generator": "manual_seed",
    "Tensor | tuple[Tensor, ...]": "atleast_1d atleast_2d atleast_3d",
    "RemovableHandle": "register_hook register_post_accumulate_grad_hook",
    "Self": "requires_grad_",
    "Any": """load new compile typename_ accelerate cond while_loop vmap to_dlpack storage untyped_storage __reduce_ex__ __reduce__ __deepcopy__ __dlpack__ __dlpack_device__ __array_wrap__
        __cuda_array_interface__ _extra_state histogramdd lu""",
})  # fmt: skip

# Named tuples: their fields, and who returns them.
FIELDS = _table({
    "values indices": "sort topk kthvalue mode cummax cummin", "min max": "aminmax", "mantissa exponent": "frexp", "hist bin_edges": "histogram",
    "sign logabsdet": "slogdet", "U S V": "svd svd_lowrank pca_lowrank", "Q R": "qr", "P L U": "lu_unpack", "solution cloned_coefficient": "triangular_solve",
    "eigenvalues eigenvectors": "eigh eig", "LU pivots": "lu_factor", "LU pivots info": "lu_factor_ex", "L info": "cholesky_ex",
    "inverse info": "inv_ex", "result info": "solve_ex", "solution residuals rank singular_values": "lstsq", "LD pivots": "ldl_factor",
    "LD pivots info": "ldl_factor_ex",
})  # fmt: skip
FIELDS_OF = {"linalg.svd": "U S Vh", "linalg.lu": "P L U", "linalg.slogdet": "sign logabsdet"}

# Functions whose result depends on how they are called: their arguments after the tensor. Methods and functions alike.
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
    "str": "name", "Tensor": "data real imag T H mT mH", "Tensor | None": "grad _base", "Any": "edge grad_fn _data _edge _view",
})  # fmt: skip

# Attributes and bases that no run-time look at a class shows.
CLASS_EXTRAS = {
    "Array": ("Tensor", ["_array: Any", "_cell: Any"]),  # `.data` and `.grad` are Arrays; to a checker they are Tensors
    "Size": (
        "tuple[_int, ...]",
        [
            "def __add__(self, other: tuple[_int, ...]) -> Size: ...  # type: ignore[override]",
            "@overload",
            "def __getitem__(self, key: SupportsIndex) -> _int: ...",
            "@overload",
            "def __getitem__(self, key: slice[Any, Any, Any]) -> Size: ...",
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
    "Tensor": ("", ["_data: Array", "_edge: Any", "_view: Any", "_post_accumulate_grad_hooks: Any"]),
}
OPERATORS = "add sub mul truediv floordiv mod pow matmul and or xor lshift rshift".split()
RESULTS_OF = {
    "Tensor": {"_wrap": "Self", "_of": "Self", "view_as": "Tensor", "__repr__": "str"}, "Size": {"numel": "_int"},
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

from mytorch.backend.devices import device as _device
from mytorch.base.dtypes import dtype as _dtype
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
HOME = {"Tensor": "mytorch.tensor", "RemovableHandle": "mytorch.tensor", "Size": "mytorch._array", "Array": "mytorch._array",
        "Generator": "mytorch.ops.random"}  # fmt: skip


class Stub:
    """The stub of one module, as it is written: imports, named tuples, and a body."""

    def __init__(self, module):
        self.module = module
        self.name = module.__name__
        self.exports = module.__file__.endswith("__init__.py") or self.name.removeprefix("mytorch.") in SURFACES
        self.own = (self.name + ".").removeprefix("mytorch.")  # "linalg."
        self.imports, self.tuples, self.body = set(), {}, []
        for name, value in sorted(self.names().items()):
            self.add(name, value)

    @property
    def path(self):
        return Path(self.module.__file__).with_suffix(".pyi")

    def names(self):
        """What the module offers: public names, and private ones that are its own or that other modules import."""
        wanted, listed = IMPORTED.get(self.name, set()), getattr(self.module, "__all__", None)
        found = {}
        for name in dir(self.module):
            home = getattr(getattr(self.module, name), "__module__", self.name)
            public = name in listed if listed else not name.startswith("_") and (self.exports or home == self.name)
            value = getattr(self.module, name)
            base = isinstance(value, type) and home == self.name and value.__name__ == name
            public = public and (home == self.name or not (inspect.isfunction(value) and home.startswith(HELPERS)))
            if name in wanted or public or base or name == "__version__":
                found[name] = value
        return found

    def text(self):
        for name, home in HOME.items():
            if home != self.name and f"from {home} import {name} as {name}" not in self.imports:
                self.imports.add(f"from {home} import {name}")
        self.imports -= {line.rpartition(" as ")[0] for line in self.imports}
        tuples = "".join(
            f"\nclass {name}(NamedTuple):\n" + "".join(f"    {f}: Tensor\n" for f in fields.split())
            for fields, name in sorted(self.tuples.items())
        )
        return HEADER.format(imports="\n".join(sorted(self.imports))) + tuples + "\n" + "\n".join(self.body) + "\n"

    def add(self, name, value):
        home = getattr(value, "__module__", None)
        if isinstance(value, types.ModuleType):
            self.add_module(name, value)
        elif isinstance(value, type) and home == self.name and value.__name__ == name and not made_from_table(value):
            self.body += self.class_lines(name, value)
        elif isinstance(value, type):
            self.add_class(name, value, home)
        elif callable(value) and (inspect.isfunction(value) or hasattr(value, "op") or hasattr(value, "__signature__")):
            if home != self.name and is_typed(value) and exported_by(home, value.__name__) is value:
                self.imports.add(f"from {home} import {value.__name__} as {name}")
            else:
                self.body += self.function_lines(name, value, "mytorch")
        elif callable(value) and not isinstance(value, type(np_dtype())):
            self.body.append(f"{name}: Callable[..., Any]")
        else:
            self.body.append(f"{name}: {self.constant(value)}")

    def add_module(self, name, value):
        full = value.__name__
        if full.startswith("mytorch.") and Path(getattr(value, "__file__", None) or "").is_file():
            package, _, last = full.rpartition(".")
            self.imports.add(f"from {package} import {last} as {name}")

    def add_class(self, name, value, home):
        """A class of another module: imported where a checker finds it, written out if a table made it."""
        if home and home.startswith("mytorch") and home != self.name and made_constructor(value):
            self.imports.add(f"from {home} import {value.__name__} as _{name}")
            given = self.parameters(inspect.signature(value), value.__name__)
            self.body += [f"class {name}(_{name}):", f"    def __init__(self, {given}) -> None: ..."]
        elif home and home.startswith("mytorch") and made_from_table(value):
            self.body += self.class_lines(name, value, only=("__init__", "forward"))
        elif home and home.startswith("mytorch") and home != self.name:
            self.imports.add(f"from {home} import {value.__name__} as {name}")
        elif home == self.name:
            self.body.append(f"{name} = {value.__name__}")
        elif home == "builtins":
            self.body.append(
                f"{name} = _{value.__name__}" if value in (bool, int, float, complex) else f"{name}: type[Any]"
            )

    def constant(self, value):
        kind = type(value)
        if kind in (bool, int, float, complex):
            return "_" + kind.__name__
        return {"str": "str", "NoneType": "None", "dtype": "_dtype", "device": "_device", "Generator": "Generator"}.get(
            kind.__name__, "Any"
        )

    # -- classes -------------------------------------------------------------------------------------------------

    def class_lines(self, name, cls, only=None):
        base, lines = CLASS_EXTRAS.get(name, (None, []))
        if base is None:
            bases = [self.annotation(b) for b in cls.__bases__ if b is not object]
            base = ", ".join(b for b in bases if b not in ("Any", name))
        lines = list(lines)
        known = {re.sub(r"^def |[(:].*", "", line) for line in lines}
        for member, value in sorted(vars(cls).items()):
            private = member.startswith("_") and member not in DUNDERS and cls.__name__ not in CLASS_EXTRAS
            strange = member.startswith("__") and member not in DUNDERS
            inherited = name == "Array" and hasattr(exported_by("mytorch", "Tensor"), member)
            if (only and member not in only) or private or strange or inherited or member in known:
                continue
            lines += self.member_lines(member, value, name, cls)
            known.add(member)
        lines += [] if only else [f"{n}: Any" for n in sorted(attributes_set(cls) - known)]
        return [f"class {name}({base}):" if base else f"class {name}:", *(f"    {line}" for line in lines or ["..."])]

    def member_lines(self, name, value, owner, cls):
        if isinstance(value, property):
            declared = inspect.signature(value.fget).return_annotation
            kind = PROPERTIES.get(name, "Any") if declared is inspect.Signature.empty else self.annotation(declared)
            lines = ["@property", f"def {name}(self) -> {kind}: ..."]
            taken = "Any" if name in ("data", "grad") else kind
            return lines + ([f"@{name}.setter", f"def {name}(self, value: {taken}) -> None: ..."] if value.fset else [])
        if isinstance(value, (staticmethod, classmethod)):
            word = type(value).__name__
            return [
                f"@{word}",
                *self.function_lines(name, value.__func__, owner, first={"classmethod": "cls"}.get(word)),
            ]
        if name == "__init__" and "__signature__" in vars(cls):
            return [
                f"def __init__(self, {self.parameters(inspect.signature(cls), cls.__name__)}) -> None: ...".replace(
                    ", )", ")"
                )
            ]
        if inspect.isfunction(value) or hasattr(value, "op") or hasattr(value, "__signature__"):
            return self.function_lines(name, value, owner, first="self")
        if name == "__hash__":
            return ["def __hash__(self) -> _int: ..."]
        if name.startswith("__") or isinstance(value, types.MemberDescriptorType):
            return []
        return [f"{name}: {PROPERTIES.get(name) or self.constant(value)}"]

    # -- functions -----------------------------------------------------------------------------------------------

    def function_lines(self, name, function, owner, first=None):
        overloads = (
            OVERLOADS.get(f"{'Tensor' if owner == 'Array' else owner}.{name}", OVERLOADS.get(name))
            if self.library(function)
            else None
        )
        if overloads and (first is None or owner in ("Tensor", "Array")):
            lines = []
            lead = "" if f"{owner}.{name}" in OVERLOADS and first is None else f"{first or 'input: Tensor'}, "
            for overload in overloads:
                given, _, result = overload.rpartition(" -> ")
                fields = result.strip("{}")
                result = self.named_tuple(fields) if result.startswith("{") else result
                lines += ["@overload", f"def {name}({lead}{given}) -> {result}: ..."]
            return lines
        signature = inspect.signature(function)
        twin = name.endswith("_") and first == "self" and owner in ("Tensor", "Array")
        if twin and "args" in signature.parameters and hasattr(exported_by("mytorch", "Tensor"), name[:-1]):
            signature = inspect.signature(
                getattr(exported_by("mytorch", "Tensor"), name[:-1])
            )  # transpose_ as transpose
        end = f" -> {self.result(name, function, signature, first, owner)}: ..."
        end += "  # type: ignore[override]" if name in ("__eq__", "__ne__") else ""
        end += "  # type: ignore[misc]" if name[:3] == "__i" and name[3:-2] in OPERATORS else ""
        texts = [self.parameters(signature, name, function, first, without=("out",) if twin else (), owner=owner)]
        others = [w for w in getattr(function, "spellings", ()) if w != first and not keyword.iskeyword(w)]
        while others:  # other names of arguments, such as NumPy's `axis` for `dim`
            words = {function.spellings[w]: w for w in reversed(others)}
            others = [w for w in others if w not in words.values()]
            texts.append(self.parameters(signature, name, function, first, owner=owner, words=words))
        return [
            line for text in texts for line in (["@overload"] if len(texts) > 1 else []) + [f"def {name}({text}){end}"]
        ]

    def parameters(self, signature, name, function=None, first=None, without=(), owner=None, words=None):
        """The arguments as text; `words` gives some of them other names."""
        op = getattr(function, "op", None)
        out, starred = [], False
        layer = name == "forward" or function is None
        known = layer or (first == "self" and owner == "Tensor") or self.library(function)
        for i, p in enumerate(signature.parameters.values()):
            if p.name in without:
                continue
            if i == 0 and first:
                out.append(first)
                continue
            if p.kind is p.VAR_POSITIONAL:
                starred = True
                out.append(f"*{p.name}: {self.kind_of(p, name, VARIADIC.get(p.name, 'Any'))}")
                continue
            if p.kind is p.VAR_KEYWORD:
                out.append(f"**{p.name}: {self.kind_of(p, name, 'Any')}")
                continue
            if p.kind is p.KEYWORD_ONLY and not starred:
                out.append("*")
                starred = True
            kind = self.kind_of(p, name, None, op, known)
            default = "" if p.default is p.empty else f" = {default_text(p.default)}"
            out.append(f"{(words or {}).get(p.name, p.name)}: {kind}{default}")
        return ", ".join(out)

    def kind_of(self, p, name, fallback=None, op=None, known=True):
        """The type of a parameter: as annotated, as the tables say, or as its default shows."""
        if p.annotation is not p.empty:
            return self.annotation(p.annotation)
        kind = (
            SPECIFIC.get(f"{name if name[:2] == '__' else name.rstrip('_')}.{p.name}")
            or fallback
            or (ARGUMENTS.get(p.name) if known or p.name in SURE else None)
        )
        if name in BINARY and p.name == "other":
            kind = "_Operand"
        if kind is None and op is not None and p.name in op.inputs:
            kind = "Tensor"
        if kind is None or (type(p.default) in (bool, str) and type(p.default).__name__ not in kind and kind != "Any"):
            plain = {bool: "_bool", int: "_int", float: "_float", str: "str", tuple: "Sequence[Any]"}
            kind = plain.get(type(p.default), "Any")
        if type(p.default) is float and kind in ("_int", "_bool"):
            kind = "_Number"
        return (
            kind if p.default is not None or kind in ("Any", "_Device") or kind.endswith("None") else f"{kind} | None"
        )

    def result(self, name, function, signature, first, owner):
        declared = signature.return_annotation
        op = getattr(function, "op", None)
        if declared is not signature.empty and op is None:
            return self.annotation(declared)
        if name in RESULTS_OF.get(owner, {}):
            return RESULTS_OF[owner][name]
        if name in COMPARISONS or re.fullmatch(rf"__r?({'|'.join(OPERATORS)})__", name):
            return "Tensor"
        in_place = (name.endswith("_") and not name.startswith("_")) or (name[:3] == "__i" and name[3:-2] in OPERATORS)
        if first == "self" and in_place:
            return "Self"
        fields = FIELDS_OF.get(self.own + name) or (FIELDS.get(name) if name not in RETURNS else None)
        if fields:
            return self.named_tuple(fields)
        if self.own + name in RETURNS or name in RETURNS:
            return RETURNS.get(self.own + name, RETURNS.get(name)).strip()
        if op is not None and op.outputs is not None:
            return "tuple[Tensor, ...]" if op.outputs == "list" else f"tuple[{', '.join(['Tensor'] * len(op.outputs))}]"
        layer = name == "forward" and inspect.unwrap(function).__module__.startswith("mytorch.nn.")
        return "Tensor" if layer or self.library(function) or (owner == "Tensor" and name[0] != "_") else "Any"

    def library(self, function):
        """Whether it computes with tensors: an op, or a function of the modules that hold such."""
        home = inspect.unwrap(function).__module__ or ""
        return home.startswith(
            tuple(f"mytorch.{w}" for w in "ops nn.functional linalg fft special compat.functional compat.names".split())
        )

    def named_tuple(self, fields):
        return self.tuples.setdefault(fields, "_" + "_".join(fields.split()))

    def annotation(self, kind):
        """An annotation as text; what it names is imported."""
        if isinstance(kind, str):
            return self.names_in(kind)
        if kind is None or kind is type(None):
            return "None"
        origin, arguments = typing.get_origin(kind), typing.get_args(kind)
        if isinstance(kind, types.UnionType) or origin is typing.Union:
            return " | ".join(self.annotation(a) for a in arguments)
        if origin is typing.Literal:
            return f"Literal[{', '.join(map(repr, arguments))}]"
        if origin is not None:
            inner = [
                "..."
                if a is ...
                else f"[{', '.join(map(self.annotation, a))}]"
                if isinstance(a, list)
                else self.annotation(a)
                for a in arguments
            ]
            return f"{self.annotation(origin)}[{', '.join(inner)}]" if inner else self.annotation(origin)
        if kind in (bool, int, float, complex):
            return "_" + kind.__name__
        if not isinstance(kind, type):
            return getattr(kind, "__name__", "Any") if kind is typing.Any else "Any"
        if kind.__module__ == "builtins":
            return kind.__name__
        home = "np" if kind.__module__ == "numpy" else kind.__module__
        if home == "np":
            return f"np.{kind.__name__}"
        if made_from_table(kind) or "<" in kind.__qualname__:
            return "Any"
        if home not in (self.name, "typing", "collections.abc"):
            self.imports.add(f"from {home} import {kind.__name__}")
        return kind.__name__

    def names_in(self, text):
        """A string annotation: resolved in the module if that works, else Any."""
        for space in (vars(self.module), vars(importlib.import_module("mytorch.tensor")), vars(typing)):
            try:
                return self.annotation(eval(text, dict(space)))
            except Exception:
                continue
        return "Any"


def default_text(value):
    if value is None or type(value) in (bool, int, str):
        return repr(value)
    return repr(value) if type(value) is float and abs(value) < 1e300 else "..."


def np_dtype():
    from mytorch import float32

    return float32


def is_typed(function):
    return bool(getattr(inspect.unwrap(function), "__annotations__", None))


def exported_by(home, name):
    return getattr(importlib.import_module(home), name, None)


@functools.cache
def tree_of(module):
    return ast.parse(Path(module.__file__).read_text())


def made_from_table(cls):
    """Whether the source of its module has no `class` statement of that name: a function made it."""
    module = sys.modules.get(cls.__module__)
    if not getattr(module, "__file__", None) or not cls.__module__.startswith("mytorch"):
        return False
    if module not in CLASSES:
        CLASSES[module] = {n.name for n in ast.walk(tree_of(module)) if isinstance(n, ast.ClassDef)}
    return cls.__name__ not in CLASSES[module]


def made_constructor(cls):
    """Whether a class statement declares what its constructor takes, so that no `def __init__` shows it."""
    if made_from_table(cls) or "__init__" in methods_of(cls):
        return False
    return "__init__" in vars(cls) or isinstance(getattr(cls, "__signature__", None), inspect.Signature)


def methods_of(cls):
    tree = tree_of(sys.modules[cls.__module__])
    found = [n for n in ast.walk(tree) if isinstance(n, ast.ClassDef) and n.name == cls.__name__]
    return {n.name for n in found[0].body if isinstance(n, ast.FunctionDef)} if found else set()


def attributes_set(cls):
    """Public names that the methods of a class store on self, as its source shows."""
    for node in ast.walk(tree_of(sys.modules[cls.__module__])):
        if isinstance(node, ast.ClassDef) and node.name == cls.__name__:
            return {
                n.attr for n in ast.walk(node)
                if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store) and ast.unparse(n.value) == "self" and n.attr[0] != "_"
            }  # fmt: skip
    return set()


def imported_names():
    """{module: the names that other modules of the library import from it}."""
    found = {}
    for path in (ROOT / "mytorch").rglob("*.py"):
        package = ["mytorch", *path.relative_to(ROOT / "mytorch").parts[:-1]]
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                up = package[: len(package) - node.level + 1] if node.level else []
                home = ".".join([*up, *([node.module] if node.module else [])])
                found.setdefault(home, set()).update(a.name for a in node.names)
    return found


CLASSES = {}
IMPORTED = {}
BINARY, COMPARISONS = set(), {f"__{word}__" for word in "eq ne lt le gt ge neg pos abs invert getitem".split()}


def stubs():
    """Every stub: (path, text)."""
    mytorch = importlib.import_module("mytorch")
    modules = {"mytorch": mytorch}
    for path in sorted((ROOT / "mytorch").rglob("*.py")):
        short = ".".join(path.relative_to(ROOT / "mytorch").with_suffix("").parts).removesuffix(".__init__")
        if short not in ("__init__", "__main__") and (short in MODULES or not short.startswith(tuple(INTERNAL))):
            try:
                modules[f"mytorch.{short}"] = importlib.import_module(f"mytorch.{short}")
            except ImportError:  # it needs a package that is not installed
                continue
    IMPORTED.update(imported_names())
    from mytorch.ops.record import RECORDS

    BINARY.update(r.name for r in RECORDS.values() if r.inputs[:2] == ("input", "other"))
    BINARY.update(f"__{side}{word}__" for side in ("", "r", "i") for word in OPERATORS)
    BINARY.update(f"__{word}__" for word in "eq ne lt le gt ge".split())
    BINARY.update("add sub subtract multiply div divide true_divide rsub".split())
    for name, module in sorted(modules.items()):
        short = name.removeprefix("mytorch.")
        package = module.__file__.endswith("__init__.py")
        internal = short.startswith(tuple(INTERNAL))
        if short in MODULES or (package and not internal and len(vars(module)) > 9):
            stub = Stub(module)
            yield stub.path, stub.text()


def main():
    stale = []
    for path, text in stubs():
        if not path.is_file() or path.read_text() != text:
            stale.append(str(path.relative_to(ROOT)))
            if "--check" not in sys.argv:
                path.write_text(text)
    if "--check" in sys.argv and stale:
        sys.exit(f"not up to date (run python docs/make_stubs.py): {', '.join(stale)}")
    print(f"{len(stale)} stubs written" if stale else "all stubs are up to date")


if __name__ == "__main__":
    main()
