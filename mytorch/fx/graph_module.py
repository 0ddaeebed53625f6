"""GraphModule: a module with the code of a graph as its forward function."""

import copy
import itertools
import linecache

from ..arrays.tensor import Tensor
from ..nn import Module, Parameter
from .graph import Graph
from .node import package_name

_numbers = itertools.count()
# PyTorch's key of `meta` for attributes that copies keep. Copies keep all attributes here.
_USER_PRESERVED_ATTRIBUTES_KEY = "_user_preserved_attributes"


def _compiled(src, names):
    """Runs generated code and returns its function `forward`. Tracebacks show the lines of the code."""
    filename = f"<generated graph {next(_numbers)}>"
    linecache.cache[filename] = (len(src), None, src.splitlines(keepends=True), filename)
    names = dict(names)
    exec(compile(src, filename, "exec"), names)
    return names["forward"]


def _copy_attr(source, target, name):
    """Copies an attribute such as "layer.weight" between modules, with empty modules on the way."""
    *prefix, field = name.split(".")
    for part in prefix:
        source = getattr(source, part)
        if getattr(target, part, None) is source:
            return
        if getattr(target, part, None) is None:
            setattr(target, part, Module())
        target = getattr(target, part)
    _assign(target, field, getattr(source, field))


def _assign(target, field, value):
    if isinstance(value, Tensor) and not isinstance(value, Parameter):
        target.register_buffer(field, value)
    else:
        setattr(target, field, value)


class _CodeOnlyModule(Module):
    """A module with given attributes and no graph, from which subclasses of GraphModule copy their attributes."""

    def __init__(self, body):
        super().__init__()
        self.__dict__ = body


class GraphModule(Module):
    """A module that runs a `Graph` as generated Python code.

    The module contains the parameters, buffers and submodules that the graph uses, under the same names. After a change of
    the graph, call `recompile`.

    Args:
        root: module with the attributes of the graph, or a dict {name: attribute}.
        class_name: name of the class (default: "GraphModule").
        args: not used; the generated class receives the arguments.
        kwargs: not used; the generated class receives the arguments.

    Example:
        >>> import operator
        >>> traced = mytorch.fx.symbolic_trace(lambda x: x + 1)
        >>> for node in traced.graph.nodes:
        ...     if node.target is operator.add:
        ...         node.target = operator.mul
        ...         node.args = (node.args[0], 3)
        >>> _ = traced.recompile()
        >>> traced(tensor(2.0)).item()
        6.0
        >>> print(traced.code.strip())
        def forward(self, x):
            add = x * 3;  x = None
            return add
    """

    def __new__(cls, *args, **kwargs):
        base = next(c for c in cls.__mro__ if "_is_generated" not in vars(c))
        return super().__new__(
            type(base.__name__, (base,), {"_is_generated": True, "__module__": base.__module__, "__doc__": None})
        )

    def __init__(self, root, graph, class_name="GraphModule"):
        super().__init__()
        type(self).__name__ = type(self).__qualname__ = class_name
        if isinstance(root, Module):
            self.training = root.training
            for node in graph.nodes:
                if node.op in ("get_attr", "call_module"):
                    _copy_attr(root, self, node.target)
        elif isinstance(root, dict):
            self._fill(root, graph)
        else:
            raise RuntimeError(
                f"GraphModule: expected a Module or a dict as root, got {type(root).__name__}. Pass the traced module."
            )
        self.meta = dict(getattr(root, "meta", None) or {}) if isinstance(root, GraphModule) else {}
        self.graph = graph

    def _fill(self, root, graph):
        targets = [n.target for n in graph.nodes if n.op in ("get_attr", "call_module")]
        for target in sorted(set(targets), key=lambda name: name.count(".")):
            if target not in root:
                raise RuntimeError(
                    f"GraphModule: expected {target!r} in the dict root, since the graph uses it. Add it."
                )
            owner = self
            *prefix, field = target.split(".")
            for part in prefix:
                if getattr(owner, part, None) is None:
                    setattr(owner, part, Module())
                owner = getattr(owner, part)
            _assign(owner, field, root[target])

    @property
    def graph(self):
        """The graph. An assignment compiles the new graph."""
        return self._graph

    @graph.setter
    def graph(self, graph):
        if not isinstance(graph, Graph):
            raise AssertionError(f"GraphModule.graph: expected a Graph, got {type(graph).__name__}.")
        object.__setattr__(self, "_graph", graph)
        graph.owning_module = self
        self.recompile()

    @property
    def code(self):
        """The Python code of the graph."""
        if "_code" not in self.__dict__:
            raise RuntimeError("GraphModule.code: expected a compiled graph, got none. Call recompile().")
        return self._code

    def recompile(self):
        """Generates the code again, after a change of the graph.

        Returns:
            The PythonCode.
        """
        code = self._graph.python_code("self")
        object.__setattr__(self, "_code", code.src)
        type(self).forward = _compiled(code.src, code.globals)
        return code

    def print_readable(self, print_output=True, include_stride=False, include_device=False, colored=False):
        """Prints the module as the code of a class, with the code of nested GraphModules.

        Args:
            print_output: print the text (default: True).
            include_stride: add the strides in `meta` to the comments (default: False).
            include_device: add the devices in `meta` to the comments (default: False).
            colored: must be False.

        Returns:
            The text.
        """
        if colored:
            raise ValueError(
                "print_readable: expected colored=False, got True. Use a tool such as pygments to color the code."
            )
        code = self._graph.python_code("self", verbose=True).src.strip("\n ")
        shapes = {}
        for node in self._graph.nodes:
            meta = node.meta.get("tensor_meta")
            if hasattr(meta, "shape"):
                text = f"{meta.dtype}{list(meta.shape)}"
                text += f"{list(meta.stride)}" if include_stride else ""
                text += f" {node.meta['device']}" if include_device and "device" in node.meta else ""
                shapes[node.name] = text
        lines = []
        for line in code.splitlines():
            name = line.strip().partition(" = ")[0]
            lines.append(f"{line}  # {shapes[name]}" if name in shapes and " = " in line else line)
        text = (
            f"class {type(self).__name__}({package_name()}.nn.Module):\n"
            + "\n".join(f"    {line}".rstrip() for line in lines)
            + "\n"
        )
        for child in self.children():
            if isinstance(child, GraphModule):
                inner = child.print_readable(False, include_stride, include_device)
                text += "\n" + "\n".join(f"    {line}".rstrip() for line in inner.splitlines()) + "\n"
        if print_output:
            print(text)
        return text

    # -- submodules -------------------------------------------------------------------------------------------------

    def add_submodule(self, target, m):
        """Adds a submodule, with empty modules for the prefix of its name.

        Args:
            target: its name, such as "block.norm".
            m: the module.

        Returns:
            False if a part of the name belongs to another object, otherwise True.
        """
        owner, (*prefix, field) = self, target.split(".")
        for part in prefix:
            inner = getattr(owner, part, None)
            if inner is None:
                inner = Module()
                setattr(owner, part, inner)
            if not isinstance(inner, Module):
                return False
            owner = inner
        owner.add_module(field, m)
        return True

    def delete_submodule(self, target):
        """Deletes a submodule.

        Args:
            target: its name.

        Returns:
            False if it does not exist, otherwise True.
        """
        owner, (*prefix, field) = self, target.split(".")
        for part in prefix:
            owner = getattr(owner, part, None)
            if not isinstance(owner, Module):
                return False
        if not isinstance(getattr(owner, field, None), Module):
            return False
        delattr(owner, field)
        return True

    def delete_all_unused_submodules(self):
        """Deletes the submodules that the graph does not use."""
        used = set()
        for node in self._graph.nodes:
            if node.op in ("call_module", "get_attr"):
                parts = node.target.split(".")
                used.update(".".join(parts[: i + 1]) for i in range(len(parts)))
                if node.op == "call_module":
                    inner = self.get_submodule(node.target)
                    used.update(f"{node.target}.{name}" for name, _ in inner.named_modules() if name)
        for name in [name for name, _ in self.named_modules() if name and name not in used]:
            self.delete_submodule(name)

    # -- copies -----------------------------------------------------------------------------------------------------

    def __deepcopy__(self, memo):
        made = GraphModule.__new__(next(c for c in type(self).__mro__ if "_is_generated" not in vars(c)))
        memo[id(self)] = made
        Module.__init__(made)
        type(made).__name__ = type(made).__qualname__ = type(self).__name__
        for name, value in self.__dict__.items():
            if name not in ("_graph", "_code", "meta"):
                made.__dict__[name] = copy.deepcopy(value, memo)
        made.__dict__["meta"] = copy.copy(self.meta)
        made.graph = copy.deepcopy(self._graph, memo)
        return made

    def __copy__(self):
        made = GraphModule(self, copy.deepcopy(self._graph), type(self).__name__)
        made.meta = copy.copy(self.meta)
        return made

    def __reduce__(self):
        state = {k: v for k, v in self.__dict__.items() if k not in ("_graph", "_code")}
        base = next(c for c in type(self).__mro__ if "_is_generated" not in vars(c))
        return _rebuilt, (base, type(self).__name__, state, self._graph)

    def __str__(self):
        hint = "# To see more debug info, please use `graph_module.print_readable()`"
        return "\n".join([super().__repr__(), self._code, hint])


def _rebuilt(base, name, state, graph):
    """Returns a pickled GraphModule."""
    made = base.__new__(base)
    Module.__init__(made)
    type(made).__name__ = type(made).__qualname__ = name
    made.__dict__.update(state)
    made.graph = graph
    return made
