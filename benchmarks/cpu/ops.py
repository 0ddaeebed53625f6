"""Workloads: single ops, forward, or forward and backward (`_fb`).

Each op has inputs of four sizes. The name of a workload contains the size, as in "add small", except for large inputs.
"""

import re

import numpy as np

SIZES = {"large": (1024, 1024), "small": (8, 8), "medium": (128, 128), "odd": (257, 1023)}
FB = "forward and backward"
CASES = {}  # name -> (run, inputs, True if it is differentiated)


def case(name, run, *inputs, backward=False):
    """Add a case.

    Args:
        name: name of the workload.
        run: function `run(L, *inputs)` that calls library L.
        inputs: shapes of n, m and numbers, with a mark for the contents: "n m" for normal numbers, "n m +" for positive numbers,
            "n m ?" for bools, "n m < m" for integers below m.
        backward: True adds a second case NAME_fb that also differentiates all float inputs. FB adds only that case.
    """
    if backward != FB:
        CASES[name] = (run, inputs, False)
    if backward:
        CASES[name.removesuffix("_fb") + "_fb"] = (run, inputs, True)


def table(text, *inputs, backward=False):
    """Add a case for each function named in `text`, with the same inputs."""
    for name in text.split():
        case(name, lambda L, *x, name=name: getattr(L, name)(*x), *inputs, backward=backward)


F = "nn.functional"


def functional(text, *inputs, backward=False):
    """Add a case for each function of nn.functional named in `text`, with the same inputs."""
    for name in text.split():
        case(name, lambda L, *x, name=name: getattr(L.nn.functional, name)(*x), *inputs, backward=backward)


# -- common ops; convolutions.py has convolutions, pooling and batch norm
case("cdist", lambda L, x, y: L.cdist(x, y), "n 64", "m 64", backward=True)
case("scatter_add", lambda L, x, i, s: x.scatter_add(1, i, s), "n m", "n m < m", "n m", backward=True)
case("randperm", lambda L, x: L.randperm(x.numel()), "n m")
case("einsum", lambda L, x, y: L.einsum("bhid,bhjd->bhij", x, y), "4 8 n 64", "4 8 m 64", backward=True)
case("embedding", lambda L, i, w: L.nn.functional.embedding(i, w), "8 n < m", "m 256", backward=FB)
case("transpose_copy", lambda L, x: x.t().contiguous(), "n m")
case("gather", lambda L, x, i: x.gather(1, i), "n m", "n m < m", backward=True)
case("cumsum", lambda L, x: x.cumsum(1), "n m", backward=True)
case("sum_rows", lambda L, x: x.sum(1), "n m")
case("sum_cols", lambda L, x: x.sum(0), "n m")
case("norm", lambda L, x: x.norm(), "n m", backward=True)
case("topk", lambda L, x: x.topk(10 if x.shape[1] > 10 else 3)[0], "n m")
case("bf16_matmul", lambda L, x, y: x.bfloat16() @ y.bfloat16(), "n m", "m n")
case("broadcast_mul", lambda L, x, y: x * y, "n m", "m", backward=True)
case("softmax", lambda L, x: x.softmax(-1), "n m", backward=True)
case("prod_chain", lambda L, x, y: x * y * x * y * x, "n m", "n m", backward=FB)
case("where", lambda L, c, x, y: L.where(c, x, y), "n m ?", "n m", "n m", backward=True)
case("sort", lambda L, x: x.sort(-1)[0], "n m", backward=True)
case("cat", lambda L, x, y: L.cat([x, y], 0), "n m", "n m", backward=True)
case("logsumexp", lambda L, x: x.logsumexp(1), "n m", backward=True)
case("randn", lambda L, x: L.randn(*x.shape), "n m")
functional("gelu silu", "n m", backward=True)
case(
    "layer_norm", lambda L, x, w, b: L.nn.functional.layer_norm(x, (x.shape[1],), w, b), "n m", "m", "m", backward=True
)
case("mask_select", lambda L, x, c: x[c], "n m", "n m ?")
case(
    "interpolate",
    lambda L, x: L.nn.functional.interpolate(x, scale_factor=2, mode="bilinear", align_corners=False),
    "2 3 n m",
    backward=FB,
)
case("bmm", lambda L, x, y: L.bmm(x, y), "8 n 64", "8 64 m", backward=True)
case("int_add", lambda L, x, y: x + y, "n m < m", "n m < m")
case("index_rows", lambda L, x, i: x[i], "n m", "n < n", backward=True)
table("matmul", "n m", "m n", backward=True)
case("dropout", lambda L, x: L.nn.functional.dropout(x, 0.1), "n m", backward=True)
case("max", lambda L, x: x.max(1)[0], "n m", backward=True)
case("var", lambda L, x: x.var(1), "n m", backward=True)
case("argmax", lambda L, x: x.argmax(1), "n m")
functional("cross_entropy", "n m", "n < m", backward=True)
# -- elementwise
table("exp tanh sigmoid sin cos erf relu abs neg square expm1", "n m", backward=True)
table("log sqrt rsqrt reciprocal log1p", "n m +", backward=True)
table("add sub mul div maximum minimum atan2", "n m", "n m", backward=True)
table("floor round sign isnan isfinite", "n m")
table("eq lt logical_and", "n m", "n m")
case("pow", lambda L, x: x**2.5, "n m +", backward=True)
case("clamp", lambda L, x: x.clamp(-1.0, 1.0), "n m", backward=True)
case("lerp", lambda L, x, y: x.lerp(y, 0.3), "n m", "n m", backward=True)
case("addcmul", lambda L, x, y, z: L.addcmul(x, y, z, value=0.5), "n m", "n m", "n m", backward=True)
case("add_column", lambda L, x, y: x + y, "n m", "n 1", backward=True)
case("add_", lambda L, x, y: x.add_(y), "n m", "n m")
case("mul_number", lambda L, x: x * 1.5, "n m", backward=True)
case("masked_fill", lambda L, x, c: x.masked_fill(c, 0.0), "n m", "n m ?", backward=True)
case("to_float64", lambda L, x: x.double(), "n m")
case("to_bfloat16", lambda L, x: x.bfloat16(), "n m")
case("to_int", lambda L, x: x.long(), "n m")
functional("leaky_relu elu softplus mish hardswish logsigmoid relu6 softsign", "n m", backward=True)
# -- reductions
case("sum", lambda L, x: x.sum(), "n m", backward=True)
case("mean_rows", lambda L, x: x.mean(1), "n m", backward=True)
case("mean_cols", lambda L, x: x.mean(0), "n m", backward=True)
case("std", lambda L, x: x.std(), "n m", backward=True)
case("var_cols", lambda L, x: x.var(0), "n m", backward=True)
case("norm_rows", lambda L, x: x.norm(dim=1), "n m", backward=True)
case("amax_cols", lambda L, x: x.amax(0), "n m", backward=True)
case("argmax_cols", lambda L, x: x.argmax(0), "n m")
case("prod_rows", lambda L, x: x.prod(1), "n m", backward=True)
case("any_rows", lambda L, c: c.any(1), "n m ?")
case("count_nonzero", lambda L, c: L.count_nonzero(c), "n m ?")
case("int_sum", lambda L, x: x.sum(), "n m < m")
case("cumsum_cols", lambda L, x: x.cumsum(0), "n m", backward=True)
case("cumprod", lambda L, x: x.cumprod(1), "n m")
case("cummax", lambda L, x: x.cummax(1)[0], "n m")
case("log_softmax", lambda L, x: x.log_softmax(-1), "n m", backward=True)
case("softmax_cols", lambda L, x: x.softmax(0), "n m", backward=True)
case("median", lambda L, x: x.median(1)[0], "n m")
case("quantile", lambda L, x: x.quantile(0.3, dim=1), "n m")
case("bincount", lambda L, i: L.bincount(i), "n < n")
case("histc", lambda L, x: L.histc(x, 100), "n m")
case("unique", lambda L, i: L.unique(i), "n m < m")
case("argsort", lambda L, x: x.argsort(-1), "n m")
case("int_sort", lambda L, i: i.sort(-1)[0], "n m < m")
case("kthvalue", lambda L, x: x.kthvalue(3, 1)[0], "n m")
case("searchsorted", lambda L, s, x: L.searchsorted(s.cumsum(0), x), "m +", "n m")
# -- moving and indexing
case("transpose_add", lambda L, x, y: x + y.t(), "n n", "n n")
case("permute_copy", lambda L, x: x.permute(0, 2, 1, 3).contiguous(), "4 n 8 64")
case("nchw_to_nhwc", lambda L, x: x.permute(0, 2, 3, 1).contiguous(), "2 3 n m")
case("stack", lambda L, x, y: L.stack([x, y], 1), "n m", "n m", backward=True)
case("cat_cols", lambda L, x, y: L.cat([x, y], 1), "n m", "n m", backward=True)
case("split_add", lambda L, x: x.chunk(2, 1)[0] + 1.0, "n m", backward=True)
case("roll", lambda L, x: x.roll(3, 1), "n m", backward=True)
case("flip", lambda L, x: x.flip(1), "n m")
case("tril", lambda L, x: x.tril(), "n m", backward=True)
case("repeat", lambda L, x: x.repeat(2, 2), "n m", backward=True)
case("pad", lambda L, x: L.nn.functional.pad(x, (1, 2, 3, 4)), "n m", backward=True)
case("clone", lambda L, x: x.clone(), "n m")
case("zeros", lambda L, x: L.zeros(*x.shape), "n m")
case("arange", lambda L, x: L.arange(x.numel()), "n m")
case("index_add", lambda L, x, i, s: x.index_add(0, i.reshape(-1), s.reshape(-1, 64)), "m 64", "8 n < m", "8 n 64")
case("index_select_cols", lambda L, x, i: x.index_select(1, i), "n m", "m < m", backward=True)
case("scatter", lambda L, x, i, s: x.scatter(1, i, s), "n m", "n m < m", "n m")
case("scatter_amax", lambda L, x, i, s: x.scatter_reduce(1, i, s, "amax"), "n m", "n m < m", "n m")
case("scatter_mean", lambda L, x, i, s: x.scatter_reduce(1, i, s, "mean"), "n m", "n m < m", "n m")
case("gather_cols", lambda L, x, i: x.gather(0, i), "n m", "n m < n", backward=True)
case("take", lambda L, x, i: x.take(i), "n m", "n m < m", backward=True)
case("index_put", lambda L, x, i, y: x.index_put((i,), y), "n m", "n < n", "n m")
case("nonzero", lambda L, c: c.nonzero(), "n m ?")
case("one_hot", lambda L, i: L.nn.functional.one_hot(i, 64), "n 8 < 64")
# -- products
case("einsum_outer", lambda L, x, y: L.einsum("bi,bj->bij", x, y), "64 n", "64 m")
case("einsum_mixed", lambda L, x, y: L.einsum("ijk,jl->ikl", x, y), "8 n 64", "n 64", backward=True)
case("linear", lambda L, x, w, b: L.nn.functional.linear(x, w, b), "n m", "n m", "n", backward=True)
case("matvec", lambda L, x, y: x @ y, "n m", "m", backward=True)
case("outer", lambda L, x, y: L.outer(x, y), "n", "m")
case("half_matmul", lambda L, x, y: x.half() @ y.half(), "n m", "m n")
case("pdist_l1", lambda L, x, y: L.cdist(x, y, p=1.0), "n 64", "m 64")
# -- losses, sampling, resampling
functional("mse_loss smooth_l1_loss binary_cross_entropy_with_logits", "n m", "n m +", backward=True)
case("cosine_similarity", lambda L, x, y: L.nn.functional.cosine_similarity(x, y), "n m", "n m", backward=True)
case("normalize", lambda L, x: L.nn.functional.normalize(x), "n m", backward=True)
case(
    "grid_sample",
    lambda L, x, g: L.nn.functional.grid_sample(x, g.tanh(), align_corners=False),
    "2 16 n 64",
    "2 n 64 2",
    backward=True,
)
case(
    "ctc_loss",
    lambda L, x, t: L.nn.functional.ctc_loss(
        x.log_softmax(-1), t + 1, L.full((16,), x.shape[0]), L.full((16,), t.shape[1])
    ),
    "100 16 40",
    "16 20 < 39",
    backward=True,
)
case("rand", lambda L, x: L.rand(*x.shape), "n m")
case("randint", lambda L, x: L.randint(0, 100, x.shape), "n m")
case("bernoulli_", lambda L, x: x.bernoulli_(0.3), "n m")
case("exponential_", lambda L, x: x.exponential_(), "n m")
case("log_normal_", lambda L, x: x.log_normal_(), "n m")
case("poisson", lambda L, x: L.poisson(x), "n m +")
case("binomial", lambda L, n, p: L.binomial(n, p / 10), "n m +", "n m +")
case("multinomial", lambda L, x: L.multinomial(x, 5, replacement=True), "n m +")
case(
    "gamma",
    lambda L, x: L._standard_gamma(x) if hasattr(L, "_standard_gamma") else L.distributions.Gamma(x, 1.0).sample(),
    "n m +",
)


def _holding(shape, mark, bound, generator):
    """Returns a random array with the contents that the mark describes."""
    if mark == "<":
        return generator.integers(0, bound, shape)
    if mark == "?":
        return generator.random(shape) < 0.5
    x = generator.standard_normal(shape, np.float32)
    return np.abs(x) + np.float32(0.1) if mark == "+" else x


def _workload(run, inputs, backward, n, m):
    """Returns a function that creates the step of a case for a library."""
    value = {"n": n, "m": m}

    def size(word):
        return value.get(word) or int(word or 0)

    def workload(lib):
        generator, tensors = np.random.default_rng(0), []
        for text in inputs:
            shape, mark, bound = re.fullmatch(r"([nm\d ]+)([+?<]?) ?([nm\d]*)", text).groups()
            tensors.append(lib.tensor(_holding([size(word) for word in shape.split()], mark, size(bound), generator)))
        if not backward:
            return lambda: run(lib, *tensors)
        leaves = [x.requires_grad_() for x in tensors if x.is_floating_point()]
        upstream = lib.ones_like(run(lib, *tensors).detach()) * 0.5

        def step():
            for x in leaves:
                x.grad = None
            run(lib, *tensors).backward(upstream)

        return step

    return workload


WORKLOADS = {
    name if size == "large" else f"{name} {size}": _workload(*row, *shape)
    for size, shape in SIZES.items()
    for name, row in CASES.items()
}
