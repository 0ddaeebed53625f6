"""In-place changes between forward and backward, at a size without compiled kernels and at a size with them.

PyTorch is the reference: a program that it accepts is accepted, with its gradients, at both sizes.
"""

import numpy as np
import pytest

import mytorch
from mytorch.ops import everything  # noqa: F401 - defines the records of all operations
from mytorch.ops.dispatch.record import RECORDS
from tests.loops import loop

SIZES = 16, 32832


def numbers(lib, *shape):
    return lib.tensor(np.random.default_rng(1).random(shape, dtype=np.float32) + 0.05).requires_grad_()


def index(lib, n):
    return lib.zeros(n, dtype=lib.int64)


UNARY = """relu sigmoid tanh exp log sqrt rsqrt sin cos tan asin acos atan sinh cosh asinh atanh erf erfinv erfc expm1 log1p log2 log10
reciprocal square abs neg sign ceil frac trunc sum mean prod std var amax amin max min median exp2 lgamma digamma sinc logit nan_to_num
round diff nanmean nansum aminmax norm""".split()
ACTIVATIONS = """softplus gelu silu mish elu selu celu leaky_relu hardtanh hardswish hardsigmoid relu6 logsigmoid softsign tanhshrink
softshrink hardshrink normalize dropout glu""".split()
BINARY = "mul div add sub pow minimum maximum atan2 hypot fmod remainder logaddexp xlogy copysign dot".split()
LOSSES = """mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy binary_cross_entropy_with_logits poisson_nll_loss
hinge_embedding_loss""".split()
rows = {
    "softmax": lambda F, x, lib: F.softmax(x, -1),
    "log_softmax": lambda F, x, lib: F.log_softmax(x, -1),
    "softmin": lambda F, x, lib: F.softmin(x, -1),
    "layer_norm": lambda F, x, lib: F.layer_norm(x, (8,), numbers(lib, 8), numbers(lib, 8)),
    "rms_norm": lambda F, x, lib: F.rms_norm(x, (8,), numbers(lib, 8)),
    "batch_norm": lambda F, x, lib: F.batch_norm(x, None, None, numbers(lib, 8), numbers(lib, 8), True),
    "linear": lambda F, x, lib: F.linear(x, numbers(lib, 5, 8)),
    "matmul": lambda F, x, lib: x @ numbers(lib, 8, 4),
    "nll_loss": lambda F, x, lib: F.nll_loss(x, index(lib, len(x))),
    "cross_entropy": lambda F, x, lib: F.cross_entropy(x, index(lib, len(x))),
    "kl_div": lambda F, x, lib: F.kl_div(x, numbers(lib, *x.shape), reduction="sum"),
    "threshold": lambda F, x, lib: F.threshold(x, 0.5, 0.0),
    "max_pool1d": lambda F, x, lib: F.max_pool1d(x.T[None], 2),
    "conv1d": lambda F, x, lib: F.conv1d(x.T[None], numbers(lib, 4, 8, 1)),
    "prelu": lambda F, x, lib: F.prelu(x, numbers(lib, 1)),
    "cumsum": lambda F, x, lib: x.cumsum(0),
    "cumprod": lambda F, x, lib: x.cumprod(1),
    "logcumsumexp": lambda F, x, lib: x.logcumsumexp(0),
    "logsumexp": lambda F, x, lib: x.logsumexp(-1),
    "sort": lambda F, x, lib: x.sort(-1)[0],
    "topk": lambda F, x, lib: x.topk(3)[0],
    "max_values": lambda F, x, lib: x.max(1)[0],
    "clamp": lambda F, x, lib: x.clamp(0.2, 0.8),
    "where": lambda F, x, lib: lib.where(x > 0.5, x, numbers(lib, *x.shape)),
    "lerp": lambda F, x, lib: x.lerp(numbers(lib, *x.shape), 0.3),
    "addcmul": lambda F, x, lib: lib.addcmul(x, numbers(lib, *x.shape), numbers(lib, *x.shape)),
    "addcdiv": lambda F, x, lib: lib.addcdiv(x, numbers(lib, *x.shape), numbers(lib, *x.shape)),
    "gather": lambda F, x, lib: x.gather(0, lib.zeros(1, 8, dtype=lib.int64)),
    "masked_fill": lambda F, x, lib: x.masked_fill(x > 0.5, 1.0),
    "tril": lambda F, x, lib: x.tril(),
    "expand": lambda F, x, lib: x[None].expand(2, *x.shape).sum(0),
    "repeat": lambda F, x, lib: x.repeat(2, 1),
}
FUNCTIONS = {
    **{n: (lambda n: lambda F, x, lib: first(getattr(x, n)()))(n) for n in UNARY},
    **{n: (lambda n: lambda F, x, lib: getattr(F, n)(x))(n) for n in ACTIVATIONS},
    **{n: (lambda n: lambda F, x, lib: getattr(x.reshape(-1), n)(numbers(lib, x.numel())))(n) for n in BINARY},
    **{n: (lambda n: lambda F, x, lib: getattr(F, n)(x, numbers(lib, *x.shape).detach().clamp(max=1)))(n) for n in LOSSES},
    **rows,
}  # fmt: skip


def first(result):
    return result[0] if isinstance(result, tuple) else result


CHANGES = {
    "zero the input": lambda x, y: x.zero_(),
    "set a part of the input": lambda x, y: x.__setitem__(0, 5),
    "scale the output": lambda x, y: y.mul_(2),
    "zero the output": lambda x, y: y.zero_(),
}
# Programs that PyTorch accepts and this library refuses, with an error. cross_entropy saves the logits instead of a second array
# of their size; the gradient of erfinv uses the result.
REFUSED = {("cross_entropy", "input"), ("erfinv", "output")}


def gradient(lib, function, change, n):
    """Returns the gradient as an array, or the type of the error."""
    lib.manual_seed(0)
    leaf = lib.tensor(np.random.default_rng(0).random((n // 8, 8), dtype=np.float32) * 0.9 + 0.05).requires_grad_()
    x = leaf * 1
    try:
        y = function(lib.nn.functional, x, lib)
        change(x, y)
        upstream = np.asarray(np.random.default_rng(3).standard_normal(tuple(y.shape)), dtype=np.float32)
        (y * lib.tensor(upstream)).sum().backward()
    except RuntimeError:
        return RuntimeError
    return None if leaf.grad is None else np.asarray(leaf.grad)


@loop
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_changes_between_forward_and_backward(torch, name, change):
    results = []
    for n in SIZES:
        mine = gradient(mytorch, FUNCTIONS[name], CHANGES[change], n)
        theirs = gradient(torch, FUNCTIONS[name], CHANGES[change], n)
        results.append(mine is RuntimeError)
        if mine is RuntimeError:
            assert theirs is RuntimeError or (name, change.split()[-1]) in REFUSED
        elif theirs is not RuntimeError and theirs is not None:
            largest = max(1, np.abs(np.nan_to_num(theirs)).max())  # sums round relative to their largest part
            np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5 * largest)
    assert results[0] == results[1], "whether the change is accepted depends on the size"


def test_kernels_save_the_same_values_as_their_references():
    pytest.importorskip("numba")
    for name, op in RECORDS.items():
        kernel = op.kernels.of.get("cpu")
        module = kernel and kernel.load()
        if module is None or name == "sampled":  # one pass over its arrays computes both gradients
            continue
        implementation = op.by_kernel(module)
        for mask in range(1, 1 << len(op.inputs)):
            reference, plan = op.reference.plan(mask), implementation.plan(mask)
            if reference.wanted:
                assert (plan.inputs, plan.out) == (reference.inputs, reference.out), f"{name}: {mask:b}"
