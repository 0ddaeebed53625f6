"""Stochastic gradient descent."""

from ..arrays import xp_of
from ..arrays.tensor import Tensor
from .optimizer import Optimizer
from .options import Options, number
from .state import decayed, kept

FEW = 4096  # elements; up to this size, NumPy's two passes are faster than the kernel


class SGD(Optimizer):
    """Implements stochastic gradient descent, optionally with momentum and weight decay.

        g = gradient + weight_decay * p
        b = momentum * b + (1 - dampening) * g      (first step: b = g)
        p = p - lr * b

    With nesterov, the last line is p = p - lr * (g + momentum * b).

    Use it with momentum for convolutional networks, where it often generalizes better than Adam but needs a tuned
    learning rate. It stores one buffer per parameter, or none without momentum.

    Args:
        lr: learning rate (default: 1e-3). May be a 0-d tensor.
        momentum: decay rate of the running sum b of the gradients (default: 0).
        dampening: fraction of each new gradient that the running sum omits (default: 0).
        nesterov: if True, uses Nesterov momentum, which requires `momentum` and no `dampening` (default: False).

    Raises:
        ValueError: an option is out of its range, or `nesterov` without momentum or with dampening.
        RuntimeError: `fused` together with `foreach`, `differentiable` or a parameter that is not floating point.

    Source: Sutskever et al., 2013, with PyTorch's modifications.

    Example:
        >>> p = nn.Parameter(tensor([1.0]))
        >>> optimizer = optim.SGD([p], lr=0.5)
        >>> (3 * p).sum().backward()
        >>> optimizer.step()  # p - lr * gradient
        >>> p
        tensor([-0.50000], requires_grad=True)
    """

    options = Options(lr=1e-3, momentum=0, dampening=0, weight_decay=0, nesterov=False).keyword_only(
        maximize=False, foreach=None, differentiable=False, fused=None
    )

    def check_options(self, options):
        if options["nesterov"] and (options["momentum"] <= 0 or options["dampening"] != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        return super().check_options(options)

    def launch(self, fused):
        group = fused.group
        name = "momentum_buffer" if group["momentum"] else None
        for state, members in fused.by_start(name):
            buffers = [fused.moments(name, members)] if name else []
            fused.kernels.sgd(
                fused.table(members, *buffers), state, group["momentum"], group["dampening"], group["weight_decay"],
                nesterov=group["nesterov"], maximize=group["maximize"],
            )  # fmt: skip

    def update(self, p, g, state, group):
        momentum, lr, decay = group["momentum"], number(group["lr"]), group["weight_decay"]
        buffer = state.get("momentum_buffer") if momentum else None
        if not group.get("differentiable") and (
            buffer is not None or ((p.size >= FEW or group.get("fused")) and not momentum)
        ):
            arrays = [p, g] if buffer is None else [p, g, buffer._mt_data._array]
            kernels = self.compiled(arrays, group)
            if kernels is not None:
                shares = (momentum, 1 - group["dampening"], group["nesterov"]) if momentum else ()
                kernels.update(kernels.momentum if momentum else kernels.sgd, arrays, lr, decay, *shares)
                return
        g = decayed(p, g, group)
        if momentum:
            if buffer is None:
                state["momentum_buffer"] = g.clone() if isinstance(g, Tensor) else kept(xp_of(p).array(g, p.dtype))
                average = g
            else:
                average = buffer if isinstance(p, Tensor) else buffer._mt_data._array
                average *= momentum
                average += g * (1 - group["dampening"]) if group["dampening"] else g
            g = g + average * momentum if group["nesterov"] else average
        p -= g * lr
