"""Graphs of programs: `symbolic_trace` records a model as a graph of operations, which programs can read and change.

A `Graph` is a list of `Node`s. A `GraphModule` runs a graph as generated Python code. `Interpreter` and `Transformer` run
a graph node by node. The names and their behavior are the same as in `torch.fx`.

Source: Reed, DeVito, He, Ussery and Ansel: torch.fx, 2022.
"""

from .._extensions import lazy
from . import (
    experimental,
    graph,
    graph_module,
    immutable_collections,
    interpreter,
    node,
    passes,
    proxy,
    subgraph_rewriter,
)
from . import tracer as _symbolic_trace
from .graph import Graph
from .graph_module import GraphModule
from .interpreter import Interpreter, Transformer
from .node import Node, has_side_effect, map_arg
from .proxy import Proxy
from .subgraph_rewriter import replace_pattern
from .tracer import PH, Tracer, symbolic_trace, wrap

__all__ = [
    "PH", "Graph", "GraphModule", "Interpreter", "Node", "Proxy", "Tracer", "Transformer", "experimental", "graph",
    "graph_module", "has_side_effect", "immutable_collections", "interpreter", "map_arg", "node", "passes", "proxy", "replace_pattern",
    "subgraph_rewriter", "symbolic_trace", "wrap",
]  # fmt: skip
__getattr__, __dir__ = lazy(__name__)
