"""Proxies, which record the operations on them as nodes of a graph."""

import dis
import operator
import sys
import traceback
from dataclasses import fields, is_dataclass

import numpy as np

from ..arrays import device as Device
from ..arrays.array import Size
from ..arrays.dtypes import dtype as Dtype
from ..arrays.memory_format import memory_format
from ..arrays.tensor import Tensor
from ..compat import overrides
from .node import Node, map_aggregate

_BASE = (
    str,
    int,
    float,
    bool,
    complex,
    bytes,
    Dtype,
    Device,
    Tensor,
    memory_format,
    range,
    slice,
    type(None),
    type(...),
)


class TraceError(ValueError):
    """Raised for programs that cannot be traced, for example with control flow that depends on values."""


class TracerBase:
    """Creates nodes and proxies. `Tracer` adds the trace of a function or module."""

    record_stack_traces = False
    trace_asserts = False
    proxy_buffer_attributes = False
    traced_func_name = "forward"

    def create_node(self, kind, target, args, kwargs, name=None, type_expr=None):
        """Adds a node to the graph. Override it to change or to check nodes.

        Args:
            kind: the op, such as "call_function".
            name: proposed name (default: from the target).
            type_expr: type annotation (default: None).
        """
        return self.graph.create_node(kind, target, args, kwargs, name, type_expr)

    def proxy(self, node):
        """Returns a Proxy for a node."""
        return Proxy(node, self)

    def create_proxy(self, kind, target, args, kwargs, name=None, type_expr=None, proxy_factory_fn=None):
        """Adds a node to the graph and returns its Proxy.

        Args:
            kind: the op.
            args: positional arguments, which may contain proxies.
            name: proposed name.
            type_expr: type annotation.
            proxy_factory_fn: function from the node to its proxy (default: `self.proxy`).
        """
        args, kwargs = self.create_arg(args), self.create_arg(kwargs)
        node = self.create_node(kind, target, tuple(args), dict(kwargs), name, type_expr)
        if self.record_stack_traces:
            frames = [f for f in traceback.extract_stack() if not _is_internal(f.filename)]
            node.stack_trace = "".join(traceback.StackSummary.from_list(frames).format())
        return (proxy_factory_fn or self.proxy)(node)

    def create_arg(self, a):
        """Converts an argument of an operation to an argument of a node. Override it to support other types.

        Args:
            a: the argument.

        Raises:
            NotImplementedError: the type is not supported.
        """
        if isinstance(a, Proxy):
            return a.node
        if isinstance(a, tuple) and hasattr(a, "_fields"):
            items = [self.create_arg(item) for item in a]
            return self.create_node("call_function", type(a), tuple(items), {}) if _has_node(items) else type(a)(*items)
        if isinstance(a, Size):
            return tuple(self.create_arg(item) for item in a) if _has_proxy(a) else a
        if isinstance(a, (tuple, list)):
            return type(a)([self.create_arg(item) for item in a])
        if isinstance(a, dict):
            for key in a:
                if isinstance(key, Proxy):
                    raise RuntimeError(
                        "create_arg: expected constant keys of a dict, got a traced value. Use a constant key."
                    )
            return {key: self.create_arg(value) for key, value in a.items()}
        if isinstance(a, slice):
            return slice(self.create_arg(a.start), self.create_arg(a.stop), self.create_arg(a.step))
        if isinstance(a, range):
            return range(self.create_arg(a.start), self.create_arg(a.stop), self.create_arg(a.step))
        if is_dataclass(a) and not isinstance(a, type):
            values = {f.name: self.create_arg(getattr(a, f.name)) for f in fields(a)}
            return self.create_node("call_function", type(a), (), values)
        if isinstance(a, (np.number, np.bool_)):
            return a.item()
        if isinstance(a, (*_BASE, Node)) or callable(a):
            return a
        raise NotImplementedError(
            f"argument of type: {type(a)}. A graph can store numbers, strings, dtypes, devices, tensors and containers of them."
        )

    def to_bool(self, obj):
        """Handles `bool(proxy)`.

        Args:
            obj: the proxy.

        Raises:
            TraceError: always. Override it to record the conversion.
        """
        raise TraceError(
            "symbolically traced variables cannot be used as inputs to control flow. Move the branch into a leaf module "
            "or a function marked with fx.wrap, or pass the value as one of `concrete_args`."
        )

    def iter(self, obj):
        """Handles `iter(proxy)`. A sequence of names on the left of an assignment is supported: `a, b = proxy`.

        Args:
            obj: the proxy.

        Raises:
            TraceError: the number of items is unknown.
        """
        frame = sys._getframe(1)
        while frame is not None and frame.f_code.co_filename == __file__:
            frame = frame.f_back
        code, at = frame.f_code.co_code, frame.f_lasti
        if dis.opname[code[at]] == "UNPACK_SEQUENCE":
            return iter([obj[i] for i in range(code[at + 1])])
        raise TraceError(
            "Proxy object cannot be iterated. This can be attempted when the Proxy is used in a loop or as a *args or "
            "**kwargs function argument. Use a leaf module or fx.wrap for the loop."
        )

    def keys(self, obj):
        """Handles `proxy.keys()` and `**proxy`.

        Args:
            obj: the proxy.
        """
        return Attribute(obj, "keys")()


def _has_node(items):
    found = []
    map_aggregate(items, lambda v: found.append(v) if isinstance(v, Node) else None)
    return bool(found)


def _has_proxy(items):
    return any(isinstance(item, Proxy) for item in items)


def _is_internal(filename):
    return filename.startswith(_PACKAGE)


_PACKAGE = __file__.removesuffix("fx/proxy.py").removesuffix("fx\\proxy.py")


class GraphAppendingTracer(TracerBase):
    """A tracer that adds nodes to an existing graph, for proxies of its nodes."""

    def __init__(self, graph):
        self.graph = graph


class Proxy:
    """A value during a trace. Operations on it, and public functions with it as an argument, add nodes to the graph.

    Args:
        node: the node that computes the value.
        tracer: the tracer (default: one that adds nodes to the graph of the node).

    Example:
        >>> graph = mytorch.fx.Graph()
        >>> x = mytorch.fx.Proxy(graph.placeholder("x"))
        >>> _ = graph.output((mytorch.relu(x) * 2).node)
        >>> mytorch.fx.GraphModule(nn.Module(), graph)(tensor([-1.0, 2.0])).tolist()
        [0.0, 4.0]
    """

    def __init__(self, node, tracer=None):
        overrides.activate()
        self.tracer, self.node = tracer or GraphAppendingTracer(node.graph), node

    def __repr__(self):
        return f"Proxy({self.node.name})"

    def __getattr__(self, name):
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return Attribute(self, name)

    def __call__(self, *args, **kwargs):
        return self.tracer.create_proxy("call_method", "__call__", (self, *args), kwargs)

    def __iter__(self):
        return self.tracer.iter(self)

    def __bool__(self):
        return self.tracer.to_bool(self)

    def __len__(self):
        raise RuntimeError(
            "'len' is not supported in symbolic tracing by default. If you want this call to be recorded, please call "
            "fx.wrap('len') at module scope"
        )

    def __contains__(self, item):
        return self.tracer.to_bool(self.tracer.create_proxy("call_function", operator.contains, (self, item), {}))

    def __setitem__(self, index, value):
        self.tracer.create_proxy("call_function", operator.setitem, (self, index, value), {})

    def keys(self):
        """Handles `**proxy`, as the tracer decides."""
        return self.tracer.keys(self)

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        tracers = {}
        map_aggregate(
            (args, kwargs), lambda v: tracers.setdefault(id(v.tracer), v.tracer) if isinstance(v, Proxy) else None
        )
        if len(tracers) != 1:
            raise RuntimeError(
                f"fx: expected proxies of one tracer, got proxies of {len(tracers)} tracers. Trace one function at a time."
            )
        tracer = next(iter(tracers.values()))
        if isinstance(func, property) or getattr(func, "__name__", "") in ("__get__", "__set__"):
            return NotImplemented
        if _is_method(func):
            return tracer.create_proxy("call_method", func.__name__, args, kwargs)
        return tracer.create_proxy("call_function", func, args, kwargs)


def _is_method(func):
    """Returns True for methods of Tensor that are not also functions of the library."""
    name = overrides.resolve_name(func)
    if name is None:
        return overrides.is_tensor_method_or_property(func)
    return name.startswith("torch.Tensor.")


class Attribute(Proxy):
    """The attribute of a proxy. If it is called, it becomes a method call; otherwise a `getattr`.

    Args:
        root: the proxy.
        attr: name of the attribute.
    """

    def __init__(self, root, attr):
        self.root, self.attr, self.tracer, self._node = root, attr, root.tracer, None

    @property
    def node(self):
        """The node of the `getattr`. It is created at the first use, since most attributes are method calls."""
        if self._node is None:
            self._node = self.tracer.create_proxy("call_function", getattr, (self.root, self.attr), {}).node
        return self._node

    def __call__(self, *args, **kwargs):
        return self.tracer.create_proxy("call_method", self.attr, (self.root, *args), kwargs)


def _operator(function):
    def record(self, *args):
        return self.tracer.create_proxy("call_function", function, (self, *args), {})

    return record


def _reflected(function):
    def record(self, other):
        return self.tracer.create_proxy("call_function", function, (other, self), {})

    return record


for _name in "add sub mul truediv floordiv mod pow matmul lshift rshift and_ or_ xor".split():
    _function = getattr(operator, _name)
    setattr(Proxy, f"__{_name.strip('_')}__", _operator(_function))
    setattr(Proxy, f"__r{_name.strip('_')}__", _reflected(_function))
for _name in "lt le gt ge eq ne getitem neg pos invert".split():
    setattr(Proxy, f"__{_name}__", _operator(getattr(operator, _name)))
Proxy.__abs__ = _operator(operator.abs)  # type: ignore[attr-defined]
Proxy.__round__ = _operator(round)  # type: ignore[attr-defined]
Proxy.__hash__ = object.__hash__  # type: ignore[method-assign]
