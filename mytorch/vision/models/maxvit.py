"""MaxViT. Source: Tu et al., 2022."""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from ... import nn
from ..._tensor import Tensor
from ...nn.module import Module
from ...ops.creation import zeros
from ..ops import Conv2dNormActivation, SqueezeExcitation, StochasticDepth
from .common import relative_positions, variant


class MBConv(Module):
    """An inverted residual block with a norm before it and squeeze and excitation, which training skips at random.

    Args:
        in_channels: number of input channels.
        out_channels: number of output channels.
        expansion_ratio: number of inner channels divided by out_channels.
        squeeze_ratio: number of channels of the squeeze divided by out_channels.
        stride: stride of the depthwise convolution.
        activation_layer: class of the activations.
        norm_layer: function of the number of channels that returns a norm.
        p_stochastic_dropout: probability of skipping the block in training.
    """

    def __init__(
        self, in_channels: int, out_channels: int, expansion_ratio: float, squeeze_ratio: float, stride: int,
        activation_layer: Callable[..., Module], norm_layer: Callable[..., Module], p_stochastic_dropout: float = 0.0,
    ) -> None:  # fmt: skip
        super().__init__()
        self.proj: Module = nn.Identity()
        if stride != 1 or in_channels != out_channels:
            pool = [nn.AvgPool2d(3, stride, 1)] if stride == 2 else []
            self.proj = nn.Sequential(*pool, nn.Conv2d(in_channels, out_channels, 1))
        inner, squeezed = int(out_channels * expansion_ratio), int(out_channels * squeeze_ratio)
        self.stochastic_depth = StochasticDepth(p_stochastic_dropout, "row") if p_stochastic_dropout else nn.Identity()
        layer = partial(Conv2dNormActivation, norm_layer=norm_layer, activation_layer=activation_layer, inplace=None)
        self.layers = nn.Sequential(
            OrderedDict(
                pre_norm=norm_layer(in_channels),
                conv_a=layer(in_channels, inner, 1),
                conv_b=layer(inner, inner, 3, stride, groups=inner),
                squeeze_excitation=SqueezeExcitation(inner, squeezed, nn.SiLU),
                conv_c=nn.Conv2d(inner, out_channels, 1),
            )
        )

    def forward(self, x: Tensor) -> Tensor:
        """Converts (N, in_channels, H, W) to (N, out_channels, H / stride, W / stride).

        Args:
            x: (N, in_channels, H, W).
        """
        return self.proj(x) + self.stochastic_depth(self.layers(x))


class RelativePositionalMultiHeadAttention(Module):
    """Attention with a bias for each relative position in a square window.

    Args:
        feat_dim: number of channels.
        head_dim: number of channels of a head.
        max_seq_len: number of positions of the window.

    Raises:
        ValueError: if feat_dim is not divisible by head_dim.
    """

    def __init__(self, feat_dim: int, head_dim: int, max_seq_len: int) -> None:
        super().__init__()
        if feat_dim % head_dim:
            raise ValueError(f"feat_dim: {feat_dim} must be divisible by head_dim: {head_dim}")
        self.n_heads, self.head_dim, self.max_seq_len = feat_dim // head_dim, head_dim, max_seq_len
        self.size, self.scale_factor = int(max_seq_len**0.5), feat_dim**-0.5
        self.to_qkv, self.merge = nn.Linear(feat_dim, 3 * feat_dim), nn.Linear(feat_dim, feat_dim)
        self.relative_position_bias_table = nn.Parameter(zeros((2 * self.size - 1) ** 2, self.n_heads))
        self.register_buffer("relative_position_index", relative_positions(self.size, self.size))
        nn.init.trunc_normal_(self.relative_position_bias_table, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        """Returns a tensor of the same shape.

        Args:
            x: (N, windows, positions, feat_dim).
        """
        count, windows, length, channels = x.shape
        parts = self.to_qkv(x).reshape(count, windows, length, 3, self.n_heads, self.head_dim)
        q, k, v = parts.permute(3, 0, 1, 4, 2, 5)
        bias = self.relative_position_bias_table[self.relative_position_index].permute(2, 0, 1)
        weights = (q @ (k * self.scale_factor).mT + bias).softmax(-1)
        return self.merge((weights @ v).transpose(2, 3).reshape(count, windows, length, channels))


class PartitionAttentionLayer(Module):
    """Attention and an MLP within the windows of an image, or between equal positions of all windows.

    Args:
        in_channels: number of channels.
        head_dim: number of channels of a head.
        partition_size: height and width of a window, or of the grid.
        partition_type: "window" for windows of partition_size, "grid" for a grid of partition_size positions.
        grid_size: (height, width) of the features.
        mlp_ratio: width of the MLP divided by in_channels.
        activation_layer: class of the activation of the MLP.
        norm_layer: function of the number of channels that returns a norm.
        attention_dropout: dropout probability after the attention.
        mlp_dropout: dropout probability of the MLP.
        p_stochastic_dropout: probability of skipping a part in training.

    Raises:
        ValueError: if partition_type is unknown, or the windows do not fit in the features.
    """

    def __init__(
        self, in_channels: int, head_dim: int, partition_size: int, partition_type: str, grid_size: tuple[int, int],
        mlp_ratio: int, activation_layer: Callable[..., Module], norm_layer: Callable[..., Module],
        attention_dropout: float, mlp_dropout: float, p_stochastic_dropout: float,
    ) -> None:  # fmt: skip
        super().__init__()
        if partition_type not in ("grid", "window"):
            raise ValueError(f"partition_type must be either 'grid' or 'window', got {partition_type!r}.")
        self.partition_type, self.grid_size = partition_type, grid_size
        self.p = partition_size if partition_type == "window" else grid_size[0] // partition_size
        if grid_size[0] % self.p or grid_size[1] % self.p:
            raise ValueError(
                f"Grid size must be divisible by partition size. Got grid size of {grid_size} and partition size of {self.p}"
            )
        self.attn_layer = nn.Sequential(
            norm_layer(in_channels), RelativePositionalMultiHeadAttention(in_channels, head_dim, partition_size**2),
            nn.Dropout(attention_dropout),
        )  # fmt: skip
        self.mlp_layer = nn.Sequential(
            nn.LayerNorm(in_channels), nn.Linear(in_channels, in_channels * mlp_ratio), activation_layer(),
            nn.Linear(in_channels * mlp_ratio, in_channels), nn.Dropout(mlp_dropout),
        )  # fmt: skip
        self.stochastic_dropout = StochasticDepth(p_stochastic_dropout, "row")

    def forward(self, x: Tensor) -> Tensor:
        """Returns a tensor of the same shape.

        Args:
            x: (N, in_channels, *grid_size).
        """
        count, channels = x.shape[:2]
        rows, columns, p = self.grid_size[0] // self.p, self.grid_size[1] // self.p, self.p
        # (N, windows, positions in a window, C), or the second and third axes swapped.
        x = x.reshape(count, channels, rows, p, columns, p).permute(0, 2, 4, 3, 5, 1)
        x = x.reshape(count, rows * columns, p * p, channels)
        if self.partition_type == "grid":
            x = x.transpose(1, 2)
        x = x + self.stochastic_dropout(self.attn_layer(x))
        x = x + self.stochastic_dropout(self.mlp_layer(x))
        if self.partition_type == "grid":
            x = x.transpose(1, 2)
        x = x.reshape(count, rows, columns, p, p, channels).permute(0, 5, 1, 3, 2, 4)
        return x.reshape(count, channels, *self.grid_size)


def _halved(size):
    return ((size[0] - 1) // 2 + 1, (size[1] - 1) // 2 + 1)


class _Layers(Module):
    """Layers in the attribute `layers`, one after the other."""

    def __init__(self, layers: Module) -> None:
        super().__init__()
        self.layers = layers

    def forward(self, x: Tensor) -> Tensor:
        """Returns the result of the last layer.

        Args:
            x: input of the first layer.
        """
        for layer in self.layers.children():
            x = layer(x)
        return x


class MaxVit(Module):
    """Convolutions and attention in windows and grids: (N, 3, *input_size) to (N, num_classes).

    Args:
        input_size: (height, width) of the images.
        stem_channels: number of channels after the first convolutions.
        partition_size: height and width of the windows and grids.
        block_channels: number of channels in each block.
        block_layers: number of layers in each block.
        head_dim: number of channels of an attention head.
        stochastic_depth_prob: probability of skipping the last layer in training; it grows linearly from 0.
        norm_layer: function of the number of channels that returns a norm of the convolutions (default: batch normalization).
        activation_layer: class of the activations.
        squeeze_ratio: channels of the squeeze divided by the number of channels.
        expansion_ratio: channels in the convolutions divided by the number of channels.
        mlp_ratio: width of the MLPs divided by the number of channels.
        mlp_dropout: dropout probability of the MLPs.
        attention_dropout: dropout probability after the attention.
        num_classes: number of classes.

    Raises:
        ValueError: if the features of a block are not divisible into windows.
    """

    def __init__(
        self, input_size: tuple[int, int], stem_channels: int, partition_size: int, block_channels: Sequence[int],
        block_layers: Sequence[int], head_dim: int, stochastic_depth_prob: float,
        norm_layer: Callable[..., Module] | None = None, activation_layer: Callable[..., Module] = nn.GELU,
        squeeze_ratio: float = 0.25, expansion_ratio: float = 4, mlp_ratio: int = 4, mlp_dropout: float = 0.0,
        attention_dropout: float = 0.0, num_classes: int = 1000,
    ) -> None:  # fmt: skip
        super().__init__()
        norm = norm_layer or partial(nn.BatchNorm2d, eps=1e-3, momentum=0.01)
        size = _halved(input_size)
        sizes = [size := _halved(size) for _ in block_channels]
        for i, size in enumerate(sizes):
            if size[0] % partition_size or size[1] % partition_size:
                raise ValueError(
                    f"Input size {size} of block {i} is not divisible by partition size {partition_size}. Consider changing "
                    f"the partition size or the input size. The block input sizes are {sizes}."
                )
        self.partition_size, self.input_size = partition_size, tuple(input_size)
        layer = partial(
            Conv2dNormActivation, norm_layer=norm, activation_layer=activation_layer, bias=False, inplace=None
        )
        plain = partial(layer, norm_layer=None, activation_layer=None, bias=True)
        self.stem = nn.Sequential(layer(3, stem_channels, 3, 2), plain(stem_channels, stem_channels, 3))
        shares = iter(np.linspace(0, stochastic_depth_prob, sum(block_layers)).tolist())
        self.blocks, inside = nn.ModuleList(), stem_channels
        for size, out, layers in zip(sizes, block_channels, block_layers, strict=True):
            block = nn.ModuleList()
            for i in range(layers):
                share, stride = next(shares), 1 if i else 2
                first = MBConv(inside, out, expansion_ratio, squeeze_ratio, stride, activation_layer, norm, share)
                attention = {
                    f"{kind}_attention": PartitionAttentionLayer(
                        out, head_dim, partition_size, kind, size, mlp_ratio, activation_layer, nn.LayerNorm,
                        attention_dropout, mlp_dropout, share,
                    )
                    for kind in ("window", "grid")
                }  # fmt: skip
                block.append(_Layers(nn.Sequential(OrderedDict(MBconv=first, **attention))))
                inside = out
            self.blocks.append(_Layers(block))
        self.classifier = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LayerNorm(inside), nn.Linear(inside, inside), nn.Tanh(),
            nn.Linear(inside, num_classes, bias=False),
        )  # fmt: skip
        for module in self.modules():
            if isinstance(module, (nn.Conv2d, nn.Linear)):
                nn.init.normal_(module.weight, std=0.02)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Returns logits (N, num_classes) of images (N, 3, *input_size).

        Args:
            x: images (N, 3, *input_size).

        Raises:
            ValueError: if the images have another size.
        """
        if tuple(x.shape[-2:]) != self.input_size:
            raise ValueError(
                f"MaxVit: expected images of {self.input_size} pixels, got {tuple(x.shape[-2:])}. Resize the images or build "
                "the model with another input_size."
            )
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.classifier(x)


maxvit_t = variant(
    "maxvit_t", "Builds a tiny MaxViT.", MaxVit,
    partial(
        MaxVit, input_size=(224, 224), stem_channels=64, partition_size=7, block_channels=(64, 128, 256, 512),
        block_layers=(2, 2, 5, 2), head_dim=32, stochastic_depth_prob=0.2,
    ),
)  # fmt: skip
