"""Generate docs/compatibility.md: the public names of PyTorch that mytorch has, and known differences.

    python docs/make_compatibility.py

Requires PyTorch. The pattern LEFT_OUT excludes names of sparse, quantized and named tensors, of other devices, and of
PyTorch's internals from the count.
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
    r"eig|lstsq|solve|symeig|matrix_rank|saddmm|index|resize|resize_as|"  # removed from PyTorch, or raises an error there
    r"assert_int_or_pair|scaled_mm|scaled_grouped_mm|grouped_mm|Tensor)$"
)

INTRODUCTION = """# PyTorch compatibility

This page lists the PyTorch names that mytorch has, the names that are missing, and the calls that behave differently.
[Coming from PyTorch](from_pytorch.md) explains how to run or port a program.

## Modes

mytorch has two modes. **Native mode** is the default. **PyTorch mode** runs unchanged PyTorch programs:

```text
# also: python -m mytorch -m module, python -m mytorch -c code
python -m mytorch script.py
```

In a program, `mytorch.install_as_torch()` enables PyTorch mode. PyTorch mode applies to the whole process.

| behavior | native mode | PyTorch mode |
|---|---|---|
| `import torch` | PyTorch, if installed | mytorch |
| printed tensors | five decimals, no commas | as in PyTorch |
| type of `.data` and `.grad` | `Array` (a tensor without autograd) | `Tensor` |
| matrix products of mixed dtypes | promoted | error, as in PyTorch |

In PyTorch mode, these calls raise an error, as in PyTorch:

* matrix products, `linear`, convolutions and `einsum` with mixed dtypes;
* binary cross-entropies with targets of another dtype;
* classification losses with class targets that are not int64 or uint8.
"""

DIFFERENCES = """
## Known differences

### Autograd and views

* In native mode, `x.grad` is an `Array`. It has all tensor methods, and `mytorch.is_tensor(x.grad)` is True. But
  `isinstance(x.grad, mytorch.Tensor)` is False.
* `__torch_function__` receives the arguments as the program passed them. PyTorch passes optional arguments of functions in
  `nn.functional` by keyword.
* `__torch_function__` receives functions of `linalg`, `fft` and `special` with their public `__name__`, such as "norm". PyTorch
  uses names such as "linalg_norm".
* `enable_grad()` inside `inference_mode` does not change `is_grad_enabled()`, which returns False. Nothing is recorded, as in PyTorch.
* `type(x.grad_fn).__name__` is the name of mytorch's last op if mytorch composes a function of several ops: `F.mish` ends with
  MulBackward0. Most functions of one op have PyTorch's name.
* In-place `leaky_relu_` and `rrelu_` with a negative slope, and second derivatives of products in `scatter_reduce`, are computed. PyTorch
  raises an error.
* A tensor hook on one result of `unbind` is called only if backward reaches that result. PyTorch calls the hook with None.
* A view created under `no_grad` has `requires_grad=False`. PyTorch reports True, although no gradient flows through the view.
* `differentiable=True` in an optimizer also differentiates through the first momentum buffer. PyTorch detaches that buffer.
* Forward mode (`autograd.forward_ad`, `func.jvp`) returns second derivatives of `layer_norm` that agree with finite differences.
  PyTorch's second derivatives do not.
* `Function.ctx` and module hooks do not reject views that are changed in place.
* In-place functions of a view with overlapping elements, such as the windows of `unfold`, compute all elements from the earlier values. PyTorch
  changes one element after the other, so that an element in two windows is changed twice. It documents the result as undefined.
* The gradient of `block_diag` belongs to the right rows also after an empty vector. PyTorch reads earlier rows.

### Data types

* Matrix products other than `baddbmm`, and convolutions, promote mixed dtypes in native mode.
* `add(array, tensor)` accepts a NumPy array. In native mode, `1 - mask` accepts a boolean mask.
* `complex32` exists only for comparing dtypes. No tensor has this dtype.

### Files

* `load` and `save` support PyTorch's current format, the format before PyTorch 1.6, storages, and attributes of tensors.
* `save` writes any object that Python can pickle, always with protocol 2. `load(f, weights_only=False)` reads it and can run code
  from the file, as in PyTorch.
* State dicts may contain NumPy arrays.
* `torch.hub` reads local folders and files from URLs. It does not run code from GitHub.

### Processes and settings

* `torch.multiprocessing` copies tensors between processes, except tensors after `share_memory_()`. In PyTorch mode, `spawn` forks the process.
* `torch.compile` records array operations on a CPU. `backend`, `mode`, `dynamic` and `options` are checked or accepted, and have no
  effect, except that `backend="eager"` and custom backends run functions eagerly. A function with a part that cannot be recorded
  runs eagerly as a whole. PyTorch compiles the other parts. See [Compilation](compile.md).
* The settings of `torch.backends` are accepted. Only the TF32 settings have an effect.

### Features that are not included

* The internals of TorchScript and ONNX, and quantized engines
* Lazy conjugates and negatives (`_conj`, `_neg_view`)
* Operators of `torch.ops.aten` whose names are not functions of mytorch. Dispatch modes receive the ops of mytorch, so `linear` is
  one operator. They do not receive functions that create tensors, and assignments to a part of a tensor.
* Gradients through tensors of `_make_wrapper_subclass`. The inner tensors can require gradients.
* The translator from CUDA to HIP in `torch.utils.hipify`, `torch.jit.script(m).save`, and vmap rules of custom operators
* Errors of `use_deterministic_algorithms` for functions that are nondeterministic only in PyTorch, except `max_unpool` and `put`
"""

CALLS = """
## Calls that differ

`tests/fuzzing.py` makes random calls in both libraries and compares results, gradients and errors. The inputs include infinities, NaN,
denormal numbers, empty tensors and invalid arguments. The test suite runs 380 of these calls (`tests/test_fuzz.py`). The table lists the
calls with known differences. A name includes its numbered variants: `Conv` includes `Conv2d`.

| outcome | meaning |
|---|---|
| different | values, shapes, dtypes or gradients differ |
| inf/NaN | results differ only where one of the two results is infinite or NaN |
| accepted | mytorch returns a result; PyTorch raises an error |
| refused | mytorch raises an error; PyTorch returns a result |
| message | mytorch raises an error with a raw NumPy or Python message |

<div class="stacked" markdown="block">

| calls | outcome | reason |
|---|---|---|
| `adaptive_avg_pool`, `AdaptiveAvgPool`, `interpolate`, `upsample`, `Upsample` | inf/NaN, accepted | Windows of unequal sizes are computed with a weight matrix, so an inf or NaN turns its whole row into NaN. An input without channels is accepted. |
| `addmm`, `addmv`, `baddbmm`, `inner`, `conv_transpose`, `mean`, `sum`, `nansum`, `maximum`, `minimum` | different, inf/NaN | Complex products with infinities differ. Sums that contain huge numbers are added in a different order. |
| `fractional_max_pool`, `max_unpool` | accepted, message | mytorch accepts more sizes, index dtypes and infinite ratios. |
| `addr`, `addcdiv`, `addcmul`, `vdot`, `multi_dot`, `linalg.multi_dot`, `reciprocal`, `sinc` | different, inf/NaN | Complex products and products of several matrices differ at infinities. Denormal complex numbers differ. |
| `as_strided_scatter` | different, inf/NaN | Replaced elements get no gradient. PyTorch returns a gradient if the view is a single element. |
| `cholesky_solve`, `cholesky_inverse` | different | Only the triangle that is read gets a gradient. PyTorch fills both triangles. |
| `ctc_loss` | inf/NaN | The gradient of a log-probability of `-inf` is finite. PyTorch returns NaN. |
| `fft.`, `linalg.householder_product`, `linalg.lstsq`, `linalg.lu`, `linalg.norm`, `linalg.det`, `ldexp`, `linspace`, `lu` | different, inf/NaN | Infinities and NaN propagate differently. |
| `linalg.eigvals`, `polar`, `triangular_solve`, `special.ndtr`, `special.zeta`, `special.erfcx`, `linalg.pinv`, `linalg.cond`, `linalg.matrix_norm`, `linalg.ldl_`, `special.i0e`, `logsigmoid`, `prod`, `cosine_similarity`, `normalize`, `logcumsumexp`, `multilabel_soft_margin_loss`, `binary_cross_entropy_with_logits` | different, inf/NaN | Precision differs: PyTorch loses digits in float32 or float16, or mytorch loses digits at poles and for ill-conditioned matrices. Angles may differ by a multiple of 2π. |
| `resize_`, `resize_as_` | different, inf/NaN | New elements are uninitialized. |
| `sign`, `sgn` | different, inf/NaN | NaN stays NaN. PyTorch returns 0. |
| `elu`, `selu`, `celu`, `ELU`, `SELU`, `CELU`, `hardshrink`, `Hardshrink`, `softshrink`, `Softshrink`, `abs`, `special.i1`, `special.i1e` | different, inf/NaN | The gradient at NaN is NaN. |
| `Conv`, `ConvTranspose` | different, inf/NaN | Initial weights differ in the last bit, which becomes visible for huge inputs. |
| `std`, `std_mean`, `var_mean`, `var` | different, inf/NaN | The mean of infinities is infinite. PyTorch's running sums return NaN. Squares that overflow float32 also differ. |
| `layer_norm`, `group_norm`, `native_layer_norm`, `native_group_norm`, `LayerNorm`, `GroupNorm`, `instance_norm` | different, inf/NaN | A variance that overflows gives NaN. PyTorch returns NaN or zeros, depending on the row length and the vector width of the processor. |
| `norm`, `linalg.vector_norm` | different, inf/NaN, accepted | Derivatives at denormal numbers differ. Negative orders of empty tensors are accepted. |
| `atan2` | different | PyTorch squares uint8 and float16 inputs in their own dtype for the gradient. |
| `Softsign`, `softsign` | inf/NaN, different | PyTorch adds 1 to uint8 inputs in uint8. |
| `bucketize`, `searchsorted` | different | Results differ if the boundaries are not sorted. |
| `grid_sampler` | refused | Integers that are not a valid mode raise an error. PyTorch selects a mode. |
| `mode`, `kthvalue`, `topk`, `argsort`, `sort`, `nanmedian` | different, inf/NaN | The index among equal elements may differ. |
| `kron`, `take_along_dim`, `view_as_complex`, `linear`, `bilinear`, `logspace`, `isclose`, `index_copy`, `pinverse`, `pad`, `soft_margin_loss`, `linalg.vecdot`, `allclose`, `clamp`, `index_put`, `setitem` | different, inf/NaN, accepted | Shapes and dtypes that broadcast, and strides that require a copy, are accepted. Bounds may mix numbers and tensors. Some invalid device names are not checked. |
| `trapezoid`, `trapz`, `cumulative_trapezoid` | different, inf/NaN, accepted | Shapes that broadcast are accepted. Sums of uint8 overflow in PyTorch only. |
| `addbmm`, `bmm`, `mm`, `dot`, `tensordot`, `rsub`, `conv1d`, `conv3d`, `polygamma`, `linalg.solve`, `linalg.solve_triangular`, `linalg.inv_ex`, `linalg.vander`, `linalg.matrix_power`, `angle`, `cumprod`, `prod`, `fmod`, `prelu`, `nanquantile`, `instance_norm`, `index_reduce`, `scatter_reduce`, `logit`, `logsumexp`, `grid_sampler`, `grid_sample`, `rsqrt`, `logaddexp`, `remainder`, `logdet`, `group_norm`, `linalg.inv`, `sinh`, `istft`, `gelu`, `lp_pool`, `LPPool`, `cholesky_solve`, `cholesky_inverse`, `acosh`, `mvlgamma`, `cov` | inf/NaN | Infinities in products and quotients, and the resulting NaN, propagate differently. |
| `cdist`, `linalg.slogdet`, `slogdet`, `linalg.solve_ex` | different, inf/NaN | `cdist` with `p=0` counts two NaN as unequal, and PyTorch returns NaN. Results for a matrix with a NaN differ. |
| `avg_pool1d`, `avg_pool3d`, `unfold`, `max_pool1d`, `max_pool3d`, `ConvTranspose`, `conv_transpose`, `ReplicationPad`, `CircularPad` | accepted | Inputs without channels or batch, additional leading axes, padded inputs smaller than the window, and one-element lists are accepted. |
| `pixel_unshuffle`, `PixelUnshuffle`, `sum_to_size`, `einsum`, `matmul`, `conv3d`, `cholesky`, `linalg.eigvalsh`, `linalg.solve_triangular` | different | Results for empty inputs differ. Sums of integers keep their dtype. A bias of another dtype, mixed dtypes and empty matrices are promoted. |
| `logsumexp`, `linalg.solve`, `linalg.pinv`, `linalg.cholesky` | accepted | Complex `logsumexp` over no axes, and empty matrices, are accepted. |
| `scaled_dot_product_attention` | accepted | Keys with fewer heads are shared among the query heads, also without `enable_gqa`. |
| `getitem` | accepted | In native mode, `loss[0]` of a zero-dimensional tensor returns the value. |
| `NAdam` | different | Gradients of 10²⁰ take a step. PyTorch's second moment overflows, and the parameter stays as it is. |
| `triplet_margin`, `hardswish` | different, inf/NaN | Distances of huge numbers differ by the rounding of the largest one. The gradient of `hardswish` at NaN is NaN. |
| `pickle` | different | A pickled view contains only its elements. PyTorch pickles the whole memory, so views share it again. `copy.deepcopy` and `mytorch.save` keep shared memory. |
| `Parameter` | different | `nn.Parameter` of a subclass of Tensor is a plain Parameter. |
| `retain_grad`, `register_hook` | different | Second derivatives reach the result of an op if its formula reads the result, and the input if it reads the input. `detach_` ends the retained gradient of a tensor. After `t_` or `unsqueeze_`, a retained gradient has the new shape. |
| `requires_grad` | different | A view that is created under `no_grad` does not require gradients. PyTorch 2.13 reports True. |
| `__torch_function__` | refused | A class that is not a subclass of Tensor is not asked by a function of several ops that accepts it, until an op or another class was asked. |
| `program` | accepted | Programs of views and in-place changes: values that backward needs are copied before they are overwritten. |
| `gather` | different, inf/NaN, accepted | A zero-dimensional input accepts an index with axes. |
| `index_fill` | accepted | A value out of the range of the dtype is accepted. |
| `ormqr` | accepted | Fewer reflections than columns are accepted. |
| `fft.fftshift`, `fft.ifftshift` | accepted | An empty list of axes returns the input unchanged. |
| `upsample` | different | uint8 inputs are weighted in float32. PyTorch rounds the weights. |
| `linalg.qr` | different, inf/NaN | The sign of a nearly vanishing column, and infinities, differ. |
| `cholesky` | accepted | A matrix with an infinity is accepted. |
| `cross_entropy` | different | The result has the dtype of the logits, also if the probabilities have another dtype. |
| `soft_margin_loss` | inf/NaN | Loss and gradient are finite for a margin below -88 in float32. PyTorch overflows to `inf` and NaN. |
| `softmin`, `softmax`, `log_softmax` | different | Empty integer tensors are converted to the default float dtype. |
| `pow`, `float_power` | inf/NaN | A complex zero to the power of -0 is 1. PyTorch returns NaN. |
| `scatter_reduce`, `index_reduce` | different, inf/NaN | Gradients of a product that contains a zero are products of the other factors. PyTorch divides by the zero. With `include_self=False`, the overwritten element gets no share of a tie's gradient. |
| `index_reduce` | accepted | A zero-dimensional input accepts a source with one element. |
| `svd`, `linalg.svd`, `linalg.svdvals`, `linalg.solve`, `linalg.eig`, `linalg.eigh`, `linalg.cholesky`, `lu_solve` | different, inf/NaN | Matrices with an inf or NaN raise an error. PyTorch returns NaN for some of these matrices. |
| `lu`, `linalg.lu` | accepted | LU without pivoting works on the CPU. PyTorch supports it on GPUs only. |

</div>
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
    """Returns the public names of a module that are included in the count."""
    names = []
    for name in dir(module):
        if LEFT_OUT.search(name) or name[0] == "_":
            continue
        value = getattr(module, name)
        if inspect.ismodule(value):
            continue
        if label == "torch.Tensor" or name in getattr(module, "__all__", ()):
            names.append(name)
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
            names.append(name)
    return names


def main():
    lines = [
        "",
        "## Names",
        "",
        f"The table counts the public names of PyTorch {torch.__version__.split('+')[0]} and the names that mytorch also has. It excludes sparse,",
        "quantized and named tensors, devices other than CPU and CUDA, 8-bit floats, data pipes, and internals of PyTorch.",
        "`docs/make_compatibility.py` generates this page.",
        "",
        "| module | names in PyTorch | names in mytorch |",
        "|---|---|---|",
    ]
    missing = []
    for label, torch_module, module in SURFACES:
        names = names_of(label, torch_module)
        absent = [n for n in names if not hasattr(module, n)]
        present = len(names) - len(absent)
        lines.append(f"| `{label}` | {len(names)} | {present} ({100 * present / len(names):.0f}\u00a0%) |")
        if absent:
            missing.append(f"* `{label}`: {', '.join(f'`{n}`' for n in absent)}")
    lines += ["", "These names are missing and raise `AttributeError`:", "", *missing, ""]
    text = INTRODUCTION + "\n".join(lines) + DIFFERENCES + CALLS
    Path(__file__).with_name("compatibility.md").write_text(text)


if __name__ == "__main__":
    main()
