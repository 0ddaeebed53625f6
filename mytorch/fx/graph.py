"""Graph: a list of nodes, and Python code with the same computation."""

import builtins
import copy
import keyword
import math
import operator
import re
import sys
from contextlib import contextmanager
from typing import Any, NamedTuple

from ..arrays import device as Device
from ..arrays.dtypes import dtype as Dtype
from ..arrays.tensor import Tensor
from ..ops.dispatch.op import Op
from ..ops.dispatch.record import RECORDS
from . import node as _node
from .node import Node, dtype_name, map_arg, package_name, qualified_name, type_name

# Functions that generated code writes as operators.
_INFIX = {
    operator.add: "{} + {}", operator.sub: "{} - {}", operator.mul: "{} * {}", operator.truediv: "{} / {}",
    operator.floordiv: "{} // {}", operator.mod: "{} % {}", operator.pow: "{} ** {}", operator.matmul: "{} @ {}",
    operator.lshift: "{} << {}", operator.rshift: "{} >> {}", operator.and_: "{} & {}", operator.or_: "{} | {}",
    operator.xor: "{} ^ {}", operator.lt: "{} < {}", operator.le: "{} <= {}", operator.gt: "{} > {}",
    operator.ge: "{} >= {}", operator.eq: "{} == {}", operator.ne: "{} != {}", operator.getitem: "{}[{}]",
    operator.neg: "-{}", operator.pos: "+{}", operator.invert: "~{}",
}  # fmt: skip
_INPLACE = {
    operator.iadd: "+=", operator.isub: "-=", operator.imul: "*=", operator.itruediv: "/=", operator.ifloordiv: "//=",
    operator.imod: "%=", operator.ipow: "**=", operator.imatmul: "@=", operator.iand: "&=", operator.ior: "|=", operator.ixor: "^=",
}  # fmt: skip


class _Ops:
    """The ops of the library by name, for generated code."""

    def __getattr__(self, name):
        if name not in RECORDS:
            raise AttributeError(f"ops: expected the name of an op, got {name!r}.")
        return RECORDS[name]


OPS = _Ops()


class PythonCode(NamedTuple):
    """Generated code.

    Attributes:
        src: the source of the function `forward`.
        globals: {name: value} of the names that the source uses.
    """

    src: str
    globals: dict


class _Names:
    """Names that are valid, unused identifiers."""

    def __init__(self):
        self.used, self.counts = set(), {}

    def create(self, candidate):
        """Returns an unused name: the candidate, or the candidate with a number."""
        candidate = re.sub(r"\W+", "_", candidate) or "_unnamed"
        if candidate[0].isdigit():
            candidate = f"_{candidate}"
        match = re.fullmatch(r"(.*)_(\d+)", candidate)
        base, number = (match[1], int(match[2])) if match else (candidate, self.counts.get(candidate, 0))
        name = candidate
        while name in self.used or name in _RESERVED or keyword.iskeyword(name):
            number += 1
            name = f"{base}_{number}"
        self.counts[base] = max(number, self.counts.get(base, 0))
        self.used.add(name)
        return name


_RESERVED = set(dir(builtins)) | {
    "inf",
    "nan",
    "NoneType",
    "torch",
    "mytorch",
    "device",
    "self",
    "fx_pytree",
    "pytree",
    "ops",
}


class _Nodes:
    """The nodes of a graph in order. Nodes may be erased during the iteration."""

    def __init__(self, graph, step="_next"):
        self.graph, self.step = graph, step

    def __len__(self):
        return self.graph._count

    def __iter__(self):
        root = self.graph._root
        node = getattr(root, self.step)
        while node is not root:
            if not node._erased:
                yield node
            node = getattr(node, self.step)

    def __reversed__(self):
        return iter(_Nodes(self.graph, "_prev" if self.step == "_next" else "_next"))


class Graph:
    """A list of nodes that represents a computation. `GraphModule` runs a graph.

    Args:
        owning_module: the GraphModule of the graph, or None.
        tracer_cls: class of the tracer that created the graph, or None.
        tracer_extras: data of the tracer, or None.

    Example:
        >>> graph = mytorch.fx.Graph()
        >>> x = graph.placeholder("x")
        >>> y = graph.call_function(mytorch.relu, (x,))
        >>> _ = graph.output(y)
        >>> graph.lint()
        >>> mytorch.fx.GraphModule(nn.Module(), graph)(tensor([-1.0, 2.0])).tolist()
        [0.0, 2.0]
    """

    def __init__(self, owning_module=None, tracer_cls=None, tracer_extras=None):
        self._root = Node(self, "", "root", "", (), {})
        self._count = 0
        self._names = _Names()
        self._insert_before = self._root
        self.owning_module = owning_module
        self._tracer_cls, self._tracer_extras = tracer_cls, tracer_extras

    @property
    def nodes(self):
        """The nodes, in the order of execution."""
        return _Nodes(self)

    def find_nodes(self, *, op, target=None, sort=True):
        """Returns the nodes with an op, and with a target if it is given.

        Args:
            op: such as "call_function".
            target: a name or function (default: None, any target).
            sort: must be True or False; the result is in the order of execution in both cases.
        """
        return [n for n in self.nodes if n.op == op and (target is None or n.target == target)]

    def output_node(self):
        """Returns the output node.

        Raises:
            RuntimeError: the graph has no output.
        """
        found = self.find_nodes(op="output")
        if len(found) != 1:
            raise RuntimeError(
                f"output_node: expected a graph with one output, got {len(found)}. Call graph.output(…)."
            )
        return found[0]

    def order(self, node):
        """Returns the position of a node."""
        return next(i for i, other in enumerate(self.nodes) if other is node)

    # -- creation ---------------------------------------------------------------------------------------------------

    def create_node(self, op, target, args=None, kwargs=None, name=None, type_expr=None):
        """Adds a node at the insertion point, which is the end of the graph by default.

        Args:
            op: "placeholder", "get_attr", "call_function", "call_module", "call_method" or "output".
            target: name of the placeholder, attribute, module or method, or the function.
            args: positional arguments (default: none).
            kwargs: keyword arguments (default: none).
            name: proposed name of the node (default: from the target).
            type_expr: type annotation of the result (default: None).

        Returns:
            The new node.
        """
        args, kwargs = () if args is None else args, {} if kwargs is None else kwargs
        if not isinstance(args, tuple) or not isinstance(kwargs, dict):
            raise TypeError(
                f"create_node: expected a tuple args and a dict kwargs, got {type(args).__name__} and {type(kwargs).__name__}."
            )
        map_arg((args, kwargs), self._require_own)
        name = self._names.create(name if name is not None else _candidate(op, target))
        node = Node(self, name, op, target, args, kwargs, type_expr)
        self._insert_before.prepend(node)
        self._count += 1
        return node

    def _require_own(self, node):
        if node.graph is not self:
            raise RuntimeError(
                f"create_node: expected nodes of the same graph in the arguments, got {node.name} of another graph. "
                "Copy it with graph.node_copy."
            )
        return node

    def placeholder(self, name, type_expr=None, default_value=...):
        """Adds an input of the graph.

        Args:
            name: name of the input.
            type_expr: type annotation (default: None).
            default_value: default of the input (default: the input is required).
        """
        args = () if default_value is ... else (default_value,)
        return self.create_node("placeholder", name, args=args, type_expr=type_expr)

    def get_attr(self, qualified_name, type_expr=None):
        """Adds a node that reads an attribute of the module, such as a parameter.

        Args:
            qualified_name: name of the attribute, such as "layer.weight".
            type_expr: type annotation (default: None).
        """
        return self.create_node("get_attr", qualified_name, type_expr=type_expr)

    def call_module(self, module_name, args=None, kwargs=None, type_expr=None):
        """Adds a call of a submodule.

        Args:
            module_name: name of the submodule, such as "layer.0".
            type_expr: type annotation of the result (default: None).
        """
        return self.create_node("call_module", module_name, args, kwargs, type_expr=type_expr)

    def call_method(self, method_name, args=None, kwargs=None, type_expr=None):
        """Adds a call of a method of the first argument.

        Args:
            args: positional arguments, the object first.
            type_expr: type annotation of the result (default: None).
        """
        return self.create_node("call_method", method_name, args, kwargs, type_expr=type_expr)

    def call_function(self, the_function, args=None, kwargs=None, type_expr=None, name=None):
        """Adds a call of a function.

        Args:
            type_expr: type annotation of the result (default: None).
            name: proposed name of the node (default: from the function).
        """
        return self.create_node("call_function", the_function, args, kwargs, name=name, type_expr=type_expr)

    def output(self, result, type_expr=None):
        """Adds the output. It must be the last node.

        Args:
            result: nodes in nested tuples, lists and dicts.
            type_expr: type annotation of the result (default: None).
        """
        return self.create_node("output", "output", (result,), type_expr=type_expr)

    def node_copy(self, node, arg_transform=lambda x: x):
        """Adds a copy of a node of another graph.

        Args:
            arg_transform: function from each node in its arguments to a node of this graph.
        """
        args, kwargs = map_arg(node.args, arg_transform), map_arg(node.kwargs, arg_transform)
        copied = self.create_node(node.op, node.target, args, dict(kwargs), node.name, node.type)
        copied.meta = copy.copy(node.meta)
        return copied

    def graph_copy(self, g, val_map, return_output_node=False):
        """Adds copies of all nodes of another graph, except the output.

        Args:
            g: the other graph.
            val_map: dict from its nodes to nodes of this graph. The copies are added to it.
            return_output_node: also return the output node of `g` (default: False).

        Returns:
            The result of the other graph with nodes of this graph, or None if it has no output.
        """
        for node in g.nodes:
            if node in val_map:
                continue
            if node.op == "output":
                result = map_arg(node.args[0], lambda n: val_map[n])
                return (result, node) if return_output_node else result
            val_map[node] = self.node_copy(node, lambda n: val_map[n])
        return None

    # -- changes ----------------------------------------------------------------------------------------------------

    @contextmanager
    def _inserting(self, before):
        previous, self._insert_before = self._insert_before, before
        try:
            yield
        finally:
            self._insert_before = previous

    def inserting_before(self, n=None):
        """Sets the insertion point before a node, for a `with` block.

        Args:
            n: the node (default: the first node).
        """
        return self._at(self._root._next if n is None else n)

    def inserting_after(self, n=None):
        """Sets the insertion point after a node, for a `with` block.

        Args:
            n: the node (default: the start of the graph).
        """
        return self._at((self._root if n is None else n)._next, n)

    def _at(self, before, n=None):
        if (before if n is None else n).graph is not self:
            raise AssertionError("inserting: expected a node of this graph, got a node of another graph.")
        return self._inserting(before)

    def erase_node(self, to_erase):
        """Removes a node without users.

        Args:
            to_erase: the node.

        Raises:
            RuntimeError: the result of the node is used.
        """
        if to_erase.users:
            raise RuntimeError(
                f"erase_node: expected a node without users, got {to_erase} with users {list(to_erase.users)}. Call "
                "replace_all_uses_with first."
            )
        if to_erase.graph is not self:
            raise RuntimeError(f"erase_node: expected a node of this graph, got {to_erase} of another graph.")
        if to_erase._erased:
            return
        if self._insert_before is to_erase:
            self._insert_before = to_erase._next
        to_erase._unlink()
        to_erase._erased = True
        self._count -= 1
        to_erase.args, to_erase.kwargs = (), {}

    def eliminate_dead_code(self, is_impure_node=None):
        """Removes nodes with an unused result and without side effects.

        Args:
            is_impure_node: function that returns True for nodes to keep (default: `Node.is_impure`).

        Returns:
            True if the graph changed.
        """
        self.lint()
        impure = is_impure_node or Node.is_impure
        before = self._count
        for node in reversed(self.nodes):
            if not node.users and not impure(node):
                self.erase_node(node)
        return self._count != before

    def lint(self):
        """Checks the graph.

        Raises:
            RuntimeError: a node uses a later node, a node of another graph, or an absent attribute, or a name occurs twice.
        """
        seen, names = set(), set()
        for node in self.nodes:
            if node.graph is not self:
                raise RuntimeError(f"lint: expected nodes of this graph, got {node} of another graph.")
            for used in node.all_input_nodes:
                if used.graph is not self:
                    raise RuntimeError(
                        f"lint: expected arguments of this graph, got {used} of another graph in {node}."
                    )
                if used not in seen:
                    raise RuntimeError(f"lint: expected arguments that are computed before, got {used} in {node}.")
            seen.add(node)
            if node.name in names:
                raise RuntimeError(f"lint: expected unique names, got {node.name} twice.")
            names.add(node.name)
            if self.owning_module is not None and node.op in ("get_attr", "call_module"):
                self._check_attribute(node)

    def _check_attribute(self, node):
        found: Any = self.owning_module
        for part in node.target.split("."):
            if not hasattr(found, part):
                raise RuntimeError(
                    f"lint: expected an attribute of the module as target, got {node.target!r} in {node}. Add it with add_submodule or setattr."
                )
            found = getattr(found, part)

    # -- code -------------------------------------------------------------------------------------------------------

    def python_code(self, root_module, *, verbose=False):
        """Returns the Python code of the graph.

        Args:
            root_module: name of the module in the code, usually "self".
            verbose: add a comment with the line of the program before each operation (default: False).

        Example:
            >>> graph = mytorch.fx.symbolic_trace(lambda x: x + 1).graph
            >>> print(graph.python_code("self").src.strip())
            def forward(self, x):
                add = x + 1;  x = None
                return add
        """
        return _Writer(self, root_module, verbose).code()

    def on_generate_code(self, make_transformer):
        """Registers a function that changes the lines of generated code.

        Args:
            make_transformer: function of the current function or None that returns the new function.
        """
        self._transform = make_transformer(getattr(self, "_transform", None))

    def print_tabular(self):
        """Prints the nodes as a table."""
        rows = [("opcode", "name", "target", "args", "kwargs")]
        rows += [(n.op, n.name, str(n.target), str(n.args), str(dict(n.kwargs))) for n in self.nodes]
        widths = [max(len(row[i]) for row in rows) for i in range(5)]
        lines = ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows]
        print("\n".join([lines[0], "  ".join("-" * w for w in widths), *lines[1:]]))

    def __str__(self):
        lines = [f"    {node.format_node()}" for node in self.nodes]
        return "graph():\n" + "\n".join(lines)

    # -- copies -----------------------------------------------------------------------------------------------------

    def __deepcopy__(self, memo=None):
        memo = {} if memo is None else memo
        graph = Graph(tracer_cls=self._tracer_cls, tracer_extras=copy.copy(self._tracer_extras))
        memo[id(self)] = graph
        values = {}
        for node in self.nodes:
            values[node] = graph.node_copy(node, lambda n: values[n])
            values[node].name = node.name
        graph._names.used = set(self._names.used)
        graph._names.counts = dict(self._names.counts)
        if hasattr(self, "_transform"):
            graph._transform = self._transform
        return graph

    def __getstate__(self):
        rows = []
        for n in self.nodes:
            args, kwargs = map_arg((n.args, n.kwargs), lambda used: _Reference(used.name))
            rows.append((n.op, n.name, n.target, args, dict(kwargs), n.type, _plain(n.meta)))
        return {"nodes": rows, "used": self._names.used, "counts": self._names.counts, "tracer": self._tracer_cls}

    def __setstate__(self, state):
        self.__init__(tracer_cls=state["tracer"])
        by_name = {}
        for op, name, target, args, kwargs, kind, meta in state["nodes"]:
            args, kwargs = _node.map_aggregate(
                (args, kwargs), lambda v: by_name[v.name] if isinstance(v, _Reference) else v
            )
            node = by_name[name] = self.create_node(op, target, args, dict(kwargs), name, kind)
            node.name, node.meta = name, meta
        self._names.used, self._names.counts = state["used"], state["counts"]


class _Reference:
    """A node in the pickled arguments of another node."""

    def __init__(self, name):
        self.name = name


def _plain(meta):
    return {key: value for key, value in meta.items() if isinstance(value, (str, int, float, tuple, list, dict))}


def _candidate(op, target):
    """Returns the proposed name of a node."""
    if op == "call_function" and not isinstance(target, str):
        name = getattr(target, "__name__", type(target).__name__)
        name = name.strip("_") if name.startswith("_") else name
        return _snake(name)
    text = str(target)
    if op == "call_method" and text.startswith("__"):
        text = text.strip("_")
    return _snake(text.replace(".", "_")) if op != "placeholder" else text.lstrip("*")


def _snake(name):
    return re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name).lower()


class _Writer:
    """Writes the code of one graph."""

    def __init__(self, graph, root, verbose):
        self.graph, self.root, self.verbose = graph, root, verbose
        self.globals, self.wrapped = {}, []
        self.names = _Names()
        self.last_users = self._last_users()

    def code(self):
        arguments, lines, returns = [], [], ""
        type_of_result = ""
        previous = None
        for node in self.graph.nodes:
            if self.verbose and node.op not in ("placeholder", "output") and node.stack_trace not in (None, previous):
                previous = node.stack_trace
                lines += ["", f"# {previous.strip().splitlines()[0].strip()}"]
            if node.op == "placeholder":
                default = f" = {self.text(node.args[0])}" if node.args else ""
                kind = f" : {self.type(node.type)}" if node.type is not None else ""
                stars = "*" * (len(node.target) - len(node.target.lstrip("*")))
                if (
                    not stars
                    and node.target != node.name
                    and node.target.isidentifier()
                    and not keyword.iskeyword(node.target)
                ):
                    arguments.append(f"{node.target}{kind}{default}")
                    lines.append(f"{node.name} = {node.target}")
                else:
                    arguments.append(f"{stars}{node.name}{kind}{default}")
            elif node.op == "output":
                if node.type is not None:
                    type_of_result = f" -> {self.type(node.type)}"
                returns = f"return {self.text(node.args[0])}"
            else:
                lines.append(self.statement(node) + self.deletions(node))
        lines.append(returns or "pass")
        if getattr(self.graph, "_transform", None):
            lines = [line.rstrip("\n") for line in self.graph._transform([line + "\n" for line in lines])]
        head = f"def forward({', '.join([self.root, *arguments])}){type_of_result}:"
        if self.root == "":
            head = f"def forward({', '.join(arguments)}){type_of_result}:"
        wrapped = "".join(f"{package_name()}.fx.wrap({name!r})\n" for name in sorted(set(self.wrapped)))
        if wrapped:
            self.globals[package_name()] = sys.modules["mytorch"]
        body = "\n".join(f"    {line}" if line else "" for line in lines)
        return PythonCode(f"\n{wrapped}\n\n{head}\n{body}\n    ", self.globals)

    def _last_users(self):
        """Returns {node: values that are not used after it}."""
        seen, found = set(), {}
        for node in reversed(self.graph.nodes):
            for used in node.all_input_nodes:
                if used not in seen:
                    seen.add(used)
                    found.setdefault(node, []).append(used)
        return found

    def deletions(self, node):
        """Returns the statement that deletes the values without further use."""
        names = [used.name for used in self.last_users.get(node, [])] + ([] if node.users else [node.name])
        return f";  {' = '.join(names)} = None" if names else ""

    def statement(self, node):
        kind = f" : {self.type(node.type)}" if node.type is not None else ""
        name, target, args, kwargs = f"{node.name}{kind}", node.target, node.args, node.kwargs
        if node.op == "get_attr":
            return f"{name} = {self.path(target)}"
        if node.op == "call_module":
            return f"{name} = {self.path(target)}({self.arguments(args, kwargs)})"
        if node.op == "call_method":
            first = args[0]
            inner = self.text(first)
            inner = inner if isinstance(first, Node) else f"({inner})"
            return f"{name} = {inner}.{target}({self.arguments(args[1:], kwargs)})"
        if target in _INPLACE and len(args) == 2 and not kwargs and isinstance(args[0], Node):
            first = args[0].name
            return f"{first} {_INPLACE[target]} {self.operand(args[1])};  {name} = {first}"
        if target in _INFIX and not kwargs and len(args) == _INFIX[target].count("{}"):
            texts = [self.operand(args[0])]
            texts += [self.text(a) if target is operator.getitem else self.operand(a) for a in args[1:]]
            return f"{name} = {_INFIX[target].format(*texts)}"
        if target is operator.setitem and len(args) == 3 and not kwargs:
            return f"{self.operand(args[0])}[{self.text(args[1])}] = {self.text(args[2])};  {name} = None"
        if (
            target is getattr
            and len(args) == 2
            and isinstance(args[1], str)
            and args[1].isidentifier()
            and isinstance(args[0], Node)
        ):
            return f"{name} = {args[0].name}.{args[1]}"
        return f"{name} = {self.function(target)}({self.arguments(args, kwargs)})"

    def path(self, target):
        """Returns the expression for an attribute of the module, such as `getattr(self.layer, "0").weight`."""
        text = self.root
        for part in target.split("."):
            text = (
                f"{text}.{part}"
                if part.isidentifier() and not keyword.iskeyword(part)
                else f'getattr({text}, "{part}")'
            )
        return text

    def operand(self, value):
        """Returns the text of an operand of an operator, in parentheses if necessary."""
        text = self.text(value)
        number = isinstance(value, (int, float, complex)) and not isinstance(value, bool)
        return f"({text})" if number and text.startswith("-") else text

    def arguments(self, args, kwargs):
        texts = [self.text(a) for a in args]
        texts += [f"{k} = {self.text(v)}" for k, v in kwargs.items() if k.isidentifier()]
        odd = {k: v for k, v in kwargs.items() if not k.isidentifier()}
        if odd:
            texts.append(f"**{self.text(odd)}")
        return ", ".join(texts)

    def function(self, func):
        """Returns the expression for a function, and adds the names in it to the globals."""
        if isinstance(func, Op) and RECORDS.get(func.name) is func:
            self.globals["ops"] = OPS
            return f"ops.{func.name}"
        name = qualified_name(func)
        if "<" not in name and "." in name and _node.resolve(name) is func:
            first = name.split(".")[0]
            self.globals[first] = sys.modules["mytorch"] if first in ("mytorch", "torch") else sys.modules[first]
            return name
        if getattr(builtins, name, None) is func:
            return name
        if getattr(func, "_fx_wrapped", False):
            self.wrapped.append(func.__name__)
        return self.constant(func, getattr(func, "__name__", type(func).__name__))

    def constant(self, value, hint):
        """Returns a name of a global variable for a value."""
        hint = re.sub(r"\W+", "_", hint) or "value"
        name, i = hint, 0
        taken = {n.name for n in self.graph.nodes}
        while name in taken or (name in self.globals and self.globals[name] is not value) or hasattr(builtins, name):
            i += 1
            name = f"{hint}_{i}"
        self.globals[name] = value
        return name

    def type(self, kind):
        """Returns the text of an annotation."""
        name = type_name(kind)
        if isinstance(kind, type) and not hasattr(kind, "__origin__"):
            if kind.__module__ == "builtins":
                return name
            first = name.split(".")[0]
            if _node.resolve(name) is kind:
                self.globals[first] = sys.modules["mytorch"] if first in ("mytorch", "torch") else sys.modules[first]
                return name
        return self.constant(kind, re.sub(r"\W+", "_", name).strip("_") or "annotation")

    def text(self, value):
        """Returns the expression for an argument."""
        if isinstance(value, Node):
            return value.name
        if isinstance(value, tuple):
            inner = ", ".join(map(self.text, value)) + ("," if len(value) == 1 else "")
            if hasattr(value, "_fields"):
                return f"{self.function(type(value))}({inner})"
            return f"({inner})"
        if isinstance(value, list):
            return "[" + ", ".join(map(self.text, value)) + "]"
        if isinstance(value, dict):
            return "{" + ", ".join(f"{self.text(k)}: {self.text(v)}" for k, v in value.items()) + "}"
        if isinstance(value, slice):
            return f"slice({self.text(value.start)}, {self.text(value.stop)}, {self.text(value.step)})"
        if value is None or value is Ellipsis or isinstance(value, (bool, int, str, bytes)):
            return "Ellipsis" if value is Ellipsis else repr(value)
        if isinstance(value, (float, complex)):
            if isinstance(value, float) and not math.isfinite(value):
                self.globals["inf"], self.globals["nan"] = math.inf, math.nan
            elif isinstance(value, complex):
                self.globals["inf"], self.globals["nan"] = math.inf, math.nan
            return repr(value)
        if isinstance(value, Dtype):
            self.globals[package_name()] = sys.modules["mytorch"]
            return dtype_name(value)
        if isinstance(value, Device):
            self.globals["device"] = Device
            return repr(value)
        if isinstance(value, (Tensor,)):
            return self.constant(value, "_tensor")
        if callable(value):
            return self.function(value)
        return self.constant(value, type(value).__name__.lower())
