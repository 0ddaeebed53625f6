"""`torch.utils._python_dispatch`: modes and subclasses that receive the operators that run.

A mode receives the ops of this library, by PyTorch's names. PyTorch composes some of its functions of several operators where
this library runs one op, such as `softmax`, so a mode then receives that op. A linear layer is composed as in PyTorch, because
packages count `addmm` and `mm`. A mode does not receive assignments to a part of a tensor.
"""

import contextlib
import math

from ..arrays.overriding import in_state, overriding
from ..arrays.tensor import Tensor
from ..autograd.mode import get_mode, reset_mode, set_mode
from ..compat import overrides
from ..compat.aten import overload_of, packet
from ..ops.dispatch.interpreter import Interpreter

_modes = []  # active modes, the innermost last


class _Dispatching(Interpreter):
    """Passes each op to a dispatch mode."""

    def __init__(self, mode):
        super().__init__()
        self.mode = mode

    def __call__(self, record, inputs, fused, attrs):
        if record.name == "linear":
            return self._linear(*inputs)
        given, options = (list(inputs),) if record.variadic else tuple(inputs), dict(attrs)
        if record.name in ("convolution", "convolution_input"):
            given, options = _convolution(*inputs, **attrs), {}
        return self._call(overload_of(record, inputs, attrs), inputs, given, options)

    def _call(self, overload, inputs, given, options):
        types = tuple({type(x): None for x in inputs if isinstance(x, Tensor) and type(x) is not Tensor})
        with self.outside(), _popped(self.mode):
            return self.mode.__torch_dispatch__(overload, types, given, options)

    def _linear(self, input, weight, bias=None):
        """Composes a linear layer of the ops that PyTorch runs. Each of them reaches the mode."""
        flat = input.ndim != 2
        rows = input.reshape(math.prod(input.shape[:-1]), input.shape[-1]) if flat else input
        given = (rows, weight.t()) if bias is None else (bias, rows, weight.t())
        result = self._call(packet("mm" if bias is None else "addmm").default, given, given, {})
        return result.reshape(*input.shape[:-1], weight.shape[0]) if flat else result


def _convolution(input, weight, bias=None, *, stride, padding, dilation, groups, shape=None):
    """Returns the arguments of `aten.convolution`. A transposed convolution has the `shape` of the result."""
    transposed, more = shape is not None, [0] * len(stride)
    if transposed:
        windows = zip(input.shape[2:], weight.shape[2:], stride, padding, dilation, strict=True)
        smallest = [(n - 1) * s - 2 * p + d * (k - 1) + 1 for n, k, s, p, d in windows]
        more = [size - least for size, least in zip(shape, smallest, strict=True)]
    return input, weight, bias, list(stride), list(padding), list(dilation), transposed, more, groups


@contextlib.contextmanager
def _popped(mode):
    """Removes a mode and the modes inside it from the stack of modes in a block."""
    before = list(_modes)
    if mode in _modes:
        del _modes[_modes.index(mode) :]
    try:
        with in_state(inside=False):
            yield
    finally:
        _modes[:] = before


# Function that creates a tensor -> overload, if it is not "default".
_CREATING = {"empty": "memory_format", "randint": "low"}
_OF_DATA = ("tensor", "from_numpy", "as_tensor")
_WITH_SIZE = ("zeros", "ones", "empty", "rand", "randn")


def _created(function, args, kwargs):
    """Passes the creation of a tensor to the innermost mode. Returns NotImplemented for calls that no mode receives."""
    active = get_mode().interpreter
    if not _modes or not isinstance(active, _Dispatching) or kwargs.get("out") is not None:
        return NotImplemented
    mode, name, kwargs = active.mode, function.__name__, {k: v for k, v in kwargs.items() if v is not None}
    if name in _OF_DATA:
        with overrides.skipping(function), in_state(inside=True):
            made = function(*args, **kwargs)
        if made is (args[0] if args else None):
            return made
        name, args, kwargs = "lift_fresh", (made,), {}
    elif name in _WITH_SIZE and args and not isinstance(args[0], (tuple, list)):
        args = (list(args),)
    overload = _CREATING.get(name, "default")
    if name == "arange":
        overload = ("default", "start", "start_step")[len(args) - 1] if args else "start_step"
    elif name == "randint" and not (len(args) > 1 and isinstance(args[1], int)) and "low" not in kwargs:
        overload = "default"
    with active.outside(), _popped(mode):
        types = tuple({type(x): None for x in args if isinstance(x, Tensor) and type(x) is not Tensor})
        return mode.__torch_dispatch__(getattr(packet(name), overload), types, tuple(args), kwargs)


class TorchDispatchMode:
    """A context manager whose `__torch_dispatch__` receives every op that runs in a `with` block.

    Override `__torch_dispatch__(self, func, types, args=(), kwargs=None)` and return `func(*args, **(kwargs or {}))` or another
    result. `func` is an overload such as `torch.ops.aten.add.Tensor`. Ops inside the method do not reach this mode. The method also
    receives functions that create tensors, such as `torch.ops.aten.zeros.default`, if the program calls them.

    Args:
        _dispatch_key: for compatibility with PyTorch, which only accepts None.

    Raises:
        NotImplementedError: a dispatch key.
    """

    def __init__(self, _dispatch_key=None):
        if _dispatch_key is not None:
            raise NotImplementedError(f"TorchDispatchMode: expected no dispatch key, got {_dispatch_key}.")

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        raise NotImplementedError

    def __enter__(self):
        overriding.enter_mode()
        overrides.creation_hooks.append(_created)
        _modes.append(self)
        self.__dict__.setdefault("_tokens", []).append(set_mode(get_mode().replace(interpreter=_Dispatching(self))))
        return self

    def __exit__(self, *error):
        reset_mode(self._tokens.pop())
        _modes.pop()
        overrides.creation_hooks.pop()
        overriding.exit_mode()

    @classmethod
    def push(cls, *args, **kwargs):
        """Returns an instance of this mode."""
        return cls(*args, **kwargs)


class BaseTorchDispatchMode(TorchDispatchMode):
    """A mode that runs each op unchanged."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def _get_current_dispatch_mode():
    return _modes[-1] if _modes else None


def _get_current_dispatch_mode_stack():
    return list(_modes)


def is_traceable_wrapper_subclass(t):
    """Returns True for a tensor, or a class of tensors, with `__tensor_flatten__` and `__tensor_unflatten__`.

    Args:
        t: the tensor or the class.
    """
    kind = t if isinstance(t, type) else type(t)
    return issubclass(kind, Tensor) and hasattr(kind, "__tensor_flatten__") and hasattr(kind, "__tensor_unflatten__")


def transform_subclass(t, callback, outer_size=None, outer_stride=None):
    """Returns an instance of the class of `t` in which `callback(name, tensor)` replaces each inner tensor.

    Args:
        t: a tensor with `__tensor_flatten__` and `__tensor_unflatten__`.
        callback: function of the name of an inner tensor and of the tensor.
        outer_size: shape of the result (default: the shape of `t`).
        outer_stride: strides of the result (default: the strides of `t`).
    """
    size = t.size() if outer_size is None else outer_size
    stride = t.stride() if outer_stride is None else outer_stride
    names, context = t.__tensor_flatten__()
    return type(t).__tensor_unflatten__(
        {name: callback(name, getattr(t, name)) for name in names}, context, size, stride
    )


def return_and_correct_aliasing(func, args, kwargs, out):
    """Returns the result of an operator. For an in-place operator, returns the first argument.

    Args:
        func: the operator.
        args: arguments of the call.
        kwargs: keyword arguments of the call.
        out: the result.
    """
    name = str(func).split(".")[1] if "." in str(func) else str(func)
    return args[0] if name.endswith("_") and not name.endswith("__") and args else out
