"""A Llama whose feed-forward parts are mixtures of experts: each token goes to the two that fit it best.

    python -m examples.moe --experts 4

The model is `mytorch/models/llama.py` with `mixture.py`. Source: Shazeer et al., 2017; the balancing loss: Fedus et al., 2021.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # to run as a script, too

from examples.llama import fit, flags
from mytorch.cli.arguments import count, run_script
from mytorch.models import MixtureOfExperts
from mytorch.nn.module import register_module_forward_hook


def main():
    parser = flags(__doc__.splitlines()[0])
    parser.add_argument("--experts", type=count, default=4)
    parser.add_argument("--chosen", type=count, default=2, help="how many experts work on a token")
    parser.add_argument("--balance", type=float, default=0.01, help="weight of the loss that balances the experts")
    args = parser.parse_args()

    if args.chosen > args.experts:
        raise ValueError(f"--chosen {args.chosen} of --experts {args.experts}: there are not so many.")
    usage = {}

    def note(layer, inputs, output):
        if isinstance(layer, MixtureOfExperts):
            usage[layer] = output[1][0] / args.chosen  # of the last call: the share of the choices on each expert

    options = {"num_experts": args.experts, "experts_per_token": args.chosen, "balance": args.balance}
    with register_module_forward_hook(note):
        model = fit(args, hidden_dim=args.width, **options)
    for i, block in enumerate(model.model.layers):
        print(f"layer {i}: share of the tokens by expert " + " ".join(f"{u:.2f}" for u in usage[block.mlp].tolist()))


if __name__ == "__main__":
    run_script(main)
