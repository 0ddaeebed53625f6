"""Fine-tuning by small matrices beside frozen ones, in the files of Hugging Face's PEFT.

    lora.inject(model, targets=["q_proj", "v_proj"], rank=8)    # what is trained from here on is little
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
from .._tensor import Tensor
from ..engine.mode import no_grad
from ..files.writing import replace_directory
from ..nn import functional as F
from ..nn import init
from ..ops.creation import empty, zeros
from ..serialization import load_safetensors, save_safetensors, write_json

_PREFIX = "base_model.model."  # of PEFT's names
USUAL = ("c_attn", "q_proj", "v_proj")  # targets: what a GPT-2 has of them, or a Llama
_WEIGHTS, _CONFIG = "adapter_model.safetensors", "adapter_config.json"


class LoRALinear(nn.Module):
    """base(x) + alpha / rank · x Aᵀ Bᵀ, with the base frozen. B begins as zeros, so nothing is changed at first.

    Args:
        base: a Linear.
        rank: rows of A and columns of B.
        alpha: how much the two count, compared with rank.
        dropout_p: dropout of x before A.
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
        """The base's weight, without what is learnt."""
        return self.base.weight

    def delta(self) -> Tensor:
        """What is added to the base's weight, (out, in)."""
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
    """Put a LoRALinear around each Linear whose name, or its end after a dot, is a target; freeze everything else.

    Args:
        model: is changed, and returned.
        targets: by default "q_proj" and "v_proj", or "c_attn" in a GPT-2.
        rank: of the matrices that are learnt.
        alpha: how much they count, compared with rank; by default 2 · rank.
        dropout_p: dropout before them, in training.

    Raises:
        ValueError: a rank below 1, a target that no Linear is called, or a model that has been injected already.

    Example:
        >>> model = mytorch.models.lora.inject(nn.Sequential(nn.Linear(4, 3), nn.ReLU()), ["0"], rank=2)
        >>> sum(p.numel() for p in model.parameters() if p.requires_grad)
        14
    """
    if targets is None:
        targets = sorted({name.rpartition(".")[2] for name, _ in model.named_modules()}.intersection(USUAL))
    targets = [targets] if isinstance(targets, str) else list(targets)
    if rank < 1:
        raise ValueError(f"lora.inject: rank is {rank}; expected at least 1.")
    if next(_layers(model), None):
        raise ValueError("lora.inject: the model has such layers already; merge them first.")
    found = {
        t: [n for n, m in model.named_modules() if isinstance(m, nn.Linear) and f".{n}".endswith(f".{t}")]
        for t in targets
    }
    if lacking := [target for target, names in found.items() if not names]:
        raise ValueError(f"lora.inject: no Linear is called {', '.join(lacking)}.")
    for p in model.parameters():
        p.requires_grad_(False)
    for name in sorted({name for names in found.values() for name in names}):  # so that equal seeds give equal weights
        base: Any = model.get_submodule(name)
        _replace(model, name, LoRALinear(base, rank, 2 * rank if alpha is None else alpha, dropout_p))
    return model


@no_grad()
def merge(model: nn.Module) -> nn.Module:
    """Add what was learnt to the weights and take the LoRALinears away; everything is trainable again. Returns the model."""
    for name, layer in list(_layers(model)):
        layer.base.weight.add_(layer.delta())
        _replace(model, name, layer.base)
    for p in model.parameters():
        p.requires_grad_(True)
    return model


def save_adapter(model: nn.Module, path: str | Path, base_model: str | None = None) -> None:
    """Write `adapter_model.safetensors` and `adapter_config.json`, as PEFT does.

    Args:
        model: an injected one.
        path: the directory.
        base_model: name or path of the model without what was learnt, for the config.
    """
    layers = dict(_layers(model))
    if not layers:
        raise ValueError("lora.save_adapter: the model has nothing of the kind; inject it first.")
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


@no_grad()
def load_adapter(model: nn.Module, path: str | Path) -> nn.Module:
    """Inject what `save_adapter`, or PEFT, has written. Returns the model.

    Args:
        model: without LoRALinears.
        path: the directory.

    Raises:
        FileNotFoundError: a file is missing. ValueError: an adapter of another kind, or of another model.
    """
    config, weights = json.loads((Path(path) / _CONFIG).read_text()), load_safetensors(Path(path) / _WEIGHTS)
    if (
        config.get("peft_type") != "LORA"
        or config.get("use_dora")
        or config.get("use_rslora")
        or config.get("rank_pattern")
    ):
        raise ValueError(f"lora.load_adapter: {path} holds an adapter of another kind than plain LoRA.")
    names = sorted({name.removeprefix(_PREFIX).rpartition(".lora_")[0] for name in weights})
    inject(model, names, config["r"], config["lora_alpha"], config.get("lora_dropout", 0.0))
    for name, layer in _layers(model):
        for letter in "AB":
            own, given = getattr(layer, f"lora_{letter}"), weights.get(f"{_PREFIX}{name}.lora_{letter}.weight")
            if given is None or given.shape != own.shape:
                raise ValueError(
                    f"lora.load_adapter: {path} has no lora_{letter} of shape {tuple(own.shape)} for {name}."
                )
            own.copy_(given)
    return model
