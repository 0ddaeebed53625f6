"""The differences from PyTorch that the generated comparisons accept, each with its reason, in one list.

Five generators compare calls with PyTorch: `test_ops.py` (the rows of samples/), `test_opinfo.py` and `test_opinfo_variants.py` (PyTorch's
operator database, and its samples with empty axes and in other layouts), `test_fuzz.py` (random calls) and `test_comparisons.py`
(generated programs). An exception of one generator is here, next to the exceptions of the others for the same op. The differences that a
user can meet are in the table of docs/differences.md, which `known` reads.
"""

import re
from functools import cache
from pathlib import Path

# -- ops of PyTorch's operator database ----------------------------------------------------------------------------------

ELSEWHERE = (  # sparse and quantized tensors, aliases of tested ops, internals of PyTorch
    "sparse", "masked.", "_", "quant", "ops.", "torch.ops", "jiterator", "to_sparse", "special.airy", "special.bessel",
    "special.hermite", "special.laguerre", "special.legendre", "special.chebyshev", "special.shifted", "special.modified",
    "special.scaled", "special.spherical", "signal.",
)  # fmt: skip
RANDOM = {  # results differ by design; shapes and dtypes are compared
    "bernoulli", "normal", "multinomial", "rand_like", "randn_like", "randint_like", "randn", "randint", "uniform", "cauchy",
    "exponential", "geometric", "log_normal", "nn.functional.dropout", "nn.functional.alpha_dropout",
    "nn.functional.feature_alpha_dropout", "nn.functional.dropout2d", "nn.functional.dropout3d", "nn.functional.rrelu",
    "nn.functional.fractional_max_pool2d", "nn.functional.fractional_max_pool3d", "nn.functional.gumbel_softmax", "empty",
    "empty_like", "new_empty", "empty_strided", "new_empty_strided", "empty_permuted", "nn.functional.scaled_dot_product_attention",
}  # fmt: skip
UP_TO_SIGNS = {"svd", "linalg.svd", "linalg.eigh", "linalg.eig", "qr"}  # through the samples' own sign-free functions
OTHER_ARGUMENTS = {  # the database calls these ops by a wrapper with another order of arguments
    "svd_lowrank", "pca_lowrank", "linalg.pinv.singular", "special.polygamma", "nn.functional.embedding",
    "nn.functional.triplet_margin_with_distance_loss", "linalg.lstsq.grad_oriented", "normal.number_mean", "normal.in_place", "zero_", "as_strided.partial_views",
    "nn.functional.multi_head_attention_forward", "to", "nn.functional.linear_cross_entropy",
    "nn.functional.embedding_bag",
}  # fmt: skip
DIFFERENT = {
    "chalf": "no tensor has complex32, which is a name to compare dtypes with",
    "linalg.lstsq": "empty results that PyTorch marks as requiring grad",
    "linalg.norm.subgradients_at_zero": "second derivatives at a norm of zero: ours are 0, PyTorch's NaN",
    "cov": "PyTorch mixes float32 weights in at another place",
    "gather": "an empty index of another number of axes",
    "histogramdd": "unsorted edges, which NumPy refuses",
    "nn.functional.batch_norm": "one-dimensional empty input",
    "mode": "which of several equal places is named", "topk": "which of several equal places is named",
    "kthvalue": "which of several equal places is named", "sort": "order of equal elements", "argsort": "order of equal elements",
    "sum_to_size": "bool summed to its own shape", "nn.functional.local_response_norm": "integers",
    "as_strided_scatter": "a single element written by a 0-d view",
    "cholesky_inverse": "the part of the gradient above the diagonal", "cholesky_solve": "the part of the gradient above the diagonal",
}  # fmt: skip
DIFFERENT_COMPLEX = {
    "cholesky", "linalg.cholesky", "linalg.cholesky_ex", "istft", "nn.functional.rms_norm", "logcumsumexp", "logsumexp", "H",
}  # fmt: skip
COPIED = {"ravel", "resize_", "resize_as_"}  # the copies of the samples have another layout, or their own storage
IN_VARIANTS = {  # with axes of size 0, or in another memory layout
    "addmv": "PyTorch returns one element for a matrix without rows",
    "block_diag": "PyTorch's gradients are shifted by a row for an empty vector",
    "nn.functional.conv1d": "PyTorch returns 0 channels for a weight without input channels",
    "nn.functional.conv2d": "PyTorch returns 0 channels for a weight without input channels",
    "nn.functional.conv3d": "PyTorch returns 0 channels for a weight without input channels",
    "nn.functional.group_norm": "the gradient of the weight is 0 for empty images, PyTorch's is NaN",
    "nn.functional.multi_margin_loss": "NaN, where PyTorch returns uninitialized memory",
    "nn.functional.multilabel_margin_loss": "NaN, where PyTorch returns uninitialized memory",
    "nn.functional.pixel_unshuffle": "PyTorch returns an empty input unchanged",
    "nn.functional.pdist": "PyTorch ends the process",
    "nn.functional.adaptive_avg_pool1d": "images without pixels are refused",
    "nn.functional.adaptive_avg_pool2d": "images without pixels are refused",
    "nn.functional.adaptive_avg_pool3d": "images without pixels are refused",
    "nn.functional.adaptive_max_pool3d": "images without pixels are refused",
    "nn.functional.cross_entropy": "class targets without classes are refused",
    "nn.functional.nll_loss": "class targets without classes are refused",
    "lu_unpack": "pivots of another size are refused",
    "repeat_interleave": "an output size that does not match is refused",
    "resize_": "new elements are uninitialized memory",
    "as_strided": "the strides of a sample fit one layout", "as_strided_copy": "the strides of a sample fit one layout",
    "view_copy": "the shape of a sample fits one layout", "view": "the shape of a sample fits one layout",
}  # fmt: skip
# Equal elements are common in 16 bits, and which of them is first is not defined. Only the first result is compared.
TIES = {"sort", "topk", "argsort", "argmax", "argmin"}

# -- generated calls and programs ----------------------------------------------------------------------------------------


@cache
def known():
    """The beginnings of names in the table of docs/differences.md, each with the kinds of outcome that are known."""
    page = (Path(__file__).resolve().parent.parent / "docs" / "differences.md").read_text()
    rows = re.findall(r"^\| (`.+?`) \| ([\w, /]+) \|", page.partition("## Calls that differ")[2], re.M)
    kind = {"inf/NaN": "spread", "message": "words"}  # the page's terms for kinds of tests/fuzzing.py
    return [
        (name, {kind.get(k, k) for k in kinds.split(", ")})
        for names, kinds in rows
        for name in re.findall(r"`(.+?)`", names)
    ]


def is_of(name, start):
    """Returns True if a name starts with a listed name that is followed by a character other than a letter."""
    return name.startswith(start) and (start[-1] in "._" or not name[len(start) : len(start) + 1].isalpha())


# Family: (name, outcomes, explanation, program): regular expressions, and above them the reason why the difference remains.
LISTED = {
    "losses": [
        # The distance of two points differs by less than the rounding of their largest number.
        ("triplet_margin.*|cosine_embedding_loss", "different|spread", r"values:", r""),
        # Second derivatives at infinite logits, and below 1e-8 of the largest one.
        ("binary_cross_entropy|multilabel_soft_margin_loss", "different|spread", r"values:", r""),
    ],
    "inplace": [
        # A value that backward needs is copied before it is overwritten.
        ("program", "accepted", r"modified by an inplace operation: ", r""),
        # A view that is created under no_grad gets the graph of its base after the base is changed in place.
        ("program", "accepted", r"A view was created in no_grad mode and (its base or another view|is being modified)",
         r"no_grad (view|compute (reshape|contiguous))"),
        # Results of split and unbind that are changed under no_grad keep their graph, as other views do.
        ("program", "accepted", r"Output \d of (Split|Unbind|Unsafe\w+)\w* is a view and its base or another view", r""),
        # PyTorch computes a gradient with the shape from before the change of shape, and refuses the gradient.
        ("program", "accepted", r"returned an invalid gradient at index", r"change (t_|unsqueeze_)"),
        # PyTorch reports that a view of a base that requires gradients requires them, also if it is created under no_grad.
        ("program", "different", r"'False True True (.*)' for 'True True True \1'", r"no_grad (view|compute (reshape|contiguous))"),
        # The gradient that retain_grad keeps has the shape of the tensor. In PyTorch, it has the shape from before the change.
        ("program", "different", r"shape \(.*\) for \(", r"retain_grad .*change (t_|unsqueeze_)"),
        # A tensor that is detached has no gradient. PyTorch sets the gradient of its former node if retain_grad was called.
        ("program", "different", r"None for tensor", r"retain_grad .*detach_"),
        # Second derivatives reach an intermediate tensor if a formula reads the result, and its source if it reads the input.
        ("program", "different", r"values: |None for|for None", r"(retain_grad|hook) .*double=True"),
    ],
    "subclasses": [
        # The database calls a method of an argument that is not a tensor. mytorch's function calls `__torch_function__`.
        (".*", "accepted", r"'Duck' object has no attribute|doesn't apply to a 'Duck' object", r"^duck"),
        # An alias is the function that it is an alias of, and has its name.
        ("unsafe_chunk|unsafe_split|true_divide|ravel|conj_physical|trapz|alias_copy", "different", r"\"\['(chunk|split|div|flatten|conj|trapezoid|clone)'\]\"", r""),
        ("linalg.(inv|householder_product)", "different", r"\"\['(inverse|orgqr)'\]\" for", r""),
        ("upsample_.*|logsigmoid|grid_sampler_.d", "different", r"\"\['(upsample_\w+|logsigmoid|grid_sampler)'\]\" for", r""),
        ("(adaptive_)?max_pool.d", "different", r"\"\['(\w+)'\]\" for \"\['\1_with_indices'\]\"", r""),
        # PyTorch's function is composed of calls of other functions, which a subclass sees.
        ("max_unpool1d|resize_as_", "different", r"\"\['(max_unpool1d|resize_as_)'\]\" for \"\[('\w+', )*'\w+'\]\"", r"^logged"),
    ],
    "keywords": [
        # The names of PyTorch's documentation are accepted together with the names of its parser.
        ("tensor_split|[dhv]split", "accepted", r"received an invalid combination of arguments", r"indices_or_sections="),
        ("one_hot", "accepted", r"missing 1 required", r"tensor="),
        ("lu_solve", "accepted", r"missing", r"b="),
        # `input` names the first argument of each function.
        ("linalg\\..*", "accepted", r"missing 1 required", r"input="),
        # `targets` is the documented name in native mode.
        ("cross_entropy", "accepted", r"unexpected keyword argument 'targets'", r"targets="),
        # `other` names the second tensor, as in `view_as` and `expand_as`.
        ("resize_as_", "accepted", r"missing 1 required", r"other="),
    ],
    "arguments": [
        # A list with one element can be that element, and a bool is the integer 0 or 1, where sizes or axes follow one another.
        ("", "result|error", r"TypeError", r"flip\((t, )?(True|-7)|(full|zeros)\((True|-7)|layer_norm\(t, -7"),
        # None is the default of these arguments here.
        ("", "result", r"TypeError", r"eye\(2, None\)|cross\(t, t, dim=None|std\(t, True, keepdim|trapezoid\(t, dx=None|adaptive_avg_pool1d\(t, \(None,\)\)"),
        ("", "error", r"TypeError", r"(repeat_interleave\(t, None|where\(t > 0, t, None)"),
        # Bounds may mix numbers and tensors.
        ("", "result|error", r"TypeError", r"clamp\(.*x\("),
        # Complex numbers, bools and negative values that PyTorch's kernels refuse.
        ("", "result", r"RuntimeError|ValueError", r"bucketize\(1j|trapezoid\(t, dx=True|softplus\(.*1j|threshold\(t, 1j|kl_div\(t, x\(bool|"
         r"batch_norm\(t, .*(-7|x\(float32\)\[0, 0\])\)|vander\(x\(bool"),
        # An empty list of axes.
        ("", "result|error", r"", r"(roll|fftshift|logsumexp)\(.*\[\]\)"),
        # Tensors in place of the numbers of an op, and a bool as a size.
        ("", "error", r"float32", r"(layer_norm|group_norm|softplus|threshold)\(.*x\(float32\)\[0, 0\]|hann\(True"),
    ],
    "empty": [
        # PyTorch returns uninitialized elements.
        ("multilabel_margin_loss|multi_margin_loss|resize_as_", "different|spread", r"values", r""),
        # LAPACK returns matrices in column order.
        ("linalg.householder_product|ormqr|lu_solve|triangular_solve|linalg.(lstsq|solve|solve_triangular)", "different", r"strides", r""),
        # The result of no numbers is a constant without a graph in PyTorch, or the integral of integers has their dtype.
        ("trapz|trapezoid|linalg.cond|cumulative_trapezoid", "different", r"observations for|dtype", r""),
        # The input is broadcast. PyTorch returns it in its own shape if the matrix is empty.
        ("addmv", "different", r"shape", r""),
        # A convolution, and a shuffle of pixels, have the same shape with and without elements. PyTorch returns another shape.
        ("conv2d|pixel_(un)?shuffle", "different|accepted", r"shape|channel", r""),
        # PyTorch's gradient of the source has the shape of the index, and PyTorch refuses the gradient.
        ("scatter_reduce", "accepted", r"ScatterReduceBackward0 returned an invalid gradient", r""),
        # Images without channels, and batches without windows, have results without elements.
        ("interpolate|grid_sample(r_.d)?|upsample_.*|conv_transpose.d|adaptive_avg_pool.d|channel_shuffle", "accepted", r"", r""),
        # Statistics of no channels, and products with no features, are empty.
        ("batch_norm|instance_norm|bilinear|view_as_real|stft", "accepted", r"", r""),
    ],
}  # fmt: skip


def is_listed(family, name, kind, told, text):
    """Returns True if a difference has a reason in `LISTED` or, for calls of single functions, in docs/differences.md."""
    if family != "inplace" and any(is_of(name, start) and kind in kinds for start, kinds in known()):
        return True
    return any(
        re.fullmatch(names, name)
        and re.fullmatch(kinds, kind)
        and re.search(explanation, told)
        and re.search(program, text)
        for names, kinds, explanation, program in LISTED.get(family, ())
    )
