"""Weights as int8 with a scale for each output: a quarter of the memory, which is what a token costs to read."""

from collections.abc import Iterable

from .. import nn
from ..base.dtypes import int8
from ..graph.mode import no_grad
from ..ops.int8_linear import int8_linear
from ..ops.raw import raw_of
from ..tensor import Tensor


class Int8Linear(nn.Module):
    """x @ (weight * scale)ᵀ + bias, with the int8 weight and the scale made of a Linear's; neither is trained.

    An output's scale is its largest weight over 127, so that a weight is off by half a scale at most.

    Args:
        linear: the layer to stand for.

    Shape: as Linear's; the gradient of the input is that of the rounded weight.

    Source: Dettmers et al., LLM.int8(), 2022 (weights alone, by rows).
    """

    def __init__(self, linear: nn.Linear):
        super().__init__()
        with no_grad():
            weight = linear.weight.detach().float()
            scale = (weight.abs().amax(1) / 127.0).clamp(min=1e-12)
            self.register_buffer("weight", (weight / scale[:, None]).round().to(int8))
            self.register_buffer("scale", scale)
        self.register_parameter("bias", linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        out = int8_linear(x, weight=raw_of(self.weight), scale=raw_of(self.scale))
        return out if self.bias is None else out + self.bias


def quantize(model: nn.Module, skip: Iterable[str] = ()) -> nn.Module:
    """Put an Int8Linear in the place of each Linear; the model is changed, and returned.

    Args:
        model: a module; embeddings stay as they are, also one that is the head's weight too.
        skip: names of layers, or their ends after a dot, that stay.

    Example:
        >>> model = mytorch.models.int8.quantize(nn.Sequential(nn.Linear(4, 3)))
        >>> model[0].weight.dtype
        mytorch.int8
    """
    skip = [f".{name}" for name in skip]
    for name, module in list(model.named_modules()):
        if type(module) is nn.Linear and not f".{name}".endswith(tuple(skip)):
            parent, _, last = name.rpartition(".")
            setattr(model.get_submodule(parent), last, Int8Linear(module))
    return model
