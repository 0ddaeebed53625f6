"""Llama and related models: RMS norms, rotary positions, grouped-query attention, and a gated hidden layer.

One class with options covers Llama 2 and 3, Qwen 2 (`qkv_bias`) and 3 (`qk_norm`), Mistral (`sliding_window`), Mixtral
(`num_experts`) and nanochat (`NANOCHAT`). The parameters have Hugging Face's names.

Source: Touvron et al., Llama 2, 2023. Grattafiori et al., Llama 3, 2024. Jiang et al., Mistral 7B, 2023. Qwen team, 2024 and
2025. Karpathy, nanochat, 2025.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

from .. import nn
from ..arrays.tensor import Tensor
from ..nn import functional as F
from ..nn import init
from ..ops.creation import arange
from . import llama_files, rotary
from .cache import KVCache, LayerCache
from .language_model import Config, LanguageModel
from .mixture import MixtureOfExperts, balance_loss
from .quantization import linears

# (layers, heads, key-value heads, width): the sizes of GPT-2, for comparisons
SIZES = {
    "demo": (4, 4, 2, 128), "small": (6, 6, 2, 384), "base": (12, 12, 4, 768), "medium": (24, 16, 4, 1024),
    "large": (36, 20, 4, 1280), "xl": (48, 25, 5, 1600),
}  # fmt: skip

NANOCHAT: dict[str, Any] = {
    "activation": "relu2", "norm_weights": False, "qk_norm": True, "logit_softcap": 15.0, "rms_norm_eps": 1e-6,
}  # fmt: skip


@dataclass(frozen=True)
class LlamaConfig(Config):
    """Shape and options of a Llama.

    Attributes:
        vocab_size: number of tokens.
        context_length: maximum number of positions.
        num_layers: number of blocks.
        num_heads: number of attention heads.
        embed_dim: width of the model.
        num_kv_heads: number of heads of keys and values, each shared by num_heads / num_kv_heads heads (default: num_heads).
        head_dim: width of a head (default: embed_dim / num_heads).
        hidden_dim: width of the hidden layer (default: 8/3 embed_dim, rounded up to a multiple of 64).
        rope_theta: base of the rotary frequencies; the longest wavelength is about 2 pi times rope_theta.
        rope_scaling: extension of the context beyond the trained length, in Hugging Face's format: None, or a dict with
            "rope_type" ("linear", "dynamic", "yarn" or "llama3"), "factor", and other keys of the type, such as
            "original_max_position_embeddings", the trained length.
        rms_norm_eps: epsilon of the RMS norms.
        qkv_bias: biases in the projections to queries, keys and values.
        out_bias: bias in the output projection of attention.
        qk_norm: apply an RMS norm to each head's queries and keys.
        norm_weights: RMS norms have weights. If False, the embeddings are normalized too.
        activation: "swiglu", a gated hidden layer, or "relu2", squared ReLU without a gate.
        logit_softcap: value s of the soft cap s · tanh(x / s) of the logits, or None.
        sliding_window: number of positions that a token sees, itself included; None for all.
        full_layers: number of first layers that ignore sliding_window.
        num_experts: number of experts that replace each hidden layer; 0 for none.
        experts_per_token: number of experts per token; see MixtureOfExperts.
        capacity_factor: capacity of an expert in training; see MixtureOfExperts.
        balance: weight of the load-balancing loss, which is added to the loss in training.
        tie_embeddings: the head shares the weights of the token embedding.
        dropout_p: dropout probability of the attention weights.
        gradient_checkpointing: recompute each block in backward instead of storing its activations.
        fused: `fused` of every layer; see `mytorch.fused`.

    Example:
        >>> mytorch.models.LlamaConfig.sized("demo", vocab_size=65).hidden
        384
    """

    vocab_size: int = 32000
    context_length: int = 2048
    num_layers: int = 12
    num_heads: int = 12
    embed_dim: int = 768
    num_kv_heads: int | None = None
    head_dim: int | None = None
    hidden_dim: int | None = None
    rope_theta: float = 10000.0
    rope_scaling: dict[str, Any] | None = None
    rms_norm_eps: float = 1e-5
    qkv_bias: bool = False
    out_bias: bool = False
    qk_norm: bool = False
    norm_weights: bool = True
    activation: str = "swiglu"
    logit_softcap: float | None = None
    sliding_window: int | None = None
    full_layers: int = 0
    num_experts: int = 0
    experts_per_token: int = 2
    capacity_factor: float | None = None
    balance: float = 0.02
    tie_embeddings: bool = False
    dropout_p: float = 0.0
    gradient_checkpointing: bool = False
    fused: bool | None = None

    def __post_init__(self):
        if self.head_dim is None and self.embed_dim % self.num_heads:
            raise ValueError(
                f"LlamaConfig: expected embed_dim divisible by num_heads, got embed_dim={self.embed_dim} and "
                f"num_heads={self.num_heads}."
            )
        if self.num_heads % self.kv_heads:
            raise ValueError(
                f"LlamaConfig: expected num_heads to be a multiple of num_kv_heads, got num_heads={self.num_heads} and "
                f"num_kv_heads={self.kv_heads}."
            )
        if self.head % 2:
            raise ValueError(f"LlamaConfig: expected an even head width for rotary positions, got {self.head}.")
        if self.sliding_window is not None and self.sliding_window < 1:
            raise ValueError(
                f"LlamaConfig: expected sliding_window to be at least 1 or None, got {self.sliding_window}."
            )
        if self.activation not in ("swiglu", "relu2"):
            raise ValueError(f"LlamaConfig: expected activation to be 'swiglu' or 'relu2', got {self.activation!r}.")
        rotary.check(self.rope_scaling)

    @property
    def kv_heads(self) -> int:
        """The number of heads of keys and values."""
        return self.num_kv_heads or self.num_heads

    @property
    def head(self) -> int:
        """The width of a head."""
        return self.head_dim or self.embed_dim // self.num_heads

    @property
    def hidden(self) -> int:
        """The width of the hidden layer."""
        if self.activation == "relu2" and not self.hidden_dim:
            return 4 * self.embed_dim
        return self.hidden_dim or -(-8 * self.embed_dim // 3 // 64) * 64

    @property
    def lasting(self) -> int:
        """The number of positions for which a key stays valid. Beyond it, "dynamic" positions change with every token."""
        dynamic = (self.rope_scaling or {}).get("rope_type") == "dynamic"
        return rotary.trained_length(self) if dynamic else self.context_length

    def norm(self, width: int) -> nn.RMSNorm:
        """Returns an RMS norm with this config's options.

        Args:
            width: size of the last axis.
        """
        return nn.RMSNorm(width, self.rms_norm_eps, self.norm_weights, fused=self.fused)

    def window(self, layer: int) -> int | None:
        """Returns the number of positions that a token sees in a layer; None for all.

        Args:
            layer: number of the layer.
        """
        return None if layer < self.full_layers else self.sliding_window

    @classmethod
    def sized(cls, size: str, **others: Any) -> "LlamaConfig":
        """Returns the config of a named size; GPT2Config has the same names.

        Args:
            size: "demo", "small", "base", "medium", "large" or "xl".
            **others: other fields of the config.
        """
        if size not in SIZES:
            raise ValueError(f"LlamaConfig.sized: expected one of {', '.join(SIZES)}, got {size!r}.")
        layers, heads, kv_heads, width = SIZES[size]
        shape = {"num_layers": layers, "num_heads": heads, "num_kv_heads": kv_heads, "embed_dim": width}
        return cls(**{**shape, **others})


class Attention(nn.Module):
    """Causal grouped-query attention with rotary positions.

    Shape: (B, T, C) to (B, T, C).
    """

    def __init__(self, config: LlamaConfig, layer: int):
        super().__init__()
        C, D, fused = config.embed_dim, config.head, config.fused
        self.head, self.window = D, config.window(layer)
        self.dropout_p, self.fused = config.dropout_p, fused
        self.q_proj = nn.Linear(C, config.num_heads * D, bias=config.qkv_bias, fused=fused)
        self.k_proj = nn.Linear(C, config.kv_heads * D, bias=config.qkv_bias, fused=fused)
        self.v_proj = nn.Linear(C, config.kv_heads * D, bias=config.qkv_bias, fused=fused)
        self.o_proj = nn.Linear(config.num_heads * D, C, bias=config.out_bias, fused=fused)
        self.q_norm: Any = config.norm(D) if config.qk_norm else None
        self.k_norm: Any = config.norm(D) if config.qk_norm else None

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, cache: LayerCache | None = None) -> Tensor:
        B, T, _ = x.shape
        q, k, v = (part.reshape(B, T, -1, self.head) for part in linears(x, self.q_proj, self.k_proj, self.v_proj))
        if self.q_norm is not None:
            q, k = self.q_norm(q), self.k_norm(k)
        q, k, v = (part.transpose(1, 2) for part in (q, k, v))  # (B, H, T, D), with fewer heads for k and v
        q, k = F.apply_rotary_pos_embed(q, k, cos, sin, fused=self.fused)
        mask, is_causal = None, True
        window: Any = None if self.window is None else (self.window - 1, 0)
        if cache is not None:
            k, v, mask, is_causal = cache.extend(k, v)
            window = None
        dropout_p = self.dropout_p if self.training else 0.0
        out = F.scaled_dot_product_attention(
            q, k, v, mask, dropout_p, is_causal, enable_gqa=True, window=window, fused=self.fused
        )
        return self.o_proj(out.transpose(1, 2).reshape(B, T, -1))


class MLP(nn.Module):
    """Two linear layers; a third one gates the first. Source: Shazeer, GLU Variants, 2020."""

    def __init__(self, config: LlamaConfig):
        super().__init__()
        C, hidden, self.fused = config.embed_dim, config.hidden, config.fused
        self.gate_proj = nn.Linear(C, hidden, bias=False, fused=config.fused)
        self.up_proj = nn.Linear(C, hidden, bias=False, fused=config.fused)
        self.down_proj = nn.Linear(hidden, C, bias=False, fused=config.fused)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.swiglu(*linears(x, self.gate_proj, self.up_proj), fused=self.fused))


class SquaredMLP(nn.Module):
    """Two linear layers with squared ReLUs between them. Source: So et al., Primer, 2021."""

    def __init__(self, config: LlamaConfig):
        super().__init__()
        self.fc1 = nn.Linear(config.embed_dim, config.hidden, bias=False, fused=config.fused)
        self.fc2 = nn.Linear(config.hidden, config.embed_dim, bias=False, fused=config.fused)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(F.relu(self.fc1(x)).square())


def _hidden_layer(config):
    return SquaredMLP(config) if config.activation == "relu2" else MLP(config)


class Block(nn.Module):
    """A transformer block: attention and an MLP, each with an RMS norm before it and a residual connection.

    A block with a mixture of experts also returns the routing of its tokens.
    """

    def __init__(self, config: LlamaConfig, layer: int):
        super().__init__()
        self.input_layernorm = config.norm(config.embed_dim)
        self.self_attn = Attention(config, layer)
        self.post_attention_layernorm = config.norm(config.embed_dim)
        self.mlp = _mixture(config) if config.num_experts else _hidden_layer(config)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, cache: LayerCache | None = None) -> Any:
        x = x + self.self_attn(self.input_layernorm(x), cos, sin, cache)
        if isinstance(self.mlp, MixtureOfExperts):
            out, routing = self.mlp(self.post_attention_layernorm(x))
            return x + out, routing
        x = x + self.mlp(self.post_attention_layernorm(x))
        return x


def _mixture(config):
    return MixtureOfExperts(
        config.embed_dim,
        lambda: _hidden_layer(config),
        config.num_experts,
        config.experts_per_token,
        config.capacity_factor,
        config.fused,
    )


_INTO_STREAM = (
    "o_proj.weight",
    "down_proj.weight",
    "fc2.weight",
)  # weights whose outputs are added to the residual stream


class Llama(LanguageModel):
    """A Llama, Qwen, Mistral or Mixtral language model.

    Args:
        config: a LlamaConfig (default: `LlamaConfig()`).
        **changes: fields of the config to set or change.

    Shape: integers (B, T) to logits (B, T, vocab_size), or to a scalar loss if targets are given.

    Example:
        >>> model = mytorch.models.Llama(num_layers=1, num_heads=2, num_kv_heads=1, embed_dim=8, vocab_size=16)
        >>> tokens = tensor([[1, 2, 3]])
        >>> model(tokens).shape, model(tokens, tokens).shape
        (mytorch.Size([1, 3, 16]), mytorch.Size([]))
    """

    config_class, files = LlamaConfig, llama_files

    def __init__(self, config: LlamaConfig | None = None, **changes: Any):
        super().__init__()
        config = replace(config or LlamaConfig(), **changes)
        self.config = config
        C, fused = config.embed_dim, config.fused
        self.model = nn.ModuleDict(
            {
                "embed_tokens": nn.Embedding(config.vocab_size, C, fused=fused),
                "layers": nn.ModuleList([Block(config, i) for i in range(config.num_layers)]),
                "norm": config.norm(C),
            }
        )
        self.lm_head = nn.Linear(C, config.vocab_size, bias=False, fused=fused)
        if config.tie_embeddings:
            self.lm_head.weight = self.model.embed_tokens.weight
        self.rotary = rotary.Rotary(config)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initializes weights from N(0, 0.02²), projections into the residual stream from N(0, 0.02² / (2 L)).

        Biases become 0, and norm weights become 1.
        """
        deviation = 0.02 / math.sqrt(2 * self.config.num_layers)
        for name, parameter in self.named_parameters():
            if parameter.ndim >= 2:
                init.normal_(parameter, std=deviation if name.endswith(_INTO_STREAM) else 0.02)
            elif name.endswith("bias"):
                init.zeros_(parameter)

    def forward(
        self, input: Tensor, targets: Tensor | None = None, cache: KVCache | None = None, last_only: bool = False
    ) -> Tensor:
        """Returns the logits of each next token, or the mean cross-entropy with targets.

        Args:
            input: integers (B, T).
            targets: integers (B, T), the next tokens; -100 is ignored.
            cache: KVCache with the earlier positions; the new positions are added to it.
            last_only: return only the logits of the last position, (B, 1, vocab_size).

        Raises:
            ValueError: if there are more positions than context_length, or the cached keys are not valid anymore.
        """
        T, body = input.shape[1], self.model
        stop = T if cache is None else cache.length + T
        self._check_length(stop)
        if cache is not None and cache.length and stop > self.config.lasting:
            raise ValueError(
                f"Llama: expected at most {self.config.lasting} cached positions with dynamic rope_scaling, got {stop}. Call "
                "cache.reset()."
            )
        positions = arange(T, device=input.device) if cache is None else cache.positions(T, input.device)
        x = body.embed_tokens(input)  # (B, T, C)
        if not self.config.norm_weights:
            x = body.norm(x)
        cos, sin = self.rotary(positions, stop, x.dtype)
        routing = []
        for block in self._runs(body.layers, cache):
            x = block(x, cos, sin)
            if self.config.num_experts:
                x, here = x
                routing.append(here)
        if cache is not None:
            cache.advance(T)
        out = self._head(body.norm(x), targets, last_only)
        if targets is not None and self.training and routing:
            out = out + self.config.balance * balance_loss(routing)
        return out

    def matrix_parameters(self) -> int:
        """Returns the number of parameters in matrix multiplications per token; only active experts count."""
        config, count = self.config, self.num_parameters()
        idle = max(0, config.num_experts - config.experts_per_token) * config.num_layers
        count -= idle * (3 if config.activation == "swiglu" else 2) * config.embed_dim * config.hidden
        return count if config.tie_embeddings else count - self.model.embed_tokens.weight.numel()

    def _windows(self):
        return [self.config.window(i) for i in range(self.config.num_layers)]
