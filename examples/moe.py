"""Train a Llama with mixture-of-experts layers, each of which sends a token to two experts.

    python -m examples.moe --experts 4

The model is in `mytorch/models/llama.py`, the expert layers are in `mixture.py`. Sources: Shazeer et al., 2017; Fedus et al., 2021
(balancing loss).
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for `python examples/…`

import mytorch
from examples.data import read_text
from examples.llama import fit, flags
from examples.pictures import panels, save_figure
from mytorch.cli.arguments import count, run_script
from mytorch.models import MixtureOfExperts
from mytorch.nn import functional as F
from mytorch.nn.module import register_module_forward_hook


def main():
    parser = flags(__doc__.splitlines()[0])
    parser.add_argument("--experts", type=count, default=4, help="number of experts per layer")
    parser.add_argument("--chosen", type=count, default=2, help="number of experts per token")
    parser.add_argument("--balance", type=float, default=0.01, help="weight of the load balancing loss")
    args = parser.parse_args()

    if args.chosen > args.experts:
        raise ValueError(f"--chosen: expected at most --experts {args.experts}, got {args.chosen}.")
    options = {"num_experts": args.experts, "experts_per_token": args.chosen, "balance": args.balance}
    model, tokenizer, _ = fit(args, hidden_dim=args.width, **options)
    # record the experts of the most frequent characters
    letters, shares = [" ", *"etaoinshrdlu,.\n"], []
    letters = [letter for letter in letters if letter in tokenizer.chars]
    text = read_text(args.text)[-8 * args.context :]
    tokens = mytorch.tensor(tokenizer.encode(text)).reshape(8, -1).to(args.device)

    def record(layer, inputs, output):
        if isinstance(layer, MixtureOfExperts):
            chosen = layer.gate(inputs[0]).topk(args.chosen).indices  # (B, T, chosen)
            shares.append(F.one_hot(chosen, args.experts).float().sum(2) / args.chosen)  # (B, T, experts)

    with register_module_forward_hook(record), mytorch.no_grad():
        model(tokens)
    for i, share in enumerate(shares):
        total = " ".join(f"{u:.2f}" for u in share.mean((0, 1)).tolist())
        print(f"layer {i}: fraction of the characters per expert {total}")
    if args.save:
        figure, axes = panels(len(shares), width=3, height=4.2)
        for i, (axis, share) in enumerate(zip(axes, shares, strict=True)):
            rows = [share[tokens == tokenizer.encode(letter)[0]].mean(0) for letter in letters]
            chosen = mytorch.stack(rows).cpu().numpy() * args.chosen
            image = axis.imshow(chosen, cmap="viridis", vmin=0, vmax=1, aspect="auto")
            axis.set(title=f"layer {i}", xlabel="expert", xticks=range(args.experts), yticks=range(len(letters)))
            axis.set_yticklabels([repr(letter)[1:-1] if letter != " " else "space" for letter in letters])
            axis.grid(False)
        figure.colorbar(image, ax=axes, label="fraction of tokens sent to the expert")
        save_figure(figure, args.save)


if __name__ == "__main__":
    run_script(main)
