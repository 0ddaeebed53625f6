"""`torch.library`: operators that a package defines are the Python functions behind them.

`torch.ops.namespace.name` finds the operators that `custom_op`, `define` and `Library` registered.
"""

import ast
import importlib
import inspect
import re
from importlib.machinery import PathFinder

from ..arrays.tensor import Tensor
from ..autograd.function import Function
from ..autograd.mode import get_mode, no_grad
from ..compat import aten
from ..compat.stubs import AbsentError

_OPERATORS = {}  # "namespace::name" -> CustomOpDef
_ON_GPU = ("cuda", "autogradcuda")
_IGNORED_KEYS = ("autograd", "autogradcpu", "functionalize", "python")  # the implementations are not used


class OpNamespace:
    """The operators of a namespace, such as `torch.ops.my_package`.

    Args:
        name: name of the namespace.
        module: module of `mytorch.ops` with the same name, whose attributes the namespace then has, too.
    """

    def __init__(self, name, module=None):
        self._name, self._module = name, module

    def __getattr__(self, name):
        found = _OPERATORS.get(f"{self._name}::{name}")
        if found is not None:
            return found
        if self._module is not None:
            return getattr(self._module, name)
        if name.startswith("__"):
            raise AttributeError(name)
        if self._name == "aten":
            return aten.packet(name)
        if self._name in ("prim", "prims"):
            raise AbsentError(
                f"torch.ops.{self._name}.{name}: mytorch does not have the operators of PyTorch's C++ core. Use the public "
                f"function instead, such as torch.{name.rstrip('_')}."
            )
        raise AttributeError(f"'_OpNamespace' '{self._name}' object has no attribute '{name}'")


def has_namespace(name):
    """Returns True if an operator of the namespace is registered."""
    return any(key.startswith(f"{name}::") for key in _OPERATORS)


def _operator(name):
    """Returns the operator of a name, which is created if needed."""
    if name not in _OPERATORS:
        _OPERATORS[name] = CustomOpDef(name, None)
    return _OPERATORS[name]


def _show_namespace(name):
    """Lets `torch.ops.name` be a namespace if `mytorch.ops` has a module of that name."""
    package = importlib.import_module("mytorch.ops")
    if not isinstance(vars(package).get(name), OpNamespace) and PathFinder.find_spec(name, package.__path__):
        setattr(package, name, OpNamespace(name, importlib.import_module(f"mytorch.ops.{name}")))


class CustomOpDef:
    """An operator, which `custom_op` returns. A call runs the registered function.

    If a gradient was registered with `register_autograd`, calls use it.
    """

    _mutates = ()

    def __init__(self, name, function, schema=None):
        self._name, self._function, self._on_gpu, self._fake = name, function, None, None
        self._gradient = self._vmap = None  # (backward, setup_context), and the batching rule
        self._call, self._autocast = function, {}  # device type -> implementation while autocast is enabled
        self._tensors = _tensor_arguments(function)
        self._schema = None if schema is None else Schema(name, schema)
        self.__name__, self.__doc__ = name.rpartition("::")[2], getattr(function, "__doc__", None)
        _OPERATORS[name] = self
        _show_namespace(name.partition("::")[0])

    def __call__(self, *args, **kwargs):
        if self._schema is not None:
            args, kwargs = self._schema.bind(args, kwargs)
        for name, value in {**dict(zip(self._tensors, args, strict=False)), **kwargs}.items():
            if self._tensors.get(name) and not isinstance(value, Tensor):
                raise RuntimeError(
                    f"{self._name}() Expected a value of type 'Tensor' for argument '{name}' but instead found type "
                    f"'{type(value).__name__}'."
                )
        policy = get_mode().autocast
        if policy is not None and policy.device_type in self._autocast:
            if any(isinstance(a, Tensor) and a.device.type == policy.device_type for a in args):
                return self._autocast[policy.device_type](*args, **kwargs)
        if self._on_gpu is not None and any(getattr(a, "is_cuda", False) for a in args):
            return self._on_gpu(*args, **kwargs)
        if self._fake is not None and any(getattr(a, "is_meta", False) for a in args):
            return self._fake(*args, **kwargs)
        if self._call is None:
            raise NotImplementedError(f"Could not run '{self._name}': no implementation was registered for the CPU.")
        if self._vmap is not None and self._gradient is None and get_mode().interpreter is None:
            return self._function(*args, **kwargs)
        return self._call(*args, **kwargs)

    @property
    def default(self):
        """The operator itself: PyTorch's name of its only overload."""
        return self

    def _implement(self, key, function):
        """Uses a function as the implementation for a dispatch key or a device type, such as "CPU" or "cuda"."""
        key = (key or "").lower()
        if key in _ON_GPU:
            self._on_gpu = function
        elif key == "meta":
            self._fake = function
        elif key.startswith("autocast"):
            self._autocast[key.removeprefix("autocast")] = function
        elif key not in _IGNORED_KEYS:
            self._function = function
            self._combine()

    def _combine(self):
        """Sets the function that calls use: the implementation, with the gradient and the batching rule."""
        self._call = self._function
        if self._function is not None and (self._gradient or self._vmap):
            self._call = _differentiable(self._name, self._function, *(self._gradient or (None, None)), self._vmap)

    def register_autograd(self, backward, /, *, setup_context=None):
        """Registers `backward(ctx, *grads)` as the gradient; `setup_context(ctx, inputs, output)` saves values for it."""
        self._gradient = backward, setup_context
        self._combine()

    def register_vmap(self, func=None, /):
        """Registers `func(info, in_dims, *args)`, which returns (output, out_dims) for a batch; also as a decorator."""
        if func is None:
            return self.register_vmap
        self._vmap = func
        self._combine()
        return func

    def register_kernel(self, device_types, func=None, /):
        """Registers an implementation for some devices; also as a decorator."""
        return register_kernel(self, device_types, func)

    def register_fake(self, func, /):
        """Registers `func`, which computes the shape and dtype of the result for tensors on the `meta` device."""
        self._fake = func
        return func

    def register_torch_dispatch(self, torch_dispatch_class, func=None, /):
        """Raises NotImplementedError: a mode or subclass handles an operator in its own `__torch_dispatch__`."""
        raise NotImplementedError(_NO_RULES)


class Schema:
    """The arguments of an operator, from PyTorch's notation: "(Tensor x, int k=3, *, float? eps=None) -> Tensor".

    Attributes:
        names: names of the arguments.
        positional: number of arguments before the `*`.
        defaults: {name: default}.
    """

    def __init__(self, name, text):
        self.name, self.names, self.positional, self.defaults = name, [], None, {}
        start = text.find("(")
        inside = text[start + 1 : text.rindex(")", start, text.index("->") if "->" in text else None)]
        # At commas outside of brackets and quotes.
        for part in re.findall(r"(?:[^,\[\]()'\"]|\[[^\]]*\]|\([^)]*\)|'[^']*'|\"[^\"]*\")+", inside):
            if (part := part.strip()) == "*":
                self.positional = len(self.names)
            elif part:
                left, equals, default = part.partition("=")
                self.names.append(left.split()[-1])
                if equals:
                    self.defaults[self.names[-1]] = _value_of(default.strip())
        self.positional = len(self.names) if self.positional is None else self.positional

    def bind(self, args, kwargs):
        """Returns (args, kwargs) of a call for the implementation. As in PyTorch, its own defaults replace those of the schema.

        Raises:
            RuntimeError: an argument is missing, unknown, given twice, or there are too many.
        """
        if len(args) > self.positional:
            raise RuntimeError(
                f"{self.name}() expected at most {self.positional} argument(s) but received {len(args)} argument(s)."
            )
        given = dict(zip(self.names, args, strict=False))
        wrong = [name for name in kwargs if name in given or name not in self.names]
        if wrong:
            reason = "has been specified twice" if wrong[0] in given else "is unknown"
            raise RuntimeError(f"{self.name}(): argument '{wrong[0]}' {reason}.")
        given |= kwargs
        missing = [name for name in self.names if name not in given and name not in self.defaults]
        if missing:
            raise RuntimeError(f"{self.name}() is missing value for argument '{missing[0]}'.")
        last = max((i for i, name in enumerate(self.names[: self.positional]) if name in given), default=-1)
        return (
            [given[n] if n in given else self.defaults[n] for n in self.names[: last + 1]],
            {n: given[n] for n in self.names[self.positional :] if n in given},
        )


def _value_of(text):
    """Returns the default value of a schema: a literal, or the text of another name."""
    try:
        return ast.literal_eval(text)
    except (SyntaxError, ValueError):
        return text


def _tensor_arguments(function):
    """Returns {argument: True if its annotation is Tensor} of a function, in order."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return {}
    return {name: p.annotation in (Tensor, "Tensor", "torch.Tensor") for name, p in parameters.items()}


def _differentiable(name, function, gradient, setup_context, rule):
    """Returns a function with a custom gradient and a batching rule, of which one can be None."""

    class Custom(Function):
        @staticmethod
        def forward(ctx, keywords, *args):
            out = function(*args, **keywords)
            if setup_context is not None:
                args = filled(args, keywords).args
                only = {"keyword_only_inputs": keywords} if keywords else {}
                setup_context(ctx, inputs=args, output=out, **only)
            return out

        @staticmethod
        def backward(ctx, *grads):
            if gradient is None:
                raise RuntimeError(f"Trying to backward through {name} but no autograd formula was registered.")
            found = gradient(ctx, *grads)
            return (None, *found) if isinstance(found, (tuple, list)) else (None, found)

    if rule is not None:
        Custom.vmap = staticmethod(lambda info, in_dims, keywords, *args: rule(info, in_dims[1:], *args, **keywords))
    signature = inspect.signature(function)

    def filled(args, kwargs):
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return bound

    def call(*args, **kwargs):
        # As in PyTorch, the gradient may return nothing for the defaults of the last positional arguments.
        given, bound = set(signature.bind(*args, **kwargs).arguments), filled(args, kwargs)
        last = max(
            (i for i, name in enumerate(signature.parameters) if name in given and i < len(bound.args)), default=-1
        )
        return Custom.apply(bound.kwargs, *bound.args[: last + 1])

    return call


def custom_op(name, fn=None, /, *, mutates_args, device_types=None, schema=None, tags=None):
    """Make an operator of a function; also as a decorator.

    Args:
        name: "namespace::name".
        mutates_args: inputs that it changes.
        device_types: device types for which the function is the implementation, such as "cpu" (default: None, all).
        schema: names and defaults of the arguments, as "(Tensor x, int k=3) -> Tensor" (default: None, the signature).
        tags: accepted for compatibility, without effect.
    """

    def make(function):
        operator = CustomOpDef(name, function, schema)
        operator._mutates = mutates_args
        if device_types is not None:
            kinds = (device_types,) if isinstance(device_types, str) else device_types
            operator._function = operator._call = function if "cpu" in kinds else None
            operator._on_gpu = function if "cuda" in kinds else _not_on_gpu(name)
        return operator

    return make if fn is None else make(fn)


def _not_on_gpu(name):
    def refuse(*args, **kwargs):
        raise NotImplementedError(f"Could not run '{name}': no implementation was registered for the GPU.")

    return refuse


def triton_op(name, fn=None, /, *, mutates_args, schema=None):
    """As `custom_op`."""
    return custom_op(name, fn, mutates_args=mutates_args, schema=schema)


def _accept(*args, **kwargs):
    """Accepted, without effect. Returns the function that is registered, or a decorator that returns it."""
    functions = [a for a in args if callable(a) and not isinstance(a, CustomOpDef)]
    return functions[-1] if functions else lambda f: f


wrap_triton = _accept
_NO_RULES = "register_torch_dispatch: there are no rules for one operator and one class. Handle the operator in `__torch_dispatch__` of the class."


def register_torch_dispatch(op, torch_dispatch_class, func=None, /, *, lib=None):
    """Raises NotImplementedError: a mode or subclass handles an operator in its own `__torch_dispatch__`."""
    raise NotImplementedError(_NO_RULES)


def register_vmap(op, func=None, /, *, lib=None):
    """Registers the batching rule of an operator, which `func.vmap` calls once for a batch; also as a decorator.

    Args:
        op: "namespace::name", or the result of `custom_op`.
        func: function `func(info, in_dims, *args)` that returns (output, out_dims). `info.batch_size` is the number of samples.
        lib: accepted for compatibility, without effect.
    """
    return _operator(getattr(op, "_name", op)).register_vmap(func)


def register_fake(op, func=None, /, *, lib=None, _stacklevel=1, allow_override=True):
    """Registers the function that an operator runs for tensors on the `meta` device; also as a decorator.

    Args:
        op: "namespace::name", or the result of `custom_op`.
        func: function of the arguments that returns a tensor of the shape and dtype of the result.
        lib, allow_override: accepted for compatibility, without effect.
    """
    register = _operator(getattr(op, "_name", op)).register_fake
    return register if func is None else register(func)


impl_abstract = register_fake


def get_ctx():
    """Returns the context of `register_fake`, for results whose sizes depend on values.

    Raises:
        RuntimeError: always, because tensors on the `meta` device have no values.
    """
    raise RuntimeError(
        "library.get_ctx: expected tensors with values, got tensors on the meta device. The sizes of the result depend on the values; "
        "move the inputs to another device."
    )


def opcheck(op, args, kwargs=None, *, test_utils=("test_schema", "test_autograd_registration", "test_faketensor"),
            raise_exception=True, atol=None, rtol=None):  # fmt: skip
    """Checks an operator on one set of arguments.

    Args:
        op: the result of `custom_op`, or an operator of `torch.ops`.
        test_utils: names of the checks. "test_schema" checks that inputs do not change. "test_autograd_registration" checks
            that the result requires gradients if an input does. "test_faketensor" compares `register_fake` with the result.
        raise_exception: raise an error instead of returning it (default: True).
        atol, rtol: accepted for compatibility, without effect.

    Returns:
        {name of a check: "SUCCESS" or the error}.
    """
    kwargs, found = kwargs or {}, {}
    for check in (test_utils,) if isinstance(test_utils, str) else test_utils:
        try:
            found[check] = _CHECKS[check](op, args, kwargs) or "SUCCESS"
        except Exception as error:
            if raise_exception:
                raise OpCheckError(f"opcheck({op._name}, …): {check} failed: {error}") from error
            found[check] = error
    return found


class OpCheckError(Exception):
    """A check of `opcheck` failed."""


def _tensors_in(values):
    return [x for x in (values if isinstance(values, (list, tuple)) else [values]) if isinstance(x, Tensor)]


def _check_schema(op, args, kwargs):
    inputs = [x for x in _tensors_in(args) if x.numel()]
    versions = [x._version for x in inputs]
    with no_grad():
        op(*args, **kwargs)
    if op._mutates == () and [x._version for x in inputs] != versions:
        raise RuntimeError("an input was changed in place; expected mutates_args to name it")


def _check_autograd(op, args, kwargs):
    results = _tensors_in(op(*args, **kwargs))
    wanted = any(x.requires_grad for x in _tensors_in(args))
    if wanted and op._call is not op._function and not any(r.requires_grad for r in results):
        raise RuntimeError("the result does not require gradients, although an input does")


def _check_fake(op, args, kwargs):
    if op._fake is None:
        raise RuntimeError("expected a function registered by register_fake, got none")
    with no_grad():
        real = _tensors_in(op(*args, **kwargs))
        fake = _tensors_in(op(*[x.to("meta") if isinstance(x, Tensor) else x for x in args], **kwargs))
    if [(r.shape, r.dtype) for r in real] != [(f.shape, f.dtype) for f in fake]:
        raise RuntimeError(
            f"register_fake returned {[(f.shape, f.dtype) for f in fake]}, expected {[(r.shape, r.dtype) for r in real]}"
        )


_CHECKS = {"test_schema": _check_schema, "test_autograd_registration": _check_autograd, "test_faketensor": _check_fake}


def impl(qualname, types, func=None, *, lib=None):
    """Registers an implementation of an operator; also as a decorator.

    Args:
        qualname: "namespace::name"; or a Library, if `types` is the name of the operator.
        types: device type or dispatch key, or several, such as "cpu". After a Library: the name of the operator.
        func: the implementation. After a Library: the dispatch key.
        lib: accepted for compatibility, without effect.
    """
    if isinstance(qualname, Library):
        return lambda f: qualname.impl(types, f, func or "") or f
    keys = (types,) if isinstance(types, str) else tuple(types)

    def register(function):
        for key in keys:
            _operator(qualname)._implement(key, function)
        return function

    return register if func is None else register(func)


def register_kernel(op, device_types, func=None, /, *, lib=None):
    """Registers an implementation of an operator for some devices; also as a decorator.

    Args:
        op: "namespace::name", or the result of `custom_op`.
        device_types: "cpu", "cuda", or both; None for all devices.
        func: the implementation.
        lib: accepted for compatibility, without effect.
    """
    return impl(getattr(op, "_name", op), device_types or "cpu", func)


def register_autograd(op, backward, /, *, setup_context=None, lib=None):
    """Registers the gradient of an operator.

    Args:
        op: "namespace::name", or the result of `custom_op`.
        backward: function `backward(ctx, *grads)`.
        setup_context: function `setup_context(ctx, inputs, output)` that saves values for `backward`.
        lib: accepted for compatibility, without effect.
    """
    _operator(getattr(op, "_name", op)).register_autograd(backward, setup_context=setup_context)


def define(qualname, schema=None, *, lib=None, tags=()):
    """Defines an operator. `impl` registers implementations of it.

    Args:
        qualname: "namespace::name".
        schema: names and defaults of the arguments, as "(Tensor x, int k=3) -> Tensor".
        lib, tags: accepted for compatibility, without effect.
    """
    if isinstance(qualname, str) and "::" in qualname:
        name, _, rest = qualname.partition("(")
        _define(name, f"({rest}" if rest else schema)


def _define(name, schema):
    """Defines an operator with a schema, or without one."""
    operator = _operator(name)
    operator._schema = Schema(name, schema) if schema and "(" in schema else None


class Library:
    """A namespace of operators.

    Args:
        ns: name of the namespace.
        kind: "DEF", "IMPL" or "FRAGMENT"; accepted for compatibility, without effect.
        dispatch_key: default dispatch key of `impl`.
    """

    def __init__(self, ns, kind, dispatch_key=""):
        self.ns, self.kind, self.dispatch_key = ns, kind, dispatch_key

    def define(self, schema, alias_analysis="", *, tags=()):
        """Defines an operator and returns its name."""
        name = schema.partition("(")[0].partition(".")[0]
        _define(f"{self.ns}::{name}", schema)
        return name

    def impl(self, op_name, fn, dispatch_key="", *, with_keyset=False):
        """Registers an implementation of an operator for a dispatch key."""
        name = str(getattr(op_name, "_name", op_name)).partition("::")
        _operator(f"{self.ns}::{(name[2] or name[0]).partition('.')[0]}")._implement(
            dispatch_key or self.dispatch_key, fn
        )

    def fallback(self, fn, dispatch_key="", *, with_keyset=False):
        """Accepted for compatibility, without effect."""

    def _register_fake(self, op_name, fn, *args, **kwargs):
        """Registers the function that an operator runs for tensors on the `meta` device."""
        _operator(f"{self.ns}::{op_name.rpartition('::')[2]}").register_fake(fn)

    def _destroy(self):
        """Accepted for compatibility, without effect."""
