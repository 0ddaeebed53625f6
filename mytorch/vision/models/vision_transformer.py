"""Vision transformers. Source: Dosovitskiy et al., 2020."""

import math
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from ... import nn
from ..._tensor import Tensor
from ...nn.module import Module
from ...ops.creation import zeros
from ...ops.movement import cat
from ..ops import MLP, Conv2dNormActivation
from .common import variant

_NORM = partial(nn.LayerNorm, eps=1e-6)


class ConvStemConfig(NamedTuple):
    """One convolution of a convolutional stem, with its norm and activation."""

    out_channels: int
    kernel_size: int
    stride: int
    norm_layer: Callable[..., Module] = nn.BatchNorm2d
    activation_layer: Callable[..., Module] = nn.ReLU


class EncoderBlock(Module):
    """Attention and an MLP, each with a norm before it and a residual connection.

    Args:
        num_heads: number of attention heads.
        hidden_dim: number of channels.
        mlp_dim: width of the MLP.
        dropout: dropout probability.
        attention_dropout: dropout probability of the attention weights.
        norm_layer: function of the number of channels that returns a norm.
    """

    def __init__(
        self, num_heads: int, hidden_dim: int, mlp_dim: int, dropout: float, attention_dropout: float,
        norm_layer: Callable[..., Module] = _NORM,
    ) -> None:  # fmt: skip
        super().__init__()
        self.num_heads, self.ln_1, self.dropout = num_heads, norm_layer(hidden_dim), nn.Dropout(dropout)
        self.self_attention = nn.MultiheadAttention(hidden_dim, num_heads, attention_dropout, batch_first=True)
        self.ln_2 = norm_layer(hidden_dim)
        self.mlp = MLP(hidden_dim, [mlp_dim, hidden_dim], None, nn.GELU, dropout=dropout)
        for layer in (self.mlp[0], self.mlp[3]):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.normal_(layer.bias, std=1e-6)

    def forward(self, input: Tensor) -> Tensor:
        """Returns a tensor of the same shape.

        Args:
            input: (N, L, C).
        """
        x = self.ln_1(input)
        x = self.dropout(self.self_attention(x, x, x, need_weights=False)[0]) + input
        return x + self.mlp(self.ln_2(x))


class Encoder(Module):
    """Position embeddings and a sequence of blocks.

    Args:
        seq_length: length L of the sequence.
        num_layers: number of blocks.
        num_heads: number of attention heads.
        hidden_dim: number of channels.
        mlp_dim: width of the MLP.
        dropout: dropout probability.
        attention_dropout: dropout probability of the attention weights.
        norm_layer: function of the number of channels that returns a norm.
    """

    def __init__(
        self, seq_length: int, num_layers: int, num_heads: int, hidden_dim: int, mlp_dim: int, dropout: float,
        attention_dropout: float, norm_layer: Callable[..., Module] = _NORM,
    ) -> None:  # fmt: skip
        super().__init__()
        self.pos_embedding = nn.Parameter(zeros(1, seq_length, hidden_dim).normal_(std=0.02))
        self.dropout = nn.Dropout(dropout)
        blocks = (
            (f"encoder_layer_{i}", EncoderBlock(num_heads, hidden_dim, mlp_dim, dropout, attention_dropout, norm_layer))
            for i in range(num_layers)
        )
        self.layers, self.ln = nn.Sequential(OrderedDict(blocks)), norm_layer(hidden_dim)

    def forward(self, input: Tensor) -> Tensor:
        """Returns a tensor of the same shape.

        Args:
            input: (N, L, C).
        """
        return self.ln(self.layers(self.dropout(input + self.pos_embedding)))


class VisionTransformer(Module):
    """Vision transformer: a sequence of image patches and a class token, (N, 3, image_size, image_size) to (N, num_classes).

    Args:
        image_size: height and width of the images in pixels.
        patch_size: height and width of a patch in pixels.
        num_layers: number of blocks.
        num_heads: number of attention heads.
        hidden_dim: number of channels.
        mlp_dim: width of the MLP.
        dropout: dropout probability.
        attention_dropout: dropout probability of the attention weights.
        num_classes: number of classes.
        representation_size: width of an additional layer before the logits, or None.
        norm_layer: function of the number of channels that returns a norm.
        conv_stem_configs: convolutions that replace the division into patches, or None. Source: Xiao et al., 2021.
    """

    def __init__(
        self, image_size: int, patch_size: int, num_layers: int, num_heads: int, hidden_dim: int, mlp_dim: int,
        dropout: float = 0.0, attention_dropout: float = 0.0, num_classes: int = 1000, representation_size: int | None = None,
        norm_layer: Callable[..., Module] = _NORM, conv_stem_configs: list[ConvStemConfig] | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        if image_size % patch_size:
            raise ValueError(f"Input shape indivisible by patch size: {image_size} by {patch_size}.")
        self.image_size, self.patch_size, self.hidden_dim = image_size, patch_size, hidden_dim
        self.mlp_dim, self.attention_dropout, self.dropout = mlp_dim, attention_dropout, dropout
        self.num_classes, self.representation_size, self.norm_layer = num_classes, representation_size, norm_layer
        self.conv_proj = _stem(conv_stem_configs, hidden_dim, patch_size)
        self.seq_length = (image_size // patch_size) ** 2 + 1
        self.class_token = nn.Parameter(zeros(1, 1, hidden_dim))
        self.encoder = Encoder(
            self.seq_length, num_layers, num_heads, hidden_dim, mlp_dim, dropout, attention_dropout, norm_layer
        )
        layers: list[tuple[str, Module]] = [("head", nn.Linear(representation_size or hidden_dim, num_classes))]
        if representation_size is not None:
            layers[:0] = [("pre_logits", nn.Linear(hidden_dim, representation_size)), ("act", nn.Tanh())]
            nn.init.trunc_normal_(layers[0][1].weight, std=math.sqrt(1 / hidden_dim))
            nn.init.zeros_(layers[0][1].bias)
        self.heads = nn.Sequential(OrderedDict(layers))
        if conv_stem_configs is None:
            last = self.conv_proj
            nn.init.trunc_normal_(last.weight, std=math.sqrt(1 / (3 * patch_size**2)))
        else:
            last = self.conv_proj.conv_last
            nn.init.normal_(last.weight, std=math.sqrt(2 / last.out_channels))
        for tensor in (last.bias, self.heads.head.weight, self.heads.head.bias):
            nn.init.zeros_(tensor)

    def _process_input(self, x: Tensor) -> Tensor:
        """Returns the patches of images, (N, L, hidden_dim)."""
        if tuple(x.shape[-2:]) != (self.image_size, self.image_size):
            raise ValueError(f"Wrong image height or width! Expected {self.image_size} but got {tuple(x.shape[-2:])}!")
        return self.conv_proj(x).flatten(2).permute(0, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Returns logits (N, num_classes) of images (N, 3, image_size, image_size).

        Args:
            x: images (N, 3, image_size, image_size).

        Raises:
            ValueError: if the images have another size.
        """
        x = self._process_input(x)
        x = self.encoder(cat([self.class_token.expand(x.shape[0], -1, -1), x], 1))
        return self.heads(x[:, 0])


def _stem(configs, hidden_dim, patch_size):
    """Return one convolution for the patches, or the convolutions of `configs`."""
    if configs is None:
        return nn.Conv2d(3, hidden_dim, patch_size, patch_size)
    stem, inside = nn.Sequential(), 3
    for i, config in enumerate(configs):
        out, kernel, stride, norm, activation = config
        block = Conv2dNormActivation(inside, out, kernel, stride, norm_layer=norm, activation_layer=activation)
        stem.add_module(f"conv_bn_relu_{i}", block)
        inside = out
    stem.add_module("conv_last", nn.Conv2d(inside, hidden_dim, 1))
    return stem


def _variant(name, patch, layers, heads, width, mlp):
    sizes = {"patch_size": patch, "num_layers": layers, "num_heads": heads, "hidden_dim": width, "mlp_dim": mlp}
    text = f"Builds a vision transformer with {layers} layers and patches of {patch} x {patch} pixels."
    return variant(name, text, VisionTransformer, partial(VisionTransformer, image_size=224, **sizes))


vit_b_16 = _variant("vit_b_16", 16, 12, 12, 768, 3072)
vit_b_32 = _variant("vit_b_32", 32, 12, 12, 768, 3072)
vit_l_16 = _variant("vit_l_16", 16, 24, 16, 1024, 4096)
vit_l_32 = _variant("vit_l_32", 32, 24, 16, 1024, 4096)
vit_h_14 = _variant("vit_h_14", 14, 32, 16, 1280, 5120)
