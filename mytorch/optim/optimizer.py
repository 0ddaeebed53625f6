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
from ..backend import gpu, numpy_ns, restore_device, set_device_of, xp_of
from ..base import capturing
from ..base.errors import kind
from ..graph.mode import enable_grad, no_grad
from ..kernels.registry import Kernels, device_type
from ..tensor import RemovableHandle, Tensor


class _Required:
    def __repr__(self):
        return "<required parameter>"


required = _Required()
_global_pre_hooks = OrderedDict()
_global_post_hooks = OrderedDict()


def register_optimizer_step_pre_hook(hook):
    """Call `hook(optimizer, args, kwargs)` before each step of every optimizer; returns a handle."""
    return RemovableHandle(_global_pre_hooks, hook)


def register_optimizer_step_post_hook(hook):
    """Call `hook(optimizer, args, kwargs)` after each step of every optimizer; returns a handle."""
    return RemovableHandle(_global_post_hooks, hook)


_HOOKS = (
    "_optimizer_step_pre_hooks", "_optimizer_step_post_hooks", "_optimizer_state_dict_pre_hooks",
    "_optimizer_state_dict_post_hooks", "_optimizer_load_state_dict_pre_hooks",
    "_optimizer_load_state_dict_post_hooks",
)  # fmt: skip


class Optimizer:
    """Updates parameters from their gradients.

    Args:
        params: an iterable of parameters, of (name, parameter) pairs, or of dicts (groups), each with
            "params" and options of its own.
        defaults: the options for groups that don't give them.
    """

    takes_found_inf = False  # whether a step reads `_found_inf`, so that a GradScaler need not wait for its verdict
    _found_inf = None  # float32 (1,) in device memory: not 0 if gradients overflowed
    complex_as_real = True  # complex parameters are worked on as pairs of real ones

    def __init__(self, params, defaults):
        if isinstance(params, (Tensor, Array)):
            raise TypeError(
                "params argument given to the optimizer should be an iterable of Tensors or dicts, "
                f"but got {kind(params)}"
            )
        self.defaults = defaults
        self.state = defaultdict(dict)
        self.param_groups = []
        self._make_hooks()
        groups = list(params)
        if not groups:
            raise ValueError("optimizer got an empty parameter list")
        if not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        for group in groups:
            self.add_param_group(dict(group))

    def _make_hooks(self):
        self._live = {}  # numbers of a step that stay in device memory, see together.py
        for name in _HOOKS:
            self.__dict__.setdefault(name, OrderedDict())

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
            raise TypeError(
                "optimizer parameters need to be organized in ordered collections, but the ordering of "
                "tensors in sets will change between runs. Please use a list instead."
            )
        param_group["params"] = list(params)
        self._take_names(param_group)
        params = param_group["params"]
        for p in params:
            if not isinstance(p, Tensor):
                raise TypeError(f"optimizer can only optimize Tensors, but one of the params is {kind(p)}")
            if not (p.is_leaf or p.retains_grad or self.defaults.get("differentiable")):
                raise ValueError("can't optimize a non-leaf Tensor")
        for name, default in self.defaults.items():
            if default is required and name not in param_group:
                raise ValueError(f"parameter group didn't specify a value of required optimization parameter {name}")
            param_group.setdefault(name, default)
        if len({id(p) for p in params}) != len(params):
            warnings.warn(
                "optimizer contains a parameter group with duplicate parameters; in future, this will "
                "cause an error; see github.com/pytorch/pytorch/issues/40967 for more information",
                stacklevel=3,
            )
        seen = {id(p) for group in self.param_groups for p in group["params"]}
        if any(id(p) in seen for p in params):
            raise ValueError("some parameters appear in more than one parameter group")
        self.param_groups.append(param_group)
        self._live = {}  # a captured step does not know of this group

    def _take_names(self, group):
        """Split (name, parameter) pairs; all groups have names, or none has."""
        pairs = [isinstance(p, tuple) for p in group["params"]]
        if any(pairs):
            if not all(pairs):
                raise ValueError("all optimizer params should be with/without names. Some param names are missing")
            group["param_names"] = [name for name, _ in group["params"]]
            group["params"] = [p for _, p in group["params"]]
        if self.param_groups and ("param_names" in self.param_groups[0]) != ("param_names" in group):
            raise ValueError(
                "all optimizer param groups should be with/without names. cannot add param group "
                f"{'with' if 'param_names' in group else 'without'} names to the optimizer"
            )

    def zero_grad(self, set_to_none=True):
        """Drop the gradients of all parameters, or fill them with zeros."""
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    if set_to_none:
                        p.grad = None
                    else:
                        if isinstance(p.grad, Tensor):  # after backward(create_graph=True)
                            p.grad = p.grad.detach()
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
                if gpu.several_gpus and group["params"]:
                    set_device_of(group["params"][0]._data._array)
                self.update_group(group)
        return loss

    def update_group(self, group):
        """Update one group; a parameter at a time, unless a subclass knows better.

        Raises:
            CaptureError: the step is being captured into a CUDA graph.
        """
        capturing.refuse(
            f"this step of {type(self).__name__}",
            "its numbers are the host's. Adam, AdamW, SGD and Lion can be captured, with contiguous float32 parameters on one GPU, "
            "`fused` not False, and Triton installed.",
        )
        for p in group["params"]:
            grad = p.grad
            if grad is None:
                continue
            raw, g = p._data._array, (grad._data if isinstance(grad, Tensor) else grad)._array
            if gpu.several_gpus:
                set_device_of(raw)
            if group.get("maximize"):
                g = -g
            if self.complex_as_real and raw.dtype.kind == "c":
                _update_as_real(self.update, raw, g, self._state_of(p), group)
            else:
                self.update(raw, g, self._state_of(p), group)
            p._data._bump()

    def _state_of(self, p):
        """The state of a parameter; one that stays empty leaves no entry, as in PyTorch's layout."""
        return self.state[p]

    def update(self, p, g, state, group):
        """Change the raw array p in place, given its raw gradient g (not to be changed)."""
        raise NotImplementedError(f"{type(self).__name__} defines neither step nor update.")

    def register_step_pre_hook(self, hook):
        """Call `hook(optimizer, args, kwargs)` before each step; a result replaces both.

        `args` are those of `step`, with the optimizer first.
        """
        return RemovableHandle(self._optimizer_step_pre_hooks, hook)

    def register_step_post_hook(self, hook):
        """Call `hook(optimizer, args, kwargs)` after each step."""
        return RemovableHandle(self._optimizer_step_post_hooks, hook)

    # -- saving ----------------------------------------------------------------------------------------------

    def register_state_dict_pre_hook(self, hook, prepend=False):
        """Call `hook(optimizer)` at the beginning of `state_dict`; first of all hooks if prepend."""
        return RemovableHandle(self._optimizer_state_dict_pre_hooks, hook, prepend)

    def register_state_dict_post_hook(self, hook, prepend=False):
        """Call `hook(optimizer, state_dict)` at the end of `state_dict`; a result replaces the dict."""
        return RemovableHandle(self._optimizer_state_dict_post_hooks, hook, prepend)

    def register_load_state_dict_pre_hook(self, hook, prepend=False):
        """Call `hook(optimizer, state_dict)` before loading; a result is loaded instead."""
        return RemovableHandle(self._optimizer_load_state_dict_pre_hooks, hook, prepend)

    def register_load_state_dict_post_hook(self, hook, prepend=False):
        """Call `hook(optimizer)` after loading."""
        return RemovableHandle(self._optimizer_load_state_dict_post_hooks, hook, prepend)

    def state_dict(self):
        """{"state": {number: {name: value}}, "param_groups": […]}, PyTorch's layout: parameters by number."""
        for hook in self._optimizer_state_dict_pre_hooks.values():
            hook(self)
        numbers = {}
        for p in chain.from_iterable(group["params"] for group in self.param_groups):
            numbers.setdefault(id(p), len(numbers))
        groups = [
            {**{k: v for k, v in group.items() if k != "params"}, "params": [numbers[id(p)] for p in group["params"]]}
            for group in self.param_groups
        ]
        state = {numbers[id(p)] if isinstance(p, Tensor) else p: s for p, s in self.state.items()}
        packed = {"state": state, "param_groups": groups}
        for hook in self._optimizer_state_dict_post_hooks.values():
            changed = hook(self, packed)
            packed = packed if changed is None else changed
        return packed

    def load_state_dict(self, state_dict):
        """Take over a state dict of an optimizer with the same groups; values are copied.

        Raises:
            ValueError: the groups differ in number or size.
        """
        state_dict = dict(state_dict)
        for hook in self._optimizer_load_state_dict_pre_hooks.values():
            changed = hook(self, state_dict)
            state_dict = state_dict if changed is None else changed
        saved = state_dict["param_groups"]
        if len(saved) != len(self.param_groups):
            raise ValueError("loaded state dict has a different number of parameter groups")
        for mine, theirs in zip(self.param_groups, saved, strict=True):
            if len(mine["params"]) != len(theirs["params"]):
                raise ValueError(
                    "loaded state dict contains a parameter group that doesn't match the size of optimizer's group"
                )
        owners = dict(
            zip(
                chain.from_iterable(g["params"] for g in saved),
                chain.from_iterable(g["params"] for g in self.param_groups),
                strict=True,
            )
        )
        state = defaultdict(dict)
        for key, values in state_dict["state"].items():
            key = int(key) if isinstance(key, str) and key.isdigit() else key
            if key in owners:
                p = owners[key]
                own = type(self).step is not Optimizer.step
                state[p] = {name: _like(p, name, value, own) for name, value in values.items()}
            else:
                state[key] = deepcopy(values)
        groups = []
        for mine, theirs in zip(self.param_groups, saved, strict=True):
            group = {k: deepcopy(v) for k, v in theirs.items() if k != "params"}
            if "param_names" in mine:
                group.setdefault("param_names", mine["param_names"])
            groups.append({**group, "params": mine["params"]})
        self.__setstate__({"state": state, "param_groups": groups})
        for hook in self._optimizer_load_state_dict_post_hooks.values():
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
        self._make_hooks()
        for group in self.param_groups:
            for name, default in self.defaults.items():
                if default is not required:
                    group.setdefault(name, default)


def _with_hooks(step):
    """Run the step hooks around a subclass's own `step`; the outermost step only, if it calls another."""
    if getattr(step, "hooked", False):
        return step

    @functools.wraps(step)
    def hooked(self, *args, **kwargs):
        if self.__dict__.get("_stepping"):
            return step(self, *args, **kwargs)
        self._stepping = True
        try:
            given = (self, *args)
            for hook in [*_global_pre_hooks.values(), *self._optimizer_step_pre_hooks.values()]:
                changed = hook(self, given, kwargs)
                if changed is None:
                    continue
                if not isinstance(changed, tuple) or len(changed) != 2:
                    raise RuntimeError(
                        f"{step} must return None or a tuple of (new_args, new_kwargs), but got {changed}."
                    )
                given, kwargs = changed
            with restore_device():
                out = step(*given, **kwargs)
            for hook in [*self._optimizer_step_post_hooks.values(), *_global_post_hooks.values()]:
                hook(self, given, kwargs)
            return out
        finally:
            self._stepping = False

    hooked.hooked = True
    return hooked


Optimizer.step = _with_hooks(Optimizer.step)


_HOST_NUMBERS = ("step", "mu_product", "eta", "mu")  # of a state: float32 numbers that rules compute with on the host


def _like(p, name, value, as_tensor=False):
    """A loaded state value in the parameter's dtype and on its device: an Array, or a Tensor for those
    optimizers that define `step` themselves. Numbers such as the step count stay on the host."""
    if hasattr(value, "detach") and hasattr(value, "numpy") and not isinstance(value, (Tensor, Array)):
        value = _from_foreign(value.detach().cpu())
    if isinstance(value, (Tensor, Array, np.ndarray)):
        array = Array(value)
        if name in _HOST_NUMBERS:
            array = Array._wrap(np.array(array.item(), np.float32))
        else:
            wanted = p.dtype if p.dtype.is_floating_point else array.dtype
            array = Array(array, device=p.device, dtype=wanted).__deepcopy__({})
        return Tensor._of(array) if as_tensor else array
    if isinstance(value, dict):
        return {k: _like(p, k, v, as_tensor) for k, v in value.items()}
    if isinstance(value, (list, tuple)) and type(value) in (list, tuple):
        return type(value)(_like(p, name, v, as_tensor) for v in value)
    return deepcopy(value)


def _from_foreign(value):
    """Another library's CPU tensor as a NumPy array; NumPy has no bfloat16, so it comes through float32."""
    try:
        return value.numpy()
    except TypeError:
        return value.float().numpy()


def _update_as_real(update, p, g, state, group):
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
    if isinstance(found, Array) and isinstance(found._array, np.ndarray):  # one on a GPU is shared, see together.py
        found._array[...] = n
    else:
        state["step"] = Array._wrap(np.array(n, np.float32))
    return n


def number(x):
    """A Python number from an option that may be a 0-d tensor (`lr=torch.tensor(0.1)`)."""
    return x.item() if hasattr(x, "item") else x


def check_range(name, value, low=0.0, high=None):
    """Refuse an option outside [low, high), in PyTorch's words."""
    if isinstance(value, (Tensor, Array)) and value.numel() != 1:
        short = {"learning rate": "lr"}.get(name, name.replace("beta parameter at index ", "betas["))
        raise ValueError(f"Tensor {short}{']' if '[' in short else ''} must be 1-element")
    v = number(value)
    if not v >= low or (high is not None and not v < high):
        raise ValueError(f"Invalid {name}: {value}")


def check_flags(optimizer, *, lr=None, betas=(), foreach=None, fused=None, capturable=False, differentiable=False):
    """The switches of PyTorch's optimizers. `foreach` chooses nothing here: every road gives equal results.

    Raises:
        NotImplementedError: differentiable=True, which the raw update rules can't be.
        RuntimeError: fused together with foreach or differentiable.
        ValueError: a tensor as lr or beta together with foreach=True, unless capturable.
    """
    if foreach and not capturable:
        for name, value in (("lr", lr), *((f"betas[{i}]", b) for i, b in enumerate(betas))):
            if isinstance(value, (Tensor, Array)):
                raise ValueError(f"{name} as a Tensor is not supported for capturable=False and foreach=True")
    if fused and differentiable:
        raise RuntimeError("`fused` does not support `differentiable`")
    if differentiable:
        raise NotImplementedError(
            f"{optimizer}: differentiable=True is not supported; write the update with tensor operations."
        )
    if foreach and fused:
        raise RuntimeError("`fused` and `foreach` cannot be `True` together.")


CHUNK = 1 << 16  # elements: what one update reads and writes of them fits a second-level cache


def cache_chunks(arrays):
    """Yield flat pieces of equally shaped arrays, small enough to stay in cache through several passes."""
    first = arrays[0]
    if first.size <= CHUNK or not all(a.flags.c_contiguous for a in arrays) or xp_of(first) is not numpy_ns:
        yield arrays
        return
    flat = [a.reshape(-1) for a in arrays]
    for start in range(0, first.size, CHUNK):
        yield [a[start : start + CHUNK] for a in flat]


ADAM = Kernels("Adam", cpu="mytorch.kernels.numba.adam")


def adam_kernel(arrays, fused):
    """The compiled Adam step if it can run on these arrays, else None."""
    module = ADAM.find(device_type(arrays[0]), fused, (arrays,), {})
    return None if module is None else module.step
