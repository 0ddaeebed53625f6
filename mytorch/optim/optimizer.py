"""The base of optimizers: parameter groups, state, state dicts, hooks, and the loop of a step.

An optimizer of this library defines `update(p, g, state, group)`, in which `p` and `g` are raw arrays to be
worked on in place; the loop is here. One written the PyTorch way defines `step` itself and uses
`self.param_groups` and `self.state` as there.
"""

import functools
import warnings
from collections import OrderedDict, defaultdict
from copy import deepcopy
from itertools import chain

import numpy as np

from .._array import Array
from ..autograd.mode import enable_grad, no_grad
from ..backend import numpy_ns, xp_of
from ..errors import kind
from ..tensor import RemovableHandle, Tensor


class _Required:
    def __repr__(self):
        return "<required parameter>"


required = _Required()


class Optimizer:
    """Updates parameters from their gradients.

    Args:
        params: an iterable of parameters, of (name, parameter) pairs, or of dicts (groups), each with
            "params" and options of its own.
        defaults: the options for groups that don't give them.
    """

    def __init__(self, params, defaults):
        if isinstance(params, (Tensor, Array)):
            raise TypeError(
                "params argument given to the optimizer should be an iterable of Tensors or dicts, but got a single Tensor"
            )
        self.defaults = defaults
        self.state = defaultdict(dict)
        self.param_groups = []
        self._step_pre_hooks = OrderedDict()
        self._step_post_hooks = OrderedDict()
        self._state_dict_hooks = OrderedDict()
        self._load_hooks = OrderedDict()
        groups = list(params)
        if not groups:
            raise ValueError("optimizer got an empty parameter list")
        if not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        for group in groups:
            self.add_param_group(dict(group))

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        if "step" in cls.__dict__:
            cls.step = _with_hooks(cls.__dict__["step"])

    def add_param_group(self, param_group):
        """Add a group of parameters with options of its own.

        Raises:
            TypeError: not a dict, or something that is no tensor in it.
            ValueError: a parameter that was computed, that is in another group already, or a missing option.
        """
        if not isinstance(param_group, dict):
            raise TypeError(f"param_group must be a dict, but got {type(param_group)}")
        params = param_group["params"]
        if isinstance(params, Tensor):
            params = [params]
        elif isinstance(params, set):
            raise TypeError("optimizer parameters need to be organized in ordered collections, but the ordering of tensors in sets will change between runs. Please use a list instead.")
        params = list(params)
        if params and isinstance(params[0], tuple):
            param_group["param_names"] = [name for name, _ in params]
            params = [p for _, p in params]
        for p in params:
            if not isinstance(p, Tensor):
                raise TypeError(f"optimizer can only optimize Tensors, but one of the params is {kind(p)}")
            if not p.is_leaf:
                raise ValueError("can't optimize a non-leaf Tensor")
        param_group["params"] = params
        for name, default in self.defaults.items():
            if default is required and name not in param_group:
                raise ValueError(f"parameter group didn't specify a value of required optimization parameter {name}")
            param_group.setdefault(name, default)
        seen = {id(p) for group in self.param_groups for p in group["params"]}
        unique = {id(p) for p in params}
        if len(unique) != len(params):
            raise ValueError("optimizer contains a parameter group with duplicate parameters")
        if seen & unique:
            raise ValueError("some parameters appear in more than one parameter group")
        self.param_groups.append(param_group)

    def zero_grad(self, set_to_none=True):
        """Drop the gradients of all parameters, or fill them with zeros."""
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    if set_to_none:
                        p.grad = None
                    else:
                        p.grad.zero_()

    # -- the step ------------------------------------------------------------------------------------------

    def step(self, closure=None):
        """Update every parameter that has a gradient.

        Args:
            closure: a function that computes the loss again; its value is returned.
        """
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        with no_grad():
            for group in self.param_groups:
                self.update_group(group)
        return loss

    def update_group(self, group):
        """Update one group; a parameter at a time, unless a subclass knows better."""
        for p in group["params"]:
            grad = p.grad
            if grad is None:
                continue
            g = (grad._data if isinstance(grad, Tensor) else grad)._array
            if group.get("maximize"):
                g = -g
            self.update(p._data._array, g, self.state[p], group)
            p._data._bump()

    def update(self, p, g, state, group):
        """Change the raw array p in place, given its raw gradient g (not to be changed)."""
        raise NotImplementedError(f"{type(self).__name__} defines neither step nor update.")

    def register_step_pre_hook(self, hook):
        """Call `hook(optimizer, args, kwargs)` before each step; a result replaces the arguments."""
        return RemovableHandle(self._step_pre_hooks, hook)

    def register_step_post_hook(self, hook):
        """Call `hook(optimizer, args, kwargs)` after each step."""
        return RemovableHandle(self._step_post_hooks, hook)

    # -- saving ----------------------------------------------------------------------------------------------

    def register_state_dict_post_hook(self, hook):
        """Call `hook(optimizer, state_dict)` at the end of `state_dict`."""
        return RemovableHandle(self._state_dict_hooks, hook)

    def register_load_state_dict_post_hook(self, hook):
        """Call `hook(optimizer)` after loading."""
        return RemovableHandle(self._load_hooks, hook)

    def state_dict(self):
        """{"state": {number: {name: value}}, "param_groups": […]}, PyTorch's layout: parameters by number."""
        numbers = {}
        for p in chain.from_iterable(group["params"] for group in self.param_groups):
            numbers.setdefault(id(p), len(numbers))
        groups = [
            {**{k: v for k, v in group.items() if k != "params"}, "params": [numbers[id(p)] for p in group["params"]]}
            for group in self.param_groups
        ]
        state = {numbers[id(p)] if isinstance(p, Tensor) else p: s for p, s in self.state.items()}
        packed = {"state": state, "param_groups": groups}
        for hook in self._state_dict_hooks.values():
            changed = hook(self, packed)
            packed = packed if changed is None else changed
        return packed

    def load_state_dict(self, state_dict):
        """Take over a state dict of an optimizer with the same groups; values are copied.

        Raises:
            ValueError: the groups differ in number or size.
        """
        saved = state_dict["param_groups"]
        if len(saved) != len(self.param_groups):
            raise ValueError("loaded state dict has a different number of parameter groups")
        for mine, theirs in zip(self.param_groups, saved, strict=True):
            if len(mine["params"]) != len(theirs["params"]):
                raise ValueError("loaded state dict contains a parameter group that doesn't match the size of optimizer's group")
        owners = dict(
            zip(
                chain.from_iterable(g["params"] for g in saved),
                chain.from_iterable(g["params"] for g in self.param_groups),
                strict=True,
            )
        )
        self.state = defaultdict(dict)
        for key, values in state_dict["state"].items():
            key = int(key) if isinstance(key, str) and key.isdigit() else key
            if key in owners:
                p = owners[key]
                self.state[p] = {name: _like(p, name, value) for name, value in values.items()}
            else:
                self.state[key] = deepcopy(values)
        for mine, theirs in zip(self.param_groups, saved, strict=True):
            params = mine["params"]
            mine.update({k: deepcopy(v) for k, v in theirs.items() if k != "params"})
            mine["params"] = params
        for hook in self._load_hooks.values():
            hook(self)

    def __repr__(self):
        text = f"{type(self).__name__} ("
        for i, group in enumerate(self.param_groups):
            text += f"\nParameter Group {i}\n"
            text += "".join(f"    {k}: {group[k]}\n" for k in sorted(group) if k != "params")
        return text + ")"

    def __getstate__(self):
        return {"defaults": self.defaults, "state": self.state, "param_groups": self.param_groups}

    def __setstate__(self, state):
        self.__dict__.update(state)
        for name in ("_step_pre_hooks", "_step_post_hooks", "_state_dict_hooks", "_load_hooks"):
            self.__dict__.setdefault(name, OrderedDict())
        for group in self.param_groups:
            for name, default in self.defaults.items():
                group.setdefault(name, default)


def _with_hooks(step):
    """Run the step hooks around a subclass's own `step`."""
    if getattr(step, "_hooked", False):
        return step

    @functools.wraps(step)
    def hooked(self, *args, **kwargs):
        for hook in self._step_pre_hooks.values():
            changed = hook(self, args, kwargs)
            if changed is not None:
                args, kwargs = changed
        out = step(self, *args, **kwargs)
        for hook in self._step_post_hooks.values():
            hook(self, args, kwargs)
        return out

    hooked._hooked = True
    return hooked


Optimizer.step = _with_hooks(Optimizer.step)


def _like(p, name, value):
    """A loaded state value as this library keeps it: an Array of the parameter's dtype and device."""
    if hasattr(value, "detach") and hasattr(value, "numpy") and not isinstance(value, (Tensor, Array)):
        value = value.detach().cpu().numpy()  # another library's tensor
    if isinstance(value, (Tensor, Array)) or isinstance(value, np.ndarray):
        array = Array(value)
        if name == "step":
            return Array._wrap(np.array(array.item(), np.float32))
        wanted = p.dtype if p.dtype.is_floating_point and array.dtype.is_floating_point else array.dtype
        return Array(array, device=p.device, dtype=wanted).__deepcopy__({})
    return deepcopy(value)


def zeros_for(state, name, p):
    """The raw array of a state value, made of zeros like the raw parameter p the first time."""
    found = state.get(name)
    if found is None:
        found = state[name] = Array._wrap(xp_of(p).zeros_like(p))
    return found._array if isinstance(found, Array) else found._data._array


def count_step(state):
    """Raise state["step"], a 0-d float32 Array as in PyTorch's layout, by one; returns it as an int."""
    found = state.get("step")
    n = (0 if found is None else int(found.item() if hasattr(found, "item") else found)) + 1
    if isinstance(found, Array):
        found._array[...] = n
    else:
        state["step"] = Array._wrap(np.array(n, np.float32))
    return n


def number(x):
    """A Python number from an option that may be a 0-d tensor (`lr=torch.tensor(0.1)`)."""
    return x.item() if hasattr(x, "item") else x


def check_range(name, value, low=0.0, high=None):
    """Refuse an option outside [low, high), in PyTorch's words."""
    v = number(value)
    if not v >= low or (high is not None and not v < high):
        raise ValueError(f"Invalid {name}: {value}")


def check_flags(optimizer, *, foreach=None, fused=None, capturable=False, differentiable=False):
    """The switches of PyTorch's optimizers. `foreach` chooses nothing here: every road gives equal results.

    Raises:
        NotImplementedError: differentiable=True, which the raw update rules can't be.
        RuntimeError: foreach and fused both asked for.
    """
    if differentiable:
        raise NotImplementedError(f"{optimizer}: differentiable=True is not supported; write the update with tensor operations.")
    if foreach and fused:
        raise RuntimeError("`fused` and `foreach` cannot be `True` together.")




CHUNK = 1 << 16  # elements: what one update reads and writes of them fits a second-level cache


def in_cache(arrays):
    """Yield flat pieces of equally shaped arrays, small enough to stay in cache through several passes."""
    first = arrays[0]
    if first.size <= CHUNK or not all(a.flags.c_contiguous for a in arrays) or xp_of(first) is not numpy_ns:
        yield arrays
        return
    flat = [a.reshape(-1) for a in arrays]
    for start in range(0, first.size, CHUNK):
        yield [a[start : start + CHUNK] for a in flat]


_kernels = {}


def adam_kernel(arrays, asked):
    """The compiled Adam step if it can run on these arrays, else None; `asked` warns about that once."""
    if "adam" not in _kernels:
        try:
            from ..kernels.numba import adam as module
        except ImportError as error:
            module = f"{error.name} is not installed"
        _kernels["adam"] = module
    module = _kernels["adam"]
    if not isinstance(module, str):
        if module.accepts(arrays):
            return module.step
        module = "the kernel takes contiguous float32 arrays on the CPU only"
    if asked and ("warned", module) not in _kernels:
        _kernels["warned", module] = True
        warnings.warn(f"fused=True: Adam uses the reference because {module}.", UserWarning, stacklevel=4)
    return None
