"""Make docs/compatibility.md: PyTorch's public names against ours.

    python docs/make_compatibility.py

Needs PyTorch. Names of sparse, quantized and named tensors, of other devices and of PyTorch's internals are left
out of the count, by the patterns below.
"""

import importlib
import inspect
import re
from pathlib import Path

import torch

import mytorch

LEFT_OUT = re.compile(
    r"sparse|quant|^q_|^q[iu]?int|qscheme|mkldnn|cudnn|miopen|fbgemm|vulkan|xla|ipu|xpu|mtia|maia|hpu|^mps|named|names|align_|refine|rename|"
    r"_copy$|Storage|storage|Type$|^Script|^Jit|JIT|Graph|Dispatch|^Sym|ccol|crow|row_indices|col_indices|coalesce|dsmm|hsmm|hspmm|smm|"
    r"sspaddmm|int_repr|dequant|Future|Await|Logger|parse_|import_ir|onnx|lobpcg|volatile|reinforce|grad_dtype|const_data_ptr|"
    r"unsafe_|native_|fake_|batch_norm_|autocast_|_autocast|is_distributed|nonzero_static|hash_tensor|to_padded|slice_inverse|"
    r"ormqr|orgqr|geqrf|dim_order|resize_as_sparse|^_|"
    r"^sym_|^bits?\d|^bit$|^u?int[1-7]$|^float[48]_|complex32|chalf|^(AVG|SUM|AliasDb|Argument|ArgumentSpec|Benchmark.*|Block|BufferDict|"
    r"CallStack|Capsule|Code|CompilationUnit|CompleteArgumentSpec|ConcreteModule.*|DeepCopyMemoTable|DisableTorch.*|ErrorReport|"
    r"ExecutionPlan|FatalError|FileCheck|FunctionSchema|Gradient|IODescriptor|LiteScriptModule|ModuleDict|Node|OperatorInfo|"
    r"ParameterDict|PyTorchFile.*|StaticModule|Tag|TracingState|Use|Value|AcceleratorError|classproperty|fork|wait|"
    r"get_file_path|init_num_threads|merge_type_from_type_comment|prepare_multiprocessing_environment|profiler_.*|"
    r"thread_safe_generator|unify_type_list|compiled_with_cxx11_abi|choose_qparams.*|s?addmm_sparse|spmm|get_device_module|"
    r".*DataPipe.*|.*datapipe.*|DataChunk|argument_validation|non_deterministic|runtime_validation.*|values|indices|"
    r"eig|lstsq|solve|symeig|matrix_rank|saddmm|index|resize|resize_as|"  # gone from PyTorch, or raising there
    r"assert_int_or_pair|scaled_mm|scaled_grouped_mm|grouped_mm|Tensor)$"
)

INTRODUCTION = """
The library has two faces. `import mytorch` shows its own: tensors print with five decimals and without commas, `.data` and `.grad` are
Arrays (numbers outside any graph, which are `mytorch.Tensor`s to `isinstance` and do what tensors do), and mixed dtypes are promoted.

`mytorch.install_as_torch()`, or `python -m mytorch script.py` (also `-m module` and `-c code`), shows PyTorch's to a program that is
not to be changed: `import torch` finds this library, tensors, dtypes and sizes print as there, `.grad` and `.data` are Tensors, and what
PyTorch refuses is refused: mixed dtypes in matrix products, `linear`, convolutions and `einsum`, targets of another dtype for binary
cross-entropies, class targets that are not int64 or uint8. It holds for the process, and costs nothing where dtypes agree.

`torch.hub` reads local folders and files by address, but runs no code from GitHub; `torch.multiprocessing` copies tensors, and its
`spawn` forks under PyTorch's face; `torch.compiler` and the settings of `torch.backends` are accepted and change nothing, but for TF32.

## Calls that differ

`tests/fuzzing.py` makes random calls in both libraries. `tests/test_fuzz.py`, a part of the test suite, runs 380 of
them. The calls below differ, for the reason given.

| calls | how | reason |
|---|---|---|
| `adaptive_avg_pool`, `AdaptiveAvgPool`, `interpolate`, `upsample`, `Upsample` | spread, accepted | windows of unequal sizes are products with a matrix of weights, in which an inf or NaN reaches its whole row as NaN; no channels |
| `addmm`, `addmv`, `baddbmm`, `inner`, `conv_transpose`, `mean`, `sum`, `nansum`, `maximum`, `minimum` | different, spread | infinities in complex products, and sums in another order beside huge numbers |
| `fractional_max_pool`, `max_unpool` | accepted, words | sizes and index dtypes that PyTorch is stricter about; ratios that are infinite |
| `addr`, `addcdiv`, `addcmul`, `vdot`, `multi_dot`, `linalg.multi_dot`, `reciprocal`, `sinc` | different, spread | infinities in products of complex numbers or of several matrices; denormal complex numbers |
| `as_strided_scatter` | different, spread | what is replaced has no gradient; PyTorch gives it one where the view is a single element |
| `cholesky_solve`, `cholesky_inverse` | different | the gradient is that of the triangle that is read; PyTorch fills the other one too |
| `ctc_loss` | spread | the gradient of a log-probability of `-inf` is finite; PyTorch returns NaN |
| `fft.`, `linalg.householder_product`, `linalg.lstsq`, `linalg.lu`, `linalg.norm`, `linalg.det`, `ldexp`, `linspace`, `lu` | different, spread | how far infinities and NaN spread |
| `linalg.eigvals`, `polar`, `triangular_solve`, `special.ndtr`, `special.zeta`, `special.erfcx`, `linalg.pinv`, `linalg.cond`, `linalg.matrix_norm`, `linalg.ldl_`, `special.i0e`, `logsigmoid`, `prod`, `cosine_similarity`, `normalize`, `logcumsumexp`, `multilabel_soft_margin_loss`, `binary_cross_entropy_with_logits` | different, spread | digits that PyTorch loses in float32 or float16, or that we lose at poles and in badly conditioned matrices; a multiple of 2 pi |
| `resize_`, `resize_as_` | different, spread | new elements are not initialised |
| `sign`, `sgn` | different, spread | NaN stays NaN; PyTorch gives 0 |
| `elu`, `selu`, `celu`, `ELU`, `SELU`, `CELU`, `hardshrink`, `Hardshrink`, `softshrink`, `Softshrink`, `abs`, `special.i1`, `special.i1e` | different, spread | the gradient at NaN, which is NaN |
| `Conv`, `ConvTranspose` | different, spread | weights that are drawn differ in the last bit, which huge inputs show |
| `std`, `std_mean`, `var_mean`, `var` | different, spread | the mean of infinities is infinite, where PyTorch's running sums give NaN; squares that overflow float32 |
| `layer_norm`, `group_norm`, `native_layer_norm`, `native_group_norm`, `LayerNorm`, `GroupNorm` | different, spread | a variance that overflows gives NaN, never zeros; PyTorch's gives either, by how many of the processor's vectors a row fills |
| `norm`, `linalg.vector_norm` | different, spread, accepted | derivatives at denormal numbers; negative orders of nothing |
| `atan2` | different | the gradient beside bytes or float16, whose squares PyTorch takes in their own dtype |
| `Softsign`, `softsign` | spread, different | PyTorch adds 1 to bytes in their own dtype |
| `bucketize`, `searchsorted` | different | boundaries that do not rise |
| `grid_sampler` | refused | numbers that stand for no mode, for which PyTorch takes one |
| `mode`, `kthvalue`, `topk`, `argsort`, `sort`, `nanmedian` | different, spread | which of several equal elements' places is given |
| `kron`, `take_along_dim`, `view_as_complex`, `linear`, `bilinear`, `logspace`, `isclose`, `index_copy`, `pinverse`, `pad`, `soft_margin_loss`, `linalg.vecdot`, `allclose`, `clamp`, `index_put`, `setitem` | different, spread, accepted | strides, shapes and dtypes that broadcast or can be copied, a bound that is a number beside one that is a tensor; a device's name that is never reached |
| `trapezoid`, `trapz`, `cumulative_trapezoid` | different, spread, accepted | shapes that broadcast; sums of bytes that overflow in PyTorch |
| `addbmm`, `bmm`, `mm`, `dot`, `tensordot`, `rsub`, `conv1d`, `conv3d`, `polygamma`, `linalg.solve`, `linalg.solve_triangular`, `linalg.inv_ex`, `linalg.vander`, `linalg.matrix_power`, `angle`, `cumprod`, `prod`, `fmod`, `prelu`, `nanquantile`, `instance_norm`, `index_reduce`, `scatter_reduce`, `logit`, `logsumexp`, `grid_sampler`, `grid_sample`, `rsqrt`, `logaddexp`, `remainder`, `logdet`, `group_norm`, `linalg.inv`, `sinh`, `istft`, `gelu`, `lp_pool`, `LPPool`, `cholesky_solve`, `cholesky_inverse`, `acosh`, `mvlgamma`, `cov` | spread | infinities in products and quotients, and how far NaN spreads from there |
| `cdist`, `linalg.slogdet`, `slogdet`, `linalg.solve_ex` | different, spread | NaN is unlike any number; what is said of a matrix with a NaN in it |
| `avg_pool1d`, `avg_pool3d`, `unfold`, `max_pool1d`, `max_pool3d`, `ConvTranspose`, `conv_transpose`, `ReplicationPad`, `CircularPad` | accepted | no channels or no batch; more axes before those that are padded; padding makes up for an input smaller than the window; lists of one number |
| `pixel_unshuffle`, `PixelUnshuffle`, `sum_to_size`, `einsum`, `matmul`, `conv3d`, `cholesky`, `linalg.eigvalsh`, `linalg.solve_triangular` | different | nothing to shuffle; sums of bytes and integers keep their dtype; a bias of another dtype; matrices without elements, and mixed dtypes, are promoted |
| `logsumexp`, `linalg.solve`, `linalg.pinv`, `linalg.cholesky` | accepted | complex numbers over no axes, or a matrix without elements, where PyTorch fails |
| `scaled_dot_product_attention` | accepted | keys of fewer heads are shared among the queries', with `enable_gqa` or without |
| `getitem` | accepted | `loss[0]` of a number is the number |
| `program` | accepted | what backward reads is copied when it is overwritten in place, where PyTorch refuses; what is written over while it is read is copied first; views made under `no_grad` may be written into |
| `gather` | different, spread, accepted | an empty index of another number of axes gives a result without a graph; an index with axes into a number |
| `index_fill` | accepted | a value that the dtype cannot hold |
| `ormqr` | accepted | fewer reflections than columns |
| `fft.fftshift`, `fft.ifftshift` | accepted | no axes: nothing is shifted |
| `upsample` | different | bytes are weighted in float32, where PyTorch rounds the weights |
| `linalg.qr` | different, spread | the sign of a column that all but vanishes, and infinities |
| `cholesky` | accepted | a matrix with an infinity, of which there is no telling whether it is positive |
| `cross_entropy` | different | probabilities of another dtype than the logits, whose dtype the result has |
| `soft_margin_loss` | spread | finite loss and gradient for a margin below -88 in float32; PyTorch overflows to `inf` and NaN |
| `softmin`, `softmax`, `log_softmax` | different | of no integers, which become the default float |
| `pow`, `float_power` | spread | a complex zero to the power of -0, which is 1; NaN in PyTorch |
| `scatter_reduce`, `index_reduce` | different, spread | gradients of products with a zero among them, which are those of the others; PyTorch divides by it. An element that is not included takes no part of a tie's gradient |
| `index_reduce` | accepted | a vector of one element as the source of a number |
| `svd`, `linalg.svd`, `linalg.svdvals`, `linalg.solve`, `linalg.eig`, `linalg.eigh`, `linalg.cholesky`, `lu_solve` | different, spread | matrices with an inf or NaN are refused, where PyTorch answers NaN for some of them |
| `lu`, `linalg.lu` | accepted | LU without pivoting, which PyTorch has on GPUs alone |

Under `inference_mode` nothing is recorded, but its tensors are ordinary ones: `is_inference()` is False, and using them in a graph or
changing them in place is right, since they have versions; PyTorch refuses both.
A view made under `no_grad` says `requires_grad=False`; in PyTorch it says True, though no gradient comes through it. It may be changed in place while recording, with right gradients; PyTorch refuses.

Files are read and written in PyTorch's formats (also that of before 1.6, storages, and attributes of tensors), but `weights_only=False`
and `pickle_module` run no code from a file here either. `differentiable=True` steps of the optimizers differentiate the first momentum
buffer too, which PyTorch detaches. Forward mode (`autograd.forward_ad`, `func.jvp`) gives the second derivatives of
`layer_norm` that finite differences give, which PyTorch's does not. Left out on purpose: TorchScript's and ONNX's internals, and
`Function.ctx`'s and module hooks' refusals of views that are changed in place.
Left out, since nothing depends on them here: `hipify`, quantized engines, jit internals; errors of `use_deterministic_algorithms` for
functions that vary in PyTorch only; lazy conjugates and negatives (`_conj`, `_neg_view`); `_fix_weakref` of tensors and storages.
`complex32` is a name to compare dtypes with, which no tensor has. Products (other than `baddbmm`) and convolutions promote mixed
dtypes, as does `add(array, tensor)` of a NumPy array, and `1 - mask` is allowed; state dicts may hold NumPy arrays. The gradient behind
a pooling to nothing, `adaptive_avg_pool2d(x, 0)`, is zeros, where PyTorch refuses.

"""

SURFACES = [
    ("torch", torch, mytorch),
    ("torch.Tensor", torch.Tensor, mytorch.Tensor),
    ("torch.nn", torch.nn, mytorch.nn),
    ("torch.nn.functional", torch.nn.functional, mytorch.nn.functional),
    ("torch.nn.init", torch.nn.init, mytorch.nn.init),
    ("torch.linalg", torch.linalg, mytorch.linalg),
    ("torch.fft", torch.fft, mytorch.fft),
    ("torch.optim", torch.optim, mytorch.optim),
    ("torch.optim.lr_scheduler", torch.optim.lr_scheduler, mytorch.optim.lr_scheduler),
    ("torch.utils.data", torch.utils.data, mytorch.utils.data),
    ("torch.distributions", importlib.import_module("torch.distributions"), mytorch.distributions),
]


def names_of(label, module):
    """The public names of a surface that count."""
    found = []
    for name in dir(module):
        if LEFT_OUT.search(name) or name[0] == "_":
            continue
        value = getattr(module, name)
        if inspect.ismodule(value):
            continue
        if label == "torch.Tensor" or name in getattr(module, "__all__", ()):
            found.append(name)
        elif callable(value) and str(getattr(value, "__module__", "torch")).startswith("torch") and "." not in name:
            home = str(getattr(value, "__module__", ""))
            if label in ("torch.nn", "torch.optim", "torch.optim.lr_scheduler") and (
                not name[0].isupper() or not home.startswith(label)
            ):
                continue
            if label == "torch" and (name[0].isupper() or "._C" in home or "jit" in home):
                continue
            if label == "torch.nn.functional" and (
                home not in ("torch.nn.functional", "torch._C._nn", "torch") or "handle" in name or "has_torch" in name
            ):
                continue
            found.append(name)
    return found


def main():
    lines = [
        "# What of PyTorch is here",
        "",
        *INTRODUCTION.strip().splitlines(),
        "",
        "## Names",
        "",
        f"Made by `docs/make_compatibility.py` from the public names of PyTorch {torch.__version__.split('+')[0]}. Left out of the count: sparse,",
        "quantized and named tensors, other devices, 8-bit floats, data pipes, and PyTorch's internals.",
        "",
        "| surface | names | present | share |",
        "|---|---|---|---|",
    ]
    missing = []
    for label, theirs, ours in SURFACES:
        names = names_of(label, theirs)
        absent = [n for n in names if not hasattr(ours, n)]
        share = 100 * (len(names) - len(absent)) / len(names)
        lines.append(f"| `{label}` | {len(names)} | {len(names) - len(absent)} | {share:.0f} % |")
        missing += ["", f"## Missing in `{label}`", "", ", ".join(f"`{n}`" for n in absent) or "Nothing."]
    lines += ["", "A name that is missing raises an AttributeError that says so."]
    Path(__file__).with_name("compatibility.md").write_text("\n".join(lines + missing) + "\n")


if __name__ == "__main__":
    main()
