"""A Llama whose feed-forward parts are mixtures of experts: each token goes to the two that fit it best.

    python -m examples.moe --experts 4

Source: Shazeer et al., 2017; the balancing loss: Fedus et al., 2021.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # to run as a script, too

import mytorch
from examples.llama import SwiGLU, fit, flags
from mytorch import nn
from mytorch.cli.arguments import count, run_script
from mytorch.nn import functional as F


class MixtureOfExperts(nn.Module):
    """Experts, and a router that sends each token to `chosen` of them and weighs what they say.

    Attributes:
        balance: of the last call: 1 if the experts are used equally, up to their number if one does everything.
        usage: of the last call: the share of the choices that fell on each expert.
    """

    def __init__(self, width, hidden, experts, chosen):
        super().__init__()
        if chosen > experts:
            raise ValueError(f"--chosen {chosen} of --experts {experts}: there are not so many.")
        self.chosen = chosen
        self.router = nn.Linear(width, experts, bias=False)
        self.experts = nn.ModuleList([SwiGLU(width, hidden) for _ in range(experts)])

    def forward(self, x):
        flat = x.flatten(0, -2)  # (tokens, width)
        probabilities = F.softmax(self.router(flat), dim=-1)  # (tokens, experts)
        weights, choices = probabilities.topk(self.chosen, dim=-1)  # (tokens, chosen)
        weights = weights / weights.sum(-1, keepdim=True)
        out = mytorch.zeros_like(flat)
        for i, expert in enumerate(self.experts):
            rows, column = mytorch.where(choices == i)  # which tokens chose it, and as which choice
            if len(rows) == 0:
                continue
            out = out.index_add(0, rows, expert(flat[rows]) * weights[rows, column].unsqueeze(-1))
        self.usage = F.one_hot(choices, len(self.experts)).float().mean((0, 1))
        self.balance = len(self.experts) * (self.usage * probabilities.mean(0)).sum()
        return out.reshape(x.shape)


def main():
    parser = flags(__doc__.splitlines()[0])
    parser.add_argument("--experts", type=count, default=4)
    parser.add_argument("--chosen", type=count, default=2, help="how many experts work on a token")
    parser.add_argument("--balance", type=float, default=0.01, help="weight of the loss that balances the experts")
    args = parser.parse_args()

    def mixtures(model):
        return [m for m in model.modules() if isinstance(m, MixtureOfExperts)]

    model = fit(
        args,
        feed_forward=lambda: MixtureOfExperts(args.width, args.width, args.experts, args.chosen),
        extra_loss=lambda model: args.balance * sum(m.balance for m in mixtures(model)),
    )
    for i, mixture in enumerate(mixtures(model)):
        print(f"layer {i}: share of the tokens by expert " + " ".join(f"{u:.2f}" for u in mixture.usage.tolist()))


if __name__ == "__main__":
    run_script(main)
