"""`fuse_`: an optimization pass over a language model that combines neighboring layers into one GPU kernel.

The models in this package contain one call per layer. The pass replaces the classes of some modules by the classes in this
file. Their `forward` calls fewer and larger ops:

* a residual addition and the norm that follows it become `F.add_layer_norm` or `F.add_rms_norm`;
* the two linear layers of an MLP and the GELU between them become `F.gelu_mlp`.

Parameters, state dict keys and results stay the same. The ops have kernels for GPUs. On a CPU the layers run one by one.
"""

from typing import Any

from .. import nn
from ..arrays.tensor import Tensor
from ..nn import functional as F
from ..nn.module import is_plain
from ..nn.residual import AddLayerNorm
from . import gpt2, llama
from .cache import LayerCache
from .mixture import MixtureOfExperts


class FusedMLP(gpt2.MLP):
    """GPT-2's MLP as one op.

    The layers run one by one on a CPU, and if a layer was replaced or has hooks.
    """

    def forward(self, x: Tensor) -> Tensor:
        first, gelu, last = self.c_fc, self.gelu, self.c_proj
        plain = is_plain(first, nn.Linear) and is_plain(gelu, nn.GELU) and is_plain(last, nn.Linear)
        if x.device.type == "cpu" or not plain:
            return super().forward(x)
        weights = first.weight, last.weight, first.bias, last.bias
        return self.dropout(F.gelu_mlp(x, *weights, approximate=gelu.approximate, fused=first.fused))


class FusedBlock(gpt2.Block):
    """GPT-2's block. Each norm also computes the residual addition before it.

    The addition after the MLP is left to the next norm: the block returns `(x, branch)` instead of `x + branch`. The next
    FusedBlock, or FusedFinalNorm after the last block, accepts the pair. On a CPU the block runs as a plain one.
    """

    def forward(self, x: Any, cache: LayerCache | None = None) -> Any:
        if isinstance(x, tuple):
            x, h = self.ln_1(*x)
        elif x.device.type == "cpu":
            return super().forward(x, cache)
        else:  # the embeddings, before the first block
            h = self.ln_1(x)
        x, h = self.ln_2(x, self.attn(h, cache))
        return x, self.mlp(h)


class FusedFinalNorm(AddLayerNorm):
    """The norm after the last FusedBlock: the layer norm of `x + branch`."""

    def forward(self, x: Any) -> Tensor:  # type: ignore[override]
        return super().forward(*x)[1] if isinstance(x, tuple) else super().forward(x)


class FusedLlamaBlock(llama.Block):
    """Llama's block. The second norm also computes the residual addition before it."""

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, cache: LayerCache | None = None) -> Any:
        if x.device.type == "cpu":
            return super().forward(x, cos, sin, cache)
        x, h = self.post_attention_layernorm(self.self_attn(self.input_layernorm(x), cos, sin, cache), x)
        if isinstance(self.mlp, MixtureOfExperts):
            out, routing = self.mlp(h)
            return x + out, routing
        return x + self.mlp(h)


def fuse_(model: nn.Module) -> nn.Module:
    """Combines neighboring layers of a GPT2 or Llama in place, which is faster on a GPU.

    The results, the parameters and the state dict keys stay the same. Modules of other classes stay as they are, so any
    model is accepted. Hooks on the blocks of a fused GPT2 on a GPU receive the pair `(x, branch)` as the block's output.

    Args:
        model: a GPT2 or Llama, or a module that contains one. `fuse_` changes the classes of its blocks, norms and MLPs.

    Returns:
        The model.

    Example:
        >>> model = mytorch.models.GPT2(num_layers=1, num_heads=2, embed_dim=8, vocab_size=16, context_length=4)
        >>> tokens, keys = tensor([[1, 2, 3]]), list(model.state_dict())
        >>> before = model(tokens)
        >>> model = mytorch.models.fuse_(model)
        >>> mytorch.allclose(model(tokens), before), list(model.state_dict()) == keys
        (True, True)
    """
    for module in list(model.modules()):
        if type(module) is gpt2.MLP:
            module.__class__ = FusedMLP
        elif type(module) is llama.Block and type(module.post_attention_layernorm) is nn.RMSNorm:
            module.__class__ = FusedLlamaBlock
        elif isinstance(module, gpt2.GPT2):
            _fuse_blocks(module)
    return model


def _fuse_blocks(model):
    """Fuses the blocks of a GPT2 if its `forward`, all blocks and all norms are the ones of models/gpt2.py."""
    blocks, last = model.transformer.h, model.transformer.ln_f
    norms = [norm for block in blocks for norm in (getattr(block, "ln_1", None), getattr(block, "ln_2", None))]
    known = type(model).forward is gpt2.GPT2.forward and len(blocks) > 0
    if known and all(type(b) is gpt2.Block for b in blocks) and all(type(n) in _NORMS for n in (*norms, last)):
        for block in blocks:
            block.__class__ = FusedBlock
        for norm in norms:
            norm.__class__ = AddLayerNorm
        last.__class__ = FusedFinalNorm


_NORMS = (nn.LayerNorm, AddLayerNorm)
