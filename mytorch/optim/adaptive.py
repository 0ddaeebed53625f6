"""RMSprop, Adagrad, Adadelta, Adamax, NAdam, RAdam, Rprop and ASGD: each rule on raw arrays, in place."""

import math

import numpy as np

from .._array import Array
from ..backend import device_guard, xp_of
from .optimizer import Optimizer, check_flags, check_range, count_step, number, zeros_for


class _Rule(Optimizer):
    """Checks the options that all of them share, and stores them all as defaults."""

    def __init__(self, params, defaults):
        name = type(self).__name__
        check_range("learning rate", defaults["lr"])
        check_range("weight_decay value", defaults.get("weight_decay", 0))
        flags = {k: defaults[k] for k in ("foreach", "fused", "capturable", "differentiable") if k in defaults}
        check_flags(name, lr=defaults["lr"], **flags)
        super().__init__(params, defaults)

    @staticmethod
    def decayed(p, g, group):
        """The gradient with weight_decay * p added."""
        return g + p * group["weight_decay"] if group["weight_decay"] else g


class RMSprop(_Rule):
    """Divides by a running root mean square of gradients. Source: Tieleman and Hinton, 2012."""

    def __init__(
        self, params, lr=1e-2, alpha=0.99, eps=1e-8, weight_decay=0, momentum=0, centered=False, capturable=False,
        foreach=None, maximize=False, differentiable=False,
    ):  # fmt: skip
        check_range("epsilon value", eps)
        check_range("momentum value", momentum)
        check_range("alpha value", alpha)
        super().__init__(
            params,
            {
                "lr": lr, "momentum": momentum, "alpha": alpha, "eps": eps, "centered": centered,
                "weight_decay": weight_decay, "capturable": capturable, "foreach": foreach, "maximize": maximize,
                "differentiable": differentiable,
            },
        )  # fmt: skip

    def update(self, p, g, state, group):
        g, alpha = self.decayed(p, g, group), group["alpha"]
        count_step(state)
        v = zeros_for(state, "square_avg", p)
        v *= alpha
        v += g * g * (1 - alpha)
        spread = v
        buffer = zeros_for(state, "momentum_buffer", p) if group["momentum"] else None
        if group["centered"]:
            m = zeros_for(state, "grad_avg", p)
            m += (g - m) * (1 - alpha)
            spread = v - m * m
        step = g / (spread**0.5 + group["eps"])
        if buffer is not None:
            buffer *= group["momentum"]
            buffer += step
            step = buffer
        p -= step * number(group["lr"])


class Adagrad(_Rule):
    """Divides by the root of the sum of squared gradients. Source: Duchi et al., 2011."""

    def __init__(
        self, params, lr=1e-2, lr_decay=0, weight_decay=0, initial_accumulator_value=0, eps=1e-10, foreach=None, *,
        maximize=False, differentiable=False, fused=None,
    ):  # fmt: skip
        check_range("lr_decay value", lr_decay)
        check_range("initial_accumulator_value value", initial_accumulator_value)
        check_range("epsilon value", eps)
        super().__init__(
            params,
            {
                "lr": lr, "lr_decay": lr_decay, "eps": eps, "weight_decay": weight_decay,
                "initial_accumulator_value": initial_accumulator_value, "foreach": foreach, "maximize": maximize,
                "differentiable": differentiable, "fused": fused,
            },
        )  # fmt: skip
        for group in self.param_groups:
            for p in group["params"]:
                raw = p._data._array
                with device_guard(raw):
                    self.state[p] = {
                        "step": Array._wrap(xp_of(raw).zeros((), "float32")),
                        "sum": Array._wrap(xp_of(raw).full(raw.shape, group["initial_accumulator_value"], raw.dtype)),
                    }

    def update(self, p, g, state, group):
        g = self.decayed(p, g, group)
        t = count_step(state)
        total = zeros_for(state, "sum", p)
        total += g * g
        p -= g / (total**0.5 + group["eps"]) * (number(group["lr"]) / (1 + (t - 1) * group["lr_decay"]))


class Adadelta(_Rule):
    """Scales steps by the ratio of running root mean squares of updates and gradients. Source: Zeiler, 2012."""

    def __init__(
        self, params, lr=1.0, rho=0.9, eps=1e-6, weight_decay=0, foreach=None, *, capturable=False, maximize=False,
        differentiable=False,
    ):  # fmt: skip
        check_range("epsilon value", eps)
        if not 0.0 <= rho <= 1.0:
            raise ValueError(f"Invalid rho value: {rho}")
        super().__init__(
            params,
            {
                "lr": lr, "rho": rho, "eps": eps, "weight_decay": weight_decay, "maximize": maximize,
                "capturable": capturable, "foreach": foreach, "differentiable": differentiable,
            },
        )  # fmt: skip

    def update(self, p, g, state, group):
        g, rho, eps = self.decayed(p, g, group), group["rho"], group["eps"]
        count_step(state)
        v, d = zeros_for(state, "square_avg", p), zeros_for(state, "acc_delta", p)
        v *= rho
        v += g * g * (1 - rho)
        step = ((d + eps) ** 0.5) / ((v + eps) ** 0.5) * g
        d *= rho
        d += step * step * (1 - rho)
        p -= step * number(group["lr"])


class _Moments(_Rule):
    """The rules with two running means."""

    def __init__(self, params, defaults):
        check_range("epsilon value", defaults["eps"])
        check_range("beta parameter at index 0", defaults["betas"][0], 0.0, 1.0)
        check_range("beta parameter at index 1", defaults["betas"][1], 0.0, 1.0)
        super().__init__(params, defaults)


class Adamax(_Moments):
    """Adam with the infinity norm. Source: Kingma and Ba, 2015."""

    def __init__(
        self, params, lr=2e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0, foreach=None, *, maximize=False,
        differentiable=False, capturable=False,
    ):  # fmt: skip
        super().__init__(
            params,
            {
                "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "foreach": foreach,
                "maximize": maximize, "differentiable": differentiable, "capturable": capturable,
            },
        )  # fmt: skip

    def update(self, p, g, state, group):
        g, (beta1, beta2) = self.decayed(p, g, group), group["betas"]
        t = count_step(state)
        m, u = zeros_for(state, "exp_avg", p), zeros_for(state, "exp_inf", p)
        m += (g - m) * (1 - beta1)
        xp = xp_of(p)
        u[...] = xp.maximum(u * beta2, xp.absolute(g) + group["eps"])
        p -= m / u * (number(group["lr"]) / (1 - beta1**t))


class NAdam(_Moments):
    """Adam with Nesterov momentum. Source: Dozat, 2016."""

    def __init__(
        self, params, lr=2e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0, momentum_decay=4e-3,
        decoupled_weight_decay=False, *, foreach=None, maximize=False, capturable=False, differentiable=False,
    ):  # fmt: skip
        check_range("momentum_decay value", momentum_decay)
        super().__init__(
            params,
            {
                "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "momentum_decay": momentum_decay,
                "decoupled_weight_decay": decoupled_weight_decay, "maximize": maximize, "foreach": foreach,
                "capturable": capturable, "differentiable": differentiable,
            },
        )  # fmt: skip

    def update(self, p, g, state, group):
        lr, (beta1, beta2), psi = number(group["lr"]), group["betas"], group["momentum_decay"]
        t = count_step(state)
        if group["weight_decay"]:
            if group["decoupled_weight_decay"]:
                p *= 1 - lr * group["weight_decay"]
            else:
                g = g + p * group["weight_decay"]
        product = state.get("mu_product")
        before = 1.0 if product is None else float(product.item())
        mu = beta1 * (1.0 - 0.5 * 0.96 ** (t * psi))
        mu_next = beta1 * (1.0 - 0.5 * 0.96 ** ((t + 1) * psi))
        now = before * mu
        state["mu_product"] = Array._wrap(np.full((), now, np.float32))
        m, v = zeros_for(state, "exp_avg", p), zeros_for(state, "exp_avg_sq", p)
        m += (g - m) * (1 - beta1)
        v *= beta2
        v += g * g * (1 - beta2)
        root = (v / (1 - beta2**t)) ** 0.5 + group["eps"]
        p -= g / root * (lr * (1.0 - mu) / (1.0 - now))
        p -= m / root * (lr * mu_next / (1.0 - now * mu_next))


class RAdam(_Moments):
    """Adam that rectifies the variance of its first steps. Source: Liu et al., 2020."""

    def __init__(
        self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0, decoupled_weight_decay=False, *, foreach=None,
        maximize=False, capturable=False, differentiable=False,
    ):  # fmt: skip
        super().__init__(
            params,
            {
                "lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "maximize": maximize,
                "foreach": foreach, "capturable": capturable, "decoupled_weight_decay": decoupled_weight_decay,
                "differentiable": differentiable,
            },
        )  # fmt: skip

    def update(self, p, g, state, group):
        lr, (beta1, beta2) = number(group["lr"]), group["betas"]
        t = count_step(state)
        if group["weight_decay"]:
            if group["decoupled_weight_decay"]:
                p *= 1 - lr * group["weight_decay"]
            else:
                g = g + p * group["weight_decay"]
        m, v = zeros_for(state, "exp_avg", p), zeros_for(state, "exp_avg_sq", p)
        m += (g - m) * (1 - beta1)
        v *= beta2
        v += g * g * (1 - beta2)
        corrected = m / (1 - beta1**t)
        longest = 2 / (1 - beta2) - 1
        rho = longest - 2 * t * beta2**t / (1 - beta2**t)
        if rho > 5.0:
            rectify = math.sqrt((rho - 4) * (rho - 2) * longest / ((longest - 4) * (longest - 2) * rho))
            p -= corrected * (math.sqrt(1 - beta2**t) / (v**0.5 + group["eps"])) * (lr * rectify)
        else:
            p -= corrected * lr


class Rprop(_Rule):
    """Steps that grow where the gradient keeps its sign and shrink where it changes. Source: Riedmiller and Braun, 1993."""

    def __init__(
        self, params, lr=1e-2, etas=(0.5, 1.2), step_sizes=(1e-6, 50), *, capturable=False, foreach=None, maximize=False,
        differentiable=False,
    ):  # fmt: skip
        if not 0.0 < etas[0] < 1.0 < etas[1]:
            raise ValueError(f"Invalid eta values: {etas[0]}, {etas[1]}")
        super().__init__(
            params,
            {
                "lr": lr, "etas": etas, "step_sizes": step_sizes, "foreach": foreach, "maximize": maximize,
                "differentiable": differentiable, "capturable": capturable,
            },
        )  # fmt: skip

    def update(self, p, g, state, group):
        xp = xp_of(p)
        count_step(state)
        previous = zeros_for(state, "prev", p)
        if "step_size" not in state:
            state["step_size"] = Array._wrap(xp.full(p.shape, number(group["lr"]), p.dtype))
        size = state["step_size"]._array
        sign = xp.sign(g * previous)
        factor = xp.where(sign > 0, group["etas"][1], xp.where(sign < 0, group["etas"][0], 1.0))
        size[...] = xp.clip(size * factor, *group["step_sizes"])
        g = xp.where(sign < 0, 0.0, g).astype(p.dtype)
        p -= xp.sign(g) * size
        previous[...] = g


class ASGD(_Rule):
    """Averaged stochastic gradient descent. Source: Polyak and Juditsky, 1992."""

    def __init__(
        self, params, lr=1e-2, lambd=1e-4, alpha=0.75, t0=1e6, weight_decay=0, foreach=None, maximize=False,
        differentiable=False, capturable=False,
    ):  # fmt: skip
        super().__init__(
            params,
            {
                "lr": lr, "lambd": lambd, "alpha": alpha, "t0": t0, "weight_decay": weight_decay, "foreach": foreach,
                "maximize": maximize, "differentiable": differentiable, "capturable": capturable,
            },
        )  # fmt: skip

    def update(self, p, g, state, group):
        lr = number(group["lr"])
        g = self.decayed(p, g, group)
        t = count_step(state)
        for name, first in (("eta", lr), ("mu", 1.0)):
            if name not in state:
                state[name] = Array._wrap(np.full((), first, np.float32))
        eta, mu = float(state["eta"].item()), float(state["mu"].item())
        p *= 1 - group["lambd"] * eta
        p -= g * eta
        average = zeros_for(state, "ax", p)
        if mu == 1:
            average[...] = p
        else:
            average += (p - average) * mu
        state["eta"] = Array._wrap(np.full((), lr / (1 + group["lambd"] * lr * t) ** group["alpha"], np.float32))
        state["mu"] = Array._wrap(np.full((), 1 / max(1, t - group["t0"]), np.float32))
