"""What the language models share: loss, groups for an optimizer, generation, and files in Hugging Face's form."""

import contextlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

from .. import nn
from .._tensor import Tensor
from ..autograd.recompute import checkpoint
from ..engine.mode import is_grad_enabled
from ..files.writing import recover
from ..nn import functional as F
from . import hugging_face
from .cache import KVCache
from .generation import generate, stream
from .tokenizer import load_tokenizer


@dataclass(frozen=True)
class Config:
    """What determines a model's shape and behaviour."""

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Any:
        """The config of a dict such as `to_dict` gives; other keys are left aside."""
        known = {field.name for field in fields(cls)}
        return cls(**{key: value for key, value in values.items() if key in known})

    def to_dict(self) -> dict[str, Any]:
        """All fields, as JSON can hold them."""
        return asdict(self)


class LanguageModel(nn.Module):
    """A causal language model: integers (B, T) to logits (B, T, V), with a config and an `lm_head`.

    A model of your own defines `forward` as `GPT2.forward` does, `config_class`, and for `from_pretrained` and
    `save_pretrained` a module `files` with four functions, as models/gpt2_files.py is.
    """

    tokenizer: Any = None  # set one to generate text from text
    config_class: Any
    files: Any
    config: Any
    lm_head: Any

    def loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Mean cross-entropy of logits (B, T, V) and targets (B, T)."""
        return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1), fused=self.config.fused)

    @property
    def device(self):
        """Where the parameters lie."""
        return self.lm_head.weight.device

    def num_parameters(self, *, only_trainable: bool = False) -> int:
        """How many numbers the parameters are; those that are not frozen if `only_trainable`."""
        return sum(p.numel() for p in self.parameters() if p.requires_grad or not only_trainable)

    def matrix_parameters(self) -> int:
        """How many numbers a token is multiplied with: all but the tables in which it is looked up."""
        return self.num_parameters()

    def flops_per_token(self, length: int | None = None) -> float:
        """Operations for a token in forward and backward, in sequences of `length` (the context, if not given).

        Source: Chowdhery et al., PaLM, 2022, appendix B; as nanoGPT counts.
        """
        config, length = self.config, length or self.config.context_length
        seen = sum(min(length, window or length) for window in self._windows() or [None] * config.num_layers)
        width = config.num_heads * getattr(config, "head", config.embed_dim // config.num_heads)
        return 6.0 * self.matrix_parameters() + 12.0 * width * seen

    def parameter_groups(self, weight_decay: float) -> list[dict[str, Any]]:
        """Groups for an optimizer: matrices and embeddings decay, biases and norms don't."""
        parameters = [p for p in self.parameters() if p.requires_grad]
        return [
            {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": weight_decay},
            {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
        ]

    def new_cache(self, batch_size: int | None = None, length: int | None = None, sliding: bool = True) -> KVCache:
        """An empty KVCache for at most `length` tokens (the context, if not given).

        Args:
            batch_size: accepted for models that need it; this cache takes it from the first input.
            length: the most positions.
            sliding: see KVCache.
        """
        context = self.config.context_length
        return KVCache(self.config.num_layers, min(length or context, context), self._windows(), sliding)

    def _windows(self):
        """How many positions each layer sees; None for all, in all layers."""
        return None

    def _check_length(self, length):
        if length > self.config.context_length:
            raise ValueError(
                f"{type(self).__name__}: {length} positions don't fit in the context of {self.config.context_length}; "
                "crop the input."
            )

    def _runs(self, blocks, cache):
        """Each block as it is to be called: with its part of a cache, or so that backward runs it again."""
        again = self.config.gradient_checkpointing and self.training and cache is None and is_grad_enabled()
        for i, block in enumerate(blocks):
            if again:
                yield partial(checkpoint, block)
            else:
                yield partial(block, cache=None if cache is None else cache.layers[i])

    def _head(self, h, targets, last_only):
        """Logits (B, T, V) of h (B, T, C), or the mean cross-entropy if there are targets."""
        cap = getattr(self.config, "logit_softcap", None)
        if targets is None or cap is not None or type(self.lm_head) is not nn.Linear:  # more than a weight
            logits = self.lm_head(h[:, -1:] if last_only and targets is None else h)
            logits = logits if cap is None else (logits / cap).tanh() * cap
            return logits if targets is None else self.loss(logits, targets)
        rows = h.reshape(-1, h.shape[-1])
        return F.linear_cross_entropy(rows, self.lm_head.weight, targets.reshape(-1), fused=self.config.fused)

    def generate(self, input: Any, max_new_tokens: int, **options: Any) -> Any:
        """Continue each row of `input`, tokens or text; see `mytorch.models.generation.generate`."""
        return generate(self, input, max_new_tokens, **options)

    def stream(self, input: Any, max_new_tokens: int, **options: Any) -> Iterator[Any]:
        """Yield a continuation as it is made; see `mytorch.models.generation.stream`."""
        return stream(self, input, max_new_tokens, **options)

    # -- Hugging Face's files ---------------------------------------------------------------------

    @classmethod
    def from_pretrained(cls, path: str | Path, **changes: Any) -> Any:
        """The model in a Hugging Face directory: `config.json` and `model.safetensors` (or its shards).

        Args:
            path: the directory; or a name on Hugging Face's hub, if its client is installed: "openai-community/gpt2".
            **changes: fields of the config to change, such as `fused`.

        Raises:
            FileNotFoundError: a file is missing.
            ValueError: it is another architecture, or has options that this model has not.
            RuntimeError: weights are missing, or of other shapes than the config says.
        """
        who = f"{cls.__name__}.from_pretrained"
        folder = hugging_face.directory_of(path, who)
        recover(folder)
        values, file = hugging_face.read_json(folder, who)
        model = cls(cls.config_class(**cls.files.fields(values, file, who)), **changes)
        model.load_state_dict(cls.files.to_ours(hugging_face.read_weights(folder, who), model.config))
        if (folder / "tokenizer.json").is_file():
            with contextlib.suppress(
                ValueError, ImportError
            ):  # damaged, or its package is missing: there are still tokens
                model.tokenizer = load_tokenizer(folder / "tokenizer.json")
        return model.eval()

    def save_pretrained(self, path: str | Path, max_shard_size: int = 5 * 10**9) -> None:
        """Write `config.json` and `model.safetensors` such that `transformers` and `from_pretrained` read them; and the tokenizer.

        Both take their place in one step, also over another model; the directory's other files stay.

        Args:
            path: the directory.
            max_shard_size: more bytes of weights are divided over several files, with an index.
        """
        weights = self.files.to_theirs(self.state_dict(), self.config)
        hugging_face.write(path, weights, self.files.describe(self.config), max_shard_size, self.tokenizer)
