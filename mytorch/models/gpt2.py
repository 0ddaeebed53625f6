"""GPT-2: learned positions, pre-norm blocks, a head tied to the token embedding.

Names and shapes are nanoGPT's, so its state dicts fit; `from_pretrained` and `save_pretrained` speak Hugging
Face's, whose "Conv1D" weights are transposed.
Source: Radford et al., Language Models are Unsupervised Multitask Learners, 2019.
"""

import json
import math
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

from .. import nn
from ..graph.mode import get_mode
from ..nn import functional as F
from ..nn import init
from ..ops.creation import arange, zeros
from ..serialization import load_safetensors, save_safetensors, write_json
from ..utils.checkpoint import checkpoint
from .generation import KVCache, generate, stream

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
    def sized(cls, size, **others):
        """The config of a named size: "demo", "small", "base" or "large"."""
        if size not in SIZES:
            raise ValueError(f"GPT2Config.sized: {size!r} is not known; expected one of {', '.join(SIZES)}.")
        layers, heads, width = SIZES[size]
        return cls(num_layers=layers, num_heads=heads, embed_dim=width, **others)

    @classmethod
    def from_dict(cls, values):
        """The config of a dict such as `to_dict` gives; other keys are left aside."""
        known = {field.name for field in fields(cls)}
        return cls(**{key: value for key, value in values.items() if key in known})

    def to_dict(self):
        """All fields, as JSON can hold them."""
        return asdict(self)


class Attention(nn.Module):
    """Causal self-attention with several heads.

    Shape: (B, T, C) to (B, T, C).
    """

    def __init__(self, config):
        super().__init__()
        width = config.embed_dim
        self.num_heads = config.num_heads
        self.dropout_p = config.dropout_p
        self.fused = config.fused
        self.c_attn = nn.Linear(width, 3 * width, bias=config.use_bias, fused=config.fused)
        self.c_proj = nn.Linear(width, width, bias=config.use_bias, fused=config.fused)
        self.resid_dropout = nn.Dropout(config.dropout_p, fused=config.fused)

    def forward(self, x, cache=None):
        B, T, C = x.shape
        heads = (B, T, self.num_heads, C // self.num_heads)
        q, k, v = (part.reshape(heads).transpose(1, 2) for part in self.c_attn(x).split(C, dim=2))  # (B, H, T, D)
        dropout_p = self.dropout_p if self.training else 0.0
        if cache is None:
            out = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout_p, is_causal=True, fused=self.fused)
        else:
            start = cache.length
            k, v = cache.append(k, v)  # (B, H, start + T, D)
            if start == 0 or T == 1:  # alone or first: no mask but the usual one
                out = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout_p, is_causal=T > 1, fused=self.fused)
            else:
                seen = arange(start, start + T, device=x.device)[:, None] >= arange(start + T, device=x.device)
                out = F.scaled_dot_product_attention(q, k, v, seen, dropout_p=dropout_p, fused=self.fused)
        out = out.transpose(1, 2).reshape(B, T, C)
        return self.resid_dropout(self.c_proj(out))


class MLP(nn.Module):
    """Two linear layers with a GELU between them."""

    def __init__(self, config):
        super().__init__()
        hidden = int(config.mlp_ratio * config.embed_dim)
        self.c_fc = nn.Linear(config.embed_dim, hidden, bias=config.use_bias, fused=config.fused)
        self.gelu = nn.GELU(approximate=ACTIVATIONS[config.activation], fused=config.fused)
        self.c_proj = nn.Linear(hidden, config.embed_dim, bias=config.use_bias, fused=config.fused)
        self.dropout = nn.Dropout(config.dropout_p, fused=config.fused)

    def forward(self, x):
        return self.dropout(self.c_proj(self.gelu(self.c_fc(x))))


def _half_of(x):
    """What autocast makes of a norm's result in the linear layer that follows: asking for it at once saves a pass."""
    policy = get_mode().autocast
    casts = policy is not None and x.device.type == policy.device_type == "cuda" and x.dtype.itemsize <= 4
    return policy.dtype if casts else None


class Block(nn.Module):
    """x + attention(norm(x)), then the same with the MLP.

    What a branch adds to the stream x is added together with the norm that follows, in one pass on a GPU. So a block takes
    the stream and what the block before it adds (None at first), and gives the stream and what is to be added to it.
    """

    def __init__(self, config):
        super().__init__()
        width, eps = config.embed_dim, config.layer_norm_eps
        self.ln_1 = nn.LayerNorm(width, eps=eps, bias=config.use_bias, fused=config.fused)
        self.attn = Attention(config)
        self.ln_2 = nn.LayerNorm(width, eps=eps, bias=config.use_bias, fused=config.fused)
        self.mlp = MLP(config)

    def forward(self, x, branch=None, cache=None):
        half = _half_of(x)
        x, normed = (x, self.ln_1(x, dtype=half)) if branch is None else self.ln_1(branch, x, dtype=half)
        x, normed = self.ln_2(self.attn(normed, cache), x, dtype=half)
        return x, self.mlp(normed)


class GPT2(nn.Module):
    """A GPT-2 language model.

    Args:
        config: a GPT2Config, or nothing for that of GPT-2 base.
        **changes: fields of the config to set or change.

    Shape: integers (B, T) to logits (B, T, vocab_size), or to a scalar loss if targets are given.
    """

    def __init__(self, config=None, **changes):
        super().__init__()
        config = replace(config or GPT2Config(), **changes)
        self.config = config
        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(config.vocab_size, config.embed_dim, fused=config.fused),
                "wpe": nn.Embedding(config.context_length, config.embed_dim, fused=config.fused),
                "drop": nn.Dropout(config.dropout_p, fused=config.fused),
                "h": nn.ModuleList([Block(config) for _ in range(config.num_layers)]),
                "ln_f": nn.LayerNorm(
                    config.embed_dim, eps=config.layer_norm_eps, bias=config.use_bias, fused=config.fused
                ),
            }
        )
        self.lm_head = nn.Linear(config.embed_dim, config.vocab_size, bias=False, fused=config.fused)
        self.transformer.wte.weight = self.lm_head.weight
        self.reset_parameters()

    def reset_parameters(self):
        """Normal with deviation 0.02; the projections into the residual stream by 1 / sqrt(2 L) less."""
        self.apply(_init_layer)
        deviation = 0.02 / math.sqrt(2 * self.config.num_layers)
        for name, parameter in self.named_parameters():
            if name.endswith("c_proj.weight"):
                init.normal_(parameter, mean=0.0, std=deviation)

    def forward(self, input, targets=None, cache=None, last_only=False):
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
        x = body.wte(input) + body.wpe(arange(start, start + T, device=input.device))  # (B, T, C)
        x = body.drop(x)
        recompute = self.config.gradient_checkpointing and self.training and cache is None and get_mode().grad
        branch = None
        for i, block in enumerate(body.h):
            if recompute:
                x, branch = checkpoint(block, x, branch)
            else:
                x, branch = block(x, branch, None if cache is None else cache.layers[i])
        if cache is not None:
            cache.advance(T)
        if last_only:
            x, branch = x[:, -1:], None if branch is None else branch[:, -1:]
        half = _half_of(x)
        x = body.ln_f(x, dtype=half) if branch is None else body.ln_f(branch, x, dtype=half)[1]
        if targets is None:
            return self.lm_head(x)  # (B, T, V)
        if x.device.type == "cpu":
            return self.loss(self.lm_head(x), targets)
        rows = x.reshape(-1, x.shape[-1])
        return F.linear_cross_entropy(rows, self.lm_head.weight, targets.reshape(-1), fused=self.config.fused)

    def loss(self, logits, targets):
        """Mean cross-entropy of logits (B, T, V) and targets (B, T)."""
        return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1), fused=self.config.fused)

    @property
    def device(self):
        return self.lm_head.weight.device

    def num_parameters(self, embeddings=True):
        """How many numbers are learnt; without the position table if `embeddings` is False, as nanoGPT counts."""
        count = sum(p.numel() for p in self.parameters())
        return count if embeddings else count - self.transformer.wpe.weight.numel()

    def parameter_groups(self, weight_decay):
        """Groups for an optimizer: matrices and embeddings decay, biases and norms don't."""
        parameters = [p for p in self.parameters() if p.requires_grad]
        return [
            {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": weight_decay},
            {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
        ]

    def new_cache(self, batch_size=None, length=None):
        """An empty KVCache for at most `length` tokens (the context, if not given).

        Args:
            batch_size: accepted for models that need it; this cache takes it from the first input.
        """
        context = self.config.context_length
        return KVCache(self.config.num_layers, min(length or context, context))

    def generate(self, input, max_new_tokens, **options):
        """Continue each row of `input`; see `mytorch.models.generation.generate`."""
        return generate(self, input, max_new_tokens, **options)

    def stream(self, input, max_new_tokens, **options):
        """Yield the tokens of a continuation as they are made; see `mytorch.models.generation.stream`."""
        return stream(self, input, max_new_tokens, **options)

    # -- Hugging Face's files ---------------------------------------------------------------------

    @classmethod
    def from_pretrained(cls, path, **changes):
        """The model in a Hugging Face directory: `config.json` and `model.safetensors` (or its shards).

        Args:
            path: the directory.
            **changes: fields of the config to change, such as `dropout_p` and `fused`.

        Raises:
            FileNotFoundError: a file is missing.
            ValueError: it is another architecture, or a GPT-2 with options that this model has not.
            RuntimeError: weights are missing, or of other shapes than the config says.
        """
        path = Path(path)
        config = _config_from_hugging_face(path)
        model = cls(config, **changes)
        weights = {}
        for name, tensor in _read_weights(path).items():
            name = name.removeprefix("transformer.")
            if name.endswith((".attn.bias", ".attn.masked_bias")):
                continue  # the causal mask, kept by old versions
            if _is_conv1d(name):
                tensor = tensor.t()
            weights[name if name.startswith("lm_head.") else f"transformer.{name}"] = tensor
        weights.setdefault("lm_head.weight", weights.get("transformer.wte.weight"))
        if not config.use_bias:
            weights = {name: tensor for name, tensor in weights.items() if not name.endswith(".bias")}
        model.load_state_dict({name: tensor.contiguous() for name, tensor in weights.items() if tensor is not None})
        return model.eval()

    def save_pretrained(self, path):
        """Write `config.json` and `model.safetensors` such that `transformers` and `from_pretrained` read them.

        Biases that the model has not are written as zeros, since Hugging Face's GPT-2 always has them.
        """
        path = Path(path)
        path.mkdir(parents=True, exist_ok=True)
        weights = {}
        for name, tensor in self.state_dict().items():
            if name == "lm_head.weight":
                continue
            plain = name.removeprefix("transformer.")
            weights[name] = tensor.t().contiguous() if _is_conv1d(plain) else tensor
            bias = name.removesuffix("weight") + "bias"
            if not self.config.use_bias and ".wte." not in name and ".wpe." not in name:
                weights[bias] = zeros(tensor.shape[0], dtype=tensor.dtype)
        save_safetensors(weights, path / "model.safetensors", metadata={"format": "pt"})
        write_json(path / "config.json", _config_to_hugging_face(self.config))


def _init_layer(module):
    if isinstance(module, nn.Linear):
        init.normal_(module.weight, mean=0.0, std=0.02)
        if module.bias is not None:
            init.zeros_(module.bias)
    elif isinstance(module, nn.Embedding):
        init.normal_(module.weight, mean=0.0, std=0.02)


_HF_ACTIVATIONS = {"gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "gelu": "gelu"}


def _is_conv1d(name):
    """Whether Hugging Face keeps this weight transposed, as (in, out)."""
    return name.endswith(("attn.c_attn.weight", "attn.c_proj.weight", "mlp.c_fc.weight", "mlp.c_proj.weight"))


def _config_from_hugging_face(path):
    file = path / "config.json"
    if not file.is_file():
        raise FileNotFoundError(f"GPT2.from_pretrained: {file} is missing; expected a Hugging Face model directory.")
    values = json.loads(file.read_text())
    if values.get("model_type", "gpt2") != "gpt2":
        raise ValueError(f"GPT2.from_pretrained: {file} describes a {values['model_type']!r} model, not a 'gpt2'.")
    activation = values.get("activation_function", "gelu_new")
    if activation not in _HF_ACTIVATIONS:
        raise ValueError(
            f"GPT2.from_pretrained: activation_function is {activation!r}; known are {', '.join(_HF_ACTIVATIONS)}."
        )
    for option, usual in (
        ("scale_attn_weights", True),
        ("scale_attn_by_inverse_layer_idx", False),
        ("add_cross_attention", False),
        ("tie_word_embeddings", True),
    ):
        if values.get(option, usual) != usual:
            raise ValueError(f"GPT2.from_pretrained: {option}={values[option]} is not supported; only {usual} is.")
    width = values["n_embd"]
    return GPT2Config(
        vocab_size=values["vocab_size"],
        context_length=values.get("n_positions", 1024),
        num_layers=values["n_layer"],
        num_heads=values["n_head"],
        embed_dim=width,
        mlp_ratio=(values.get("n_inner") or 4 * width) / width,
        dropout_p=values.get("resid_pdrop", 0.1),
        use_bias=values.get("use_bias", True),
        activation=_HF_ACTIVATIONS[activation],
        layer_norm_eps=values.get("layer_norm_epsilon", 1e-5),
    )


def _config_to_hugging_face(config):
    return {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "vocab_size": config.vocab_size,
        "n_positions": config.context_length,
        "n_ctx": config.context_length,
        "n_embd": config.embed_dim,
        "n_layer": config.num_layers,
        "n_head": config.num_heads,
        "n_inner": int(config.mlp_ratio * config.embed_dim),
        "activation_function": "gelu" if config.activation == "gelu" else "gelu_new",
        "resid_pdrop": config.dropout_p,
        "embd_pdrop": config.dropout_p,
        "attn_pdrop": config.dropout_p,
        "layer_norm_epsilon": config.layer_norm_eps,
        "initializer_range": 0.02,
        "tie_word_embeddings": True,
        "use_bias": config.use_bias,
        "torch_dtype": "float32",
    }


def _read_weights(path):
    """All tensors of `model.safetensors`, or of the shards that its index names."""
    index = path / "model.safetensors.index.json"
    if index.is_file():
        names = sorted(set(json.loads(index.read_text())["weight_map"].values()))
    else:
        names = ["model.safetensors"]
    weights = {}
    for name in names:
        if Path(name).name != name:
            raise ValueError(f"GPT2.from_pretrained: {index} names {name!r}, which is not a file beside it.")
        if not (path / name).is_file():
            raise FileNotFoundError(f"GPT2.from_pretrained: {path / name} is missing.")
        weights.update(load_safetensors(path / name))
    return weights
