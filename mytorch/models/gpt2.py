"""GPT-2: learned positions, pre-norm blocks, and an output head that shares the weights of the token embedding.

Names and shapes of the parameters follow nanoGPT, so its state dicts can be loaded. `from_pretrained` and
`save_pretrained` use Hugging Face's format.
Source: Radford et al., Language Models are Unsupervised Multitask Learners, 2019.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

from .. import nn
from ..arrays.tensor import Tensor
from ..nn import functional as F
from ..nn import init
from ..ops.creation import arange
from . import gpt2_files
from .cache import KVCache, LayerCache
from .language_model import Config, LanguageModel

# (layers, heads, width): "demo" is nanoGPT's configuration for a laptop CPU, "base" to "xl" are GPT-2's sizes.
SIZES = {
    "demo": (4, 4, 128), "small": (6, 6, 384), "base": (12, 12, 768), "medium": (24, 16, 1024), "large": (36, 20, 1280),
    "xl": (48, 25, 1600),
}  # fmt: skip

ACTIVATIONS = {"gelu": "none", "gelu_tanh": "tanh"}  # to GELU's `approximate`


@dataclass(frozen=True)
class GPT2Config(Config):
    """Shape and options of a GPT2.

    Attributes:
        vocab_size: number of tokens.
        context_length: maximum number of positions.
        num_layers: number of blocks.
        num_heads: number of attention heads.
        embed_dim: width of the model.
        mlp_ratio: width of the hidden layer divided by embed_dim.
        dropout_p: dropout probability after the embeddings, on the attention weights, and after each branch.
        use_bias: biases in linear layers and layer norms.
        activation: "gelu" (exact), or "gelu_tanh" as in OpenAI's GPT-2.
        layer_norm_eps: epsilon of the layer norms.
        gradient_checkpointing: recompute each block in backward instead of storing its activations.
        fused: `fused` of every layer; see `mytorch.fused`.

    Example:
        >>> mytorch.models.GPT2Config.sized("demo", vocab_size=65).embed_dim
        128
    """

    vocab_size: int = 50304  # 50257 rounded up to a multiple of 64, as nanoGPT
    context_length: int = 1024
    num_layers: int = 12
    num_heads: int = 12
    embed_dim: int = 768
    mlp_ratio: float = 4
    dropout_p: float = 0.0
    use_bias: bool = False
    activation: str = "gelu"
    layer_norm_eps: float = 1e-5
    gradient_checkpointing: bool = False
    fused: bool | None = None

    def __post_init__(self):
        if self.embed_dim % self.num_heads:
            raise ValueError(
                f"GPT2Config: expected embed_dim divisible by num_heads, got embed_dim={self.embed_dim} and "
                f"num_heads={self.num_heads}."
            )
        if self.activation not in ACTIVATIONS:
            raise ValueError(
                f"GPT2Config: expected activation to be one of {', '.join(ACTIVATIONS)}, got {self.activation!r}."
            )

    @classmethod
    def sized(cls, size: str, **others: Any) -> "GPT2Config":
        """Returns the config of a named size.

        Args:
            size: "demo", "small", "base", "medium", "large" or "xl".
            **others: other fields of the config.
        """
        if size not in SIZES:
            raise ValueError(f"GPT2Config.sized: expected one of {', '.join(SIZES)}, got {size!r}.")
        layers, heads, width = SIZES[size]
        return cls(num_layers=layers, num_heads=heads, embed_dim=width, **others)


class Attention(nn.Module):
    """Causal multi-head self-attention.

    Shape: (B, T, C) to (B, T, C).
    """

    def __init__(self, config: GPT2Config):
        super().__init__()
        C = config.embed_dim
        options: dict[str, Any] = {"bias": config.use_bias, "fused": config.fused}
        self.head, self.dropout_p, self.fused = C // config.num_heads, config.dropout_p, config.fused
        self.c_attn = nn.Linear(C, 3 * C, **options)
        self.c_proj = nn.Linear(C, C, **options)
        self.resid_dropout = nn.Dropout(config.dropout_p, fused=config.fused)

    def forward(self, x: Tensor, cache: LayerCache | None = None) -> Tensor:
        B, T, _ = x.shape
        q, k, v = self.c_attn(x).reshape(B, T, -1, self.head).transpose(1, 2).chunk(3, dim=1)  # each (B, H, T, D)
        mask, is_causal = None, True
        if cache is not None:
            k, v, mask, is_causal = cache.extend(k, v)  # (B, H, cache.length + T, D)
        dropout_p = self.dropout_p if self.training else 0.0
        out = F.scaled_dot_product_attention(q, k, v, mask, dropout_p, is_causal, fused=self.fused)
        return self.resid_dropout(self.c_proj(out.transpose(1, 2).reshape(B, T, -1)))


class MLP(nn.Module):
    """Two linear layers with a GELU between them."""

    def __init__(self, config: GPT2Config):
        super().__init__()
        C, hidden = config.embed_dim, int(config.mlp_ratio * config.embed_dim)
        self.c_fc = nn.Linear(C, hidden, bias=config.use_bias, fused=config.fused)
        self.gelu = nn.GELU(approximate=ACTIVATIONS[config.activation], fused=config.fused)
        self.c_proj = nn.Linear(hidden, C, bias=config.use_bias, fused=config.fused)
        self.dropout = nn.Dropout(config.dropout_p, fused=config.fused)

    def forward(self, x: Tensor) -> Tensor:
        return self.dropout(self.c_proj(self.gelu(self.c_fc(x))))


def _norm(config):
    return nn.LayerNorm(config.embed_dim, config.layer_norm_eps, bias=config.use_bias, fused=config.fused)


class Block(nn.Module):
    """A transformer block: attention and an MLP, each with a layer norm before it and a residual connection."""

    def __init__(self, config: GPT2Config):
        super().__init__()
        self.ln_1 = _norm(config)
        self.attn = Attention(config)
        self.ln_2 = _norm(config)
        self.mlp = MLP(config)

    def forward(self, x: Tensor, cache: LayerCache | None = None) -> Tensor:
        x = x + self.attn(self.ln_1(x), cache)
        x = x + self.mlp(self.ln_2(x))
        return x


class GPT2(LanguageModel):
    """A GPT-2 language model.

    Args:
        config: a GPT2Config (default: GPT-2 base, 124 million parameters).
        **changes: fields of the config to set or change.

    Shape: integers (B, T) to logits (B, T, vocab_size), or to a scalar loss if targets are given.

    Example:
        >>> model = mytorch.models.GPT2(num_layers=1, num_heads=2, embed_dim=8, vocab_size=16, context_length=4)
        >>> tokens = tensor([[1, 2, 3]])
        >>> model(tokens).shape, model(tokens, tokens).shape
        (mytorch.Size([1, 3, 16]), mytorch.Size([]))
    """

    config_class, files = GPT2Config, gpt2_files

    def __init__(self, config: GPT2Config | None = None, **changes: Any):
        super().__init__()
        config = replace(config or GPT2Config(), **changes)
        self.config = config
        C, fused = config.embed_dim, config.fused
        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(config.vocab_size, C, fused=fused),
                "wpe": nn.Embedding(config.context_length, C, fused=fused),
                "drop": nn.Dropout(config.dropout_p, fused=fused),
                "h": nn.ModuleList([Block(config) for _ in range(config.num_layers)]),
                "ln_f": _norm(config),
            }
        )
        self.lm_head = nn.Linear(C, config.vocab_size, bias=False, fused=fused)
        self.transformer.wte.weight = self.lm_head.weight
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initializes weights from N(0, 0.02²), projections into the residual stream from N(0, 0.02² / (2 L))."""
        self.apply(_init_layer)
        deviation = 0.02 / math.sqrt(2 * self.config.num_layers)
        for name, parameter in self.named_parameters():
            if name.endswith("c_proj.weight"):
                init.normal_(parameter, mean=0.0, std=deviation)

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
            ValueError: if there are more positions than context_length.
        """
        T, body = input.shape[1], self.transformer
        self._check_length(T if cache is None else cache.length + T)
        positions = arange(T, device=input.device) if cache is None else cache.positions(T, input.device)
        x = body.drop(body.wte(input) + body.wpe(positions))  # (B, T, C)
        for block in self._runs(body.h, cache):
            x = block(x)
        if cache is not None:
            cache.advance(T)
        return self._head(body.ln_f(x), targets, last_only)

    def num_parameters(self, embeddings: bool = True, *, only_trainable: bool = False) -> int:
        """Returns the number of parameters.

        Args:
            embeddings: if False, exclude the position table, as nanoGPT counts.
            only_trainable: count only parameters with `requires_grad`.
        """
        count = super().num_parameters(only_trainable=only_trainable)
        return count if embeddings else count - self.transformer.wpe.weight.numel()

    def matrix_parameters(self) -> int:
        """Returns the number of parameters in matrix multiplications per token."""
        return self.num_parameters(embeddings=False)


def _init_layer(module):
    if isinstance(module, nn.Linear):
        init.normal_(module.weight, mean=0.0, std=0.02)
        if module.bias is not None:
            init.zeros_(module.bias)
    elif isinstance(module, nn.Embedding):
        init.normal_(module.weight, mean=0.0, std=0.02)
