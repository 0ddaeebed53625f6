"""Base classes of the language models: loss, optimizer groups, generation, and files in Hugging Face's format."""

import contextlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from .. import nn
from ..arrays.tensor import Tensor
from ..autograd.mode import is_grad_enabled
from ..autograd.recompute import checkpoint
from ..files.writing import recover
from ..nn import functional as F
from . import hugging_face
from .cache import KVCache
from .generation import generate, stream
from .tokenizer import load_tokenizer


@dataclass(frozen=True)
class Config:
    """Base class of the configs."""

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Any:
        """Returns a config with the fields of a dict. Other keys are ignored.

        Args:
            values: a dict, such as the result of `to_dict`.
        """
        known = {field.name for field in fields(cls)}
        return cls(**{key: value for key, value in values.items() if key in known})

    def to_dict(self) -> dict[str, Any]:
        """Returns all fields as a dict of JSON values."""
        return asdict(self)


class LanguageModel(nn.Module):
    """A causal language model that converts integers (B, T) to logits (B, T, V), with a config and an `lm_head`.

    A subclass defines `forward` like `GPT2.forward`, and `config_class`. `from_pretrained` and `save_pretrained` also
    require a module `files` with four functions, like models/gpt2_files.py. Its fifth function, `shapes`, is optional: it
    lets `from_pretrained` compare the config with the weights before the model is created.
    """

    tokenizer: Any = None  # set it to generate text from text
    config_class: Any
    files: Any
    config: Any
    lm_head: Any

    def loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Returns the mean cross-entropy.

        Args:
            logits: (B, T, V).
            targets: integers (B, T).
        """
        return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1), fused=self.config.fused)

    @property
    def device(self):
        """The device of the parameters."""
        return self.lm_head.weight.device

    def num_parameters(self, *, only_trainable: bool = False) -> int:
        """Returns the number of parameters.

        Args:
            only_trainable: count only parameters with `requires_grad`.
        """
        return sum(p.numel() for p in self.parameters() if p.requires_grad or not only_trainable)

    def matrix_parameters(self) -> int:
        """Returns the number of parameters in matrix multiplications per token: all except embedding tables."""
        return self.num_parameters()

    def flops_per_token(self, length: int | None = None) -> float:
        """Returns the number of floating-point operations per token in forward and backward.

        Args:
            length: length of the sequences (default: the context).

        Source: Chowdhery et al., PaLM, 2022, appendix B; as nanoGPT counts.
        """
        config, length = self.config, length or self.config.context_length
        seen = sum(min(length, window or length) for window in self._windows() or [None] * config.num_layers)
        width = config.num_heads * getattr(config, "head", config.embed_dim // config.num_heads)
        return 6.0 * self.matrix_parameters() + 12.0 * width * seen

    def parameter_groups(self, weight_decay: float) -> list[dict[str, Any]]:
        """Returns optimizer groups in which only matrices and embeddings have weight decay.

        Args:
            weight_decay: weight decay of matrices and embeddings.
        """
        parameters = [p for p in self.parameters() if p.requires_grad]
        return [
            {"params": [p for p in parameters if p.ndim >= 2], "weight_decay": weight_decay},
            {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
        ]

    def new_cache(self, batch_size: int | None = None, length: int | None = None, sliding: bool = True) -> KVCache:
        """Returns an empty KVCache.

        Args:
            batch_size: ignored; the batch size of the first input is used.
            length: maximum number of positions (default: the context).
        """
        context = self.config.context_length
        return KVCache(self.config.num_layers, min(length or context, context), self._windows(), sliding)

    def _windows(self):
        """Return the number of positions that each layer sees, or None if all layers see all positions."""
        return None

    def _check_length(self, length):
        if length > self.config.context_length:
            raise ValueError(
                f"{type(self).__name__}: expected at most {self.config.context_length} positions (context_length), got "
                f"{length}. Crop the input."
            )

    def _runs(self, blocks, cache):
        """Yield a function for each block, with its part of the cache or with gradient checkpointing."""
        again = self.config.gradient_checkpointing and self.training and cache is None and is_grad_enabled()
        for i, block in enumerate(blocks):
            if again:
                yield partial(checkpoint, block)
            else:
                yield partial(block, cache=None if cache is None else cache.layers[i])

    def _head(self, h, targets, last_only):
        """Return logits (B, T, V) of h (B, T, C), or the mean cross-entropy with targets."""
        cap = getattr(self.config, "logit_softcap", None)
        if targets is None or cap is not None or type(self.lm_head) is not nn.Linear:  # not a plain linear head
            logits = self.lm_head(h[:, -1:] if last_only and targets is None else h)
            logits = logits if cap is None else (logits / cap).tanh() * cap
            return logits if targets is None else self.loss(logits, targets)
        rows = h.reshape(-1, h.shape[-1])
        return F.linear_cross_entropy(rows, self.lm_head.weight, targets.reshape(-1), fused=self.config.fused)

    def generate(self, input: Any, max_new_tokens: int, **options: Any) -> Any:
        """Generates a continuation of tokens or text; see `mytorch.models.generate`.

        Args:
            input: tokens (B, T), or text.
            max_new_tokens: maximum number of new tokens.
            **options: temperature, top_k, top_p, stop, num_beams and others; see `mytorch.models.stream`.
        """
        return generate(self, input, max_new_tokens, **options)

    def stream(self, input: Any, max_new_tokens: int, **options: Any) -> Iterator[Any]:
        """Yields a continuation as it is generated; see `mytorch.models.stream`.

        Args:
            input: tokens (B, T), or text.
            max_new_tokens: maximum number of new tokens.
            **options: options of `mytorch.models.stream`.
        """
        return stream(self, input, max_new_tokens, **options)

    # -- Hugging Face's files ---------------------------------------------------------------------

    @classmethod
    def from_pretrained(cls, path: str | Path, **changes: Any) -> Any:
        """Loads a model from a Hugging Face directory: `config.json` and `model.safetensors` (or its shards).

        Args:
            path: the directory, or a name on Hugging Face's hub, such as "openai-community/gpt2", which requires the
                package `huggingface_hub`.
            **changes: fields of the config to change, such as `fused`.

        Raises:
            FileNotFoundError: if a file is missing.
            ValueError: if the architecture is different, or an option is not supported.
            RuntimeError: if weights are missing or have other shapes than in the config.
        """
        who = f"{cls.__name__}.from_pretrained"
        folder = hugging_face.directory_of(path, who)
        recover(folder)
        values, file = hugging_face.read_json(folder, who)
        given = cls.files.fields(values, file, who)
        try:
            config = cls.config_class(**given)
        except ValueError as error:
            raise ValueError(f"{who}: {file}: {error}") from None
        config = replace(config, **changes)
        weights = cls.files.to_ours(hugging_face.read_weights(folder, who), config)
        if hasattr(cls.files, "shapes"):
            actual = {name: weight.shape for name, weight in weights.items()}
            hugging_face.check_shapes(cls.files.shapes(config), actual, who, folder)
        model = cls(config)
        model.load_state_dict(weights)
        if (folder / "tokenizer.json").is_file():
            with contextlib.suppress(
                ValueError, ImportError
            ):  # damaged, or its package is missing: the model still accepts tokens
                model.tokenizer = load_tokenizer(folder / "tokenizer.json")
        return model.eval()

    def check_trained(self, function: str) -> None:
        """Raises ValueError if layers were replaced, for example by `quantize_` or `lora.inject`: other programs can't read those.

        Args:
            function: the name for the error message.
        """
        if differing := set(self.state_dict()) ^ {name for name, _ in self.files.shapes(self.config)}:
            raise ValueError(
                f"{function}: expected the weights of a {type(self).__name__} as it was trained, but {min(differing)} differs. "
                "Merge LoRA matrices with models.lora.merge(model), and export before models.quantize_."
            )

    def save_pretrained(self, path: str | Path, max_shard_size: int = 5 * 10**9) -> None:
        """Writes `config.json`, `model.safetensors` and the tokenizer, for `transformers` and `from_pretrained`.

        The files are replaced atomically. Other files in the directory remain.

        Args:
            path: the directory.
            max_shard_size: maximum bytes of weights per file; larger models get several files and an index.

        Raises:
            ValueError: after `quantize_`, or with LoRA matrices that are not merged: the files hold float weights.
        """
        self.check_trained("save_pretrained")
        weights = self.files.to_theirs(self.state_dict(), self.config)
        hugging_face.write(path, weights, self.files.describe(self.config), max_shard_size, self.tokenizer)
