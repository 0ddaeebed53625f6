"""Adam and AdamW."""

from ..arrays import numpy_ns, xp_of
from ..arrays.tensor import Tensor, is_tensor
from .optimizer import Optimizer
from .options import Options, number
from .state import count_step, decay_factors, zeros_for

CHUNK = 1 << 16  # elements: the memory that an update reads and writes for a chunk fits into a second-level cache


class Adam(Optimizer):
    """Implements Adam, which scales steps by running means of the gradient and of its square.

        g = gradient + weight_decay * p
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g^2
        p = p - lr * m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps)

    Use it when you want good results without tuning the learning rate. If you use weight decay, take `AdamW`.

    Args:
        lr: learning rate (default: 1e-3). May be a 0-d tensor.
        betas: decay rates beta1 and beta2 of the running means (default: (0.9, 0.999)).
        eps: added to the denominator (default: 1e-8).
        amsgrad: if True, divides by the root of the largest v so far (default: False).
        decoupled_weight_decay: if True, decays weights as `AdamW` does (default: False).

    Raises:
        ValueError: an option is out of its range.
        RuntimeError: `fused` together with `foreach`, `differentiable` or a parameter that is not floating point.

    Source: Kingma and Ba, 2015; amsgrad: Reddi et al., 2018.

    Example:
        >>> p = nn.Parameter(tensor([1.0]))
        >>> optimizer = optim.Adam([p], lr=0.25)
        >>> (3 * p).sum().backward()
        >>> optimizer.step()  # the first step is lr * sign(gradient)
        >>> p
        tensor([0.75000], requires_grad=True)

    See also: `optim.AdamW`.
    """

    options = Options(lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0, amsgrad=False).keyword_only(
        foreach=None, maximize=False, capturable=False, differentiable=False, fused=None, decoupled_weight_decay=False,
        beta1=None, beta2=None,
    ).saved_as("lr betas eps weight_decay amsgrad maximize")  # fmt: skip

    def check_options(self, options):
        given, betas = (options.pop("beta1"), options.pop("beta2")), options["betas"]
        if not isinstance(betas, (tuple, list)) or len(betas) != 2:
            error = ValueError if isinstance(betas, (tuple, list)) else TypeError
            raise error(f"{type(self).__name__}: expected betas to be two numbers, got {betas!r}.")
        options["betas"] = tuple(b if g is None else g for b, g in zip(options["betas"], given, strict=True))
        if options["foreach"] and not options["capturable"]:  # as in PyTorch, which refuses it for Adam and AdamW only
            for name, value in zip(("lr", "betas[0]", "betas[1]"), (options["lr"], *options["betas"]), strict=True):
                if is_tensor(value):
                    raise ValueError(f"{name} as a Tensor is not supported for capturable=False and foreach=True")
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

    def numbers(self, group, t):
        lr, (beta1, beta2) = number(group["lr"]), map(number, group["betas"])
        return (beta1, beta2), group["eps"], *decay_factors(group), lr / (1 - beta1**t), (1 - beta2**t) ** 0.5

    def update(self, p, g, state, group):
        numbers = self.at_step(group, count_step(state))
        arrays = [p, g, zeros_for(state, "exp_avg", p), zeros_for(state, "exp_avg_sq", p)]
        if group["amsgrad"]:
            arrays.append(zeros_for(state, "max_exp_avg_sq", p))
        kernels = self.compiled(arrays, group)
        if kernels is not None:
            loop = kernels.amsgrad if group["amsgrad"] else kernels.adam
            beta1, beta2 = numbers[0]
            kernels.update(loop, arrays, beta1, beta2, 1 - beta1, 1 - beta2, *numbers[1:5], 1 / numbers[5])
            return
        if isinstance(p, Tensor):
            _recorded_step(*numbers, *arrays)
            return
        for chunk in _cache_chunks(arrays):
            _step(xp_of(p), *numbers, *chunk)


def _step(xp, betas, eps, shrink, pull, step_size, root, p, g, m, v, top=None):
    """Runs one Adam step on flat chunks, in place.

    Shrinks p, updates m and v, then computes p -= step_size * m / (sqrt(v) / root + eps).
    """
    if shrink != 1.0:
        p *= shrink
    if pull:
        g = g + p * pull
    scratch = xp.multiply(g, 1 - betas[0], out=xp.empty_like(p))  # `out`, or a 0-d product would be a scalar
    m *= betas[0]
    m += scratch
    xp.multiply(g, 1 - betas[1], out=scratch)
    scratch *= g  # in this order, g^2 cannot overflow first
    v *= betas[1]
    v += scratch
    if top is not None:
        v = xp.maximum(top, v, out=top)
    xp.sqrt(v, out=scratch)
    scratch *= 1 / root  # as the kernels compute it; a division takes longer
    scratch += eps
    xp.divide(m, scratch, out=scratch)
    scratch *= step_size
    p -= scratch


def _recorded_step(betas, eps, shrink, pull, step_size, root, p, g, m, v, top=None):
    """Runs the step of `_step` over Tensors, for `differentiable=True`."""
    p *= shrink
    g = g + p * pull if pull else g
    m *= betas[0]
    m += g * (1 - betas[0])
    v *= betas[1]
    v += g * (1 - betas[1]) * g
    if top is not None:
        v = top.clone().maximum(v)
        top[...] = v
    p -= m / (v**0.5 / root + eps) * step_size


def _cache_chunks(arrays):
    """Yields flat chunks of arrays of equal shape, small enough to stay in cache through several passes."""
    first = arrays[0]
    if first.size <= CHUNK or not all(a.flags.c_contiguous for a in arrays) or xp_of(first) is not numpy_ns:
        yield arrays
        return
    flat = [a.reshape(-1) for a in arrays]
    for start in range(0, first.size, CHUNK):
        yield [a[start : start + CHUNK] for a in flat]


class AdamW(Adam):
    """Implements AdamW: Adam with decoupled weight decay.

        p = p - lr * weight_decay * p
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g^2
        p = p - lr * m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps)

    Use it for transformers, and as a default. Unlike in `Adam`, weight decay is not divided by the running means, so it
    decays all weights equally.

    Args:
        lr: learning rate (default: 1e-3). May be a 0-d tensor.
        betas: decay rates beta1 and beta2 of the running means (default: (0.9, 0.999)).
        eps: added to the denominator (default: 1e-8).
        weight_decay: decoupled weight decay (default: 0.01).
        amsgrad: if True, divides by the root of the largest v so far (default: False).

    Raises:
        ValueError: an option is out of its range.
        RuntimeError: `fused` together with `foreach`, `differentiable` or a parameter that is not floating point.

    Source: Loshchilov and Hutter, 2019.

    Example:
        >>> model = nn.Linear(2, 1)
        >>> optimizer = optim.AdamW(model.parameters(), lr=0.1)
        >>> x, y = mytorch.ones(4, 2), mytorch.zeros(4, 1)
        >>> for step in range(100):
        ...     loss = F.mse_loss(model(x), y)
        ...     optimizer.zero_grad()
        ...     loss.backward()
        ...     optimizer.step()
        >>> loss.item() < 1e-3
        True

    See also: `optim.Adam`.
    """

    options = Options(lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=1e-2, amsgrad=False).keyword_only(
        maximize=False, foreach=None, capturable=False, differentiable=False, fused=None, beta1=None, beta2=None
    )

    def check_options(self, options):
        return super().check_options({**options, "decoupled_weight_decay": True})
