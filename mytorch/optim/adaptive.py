"""RMSprop, Adagrad, Adadelta, Adamax, NAdam, RAdam, Rprop and ASGD. Each update rule changes raw arrays in place."""

import numpy as np

from ..arrays import device_guard, xp_of
from ..arrays.tensor import Tensor
from .optimizer import Optimizer
from .options import Options, check_range, number, refuse_unless
from .state import (
    count_step,
    decay_factors,
    decayed,
    kept,
    mean_into,
    mean_square_into,
    namespace_of,
    scalar,
    zeros_for,
)


class RMSprop(Optimizer):
    """Implements RMSprop, which divides steps by a running root mean square of the gradient.

        g = gradient + weight_decay * p
        v = alpha * v + (1 - alpha) * g^2
        b = momentum * b + g / (sqrt(v) + eps)
        p = p - lr * b

    Use it for reinforcement learning and recurrent networks whose recipes were tuned with it; otherwise `Adam` adds
    momentum to it.

    Args:
        lr: learning rate (default: 1e-2). May be a 0-d tensor.
        alpha: decay rate of the running mean of squares (default: 0.99).
        eps: added to the denominator (default: 1e-8).
        momentum: decay rate of the running sum of steps (default: 0).
        centered: if True, divides by the running standard deviation: subtracts m^2 from v, where m is the running mean of g
            (default: False).

    Source: Tieleman and Hinton, 2012.

    Example:
        >>> p = nn.Parameter(tensor([1.0]))
        >>> (3 * p).sum().backward()
        >>> optim.RMSprop([p], lr=0.1, alpha=0.75).step()  # 3 / sqrt(0.25 * 3^2) = 2
        >>> p
        tensor([0.80000], requires_grad=True)
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
    """Implements Adagrad, which divides steps by the root of the sum of squared gradients.

        g = gradient + weight_decay * p
        s = s + g^2
        p = p - lr / (1 + (t - 1) * lr_decay) * g / (sqrt(s) + eps)

    Use it for sparse features, since rare ones keep large steps. The steps only shrink, so it is less suited to long
    training.

    Args:
        lr: learning rate (default: 1e-2). May be a 0-d tensor.
        lr_decay: decay of the learning rate with the step t (default: 0).
        initial_accumulator_value: initial value of s (default: 0).
        eps: added to the denominator (default: 1e-10).

    Source: Duchi et al., 2011.

    Example:
        >>> p = nn.Parameter(tensor([1.0]))
        >>> (3 * p).sum().backward()
        >>> optim.Adagrad([p], lr=0.5, initial_accumulator_value=16).step()  # 3 / sqrt(16 + 9)
        >>> p
        tensor([0.70000], requires_grad=True)
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
                raw = getattr(p, "_local_tensor", p)._mt_data._array  # the local part of a DTensor
                with device_guard(raw):
                    total = xp_of(raw).full_like(raw, self._start(group, raw.dtype.kind == "c"))
                    step = xp_of(raw).zeros((), "float32")
                self.state[p] = {"step": kept(step), "sum": kept(total)}

    def _start(self, group, is_complex):
        """Returns the initial sum. The real and the imaginary part have separate sums."""
        start = group["initial_accumulator_value"]
        return complex(start, start) if is_complex else start

    def numbers(self, group, t):
        return number(group["lr"]) / (1 + (t - 1) * group["lr_decay"])

    def update(self, p, g, state, group):
        lr = self.at_step(group, count_step(state))
        fresh = "sum" not in state  # a parameter of a later group
        total = zeros_for(state, "sum", p)
        if fresh and group["initial_accumulator_value"]:
            total += self._start(group, "complex" in str(p.dtype))
        kernels = self.compiled([p, g, total], group)
        if kernels is not None:
            kernels.update(kernels.adagrad, [p, g, total], lr, group["weight_decay"], group["eps"])
            return
        g = decayed(p, g, group)
        total += g * g
        p -= g / (total**0.5 + group["eps"]) * lr


class Adadelta(Optimizer):
    """Implements Adadelta, which scales steps by the ratio of the running root mean squares of updates and gradients.

        g = gradient + weight_decay * p
        v = rho * v + (1 - rho) * g^2
        d = sqrt(u + eps) / sqrt(v + eps) * g
        u = rho * u + (1 - rho) * d^2
        p = p - lr * d

    Here v is the running mean of the squared gradients, and u is the running mean of the squared updates d.

    Use it when a recipe asks for it; it needs no learning rate, but `Adam` usually learns faster.

    Args:
        lr: factor of the update d (default: 1.0). May be a 0-d tensor.
        rho: decay rate of both running means (default: 0.9).
        eps: small number that is added under both roots, for stability (default: 1e-6).

    Source: Zeiler, 2012.

    Example:
        >>> p = nn.Parameter(tensor([1.0]))
        >>> (3 * p).sum().backward()
        >>> optim.Adadelta([p], rho=0.75, eps=0.25).step()  # 0.5 / sqrt(0.25 * 9 + 0.25) * 3
        >>> p
        tensor([0.05132], requires_grad=True)
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
    """Implements Adamax, a variant of Adam with the infinity norm.

        g = gradient + weight_decay * p
        m = beta1 * m + (1 - beta1) * g
        u = max(beta2 * u, |g| + eps)
        p = p - lr / (1 - beta1^t) * m / u

    Use it in place of `Adam` when single large gradients disturb training, as with embeddings.

    Args:
        lr: learning rate (default: 2e-3). May be a 0-d tensor.
        betas: decay rates beta1 and beta2 of the mean and of the maximum (default: (0.9, 0.999)).
        eps: added to the magnitude of the gradient (default: 1e-8).

    Source: Kingma and Ba, 2015.

    Example:
        >>> p = nn.Parameter(tensor([1.0]))
        >>> (3 * p).sum().backward()
        >>> optim.Adamax([p], lr=0.25).step()  # the first step is lr * sign(gradient)
        >>> p
        tensor([0.75000], requires_grad=True)
    """

    options = Options(lr=2e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0, foreach=None).keyword_only(
        maximize=False, differentiable=False, capturable=False
    )

    def numbers(self, group, t):
        beta1, beta2 = map(number, group["betas"])
        return number(group["lr"]) / (1 - beta1**t), beta1, beta2

    def update(self, p, g, state, group):
        xp, eps = namespace_of(p), group["eps"]
        lr, beta1, beta2 = self.at_step(group, count_step(state))
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
    """Implements NAdam: Adam with Nesterov momentum.

        g = gradient + weight_decay * p
        mu_t = beta1 * (1 - 0.96^(t * momentum_decay) / 2)
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g^2
        d = (1 - mu_t) * g / (1 - mu_1 * ... * mu_t) + mu_(t+1) * m / (1 - mu_1 * ... * mu_(t+1))
        p = p - lr * d / (sqrt(v / (1 - beta2^t)) + eps)

    Use it in place of `Adam` to try Nesterov momentum; the cost is the same.

    Args:
        lr: learning rate (default: 2e-3). May be a 0-d tensor.
        betas: decay rates beta1 and beta2 of the running means (default: (0.9, 0.999)).
        eps: added to the denominator (default: 1e-8).
        momentum_decay: decay of the momentum schedule (default: 4e-3).
        decoupled_weight_decay: if True, decays weights as `AdamW` does (default: False).

    Source: Dozat, 2016.

    Example:
        >>> p = nn.Parameter(tensor([1.0]))
        >>> (3 * p).sum().backward()
        >>> optim.NAdam([p], lr=0.25).step()
        >>> p
        tensor([0.73589], requires_grad=True)
    """

    options = (
        Options(
            lr=2e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0, momentum_decay=4e-3, decoupled_weight_decay=False
        )
        .keyword_only(foreach=None, maximize=False, capturable=False, differentiable=False)
        .saved_as("lr betas eps weight_decay momentum_decay decoupled_weight_decay maximize")
    )

    def numbers(self, group, t):
        (beta1, beta2), psi = map(number, group["betas"]), group["momentum_decay"]
        mu, mu_next = (beta1 * (1.0 - 0.5 * 0.96 ** (step * psi)) for step in (t, t + 1))
        return number(group["lr"]), mu, mu_next, (1 / (1 - beta2**t)) ** 0.5

    def update(self, p, g, state, group):
        lr, mu, mu_next, scale = self.at_step(group, count_step(state))
        before = state.get("mu_product", 1.0)
        recorded = isinstance(p, Tensor) and isinstance(before, Tensor)
        state["mu_product"] = before * mu if recorded else scalar(np.float32(number(before)) * np.float32(mu))
        product = state["mu_product"] if recorded else number(state["mu_product"])
        shares = lr * (1.0 - mu) / (1.0 - product), lr * mu_next / (1.0 - product * mu_next), 0.0
        _two_shares(self, p, g, state, group, scale, shares)


class RAdam(Optimizer):
    """Implements RAdam: Adam that rectifies the variance of its first steps.

        g = gradient + weight_decay * p
        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g^2
        n = 2 / (1 - beta2) - 1
        k = n - 2 * t * beta2^t / (1 - beta2^t)
        r = sqrt((k - 4) * (k - 2) * n / ((n - 4) * (n - 2) * k))
        p = p - lr * m / (1 - beta1^t)                                              if k <= 5
        p = p - lr * m / (1 - beta1^t) * r * sqrt(1 - beta2^t) / (sqrt(v) + eps)    otherwise

    Use it in place of `Adam` without a warm-up: it takes plain momentum steps until its variance is reliable.

    Args:
        lr: learning rate (default: 1e-3). May be a 0-d tensor.
        betas: decay rates beta1 and beta2 of the running means (default: (0.9, 0.999)).
        eps: added to the denominator (default: 1e-8).
        decoupled_weight_decay: if True, decays weights as `AdamW` does (default: False).

    Source: Liu et al., 2020.

    Example:
        >>> p = nn.Parameter(tensor([1.0]))
        >>> (3 * p).sum().backward()
        >>> optim.RAdam([p], lr=0.25).step()  # the first step is lr * gradient
        >>> p
        tensor([0.25000], requires_grad=True)
    """

    options = (
        Options(lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0, decoupled_weight_decay=False)
        .keyword_only(foreach=None, maximize=False, capturable=False, differentiable=False)
        .saved_as("lr betas eps weight_decay maximize foreach capturable")
    )

    def numbers(self, group, t):
        lr, (beta1, beta2) = number(group["lr"]), map(number, group["betas"])
        longest = 2 / (1 - beta2) - 1
        rho = longest - 2 * t * beta2**t / (1 - beta2**t)
        lr /= 1 - beta1**t
        if not rho > 5.0:
            return 0.0, 0.0, lr
        rectify = ((rho - 4) * (rho - 2) * longest / ((longest - 4) * (longest - 2) * rho)) ** 0.5
        return 0.0, lr * rectify * (1 - beta2**t) ** 0.5, 0.0

    def update(self, p, g, state, group):
        _two_shares(self, p, g, state, group, 1.0, self.at_step(group, count_step(state)))


def _two_shares(rule, p, g, state, group, scale, shares):
    """Runs the step of NAdam and RAdam with running means m and v.

    p -= (shares[0] * g + shares[1] * m) / (sqrt(v) * scale + eps) + shares[2] * m
    """
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
    """Implements Rprop, which uses only the signs of the gradients.

        s = s * etas[1]                 if g has the sign of the previous g
        s = s * etas[0], then g = 0     if g has the opposite sign
        p = p - s * sign(g)

    Each element has its own step size s, which is limited to the range `step_sizes`. Rprop is for full-batch training.

    Use it for small problems with the whole data set in each step, because the signs of noisy gradients say little.

    Args:
        lr: initial step size (default: 1e-2). May be a 0-d tensor.
        etas: factors that shrink and grow the step size (default: (0.5, 1.2)).
        step_sizes: smallest and largest step size (default: (1e-6, 50)).

    Raises:
        ValueError: the factors are not etas[0] < 1 < etas[1].

    Source: Riedmiller and Braun, 1993.

    Example:
        >>> p = nn.Parameter(tensor([1.0]))
        >>> optimizer = optim.Rprop([p], lr=0.25, etas=(0.5, 2.0))
        >>> for _ in range(2):  # steps of 0.25 and 0.5
        ...     optimizer.zero_grad()
        ...     (3 * p).sum().backward()
        ...     optimizer.step()
        >>> p.item()
        0.25
    """

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
    """Implements averaged stochastic gradient descent. The averages are in `optimizer.state[p]["ax"]`.

        g = gradient + weight_decay * p
        p = p - eta * (g + lambd * p)
        ax = ax + mu * (p - ax)
        eta = lr / (1 + lambd * lr * t)^alpha
        mu = 1 / max(1, t - t0)

    Use it for convex problems with noisy gradients. For networks, `optim.swa_utils.AveragedModel` averages the weights
    of any optimizer.

    Args:
        lr: learning rate, the first value of eta (default: 1e-2). May be a 0-d tensor.
        lambd: decay of the parameters and of eta (default: 1e-4).
        alpha: exponent of the decay of eta (default: 0.75).
        t0: step after which averaging begins (default: 1e6).

    Source: Polyak and Juditsky, 1992.

    Example:
        >>> p = nn.Parameter(tensor([1.0]))
        >>> (3 * p).sum().backward()
        >>> optim.ASGD([p], lr=0.25, lambd=0.0).step()
        >>> p.item()
        0.25
    """

    options = Options(
        lr=1e-2, lambd=1e-4, alpha=0.75, t0=1e6, weight_decay=0, foreach=None, maximize=False, differentiable=False,
        capturable=False,
    )  # fmt: skip

    def numbers(self, group, t):
        lr = number(group["lr"])
        return lr, lr / (1 + group["lambd"] * lr * t) ** group["alpha"], 1 / max(1, t - group["t0"])

    def update(self, p, g, state, group):
        lr, next_eta, next_mu = self.at_step(group, count_step(state))
        g, lambd = decayed(p, g, group), group["lambd"]
        eta, mu = (float(state.setdefault(name, scalar(x)).item()) for name, x in (("eta", lr), ("mu", 1.0)))
        p *= 1 - lambd * eta
        p -= g * eta
        average = zeros_for(state, "ax", p)
        if mu == 1:
            average[...] = p
        else:
            average += (p - average) * mu
        state["eta"], state["mu"] = scalar(next_eta), scalar(next_mu)
