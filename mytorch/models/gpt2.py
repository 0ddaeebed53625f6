"""GPT-2: learned positions, pre-norm blocks, a head tied to the token embedding.

Names and shapes are nanoGPT's, so its state dicts fit; `from_pretrained` and `save_pretrained` speak Hugging Face's.
Source: Radford et al., Language Models are Unsupervised Multitask Learners, 2019.
"""

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from .. import nn
from ..autograd.checkpoint import checkpoint
from ..files.writing import recover, replace_directory
from ..graph.mode import is_grad_enabled
from ..nn import functional as F
from ..nn import init
from ..nn.residual import AddLayerNorm
from ..ops.creation import arange
from ..serialization import save_safetensors, write_json
from ..tensor import Tensor
from . import hugging_face
from .generation import KVCache, LayerCache, generate, stream

# (layers, heads, width): "demo" is nanoGPT's recipe for a laptop's CPU, "base" is GPT-2 itself.
SIZES = {"demo": (4, 4, 128), "small": (6, 6, 384), "base": (12, 12, 768), "large": (36, 20, 1280)}

ACTIVATIONS = {"gelu": "none", "gelu_tanh": "tanh"}  # to GELU's `approximate`


@dataclass(frozen=True)
class GPT2Config:
    """What determines a GPT2's shape and behaviour.

    Attributes:
        vocab_size: number of tokens.
        context_length: the most positions that it can see.
        num_layers, num_heads, embed_dim: blocks, attention heads, width.
        mlp_ratio: width of the hidden layer over embed_dim.
        dropout_p: dropout after the embeddings, on the attention weights, and after each branch.
        use_bias: biases in linear layers and layer norms.
        activation: "gelu" (exact), or "gelu_tanh" as in OpenAI's GPT-2.
        layer_norm_eps: as nn.LayerNorm's eps.
        gradient_checkpointing: recompute each block in backward instead of keeping its activations.
        fused: passed to every layer; see `mytorch.fused`.

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
            raise ValueError(f"GPT2Config: embed_dim {self.embed_dim} is not divisible by num_heads {self.num_heads}.")
        if self.activation not in ACTIVATIONS:
            raise ValueError(
                f"GPT2Config: activation is {self.activation!r}; expected one of {', '.join(ACTIVATIONS)}."
            )

    @classmethod
    def sized(cls, size: str, **others: Any) -> "GPT2Config":
        """The config of a named size: "demo", "small", "base" or "large"."""
        if size not in SIZES:
            raise ValueError(f"GPT2Config.sized: {size!r} is not known; expected one of {', '.join(SIZES)}.")
        layers, heads, width = SIZES[size]
        return cls(num_layers=layers, num_heads=heads, embed_dim=width, **others)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "GPT2Config":
        """The config of a dict such as `to_dict` gives; other keys are left aside."""
        known = {field.name for field in fields(cls)}
        return cls(**{key: value for key, value in values.items() if key in known})

    def to_dict(self) -> dict[str, Any]:
        """All fields, as JSON can hold them."""
        return asdict(self)


class Attention(nn.Module):
    """Causal self-attention with several heads.

    Shape: (B, T, C) to (B, T, C).
    """

    def __init__(self, config: GPT2Config):
        super().__init__()
        C, options = config.embed_dim, {"bias": config.use_bias, "fused": config.fused}
        self.num_heads, self.dropout_p, self.fused = config.num_heads, config.dropout_p, config.fused
        self.c_attn = nn.Linear(C, 3 * C, **options)
        self.c_proj = nn.Linear(C, C, **options)
        self.resid_dropout = nn.Dropout(config.dropout_p, fused=config.fused)

    def forward(self, x: Tensor, cache: LayerCache | None = None) -> Tensor:
        B, T, C = x.shape
        heads = (B, T, self.num_heads, C // self.num_heads)
        q, k, v = (part.reshape(heads).transpose(1, 2) for part in self.c_attn(x).split(C, dim=2))  # (B, H, T, D)
        mask, is_causal = None, True
        if cache is not None:
            mask, is_causal = cache.mask(T)
            k, v = cache.append(k, v)  # (B, H, cache.length + T, D)
        dropout_p = self.dropout_p if self.training else 0.0
        out = F.scaled_dot_product_attention(q, k, v, mask, dropout_p, is_causal, fused=self.fused)
        return self.resid_dropout(self.c_proj(out.transpose(1, 2).reshape(B, T, C)))


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
    return AddLayerNorm(config.embed_dim, config.layer_norm_eps, bias=config.use_bias, fused=config.fused)


class Block(nn.Module):
    """x = x + attn(ln_1(x)); x = x + mlp(ln_2(x)), each addition done by the norm that follows it.

    So a block takes x and the branch that the block before it would add, and gives x and its own.
    """

    def __init__(self, config: GPT2Config):
        super().__init__()
        self.ln_1 = _norm(config)
        self.attn = Attention(config)
        self.ln_2 = _norm(config)
        self.mlp = MLP(config)

    def forward(self, x: Tensor, branch: Tensor | None = None, cache: LayerCache | None = None):
        x, h = self.ln_1(x, branch)
        x, h = self.ln_2(x, self.attn(h, cache))
        return x, self.mlp(h)


class GPT2(nn.Module):
    """A GPT-2 language model.

    Args:
        config: a GPT2Config, or nothing for that of GPT-2 base.
        **changes: fields of the config to set or change.

    Shape: integers (B, T) to logits (B, T, vocab_size), or to a scalar loss if targets are given.

    Example:
        >>> model = mytorch.models.GPT2(num_layers=1, num_heads=2, embed_dim=8, vocab_size=16, context_length=4)
        >>> tokens = tensor([[1, 2, 3]])
        >>> model(tokens).shape, model(tokens, tokens).shape
        (mytorch.Size([1, 3, 16]), mytorch.Size([]))
    """

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
        """Normal with deviation 0.02; the projections into the residual stream by 1 / sqrt(2 L) less."""
        self.apply(_init_layer)
        deviation = 0.02 / math.sqrt(2 * self.config.num_layers)
        for name, parameter in self.named_parameters():
            if name.endswith("c_proj.weight"):
                init.normal_(parameter, mean=0.0, std=deviation)

    def forward(
        self, input: Tensor, targets: Tensor | None = None, cache: KVCache | None = None, last_only: bool = False
    ) -> Tensor:
        """The logits of each next token, or the mean cross-entropy if targets are given.

        Args:
            input: integers (B, T).
            targets: integers (B, T), the tokens that follow; -100 is not counted.
            cache: a KVCache that holds what came before and takes what this call adds.
            last_only: give the logits of the last position alone, (B, 1, vocab_size).

        Raises:
            ValueError: more positions than the context has room for.
        """
        T = input.shape[1]
        start = 0 if cache is None else cache.length
        if start + T > self.config.context_length:
            raise ValueError(
                f"GPT2: {start + T} positions don't fit in the context of {self.config.context_length}; crop the input."
            )
        body = self.transformer
        x = body.drop(body.wte(input) + body.wpe(arange(start, start + T, device=input.device)))  # (B, T, C)
        recompute = self.config.gradient_checkpointing and self.training and cache is None and is_grad_enabled()
        branch = None
        for i, block in enumerate(body.h):
            if recompute:
                x, branch = checkpoint(block, x, branch)
            else:
                x, branch = block(x, branch, None if cache is None else cache.layers[i])
        if cache is not None:
            cache.advance(T)
        x, h = body.ln_f(x, branch)
        if targets is None:
            return self.lm_head(h[:, -1:] if last_only else h)  # (B, T, V)
        rows = h.reshape(-1, h.shape[-1])
        return F.linear_cross_entropy(rows, self.lm_head.weight, targets.reshape(-1), fused=self.config.fused)

    def loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Mean cross-entropy of logits (B, T, V) and targets (B, T)."""
        return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1), fused=self.config.fused)

    @property
    def device(self):
        """Where the parameters lie."""
        return self.lm_head.weight.device

    def num_parameters(self, embeddings: bool = True) -> int:
        """How many numbers are learnt; without the position table if `embeddings` is False, as nanoGPT counts."""
        count = sum(p.numel() for p in self.parameters())
        return count if embeddings else count - self.transformer.wpe.weight.numel()

    def parameter_groups(self, weight_decay: float) -> list[dict[str, Any]]:
        """Groups for an optimizer: matrices and embeddings decay, biases and norms don't."""
        parameters = [p for p in self.parameters() if p.requires_grad]
        return [
            {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": weight_decay},
            {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
        ]

    def new_cache(self, batch_size: int | None = None, length: int | None = None) -> KVCache:
        """An empty KVCache for at most `length` tokens (the context, if not given).

        Args:
            batch_size: accepted for models that need it; this cache takes it from the first input.
        """
        context = self.config.context_length
        return KVCache(self.config.num_layers, min(length or context, context))

    def generate(self, input: Tensor, max_new_tokens: int, **options: Any) -> Tensor:
        """Continue each row of `input`; see `mytorch.models.generation.generate`."""
        return generate(self, input, max_new_tokens, **options)

    def stream(self, input: Tensor, max_new_tokens: int, **options: Any) -> Iterator[Tensor]:
        """Yield the tokens of a continuation as they are made; see `mytorch.models.generation.stream`."""
        return stream(self, input, max_new_tokens, **options)

    # -- Hugging Face's files ---------------------------------------------------------------------

    @classmethod
    def from_pretrained(cls, path: str | Path, **changes: Any) -> "GPT2":
        """The model in a Hugging Face directory: `config.json` and `model.safetensors` (or its shards).

        Args:
            path: the directory.
            **changes: fields of the config to change, such as `dropout_p` and `fused`.

        Raises:
            FileNotFoundError: a file is missing.
            ValueError: it is another architecture, or a GPT-2 with options that this model has not.
            RuntimeError: weights are missing, or of other shapes than the config says.
        """
        recover(Path(path))
        model = cls(GPT2Config(**hugging_face.read_config(Path(path))), **changes)
        weights = hugging_face.to_nanogpt(hugging_face.read_weights(Path(path)), model.config.use_bias)
        model.load_state_dict(weights)
        return model.eval()

    def save_pretrained(self, path: str | Path) -> None:
        """Write `config.json` and `model.safetensors` such that `transformers` and `from_pretrained` read them.

        Both take their place in one step, also over another model; the directory's other files stay.
        Biases that the model has not are written as zeros, since Hugging Face's GPT-2 always has them.
        """
        weights = hugging_face.from_nanogpt(self.state_dict(), self.config.use_bias)

        def write(directory):
            save_safetensors(weights, directory / "model.safetensors", metadata={"format": "pt"})
            write_json(directory / "config.json", hugging_face.config_for(self.config))

        size = sum(x.numel() * x.element_size() for x in weights.values())
        replace_directory(path, write, size, hugging_face.is_weights)


def _init_layer(module):
    if isinstance(module, nn.Linear):
        init.normal_(module.weight, mean=0.0, std=0.02)
        if module.bias is not None:
            init.zeros_(module.bias)
    elif isinstance(module, nn.Embedding):
        init.normal_(module.weight, mean=0.0, std=0.02)
