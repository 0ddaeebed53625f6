"""Functions that update rules share: weight decay, running means, and the state of a parameter, {name: Array or number}."""

from copy import deepcopy

import numpy as np

from ..arrays import hooks, xp_of
from ..arrays.array import Array
from ..arrays.tensor import Tensor, is_tensor
from ..autograd.mode import enable_grad
from ..autograd.tensor_ns import tensor_ns
from .options import number


def decayed(p, g, group):
    """Returns the gradient with weight_decay * p added. Decoupled weight decay shrinks p instead."""
    if not group["weight_decay"]:
        return g
    if group.get("decoupled_weight_decay"):
        p *= 1 - number(group["lr"]) * group["weight_decay"]
        return g
    return g + p * group["weight_decay"]


def decay_factors(group):
    """Returns (shrink, pull): the factor of p for decoupled weight decay, and the fraction of p that is added to its gradient."""
    decay = group["weight_decay"]
    return (1 - number(group["lr"]) * decay, 0.0) if group.get("decoupled_weight_decay") else (1.0, decay)


def mean_into(state, name, p, x, share):
    """Moves the running mean `name` toward x by the fraction `share`; returns its raw array."""
    mean = zeros_for(state, name, p)
    mean += (x - mean) * share
    return mean


def mean_square_into(state, name, p, x, decay):
    """Updates the running mean `name` of squares, decay * mean + (1 - decay) * x^2; returns its raw array."""
    mean = zeros_for(state, name, p)
    mean *= decay
    mean += x * (1 - decay) * x  # in this order, x^2 cannot overflow first
    return mean


def zeros_for(state, name, p):
    """Returns the raw array of a state value. The first call creates zeros like the raw parameter p."""
    found = state.get(name)
    if isinstance(p, Tensor):
        if found is None:
            found = state[name] = p.detach() * 0
        return found
    if found is None:
        found = state[name] = kept(xp_of(p).zeros_like(p))
    return found._array if type(found) is Array else found._mt_data._array


def namespace_of(p):
    """Returns the array functions for arrays like p, or in a differentiable step for Tensors."""
    return tensor_ns(xp_of(p._mt_data._array)) if isinstance(p, Tensor) else xp_of(p)


def kept(raw):
    """Returns a raw array as the state stores it: an Array, or a Tensor in PyTorch mode."""
    return hooks.shown(Array._wrap(raw))


def scalar(x):
    """Returns a number as the state stores it: 0-d and float32, on the CPU, as in PyTorch."""
    return kept(np.array(x, np.float32))


def count_step(state):
    """Increments state["step"] and returns it as an int."""
    if type(state) is not dict and hasattr(state, "count_step"):  # a step that `compile_step` records
        return state.count_step()
    found = state.get("step")
    raw = found._array if type(found) is Array else found._mt_data._array if is_tensor(found) else None
    if isinstance(raw, np.ndarray):
        n = int(raw) + 1
        raw[...] = n
        return n
    n = (0 if found is None else int(found.item() if hasattr(found, "item") else found)) + 1
    state["step"] = scalar(n)  # a count on a GPU is shared, see fused.py
    return n


def raw_grad(p):
    """Returns the raw array of a parameter's gradient, or None."""
    grad = p.grad
    return None if grad is None else (grad._mt_data if isinstance(grad, Tensor) else grad)._array


_ON_CPU = ("step", "mu_product", "eta", "mu")  # numbers that rules compute with in Python


def loaded(p, name, value, as_tensor=False):
    """Returns a loaded state value with the dtype and device of the parameter.

    The result is an Array, or a Tensor for optimizers that define `step` themselves. Numbers such as the step count stay on
    the CPU.
    """
    if hasattr(value, "detach") and hasattr(value, "numpy") and not is_tensor(value):
        value = _from_foreign(value.detach().cpu())
    if isinstance(value, (Tensor, Array, np.ndarray)):
        array = Array(value)
        if name in _ON_CPU:
            array = scalar(array.item())
        else:
            dtype = p.dtype if p.dtype.is_floating_point else array.dtype
            array = Array(array, device=p.device, dtype=dtype).__deepcopy__({})
        return Tensor._of(array._mt_data) if as_tensor else hooks.shown(array._mt_data)
    if isinstance(value, dict):
        return {k: loaded(p, k, v, as_tensor) for k, v in value.items()}
    if type(value) in (list, tuple):
        return type(value)(loaded(p, name, v, as_tensor) for v in value)
    return deepcopy(value)


def _from_foreign(value):
    """Converts a CPU tensor of another library to a NumPy array. bfloat16 is converted via float32, since NumPy lacks it."""
    try:
        return value.numpy()
    except TypeError:
        return value.float().numpy()


def update_recorded(update, params, states, group):
    """Runs an update rule over Tensors, so that autograd records it.

    The new parameters and the new state can be differentiated with respect to the old values, the gradients, and a learning
    rate that requires grad. The state is copied first, because a later step changes it in place.

    Raises:
        NotImplementedError: a parameter is complex.
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
    """Runs an update rule on the real and imaginary parts of a complex parameter, as separate numbers."""
    real = p.real.dtype
    part = p if p.flags.c_contiguous else p.copy()
    flat = {}
    for name, value in state.items():
        pairs = is_tensor(value) and value._mt_data._array.dtype.kind == "c"
        flat[name] = kept(value._mt_data._array.reshape(-1).view(real)) if pairs else value
    update(part.reshape(-1).view(real), xp_of(p).ascontiguousarray(g).reshape(-1).view(real), flat, group)
    for name, value in flat.items():
        if is_tensor(value) and value.ndim == 1:
            value = kept(value._mt_data._array.view(p.dtype).reshape(p.shape))
        state[name] = value
    if part is not p:
        p[...] = part
