"""Backbones: the part of a network that other networks read intermediate results from."""

from collections import OrderedDict

from ... import nn
from ..._tensor import Tensor
from ...nn.module import Module


class IntermediateLayerGetter(nn.ModuleDict):
    """Runs the submodules of a network in order and returns some of the results. Submodules after the last one are left out.

    Args:
        model: network that runs its submodules in order.
        return_layers: {name of a submodule: name of its result}.

    Raises:
        ValueError: if a name is not the name of a submodule.

    Example:
        >>> model = mytorch.vision.models.resnet18()
        >>> getter = mytorch.vision.models.layer_getter.IntermediateLayerGetter(model, {"layer1": "a", "layer2": "b"})
        >>> {name: tuple(x.shape) for name, x in getter(mytorch.zeros(1, 3, 32, 32)).items()}
        {'a': (1, 64, 8, 8), 'b': (1, 128, 4, 4)}
    """

    def __init__(self, model: Module, return_layers: dict[str, str]) -> None:
        names = [name for name, _ in model.named_children()]
        if missing := [name for name in return_layers if name not in names]:
            raise ValueError(f"return_layers are not present in model: expected names in {names}, got {missing}.")
        last = max(names.index(name) for name in return_layers)
        super().__init__(OrderedDict(list(model.named_children())[: last + 1]))
        self.return_layers = dict(return_layers)

    def forward(self, x: Tensor) -> "OrderedDict[str, Tensor]":
        """Returns {name: result}.

        Args:
            x: input of the network.
        """
        out: OrderedDict[str, Tensor] = OrderedDict()
        for name, module in self.items():
            x = module(x)
            if name in self.return_layers:
                out[self.return_layers[name]] = x
        return out
