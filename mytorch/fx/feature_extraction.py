"""`torchvision.models.feature_extraction`: models that return intermediate results."""

import copy

from .graph_module import GraphModule, _copy_attribute
from .tracer import Tracer


class _PathTracer(Tracer):
    """A tracer that names each node by the path of its module.

    Args:
        leaves: classes of modules that are single nodes, in addition to the layers of `nn`.
        options: arguments of `Tracer`.
    """

    def __init__(self, leaves=(), **options):
        super().__init__(**options)
        self.leaves, self.path, self.names, self.counts = tuple(leaves), "", {}, {}

    def is_leaf_module(self, m, module_qualified_name):
        """Returns True for layers and for the given classes."""
        return isinstance(m, self.leaves) or super().is_leaf_module(m, module_qualified_name)

    def call_module(self, m, forward, args, kwargs):
        """Traces a call of a module, and stores its path for the nodes inside."""
        before, self.path = self.path, self.path_of_module(m)
        try:
            return super().call_module(m, forward, args, kwargs)
        finally:
            self.path = before

    def create_proxy(self, kind, target, args, kwargs, *rest, **options):
        """Adds a node, and stores its qualified name."""
        proxy = super().create_proxy(kind, target, args, kwargs, *rest, **options)
        node = proxy.node
        if kind == "call_module":
            name = self.path
        else:
            base = node.name.rpartition("_") if node.name.rpartition("_")[2].isdigit() else (node.name,)
            name = f"{self.path}.{base[0]}".lstrip(".")
        count = self.counts[name] = self.counts.get(name, -1) + 1
        self.names[node] = f"{name}_{count}" if count else name
        return proxy


def _traced(model, leaves):
    tracer = _PathTracer(leaves)
    return tracer.trace(model), tracer.names


def get_graph_node_names(model, tracer_kwargs=None, suppress_diff_warning=False):
    """Returns the names of the nodes of a model in training and in evaluation mode.

    A name is the path of the module, and for operations also the name of the operation, such as "layer1.0.add".

    Args:
        model: the module.
        tracer_kwargs: {"leaf_modules": classes of modules that are single nodes} (default: none).
        suppress_diff_warning: must be True or False; there is no warning.

    Example:
        >>> model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
        >>> mytorch.fx.feature_extraction.get_graph_node_names(model)[1]
        ['input', '0', '1']
    """
    found = []
    for mode in (True, False):
        graph, names = _traced(copy.deepcopy(model).train(mode), (tracer_kwargs or {}).get("leaf_modules", ()))
        found.append([names[n] for n in graph.nodes if n in names])
    return tuple(found)


class _Extractor(GraphModule):
    """A module with one graph for training and one for evaluation.

    Args:
        root: the module.
        graph: the graph for the current mode.
        class_name: name of the class.
    """

    def use(self, graphs):
        """Sets the graphs {True: training, False: evaluation}."""
        object.__setattr__(self, "_graphs", graphs)
        return self

    def train(self, mode=True):
        """Sets the mode and its graph."""
        super().train(mode)
        graphs = self.__dict__.get("_graphs")
        if graphs and self.graph is not graphs[mode]:
            self.graph = graphs[mode]
        return self


def create_feature_extractor(
    model, return_nodes=None, train_return_nodes=None, eval_return_nodes=None, tracer_kwargs=None, suppress_diff_warning=False
):  # fmt: skip
    """Returns a module that computes intermediate results of a model, as a dict.

    Layers after the last result are removed. The module shares the parameters of the model.

    Args:
        model: the module.
        return_nodes: names of nodes or modules as a list, or {name: key in the result}. A module stands for its result.
        train_return_nodes: the same for training mode, instead of `return_nodes`.
        eval_return_nodes: the same for evaluation mode.
        tracer_kwargs: {"leaf_modules": classes of modules that are single nodes} (default: none).
        suppress_diff_warning: must be True or False; there is no warning.

    Raises:
        ValueError: a name is not in the graph, or no names are given.

    Example:
        >>> model = mytorch.vision.models.resnet18(num_classes=10).eval()
        >>> features = mytorch.fx.feature_extraction.create_feature_extractor(model, {"layer1": "low", "layer3.1.add": "high"})
        >>> {name: tuple(x.shape) for name, x in features(mytorch.zeros(1, 3, 32, 32)).items()}
        {'low': (1, 64, 8, 8), 'high': (1, 256, 2, 2)}
    """
    if return_nodes is None and (train_return_nodes is None or eval_return_nodes is None):
        raise ValueError(
            "create_feature_extractor: expected return_nodes, or train_return_nodes and eval_return_nodes, got none. Pass a list of names."
        )
    graphs, was = {}, model.training
    states = {module: module.training for module in model.modules()}
    for mode, nodes in ((True, train_return_nodes), (False, eval_return_nodes)):
        nodes = return_nodes if nodes is None else nodes
        nodes = nodes if isinstance(nodes, dict) else {name: name for name in nodes}
        model.train(mode)
        graph, names = _traced(model, (tracer_kwargs or {}).get("leaf_modules", ()))
        graphs[mode] = _with_outputs(graph, names, {str(k): str(v) for k, v in nodes.items()})
    for module, state in states.items():
        module.training = state
    made = _Extractor(model, graphs[was], type(model).__name__)
    for node in graphs[not was].nodes:
        if node.op in ("call_module", "get_attr"):
            _copy_attribute(model, made, node.target)
    return made.use(graphs)


def _with_outputs(graph, names, wanted):
    """Replaces the output of a graph by a dict of results."""
    outputs = {}
    for name, key in wanted.items():
        exact = [n for n, own in names.items() if own == name]
        inside = [n for n, own in names.items() if own.startswith(f"{name}.")]
        if not exact and not inside:
            raise ValueError(
                f"create_feature_extractor: expected names of nodes, got {name!r}. get_graph_node_names(model) lists the names."
            )
        outputs[key] = (exact or inside)[-1]
    old = graph.output_node()
    graph.erase_node(old)
    graph.output(outputs)
    graph.eliminate_dead_code()
    for node in reversed(graph.nodes):
        if node.op not in ("placeholder", "output") and not node.users:
            graph.erase_node(node)
    graph.lint()
    return graph
