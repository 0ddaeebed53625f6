"""MultiheadAttention and the Transformer, as PyTorch's."""

import copy
import functools
import math

from ..base import dtypes
from ..ops.creation import empty, full
from . import functional as F
from . import init
from .containers import ModuleList
from .dropout import Dropout
from .linear import Linear, NonDynamicallyQuantizableLinear
from .module import Module
from .normalization import LayerNorm
from .parameter import Parameter


class MultiheadAttention(Module):
    """Attention of several heads over learnt projections.

    Args:
        embed_dim: size of query and output; num_heads divides it.
        dropout: on the attention weights. bias: on the projections.
        add_bias_kv: learnt extra key and value. add_zero_attn: an extra key and value of zeros.
        kdim, vdim: sizes of key and value, if other.
        batch_first: inputs are (N, L, E) instead of (L, N, E).
        fused: use a fused kernel; see `mytorch.fused`.

    Source: Vaswani et al., 2017.
    """

    def __init__(
        self, embed_dim, num_heads, dropout=0.0, bias=True, add_bias_kv=False, add_zero_attn=False, kdim=None, vdim=None,
        batch_first=False, device=None, dtype=None, *, fused=None,
    ):  # fmt: skip
        super().__init__()
        if embed_dim <= 0 or num_heads <= 0:
            raise ValueError(
                f"embed_dim and num_heads must be greater than 0, got embed_dim={embed_dim} and num_heads={num_heads} instead"
            )
        if embed_dim % num_heads:
            raise AssertionError("embed_dim must be divisible by num_heads")
        self.embed_dim = embed_dim
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        self._qkv_same_embed_dim = self.kdim == embed_dim and self.vdim == embed_dim
        self.num_heads = num_heads
        self.dropout = dropout
        self.fused = fused
        self.batch_first = batch_first
        self.head_dim = embed_dim // num_heads
        materialize = {"device": device, "dtype": dtype}
        if self._qkv_same_embed_dim:
            self.in_proj_weight = Parameter(empty(3 * embed_dim, embed_dim, **materialize))
            for name in ("q_proj_weight", "k_proj_weight", "v_proj_weight"):
                self.register_parameter(name, None)
        else:
            self.q_proj_weight = Parameter(empty(embed_dim, embed_dim, **materialize))
            self.k_proj_weight = Parameter(empty(embed_dim, self.kdim, **materialize))
            self.v_proj_weight = Parameter(empty(embed_dim, self.vdim, **materialize))
            self.register_parameter("in_proj_weight", None)
        self.register_parameter("in_proj_bias", Parameter(empty(3 * embed_dim, **materialize)) if bias else None)
        self.out_proj = NonDynamicallyQuantizableLinear(embed_dim, embed_dim, bias=bias, **materialize)
        self.bias_k = Parameter(empty(1, 1, embed_dim, **materialize)) if add_bias_kv else None
        self.bias_v = Parameter(empty(1, 1, embed_dim, **materialize)) if add_bias_kv else None
        self.add_zero_attn = add_zero_attn
        self._reset_parameters()

    def _reset_parameters(self):
        if self._qkv_same_embed_dim:
            init.xavier_uniform_(self.in_proj_weight)
        else:
            for w in (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight):
                init.xavier_uniform_(w)
        if self.in_proj_bias is not None:
            init.zeros_(self.in_proj_bias)
            init.zeros_(self.out_proj.bias)
        for b in (self.bias_k, self.bias_v):
            if b is not None:
                init.xavier_normal_(b)

    def forward(
        self,
        query,
        key,
        value,
        key_padding_mask=None,
        need_weights=True,
        attn_mask=None,
        average_attn_weights=True,
        is_causal=False,
    ):
        """(output, attention weights or None).

        Args:
            key_padding_mask: (N, S), True (or a number to add) where a key is padding.
            attn_mask: (L, S) or (N * heads, L, S), True (or a number to add) where attention is not allowed.
            need_weights: also return the weights, averaged over heads unless average_attn_weights is off.
            is_causal: a hint that attn_mask is the causal one.
        """
        if self.batch_first and query.ndim == 3:
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
    """What encoder and decoder layers share: the feed-forward block, and residuals before or after the norm."""

    def _ff_block(self, x):
        return self.dropout_out(self.linear2(self.dropout(self.activation(self.linear1(x)))))

    def _residual(self, x, norm, block):
        return x + block(norm(x)) if self.norm_first else norm(x + block(x))

    def _sa_block(self, x, attn_mask, key_padding_mask, is_causal=False):
        return self._attend(self.self_attn, self.dropout1, x, x, attn_mask, key_padding_mask, is_causal)

    def _attend(self, attention, dropout, x, memory, mask, padding, causal):
        return dropout(
            attention(
                x,
                memory,
                memory,
                key_padding_mask=padding,
                attn_mask=mask,
                need_weights=False,
                is_causal=causal and mask is not None,
            )[0]
        )


class TransformerEncoderLayer(_Layer):
    """Self-attention and a feed-forward block, each with a residual and a layer norm; `fused`: see `mytorch.fused`."""

    def __init__(
        self, d_model, nhead, dim_feedforward=2048, dropout=0.1, activation="relu", layer_norm_eps=1e-5, batch_first=False,
        norm_first=False, bias=True, device=None, dtype=None, *, fused=None,
    ):  # fmt: skip
        super().__init__()
        materialize = {"device": device, "dtype": dtype, "fused": fused}
        linear = {**materialize, "bias": bias, "fused": False if fused is False else None}
        self.self_attn = MultiheadAttention(
            d_model, nhead, dropout=dropout, bias=bias, batch_first=batch_first, **materialize
        )
        self.linear1 = Linear(d_model, dim_feedforward, **linear)
        self.dropout = Dropout(dropout, fused=fused)
        self.linear2 = Linear(dim_feedforward, d_model, **linear)
        self.norm_first = norm_first
        self.norm1 = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **materialize)
        self.norm2 = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **materialize)
        self.dropout1 = Dropout(dropout, fused=fused)
        self.dropout2 = Dropout(dropout, fused=fused)
        self.activation = _activation(activation, fused)

    @property
    def dropout_out(self):
        """The dropout after the feed-forward block."""
        return self.dropout2

    def forward(self, src, src_mask=None, src_key_padding_mask=None, is_causal=False):
        def attend(x):
            return self._sa_block(x, src_mask, src_key_padding_mask, is_causal)

        x = self._residual(src, self.norm1, attend)
        return self._residual(x, self.norm2, self._ff_block)


class TransformerDecoderLayer(_Layer):
    """Self-attention, attention over the encoder's output, and a feed-forward block; `fused`: see `mytorch.fused`."""

    def __init__(
        self, d_model, nhead, dim_feedforward=2048, dropout=0.1, activation="relu", layer_norm_eps=1e-5, batch_first=False,
        norm_first=False, bias=True, device=None, dtype=None, *, fused=None,
    ):  # fmt: skip
        super().__init__()
        materialize = {"device": device, "dtype": dtype, "fused": fused}
        linear = {**materialize, "bias": bias, "fused": False if fused is False else None}
        self.self_attn = MultiheadAttention(
            d_model, nhead, dropout=dropout, bias=bias, batch_first=batch_first, **materialize
        )
        self.multihead_attn = MultiheadAttention(
            d_model, nhead, dropout=dropout, bias=bias, batch_first=batch_first, **materialize
        )
        self.linear1 = Linear(d_model, dim_feedforward, **linear)
        self.dropout = Dropout(dropout, fused=fused)
        self.linear2 = Linear(dim_feedforward, d_model, **linear)
        self.norm_first = norm_first
        for i in (1, 2, 3):
            setattr(self, f"norm{i}", LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **materialize))
        for i in (1, 2, 3):
            setattr(self, f"dropout{i}", Dropout(dropout, fused=fused))
        self.activation = _activation(activation, fused)

    @property
    def dropout_out(self):
        """The dropout after the feed-forward block."""
        return self.dropout3

    def _mha_block(self, x, mem, attn_mask, key_padding_mask, is_causal=False):
        return self._attend(self.multihead_attn, self.dropout2, x, mem, attn_mask, key_padding_mask, is_causal)

    def forward(
        self, tgt, memory, tgt_mask=None, memory_mask=None, tgt_key_padding_mask=None, memory_key_padding_mask=None,
        tgt_is_causal=False, memory_is_causal=False,
    ):  # fmt: skip
        def attend(x):
            return self._sa_block(x, tgt_mask, tgt_key_padding_mask, tgt_is_causal)

        def cross(x):
            return self._mha_block(x, memory, memory_mask, memory_key_padding_mask, memory_is_causal)

        x = self._residual(tgt, self.norm1, attend)
        x = self._residual(x, self.norm2, cross)
        return self._residual(x, self.norm3, self._ff_block)


class TransformerEncoder(Module):
    """num_layers copies of an encoder layer, and a norm at the end if given."""

    def __init__(self, encoder_layer, num_layers, norm=None, enable_nested_tensor=True, mask_check=True):
        super().__init__()
        self.layers = ModuleList([copy.deepcopy(encoder_layer) for _ in range(num_layers)])
        self.num_layers = num_layers
        self.norm = norm

    def forward(self, src, mask=None, src_key_padding_mask=None, is_causal=None):
        for layer in self.layers:
            src = layer(src, src_mask=mask, src_key_padding_mask=src_key_padding_mask, is_causal=bool(is_causal))
        return src if self.norm is None else self.norm(src)


class TransformerDecoder(Module):
    """num_layers copies of a decoder layer, and a norm at the end if given."""

    def __init__(self, decoder_layer, num_layers, norm=None):
        super().__init__()
        self.layers = ModuleList([copy.deepcopy(decoder_layer) for _ in range(num_layers)])
        self.num_layers = num_layers
        self.norm = norm

    def forward(
        self, tgt, memory, tgt_mask=None, memory_mask=None, tgt_key_padding_mask=None, memory_key_padding_mask=None,
        tgt_is_causal=None, memory_is_causal=False,
    ):  # fmt: skip
        for layer in self.layers:
            tgt = layer(
                tgt,
                memory,
                tgt_mask,
                memory_mask,
                tgt_key_padding_mask,
                memory_key_padding_mask,
                bool(tgt_is_causal),
                memory_is_causal,
            )
        return tgt if self.norm is None else self.norm(tgt)


class Transformer(Module):
    """Encoder and decoder together. Source: Vaswani et al., 2017."""

    def __init__(
        self, d_model=512, nhead=8, num_encoder_layers=6, num_decoder_layers=6, dim_feedforward=2048, dropout=0.1,
        activation="relu", custom_encoder=None, custom_decoder=None, layer_norm_eps=1e-5, batch_first=False,
        norm_first=False, bias=True, device=None, dtype=None, *, fused=None,
    ):  # fmt: skip
        super().__init__()
        materialize = {"device": device, "dtype": dtype, "fused": fused}
        options = (d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias)
        if custom_encoder is None:
            norm = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **materialize)
            layer = TransformerEncoderLayer(*options, **materialize)
            custom_encoder = TransformerEncoder(layer, num_encoder_layers, norm)
        self.encoder = custom_encoder
        if custom_decoder is None:
            layer = TransformerDecoderLayer(*options, **materialize)
            norm = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **materialize)
            custom_decoder = TransformerDecoder(layer, num_decoder_layers, norm)
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
        self, src, tgt, src_mask=None, tgt_mask=None, memory_mask=None, src_key_padding_mask=None, tgt_key_padding_mask=None,
        memory_key_padding_mask=None, src_is_causal=None, tgt_is_causal=None, memory_is_causal=False,
    ):  # fmt: skip
        if src.shape[-1] != self.d_model or tgt.shape[-1] != self.d_model:
            raise RuntimeError("the feature number of src and tgt must be equal to d_model")
        memory = self.encoder(src, src_mask, src_key_padding_mask, src_is_causal)
        return self.decoder(
            tgt,
            memory,
            tgt_mask,
            memory_mask,
            tgt_key_padding_mask,
            memory_key_padding_mask,
            tgt_is_causal,
            memory_is_causal,
        )

    @staticmethod
    def generate_square_subsequent_mask(sz, device=None, dtype=None):
        """A (sz, sz) mask of -inf above the diagonal and 0 elsewhere."""
        return full((sz, sz), -math.inf, dtype=dtype or dtypes.default_dtype(), device=device).triu(1)
