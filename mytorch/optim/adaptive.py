"""RMSprop, Adagrad, Adadelta, Adamax, NAdam, RAdam, Rprop and ASGD: each rule on raw arrays, in place."""

import math

from .._array import Array
from .._tensor import Tensor
from ..backend import device_guard, xp_of
from .optimizer import Optimizer
from .options import Options, check_range, number, refuse_unless
from .state import count_step, decay_factors, decayed, mean_into, mean_square_into, namespace_of, scalar, zeros_for


class RMSprop(Optimizer):
    """Divides by a running root mean square of gradients. Source: Tieleman and Hinton, 2012.

    Args:
        lr: learning rate. alpha: decay of the mean. eps: added to the root. momentum: decay of a running sum of steps.
        centered: divide by the standard deviation instead.
        weight_decay: added to the gradient, times p. foreach, maximize: as SGD's. capturable: as Adam's.

    Example:
        >>> p = nn.Parameter(tensor([1.0]))
        >>> (3 * p).sum().backward()
        >>> optim.RMSprop([p], lr=0.1, alpha=0.75).step()  # 3 / sqrt(0.25 * 3^2) = 2
        >>> round(p.item(), 4)
        0.8
    """

    options = Options(
        lr=1e-2, alpha=0.99, eps=1e-8, weight_decay=0, momentum=0, centered=False, capturable=False, foreach=None,
        maximize=False, differentiable=False,
    ).saved_as("lr momentum alpha eps centered")  # fmt: skip

    def check_options(self, options):
        check_range("alpha", options["alpha"])
        return super().check_options(options)

    def update(self, p, g, state, group):
        count_step(state)
        lr, alpha, eps = number(group["lr"]), group["alpha"], group["eps"]
        arrays = [p, g, zeros_for(state, "square_avg", p)]
        kernels = None if group["momentum"] or group["centered"] else self.compiled(arrays, group)
        if kernels is not None:
            kernels.update(kernels.rmsprop, arrays, lr, group["weight_decay"], alpha, 1 - alpha, eps)
            return
        g = decayed(p, g, group)
        v = mean_square_into(state, "square_avg", p, g, alpha)
        buffer = zeros_for(state, "momentum_buffer", p) if group["momentum"] else None
        if group["centered"]:
            m = mean_into(state, "grad_avg", p, g, 1 - alpha)
            v = v - m * m
        step = g / (v**0.5 + eps)
        if buffer is not None:
            buffer *= group["momentum"]
            buffer += step
            step = buffer
        p -= step * lr


class Adagrad(Optimizer):
    """Divides by the root of the sum of squared gradients. Source: Duchi et al., 2011.

    Args:
        lr: learning rate, divided by 1 + steps * lr_decay. initial_accumulator_value: where the sum starts. eps: added
            to the root.
        weight_decay: added to the gradient, times p. foreach, maximize, fused: as SGD's.

    Example:
        >>> p = nn.Parameter(tensor([1.0]))
        >>> (3 * p).sum().backward()
        >>> optim.Adagrad([p], lr=0.5, initial_accumulator_value=16).step()  # 3 / sqrt(16 + 9)
        >>> round(p.item(), 4)
        0.7
    """

    options = (
        Options(lr=1e-2, lr_decay=0, weight_decay=0, initial_accumulator_value=0, eps=1e-10, foreach=None)
        .keyword_only(maximize=False, differentiable=False, fused=None)
        .saved_as("lr lr_decay eps")
    )

    def _begin(self, params, options):
        super()._begin(params, options)
        for group in self.param_groups:
            for p in group["params"]:
                raw = p._data._array
                with device_guard(raw):
                    total = xp_of(raw).full(raw.shape, group["initial_accumulator_value"], raw.dtype)
                    step = xp_of(raw).zeros((), "float32")
                self.state[p] = {"step": Array._wrap(step), "sum": Array._wrap(total)}

    def update(self, p, g, state, group):
        lr = number(group["lr"]) / (1 + (count_step(state) - 1) * group["lr_decay"])
        total = zeros_for(state, "sum", p)
        kernels = self.compiled([p, g, total], group)
        if kernels is not None:
            kernels.update(kernels.adagrad, [p, g, total], lr, group["weight_decay"], group["eps"])
            return
        g = decayed(p, g, group)
        total += g * g
        p -= g / (total**0.5 + group["eps"]) * lr


class Adadelta(Optimizer):
    """Scales steps by the ratio of running root mean squares of updates and gradients. Source: Zeiler, 2012.

    Args:
        lr: factor on the step. rho: decay of both means. eps: added under both roots.
        weight_decay: added to the gradient, times p. foreach, maximize: as SGD's. capturable: as Adam's.
    """

    options = (
        Options(lr=1.0, rho=0.9, eps=1e-6, weight_decay=0, foreach=None)
        .keyword_only(capturable=False, maximize=False, differentiable=False)
        .saved_as("lr rho eps weight_decay maximize capturable")
    )

    def check_options(self, options):
        refuse_unless((0.0 <= options["rho"] <= 1.0, f"Invalid rho value: {options['rho']}"))
        return super().check_options(options)

    def update(self, p, g, state, group):
        lr, rho, eps = number(group["lr"]), group["rho"], group["eps"]
        count_step(state)
        arrays = [p, g, zeros_for(state, "square_avg", p), zeros_for(state, "acc_delta", p)]
        kernels = self.compiled(arrays, group)
        if kernels is not None:
            kernels.update(kernels.adadelta, arrays, lr, group["weight_decay"], rho, 1 - rho, eps)
            return
        g = decayed(p, g, group)
        v = mean_square_into(state, "square_avg", p, g, rho)
        step = ((arrays[3] + eps) ** 0.5) / ((v + eps) ** 0.5) * g
        mean_square_into(state, "acc_delta", p, step, rho)
        p -= step * lr


class Adamax(Optimizer):
    """Adam with the infinity norm. Source: Kingma and Ba, 2015.

    Args:
        lr: learning rate. betas: decay of the mean and of the maximum. eps: added to the maximum.
        weight_decay: added to the gradient, times p. foreach, maximize: as SGD's. capturable: as Adam's.
    """

    options = Options(lr=2e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0, foreach=None).keyword_only(
        maximize=False, differentiable=False, capturable=False
    )

    def update(self, p, g, state, group):
        xp, (beta1, beta2), eps = namespace_of(p), group["betas"], group["eps"]
        lr = number(group["lr"]) / (1 - beta1 ** count_step(state))
        arrays = [p, g, zeros_for(state, "exp_avg", p), zeros_for(state, "exp_inf", p)]
        kernels = self.compiled(arrays, group)
        if kernels is not None:
            kernels.update(kernels.adamax, arrays, lr, group["weight_decay"], 1 - beta1, beta2, eps)
            return
        g, u = decayed(p, g, group), arrays[3]
        m = mean_into(state, "exp_avg", p, g, 1 - beta1)
        u[...] = xp.maximum(u * beta2, xp.absolute(g) + eps)
        p -= m / u * lr


class NAdam(Optimizer):
    """Adam with Nesterov momentum. Source: Dozat, 2016.

    Args:
        lr: learning rate. betas, eps: as Adam's. momentum_decay: of the momentum's schedule.
        decoupled_weight_decay: weight decay as AdamW's.
        weight_decay: added to the gradient, times p. foreach, maximize: as SGD's. capturable: as Adam's.
    """

    options = (
        Options(
            lr=2e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0, momentum_decay=4e-3, decoupled_weight_decay=False
        )
        .keyword_only(foreach=None, maximize=False, capturable=False, differentiable=False)
        .saved_as("lr betas eps weight_decay momentum_decay decoupled_weight_decay maximize")
    )

    def update(self, p, g, state, group):
        lr, (beta1, beta2), psi = number(group["lr"]), group["betas"], group["momentum_decay"]
        t = count_step(state)
        mu, mu_next = (beta1 * (1.0 - 0.5 * 0.96 ** (step * psi)) for step in (t, t + 1))
        before = state.get("mu_product", 1.0)
        product = (before if isinstance(before, Tensor) else float(number(before))) * mu
        state["mu_product"] = product if isinstance(before, Tensor) else scalar(product)
        shares = lr * (1.0 - mu) / (1.0 - product), lr * mu_next / (1.0 - product * mu_next), 0.0
        _two_shares(self, p, g, state, group, math.sqrt(1 / (1 - beta2**t)), shares)


class RAdam(Optimizer):
    """Adam that rectifies the variance of its first steps. Source: Liu et al., 2020.

    Args:
        lr: learning rate. betas, eps: as Adam's. decoupled_weight_decay: weight decay as AdamW's.
        weight_decay: added to the gradient, times p. foreach, maximize: as SGD's. capturable: as Adam's.
    """

    options = (
        Options(lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0, decoupled_weight_decay=False)
        .keyword_only(foreach=None, maximize=False, capturable=False, differentiable=False)
        .saved_as("lr betas eps weight_decay maximize foreach capturable")
    )

    def update(self, p, g, state, group):
        lr, (beta1, beta2) = number(group["lr"]), group["betas"]
        t = count_step(state)
        longest = 2 / (1 - beta2) - 1
        rho = longest - 2 * t * beta2**t / (1 - beta2**t)
        lr /= 1 - beta1**t
        shares = 0.0, 0.0, lr
        if rho > 5.0:
            rectify = math.sqrt((rho - 4) * (rho - 2) * longest / ((longest - 4) * (longest - 2) * rho))
            shares = 0.0, lr * rectify * math.sqrt(1 - beta2**t), 0.0
        _two_shares(self, p, g, state, group, 1.0, shares)


def _two_shares(rule, p, g, state, group, scale, shares):
    """NAdam's and RAdam's step, (shares[0] * g + shares[1] * m) / (sqrt(v) * scale + eps) + shares[2] * m, with running means m, v."""
    (beta1, beta2), eps = group["betas"], group["eps"]
    arrays = [p, g, zeros_for(state, "exp_avg", p), zeros_for(state, "exp_avg_sq", p)]
    kernels = rule.compiled(arrays, group)
    if kernels is not None:
        means = 1 - beta1, beta2, 1 - beta2
        kernels.update(kernels.two_shares, arrays, *decay_factors(group), *means, scale, eps, *shares)
        return
    g = decayed(p, g, group)
    m = mean_into(state, "exp_avg", p, g, 1 - beta1)
    v = mean_square_into(state, "exp_avg_sq", p, g, beta2)
    if shares[2]:
        p -= m * shares[2]
    else:
        p -= (g * shares[0] + m * shares[1]) / (v**0.5 * scale + eps)


class Rprop(Optimizer):
    """Steps that grow where the gradient keeps its sign and shrink where it changes. Source: Riedmiller and Braun, 1993."""

    options = (
        Options(lr=1e-2, etas=(0.5, 1.2), step_sizes=(1e-6, 50))
        .keyword_only(capturable=False, foreach=None, maximize=False, differentiable=False)
        .saved_as("lr etas step_sizes foreach maximize differentiable")
    )

    def check_options(self, options):
        low, high = options["etas"]
        refuse_unless((0.0 < low < 1.0 < high, f"Invalid eta values: {low}, {high}"))
        return super().check_options(options)

    def update(self, p, g, state, group):
        xp, (less, more) = namespace_of(p), group["etas"]
        count_step(state)
        previous, is_first = zeros_for(state, "prev", p), "step_size" not in state
        size = zeros_for(state, "step_size", p)
        if is_first:
            size += number(group["lr"])
        sign = xp.sign(g * previous)
        size[...] = xp.clip(
            xp.where(sign > 0, size * more, xp.where(sign < 0, size * less, size)), *group["step_sizes"]
        )
        g = xp.where(sign < 0, g * 0, g)
        p -= xp.sign(g) * size
        previous[...] = g


class ASGD(Optimizer):
    """Averaged stochastic gradient descent. Source: Polyak and Juditsky, 1992."""

    options = Options(
        lr=1e-2, lambd=1e-4, alpha=0.75, t0=1e6, weight_decay=0, foreach=None, maximize=False, differentiable=False,
        capturable=False,
    )  # fmt: skip

    def update(self, p, g, state, group):
        lr, lambd = number(group["lr"]), group["lambd"]
        g = decayed(p, g, group)
        t = count_step(state)
        eta, mu = (float(state.setdefault(name, scalar(x)).item()) for name, x in (("eta", lr), ("mu", 1.0)))
        p *= 1 - lambd * eta
        p -= g * eta
        average = zeros_for(state, "ax", p)
        if mu == 1:
            average[...] = p
        else:
            average += (p - average) * mu
        state["eta"] = scalar(lr / (1 + lambd * lr * t) ** group["alpha"])
        state["mu"] = scalar(1 / max(1, t - group["t0"]))
