"""Interpreters run a graph node by node. Override their methods to change or to observe the execution."""

from .graph import Graph
from .graph_module import GraphModule
from .node import map_aggregate, map_arg
from .proxy import Proxy
from .tracer import Tracer


class Interpreter:
    """Runs a module with a graph, one node at a time.

    Args:
        garbage_collect_values: free each value after its last use (default: True).
        graph: the graph (default: `module.graph`).

    Example:
        >>> class Count(mytorch.fx.Interpreter):
        ...     calls = 0
        ...
        ...     def call_function(self, target, args, kwargs):
        ...         self.calls += 1
        ...         return super().call_function(target, args, kwargs)
        >>> counter = Count(mytorch.fx.symbolic_trace(lambda x: mytorch.relu(x) + 1))
        >>> counter.run(tensor(-1.0)).item(), counter.calls
        (1.0, 2)
    """

    def __init__(self, module, garbage_collect_values=True, graph=None):
        self.module = module
        self.graph = module.graph if graph is None else graph
        self.submodules = dict(module.named_modules())
        self.garbage_collect_values = garbage_collect_values
        self.env, self.name, self.extra_traceback = {}, "Interpreter", True
        self._last = {}
        seen = set()
        for node in reversed(self.graph.nodes):
            for used in node.all_input_nodes:
                if used not in seen:
                    seen.add(used)
                    self._last.setdefault(node, []).append(used)

    def run(self, *args, initial_env=None, enable_io_processing=True):
        """Runs the graph.

        Args:
            args: the inputs.
            initial_env: {node: value} of nodes that do not run (default: None).
            enable_io_processing: must be True or False; graphs of this library do not process inputs.

        Returns:
            The result.
        """
        self.env = dict(initial_env or {})
        self.args_iter = iter(args)
        for node in self.graph.nodes:
            if node in self.env:
                continue
            try:
                self.env[node] = self.run_node(node)
            except Exception as error:
                if self.extra_traceback:
                    text = f"{error.args[0] if error.args else error!s}\n\nWhile executing {node.format_node()}"
                    trace = node.stack_trace
                    text += f"\nOriginal traceback:\n{trace}" if trace else ""
                    error.args = (text, *error.args[1:])
                    if isinstance(error, KeyError):
                        raise RuntimeError(text) from error
                raise
            if self.garbage_collect_values:
                for used in self._last.get(node, ()):
                    self.env.pop(used, None)
            if node.op == "output":
                return self.env[node]
        return None

    def boxed_run(self, args_list):
        """Runs the graph with inputs in a list, which is emptied.

        Args:
            args_list: the list of inputs.
        """
        args = list(args_list)
        args_list.clear()
        return self.run(*args)

    def run_node(self, n):
        """Runs one node and returns its result.

        Args:
            n: the node.
        """
        args, kwargs = self.fetch_args_kwargs_from_env(n)
        return getattr(self, n.op)(n.target, args, kwargs)

    def placeholder(self, target, args, kwargs):
        """Returns the next input, or the default.

        Args:
            target: name of the input.
            args: the default, if there is one.
            kwargs: empty.
        """
        if target.startswith("**"):
            return {}
        if target.startswith("*"):
            return tuple(self.args_iter)
        try:
            return next(self.args_iter)
        except StopIteration:
            if args:
                return args[0]
            raise RuntimeError(
                f"Expected positional argument for parameter {target}, but one was not passed in!"
            ) from None

    def get_attr(self, target, args, kwargs):
        """Returns an attribute of the module.

        Args:
            target: its name.
            args: empty.
            kwargs: empty.
        """
        return self.fetch_attr(target)

    def call_function(self, target, args, kwargs):
        """Calls a function.

        Args:
            target: the function.
        """
        return target(*args, **kwargs)

    def call_method(self, target, args, kwargs):
        """Calls a method of the first argument.

        Args:
            target: name of the method.
            args: the object and positional arguments.
        """
        first, *rest = args
        return getattr(first, target)(*rest, **kwargs)

    def call_module(self, target, args, kwargs):
        """Calls a submodule.

        Args:
            target: its name.
        """
        return self.submodules[target](*args, **kwargs)

    def output(self, target, args, kwargs):
        """Returns the result of the graph.

        Args:
            target: "output".
            args: the result.
            kwargs: empty.
        """
        return args[0]

    def fetch_attr(self, target):
        """Returns an attribute of the module.

        Args:
            target: its name, such as "layer.weight".
        """
        found = self.module
        for i, part in enumerate(target.split(".")):
            if not hasattr(found, part):
                raise RuntimeError(f"Node referenced nonexistent target {'.'.join(target.split('.')[: i + 1])}")
            found = getattr(found, part)
        return found

    def fetch_args_kwargs_from_env(self, n):
        """Returns the arguments of a node, with values for nodes.

        Args:
            n: the node.
        """
        return self.map_nodes_to_values(n.args, n), dict(self.map_nodes_to_values(n.kwargs, n))

    def map_nodes_to_values(self, args, n):
        """Returns arguments with values for nodes.

        Args:
            n: the node that uses them.
        """

        def value(node):
            if node not in self.env:
                raise RuntimeError(f"Node {n} referenced nonexistent value {node}! Run Graph.lint() to find the cause")
            return self.env[node]

        return map_arg(args, value)


class _Recorder(Tracer):
    """A tracer that adds to a new graph, in which all modules are leaves."""

    def __init__(self, module):
        super().__init__()
        self.graph, self.root = Graph(tracer_cls=getattr(module.graph, "_tracer_cls", None)), module

    def is_leaf_module(self, m, module_qualified_name):
        """Returns True."""
        return True


class Transformer(Interpreter):
    """An interpreter over proxies that creates a new graph. Override its methods to change operations.

    Args:
        module: the GraphModule.

    Example:
        >>> class NegInsteadOfRelu(mytorch.fx.Transformer):
        ...     def call_function(self, target, args, kwargs):
        ...         target = mytorch.neg if target is mytorch.relu else target
        ...         return super().call_function(target, args, kwargs)
        >>> traced = mytorch.fx.symbolic_trace(lambda x: mytorch.relu(x))
        >>> NegInsteadOfRelu(traced).transform()(tensor(2.0)).item()
        -2.0
    """

    def __init__(self, module):
        super().__init__(module)
        self.new_graph = Graph()
        self.tracer = _Recorder(module)
        self.tracer.graph = self.new_graph

    def placeholder(self, target, args, kwargs):
        """Adds a placeholder to the new graph and returns its proxy.

        Args:
            target: name of the input.
            args: the default, if there is one.
            kwargs: empty.
        """
        default = args[0] if args else ...
        return Proxy(self.new_graph.placeholder(target, default_value=default), self.tracer)

    def get_attr(self, target, args, kwargs):
        """Adds a read of an attribute and returns its proxy.

        Args:
            target: its name.
            args: empty.
            kwargs: empty.
        """
        return self.tracer.create_proxy("get_attr", target, args, kwargs)

    def call_module(self, target, args, kwargs):
        """Adds a call of a submodule and returns its proxy.

        Args:
            target: its name.
        """
        return self.tracer.call_module(self.fetch_attr(target), self.submodules[target], args, kwargs)

    def call_function(self, target, args, kwargs):
        """Adds a call of a function and returns its proxy.

        Args:
            target: the function.
        """
        return self.tracer.create_proxy("call_function", target, args, kwargs)

    def transform(self):
        """Runs the interpreter over proxies.

        Returns:
            A new GraphModule.
        """
        result = super().run()
        output = self.new_graph.output(map_aggregate(result, lambda v: v.node if isinstance(v, Proxy) else v))
        output.type = self.graph.output_node().type
        return GraphModule(self.module, self.new_graph)

    def run_node(self, n):
        """Runs one node over proxies, and copies its metadata.

        Args:
            n: the node.
        """
        value = super().run_node(n)
        if isinstance(value, Proxy) and n.meta and not value.node.meta:
            value.node.meta = dict(n.meta)
        return value
