"""Passes over graphs: functions that inspect or change a GraphModule."""

from abc import ABC, abstractmethod
from typing import NamedTuple

from ...graph_module import GraphModule


class PassResult(NamedTuple):
    """The result of a pass.

    Args:
        graph_module: the module after the pass.
        modified: True if the pass changed the module.
    """

    graph_module: GraphModule
    modified: bool


class PassBase(ABC):
    """The base class of passes. Define `call`; run the pass by calling the object.

    Example:
        >>> from mytorch import fx
        >>> class CountNodes(fx.passes.infra.pass_base.PassBase):
        ...     def call(self, graph_module):
        ...         self.count = len(graph_module.graph.nodes)
        ...         return fx.passes.infra.pass_base.PassResult(graph_module, False)
        >>> count = CountNodes()
        >>> count(fx.symbolic_trace(lambda x: x + 1)).modified, count.count
        (False, 3)
    """

    def __call__(self, graph_module: GraphModule) -> PassResult | None:
        """Checks the module, runs `call`, and checks the module again.

        Returns:
            The result of `call`.
        """
        self.requires(graph_module)
        result = self.call(graph_module)
        self.ensures(graph_module)
        return result

    @abstractmethod
    def call(self, graph_module: GraphModule) -> PassResult | None:
        """Runs the pass. Subclasses define it."""

    def requires(self, graph_module: GraphModule) -> None:  # noqa: B027 (optional)
        """Runs before the pass. A subclass may raise an error for modules that it does not support."""

    def ensures(self, graph_module: GraphModule) -> None:  # noqa: B027 (optional)
        """Runs after the pass. A subclass may raise an error for a result that it does not accept."""
