"""Symbolic tracing: runs a function with proxies and records its operations in a graph."""

import builtins
import functools
import inspect
import math
import sys
from contextlib import ExitStack, contextmanager
from types import FunctionType

from ..arrays.tensor import Tensor
from ..nn import Module, Parameter, Sequential
from .graph import Graph
from .graph_module import GraphModule
from .node import has_side_effect, map_aggregate
from .proxy import Proxy, TracerBase

_wrapped = []  # (globals of the module, name)
_wrapped_methods = []  # (class, name)


class PHBase:
    """Marks an argument in `concrete_args` that stays an input of the graph."""

    def __repr__(self):
        return "PH"


PH = PHBase()


def wrap(fn_or_name):
    """Makes calls of a function single nodes of a trace, instead of tracing through the function. Call it at module scope.

    Args:
        fn_or_name: the name of a function in the module of the caller, such as "len"; or a function, as a decorator.

    Returns:
        The argument.

    Raises:
        RuntimeError: the argument is not a function or name, or the call is inside a function.

    Example:
        >>> mytorch.fx.wrap("len")
        'len'
    """
    frame = sys._getframe(1)
    if not isinstance(fn_or_name, str) and not callable(fn_or_name):
        raise RuntimeError(
            f"wrap: expected a function or the name of a global function, got {type(fn_or_name).__name__}. Pass a function or its name."
        )
    if frame.f_code.co_name != "<module>":
        raise NotImplementedError("wrap must be called at the top level of a module")
    name = fn_or_name if isinstance(fn_or_name, str) else fn_or_name.__name__
    if not isinstance(fn_or_name, str):
        fn_or_name._fx_wrapped = True
    _wrapped.append((frame.f_globals, name))
    return fn_or_name


def _first_proxy(args, kwargs):
    found = []
    map_aggregate((args, kwargs), lambda v: found.append(v) if isinstance(v, Proxy) else None)
    return found[0] if found else None


def _recording(function):
    """Returns a function that records a call with proxies, and otherwise calls `function`."""

    @functools.wraps(function)
    def recorded(*args, **kwargs):
        proxy = _first_proxy(args, kwargs)
        if proxy is None:
            return function(*args, **kwargs)
        return proxy.tracer.create_proxy("call_function", function, args, kwargs)

    return recorded


@contextmanager
def _replaced(store, name, value):
    """Replaces an entry of a dict, or an attribute of a class, in a `with` block."""
    is_dict = isinstance(store, dict)
    absent = object()
    before = (store if is_dict else vars(store)).get(name, absent)
    put = store.__setitem__ if is_dict else functools.partial(setattr, store)
    put(name, value)
    try:
        yield
    finally:
        if before is not absent:
            put(name, before)
        elif is_dict:
            del store[name]
        else:
            delattr(store, name)


class Tracer(TracerBase):
    """Traces functions and modules. Override its methods to change the trace.

    Args:
        autowrap_modules: modules whose functions are recorded if an argument is a proxy (default: `math`).
        autowrap_functions: further functions that are recorded as one node.
        param_shapes_constant: read shapes of parameters as constants (default: False).

    Example:
        >>> class Whole(mytorch.fx.Tracer):
        ...     def is_leaf_module(self, m, module_qualified_name):
        ...         return False
        >>> model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
        >>> [node.op for node in Whole().trace(model).nodes]
        ['placeholder', 'get_attr', 'get_attr', 'call_function', 'call_function', 'output']
    """

    def __init__(self, autowrap_modules=(math,), autowrap_functions=(), param_shapes_constant=False):
        self._autowrap_modules, self._autowrap_functions = tuple(autowrap_modules), tuple(autowrap_functions)
        self.param_shapes_constant = param_shapes_constant
        self.root, self.graph = Module(), Graph()
        self.tensor_attrs, self.submodule_paths, self._attribute_proxies = {}, None, {}

    # -- decisions --------------------------------------------------------------------------------------------------

    def is_leaf_module(self, m, module_qualified_name):
        """Returns True if a call of a module is one node. By default, these are the layers of `nn` except `Sequential`.

        Args:
            m: the module.
            module_qualified_name: its name in the root module.
        """
        return m.__module__.startswith(("mytorch.nn", "torch.nn")) and not isinstance(m, Sequential)

    def path_of_module(self, mod):
        """Returns the name of a module in the root module.

        Raises:
            NameError: it is not a submodule of the root.
        """
        if self.submodule_paths is None:
            self.submodule_paths = {id(m): name for name, m in reversed(list(self.root.named_modules()))}
        found = self.submodule_paths.get(id(mod))
        if found is None:
            found = next((name for name, m in self.root.named_modules() if m is mod), None)
        if found is None:
            raise NameError(
                f"module is not installed as a submodule: {type(mod).__name__}. Assign it to an attribute of the traced module."
            )
        return found

    def call_module(self, m, forward, args, kwargs):
        """Records or traces a call of a module.

        Args:
            m: the module.
            forward: function that runs the module.
        """
        name = self.path_of_module(m)
        if not self.is_leaf_module(m, name):
            return forward(*args, **kwargs)
        return self.create_proxy("call_module", name, args, kwargs)

    def getattr(self, attr, attr_val, parameter_proxy_cache):
        """Handles the read of an attribute of a module: parameters become `get_attr` nodes.

        Args:
            attr: name of the attribute.
            attr_val: its value.
            parameter_proxy_cache: {name: proxy} of attributes that were read before.
        """
        if not isinstance(attr_val, Tensor):
            return attr_val
        if not (isinstance(attr_val, Parameter) or self.proxy_buffer_attributes):
            return attr_val
        name = self._tensor_names().get(id(attr_val))
        if name is None:
            return attr_val
        if name not in parameter_proxy_cache:
            parameter_proxy_cache[name] = self.create_proxy("get_attr", name, (), {})
        return parameter_proxy_cache[name]

    def _tensor_names(self):
        names = {
            id(t): n
            for n, t in [
                *self.root.named_buffers(remove_duplicate=False),
                *self.root.named_parameters(remove_duplicate=False),
            ]
        }
        for prefix, module in self.root.named_modules():  # plain attributes that are tensors
            for name, value in vars(module).items():
                if isinstance(value, Tensor):
                    names.setdefault(id(value), f"{prefix}.{name}".lstrip("."))
        return names

    def create_arg(self, a):
        """Converts an argument of an operation. Tensors become `get_attr` nodes.

        Args:
            a: the argument.
        """
        if isinstance(a, Module):
            return self.create_node("get_attr", self.path_of_module(a), (), {})
        if isinstance(a, Tensor):
            name = self.tensor_attrs.get(id(a)) or self._tensor_names().get(id(a))
            if name is None:
                i = 0
                while hasattr(self.root, f"_tensor_constant{i}"):
                    i += 1
                name = f"_tensor_constant{i}"
                setattr(self.root, name, a)
            self.tensor_attrs[id(a)] = name
            return self.create_node("get_attr", name, (), {})
        return super().create_arg(a)

    # -- trace ------------------------------------------------------------------------------------------------------

    def create_args_for_root(self, root_fn, is_module, concrete_args=None):
        """Creates the placeholders of the arguments of a function.

        Args:
            root_fn: the function.
            is_module: True if its first argument is the root module.
            concrete_args: {name of an argument: constant value}, or None.

        Returns:
            The positional and keyword arguments for the call.
        """
        args, kwargs, concrete = [], {}, dict(concrete_args or {})
        parameters = list(inspect.signature(inspect.unwrap(root_fn)).parameters.values())
        if is_module:
            if not parameters:
                raise RuntimeError("Tracer: expected a forward with the argument `self`, got no argument. Add it.")
            parameters = parameters[1:]
            args.append(self.root)
        library = (root_fn.__module__ or "").startswith("mytorch.")  # its annotations are for type checkers
        for p in parameters:
            p = p.replace(annotation=p.empty) if library else p
            if p.kind is p.VAR_POSITIONAL:
                args.append(_Variadic(self.create_proxy("placeholder", f"*{p.name}", (), {}, p.name)))
                continue
            if p.kind is p.VAR_KEYWORD:
                kwargs["**"] = self.create_proxy("placeholder", f"**{p.name}", (), {}, p.name)
                continue
            value = self._argument(p, concrete)
            if p.kind is p.KEYWORD_ONLY:
                kwargs[p.name] = value
            else:
                args.append(value)
        if concrete:
            raise RuntimeError(
                f"concrete_args: expected names of arguments, got {', '.join(map(repr, concrete))}. Use the names of the signature."
            )
        return args, kwargs

    def _argument(self, parameter, concrete):
        default = () if parameter.default is parameter.empty else (parameter.default,)
        kind = (
            None
            if parameter.annotation is parameter.empty or isinstance(parameter.annotation, str)
            else parameter.annotation
        )
        proxy = self.create_proxy("placeholder", parameter.name, default, {}, type_expr=kind)
        if parameter.name not in concrete:
            return proxy
        value = concrete.pop(parameter.name)
        if value is PH:
            return proxy
        if isinstance(value, Proxy):
            raise TypeError("concrete_args: expected constant values, got a proxy. Pass fx.PH to keep an input.")
        if value is None or isinstance(value, (bool, int, float, str)):
            self.create_proxy("call_function", _require, (proxy, value, parameter.name), {})
        return value

    def trace(self, root, concrete_args=None):
        """Traces a function or module.

        Args:
            root: the module or function.
            concrete_args: {name of an argument: constant value} of arguments that are not inputs (default: None).

        Returns:
            The Graph.

        Raises:
            TraceError: the control flow depends on values.
        """
        if isinstance(root, Module):
            self.root, function = root, getattr(type(root), self.traced_func_name)
        else:
            self.root, function = Module(), root
        self.graph = Graph(tracer_cls=type(self))
        self.tensor_attrs, self.submodule_paths, self._attribute_proxies = {}, None, {}
        try:
            with ExitStack() as stack:
                self._patch(stack)
                args, kwargs = self.create_args_for_root(function, isinstance(root, Module), concrete_args)
                result = _call(function, args, kwargs)
                annotations = getattr(function, "__annotations__", {})
                kind = annotations.get("return") if not (function.__module__ or "").startswith("mytorch.") else None
                result = self.create_arg(result)
                self.create_node("output", "output", (result,), {}, type_expr=None if isinstance(kind, str) else kind)
        finally:
            self.submodule_paths = None
        return self.graph

    def _patch(self, stack):
        """Replaces the calls that become nodes, until the trace ends."""
        tracer, call, find = self, Module.__call__, Module.__getattr__

        def module_call(module, *args, **kwargs):
            if _first_proxy(args, kwargs) is None and not tracer._in_root(module):
                return call(module, *args, **kwargs)
            return tracer.call_module(module, functools.partial(call, module), args, kwargs)

        def module_getattr(module, name):
            return tracer.getattr(name, find(module, name), tracer._attribute_proxies)

        stack.enter_context(_replaced(Module, "__call__", module_call))
        stack.enter_context(_replaced(Module, "__getattr__", module_getattr))
        for module in self._autowrap_modules:
            for name, value in list(vars(module).items()):
                if not name.startswith("_") and callable(value) and not isinstance(value, type):
                    stack.enter_context(_replaced(vars(module), name, _recording(value)))
        functions = {id(f) for f in self._autowrap_functions}
        seen = set()
        for names, name in _wrapped:
            value = names.get(name, getattr(builtins, name, None))
            if value is not None and (id(names), name) not in seen:
                seen.add((id(names), name))
                stack.enter_context(_replaced(names, name, _recording(value)))
        if functions:
            for module in list(sys.modules.values()):
                for name, value in list(getattr(module, "__dict__", {}).items()):
                    if isinstance(value, FunctionType) and id(value) in functions:
                        stack.enter_context(_replaced(vars(module), name, _recording(value)))

    def _in_root(self, module):
        try:
            self.path_of_module(module)
        except NameError:
            return False
        return True


class _Variadic:
    """The placeholder of `*args`. `_call` passes it in a way that the function receives the proxy itself."""

    def __init__(self, proxy):
        self.proxy = proxy


def _call(function, args, kwargs):
    """Calls a function. The proxies of `*args` and `**kwargs` replace the tuple and dict that Python creates."""
    if not any(isinstance(a, _Variadic) for a in args) and "**" not in kwargs:
        return function(*args, **kwargs)
    inner = inspect.unwrap(function)
    code = inner.__code__
    plain = FunctionType(
        code.replace(
            co_flags=code.co_flags & ~(inspect.CO_VARARGS | inspect.CO_VARKEYWORDS),
            co_argcount=code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS),
            co_kwonlyargcount=0,
            co_posonlyargcount=0,
        ),
        inner.__globals__, inner.__name__, None, inner.__closure__,
    )  # fmt: skip
    rest = kwargs.pop("**", None)
    variadic = [a.proxy for a in args if isinstance(a, _Variadic)]
    named = [kwargs[n] for n in code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]]
    positional = [a for a in args if not isinstance(a, _Variadic)]
    return plain(*positional, *named, *variadic, *([] if rest is None else [rest]))


def _require(value, expected, name):
    """Checks an argument that was a constant during the trace."""
    if value is not expected and value != expected:
        raise AssertionError(
            f"{name} has been specialized to have value {expected} but got another value, {value!r}. Trace the module again."
        )


def symbolic_trace(root, concrete_args=None):
    """Records the operations of a function or module in a graph, and returns a module that runs the graph.

    The function runs once with proxies. Layers of `nn` become single nodes. Control flow must not depend on values.

    Args:
        root: the module or function.
        concrete_args: {name of an argument: constant value} of arguments that are not inputs (default: None).

    Returns:
        A GraphModule.

    Raises:
        TraceError: the control flow depends on values.

    Example:
        >>> model = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
        >>> traced = mytorch.fx.symbolic_trace(model)
        >>> x = mytorch.randn(4, 2)
        >>> bool((traced(x) == model(x)).all())
        True
    """
    tracer = Tracer()
    graph = tracer.trace(root, concrete_args)
    name = type(root).__name__ if isinstance(root, Module) else root.__name__
    return GraphModule(tracer.root, graph, name)


has_side_effect(_require)
