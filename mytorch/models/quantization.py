"""Weight quantization to 8 or 4 bits, which reduces the memory of float32 weights to a quarter or an eighth."""

from collections.abc import Iterable

from .. import nn
from ..arrays.dtypes import float16, int8, uint8
from ..arrays.tensor import Tensor
from ..autograd.mode import no_grad
from ..nn import functional as F
from ..nn.module import is_plain
from ..ops.dispatch.unwrap import raw_of
from ..ops.quantized_linear import pack, quantized_linear


class QuantizedLinear(nn.Module):
    """Computes x @ weightᵀ + bias with the quantized weight of a Linear. The weight is not trainable.

    With 8 bits, each output has a scale, its largest absolute weight divided by 127. With 4 bits, each group of inputs has
    a scale. The weight of a group that is furthest from 0 becomes -8. With zero points, the minimum of a group becomes -8
    and its maximum becomes 7. Inputs that do not fill a group are padded with zeros. Scales of groups are float16, as in
    Q4_0, unless one is outside of its range.

    Args:
        linear: layer to quantize.
        bits: 8 or 4.
        group_size: number of inputs per scale with 4 bits; even. The CPU kernel requires a multiple of 32.
        zero_points: add an offset to each group with 4 bits.

    Shape: as Linear. The gradient of the input is computed with the quantized weight.

    Source: Dettmers et al., LLM.int8(), 2022 (weights only, by rows). Groups: Frantar et al., GPTQ, 2023 (with rounding).
    """

    def __init__(self, linear: nn.Linear, bits: int = 8, group_size: int = 64, zero_points: bool = False):
        super().__init__()
        if bits not in (4, 8):
            raise ValueError(f"QuantizedLinear: expected bits to be 4 or 8, got {bits}.")
        if bits == 4 and (group_size < 2 or group_size % 2):
            raise ValueError(f"QuantizedLinear: expected group_size to be an even number, got {group_size}.")
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

    def _load_from_state_dict(self, state_dict, prefix, *rest):
        given = state_dict.get(prefix + "scale")
        if self.bits == 4 and isinstance(given, Tensor):
            self.scale = self.scale.to(given.dtype)  # float32 in older files, and where float16 does not suffice
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def forward(self, x: Tensor) -> Tensor:
        return _products(x, (self,))[0]


def _products(x, layers):
    weights, scales, offsets = ([raw_of(getattr(f, name)) for f in layers] for name in ("weight", "scale", "offset"))
    outs = quantized_linear(x, weights=weights, scales=scales, offsets=offsets, group_size=layers[0].group_size)
    return [out if f.bias is None else out + f.bias for out, f in zip(outs, layers, strict=True)]


def linears(x: Tensor, *layers: nn.Module) -> list[Tensor]:
    """Returns the results of several linear layers for one input. Quantized layers are one product, which reads `x` once.

    Args:
        x: input of every layer.
        *layers: the layers.
    """
    first = layers[0]
    if all(is_plain(f, QuantizedLinear) and f.group_size == first.group_size for f in layers):
        return _products(x, layers)
    return [f(x) for f in layers]


def _bytes(weight):
    scale = (weight.abs().amax(1) / 127.0).clamp(min=1e-12)
    return (weight / scale[:, None]).round().to(int8), scale, None


def _nibbles(weight, group_size, zero_points):
    out, inputs = weight.shape
    groups = F.pad(weight, (0, -inputs % group_size)).reshape(out, -1, group_size)
    if zero_points:
        least = groups.amin(2)
        scale = _shortened((groups.amax(2) - least) / 15.0)
        offset = least + scale.float() * 8.0
    else:
        furthest = groups.gather(2, groups.abs().argmax(2, keepdim=True)).squeeze(2)
        scale, offset = _shortened(furthest / -8.0), None
    scale = scale.where(scale != 0.0, 1.0)  # the codes of such a group are 0
    shifted = groups if offset is None else groups - offset[:, :, None]
    codes = (shifted / scale[:, :, None].float()).round().clamp(-8, 7).to(int8).reshape(out, -1)
    raw = raw_of(codes)
    return Tensor._wrap(pack(raw, group_size)).to(uint8), scale, offset


def _shortened(scale):
    """Returns the scales as float16 if that changes no weight by more than the rounding to 4 bits does.

    The weight furthest from 0 is 8 scales. From 2^-20 on, the error of a scale is at most 1/32 of it.
    """
    size = scale.abs()
    fits = (size == 0.0) | ((size >= 2.0**-20) & (size <= 65504.0))
    return scale.to(float16) if fits.all() else scale


def quantize_(
    model: nn.Module, kind: str = "int8", group_size: int = 64, zero_points: bool = False, skip: Iterable[str] = ()
) -> nn.Module:
    """Replaces each Linear by a QuantizedLinear.

    Args:
        model: module to change in place; it is also returned. Embeddings do not change.
        kind: "int8", one scale per output, or "int4", one scale per group of inputs.
        group_size: number of inputs per group for "int4"; see QuantizedLinear.
        zero_points: offsets for "int4"; see QuantizedLinear.
        skip: names of layers to keep, or last parts of names.

    Example:
        >>> model = mytorch.models.quantize_(nn.Sequential(nn.Linear(64, 3)), "int4", group_size=32)
        >>> model[0].weight.shape, model[0].scale.shape
        (mytorch.Size([3, 32]), mytorch.Size([3, 2]))
    """
    if kind not in ("int8", "int4"):
        raise ValueError(f"quantize_: expected kind to be 'int8' or 'int4', got {kind!r}.")
    skip = [f".{name}" for name in skip]
    for name, module in list(model.named_modules()):
        if type(module) is nn.Linear and not f".{name}".endswith(tuple(skip)):
            parent, _, last = name.rpartition(".")
            new = QuantizedLinear(module, int(kind[3:]), group_size, zero_points)
            setattr(model.get_submodule(parent), last, new)
    return model
