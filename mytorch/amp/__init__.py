"""Mixed precision: `autocast` runs matrix products in half precision, and `GradScaler` scales the loss.

Parameters, optimizer state and gradients stay in float32. The definition of each op declares its precision inside
`autocast`:

* "half": matrix products. Inputs are cast to half precision.
* "float32": exponentials, norms, sums and losses. Inputs are cast to float32.
* "promote": all other ops. The widest dtype of the inputs is used.

The cast of a parameter is cached until the outermost block ends.

Source: Micikevicius et al., Mixed Precision Training, 2018.
"""

import functools
import inspect
from collections.abc import Callable
from enum import Enum
from typing import Any

from .. import _extensions
from ..arrays import (
    CPU,
    as_device,
    capturing,
    config,
    cuda_available,
    device_guard,
    device_of,
    dtypes,
    hooks,
    to_device,
    xp_of,
)
from ..arrays.array import Array
from ..arrays.config import temporarily
from ..arrays.errors import warn
from ..arrays.tensor import Tensor
from ..autograd.mode import ModeSwitch, get_mode
from ..autograd.node import Leaf
from ..kernels.registry import multi_tensor
from ..ops.creation import tensor
from ..ops.dispatch.op import to_dtype

_HALVES = (dtypes.float16, dtypes.bfloat16)
_defaults = {"cuda": dtypes.float16, "cpu": dtypes.bfloat16}
_cache_enabled = True


class Policy:
    """The value of `Mode.autocast`, which casts the inputs of each op.

    Args:
        device_type: "cpu" or "cuda". Tensors on other devices are not cast.
        dtype: dtype for half precision.
        cache: dict of the casts of parameters, shared by nested blocks with the same dtype; None disables the cache.
    """

    def __init__(self, device_type, dtype, cache):
        self.device_type = device_type
        self.dtype = dtype
        self.cache = cache

    def cast(self, op, inputs, attrs):
        """Returns the inputs, cast to the precision that the op declares, and the attributes."""
        wanted = op.autocast_cpu if self.device_type == "cpu" else op.autocast
        if wanted == "half":
            return [self._half(x) for x in inputs], attrs
        if wanted != "float32":
            return inputs, attrs
        if self.device_type != "cpu" and "dtype" in op.attr_names:  # the op reads half precision and writes float32
            if attrs.get("dtype") is None and any(self._is_half(x) for x in inputs):
                attrs = {**attrs, "dtype": dtypes.float32}
            return inputs, attrs
        return [self._single(x) for x in inputs], attrs

    def run_op(self, op, inputs, fused, attrs):
        """Runs an op with its inputs cast to the precision that the op declares."""
        inputs, attrs = self.cast(op, inputs, attrs)
        return op.run(inputs, fused, attrs, get_mode())

    def run(self, function, wanted, inside, args, kwargs):
        """Calls a function in a precision; see `ops.dispatch.precision.in_precision`."""
        given = [x for arg in (*args, *kwargs.values()) for x in (arg if isinstance(arg, (tuple, list)) else (arg,))]
        given = [a for a in (getattr(x, "_mt_data", x) for x in given) if isinstance(a, Array) and self._here(a._array)]
        if wanted == "inside" or not given:
            return function(*args, **kwargs)
        if wanted == "widest":
            wanted = "float32" if any(a.dtype is dtypes.float32 for a in given) else None
        cast = {"half": self._half, "float32": self._single}.get(wanted)
        if cast is not None:
            args = [_each(cast, a) for a in args]
            kwargs = {name: _each(cast, a) for name, a in kwargs.items()}
        if inside:
            return function(*args, **kwargs)
        with autocast(self.device_type, enabled=False):
            return function(*args, **kwargs)

    def _here(self, raw):
        return device_of(raw).type == self.device_type

    def _half(self, x):
        array = getattr(x, "_mt_data", x)
        if not isinstance(array, Array) or array._array.dtype != dtypes.float32 or not self._here(array._array):
            if isinstance(array, Array) and array.dtype in _HALVES and array.dtype is not self.dtype:
                return to_dtype(x, dtype=self.dtype)
            return x
        if self.cache is None or not isinstance(x, Tensor) or not isinstance(x._mt_edge, Leaf):
            return to_dtype(x, dtype=self.dtype)
        key = (id(x), get_mode().grad)
        found = self.cache.get(key)
        stamp = (array, array._version)
        if found is None or found[1][0] is not stamp[0] or found[1][1] != stamp[1]:
            # The reference to x keeps its id unique.
            found = self.cache[key] = (to_dtype(x, dtype=self.dtype), stamp, x)
        return found[0]

    def _is_half(self, x):
        array = getattr(x, "_mt_data", x)
        return isinstance(array, Array) and array.dtype in _HALVES and self._here(array._array)

    def _single(self, x):
        return to_dtype(x, dtype=dtypes.float32) if self._is_half(x) else x


def _each(cast, argument):
    """Applies `cast` to an argument, or to each tensor in a tuple or list."""
    if type(argument) in (tuple, list):
        return type(argument)(cast(x) for x in argument)
    return cast(argument)


@functools.lru_cache(1)
def _warn_if_slow():
    """Warns once if the processor has no instruction for products in bfloat16. Only Linux lists the instructions."""
    try:
        with open("/proc/cpuinfo") as file:
            flags = next((line for line in file if line.startswith("flags")), "avx512_bf16")
    except OSError:
        return
    if "avx512_bf16" not in flags.split():
        warn(
            "autocast: expected a processor with AVX512-BF16 instructions, got one without them. Products in bfloat16 take "
            "longer than in float32. Train in float32, which is mixed_precision=None in Accelerator."
        )


class autocast(ModeSwitch):
    """Runs a `with` block or a decorated function in mixed precision.

    Matrix products and convolutions run in half precision. On a GPU, exponentials, norms, sums and losses run in float32.
    On a CPU, as in PyTorch, only losses, decompositions and transforms run in float32; other ops use the dtype of their
    inputs. Run the forward pass and the loss inside the block, and `backward()` outside of it.

    Use it to train faster on a GPU, while the parameters stay in float32. With float16, add a `GradScaler`.

    Args:
        device_type: "cuda" or "cpu" (default: "cuda").
        dtype: float16 or bfloat16 (default: float16 on a GPU, bfloat16 on a CPU).
        enabled: False disables an outer autocast (default: True).
        cache_enabled: cache the casts of parameters until the outermost block ends (default: True).

    Raises:
        RuntimeError: `device_type` is not "cuda" or "cpu".
        ValueError: `dtype` is not float16 or bfloat16, or `device_type` is not a string.

    Example:
        >>> x = mytorch.ones(2, 2)
        >>> with mytorch.autocast("cpu"):
        ...     (x @ x).dtype, (x + x).dtype
        (mytorch.bfloat16, mytorch.float32)
    """

    def __init__(
        self,
        device_type: str = "cuda",
        dtype: dtypes.dtype | None = None,
        enabled: bool = True,
        cache_enabled: bool | None = None,
    ):
        super().__init__()
        if not isinstance(device_type, str):
            raise ValueError(f"Expected `device_type` of type `str`, got: `{type(device_type)}`")
        if device_type not in _defaults:
            raise RuntimeError(f"autocast: device_type must be one of {', '.join(_defaults)}, got {device_type!r}.")
        self.device = self.device_type = device_type
        self.fast_dtype = _defaults[device_type] if dtype is None else dtypes.as_dtype(dtype)
        if enabled and self.fast_dtype not in (*_HALVES, dtypes.float32):
            raise ValueError(f"autocast: dtype must be float16 or bfloat16, got {self.fast_dtype.name}.")
        if enabled and device_type == "cuda" and not cuda_available():
            warn("User provided device_type of 'cuda', but CUDA is not available. Disabling")
            enabled = False
        self.enabled = enabled and self.fast_dtype is not dtypes.float32
        if self.enabled and device_type == "cpu" and not config.pytorch_mode:
            _warn_if_slow()
        self.cache_enabled = _cache_enabled if cache_enabled is None else cache_enabled

    def clone(self):
        return type(self)(self.device_type, self.fast_dtype, self.enabled, self.cache_enabled)

    def _changes(self):
        if not self.enabled:
            return {"autocast": None}
        outer = get_mode().autocast
        same = outer is not None and outer.dtype is self.fast_dtype and outer.cache is not None
        cache = (outer.cache if same else {}) if self.cache_enabled else None
        return {"autocast": Policy(self.device_type, self.fast_dtype, cache)}


def is_autocast_enabled(device_type: str | None = None) -> bool:
    """Returns True inside `autocast`.

    Args:
        device_type: "cuda" or "cpu"; None for any device type (default: None).
    """
    policy = get_mode().autocast
    return policy is not None and device_type in (None, policy.device_type)


def get_autocast_dtype(device_type: str) -> dtypes.dtype:
    """Returns the dtype of the current autocast block, or the default dtype of autocast outside of a block.

    Args:
        device_type: "cuda" or "cpu".

    Raises:
        RuntimeError: `device_type` has another value.
    """
    if device_type not in _defaults:
        raise RuntimeError(f"get_autocast_dtype: expected device_type 'cpu' or 'cuda', got {device_type!r}.")
    policy = get_mode().autocast
    return policy.dtype if policy is not None and policy.device_type == device_type else _defaults[device_type]


def set_autocast_dtype(device_type: str, dtype: dtypes.dtype) -> None:
    """Sets the default dtype of `autocast` for a device type.

    Args:
        device_type: "cuda" or "cpu".
        dtype: float16 or bfloat16.
    """
    _defaults[device_type] = dtypes.as_dtype(dtype)


def is_autocast_available(device_type: str) -> bool:
    """Returns True if `autocast` supports a device type.

    Args:
        device_type: such as "cuda" or "cpu".
    """
    if device_type not in _defaults:
        as_device(device_type)  # raises an error if there is no such device
    return device_type in _defaults


def custom_fwd(
    fwd: Callable | None = None, *, device_type: str = "cuda", cast_inputs: dtypes.dtype | None = None
) -> Callable:
    """Decorates the `forward` of an `autograd.Function` for use inside `autocast`.

    Args:
        fwd: the static method `forward`.
        device_type: "cuda" or "cpu" (default: "cuda").
        cast_inputs: target dtype of floating point inputs. Autocast is then disabled inside `forward`. With
            None, `forward` runs with the current autocast (default: None).
    """
    if fwd is None:
        return functools.partial(custom_fwd, device_type=device_type, cast_inputs=cast_inputs)

    @functools.wraps(fwd)
    def run(ctx, *args, **kwargs):
        ctx._autocast = is_autocast_enabled(device_type)
        if cast_inputs is None or not ctx._autocast:
            ctx._dtype = get_autocast_dtype(device_type)
            return fwd(ctx, *args, **kwargs)
        args = [a.to(cast_inputs) if isinstance(a, Tensor) and a.dtype.is_floating_point else a for a in args]
        ctx._autocast = False
        with autocast(device_type, enabled=False):
            return fwd(ctx, *args, **kwargs)

    return run


def custom_bwd(bwd: Callable | None = None, *, device_type: str = "cuda") -> Callable:
    """Decorates the `backward` of an `autograd.Function`, so that it runs with the autocast state of `forward`.

    Args:
        bwd: the static method `backward`.
        device_type: "cuda" or "cpu" (default: "cuda").
    """
    if bwd is None:
        return functools.partial(custom_bwd, device_type=device_type)

    @functools.wraps(bwd)
    def run(ctx, *args, **kwargs):
        with autocast(device_type, dtype=getattr(ctx, "_dtype", None), enabled=ctx._autocast):
            return bwd(ctx, *args, **kwargs)

    return run


_NUMBERS = ("growth_factor", "backoff_factor", "growth_interval")


class _Stage(Enum):
    READY = 0
    UNSCALED = 1
    STEPPED = 2


class GradScaler:
    """Scales the loss, so that small float16 gradients do not become zero, and skips steps with infinite gradients.

    The scale is multiplied by `backoff_factor` after an overflow, and by `growth_factor` after `growth_interval` steps
    without an overflow.

    On a GPU with Triton, the scale stays in GPU memory. The scaler checks gradients, skips steps and changes the scale
    without waiting for the GPU, also in a captured step. `get_scale`, `state_dict` and `found_inf` wait for the GPU.

    Use it with float16 only. bfloat16 has the range of float32, so its gradients need no scaling.

    Args:
        device: "cuda" or "cpu" (default: "cuda").
        init_scale: initial scale (default: 65536).
        growth_factor: factor of the scale after `growth_interval` steps without an overflow (default: 2).
        backoff_factor: factor of the scale after an overflow (default: 0.5).
        growth_interval: number of steps without an overflow before the scale grows (default: 2000).
        enabled: False disables the scaler; `step` then calls `optimizer.step()` (default: True).

    Raises:
        ValueError: `growth_factor` is not greater than 1, or `backoff_factor` is not between 0 and 1.
        TypeError: `device` is not a string.

    Example:
        >>> p = nn.Parameter(tensor([1.0]))
        >>> optimizer, scaler = optim.SGD([p], lr=0.5), mytorch.amp.GradScaler("cpu", init_scale=4.0)
        >>> scaler.scale(p.sum()).backward()
        >>> p.grad.item()
        4.0
        >>> scaler.step(optimizer)  # divides the gradient by the scale first
        >>> scaler.update()
        >>> p.item(), scaler.get_scale()
        (0.5, 4.0)
    """

    def __init__(
        self,
        device: str = "cuda",
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ):
        if not isinstance(device, str):
            raise TypeError(f"GradScaler: device must be 'cuda' or 'cpu', got {device!r}.")
        if growth_factor <= 1.0:
            raise ValueError(f"The growth factor must be > 1.0, got {growth_factor}.")
        if not 0.0 < backoff_factor < 1.0:
            raise ValueError(f"The backoff factor must be < 1.0 and positive, got {backoff_factor}.")
        if enabled and device == "cuda" and not cuda_available():
            warn("GradScaler is enabled, but CUDA is not available. Disabling.")
            enabled = False
        self._device = device
        self._enabled = enabled
        self._on_cpu = (float(init_scale), 0)  # the scale, and the number of steps without overflow since it changed
        self._live = None  # both values in GPU memory, see multi.new_state
        self._module = None  # the kernels that change them
        self._found_inf_arrays = {}  # id of an optimizer -> (its array for unscaling, the optimizer)
        self._growth_factor, self._backoff_factor = growth_factor, backoff_factor
        self._growth_interval = growth_interval
        self._optimizers = {}  # id -> (stage, found_inf: a bool or an array in device memory, the optimizer)

    def is_enabled(self) -> bool:
        """Returns True if the scaler is enabled."""
        return self._enabled

    def get_scale(self) -> float:
        """Returns the current scale as a Python float; 1.0 if the scaler is disabled. Waits for the GPU."""
        return self._values()[0] if self._enabled else 1.0

    # -- the memory of the scale --------------------------------------------------------------------------

    def _values(self):
        """Returns (scale, steps since the last overflow), read from the GPU if necessary."""
        if self._live is None:
            return self._on_cpu
        module = self._module
        scale, tracker = to_device(self._live[module.SCALE : module.GROWTH + 1], CPU).tolist()
        return scale, int(tracker)

    def _set_values(self, scale, tracker):
        self._on_cpu = (float(scale), int(tracker))
        if self._live is not None:  # in place, since a captured step reads this memory
            with device_guard(self._live):
                self._live[...] = self._module.new_state(xp_of(self._live), scale=float(scale), growth=float(tracker))

    def _settle(self, raw):
        """Moves the scale to the GPU of a raw array, if kernels are available."""
        if self._live is None:
            self._module = multi_tensor([raw])
            if self._module is None:
                capturing.refuse(
                    "GradScaler", "its scale is on the CPU. Install Triton, and do not set `fused` to False."
                )
                return
            capturing.refuse(
                "the first use of a GradScaler", "it allocates the state of the scaler; run a step before the capture."
            )
            scale, tracker = self._on_cpu
            with device_guard(raw):
                self._live = self._module.new_state(xp_of(raw), scale=scale, growth=float(tracker))

    def scale(self, outputs: Any) -> Any:
        """Multiplies outputs by the scale. Call `backward()` on the result.

        Args:
            outputs: a tensor, or nested lists and tuples of tensors. The results have their dtypes, so sums of many elements
                should be computed in float32.

        Raises:
            ValueError: an item is not a tensor, a list or a tuple.
        """
        if not self._enabled:
            return outputs
        if isinstance(outputs, Tensor):
            self._settle(outputs._mt_data._array)
            if self._live is None or device_of(self._live) is not outputs.device:
                return outputs * self._values()[0]
            with device_guard(self._live):
                scale = (
                    self._module.one(self._live, self._module.SCALE).reshape(()).astype(outputs._mt_data._array.dtype)
                )
            return outputs * Tensor._wrap(scale)
        if isinstance(outputs, (list, tuple)):
            scaled = [self.scale(x) for x in outputs]
            return type(outputs)(scaled) if type(outputs) in (list, tuple) else type(outputs)(*scaled)
        raise ValueError(
            f"GradScaler.scale: outputs must be a Tensor or an iterable of Tensors, not {type(outputs).__name__}."
        )

    def unscale_(self, optimizer: Any) -> None:
        """Divides the gradients of the parameters of an optimizer by the scale. Call it before you clip the gradients.

        Raises:
            RuntimeError: it is called twice, or after `step`, without `update` in between.
            ValueError: a gradient is float16.
        """
        if not self._enabled:
            return
        stage = self._stage(optimizer)[0]
        if stage is _Stage.UNSCALED:
            raise RuntimeError("unscale_() has already been called on this optimizer since the last update().")
        if stage is _Stage.STEPPED:
            raise RuntimeError("unscale_() is being called after step().")
        self._optimizers[id(optimizer)] = (_Stage.UNSCALED, self._unscale_all(optimizer), optimizer)

    def _stage(self, optimizer):
        return self._optimizers.get(id(optimizer), (_Stage.READY, False, optimizer))

    def _unscale_all(self, optimizer):
        """Divides the gradients as `_unscale`, also those of sharded parameters."""
        return self._unscale(optimizer) if hooks.unscale_sharded is None else hooks.unscale_sharded(self, optimizer)

    def _unscale(self, optimizer):
        """Divides the gradients by the scale in place. Returns True if an element is infinite or NaN, None without gradients.

        With kernels the result is an array in GPU memory. Otherwise it is a bool, and the CPU waits for it.
        """
        grads = [p.grad for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        if not grads:
            return None
        arrays = [getattr(g, "_mt_data", g) for g in grads]
        if any(a.dtype == dtypes.float16 for a in arrays):
            raise ValueError("Attempting to unscale FP16 gradients.")
        raws = [a._array for a in arrays]
        module = None if self._live is None else multi_tensor(raws)
        if module is not None and device_of(raws[0]) is device_of(self._live):  # one launch for all gradients
            with device_guard(self._live):
                found_inf = self._found_inf_array(optimizer)
                found_inf[...] = self._live
                module.unscale(module.table_of(xp_of(raws[0]), raws), found_inf, which=0)
            for array in arrays:
                array._bump()
            return module.one(found_inf, module.FOUND_INF)
        capturing.refuse("unscaling these gradients", "contiguous gradients of one dtype on one GPU are needed.")
        bad = {}
        inverse = 1.0 / self._values()[0]
        for array in arrays:
            raw = array._array
            where = device_of(raw)
            with device_guard(raw):
                raw *= raw.dtype.type(inverse)
                finite = xp_of(raw).isfinite(raw).all()
                bad[where] = finite if where not in bad else bad[where] & finite
            array._bump()
        return not all(bool(finite) for finite in bad.values())

    def _found_inf_array(self, optimizer):
        """Returns the array that the kernel uses to unscale the gradients of an optimizer."""
        found = self._found_inf_arrays.get(id(optimizer))
        if found is None:
            found = self._found_inf_arrays[id(optimizer)] = (xp_of(self._live).empty_like(self._live), optimizer)
        return found[0]

    def step(self, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """Calls `optimizer.step()` with unscaled gradients, or skips the step if a gradient is infinite or NaN.

        Args:
            args: must be empty.
            kwargs: keyword arguments of `optimizer.step`.

        Returns:
            The result of `optimizer.step()`, or None.

        Raises:
            RuntimeError: it is called twice without `update` in between, or with a closure.
            AssertionError: no parameter has a gradient.
        """
        if not self._enabled:
            return optimizer.step(*args, **kwargs)
        if "closure" in kwargs or args:
            raise RuntimeError("Closure use is not currently supported if GradScaler is enabled.")
        stage, found, _ = self._stage(optimizer)
        if stage is _Stage.STEPPED:
            raise RuntimeError("step() has already been called since the last update().")
        if stage is _Stage.READY:
            found = self._unscale_all(optimizer)
        if found is None:
            raise AssertionError("No inf checks were recorded for this optimizer.")
        self._optimizers[id(optimizer)] = (_Stage.STEPPED, found, optimizer)
        if getattr(optimizer, "_step_supports_amp_scaling", False):
            return self._hand_over(optimizer, found, kwargs)
        if isinstance(found, bool) or not optimizer.takes_found_inf:
            return None if bool(found) else optimizer.step(**kwargs)
        with temporarily(optimizer, _found_inf=found):
            return optimizer.step(**kwargs)

    def _hand_over(self, optimizer, found, kwargs):
        """Calls `step` of an optimizer that handles overflow itself, as some PyTorch optimizers do."""
        if "grad_scaler" in inspect.signature(optimizer.step).parameters:
            warn(
                "GradScaler is going to stop passing itself as a keyword argument to the passed optimizer. In the near future "
                "GradScaler registers `grad_scale: Tensor` and `found_inf: Tensor` to the passed optimizer.",
                FutureWarning,
            )
            return optimizer.step(**kwargs, grad_scaler=self)
        optimizer.grad_scale, optimizer.found_inf = tensor(1.0), tensor(float(bool(found)))
        try:
            return optimizer.step(**kwargs)
        finally:
            del optimizer.grad_scale, optimizer.found_inf

    def found_inf_on_device(self, optimizer):
        """Returns the value of `found_inf` without waiting: a bool, or an array in GPU memory, valid until the next step."""
        found = self._stage(optimizer)[1]
        return False if found is None else found

    def found_inf(self, optimizer: Any) -> bool:
        """Returns True if a gradient of an optimizer was infinite or NaN since the last `update`. Waits for the GPU."""
        return bool(self._stage(optimizer)[1])

    def update(self, new_scale: float | Tensor | None = None) -> None:
        """Updates the scale. Call it once per iteration, after `step`.

        Args:
            new_scale: the new scale (default: computed from the overflows).

        Raises:
            RuntimeError: no gradients were unscaled since the last `update`.
        """
        if not self._enabled:
            return
        if new_scale is not None:
            self._set_values(new_scale.item() if hasattr(new_scale, "item") else new_scale, self._values()[1])
        elif not self._optimizers:
            raise RuntimeError("No inf checks were recorded prior to update.")
        elif self._live is not None:
            self._update_live()
        else:
            scale, calm = self._on_cpu
            if any(bad for _, bad, _ in self._optimizers.values()):
                scale, calm = scale * self._backoff_factor, 0
            elif calm + 1 == self._growth_interval:
                scale, calm = scale * self._growth_factor, 0
            else:
                calm += 1
            self._on_cpu = (scale, calm)
        self._optimizers = {}

    def _update_live(self):
        """Updates the scale in GPU memory."""
        module = self._module
        found = module.one(self._live, module.FOUND_INF)
        with device_guard(self._live):
            for _, bad, _ in self._optimizers.values():
                if not isinstance(bad, bool | None):
                    xp_of(found).maximum(found, bad, out=found)
                elif bad:
                    found.fill(1.0)
            module.update_scale(self._live, self._growth_factor, self._backoff_factor, self._growth_interval)

    def get_growth_factor(self) -> float:
        """Returns the growth factor."""
        return self._growth_factor

    def set_growth_factor(self, new_factor: float) -> None:
        """Sets the growth factor.

        Args:
            new_factor: factor of the scale after `growth_interval` steps without inf or NaN.
        """
        self._growth_factor = new_factor

    def get_backoff_factor(self) -> float:
        """Returns the backoff factor."""
        return self._backoff_factor

    def set_backoff_factor(self, new_factor: float) -> None:
        """Sets the backoff factor.

        Args:
            new_factor: factor of the scale after a step with inf or NaN.
        """
        self._backoff_factor = new_factor

    def get_growth_interval(self) -> int:
        """Returns the growth interval in steps."""
        return self._growth_interval

    def set_growth_interval(self, new_interval: int) -> None:
        """Sets the growth interval in steps.

        Args:
            new_interval: number of steps without inf or NaN before the scale grows.
        """
        self._growth_interval = new_interval

    def state_dict(self) -> dict[str, Any]:
        """Returns the state of the scaler as a dict; an empty dict if the scaler is disabled."""
        if not self._enabled:
            return {}
        scale, calm = self._values()
        return {"scale": scale, **{name: getattr(self, f"_{name}") for name in _NUMBERS}, "_growth_tracker": calm}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Loads a state that `state_dict` returned.

        Raises:
            RuntimeError: the state is empty, because the scaler that saved it was disabled.
        """
        if not self._enabled:
            return
        if not state_dict:
            raise RuntimeError(
                "The source state dict is empty, possibly because it was saved from a disabled instance of GradScaler."
            )
        self._set_values(state_dict["scale"], state_dict["_growth_tracker"])
        for name in _NUMBERS:
            setattr(self, f"_{name}", state_dict[name])


__all__ = [
    "GradScaler", "autocast", "custom_bwd", "custom_fwd", "get_autocast_dtype", "is_autocast_available", "is_autocast_enabled",
    "set_autocast_dtype",
]  # fmt: skip
__getattr__, __dir__ = _extensions.lazy(__name__)
