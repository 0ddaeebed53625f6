"""Plans of tensor parallelism for the language models of `mytorch.models`."""

from ....models.gpt2 import GPT2
from ....models.llama import Llama
from ....nn.module import Module
from ..placement_types import Replicate, Shard
from .style import (
    ColwiseParallel,
    FusedColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    PrepareModuleOutput,
    RowwiseParallel,
    SequenceParallel,
)


def plan_of(model: Module, size: int, sequence_parallel: bool = False) -> dict[str, ParallelStyle]:
    """Returns the plan of a GPT2 or Llama for `parallelize_module`.

    Attention heads, hidden layers and the vocabulary are divided. The loss is computed from the divided logits.

    Args:
        size: number of processes of the mesh.
        sequence_parallel: also divide the sequence in norms and residual connections (default: False). The length of the
            sequence must be divisible by the number of processes.

    Raises:
        ValueError: the heads are not divisible by `size`, or the model has experts.
        TypeError: another model.

    Example:
        >>> from mytorch.distributed.tensor.parallel.plans import plan_of
        >>> model = mytorch.models.GPT2(num_layers=1, num_heads=2, embed_dim=8, vocab_size=16, context_length=4)
        >>> sorted(plan_of(model, 2))[:2]
        ['lm_head', 'transformer.h.*.attn.c_attn']
    """
    if not isinstance(model, (GPT2, Llama)):
        raise TypeError(f"plan_of: expected a GPT2 or Llama, got {type(model).__name__}. Write a plan for it.")
    config = model.config
    heads = [config.num_heads, getattr(config, "kv_heads", config.num_heads)]
    if any(n % size for n in heads):
        raise ValueError(
            f"plan_of: expected numbers of heads divisible by {size} processes, got {heads[0]} heads and {heads[1]} "
            "key-value heads. Use fewer processes for tensor parallelism."
        )
    if getattr(config, "num_experts", 0):
        raise ValueError("plan_of: expected a model without experts, got a mixture of experts.")
    return (_gpt2 if isinstance(model, GPT2) else _llama)(config, sequence_parallel)


def _common(table, norm, blocks, norms, attention, mlp, sequence):
    """Returns the part of a plan that both models share."""
    stream = Shard(1) if sequence else Replicate()
    plan = {
        table: RowwiseParallel(input_layouts=Replicate(), output_layouts=stream),
        "lm_head": ColwiseParallel(input_layouts=stream, use_local_output=False),
    }
    for name in (attention[-1], mlp[-1]):
        plan[f"{blocks}.{name}"] = RowwiseParallel(output_layouts=stream)
    for name in (*attention[:-1], *mlp[:-1]):
        plan[f"{blocks}.{name}"] = ColwiseParallel()
    if sequence:
        plan[norm] = SequenceParallel()
        plan |= {f"{blocks}.{name}": SequenceParallel() for name in norms}
    for name in (attention[0].partition(".")[0], mlp[0].partition(".")[0]):
        # The layers of a module have the same input, so its gradient is summed over the processes once.
        plan[f"{blocks}.{name}"] = PrepareModuleInput(input_layouts=stream, desired_input_layouts=Replicate())
    return plan


def _gpt2(config, sequence):
    blocks, norms = "transformer.h.*", ("ln_1", "ln_2")
    attention, mlp = ("attn.c_attn", "attn.c_proj"), ("mlp.c_fc", "mlp.c_proj")
    plan = _common("transformer.wte", "transformer.ln_f", blocks, norms, attention, mlp, sequence)
    plan[f"{blocks}.attn.c_attn"] = FusedColwiseParallel(3)
    if sequence:
        plan["transformer.wpe"] = PrepareModuleOutput(output_layouts=Replicate(), desired_output_layouts=Shard(0))
    return plan


def _llama(config, sequence):
    attention = tuple(f"self_attn.{name}_proj" for name in "qkvo")
    mlp = ("mlp.fc1", "mlp.fc2") if config.activation == "relu2" else ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")
    norms = ("input_layernorm", "post_attention_layernorm")
    return _common("model.embed_tokens", "model.norm", "model.layers.*", norms, attention, mlp, sequence)


__all__ = ["plan_of"]
