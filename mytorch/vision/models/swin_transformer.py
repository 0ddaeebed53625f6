"""Swin transformers. Source: Liu et al., 2021; version 2: Liu et al., 2022."""

import math
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from ... import nn
from ..._tensor import Tensor
from ...nn import functional as F
from ...nn.module import Module
from ...ops.creation import as_tensor, full, zeros
from ...ops.movement import cat
from ..ops import MLP, Permute, StochasticDepth
from .common import relative_positions, variant


class PatchMerging(Module):
    """Halves the resolution: combines 2 x 2 positions by normalization and a linear layer.

    Args:
        dim: number of input channels.
        norm_layer: function of the number of channels that returns a norm.
    """

    def __init__(self, dim: int, norm_layer: Callable[..., Module] = nn.LayerNorm) -> None:
        super().__init__()
        self.dim, self.reduction, self.norm = dim, nn.Linear(4 * dim, 2 * dim, bias=False), self._norm(dim, norm_layer)

    @staticmethod
    def _norm(dim, norm_layer):
        return norm_layer(4 * dim)

    @staticmethod
    def _merged(x):
        """Return (…, H / 2, W / 2, 4 C) of (…, H, W, C), with zeros after an odd number of positions."""
        x = F.pad(x, (0, 0, 0, x.shape[-2] % 2, 0, x.shape[-3] % 2))
        return cat([x[..., row::2, column::2, :] for column in (0, 1) for row in (0, 1)], -1)

    def forward(self, x: Tensor) -> Tensor:
        """Converts (…, H, W, dim) to (…, H / 2, W / 2, 2 * dim).

        Args:
            x: (…, H, W, dim).
        """
        return self.reduction(self.norm(self._merged(x)))


class PatchMergingV2(PatchMerging):
    """Halves the resolution: combines 2 x 2 positions by a linear layer and normalization.

    Args:
        dim: number of input channels.
        norm_layer: function of the number of channels that returns a norm.
    """

    @staticmethod
    def _norm(dim, norm_layer):
        return norm_layer(2 * dim)

    def forward(self, x: Tensor) -> Tensor:
        """Converts (…, H, W, dim) to (…, H / 2, W / 2, 2 * dim).

        Args:
            x: (…, H, W, dim).
        """
        return self.norm(self.reduction(self._merged(x)))


class ShiftedWindowAttention(Module):
    """Attention within windows of an image, with a bias for each relative position. The windows can be shifted cyclically.

    Args:
        dim: number of channels.
        window_size: (height, width) of the windows.
        shift_size: (rows, columns) of the shift.
        num_heads: number of attention heads.
        qkv_bias: add a bias to queries, keys and values.
        proj_bias: add a bias to the result.
        attention_dropout: dropout probability of the attention weights.
        dropout: dropout probability of the result.

    Raises:
        ValueError: if window_size or shift_size does not have two numbers.
    """

    def __init__(
        self, dim: int, window_size: Sequence[int], shift_size: Sequence[int], num_heads: int, qkv_bias: bool = True,
        proj_bias: bool = True, attention_dropout: float = 0.0, dropout: float = 0.0,
    ) -> None:  # fmt: skip
        super().__init__()
        if len(window_size) != 2 or len(shift_size) != 2:
            raise ValueError(
                f"window_size and shift_size must be of length 2, got {list(window_size)} and {list(shift_size)}."
            )
        self.window_size, self.shift_size, self.num_heads = list(window_size), list(shift_size), num_heads
        self.attention_dropout, self.dropout = attention_dropout, dropout
        self.qkv, self.proj = nn.Linear(dim, 3 * dim, bias=qkv_bias), nn.Linear(dim, dim, bias=proj_bias)
        self._define_bias()
        self.register_buffer("relative_position_index", relative_positions(*self.window_size).flatten())

    def _define_bias(self):
        height, width = self.window_size
        self.relative_position_bias_table = nn.Parameter(zeros((2 * height - 1) * (2 * width - 1), self.num_heads))
        nn.init.trunc_normal_(self.relative_position_bias_table, std=0.02)

    def _bias_table(self):
        return self.relative_position_bias_table

    def _weights(self, q, k):
        """Return the attention weights before the softmax, without the bias."""
        return q * q.shape[-1] ** -0.5 @ k.mT

    def _qkv_bias(self):
        return self.qkv.bias

    def get_relative_position_bias(self) -> Tensor:
        """Returns the bias of each pair of positions in a window, (1, num_heads, L, L)."""
        size = self.window_size[0] * self.window_size[1]
        return self._bias_table()[self.relative_position_index].reshape(size, size, -1).permute(2, 0, 1)[None]

    def forward(self, x: Tensor) -> Tensor:
        """Returns a tensor of the same shape.

        Args:
            x: (N, H, W, dim).
        """
        count, height, width, channels = x.shape
        (tall, wide), heads = self.window_size, self.num_heads
        x = F.pad(x, (0, 0, 0, -width % wide, 0, -height % tall))
        rows, columns = x.shape[1] // tall, x.shape[2] // wide
        # Windows that cover the whole image are not shifted.
        shift = [0 if n == 1 else s for n, s in zip((rows, columns), self.shift_size, strict=True)]
        if any(shift):
            x = x.roll((-shift[0], -shift[1]), (1, 2))
        x = x.reshape(count, rows, tall, columns, wide, channels).transpose(2, 3).reshape(-1, tall * wide, channels)
        qkv = F.linear(x, self.qkv.weight, self._qkv_bias())
        q, k, v = qkv.reshape(len(x), tall * wide, 3, heads, -1).permute(2, 0, 3, 1, 4)
        weights = self._weights(q, k) + self.get_relative_position_bias()
        if any(shift):
            mask = as_tensor(self._mask(rows, columns, shift), dtype=x.dtype, device=x.device)
            grouped = weights.reshape(count, rows * columns, heads, tall * wide, tall * wide) + mask[:, None]
            weights = grouped.reshape(weights.shape)
        weights = F.dropout(weights.softmax(-1), self.attention_dropout, self.training)
        x = F.dropout(self.proj((weights @ v).transpose(1, 2).flatten(2)), self.dropout, self.training)
        x = x.reshape(count, rows, columns, tall, wide, channels).transpose(2, 3)
        x = x.reshape(count, rows * tall, columns * wide, channels)
        if any(shift):
            x = x.roll((shift[0], shift[1]), (1, 2))
        return x[:, :height, :width]

    def _mask(self, rows, columns, shift):
        """Return -100 for pairs in a window that are not neighbors in the image, because of the cyclic shift: (windows, L, L)."""
        (tall, wide), regions = self.window_size, []
        for length, window, step in zip((rows * tall, columns * wide), (tall, wide), shift, strict=True):
            at = np.arange(length)
            # A shift of 0 makes one more region of all positions, as `x[-0:]` selects all of `x`.
            regions.append(np.where(at >= length - step, 2, at >= length - window) if step else np.full(length, 2))
        number = (regions[0][:, None] * 3 + regions[1]).reshape(rows, tall, columns, wide)
        number = number.transpose(0, 2, 1, 3).reshape(rows * columns, tall * wide)
        return np.where(number[:, None] == number[:, :, None], 0.0, -100.0)


class ShiftedWindowAttentionV2(ShiftedWindowAttention):
    """Attention of cosines within windows; a small network computes the biases from the relative positions.

    Args:
        dim: number of channels.
        window_size: (height, width) of the windows.
        shift_size: (rows, columns) of the shift.
        num_heads: number of attention heads.
        qkv_bias: add a bias to queries and values.
        proj_bias: add a bias to the result.
        attention_dropout: dropout probability of the attention weights.
        dropout: dropout probability of the result.

    Raises:
        ValueError: if window_size or shift_size does not have two numbers.
    """

    def __init__(
        self, dim: int, window_size: Sequence[int], shift_size: Sequence[int], num_heads: int, qkv_bias: bool = True,
        proj_bias: bool = True, attention_dropout: float = 0.0, dropout: float = 0.0,
    ) -> None:  # fmt: skip
        super().__init__(dim, window_size, shift_size, num_heads, qkv_bias, proj_bias, attention_dropout, dropout)
        self.logit_scale = nn.Parameter(full((num_heads, 1, 1), math.log(10)))
        self.cpb_mlp = nn.Sequential(nn.Linear(2, 512), nn.ReLU(inplace=True), nn.Linear(512, num_heads, bias=False))
        if qkv_bias:
            nn.init.zeros_(self.qkv.bias[dim : 2 * dim].data)

    def _define_bias(self):
        sides = [np.arange(1 - n, n, dtype=np.float32) / (n - 1) * 8 for n in self.window_size]
        table = np.stack(np.meshgrid(*sides, indexing="ij"), -1)[None]
        self.register_buffer("relative_coords_table", as_tensor(np.sign(table) * np.log2(np.abs(table) + 1) / 3))

    def _bias_table(self):
        return 16 * self.cpb_mlp(self.relative_coords_table).reshape(-1, self.num_heads).sigmoid()

    def _weights(self, q, k):
        return F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).mT * self.logit_scale.clamp(max=math.log(100)).exp()

    def _qkv_bias(self):
        if self.qkv.bias is None:
            return None
        query, key, value = self.qkv.bias.chunk(3)
        return cat([query, key.new_zeros(key.shape), value])


class SwinTransformerBlock(Module):
    """Attention in windows and an MLP, each with a norm before it and a residual connection.

    Args:
        dim: number of channels.
        num_heads: number of attention heads.
        window_size: (height, width) of the windows.
        shift_size: (rows, columns) of the shift.
        mlp_ratio: width of the MLP divided by dim.
        dropout: dropout probability.
        attention_dropout: dropout probability of the attention weights.
        stochastic_depth_prob: probability of skipping a part of the block in training.
        norm_layer: function of the number of channels that returns a norm.
        attn_layer: class of the attention.
    """

    def __init__(
        self, dim: int, num_heads: int, window_size: Sequence[int], shift_size: Sequence[int], mlp_ratio: float = 4.0,
        dropout: float = 0.0, attention_dropout: float = 0.0, stochastic_depth_prob: float = 0.0,
        norm_layer: Callable[..., Module] = nn.LayerNorm, attn_layer: Callable[..., Module] = ShiftedWindowAttention,
    ) -> None:  # fmt: skip
        super().__init__()
        self.norm1 = norm_layer(dim)
        self.attn = attn_layer(
            dim, window_size, shift_size, num_heads, attention_dropout=attention_dropout, dropout=dropout
        )
        self.stochastic_depth, self.norm2 = StochasticDepth(stochastic_depth_prob, "row"), norm_layer(dim)
        self.mlp = MLP(dim, [int(dim * mlp_ratio), dim], activation_layer=nn.GELU, dropout=dropout)
        for layer in self.mlp.modules():
            if isinstance(layer, nn.Linear):
                nn.init.xavier_uniform_(layer.weight)
                nn.init.normal_(layer.bias, std=1e-6)

    def forward(self, x: Tensor) -> Tensor:
        """Returns a tensor of the same shape.

        Args:
            x: (N, H, W, dim).
        """
        x = x + self.stochastic_depth(self.attn(self.norm1(x)))
        return x + self.stochastic_depth(self.mlp(self.norm2(x)))


class SwinTransformerBlockV2(SwinTransformerBlock):
    """Attention in windows and an MLP, each with a norm after it and a residual connection.

    Args:
        dim: number of channels.
        num_heads: number of attention heads.
        window_size: (height, width) of the windows.
        shift_size: (rows, columns) of the shift.
        mlp_ratio: width of the MLP divided by dim.
        dropout: dropout probability.
        attention_dropout: dropout probability of the attention weights.
        stochastic_depth_prob: probability of skipping a part of the block in training.
        norm_layer: function of the number of channels that returns a norm.
        attn_layer: class of the attention.
    """

    def __init__(
        self, dim: int, num_heads: int, window_size: Sequence[int], shift_size: Sequence[int], mlp_ratio: float = 4.0,
        dropout: float = 0.0, attention_dropout: float = 0.0, stochastic_depth_prob: float = 0.0,
        norm_layer: Callable[..., Module] = nn.LayerNorm, attn_layer: Callable[..., Module] = ShiftedWindowAttentionV2,
    ) -> None:  # fmt: skip
        super().__init__(
            dim, num_heads, window_size, shift_size, mlp_ratio, dropout, attention_dropout, stochastic_depth_prob,
            norm_layer, attn_layer,
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        """Returns a tensor of the same shape.

        Args:
            x: (N, H, W, dim).
        """
        x = x + self.stochastic_depth(self.norm1(self.attn(x)))
        return x + self.stochastic_depth(self.norm2(self.mlp(x)))


class SwinTransformer(Module):
    """Stages of attention in shifted windows: (N, 3, H, W) to (N, num_classes).

    Args:
        patch_size: (height, width) of a patch in pixels.
        embed_dim: number of channels in the first stage; each stage doubles the number.
        depths: number of blocks in each stage.
        num_heads: number of attention heads in each stage.
        window_size: (height, width) of the windows in patches.
        mlp_ratio: width of the MLPs divided by the number of channels.
        dropout: dropout probability.
        attention_dropout: dropout probability of the attention weights.
        stochastic_depth_prob: probability of skipping the last block in training; it grows linearly from 0.
        num_classes: number of classes.
        norm_layer: function of the number of channels that returns a norm (default: layer normalization).
        block: class of the blocks (default: `SwinTransformerBlock`).
        downsample_layer: class of the layers between the stages.
    """

    def __init__(
        self, patch_size: Sequence[int], embed_dim: int, depths: Sequence[int], num_heads: Sequence[int],
        window_size: Sequence[int], mlp_ratio: float = 4.0, dropout: float = 0.0, attention_dropout: float = 0.0,
        stochastic_depth_prob: float = 0.1, num_classes: int = 1000, norm_layer: Callable[..., Module] | None = None,
        block: Callable[..., Module] | None = None, downsample_layer: Callable[..., Module] = PatchMerging,
    ) -> None:  # fmt: skip
        super().__init__()
        self.num_classes, norm, block = num_classes, norm_layer or nn.LayerNorm, block or SwinTransformerBlock
        patch = nn.Conv2d(3, embed_dim, tuple(patch_size), tuple(patch_size))
        layers: list[Module] = [nn.Sequential(patch, Permute([0, 2, 3, 1]), norm(embed_dim))]
        done, dim = 0, embed_dim
        for i, (depth, heads) in enumerate(zip(depths, num_heads, strict=True)):
            if i:
                layers.append(downsample_layer(dim, norm))
                dim *= 2
            stage = []
            for k in range(depth):
                shift = [n // 2 if k % 2 else 0 for n in window_size]
                share = stochastic_depth_prob * done / (sum(depths) - 1)
                stage.append(block(dim, heads, window_size, shift, mlp_ratio, dropout, attention_dropout, share, norm))
                done += 1
            layers.append(nn.Sequential(*stage))
        self.features, self.norm, self.permute = nn.Sequential(*layers), norm(dim), Permute([0, 3, 1, 2])
        self.avgpool, self.flatten, self.head = nn.AdaptiveAvgPool2d(1), nn.Flatten(1), nn.Linear(dim, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Returns logits (N, num_classes) of images (N, 3, H, W).

        Args:
            x: images (N, 3, H, W).
        """
        return self.head(self.flatten(self.avgpool(self.permute(self.norm(self.features(x))))))


def _variant(name, width, depth, heads, share, version=1):
    options = {"block": SwinTransformerBlockV2, "downsample_layer": PatchMergingV2} if version == 2 else {}
    window = (6 + version,) * 2
    build = partial(
        SwinTransformer, (4, 4), width, (2, 2, depth, 2), [heads * 2**i for i in range(4)], window,
        stochastic_depth_prob=share, **options,
    )  # fmt: skip
    text = f"Builds a Swin transformer{' of version 2' * (version == 2)} with {depth + 6} blocks."
    return variant(name, text, SwinTransformer, build)


swin_t, swin_v2_t = (_variant(name, 96, 6, 3, 0.2, i) for i, name in enumerate(("swin_t", "swin_v2_t"), 1))
swin_s, swin_v2_s = (_variant(name, 96, 18, 3, 0.3, i) for i, name in enumerate(("swin_s", "swin_v2_s"), 1))
swin_b, swin_v2_b = (_variant(name, 128, 18, 4, 0.5, i) for i, name in enumerate(("swin_b", "swin_v2_b"), 1))
