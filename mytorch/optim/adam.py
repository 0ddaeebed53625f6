"""Adam and AdamW."""

import math

from .._tensor import Tensor
from ..backend import numpy_ns, xp_of
from .optimizer import Optimizer
from .options import Options, number
from .state import count_step, decay_factors, zeros_for

CHUNK = 1 << 16  # elements: what one update reads and writes of them fits a second-level cache


class Adam(Optimizer):
    """Adaptive moments: steps along m / (sqrt(v) + eps), both running means corrected for their start.

    Args:
        lr: learning rate, a number or a 0-d tensor.
        betas: decay of the running means of the gradient and of its square; also `beta1=`, `beta2=`.
        weight_decay: added to the gradient as weight_decay * p (or, decoupled, taken from p directly).
        amsgrad: divide by the largest v so far. maximize: go up.
        decoupled_weight_decay: as AdamW.
        fused: True asks for the compiled kernel (and warns where it can't run), False for the plain rule, None
            for whichever is there. foreach: accepted; the result is the same.
        capturable: on a GPU with kernels, count steps in device memory, as a step that is captured into a CUDA graph does.

    Source: Kingma and Ba, 2015; amsgrad: Reddi et al., 2018.

    Example:
        >>> p = nn.Parameter(tensor([1.0]))
        >>> (3 * p).sum().backward()
        >>> optim.Adam([p], lr=0.25).step()  # the first step is lr * sign(gradient)
        >>> round(p.item(), 4)
        0.75
    """

    options = Options(lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0, amsgrad=False).keyword_only(
        foreach=None, maximize=False, capturable=False, differentiable=False, fused=None, decoupled_weight_decay=False,
        beta1=None, beta2=None,
    ).saved_as("lr betas eps weight_decay amsgrad maximize")  # fmt: skip

    def check_options(self, options):
        given = options.pop("beta1"), options.pop("beta2")
        options["betas"] = tuple(b if g is None else g for b, g in zip(options["betas"], given, strict=True))
        return super().check_options(options)

    def launch(self, fused):
        group = fused.group
        names = ["exp_avg", "exp_avg_sq", *(["max_exp_avg_sq"] if group["amsgrad"] else [])]
        for state, members in fused.by_step():
            fused.kernels.adamw(
                fused.table(members, *(fused.moments(name, members) for name in names)), state,
                tuple(number(b) for b in group["betas"]), group["eps"], group["weight_decay"],
                decoupled=group["decoupled_weight_decay"], amsgrad=group["amsgrad"], maximize=group["maximize"],
            )  # fmt: skip

    def update(self, p, g, state, group):
        lr = number(group["lr"])
        beta1, beta2 = (number(b) for b in group["betas"])
        t = count_step(state)
        arrays = [p, g, zeros_for(state, "exp_avg", p), zeros_for(state, "exp_avg_sq", p)]
        if group["amsgrad"]:
            arrays.append(zeros_for(state, "max_exp_avg_sq", p))
        numbers = (beta1, beta2), group["eps"], *decay_factors(group), lr / (1 - beta1**t), math.sqrt(1 - beta2**t)
        kernels = self.compiled(arrays, group)
        if kernels is not None:
            loop = kernels.amsgrad if group["amsgrad"] else kernels.adam
            rest = 1 - beta1, 1 - beta2
            kernels.update(loop, arrays, beta1, beta2, *rest, *numbers[1:5], 1 / numbers[5])
            return
        if isinstance(p, Tensor):
            _recorded_step(*numbers, *arrays)
            return
        for chunk in _cache_chunks(arrays):
            _step(xp_of(p), *numbers, *chunk)


def _step(xp, betas, eps, shrink, pull, step_size, root, p, g, m, v, top=None):
    """One Adam step on flat chunks, in place: shrink p, update m and v, p -= step_size * m / (sqrt(v) / root + eps)."""
    if shrink != 1.0:
        p *= shrink
    if pull:
        g = g + p * pull
    scratch = xp.multiply(g, 1 - betas[0], out=xp.empty_like(p))  # `out`, or a 0-d product would be a scalar
    m *= betas[0]
    m += scratch
    xp.multiply(g, g, out=scratch)
    scratch *= 1 - betas[1]
    v *= betas[1]
    v += scratch
    if top is not None:
        v = xp.maximum(top, v, out=top)
    xp.sqrt(v, out=scratch)
    scratch /= root
    scratch += eps
    xp.divide(m, scratch, out=scratch)
    scratch *= step_size
    p -= scratch


def _recorded_step(betas, eps, shrink, pull, step_size, root, p, g, m, v, top=None):
    """The same over Tensors."""
    p *= shrink
    g = g + p * pull if pull else g
    m *= betas[0]
    m += g * (1 - betas[0])
    v *= betas[1]
    v += g * g * (1 - betas[1])
    if top is not None:
        v = top.clone().maximum(v)
        top[...] = v
    p -= m / (v**0.5 / root + eps) * step_size


def _cache_chunks(arrays):
    """Yield flat chunks of equally shaped arrays, small enough to stay in cache through several passes."""
    first = arrays[0]
    if first.size <= CHUNK or not all(a.flags.c_contiguous for a in arrays) or xp_of(first) is not numpy_ns:
        yield arrays
        return
    flat = [a.reshape(-1) for a in arrays]
    for start in range(0, first.size, CHUNK):
        yield [a[start : start + CHUNK] for a in flat]


class AdamW(Adam):
    """Adam with decoupled weight decay: p shrinks by lr * weight_decay * p besides the Adam step.

    Args:
        lr, betas, eps, amsgrad, maximize, foreach, capturable, fused: as Adam's. weight_decay: decoupled.
        beta1, beta2: other names of the two betas.

    Source: Loshchilov and Hutter, 2019.

    Example:
        >>> p = nn.Parameter(tensor([1.0]))
        >>> (0 * p).sum().backward()
        >>> optim.AdamW([p], lr=0.5, weight_decay=0.5).step()  # no gradient: decay alone
        >>> p.item()
        0.75
    """

    options = Options(lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2, amsgrad=False).keyword_only(
        maximize=False, foreach=None, capturable=False, differentiable=False, fused=None, beta1=None, beta2=None
    )

    def check_options(self, options):
        return super().check_options({**options, "decoupled_weight_decay": True})
