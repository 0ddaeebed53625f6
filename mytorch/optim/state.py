"""What update rules share: weight decay, running means, and a parameter's state, {name: Array or number}."""

from copy import deepcopy

import numpy as np

from .._array import Array
from .._tensor import Tensor, is_tensor
from ..backend import xp_of
from ..engine.mode import enable_grad
from ..transforms.tensor_ns import tensor_ns
from .options import number


def decayed(p, g, group):
    """The gradient with weight_decay * p added; or p shrinks, if the weight decay is decoupled."""
    if not group["weight_decay"]:
        return g
    if group.get("decoupled_weight_decay"):
        p *= 1 - number(group["lr"]) * group["weight_decay"]
        return g
    return g + p * group["weight_decay"]


def decay_factors(group):
    """(shrink, pull): the factor on p, of decoupled weight decay, and the share of p that is added to its gradient."""
    decay = group["weight_decay"]
    return (1 - number(group["lr"]) * decay, 0.0) if group.get("decoupled_weight_decay") else (1.0, decay)


def mean_into(state, name, p, x, share):
    """Move the running mean `name` by a share towards x; returns its raw array."""
    mean = zeros_for(state, name, p)
    mean += (x - mean) * share
    return mean


def mean_square_into(state, name, p, x, decay):
    """The running mean `name` of squares, decay * mean + (1 - decay) * x^2; returns its raw array."""
    mean = zeros_for(state, name, p)
    mean *= decay
    mean += x * x * (1 - decay)
    return mean


def zeros_for(state, name, p):
    """The raw array of a state value, made of zeros like the raw parameter p the first time."""
    found = state.get(name)
    if isinstance(p, Tensor):
        if found is None:
            found = state[name] = p.detach() * 0
        return found
    if found is None:
        found = state[name] = Array._wrap(xp_of(p).zeros_like(p))
    return found._data._array


def namespace_of(p):
    """NumPy's names for arrays like p, or, in a differentiable step, for Tensors."""
    return tensor_ns(xp_of(p._data._array)) if isinstance(p, Tensor) else xp_of(p)


def scalar(x):
    """A number of the state's: a 0-d float32 Array on the CPU, as in PyTorch's layout."""
    return Array._wrap(np.array(x, np.float32))


def count_step(state):
    """Raise state["step"] by one; returns it as an int."""
    found = state.get("step")
    n = (0 if found is None else int(found.item() if hasattr(found, "item") else found)) + 1
    if isinstance(found, Array) and isinstance(found._array, np.ndarray):  # one on a GPU is shared, see fused.py
        found._array[...] = n
    else:
        state["step"] = scalar(n)
    return n


def raw_grad(p):
    """The raw array of a parameter's gradient, or None."""
    grad = p.grad
    return None if grad is None else (grad._data if isinstance(grad, Tensor) else grad)._array


_ON_CPU = ("step", "mu_product", "eta", "mu")  # numbers that rules compute with in Python


def loaded(p, name, value, as_tensor=False):
    """A loaded state value in the parameter's dtype and on its device: an Array, or a Tensor for those optimizers that
    define `step` themselves. Numbers such as the step count stay on the CPU."""
    if hasattr(value, "detach") and hasattr(value, "numpy") and not is_tensor(value):
        value = _from_foreign(value.detach().cpu())
    if isinstance(value, (Tensor, Array, np.ndarray)):
        array = Array(value)
        if name in _ON_CPU:
            array = scalar(array.item())
        else:
            dtype = p.dtype if p.dtype.is_floating_point else array.dtype
            array = Array(array, device=p.device, dtype=dtype).__deepcopy__({})
        return Tensor._of(array) if as_tensor else array
    if isinstance(value, dict):
        return {k: loaded(p, k, v, as_tensor) for k, v in value.items()}
    if type(value) in (list, tuple):
        return type(value)(loaded(p, name, v, as_tensor) for v in value)
    return deepcopy(value)


def _from_foreign(value):
    """Another library's CPU tensor as a NumPy array; NumPy has no bfloat16, so it comes through float32."""
    try:
        return value.numpy()
    except TypeError:
        return value.float().numpy()


def update_recorded(update, params, states, group):
    """Run an update rule over Tensors, so that the new parameters and the new state can be differentiated by the old ones, by the
    gradients, and by a learning rate that wants one. What the state holds is copied first: a later step changes it in place.

    Raises:
        NotImplementedError: a complex parameter.
    """
    with enable_grad():
        for p in params:
            g = p.grad
            if g is None:
                continue
            if p.is_complex():
                raise NotImplementedError("differentiable=True takes real parameters only.")
            g = g if isinstance(g, Tensor) else Tensor._of(g)
            state = states.get(p, {})
            for name, value in state.items():
                if name not in ("step", "eta", "mu") and is_tensor(value):
                    state[name] = (value if isinstance(value, Tensor) else Tensor._of(value)).clone()
            update(p, -g if group.get("maximize") else g, state, group)
            if state:
                states[p] = state


def update_as_real(update, p, g, state, group):
    """Run an update rule on the real and imaginary parts of a complex parameter, as numbers of their own."""
    real = p.real.dtype
    part = p if p.flags.c_contiguous else p.copy()
    flat = {}
    for name, value in state.items():
        pairs = isinstance(value, Array) and value._array.dtype.kind == "c"
        flat[name] = Array._wrap(value._array.reshape(-1).view(real)) if pairs else value
    update(part.reshape(-1).view(real), xp_of(p).ascontiguousarray(g).reshape(-1).view(real), flat, group)
    for name, value in flat.items():
        if isinstance(value, Array) and value._array.ndim == 1:
            value = Array._wrap(value._array.view(p.dtype).reshape(p.shape))
        state[name] = value
    if part is not p:
        p[...] = part
