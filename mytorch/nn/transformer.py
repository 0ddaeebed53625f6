"""Multi-head attention and the Transformer."""

import copy
import functools
import math
from collections.abc import Callable
from typing import Any

from ..arrays import dtypes
from ..arrays.tensor import Tensor
from ..ops.creation import empty, full
from . import functional as F
from . import init
from .common_types import Device, DType
from .containers import ModuleList
from .dropout import Dropout
from .layer import Declared
from .linear import Linear, NonDynamicallyQuantizableLinear
from .module import Module
from .normalization import LayerNorm
from .parameter import Parameter

__all__ = [
    "MultiheadAttention", "SlidingWindowAttention", "Transformer", "TransformerDecoder", "TransformerDecoderLayer", "TransformerEncoder",
    "TransformerEncoderLayer",
]  # fmt: skip


class SlidingWindowAttention(Declared, named="scale", window=..., causal=True, dropout_p=0.0, scale=None, fused=None):
    """Computes scaled dot-product attention in which each query attends only to nearby keys.

        y = softmax(query @ keyᵀ * scale + mask) @ value

    Query i attends to keys i - left to i + right. In training mode, dropout is applied to the attention weights.

    Args:
        window: number w for left = w and right = w, or the pair (left, right). If `causal`, right is 0.
        causal: if True, a query does not attend to later keys (default: True).
        dropout_p: probability of dropout on the attention weights (default: 0.0).
        scale: factor of the scores. By default, 1 / sqrt(E).

    Shape:
        Query: (*, H, L, E).
        Key: (*, H, S, E).
        Value: (*, H, S, E_v).
        Output: (*, H, L, E_v).

    Source: Beltagy et al., 2020.

    Example:
        >>> x = tensor([[1.0], [2.0], [4.0]])
        >>> nn.SlidingWindowAttention(0)(x, x, x).tolist()  # each query attends only to itself
        [[1.0], [2.0], [4.0]]

    See also: `nn.functional.scaled_dot_product_attention`.
    """

    def forward(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(
            query, key, value, dropout_p=self.dropout_p if self.training else 0.0, causal=self.causal, window=self.window,
            scale=self.scale, fused=self.fused,
        )  # fmt: skip


class MultiheadAttention(Module):
    """Computes attention of several heads over learnable projections of query, key and value.

        head_i = softmax((q_i k_iᵀ) / sqrt(head_dim)) v_i
        y = concat(head_1, …, head_h) W_oᵀ + b_o

    Here q_i, k_i and v_i are the parts of the projections that belong to head i.

    In training mode, dropout is applied to the attention weights.

    Use it for attention with its own projections. `F.scaled_dot_product_attention` is the attention alone.

    Args:
        embed_dim: size E of query and output, divisible by `num_heads`.
        num_heads: number of heads.
        dropout: probability of dropout on the attention weights (default: 0.0).
        bias: if True, the projections have biases (default: True).
        add_bias_kv: if True, appends a learnable key and value (default: False).
        add_zero_attn: if True, appends a key and value of zeros (default: False).
        kdim: size of the keys. By default, `embed_dim`.
        vdim: size of the values. By default, `embed_dim`.
        batch_first: if True, inputs and output have the shape (N, L, E) instead of (L, N, E) (default: False).

    Shape:
        Query: (L, N, E) or (L, E).
        Key: (S, N, kdim) or (S, kdim).
        Value: (S, N, vdim) or (S, vdim).
        Output: (L, N, E) or (L, E), and weights (N, L, S) or (L, S).

    Raises:
        AssertionError: `num_heads` does not divide `embed_dim`.
        ValueError: `embed_dim` or `num_heads` is not positive.

    Source: Vaswani et al., 2017.

    Example:
        >>> x = mytorch.randn(2, 5, 8)
        >>> out, weights = nn.MultiheadAttention(8, 2, batch_first=True)(x, x, x)
        >>> tuple(out.shape), tuple(weights.shape)
        ((2, 5, 8), (2, 5, 5))

    See also: `nn.functional.scaled_dot_product_attention`, `nn.TransformerEncoderLayer`.
    """

    def __init__(
        self, embed_dim: int, num_heads: int, dropout: float = 0.0, bias: bool = True, add_bias_kv: bool = False,
        add_zero_attn: bool = False, kdim: int | None = None, vdim: int | None = None, batch_first: bool = False,
        device: Device = None, dtype: DType = None, *, fused: bool | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        sizes = f"embed_dim={embed_dim} and num_heads={num_heads}"
        if embed_dim <= 0 or num_heads <= 0:
            raise ValueError(f"embed_dim and num_heads must be greater than 0, got {sizes} instead")
        if embed_dim % num_heads:
            raise AssertionError(f"MultiheadAttention: embed_dim must be divisible by num_heads, got {sizes}.")
        self.embed_dim = embed_dim
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        self._qkv_same_embed_dim = self.kdim == embed_dim and self.vdim == embed_dim
        self.num_heads = num_heads
        self.dropout = dropout
        self.fused = fused
        self.batch_first = batch_first
        self.head_dim = embed_dim // num_heads
        options: dict[str, Any] = {"device": device, "dtype": dtype}
        same = self._qkv_same_embed_dim
        shapes = {
            "in_proj_weight": (3 * embed_dim, embed_dim) if same else None,
            "q_proj_weight": None if same else (embed_dim, embed_dim),
            "k_proj_weight": None if same else (embed_dim, self.kdim),
            "v_proj_weight": None if same else (embed_dim, self.vdim),
            "in_proj_bias": (3 * embed_dim,) if bias else None,
            "bias_k": (1, 1, embed_dim) if add_bias_kv else None,
            "bias_v": (1, 1, embed_dim) if add_bias_kv else None,
        }
        self.out_proj = NonDynamicallyQuantizableLinear(embed_dim, embed_dim, bias=bias, **options)
        for name, shape in shapes.items():
            self.register_parameter(name, None if shape is None else Parameter(empty(*shape, **options)))
        self.add_zero_attn = add_zero_attn
        self._reset_parameters()

    def _reset_parameters(self):
        for w in (self.in_proj_weight, self.q_proj_weight, self.k_proj_weight, self.v_proj_weight):
            if w is not None:
                init.xavier_uniform_(w)
        if self.in_proj_bias is not None:
            init.zeros_(self.in_proj_bias)
            init.zeros_(self.out_proj.bias)
        for b in (self.bias_k, self.bias_v):
            if b is not None:
                init.xavier_normal_(b)

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, key_padding_mask: Tensor | None = None, need_weights: bool = True,
        attn_mask: Tensor | None = None, average_attn_weights: bool = True, is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:  # fmt: skip
        """Returns (output, attention weights). The weights are `None` if `need_weights` is False.

        Args:
            query: (L, N, E), or (N, L, E) if `batch_first`.
            key: (S, N, kdim), or (N, S, kdim) if `batch_first`.
            value: (S, N, vdim), or (N, S, vdim) if `batch_first`.
            key_padding_mask: (N, S). True excludes a key from attention. Numbers are added to the scores.
            need_weights: if True, also returns the attention weights (default: True).
            attn_mask: (L, S) or (N * num_heads, L, S). True excludes a pair from attention. Numbers are added to the
                scores.
            average_attn_weights: if True, the weights are averages over the heads (default: True).
            is_causal: states that `attn_mask` is the causal mask (default: False).
        """
        if self.batch_first and query.ndim == 3:
            # Self-attention must remain recognizable: the function projects one shared input at once.
            same_qk, same_kv = query is key, key is value
            query = query.transpose(0, 1)
            key = query if same_qk else key.transpose(0, 1)
            value = key if same_kv else value.transpose(0, 1)
        out, weights = F.multi_head_attention_forward(
            query, key, value, self.embed_dim, self.num_heads, self.in_proj_weight, self.in_proj_bias, self.bias_k,
            self.bias_v, self.add_zero_attn, self.dropout, self.out_proj.weight, self.out_proj.bias, self.training,
            key_padding_mask, need_weights, attn_mask, not self._qkv_same_embed_dim, self.q_proj_weight,
            self.k_proj_weight, self.v_proj_weight, None, None, average_attn_weights, is_causal, fused=self.fused,
        )  # fmt: skip
        return (out.transpose(0, 1) if self.batch_first and out.ndim == 3 else out), weights


def _activation(activation, fused=None):
    if callable(activation):
        return activation
    if activation not in ("relu", "gelu"):
        raise RuntimeError(f"activation should be relu/gelu, not {activation}")
    if activation == "relu":
        return F.relu
    return F.gelu if fused is None else functools.partial(F.gelu, fused=fused)


class _Layer(Module):
    """The base class of the encoder and decoder layers, which consist of blocks with residuals and layer norms.

    Args:
        d_model: size of input and output, divisible by `nhead`.
        nhead: number of attention heads.
        dim_feedforward: size of the hidden layer of the feed-forward block (default: 2048).
        dropout: probability of dropout during training, on attention weights and in each block (default: 0.1).
        activation: activation of the feed-forward block: "relu", "gelu" or a function (default: "relu").
        layer_norm_eps: number added to the variance in the layer norms (default: 1e-5).
        batch_first: if True, inputs and output have the shape (N, T, d_model) instead of (T, N, d_model)
            (default: False).
        norm_first: if True, the layer norms precede the blocks. Otherwise, they follow the residual additions
            (default: False).
        bias: if True, linear layers and layer norms have biases (default: True).
    """

    attentions: tuple[str, ...] = ("self_attn",)

    def __init__(
        self, d_model: int, nhead: int, dim_feedforward: int = 2048, dropout: float = 0.1,
        activation: str | Callable[[Tensor], Tensor] = "relu", layer_norm_eps: float = 1e-5, batch_first: bool = False,
        norm_first: bool = False, bias: bool = True, device: Device = None, dtype: DType = None, *,
        fused: bool | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        options: dict[str, Any] = {"bias": bias, "device": device, "dtype": dtype}
        linear = {**options, "fused": False if fused is False else None}
        for name in self.attentions:
            attention = MultiheadAttention(d_model, nhead, dropout, batch_first=batch_first, fused=fused, **options)
            setattr(self, name, attention)
        self.linear1 = Linear(d_model, dim_feedforward, **linear)
        self.dropout = Dropout(dropout, fused=fused)
        self.linear2 = Linear(dim_feedforward, d_model, **linear)
        self.norm_first = norm_first
        blocks = range(1, len(self.attentions) + 2)
        for i in blocks:
            setattr(self, f"norm{i}", LayerNorm(d_model, eps=layer_norm_eps, fused=fused, **options))
        for i in blocks:
            setattr(self, f"dropout{i}", Dropout(dropout, fused=fused))
        self.activation = _activation(activation, fused)

    @property
    def dropout_out(self) -> Dropout:
        """The dropout layer after the feed-forward block."""
        return getattr(self, f"dropout{len(self.attentions) + 1}")

    def _ff_block(self, x):
        return self.dropout_out(self.linear2(self.dropout(self.activation(self.linear1(x)))))

    def _residual(self, x, norm, block):
        return x + block(norm(x)) if self.norm_first else norm(x + block(x))

    def _sa_block(self, x, attn_mask, key_padding_mask, is_causal=False):
        return self._attend(self.self_attn, self.dropout1, x, x, attn_mask, key_padding_mask, is_causal)

    def _attend(self, attention, dropout, x, memory, mask, padding, causal):
        causal = causal and mask is not None
        out, _ = attention(x, memory, memory, padding, need_weights=False, attn_mask=mask, is_causal=causal)
        return dropout(out)


class TransformerEncoderLayer(_Layer):
    """Applies self-attention and a feed-forward block, each with a residual and a layer norm.

        x = norm1(x + self_attention(x))
        x = norm2(x + linear2(activation(linear1(x))))

    Shape:
        Input: (T, N, d_model) or (T, d_model).
        Output: the same shape as the input.

    Source: Vaswani et al., 2017.

    Example:
        >>> layer = nn.TransformerEncoderLayer(d_model=8, nhead=2, batch_first=True)
        >>> tuple(layer(mytorch.randn(2, 5, 8)).shape)
        (2, 5, 8)

    See also: `nn.TransformerEncoder`, `nn.MultiheadAttention`.
    """

    def forward(
        self, src: Tensor, src_mask: Tensor | None = None, src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:  # fmt: skip
        def attend(x):
            return self._sa_block(x, src_mask, src_key_padding_mask, is_causal)

        x = self._residual(src, self.norm1, attend)
        return self._residual(x, self.norm2, self._ff_block)


class TransformerDecoderLayer(_Layer):
    """Applies self-attention, attention to the output of the encoder, and a feed-forward block.

        x = norm1(x + self_attention(x))
        x = norm2(x + attention(x, memory))
        x = norm3(x + linear2(activation(linear1(x))))

    Shape:
        Input: (T, N, d_model) or (T, d_model), and the memory (S, N, d_model) or (S, d_model).
        Output: the same shape as the input.

    Source: Vaswani et al., 2017.

    Example:
        >>> layer = nn.TransformerDecoderLayer(d_model=8, nhead=2, batch_first=True)
        >>> tuple(layer(mytorch.randn(2, 5, 8), memory=mytorch.randn(2, 7, 8)).shape)
        (2, 5, 8)

    See also: `nn.TransformerDecoder`, `nn.MultiheadAttention`.
    """

    attentions = ("self_attn", "multihead_attn")

    def _mha_block(self, x, mem, attn_mask, key_padding_mask, is_causal=False):
        return self._attend(self.multihead_attn, self.dropout2, x, mem, attn_mask, key_padding_mask, is_causal)

    def forward(
        self, tgt: Tensor, memory: Tensor, tgt_mask: Tensor | None = None, memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None, memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool = False, memory_is_causal: bool = False,
    ) -> Tensor:  # fmt: skip
        def attend(x):
            return self._sa_block(x, tgt_mask, tgt_key_padding_mask, tgt_is_causal)

        def cross(x):
            return self._mha_block(x, memory, memory_mask, memory_key_padding_mask, memory_is_causal)

        x = self._residual(tgt, self.norm1, attend)
        x = self._residual(x, self.norm2, cross)
        return self._residual(x, self.norm3, self._ff_block)


class TransformerEncoder(Module):
    """Applies several encoder layers one after the other.

    Args:
        encoder_layer: layer to copy. The copies start with equal parameters.
        num_layers: number of copies.
        norm: layer applied to the result, usually an `nn.LayerNorm`.
        enable_nested_tensor: accepted for compatibility, without effect (default: True).
        mask_check: accepted for compatibility, without effect (default: True).

    Shape:
        Input: the shape that `encoder_layer` expects.
        Output: the same shape as the input.

    Example:
        >>> layer = nn.TransformerEncoderLayer(d_model=8, nhead=2, batch_first=True)
        >>> tuple(nn.TransformerEncoder(layer, num_layers=2)(mytorch.randn(2, 5, 8)).shape)
        (2, 5, 8)

    See also: `nn.TransformerEncoderLayer`.
    """

    def __init__(
        self, encoder_layer: Module, num_layers: int, norm: Module | None = None, enable_nested_tensor: bool = True,
        mask_check: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        self.layers = ModuleList([copy.deepcopy(encoder_layer) for _ in range(num_layers)])
        self.num_layers = num_layers
        self.norm = norm

    def forward(
        self, src: Tensor, mask: Tensor | None = None, src_key_padding_mask: Tensor | None = None,
        is_causal: bool | None = None,
    ) -> Tensor:  # fmt: skip
        for layer in self.layers:
            src = layer(src, src_mask=mask, src_key_padding_mask=src_key_padding_mask, is_causal=bool(is_causal))
        return src if self.norm is None else self.norm(src)


class TransformerDecoder(Module):
    """Applies several decoder layers one after the other.

    Args:
        decoder_layer: layer to copy. The copies start with equal parameters.
        num_layers: number of copies.
        norm: layer applied to the result, usually an `nn.LayerNorm`.

    Shape:
        Input: the shapes that `decoder_layer` expects, for the sequence and the memory.
        Output: the shape of the sequence.

    Example:
        >>> layer = nn.TransformerDecoderLayer(d_model=8, nhead=2, batch_first=True)
        >>> decoder = nn.TransformerDecoder(layer, num_layers=2)
        >>> tuple(decoder(mytorch.randn(2, 5, 8), mytorch.randn(2, 7, 8)).shape)
        (2, 5, 8)

    See also: `nn.TransformerDecoderLayer`.
    """

    def __init__(self, decoder_layer: Module, num_layers: int, norm: Module | None = None) -> None:
        super().__init__()
        self.layers = ModuleList([copy.deepcopy(decoder_layer) for _ in range(num_layers)])
        self.num_layers = num_layers
        self.norm = norm

    def forward(
        self, tgt: Tensor, memory: Tensor, tgt_mask: Tensor | None = None, memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None, memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool | None = None, memory_is_causal: bool = False,
    ) -> Tensor:  # fmt: skip
        masks = (tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask)
        for layer in self.layers:
            tgt = layer(tgt, memory, *masks, bool(tgt_is_causal), memory_is_causal)
        return tgt if self.norm is None else self.norm(tgt)


class Transformer(Module):
    """Applies an encoder to a source sequence, and a decoder to a target sequence and the result of the encoder.

    Args:
        d_model: size of the vectors of both sequences, divisible by `nhead` (default: 512).
        nhead: number of attention heads (default: 8).
        num_encoder_layers: number of encoder layers (default: 6).
        num_decoder_layers: number of decoder layers (default: 6).
        dim_feedforward: size of the hidden layer of each feed-forward block (default: 2048).
        dropout: probability of dropout during training, on attention weights and in each block (default: 0.1).
        activation: activation of the feed-forward blocks: "relu", "gelu" or a function (default: "relu").
        custom_encoder: module to use instead of the encoder.
        custom_decoder: module to use instead of the decoder.
        layer_norm_eps: number added to the variance in the layer norms (default: 1e-5).
        batch_first: if True, inputs and output have the shape (N, T, d_model) instead of (T, N, d_model)
            (default: False).
        norm_first: if True, the layer norms precede the blocks. Otherwise, they follow the residual additions
            (default: False).
        bias: if True, linear layers and layer norms have biases (default: True).

    Shape:
        Source: (S, N, d_model) or (S, d_model).
        Target: (T, N, d_model) or (T, d_model).
        Output: the same shape as the target.

    Raises:
        RuntimeError: the last dimension of the source or the target is not `d_model`.

    Source: Vaswani et al., 2017.

    Example:
        >>> model = nn.Transformer(d_model=8, nhead=2, num_encoder_layers=1, num_decoder_layers=1)
        >>> tuple(model(mytorch.randn(7, 2, 8), mytorch.randn(5, 2, 8)).shape)
        (5, 2, 8)

    See also: `nn.TransformerEncoder`, `nn.TransformerDecoder`.
    """

    def __init__(
        self, d_model: int = 512, nhead: int = 8, num_encoder_layers: int = 6, num_decoder_layers: int = 6,
        dim_feedforward: int = 2048, dropout: float = 0.1, activation: str | Callable[[Tensor], Tensor] = "relu",
        custom_encoder: Module | None = None, custom_decoder: Module | None = None, layer_norm_eps: float = 1e-5,
        batch_first: bool = False, norm_first: bool = False, bias: bool = True, device: Device = None,
        dtype: DType = None, *, fused: bool | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        factory_kwargs: dict[str, Any] = {"device": device, "dtype": dtype, "fused": fused}
        options = (d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias)
        if custom_encoder is None:
            norm = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **factory_kwargs)
            encoder_layer = TransformerEncoderLayer(*options, **factory_kwargs)
            custom_encoder = TransformerEncoder(encoder_layer, num_encoder_layers, norm)
        self.encoder = custom_encoder
        if custom_decoder is None:
            decoder_layer = TransformerDecoderLayer(*options, **factory_kwargs)
            norm = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **factory_kwargs)
            custom_decoder = TransformerDecoder(decoder_layer, num_decoder_layers, norm)
        self.decoder = custom_decoder
        self._reset_parameters()
        self.d_model = d_model
        self.nhead = nhead
        self.batch_first = batch_first

    def _reset_parameters(self):
        for p in self.parameters():
            if p.ndim > 1:
                init.xavier_uniform_(p)

    def forward(
        self, src: Tensor, tgt: Tensor, src_mask: Tensor | None = None, tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None, src_key_padding_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None, memory_key_padding_mask: Tensor | None = None,
        src_is_causal: bool | None = None, tgt_is_causal: bool | None = None, memory_is_causal: bool = False,
    ) -> Tensor:  # fmt: skip
        if src.shape[-1] != self.d_model or tgt.shape[-1] != self.d_model:
            raise RuntimeError(f"the feature number of src and tgt must be equal to d_model, which is {self.d_model}")
        memory = self.encoder(src, src_mask, src_key_padding_mask, src_is_causal)
        masks = (tgt_mask, memory_mask, tgt_key_padding_mask, memory_key_padding_mask)
        return self.decoder(tgt, memory, *masks, tgt_is_causal, memory_is_causal)

    @staticmethod
    def generate_square_subsequent_mask(sz: int, device: Device = None, dtype: DType = None) -> Tensor:
        """Returns a causal mask of shape (sz, sz): -inf above the diagonal and 0 elsewhere.

        Args:
            sz: length of the sequence.
            device: device of the mask. By default, the default device.
            dtype: dtype of the mask. By default, the default dtype.
        """
        return full((sz, sz), -math.inf, dtype=dtype or dtypes.default_dtype(), device=device).triu(1)
