"""Mixture of experts: each token uses a few of several hidden layers."""

from typing import Any

from .. import nn
from ..arrays.tensor import Tensor
from ..nn import functional as F
from ..ops.creation import zeros_like
from ..ops.elementwise import where
from ..ops.movement import stack


class MixtureOfExperts(nn.Module):
    """Routes each token to its `chosen` most likely experts, and returns the weighted sum of their outputs.

    Args:
        width: size of a token.
        make_expert: function that returns a module from (N, width) to (N, width).
        num_experts: number of experts.
        chosen: number of experts per token; their weights add up to 1.
        capacity_factor: limit in training: an expert accepts capacity_factor times its even share of the tokens. First
            choices precede second choices; other tokens skip the expert. None for no limit. In evaluation mode there is
            no limit, so that a token's result does not depend on other tokens.
        fused: `fused` of the gate; see `mytorch.fused`.

    Shape:
        (…, width) to (…, width) and the routing, (2, num_experts): the number of choices per token and the mean probability
        of each expert, for `balance_loss`.

    Source: Shazeer et al., 2017. Capacity: Fedus et al., Switch Transformers, 2021. Weights: Jiang et al., Mixtral, 2024.

    Example:
        >>> mixture = mytorch.models.MixtureOfExperts(8, lambda: nn.Linear(8, 8), num_experts=4, chosen=2)
        >>> out, routing = mixture(mytorch.randn(3, 5, 8))
        >>> out.shape, routing[0].sum().item()
        (mytorch.Size([3, 5, 8]), 2.0)
    """

    def __init__(
        self, width: int, make_expert: Any, num_experts: int, chosen: int = 2, capacity_factor: float | None = None,
        fused: bool | None = None,
    ):  # fmt: skip
        super().__init__()
        if not 1 <= chosen <= num_experts:
            raise ValueError(f"MixtureOfExperts: expected chosen from 1 to num_experts={num_experts}, got {chosen}.")
        if capacity_factor is not None and capacity_factor <= 0:
            raise ValueError(
                f"MixtureOfExperts: expected capacity_factor to be a positive number or None, got {capacity_factor}."
            )
        self.chosen, self.capacity_factor = chosen, capacity_factor
        self.gate = nn.Linear(width, num_experts, bias=False, fused=fused)
        self.experts = nn.ModuleList([make_expert() for _ in range(num_experts)])

    def capacity(self, tokens: int) -> int:
        """Returns the maximum number of tokens for an expert.

        Args:
            tokens: number of all tokens.
        """
        if self.capacity_factor is None or not self.training:
            return tokens
        return max(1, int(self.capacity_factor * tokens * self.chosen / len(self.experts)))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        rows = x.reshape(-1, x.shape[-1])
        probabilities = F.softmax(self.gate(rows).float(), dim=-1)  # (N, experts)
        weights, choices = probabilities.topk(self.chosen, dim=-1)  # (N, chosen)
        weights = (weights / weights.sum(-1, keepdim=True)).to(x.dtype)
        out, capacity = zeros_like(rows), self.capacity(len(rows))
        for i, expert in enumerate(self.experts):
            rank, token = where(choices.t() == i)  # tokens that chose expert i, first choices first
            rank, token = rank[:capacity], token[:capacity]
            if len(token):
                out = out.index_add(0, token, expert(rows[token]) * weights[token, rank].unsqueeze(-1))
        share = F.one_hot(choices, len(self.experts)).float().sum(1).mean(0)
        return out.reshape(x.shape), stack([share, probabilities.mean(0)])


def balance_loss(routing: list[Tensor]) -> Tensor:
    """Computes the load-balancing loss. It equals the number of chosen experts if all experts are used equally.

    Args:
        routing: list of the routings (2, experts) of all MixtureOfExperts layers.

    Source: Fedus et al., Switch Transformers, 2021; computed over all layers together, as in Mixtral.
    """
    share, probability = stack(routing).mean(0)
    return len(share) * (share * probability).sum()
