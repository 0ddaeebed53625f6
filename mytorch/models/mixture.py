"""A mixture of experts in a hidden layer's place: each token goes to the few that fit it best."""

from typing import Any

from .. import nn
from .._tensor import Tensor
from ..nn import functional as F
from ..ops.creation import zeros_like
from ..ops.elementwise import where
from ..ops.movement import stack


class MixtureOfExperts(nn.Module):
    """Experts, and a gate that sends each token to the `chosen` likeliest and weighs what they say.

    Args:
        width: of a token. make_expert: makes a module (N, width) to (N, width).
        num_experts: how many experts.
        chosen: how many of them work on a token; their weights are made to add up to 1.
        capacity_factor: in training an expert takes at most so many times its even share of the tokens, first choices
            before second ones, and passes the rest over; None for all. In eval mode it always takes all, so that
            a token's numbers don't depend on which others are computed with it.

    Shape:
        (…, width) to (…, width) and the routing, (2, num_experts): the choices that fell on each expert per token, and its
        mean probability, of which `balance_loss` is made.

    Source: Shazeer et al., 2017; capacity: Fedus et al., Switch Transformers, 2021; the weights: Jiang et al., Mixtral, 2024.

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
            raise ValueError(f"MixtureOfExperts: {chosen} experts of {num_experts} can't be chosen for a token.")
        if capacity_factor is not None and capacity_factor <= 0:
            raise ValueError(
                f"MixtureOfExperts: capacity_factor is {capacity_factor}; expected a positive number or None."
            )
        self.chosen, self.capacity_factor = chosen, capacity_factor
        self.gate = nn.Linear(width, num_experts, bias=False, fused=fused)
        self.experts = nn.ModuleList([make_expert() for _ in range(num_experts)])

    def capacity(self, tokens: int) -> int:
        """How many of so many tokens an expert takes."""
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
            rank, token = where(choices.t() == i)  # who chose it, and as which choice: the first ones first
            rank, token = rank[:capacity], token[:capacity]
            if len(token):
                out = out.index_add(0, token, expert(rows[token]) * weights[token, rank].unsqueeze(-1))
        share = F.one_hot(choices, len(self.experts)).float().sum(1).mean(0)
        return out.reshape(x.shape), stack([share, probabilities.mean(0)])


def balance_loss(routing: list[Tensor]) -> Tensor:
    """A loss that is the number of chosen experts when all are used equally, and more when they are not.

    Args:
        routing: what MixtureOfExperts returns, (2, experts), one for each layer.

    Source: Fedus et al., Switch Transformers, 2021; over all layers together as Mixtral.
    """
    share, probability = stack(routing).mean(0)
    return len(share) * (share * probability).sum()
