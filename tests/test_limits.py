"""Shape functions with every small integer as argument, for tensors of 0 to 4 dimensions, some of them of size 0, compared with PyTorch.

The limits of what a function accepts, and its results and gradients next to them, are a matter of one comparison or constant.
"""

import numpy as np
import pytest

import mytorch
from tests.loops import loop

torch = pytest.importorskip("torch")

SHAPES = [(), (0,), (1,), (3,), (0, 2), (2, 0), (1, 3), (2, 2), (4, 4), (2, 3, 2), (1, 2, 2, 3)]
NUMBERS = range(-4, 6)
WITHOUT = (
    "flipud fliplr t squeeze flatten ravel triu tril diag diagonal diagflat atleast_1d atleast_2d atleast_3d numel nonzero argwhere sort "
    "argsort cummax cummin logcumsumexp trace diff rot90 unique unique_consecutive count_nonzero msort mT H std var median mode det inverse "
    "matrix_exp prod amax aminmax argmax"
).split()
WITH = {
    **{name: (lambda L, x, n, name=name: getattr(x, name)(n)) for name in (
        "split chunk tensor_split hsplit vsplit dsplit unbind flip roll triu tril diag diagonal diagflat diag_embed squeeze unsqueeze flatten "
        "repeat_interleave tile repeat topk kthvalue matrix_power cumsum cumprod sum mean prod std var argmax max median mode sort argsort "
        "softmax log_softmax logsumexp logcumsumexp cummax all any norm count_nonzero amin aminmax unique_consecutive "
    ).split()},
    **{f"{name} of n": (lambda L, x, n, name=name: getattr(L, name)(x, n)) for name in ("combinations", "diff", "rot90")},
    "split by the last": lambda L, x, n: x.split(n, -1),
    "chunk by the last": lambda L, x, n: x.chunk(n, -1),
    "select": lambda L, x, n: x.select(-1, n),
    "index": lambda L, x, n: x[..., n],
    "slice": lambda L, x, n: x[n:],
    "slice up to": lambda L, x, n: x[:n],
    "step": lambda L, x, n: x[::n],
    "narrow by": lambda L, x, n: x.narrow(0, 0, n),
    "narrow from": lambda L, x, n: x.narrow(-1, n, 1),
    "unfold of size": lambda L, x, n: x.unfold(-1, n, 1),
    "unfold in steps": lambda L, x, n: x.unfold(0, 2, n),
    "roll along the first": lambda L, x, n: x.roll(n, 0),
    "movedim": lambda L, x, n: x.movedim(n, 0),
    "transpose": lambda L, x, n: x.transpose(0, n),
    "unflatten": lambda L, x, n: x.unflatten(-1, (n, -1)),
    "expand": lambda L, x, n: x.expand(n, *x.shape),
    "view": lambda L, x, n: x.view(n, -1),
    "reshape": lambda L, x, n: x.reshape(-1, n),
    "flatten up to": lambda L, x, n: x.flatten(0, n),
    "diagonal of others": lambda L, x, n: x.diagonal(n, -1, 0),
    "triu of a rectangle": lambda L, x, n: x[..., :2].triu(n),
    "diff twice": lambda L, x, n: L.diff(x, 2, n),
    "cat": lambda L, x, n: L.cat([x, x], n),
    "stack": lambda L, x, n: L.stack([x, x], n),
    "glu": lambda L, x, n: L.nn.functional.glu(x, n),
    "normalize": lambda L, x, n: L.nn.functional.normalize(x, dim=n),
    "pad": lambda L, x, n: L.nn.functional.pad(x, (n, 1)),
    "fft": lambda L, x, n: L.fft.fft(x, n).abs(),
    "irfft": lambda L, x, n: L.fft.irfft(x, n),
    "take": lambda L, x, n: L.take(x, L.tensor([n])),
    "index_select": lambda L, x, n: x.index_select(-1, L.tensor([n, 0])),
    "pixel_shuffle": lambda L, x, n: L.pixel_shuffle(x, n),
    "renorm": lambda L, x, n: x.renorm(2, n, 0.5),
    **{f"{name} along": (lambda L, x, n, name=name: getattr(L, name)(x.detach().sign().sqrt(), return_inverse=True, return_counts=True, dim=n))
       for name in ("unique", "unique_consecutive")},
    "cross": lambda L, x, n: L.linalg.cross(x, x.flip(0), dim=n),
}  # fmt: skip
# Without elements, PyTorch accepts any `dim`, its library fails, or it refuses a question that has an answer.
OF_ELEMENTS = {"cummax", "fft", "irfft"}


def _plain(L, x, name):
    found = getattr(x, name) if hasattr(x, name) else getattr(L, name)
    return found if not callable(found) else found() if hasattr(x, name) else found(x)


def outcome(L, call, x, ups, *numbers):
    """Returns the results, the strides of axes with several elements, and the gradient for random upstream gradients; or the error."""
    x = L.tensor(x, requires_grad=True)
    try:
        out = call(L, x, *numbers)
        outs = [o for o in (out if isinstance(out, (tuple, list)) else [out]) if isinstance(o, L.Tensor)]
        follow = [o for o in outs if o.requires_grad]
        grads = [L.tensor(ups[: o.numel()].reshape(tuple(o.shape)), dtype=o.dtype) for o in follow]
        found = [*(outs or [out])]
        if follow:
            found += L.autograd.grad(follow, x, grads, allow_unused=True, materialize_grads=True)
        else:
            found.append(L.zeros_like(x))
    except Exception as error:
        return error, None
    steps = [[step for n, step in zip(o.shape, o.stride(), strict=True) if n > 1] for o in outs if o.numel()]
    return [r.detach().numpy() if isinstance(r, L.Tensor) else r for r in found], steps


def check(name, call, *numbers):
    rng = np.random.default_rng(0)
    ups = rng.standard_normal(4096)
    different = []
    for shape in SHAPES:
        if name in OF_ELEMENTS and 0 in shape:
            continue
        x = rng.standard_normal(shape)
        (mine, strides), (theirs, steps) = (outcome(L, call, x, ups, *numbers) for L in (mytorch, torch))
        if isinstance(mine, Exception) or isinstance(theirs, Exception):
            if type(mine) is list or type(theirs) is list:
                different.append(f"{shape}, {numbers}: {mine!r}, PyTorch's: {theirs!r}")
            continue
        same = strides == steps and len(mine) == len(theirs)
        if not same or not all(map(equal, mine, theirs)):
            different.append(f"{shape}, {numbers}: {mine} {strides}, PyTorch's: {theirs} {steps}")
    return different


def equal(a, b):
    alike = getattr(a, "dtype", 0) == getattr(b, "dtype", 0) and np.shape(a) == np.shape(b)
    return alike and np.allclose(a, b, rtol=1e-7, atol=1e-9, equal_nan=True)


@loop
@pytest.mark.parametrize("name", WITHOUT)
@pytest.mark.filterwarnings("ignore")
def test_without_arguments(name):
    assert not check(name, lambda L, x: _plain(L, x, name))


@loop
@pytest.mark.parametrize("name", WITH)
@pytest.mark.filterwarnings("ignore")
def test_every_small_integer(name):
    different = [text for number in NUMBERS for text in check(name, WITH[name], number)]
    assert not different, "\n".join(different)
