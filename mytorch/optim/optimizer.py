"""Base class of optimizers: parameter groups, state, state dicts, hooks, and the loop of a step.

An update rule of this library declares its `options` and defines `update(p, g, state, group)`. `p` and `g` are raw
arrays, and the rule changes `p` in place. A rule with `launch(fused)` can also update a whole group with one kernel
(fused.py). An optimizer written for PyTorch defines `step` itself and uses `self.param_groups` and `self.state`.
"""

import functools
import sys
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from copy import deepcopy
from itertools import chain
from typing import Any

from ..arrays import capturing, gpu, hooks, restore_device, set_device_of
from ..arrays.errors import kind, warn
from ..arrays.memory_format import layout_of, strided
from ..arrays.others import BY_ARRAY
from ..arrays.tensor import RemovableHandle, Tensor, is_tensor, zero_gradient
from ..autograd.mode import enable_grad, get_mode, reset_mode, set_mode
from ..autograd.node import copy_saved
from ..kernels.registry import Kernels, device_type
from ..ops.dispatch.layouts import implementation
from .fused import FusedGroup
from .options import Options, Params, check_flags, check_ranges
from .state import loaded, raw_grad, update_as_real, update_recorded


class _Required:
    def __repr__(self):
        return "<required parameter>"


required = _Required()
Hooks = dict[int, Callable[..., Any]]
_global_pre_hooks = OrderedDict()
_global_post_hooks = OrderedDict()


def register_optimizer_step_pre_hook(hook: Callable) -> RemovableHandle:
    """Calls `hook(optimizer, args, kwargs)` before each step of every optimizer.

    Args:
        hook: function that may return new (args, kwargs).

    Returns:
        A handle with a method `remove`.
    """
    return RemovableHandle(_global_pre_hooks, hook)


def register_optimizer_step_post_hook(hook: Callable) -> RemovableHandle:
    """Calls `hook(optimizer, args, kwargs)` after each step of every optimizer.

    Args:
        hook: function; its result is ignored.

    Returns:
        A handle with a method `remove`.
    """
    return RemovableHandle(_global_post_hooks, hook)


def _with_hooks(step):
    """Makes a `step` method run the step hooks before and after it. A step that calls another step runs them once."""
    if getattr(step, "hooked", False):
        return step

    @functools.wraps(step)
    def hooked(self, *args, **kwargs):
        if self.__dict__.get("_stepping"):
            return step(self, *args, **kwargs)
        self._stepping = self._opt_called = True
        try:
            call = (self, *args)
            for hook in [*_global_pre_hooks.values(), *self.__dict__.get("_optimizer_step_pre_hooks", {}).values()]:
                changed = hook(self, call, kwargs)
                if changed is None:
                    continue
                if not isinstance(changed, tuple) or len(changed) != 2:
                    raise RuntimeError(
                        f"{step} must return None or a tuple of (new_args, new_kwargs), but got {changed}."
                    )
                call, kwargs = changed
            with restore_device():
                out = step(*call, **kwargs)
            hooks = self.__dict__.get("_optimizer_step_post_hooks", {})
            for hook in [*hooks.values(), *_global_post_hooks.values()]:
                hook(self, call, kwargs)
            return out
        finally:
            self._stepping = False

    hooked.hooked = True
    return hooked


class Optimizer:
    """Base class of all optimizers, which update parameters from their gradients.

    To write an optimizer, derive a class, pass the options to `super().__init__(params, defaults)`, and define `step`.

    Args:
        params: parameters to optimize: tensors, (name, tensor) pairs, or dicts. A dict is a parameter group: a list
            "params" and the options for these parameters.
        defaults: options of groups that do not define them.

    Raises:
        TypeError: `params` is a single tensor, or contains an object that is not a tensor.
        ValueError: `params` is empty.

    Example:
        >>> layer = nn.Linear(2, 1)
        >>> optimizer = optim.SGD([{"params": [layer.weight], "lr": 0.1}, {"params": [layer.bias]}], lr=0.01)
        >>> [group["lr"] for group in optimizer.param_groups]
        [0.1, 0.01]
    """

    options: Options | None = None  # of an update rule: the arguments of its constructor
    launch: Callable | None = None  # of an update rule: `launch(self, fused)` updates a FusedGroup with one kernel
    complex_as_real = True  # complex parameters are updated as pairs of real numbers
    _optimizer_step_pre_hooks: Hooks
    _optimizer_step_post_hooks: Hooks
    _optimizer_state_dict_pre_hooks: Hooks
    _optimizer_state_dict_post_hooks: Hooks
    _optimizer_load_state_dict_pre_hooks: Hooks
    _optimizer_load_state_dict_post_hooks: Hooks
    _at_step: dict | None = None  # during the update of a group: {step count: numbers of the rule}
    _found_inf = None  # a GradScaler's found_inf, float32 (1,) in device memory: not 0 if gradients overflowed

    def __init__(self, params: Params, defaults: dict[str, Any]) -> None:
        if is_tensor(params):
            raise TypeError(
                "params argument given to the optimizer should be an iterable of Tensors or dicts, "
                f"but got {kind(params)}"
            )
        self.defaults = defaults
        self.state = defaultdict(dict)
        self.param_groups = []
        self._make_hooks()
        groups: list[Any] = list(params)
        if not groups:
            raise ValueError("optimizer got an empty parameter list")
        if not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        for group in groups:
            self.add_param_group(dict(group))

    def _begin(self, params, options):
        """Initializes an optimizer with declared options."""
        Optimizer.__init__(self, params, self.options.ordered(self.check_options(options)))
        if options.get("fused"):
            for p in chain.from_iterable(group["params"] for group in self.param_groups):
                if not p.is_floating_point():
                    raise RuntimeError(
                        "`fused=True` requires all the params to be floating point Tensors of supported devices: "
                        f"['cuda', 'cpu'] but {p.dtype} and {p.device.type}"
                    )

    def check_options(self, options: dict[str, Any]) -> dict[str, Any]:
        """Checks the options and returns the defaults of the groups. Update rules add their own checks.

        Args:
            options: values of all options by name.

        Raises:
            ValueError: a value is out of its range.
            RuntimeError: options that exclude each other.
        """
        check_ranges(options)
        check_flags(options)
        return options

    def _make_hooks(self):
        self._device_states = {}  # numbers of a step that stay in device memory, see fused.py
        self._opt_called = False  # whether `step` was called: a scheduler warns if its step comes first
        for name in (name for name in Optimizer.__annotations__ if name.endswith("_hooks")):
            self.__dict__.setdefault(name, OrderedDict())

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        cls.kernels = Kernels(cls.__name__, cpu="mytorch.kernels.numba.optimizers")
        if "step" in cls.__dict__:
            cls.step = _with_hooks(cls.__dict__["step"])
        if isinstance(cls.__dict__.get("options"), Options) and "__init__" not in cls.__dict__:
            cls.__init__ = cls.options.constructor(cls)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Adds a group of parameters with its own options, for example for layers that are unfrozen during training.

        Args:
            param_group: dict with a key "params" and any options. The defaults apply to missing options.

        Raises:
            TypeError: `param_group` is not a dict, or one of the parameters is not a tensor.
            ValueError: a parameter is not a leaf tensor or is in another group already, or a required option is missing.

        Example:
            >>> layer = nn.Linear(2, 1)
            >>> optimizer = optim.SGD([layer.weight], lr=0.1)
            >>> optimizer.add_param_group({"params": [layer.bias], "lr": 0.2})
            >>> len(optimizer.param_groups)
            2
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
            warn(
                "optimizer contains a parameter group with duplicate parameters; in future, this will "
                "cause an error. See github.com/pytorch/pytorch/issues/40967 for more information"
            )
        seen = {id(p) for group in self.param_groups for p in group["params"]}
        if any(id(p) in seen for p in params):
            raise ValueError("some parameters appear in more than one parameter group")
        self.param_groups.append(param_group)
        self._device_states = {}  # a captured step does not include this group

    def _take_names(self, group):
        """Splits (name, parameter) pairs. Either all groups have names, or none."""
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

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clears the gradients of all parameters. Call it before each backward pass.

        Args:
            set_to_none: if True, sets the gradients to None; otherwise fills them with zeros (default: True).

        Example:
            >>> p = nn.Parameter(tensor([1.0]))
            >>> (p * p).sum().backward()
            >>> optim.SGD([p]).zero_grad()
            >>> p.grad is None
            True
        """
        for p in chain.from_iterable(group["params"] for group in self.param_groups):
            if set_to_none:
                p.grad = None
            else:
                zero_gradient(p)

    # -- the step ------------------------------------------------------------------------------------------

    @_with_hooks
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Updates every parameter that has a gradient.

        Args:
            closure: function that computes the loss again and returns it (default: None).

        Returns:
            The result of the closure, or None.

        Example:
            >>> p = nn.Parameter(tensor([1.0]))
            >>> optimizer = optim.SGD([p], lr=0.5)
            >>> (p * p).sum().backward()
            >>> optimizer.step()
            >>> p.item()
            0.0
        """
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        before = set_mode(get_mode().no_grad())
        try:
            for group in self.param_groups:
                if hooks.update_group is None or not hooks.update_group(self, group):
                    self.update_group(group)
        finally:
            reset_mode(before)
        return loss

    @property
    def takes_found_inf(self) -> bool:
        """True if a step reads a GradScaler's found_inf on the GPU, so that the CPU does not wait for it."""
        return self.launch is not None

    def update_group(self, group: dict[str, Any]) -> None:
        """Updates one group: with one kernel launch if possible, otherwise one parameter at a time.

        If a GradScaler has found an overflow, nothing changes.

        Args:
            group: the parameter group.

        Raises:
            CaptureError: the step is being captured into a CUDA graph, and there is no kernel for it.
            AssertionError: `capturable` is True, and a parameter is on the CPU.
        """
        if gpu.several_gpus and group["params"]:
            set_device_of(group["params"][0]._mt_data._array)
        for p in group["params"]:
            counter = p._mt_data._version_counter
            if type(counter) is list and len(counter) > 1:
                copy_saved(counter)
        if group.get("capturable") and not group.get("fused"):
            self._refuse_cpu(group)
        if group.get("differentiable"):
            update_recorded(self.update, group["params"], self.state, group)
            return
        if self.launch is not None and (fused := FusedGroup.of(self, group)) is not None:
            self.launch(fused)
            fused.finish()
        elif self._found_inf is None or not bool(self._found_inf[0] != 0):
            self._update_each(group)

    def _refuse_cpu(self, group):
        for p in group["params"]:
            if p.grad is not None and p.device.type == "cpu":
                raise AssertionError(
                    f"{type(self).__name__}: expected parameters on a GPU with capturable=True, got one on {p.device}. Set "
                    "capturable=False."
                )

    def _update_each(self, group):
        if capturing.is_recording():
            classes = vars(sys.modules[__package__]).values()
            *first, last = sorted(c.__name__ for c in classes if getattr(c, "launch", None) is not None)
            capturing.refuse(
                f"this step of {type(self).__name__}",
                f"it runs on the CPU. {', '.join(first)} and {last} can be captured, with float32 parameters "
                "on one GPU, `fused` not False, and Triton installed.",
            )
        self._at_step = {}
        try:
            self._update_parameters(group)
        finally:
            del self._at_step

    def _update_parameters(self, group):
        maximize, states = group.get("maximize"), self.state
        for p in group["params"]:
            g = raw_grad(p)
            if g is None:
                continue
            raw = p._mt_data._array
            if gpu.several_gpus:
                set_device_of(raw)
            if maximize:
                g = -g
            state = states.get(p, {})
            if type(g) in BY_ARRAY and (layout := layout_of(g)) is not strided:
                implementation("optimizer", layout)(self, raw, g, state, group)
            elif self.complex_as_real and raw.dtype.kind == "c":
                update_as_real(self.update, raw, g, state, group)
            else:
                self.update(raw, g, state, group)
            if state:  # SGD without momentum leaves no entry, as in PyTorch's layout
                states[p] = state
            p._mt_data._bump()

    def at_step(self, group, t):
        """Returns `numbers(group, t)`. A step computes them once for all parameters of a group with equal step counts.

        Args:
            group: the parameter group.
            t: the step count of a parameter.
        """
        known = self._at_step
        if known is None:  # outside of `step`
            return self.numbers(group, t)
        if t not in known:
            known[t] = self.numbers(group, t)
        return known[t]

    def numbers(self, group, t):
        """Returns the numbers that `update` needs from the options and the step count, such as bias corrections.

        Update rules define this method, and get the numbers from `at_step`.

        Args:
            group: the parameter group.
            t: the step count of a parameter.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define numbers.")

    def compiled(self, arrays, group):
        """Returns the CPU kernels if they support the arrays, otherwise None.

        Args:
            arrays: raw arrays of a parameter, its gradient and its state.
            group: the parameter group.
        """
        if group.get("differentiable"):
            return None
        device = device_type(arrays[0])
        if device != "cpu" and self.launch is not None:  # FusedGroup.of has warned if necessary
            return None
        return self.kernels.find(device, group.get("fused"), arrays, {})

    def update(self, p, g, state, group):
        """Updates one parameter in place. Update rules define this method.

        Args:
            p: raw array of the parameter.
            g: raw array of the gradient. It must not be changed.
            state: state of the parameter, a dict.
            group: the parameter group.

        Raises:
            NotImplementedError: the class defines neither `step` nor `update`.
        """
        raise NotImplementedError(f"{type(self).__name__} defines neither step nor update.")

    def register_step_pre_hook(self, hook: Callable) -> RemovableHandle:
        """Calls `hook(optimizer, args, kwargs)` before each step.

        Args:
            hook: function that may return new (args, kwargs). `args` are the arguments of `step`, with the optimizer first.

        Returns:
            A handle with a method `remove`.
        """
        return RemovableHandle(self._optimizer_step_pre_hooks, hook)

    def register_step_post_hook(self, hook: Callable) -> RemovableHandle:
        """Calls `hook(optimizer, args, kwargs)` after each step.

        Args:
            hook: function; its result is ignored.

        Returns:
            A handle with a method `remove`.

        Example:
            >>> p = nn.Parameter(tensor([1.0]))
            >>> optimizer = optim.SGD([p])
            >>> handle = optimizer.register_step_post_hook(lambda *_: print("step"))
            >>> optimizer.step()
            step
        """
        return RemovableHandle(self._optimizer_step_post_hooks, hook)

    # -- saving ----------------------------------------------------------------------------------------------

    def register_state_dict_pre_hook(self, hook: Callable, prepend: bool = False) -> RemovableHandle:
        """Calls `hook(optimizer)` at the beginning of `state_dict`.

        Args:
            hook: function; its result is ignored.
            prepend: if True, runs the hook before all other hooks (default: False).

        Returns:
            A handle with a method `remove`.
        """
        return RemovableHandle(self._optimizer_state_dict_pre_hooks, hook, prepend)

    def register_state_dict_post_hook(self, hook: Callable, prepend: bool = False) -> RemovableHandle:
        """Calls `hook(optimizer, state_dict)` at the end of `state_dict`.

        Args:
            hook: function that may return another dict, which replaces the state dict.
            prepend: if True, runs the hook before all other hooks (default: False).

        Returns:
            A handle with a method `remove`.
        """
        return RemovableHandle(self._optimizer_state_dict_post_hooks, hook, prepend)

    def register_load_state_dict_pre_hook(self, hook: Callable, prepend: bool = False) -> RemovableHandle:
        """Calls `hook(optimizer, state_dict)` before loading.

        Args:
            hook: function that may return another state dict, which is loaded instead.
            prepend: if True, runs the hook before all other hooks (default: False).

        Returns:
            A handle with a method `remove`.
        """
        return RemovableHandle(self._optimizer_load_state_dict_pre_hooks, hook, prepend)

    def register_load_state_dict_post_hook(self, hook: Callable, prepend: bool = False) -> RemovableHandle:
        """Calls `hook(optimizer)` after loading.

        Args:
            hook: function; its result is ignored.
            prepend: if True, runs the hook before all other hooks (default: False).

        Returns:
            A handle with a method `remove`.
        """
        return RemovableHandle(self._optimizer_load_state_dict_post_hooks, hook, prepend)

    def state_dict(self) -> dict[str, Any]:
        """Returns the state of the optimizer, to save it.

        Returns:
            {"state": {number: {name: value}}, "param_groups": [...]}, as in PyTorch. Parameters are represented by numbers.

        Example:
            >>> p = nn.Parameter(tensor([1.0]))
            >>> optim.SGD([p], lr=0.5).state_dict()["param_groups"][0]["params"]
            [0]
        """
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

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads the state of an optimizer with the same groups. Values are copied.

        Args:
            state_dict: result of `state_dict`.

        Raises:
            ValueError: the number or sizes of the groups differ.

        Example:
            >>> p = nn.Parameter(tensor([1.0]))
            >>> first, second = optim.SGD([p], lr=0.5), optim.SGD([p], lr=0.1)
            >>> second.load_state_dict(first.state_dict())
            >>> second.param_groups[0]["lr"]
            0.5
        """
        state_dict = dict(state_dict)
        for hook in self._optimizer_load_state_dict_pre_hooks.values():
            changed = hook(self, state_dict)
            state_dict = state_dict if changed is None else changed
        saved = state_dict["param_groups"]
        if len(saved) != len(self.param_groups):
            raise ValueError("loaded state dict has a different number of parameter groups")
        if any(len(a["params"]) != len(b["params"]) for a, b in zip(self.param_groups, saved, strict=True)):
            raise ValueError(
                "loaded state dict contains a parameter group that doesn't match the size of optimizer's group"
            )
        numbers, params = (chain.from_iterable(g["params"] for g in groups) for groups in (saved, self.param_groups))
        owners = dict(zip(numbers, params, strict=True))
        own = type(self).step is not Optimizer.step
        state = defaultdict(dict)
        for key, values in state_dict["state"].items():
            key = int(key) if isinstance(key, str) and key.isdigit() else key
            if key in owners:
                p = owners[key]
                state[p] = {name: loaded(p, name, value, own) for name, value in values.items()}
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
