"""LoRA: fine-tuning with small trainable matrices next to frozen weights, in the file format of Hugging Face's PEFT.

    lora.inject(model, targets=["q_proj", "v_proj"], rank=8)    # only the LoRA matrices are trainable
    …train…
    lora.save_adapter(model, "adapter")
    lora.merge(model)                                           # a plain model again

Source: Hu et al., LoRA, 2021.
"""

import json
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from .. import nn
from ..arrays.tensor import Tensor
from ..autograd.mode import no_grad
from ..files.serialization import load_safetensors, save_safetensors, write_json
from ..files.writing import replace_directory
from ..nn import functional as F
from ..nn import init
from ..ops.creation import empty, zeros

_PREFIX = "base_model.model."  # prefix of PEFT's names
USUAL = ("c_attn", "q_proj", "v_proj")  # default targets, in GPT-2 and in Llama
_WEIGHTS, _CONFIG = "adapter_model.safetensors", "adapter_config.json"


class LoRALinear(nn.Module):
    """Computes base(x) + alpha / rank · x Aᵀ Bᵀ with a frozen base. B starts as zeros, so the result is the same at first.

    Args:
        base: a Linear.
        rank: number of rows of A and columns of B.
        alpha: scale; the update is multiplied by alpha / rank.
        dropout_p: dropout probability of the input of A.
    """

    def __init__(self, base: nn.Linear, rank: int, alpha: float, dropout_p: float = 0.0):
        super().__init__()
        out, into = base.weight.shape
        where: dict[str, Any] = {"device": base.weight.device, "dtype": base.weight.dtype}
        self.base, self.rank, self.alpha, self.dropout_p = base, rank, alpha, dropout_p
        self.lora_A = nn.Parameter(empty(rank, into, **where))
        self.lora_B = nn.Parameter(zeros(out, rank, **where))
        init.kaiming_uniform_(self.lora_A, a=math.sqrt(5))

    @property
    def weight(self) -> Tensor:
        """The weight of the base, without the update."""
        return self.base.weight

    def delta(self) -> Tensor:
        """Returns the update of the base's weight, (out, in)."""
        return self.lora_B @ self.lora_A * (self.alpha / self.rank)

    def forward(self, x: Tensor) -> Tensor:
        low = F.linear(F.dropout(x, self.dropout_p, self.training), self.lora_A)
        return self.base(x) + F.linear(low, self.lora_B) * (self.alpha / self.rank)


def _replace(model, path, new):
    parent, _, name = path.rpartition(".")
    setattr(model.get_submodule(parent), name, new)


def _layers(model) -> Iterator[tuple[str, LoRALinear]]:
    return ((name, module) for name, module in model.named_modules() if isinstance(module, LoRALinear))


def inject(
    model: nn.Module, targets: Iterable[str] | None = None, rank: int = 8, alpha: float | None = None,
    dropout_p: float = 0.0,
) -> nn.Module:  # fmt: skip
    """Replaces the target Linear layers by LoRALinear layers, and freezes all other parameters.

    Args:
        model: model to change in place; it is also returned.
        targets: names of Linear layers, or last parts of names (default: "q_proj" and "v_proj", or "c_attn" in GPT-2).
        rank: rank of the trainable matrices (default: 8).
        alpha: scale; the update is multiplied by alpha / rank (default: 2 · rank).
        dropout_p: dropout probability of the layers' input (default: 0).

    Raises:
        ValueError: if rank is below 1, a target does not match any Linear, or the model already has LoRA layers.

    Example:
        >>> model = mytorch.models.lora.inject(nn.Sequential(nn.Linear(4, 3), nn.ReLU()), ["0"], rank=2)
        >>> sum(p.numel() for p in model.parameters() if p.requires_grad)
        14
    """
    if targets is None:
        targets = sorted({name.rpartition(".")[2] for name, _ in model.named_modules()}.intersection(USUAL))
    targets = [targets] if isinstance(targets, str) else list(targets)
    if rank < 1:
        raise ValueError(f"lora.inject: expected rank to be at least 1, got {rank}.")
    if next(_layers(model), None):
        raise ValueError("lora.inject: the model already has LoRA layers. Call lora.merge(model) first.")
    found = {
        t: [n for n, m in model.named_modules() if isinstance(m, nn.Linear) and f".{n}".endswith(f".{t}")]
        for t in targets
    }
    if lacking := [target for target, names in found.items() if not names]:
        raise ValueError(f"lora.inject: no Linear has the name {', '.join(lacking)}.")
    for p in model.parameters():
        p.requires_grad_(False)
    for name in sorted({name for names in found.values() for name in names}):  # a fixed order, for equal seeds
        base: Any = model.get_submodule(name)
        _replace(model, name, LoRALinear(base, rank, 2 * rank if alpha is None else alpha, dropout_p))
    return model


@no_grad()
def merge(model: nn.Module) -> nn.Module:
    """Adds the updates to the weights, removes the LoRALinear layers, and makes all parameters trainable.

    Args:
        model: model to change in place; it is also returned.
    """
    for name, layer in list(_layers(model)):
        layer.base.weight.add_(layer.delta())
        _replace(model, name, layer.base)
    for p in model.parameters():
        p.requires_grad_(True)
    return model


def save_adapter(model: nn.Module, path: str | Path, base_model: str | None = None) -> None:
    """Writes `adapter_model.safetensors` and `adapter_config.json` in PEFT's format.

    Args:
        model: model with LoRALinear layers.
        path: the directory.
        base_model: name or path of the base model, for the config.
    """
    layers = dict(_layers(model))
    if not layers:
        raise ValueError("lora.save_adapter: the model has no LoRA layers. Call lora.inject(model) first.")
    weights = {}
    for name, layer in layers.items():
        weights[f"{_PREFIX}{name}.lora_A.weight"] = layer.lora_A.detach()
        weights[f"{_PREFIX}{name}.lora_B.weight"] = layer.lora_B.detach()
    any_layer = next(iter(layers.values()))
    config = {
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": base_model, "inference_mode": True,
        "r": any_layer.rank, "lora_alpha": any_layer.alpha, "lora_dropout": any_layer.dropout_p, "bias": "none",
        "target_modules": sorted(layers), "fan_in_fan_out": any(".c_" in name for name in layers),
    }  # fmt: skip

    def write(directory):
        save_safetensors(weights, directory / _WEIGHTS, metadata={"format": "pt"})
        write_json(directory / _CONFIG, config)

    replace_directory(path, write, ours=lambda name: name in (_WEIGHTS, _CONFIG))


def base_of(path: str | Path) -> str | None:
    """Returns the name or path of an adapter's base model, or None for a directory that is not an adapter.

    Args:
        path: the directory.

    Raises:
        ValueError: if the adapter names no base model.
    """
    file = Path(path) / _CONFIG
    if not file.is_file() or (Path(path) / "config.json").is_file():
        return None
    try:
        base = json.loads(file.read_text())["base_model_name_or_path"]
    except (KeyError, TypeError, ValueError, RecursionError):
        base = None
    if not isinstance(base, str) or not base:
        raise ValueError(
            f"from_pretrained: expected base_model_name_or_path in {file}, got none. Load the base model, and call lora.load_adapter."
        )
    return base


@no_grad()
def load_adapter(model: nn.Module, path: str | Path) -> nn.Module:
    """Injects an adapter that `save_adapter` or PEFT has written.

    Args:
        model: model without LoRALinear layers, changed in place; it is also returned.
        path: the directory.

    Raises:
        FileNotFoundError: if a file is missing.
        ValueError: if the adapter is not plain LoRA, or belongs to another model.
    """
    config, weights = json.loads((Path(path) / _CONFIG).read_text()), load_safetensors(Path(path) / _WEIGHTS)
    if (
        config.get("peft_type") != "LORA"
        or config.get("use_dora")
        or config.get("use_rslora")
        or config.get("rank_pattern")
    ):
        raise ValueError(f"lora.load_adapter: expected a plain LoRA adapter in {path}, got another kind.")
    names = sorted({name.removeprefix(_PREFIX).rpartition(".lora_")[0] for name in weights})
    inject(model, names, config["r"], config["lora_alpha"], config.get("lora_dropout", 0.0))
    for name, layer in _layers(model):
        for letter in "AB":
            own, given = getattr(layer, f"lora_{letter}"), weights.get(f"{_PREFIX}{name}.lora_{letter}.weight")
            if given is None or given.shape != own.shape:
                raise ValueError(
                    f"lora.load_adapter: expected lora_{letter} of shape {tuple(own.shape)} for {name} in {path}, found none."
                )
            own.copy_(given)
    return model
