"""Weights of 8 or 4 bits: a quarter or an eighth of the memory, which is what a token costs to read."""

from collections.abc import Iterable

from .. import nn
from .._tensor import Tensor
from ..base.dtypes import int8, uint8
from ..dispatch.unwrap import raw_of
from ..engine.mode import no_grad
from ..nn import functional as F
from ..ops.quantized_linear import pack, quantized_linear


class QuantizedLinear(nn.Module):
    """x @ weightᵀ + bias, with a weight of whole numbers made of a Linear's; it is not trained.

    With 8 bits an output has one scale, its largest weight over 127. With 4 bits a group of inputs has one: its weight that is furthest from
    0 becomes -8, the others what is nearest; with zero points its least becomes -8 and its greatest 7. Inputs that are left over
    share a last group with zeros.

    Args:
        linear: the layer to stand for.
        bits: 8 or 4.
        group_size: for 4 bits, how many inputs share a scale: even; the CPU's kernel takes multiples of 32.
        zero_points: for 4 bits, let groups have an offset, too.

    Shape: as Linear's; the gradient of the input is that of the rounded weight.

    Source: Dettmers et al., LLM.int8(), 2022 (weights alone, by rows); groups: Frantar et al., GPTQ, 2023 (rounded to the nearest).
    """

    def __init__(self, linear: nn.Linear, bits: int = 8, group_size: int = 64, zero_points: bool = False):
        super().__init__()
        if bits not in (4, 8):
            raise ValueError(f"QuantizedLinear: bits is {bits}; expected 4 or 8.")
        if bits == 4 and (group_size < 2 or group_size % 2):
            raise ValueError(f"QuantizedLinear: group_size is {group_size}; expected an even number.")
        self.bits, self.group_size = bits, group_size if bits == 4 else None
        with no_grad():
            weight = linear.weight.detach().float()
            codes, scale, offset = _bytes(weight) if bits == 8 else _nibbles(weight, group_size, zero_points)
        self.register_buffer("weight", codes)
        self.register_buffer("scale", scale)
        self.register_buffer("offset", offset)
        self.register_parameter("bias", linear.bias)

    def extra_repr(self) -> str:
        return f"bits={self.bits}, group_size={self.group_size}, zero_points={self.offset is not None}"

    def forward(self, x: Tensor) -> Tensor:
        offset = None if self.offset is None else raw_of(self.offset)
        out = quantized_linear(
            x, weight=raw_of(self.weight), scale=raw_of(self.scale), offset=offset, group_size=self.group_size
        )
        return out if self.bias is None else out + self.bias


def _bytes(weight):
    scale = (weight.abs().amax(1) / 127.0).clamp(min=1e-12)
    return (weight / scale[:, None]).round().to(int8), scale, None


def _nibbles(weight, group_size, zero_points):
    out, inputs = weight.shape
    groups = F.pad(weight, (0, -inputs % group_size)).reshape(out, -1, group_size)
    if zero_points:
        least = groups.amin(2)
        scale = ((groups.amax(2) - least) / 15.0).clamp(min=1e-12)
        offset = least + scale * 8.0
    else:
        furthest = groups.gather(2, groups.abs().argmax(2, keepdim=True)).squeeze(2)
        scale, offset = furthest / -8.0, None
        scale = scale.where(scale != 0.0, 1e-12)
    shifted = groups if offset is None else groups - offset[:, :, None]
    codes = (shifted / scale[:, :, None]).round().clamp(-8, 7).to(int8).reshape(out, -1)
    raw = raw_of(codes)
    return Tensor._wrap(pack(raw, group_size)).to(uint8), scale, offset


def quantize_(
    model: nn.Module, kind: str = "int8", group_size: int = 64, zero_points: bool = False, skip: Iterable[str] = ()
) -> nn.Module:
    """Put a QuantizedLinear in the place of each Linear; the model is changed, and returned.

    Args:
        model: a module; embeddings stay as they are, also one that is the head's weight too.
        kind: "int8", a scale for each output; or "int4", one for each group of inputs.
        group_size, zero_points: of "int4"; see QuantizedLinear.
        skip: names of layers, or their ends after a dot, that stay.

    Example:
        >>> model = mytorch.models.quantize_(nn.Sequential(nn.Linear(64, 3)), "int4", group_size=32)
        >>> model[0].weight.shape, model[0].scale.shape
        (mytorch.Size([3, 32]), mytorch.Size([3, 2]))
    """
    if kind not in ("int8", "int4"):
        raise ValueError(f"quantize_: kind is {kind!r}; expected 'int8' or 'int4'.")
    skip = [f".{name}" for name in skip]
    for name, module in list(model.named_modules()):
        if type(module) is nn.Linear and not f".{name}".endswith(tuple(skip)):
            parent, _, last = name.rpartition(".")
            new = QuantizedLinear(module, int(kind[3:]), group_size, zero_points)
            setattr(model.get_submodule(parent), last, new)
    return model
