"""Node: one operation of a graph, in a linked list of nodes."""

import builtins
import operator
import sys
from collections.abc import Callable
from typing import Any

from ..arrays import config
from ..arrays.dtypes import dtype as Dtype
from ..compat import overrides
from ..ops.dispatch.op import Op
from .immutable_collections import immutable_dict, immutable_list

OPS = ("placeholder", "call_method", "call_module", "call_function", "get_attr", "output", "root")
Target = Callable[..., Any] | str  # what a node calls
_side_effects: set = set()


def has_side_effect(fn):
    """Marks a function, so that dead code elimination keeps its calls. Can be used as a decorator.

    Example:
        >>> def log(x):
        ...     return x
        >>> mytorch.fx.has_side_effect(log) is log
        True
    """
    _side_effects.add(fn)
    return fn


def map_aggregate(a, fn):
    """Returns a copy of nested tuples, lists, dicts and slices, with `fn` applied to each other value.

    Args:
        a: the nested value.
        fn: function of one value.

    Example:
        >>> mytorch.fx.node.map_aggregate((1, [2, {"a": 3}]), lambda x: x * 10)
        (10, [20, {'a': 30}])
    """
    if isinstance(a, tuple):
        items = [map_aggregate(item, fn) for item in a]
        return type(a)(*items) if hasattr(a, "_fields") else tuple(items)
    if isinstance(a, list):
        return immutable_list([map_aggregate(item, fn) for item in a])
    if isinstance(a, dict):
        return immutable_dict({key: map_aggregate(value, fn) for key, value in a.items()})
    if isinstance(a, slice):
        return slice(*(map_aggregate(item, fn) for item in (a.start, a.stop, a.step)))
    return fn(a)


def map_arg(a, fn):
    """Returns a copy of the arguments of a node, with `fn` applied to each Node.

    Args:
        a: the arguments.
        fn: function of one Node.

    Example:
        >>> graph = mytorch.fx.Graph()
        >>> x = graph.placeholder("x")
        >>> mytorch.fx.map_arg((x, 1), lambda node: node.name)
        ('x', 1)
    """
    return map_aggregate(a, lambda value: fn(value) if isinstance(value, Node) else value)


def package_name():
    """Returns the name of the library in generated code: "torch" in PyTorch mode, otherwise "mytorch"."""
    return "torch" if config.pytorch_mode else "mytorch"


def qualified_name(func):
    """Returns the name by which generated code calls a function, such as "torch.nn.functional.relu"."""
    if isinstance(func, Op):
        return f"ops.{func.name}"
    name = overrides.resolve_name(func)
    if name is not None:
        return package_name() + name.removeprefix("torch")
    if getattr(builtins, getattr(func, "__name__", ""), None) is func:
        return func.__name__
    module = getattr(func, "__module__", None) or ""
    if module == "_operator":
        module = "operator"
    if module.split(".")[0] in ("mytorch", "torch"):
        module = package_name() + module.removeprefix("mytorch").removeprefix("torch")
    name = getattr(func, "__qualname__", None) or getattr(func, "__name__", None) or type(func).__name__
    return f"{module}.{name}" if module else name


def resolve(name):
    """Returns the object with a full name that `qualified_name` returned, or None."""
    first, *rest = name.split(".")
    found: Any = sys.modules["mytorch"] if first in ("mytorch", "torch") else sys.modules.get(first)
    for i, part in enumerate(rest):
        inner = getattr(found, part, None)
        found = sys.modules.get(".".join((first, *rest[: i + 1]))) if inner is None else inner
    return found


class Node:
    """One operation of a `Graph`. `Graph.create_node` creates nodes.

    Attributes:
        op: "placeholder", "get_attr", "call_function", "call_module", "call_method" or "output".
        name: name of the result, unique in the graph.
        target: name of the placeholder, attribute, module or method; the function for "call_function".
        args: positional arguments. They contain Nodes for the results of other nodes.
        kwargs: keyword arguments.
        users: dict with the nodes that use the result as keys.
        meta: dict for any data, such as shapes. Transformations copy it.
        type: type annotation of the result, or None.

    Args:
        graph: the graph of the node.
        name: see above.
        op: see above.
        target: see above.
        args: see above.
        kwargs: see above.
        return_type: type annotation of the result, or None.

    Example:
        >>> graph = mytorch.fx.symbolic_trace(lambda x: x.relu() + 1).graph
        >>> [(node.op, node.name) for node in graph.nodes]
        [('placeholder', 'x'), ('call_method', 'relu'), ('call_function', 'add'), ('output', 'output')]
    """

    def __init__(self, graph, name, op, target, args, kwargs, return_type=None):
        if op not in OPS:
            raise ValueError(f"Node: expected an op in {', '.join(OPS[:-1])}, got {op!r}.")
        if op == "call_function":
            if not callable(target):
                raise ValueError(f"Node: expected a callable target of call_function, got {target!r}.")
        elif not isinstance(target, str):
            raise ValueError(f"Node: expected a string as target of {op}, got {target!r}.")
        self.graph, self.name, self.op, self.target, self.type = graph, name, op, target, return_type
        self.users, self.meta, self._inputs = {}, {}, {}
        self._prev = self._next = self
        self._erased = False
        self._args, self._kwargs = (), immutable_dict()
        self._set(args, kwargs)

    # -- arguments --------------------------------------------------------------------------------------------------

    @property
    def args(self):
        """The positional arguments."""
        return self._args

    @args.setter
    def args(self, args):
        self._set(args, self._kwargs)

    @property
    def kwargs(self):
        """The keyword arguments."""
        return self._kwargs

    @kwargs.setter
    def kwargs(self, kwargs):
        self._set(self._args, kwargs)

    def _set(self, args, kwargs):
        for node in self._inputs:
            node.users.pop(self, None)
        self._inputs = {}

        def use(node):
            self._inputs[node] = None
            node.users[self] = None
            return node

        self._args = map_arg(tuple(args), use)
        self._kwargs = map_arg(dict(kwargs), use)

    @property
    def all_input_nodes(self):
        """The nodes in the arguments, without duplicates."""
        return list(self._inputs)

    def update_arg(self, idx, arg):
        """Replaces one positional argument.

        Args:
            idx: its index.
            arg: the new argument.
        """
        args = list(self.args)
        args[idx] = arg
        self.args = tuple(args)

    def insert_arg(self, idx, arg):
        """Inserts a positional argument before an index.

        Args:
            idx: the index.
            arg: the new argument.
        """
        self.args = (*self.args[:idx], arg, *self.args[idx:])

    def update_kwarg(self, key, arg):
        """Sets one keyword argument.

        Args:
            key: its name.
            arg: the new argument.
        """
        self.kwargs = {**self.kwargs, key: arg}

    def replace_all_uses_with(self, replace_with, delete_user_cb=lambda user: True, *, propagate_meta=False):
        """Replaces this node by another node in the arguments of its users.

        Args:
            replace_with: the other node.
            delete_user_cb: function of a user. If it returns False, the user is not changed.
            propagate_meta: copy `meta` to the other node, which must have none (default: False).

        Returns:
            The list of changed nodes.
        """
        if propagate_meta:
            if replace_with.meta:
                raise ValueError(
                    f"replace_all_uses_with: expected empty meta of the new node with propagate_meta=True, got keys {list(replace_with.meta)}."
                )
            replace_with.meta.update(self.meta)
        changed = [user for user in list(self.users) if delete_user_cb(user)]
        for user in changed:
            user.replace_input_with(self, replace_with)
        return changed

    def replace_input_with(self, old_input, new_input):
        """Replaces a node in the arguments of this node.

        Args:
            old_input: the node to replace.
            new_input: the new node.
        """

        def replaced(node):
            return new_input if node is old_input else node

        self._set(map_arg(self.args, replaced), map_arg(self.kwargs, replaced))

    # -- position ---------------------------------------------------------------------------------------------------

    @property
    def next(self):
        """The next node in the graph."""
        return self._next

    @property
    def prev(self):
        """The previous node in the graph."""
        return self._prev

    def _unlink(self):
        self._prev._next, self._next._prev = self._next, self._prev

    def prepend(self, x):
        """Moves a node of this graph before this node.

        Args:
            x: the node to move.
        """
        if x.graph is not self.graph:
            raise AssertionError("Node.prepend: expected a node of the same graph, got a node of another graph.")
        if x is self:
            return
        x._unlink()
        before = self._prev
        before._next, x._prev, x._next, self._prev = x, before, self, x

    def append(self, x):
        """Moves a node of this graph after this node.

        Args:
            x: the node to move.
        """
        self._next.prepend(x)

    # -- text -------------------------------------------------------------------------------------------------------

    @property
    def stack_trace(self):
        """The stack of the program at the operation, or None if it was not recorded."""
        return self.meta.get("stack_trace")

    @stack_trace.setter
    def stack_trace(self, trace):
        self.meta["stack_trace"] = trace

    def is_impure(self, impure_random=True):
        """Returns True if dead code elimination must keep the node.

        Args:
            impure_random: treat random functions as impure (default: True).
        """
        if self.op in ("placeholder", "output"):
            return True
        if self.op == "call_function":
            name = getattr(self.target, "__name__", "")
            random = name.startswith(("rand", "bernoulli", "multinomial", "normal")) or "dropout" in name
            return self.target in _side_effects or self.target in _WRITING or (random and impure_random)
        if self.op == "call_method":
            return self.target.endswith("_") and not self.target.endswith("__")
        if self.op == "call_module":
            owner = self.graph.owning_module
            return owner is None or getattr(owner.get_submodule(self.target), "_is_impure", False)
        return False

    def target_text(self):
        """Returns the target in the notation of `print(graph)`."""
        if isinstance(self.target, str):
            return self.target
        name = qualified_name(self.target)
        return f"builtins.{name}" if getattr(builtins, name, None) is self.target else name

    def format_node(self, placeholder_names=None, maybe_return_typename=None):
        """Returns the line of `print(graph)` for this node; None for placeholders if a list collects them.

        Args:
            placeholder_names: list that collects the names of placeholders, or None.
            maybe_return_typename: list, in which item 0 becomes the type of the output, or None.
        """
        kind = "" if self.type is None else f"{type_name(self.type)} "
        if self.op == "placeholder" and placeholder_names is not None:
            placeholder_names.append(f"{self.name}{kind and f' : {kind.strip()}'}")
            return None
        head = f"%{self.name} : {kind}[num_users={len(self.users)}] = {self.op}[target={self.target_text()}]"
        if self.op == "placeholder":
            return head + (f"(default={self.args[0]!r})" if self.args else "")
        if self.op == "get_attr":
            return head
        if self.op == "output":
            if self.type is not None and maybe_return_typename:
                maybe_return_typename[0] = f" -> {type_name(self.type)}"
            return f"return {format_arg(self.args[0], top=True)}"
        args = ", ".join(map(format_arg, self.args)) + ("," if len(self.args) == 1 else "")
        kwargs = ", ".join(f"{key}: {format_arg(value)}" for key, value in self.kwargs.items())
        return f"{head}(args = ({args}), kwargs = {{{kwargs}}})"

    def __repr__(self):
        return self.name

    def __lt__(self, other):
        return self.graph.order(self) < self.graph.order(other)

    def __hash__(self):
        return id(self)

    def __eq__(self, other):
        return self is other

    def __deepcopy__(self, memo):
        return memo.get(id(self), self)


_WRITING = {operator.setitem, operator.iadd, setattr}


def type_name(kind):
    """Returns the text of a type annotation."""
    if not isinstance(kind, type) or hasattr(kind, "__origin__"):
        return str(kind).replace("mytorch.", package_name() + ".")
    module = kind.__module__
    if module in ("builtins", ""):
        return kind.__name__
    return f"{module}.{kind.__qualname__}".replace("mytorch.", package_name() + ".", 1)


def format_arg(arg, top=False):
    """Returns an argument in the notation of `print(graph)`."""
    if isinstance(arg, Node):
        return arg.name if top else f"%{arg.name}"
    if isinstance(arg, list):
        return "[" + ", ".join(format_arg(item, top) for item in arg) + "]"
    if isinstance(arg, tuple):
        return "(" + ", ".join(format_arg(item, top) for item in arg) + ("," if len(arg) == 1 else "") + ")"
    if isinstance(arg, dict):
        return "{" + ", ".join(f"{format_arg(k, top)}: {format_arg(v, top)}" for k, v in arg.items()) + "}"
    if isinstance(arg, Dtype):
        return dtype_name(arg)
    return repr(arg) if top else str(arg)


def dtype_name(dtype):
    """Returns the name of a dtype in generated code."""
    return f"{package_name()}.{dtype.name}"
