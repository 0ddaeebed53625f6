"""Stochastic gradient descent."""

from .._array import Array
from .._tensor import Tensor
from ..backend import xp_of
from .optimizer import Optimizer
from .options import Options, number
from .state import decayed

FEW = 4096  # elements, up to which NumPy's two passes are the quicker ones


class SGD(Optimizer):
    """p -= lr * d, where d is the gradient, with weight decay, and with momentum its running sum.

    Args:
        lr: learning rate. momentum: decay of the running sum. dampening: share of a new gradient left out.
        nesterov: look ahead along the momentum (needs momentum, no dampening). maximize: go up.
        foreach: accepted; the result is the same. fused: True asks for one kernel launch for all parameters on a GPU (and warns
            where it can't be), False for the plain rule, None for whichever is there.

    Source: Sutskever et al., 2013, in PyTorch's form.

    Example:
        >>> p = nn.Parameter(tensor([1.0]))
        >>> (3 * p).sum().backward()
        >>> optim.SGD([p], lr=0.5).step()
        >>> p.tolist()
        [-0.5]
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
        if not group.get("differentiable") and (buffer is not None or (p.size >= FEW and not momentum)):
            arrays = [p, g] if buffer is None else [p, g, buffer._array]
            kernels = self.compiled(arrays, group)
            if kernels is not None:
                shares = (momentum, 1 - group["dampening"], group["nesterov"]) if momentum else ()
                kernels.update(kernels.momentum if momentum else kernels.sgd, arrays, lr, decay, *shares)
                return
        g = decayed(p, g, group)
        if momentum:
            if buffer is None:
                state["momentum_buffer"] = g.clone() if isinstance(g, Tensor) else Array._wrap(xp_of(p).array(g))
                average = g
            else:
                average = buffer if isinstance(buffer, Tensor) else buffer._array
                average *= momentum
                average += g * (1 - group["dampening"]) if group["dampening"] else g
            g = g + average * momentum if group["nesterov"] else average
        p -= g * lr
