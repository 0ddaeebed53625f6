"""Measure single ops on 10^6 elements in mytorch and PyTorch, on one thread, and print the ops that are much slower.

    python benchmarks/op_sweep.py [--only lgamma,adaptive] [--above 5] [--rounds 5] [--json op_sweep.json]

Each op runs forward, backward and in place, if the op supports it. The clock is the CPU time of the process, which other programs affect
less than the elapsed time. The time of an op is its fastest round. The libraries take turns.
"""

import argparse
import json
import math
import os
import sys
import time
import warnings
from pathlib import Path

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "MYTORCH_NUM_THREADS"):
    os.environ.setdefault(name, "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np  # noqa: E402
import torch  # noqa: E402
from gpt2 import machine  # noqa: E402

import mytorch  # noqa: E402

# Functions of one tensor. Each runs on n (normal numbers times 3) and p (numbers in (0, 1)).
UNARY = """
    abs acos acosh angle asin asinh atan atanh ceil cos cosh deg2rad digamma erf erfc erfinv exp exp2 expm1 floor frac i0 isfinite isinf
    isnan isneginf isposinf lgamma log log10 log1p log2 logit nan_to_num neg positive rad2deg reciprocal relu round rsqrt sgn sigmoid sign
    signbit sin sinc sinh sqrt square tan tanh trunc clone frexp logical_not
    special.entr special.erfcx special.i0e special.i1 special.i1e special.log_ndtr special.ndtr special.ndtri special.psi
    F.celu F.elu F.gelu F.hardshrink F.hardsigmoid F.hardswish F.hardtanh F.leaky_relu F.logsigmoid F.mish F.relu6 F.rrelu F.selu F.silu
    F.softplus F.softshrink F.softsign F.tanhshrink
"""
# Functions of two tensors. Each runs on (n, o), (p, q) and on a tensor and a number, (n, 1.7).
BINARY = """
    add sub mul div true_divide floor_divide fmod remainder pow float_power atan2 hypot maximum minimum fmax fmin copysign nextafter
    logaddexp logaddexp2 xlogy heaviside igamma igammac special.zeta special.xlog1py eq ne lt le gt ge isclose logical_and logical_or
    logical_xor ldexp rsub dist
"""
INTEGER = """
    add sub mul div floor_divide fmod remainder gcd lcm maximum minimum eq lt bitwise_and bitwise_or bitwise_xor bitwise_left_shift
    bitwise_right_shift
"""
# Reductions of a matrix: over all elements, the rows and the columns.
REDUCTIONS = """
    sum mean prod max min amax amin argmax argmin all any logsumexp var std var_mean std_mean norm median nanmedian nansum nanmean
    count_nonzero aminmax mode
"""
# Functions along an axis: the rows and the columns.
ALONG = """
    cumsum cumprod cummax cummin logcumsumexp softmax log_softmax sort argsort diff unbind flip
"""
# Other statements. Upper-case names are images: X1, X2, X3 have 1, 2 and 3 axes of space.
OTHER = """
    lib.polygamma(1, p)|lib.polygamma(2, p)|lib.polygamma(3, n)|lib.mvlgamma(p + 2, 3)|lib.special.multigammaln(p + 2, 3)
    n % 2|n // 2|lib.div(n, o, rounding_mode="floor")|lib.div(n, o, rounding_mode="trunc")|n ** 2|n ** 3|p ** 2.5|p ** -0.5|2.0 ** n
    lib.clamp(n, -1, 1)|lib.clamp(n, o, p)|lib.where(b, n, o)|lib.lerp(n, o, 0.3)|lib.lerp(n, o, p)|lib.addcmul(n, o, p)
    lib.addcdiv(n, o, p)|lib.masked_fill(n, b, 0.0)|lib.masked_select(n, b)|n[b]|lib.nonzero(b)|lib.argwhere(b)|lib.threshold(n, 0.1, 0.0)
    lib.bucketize(n, s)|lib.searchsorted(s, n)|lib.histc(n)|lib.histogram(n, 100)|lib.bincount(i)|lib.unique(i)|lib.unique_consecutive(i)
    lib.isin(i, i[0, :100])|lib.topk(m, 10)|lib.kthvalue(m, 10)|lib.msort(m)|lib.quantile(m, 0.3)|lib.nanquantile(m, 0.3, dim=1)
    lib.quantile(m, 0.3, dim=0)|lib.renorm(m, 2, 0, 1.0)|F.normalize(m)|F.cosine_similarity(m, o)|F.pairwise_distance(m, o)
    lib.cdist(m[:, :64], o[:, :64])|lib.cdist(m[:, :64], o[:, :64], p=1.0)|lib.pdist(m[:300])|lib.cov(m)|lib.corrcoef(m)
    lib.tril(m)|lib.triu(m)|lib.diag(m)|lib.diagonal(m).clone()|lib.trace(m)|lib.roll(m, 3)|lib.roll(m, 3, 1)|lib.rot90(m)
    lib.fliplr(m)|lib.flipud(m)|m.t().contiguous()|lib.cat((n, o))|lib.cat((n, o), 1)|lib.stack((n, o))|lib.stack((n, o), -1)
    m.repeat(2, 2)|lib.tile(m, (2, 2))|lib.repeat_interleave(m, 2, 0)|lib.repeat_interleave(m, 2, 1)|lib.kron(m[:30, :30], m[:30, :30])
    lib.outer(n[0], o[0])|lib.meshgrid(n[0], o[0], indexing="ij")[1].contiguous()|lib.vander(n[0], 1000)|lib.combinations(n[0])
    lib.cartesian_prod(n[0], o[0])|lib.gather(m, 1, r)|lib.gather(m, 0, r)|lib.scatter(m, 1, r, o)|lib.scatter_add(m, 1, r, o)
    lib.scatter_reduce(m, 1, r, o, "amax")|lib.scatter_reduce(m, 1, r, o, "mean")|lib.scatter_reduce(m, 1, r, o, "prod")
    lib.index_select(m, 0, r[0])|lib.index_select(m, 1, r[0])|lib.index_add(m, 0, r[0], o)|lib.index_copy(m, 0, r[0], o)
    lib.index_fill(m, 0, r[0], 1.0)|lib.index_reduce(m, 0, r[0], o, "amax")|lib.take(m, r)|lib.take_along_dim(m, r, 1)|m[r[0]]|m[:, r[0]]
    m[r[0], r[1]]|m[::2, ::3].clone()|lib.masked_scatter(n, b, o)|lib.put(m, r, o)|lib.trapezoid(m)|lib.cumulative_trapezoid(m)
    lib.gradient(m)|lib.cross(m[:, :999].reshape(-1, 3), o[:, :999].reshape(-1, 3))|lib.tensordot(m, o, 1)|lib.einsum("ij,ij->i", m, o)
    lib.einsum("ij,kj->ik", m, o)|lib.einsum("ij,i->j", m, o[0])|m @ o|m @ o[0]|lib.bmm(t, t)|lib.baddbmm(t, t, t)|lib.addmm(m, n, o)
    lib.addmv(n[0], m, o[0])|lib.addr(m, n[0], o[0])|lib.linalg.vector_norm(m, 1)|lib.linalg.vector_norm(m, 3, 1)
    lib.linalg.matrix_norm(t)|lib.linalg.cholesky(h)|lib.linalg.inv(h)|lib.linalg.det(t)|lib.linalg.slogdet(t)|lib.linalg.solve(h, m)
    lib.linalg.qr(m[:, :300])|lib.linalg.lu(m)|lib.linalg.lu_factor(m)|lib.lu(t)|lib.linalg.eigvalsh(h[:300, :300])|lib.linalg.svdvals(m[:300, :300])
    lib.linalg.eigvals(m[:200, :200])|lib.linalg.svd(m[:300, :300])|lib.linalg.eigh(h[:300, :300])|lib.linalg.matrix_exp(t * 0.01)
    lib.linalg.matrix_power(t, 5)|lib.linalg.pinv(m[:200, :200])|lib.linalg.lstsq(m[:, :100], o[:, :10])|lib.linalg.solve_triangular(h, m, upper=True)
    lib.linalg.lu_solve(*lib.linalg.lu_factor(h), m)|lib.linalg.ldl_factor(h[:300, :300])|lib.linalg.householder_product(m[:, :100], o[0, :100])
    lib.linalg.inv(t)|lib.linalg.solve(t, t)|lib.linalg.lu(t)|lib.linalg.cholesky(t @ t.mT + 9 * lib.eye(100))|lib.cholesky_inverse(h)
    lib.logdet(h)|lib.linalg.multi_dot((m, n, o))|lib.linalg.cond(m[:200, :200])|lib.linalg.vecdot(m, o)|lib.linalg.cross(m[:, :3], o[:, :3])
    lib.fft.fft(m)|lib.fft.rfft(m)|lib.fft.fft2(m)|lib.fft.irfft(z)|lib.fft.ifft(z)|lib.fft.fftshift(m)|lib.stft(m[:10], 64, return_complex=True, window=w)
    z.abs()|z.angle()|z * z|z + z|z.exp()|z.log()|z.conj().resolve_conj()|z.real.clone()|z.sqrt()|lib.polar(p, n)|lib.complex(n, o)|z.sin()|z.tanh()|z.reciprocal()|z / z
    n.double()|n.half()|n.bfloat16()|n.long()|n.int()|n.bool()|i.float()|b.float()|n.to(lib.uint8)
    lib.rand(1000, 1000)|lib.randn(1000, 1000)|lib.randint(0, 9, (1000, 1000))|lib.randperm(1000000)|lib.bernoulli(p)|lib.poisson(p)
    lib.normal(n, p)|lib.multinomial(p, 10, True)|lib.multinomial(p, 10)|lib.empty(1000, 1000).exponential_()|lib.binomial(i.float(), p)
    lib.empty(1000, 1000).geometric_(0.3)|lib.empty(1000, 1000).cauchy_()|lib.empty(1000, 1000).log_normal_()|lib.empty(1000, 1000).uniform_()
    lib.arange(1000000)|lib.linspace(0, 1, 1000000)|lib.logspace(0, 1, 1000000)|lib.eye(1000)|lib.full((1000, 1000), 2.0)|lib.tril_indices(1000, 1000)
    lib.kaiser_window(1000000)|lib.hann_window(1000000)|lib.bartlett_window(1000000)|lib.blackman_window(1000000)
    F.adaptive_avg_pool1d(X1, 7)|F.adaptive_avg_pool1d(X1, 16)|F.adaptive_avg_pool2d(X2, 1)|F.adaptive_avg_pool2d(X2, 7)|F.adaptive_avg_pool2d(X2, 64)
    F.adaptive_avg_pool3d(X3, 1)|F.adaptive_avg_pool3d(X3, 7)|F.adaptive_avg_pool3d(X3, 8)|F.adaptive_max_pool1d(X1, 7)|F.adaptive_max_pool1d(X1, 16)
    F.adaptive_max_pool2d(X2, 1)|F.adaptive_max_pool2d(X2, 7)|F.adaptive_max_pool2d(X2, 64)|F.adaptive_max_pool3d(X3, 1)|F.adaptive_max_pool3d(X3, 7)
    F.adaptive_max_pool3d(X3, 8)|F.adaptive_avg_pool2d(X2, 100)|F.adaptive_avg_pool1d(X1, 1)|F.adaptive_max_pool1d(X1, 1)
    F.avg_pool1d(X1, 2)|F.avg_pool2d(X2, 2)|F.avg_pool2d(X2, 3, 1, 1)|F.avg_pool3d(X3, 2)|F.max_pool1d(X1, 2)|F.max_pool2d(X2, 2)|F.max_pool2d(X2, 3, 2, 1)
    F.max_pool3d(X3, 2)|F.max_pool3d(X3, 3, 2, 1)|F.lp_pool1d(X1, 2, 2)|F.lp_pool2d(X2, 2, 2)|F.lp_pool3d(X3, 2, 2)|F.fractional_max_pool2d(X2, 3, 40)
    F.fractional_max_pool3d(X3, 2, 10)|F.max_unpool2d(*F.max_pool2d(X2, 2, return_indices=True), 2)|F.local_response_norm(X2, 5)
    F.interpolate(X1, scale_factor=2)|F.interpolate(X2, scale_factor=2)|F.interpolate(X3, scale_factor=2)|F.interpolate(X1, scale_factor=2, mode="linear")
    F.interpolate(X2, scale_factor=2, mode="bilinear")|F.interpolate(X2, scale_factor=2, mode="bicubic")|F.interpolate(X3, scale_factor=2, mode="trilinear")
    F.interpolate(X2, scale_factor=0.5, mode="area")|F.interpolate(X2, scale_factor=0.5, mode="bilinear", antialias=True)
    F.pad(X2, (1, 2, 3, 4))|F.pad(X2, (1, 2, 3, 4), "reflect")|F.pad(X2, (1, 2, 3, 4), "replicate")|F.pad(X2, (1, 2, 3, 4), "circular")
    F.unfold(X2, 3)|F.fold(F.unfold(X2, 2, stride=2), (128, 128), 2, stride=2)|F.pixel_shuffle(X2, 2)|F.pixel_unshuffle(X2, 2)|F.channel_shuffle(X2, 4)
    F.grid_sample(X2, G2, align_corners=False)|F.grid_sample(X2, G2, mode="nearest", align_corners=False)|F.affine_grid(A2, (64, 1, 128, 128), align_corners=False)
    F.grid_sample(X2, G2, mode="bicubic", align_corners=False)|F.grid_sample(X3, G3, align_corners=False)
    F.batch_norm(X2, None, None, training=True)|F.instance_norm(X2)|F.group_norm(X2, 4)|F.layer_norm(m, (1000,))|F.rms_norm(m, (1000,))
    F.conv1d(X1, K1)|F.conv2d(X2, K2)|F.conv3d(X3, K3)|F.conv_transpose2d(X2, K2)|F.linear(m, o)|F.bilinear(m[:, :50], o[:, :50], t[:20, :50, :50])
    F.embedding(r, o[:, :8])|F.embedding_bag(r, o)|F.one_hot(i[0], 1000)|F.glu(m)|F.prelu(n, p[0, :1])|F.softmin(m, 1)|F.gumbel_softmax(m)
    F.dropout(n)|F.dropout2d(X2)|F.alpha_dropout(n)|F.feature_alpha_dropout(X2)
    F.mse_loss(n, o)|F.l1_loss(n, o)|F.smooth_l1_loss(n, o)|F.huber_loss(n, o)|F.binary_cross_entropy(p, q)|F.binary_cross_entropy_with_logits(n, q)
    F.kl_div(n, p)|F.nll_loss(n, r[0])|F.cross_entropy(n, r[0])|F.cross_entropy(n, q)|F.poisson_nll_loss(n, p)|F.gaussian_nll_loss(n, o, p)
    F.hinge_embedding_loss(n, v)|F.margin_ranking_loss(n, o, v)|F.soft_margin_loss(n, v)|F.multi_margin_loss(n, r[0])|F.multilabel_soft_margin_loss(n, q)
    F.cosine_embedding_loss(n, o, v[0])|F.triplet_margin_loss(n, o, p)|F.multilabel_margin_loss(n[:, :100], r[:, :100] % 100)
    F.ctc_loss(L1, T1, (200,) * 20, (30,) * 20)|F.scaled_dot_product_attention(Q, Q, Q)|F.gelu(n, approximate="tanh")|F.softplus(n, 2.0)
    n.clone().fill_(1.0)|n.clone().index_put_((r[0],), o)|n.sum_to_size(1000, 1)|lib.equal(n, n)|lib.allclose(n, n)|lib.block_diag(m, o)
    F.lp_pool2d(X2, 3.0, 2)|lib.segment_reduce(m, "sum", lengths=l)|lib.unfold_copy(n, 1, 4, 4)|lib.float_power(n, 2)|lib.logspace(0, 2, 1000000)
    lib.nn.utils.rnn.pad_sequence(list(m))|lib.nn.functional.hardtanh(n, -2.0, 2.0)|lib.view_as_real(z).clone()|lib.as_strided(n, (999, 999), (1000, 1)).clone()
"""
IN_PLACE = """
    abs_ acos_ ceil_ clamp_(-1,1) cos_ deg2rad_ digamma_ erf_ erfc_ erfinv_ exp_ expm1_ floor_ frac_ i0_ lgamma_ log_ log1p_ logit_ neg_
    nan_to_num_ rad2deg_ reciprocal_ relu_ round_ rsqrt_ sigmoid_ sign_ sin_ sinc_ sqrt_ square_ tan_ tanh_ trunc_ zero_ add_(o) sub_(o)
    mul_(o) div_(o) fmod_(o) remainder_(o) floor_divide_(o) pow_(2) atan2_(o) hypot_(o) copysign_(o) xlogy_(p) igamma_(p) add_(1.5) mul_(1.5)
    fmod_(1.5) remainder_(1.5) floor_divide_(1.5) lerp_(o,0.3) addcmul_(o,p) addcdiv_(o,p) masked_fill_(b,0) clamp_min_(0) tril_() triu_()
    cumsum_(1) cumprod_(1) eq_(o) logical_not_() copy_(o) index_fill_(0,r[0],1) index_add_(0,r[0],o) scatter_(1,r,o) scatter_add_(1,r,o)
    bernoulli_(0.3) uniform_() normal_() exponential_() random_() cauchy_() geometric_(0.3) renorm_(2,0,1) t_() nextafter_(o)
    F.elu F.celu F.selu F.relu F.hardtanh F.leaky_relu F.rrelu F.hardswish F.hardsigmoid F.silu F.mish F.relu6 F.threshold
"""


def split(text):
    return [statement for line in text.split("\n") for statement in line.strip().split("|") if statement]


def statements():
    """Yields (statement, kind) for all rows."""
    for text, arguments in ((UNARY, ("n", "p")), (BINARY, ("n, o", "p, q", "n, 1.7")), (INTEGER, ("i, j", "i, 3"))):
        for name in text.split():
            function = name if name.startswith("F.") else f"lib.{name}"
            for given in arguments:
                yield f"{function}({given})", "forward"
                if text is not INTEGER:
                    yield f"{function}({given})", "backward"
    for name in REDUCTIONS.split():
        for given in ("m", "m, 0", "m, 1") if name != "aminmax" else ("m", "m, dim=0", "m, dim=1"):
            for kind in ("forward", "backward"):
                yield f"lib.{name}({given})", kind
    for name in ALONG.split():
        for dim in "01":
            argument = {"diff": f"dim={dim}", "flip": f"({dim},)"}.get(name, f"dim={dim}")
            for kind in ("forward", "backward"):
                yield f"lib.{name}(m, {argument})", kind
    for statement in split(OTHER):
        for kind in ("forward", "backward"):
            yield statement, kind
    for name in IN_PLACE.split():
        if name.startswith("F."):
            yield f"{name}({'x, 0.1, 0.0' if name == 'F.threshold' else 'x'}, inplace=True)", "in place"
        else:
            yield f"x.{name}" if name.endswith(")") else f"x.{name}()", "in place"


def arrays():
    """Returns {name: array} with the inputs of the statements. Names of float arrays can require gradients."""
    rng = np.random.default_rng(0)
    square = (1000, 1000)
    m = rng.standard_normal(square, dtype=np.float32)
    result = {
        "n": 3 * rng.standard_normal(square), "o": 3 * rng.standard_normal(square), "m": m, "p": rng.uniform(0.01, 0.99, square),
        "q": rng.uniform(0.01, 0.99, square), "t": rng.standard_normal((100, 100, 100)), "h": m @ m.T / 1000 + np.eye(1000),
        "i": rng.integers(1, 1000, square), "j": rng.integers(1, 30, square), "r": rng.integers(0, 1000, square),
        "b": rng.random(square) < 0.5, "s": np.sort(rng.standard_normal(1000)), "l": np.full(10, 100),
        "v": np.where(rng.random(square) < 0.5, 1.0, -1.0), "z": m + 1j * m.T, "w": np.hanning(64),
        "X1": rng.standard_normal((16, 16, 4096)), "X2": rng.standard_normal((4, 16, 128, 128)), "X3": rng.standard_normal((4, 8, 32, 32, 32)),
        "K1": rng.standard_normal((16, 16, 3)), "K2": rng.standard_normal((16, 16, 3, 3)), "K3": rng.standard_normal((8, 8, 3, 3, 3)),
        "G2": rng.uniform(-1, 1, (4, 128, 128, 2)), "G3": rng.uniform(-1, 1, (4, 32, 32, 32, 3)), "A2": rng.standard_normal((64, 2, 3)),
        "L1": np.log(rng.dirichlet(np.ones(250), (200, 20))), "T1": rng.integers(1, 250, (20, 30)), "Q": rng.standard_normal((2, 8, 1024, 64)),
    }  # fmt: skip
    narrow = {"f": np.float32, "c": np.complex64}
    return {name: a.astype(narrow.get(a.dtype.kind, a.dtype), copy=False) for name, a in result.items()}


class Library:
    """Runs statements in one library."""

    def __init__(self, lib, inputs):
        self.lib = lib
        self.inputs = {name: lib.from_numpy(a.copy()) for name, a in inputs.items()}
        self.scope = {"lib": lib, "F": lib.nn.functional, **self.inputs}

    def prepare(self, statement, kind):
        """Prepares rounds of a statement. Raises the library's error if the statement is not supported."""
        self.code, self.kind = compile(statement, statement, "eval"), kind
        names = [name for name in self.code.co_names if name in self.inputs]
        self.scope.update(self.inputs)
        if kind == "backward":
            floats = [name for name in names if self.inputs[name].is_floating_point() or self.inputs[name].is_complex()]
            self.leaves = [self.inputs[name].clone().requires_grad_() for name in floats]
            self.scope.update(zip(floats, self.leaves, strict=True))

    def differentiable(self):
        """Returns the outputs of the statement that have a gradient."""
        out = eval(self.code, self.scope)
        outputs = out if isinstance(out, (tuple, list)) else [out]
        return [o for o in outputs if isinstance(o, self.lib.Tensor) and o.requires_grad]

    def round(self):
        """Returns the CPU time of one execution in seconds."""
        if self.kind == "in place":
            positive = any(word in self.code.co_names[1] for word in ("acos_", "erfinv_", "log", "sqrt", "igamma"))
            self.scope["x"] = self.inputs["p" if positive else "n"].clone()
        if self.kind == "backward":
            outputs = self.differentiable()
            upstream = [self.lib.ones_like(o) for o in outputs]
            start = time.process_time()
            self.lib.autograd.grad(outputs, self.leaves, upstream, allow_unused=True)
        else:
            start = time.process_time()
            eval(self.code, self.scope)
        return time.process_time() - start


def measure(libraries, statement, kind, rounds):
    """Returns {library: milliseconds}, or None if PyTorch does not support the statement."""
    theirs = libraries["torch"]
    try:
        theirs.prepare(statement, kind)
        if kind == "backward" and not (theirs.leaves and theirs.differentiable()):
            return None
        theirs.round()
    except (RuntimeError, TypeError, ValueError, NotImplementedError) as error:
        if kind == "forward":
            print(f"PyTorch does not run {statement}: {str(error).splitlines()[0]}")
        return None
    libraries["mytorch"].prepare(statement, kind)
    best = dict.fromkeys(libraries, math.inf)
    for count in range(rounds + 1):
        for name, library in libraries.items():
            seconds = library.round()
            # The first round compiles kernels and allocates memory.
            best[name] = min(best[name], seconds) if count else math.inf
    return {name: round(seconds * 1e3, 4) for name, seconds in best.items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5, help="number of rounds of each library (default: 5)")
    parser.add_argument("--above", type=float, default=5.0, help="lowest ratio to print (default: 5)")
    parser.add_argument("--only", help="comma-separated words that select statements (default: all statements)")
    parser.add_argument("--json", help="path of a JSON file for the results")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    mytorch.set_num_threads(1)
    inputs, rows = arrays(), []
    libraries = {"mytorch": Library(mytorch, inputs), "torch": Library(torch, inputs)}
    for statement, kind in statements():
        if args.only and not any(word in statement for word in args.only.split(",")):
            continue
        try:
            best = measure(libraries, statement, kind, args.rounds)
        except Exception as error:
            print(f"mytorch does not run {statement}, {kind}: {type(error).__name__}: {error}")
            continue
        if best is None:
            continue
        row = {"what": statement, "kind": kind, **best, "ratio": round(best["mytorch"] / best["torch"], 2)}
        rows.append(row)
        if row["ratio"] >= args.above:
            print(
                "{what:50} {kind:9} mytorch {mytorch:9.3f} ms  torch {torch:9.3f} ms  ratio {ratio:7.2f}".format(**row),
                flush=True,
            )
    slow = sum(row["ratio"] > args.above for row in rows)
    print(f"{len(rows)} measurements, {slow} ratios above {args.above:g}")
    if args.json:
        result = {"benchmark": "op_sweep", "unit": "milliseconds of CPU time", "machine": machine(), "rows": rows}
        Path(args.json).write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
