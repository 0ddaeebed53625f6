"""Train a small Llama on Moby-Dick, then fine-tune it on Python code with LoRA.

python -m examples.lora --save losses.png

The layers are in `mytorch/models/lora.py`. Source: Hu et al., 2021.
"""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for `python examples/…`


import mytorch
from examples.data import text_batches
from examples.llama import fit, flags
from examples.pictures import save_curves
from mytorch.cli.arguments import count, positive, run_script
from mytorch.models import lora


def python_text(vocabulary):
    """Returns the source code of `argparse`, without characters that are not in the vocabulary."""
    return "".join(letter for letter in Path(argparse.__file__).read_text(encoding="utf-8") if letter in vocabulary)


@mytorch.no_grad()
def loss_on(model, tokens, args):
    model.eval()
    batches = list(text_batches(tokens, args.batch_size, args.context, 8))
    loss = sum(model(x.to(args.device), y.to(args.device)).item() for x, y in batches) / len(batches)
    model.train()
    return loss


def main():
    parser = flags(__doc__.splitlines()[0])
    parser.add_argument("--rank", type=count, default=8, help="rank of the LoRA matrices")
    parser.add_argument("--tune_steps", type=count, default=150, help="number of fine-tuning steps")
    parser.add_argument("--tune_lr", type=positive, default=1e-2, help="learning rate of the fine-tuning")
    args = parser.parse_args()

    model, tokenizer, _ = fit(args)
    code = mytorch.tensor(tokenizer.encode(python_text(set(tokenizer.chars))))
    cut = int(0.9 * len(code))
    before = loss_on(model, code[cut:], args)
    whole = model.num_parameters()
    # freezes the model and adds trainable matrices to its linear layers
    lora.inject(model, ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"], args.rank)
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = mytorch.optim.AdamW(trained, lr=args.tune_lr)
    losses = []
    for step, (x, y) in enumerate(text_batches(code[:cut], args.batch_size, args.context, args.tune_steps), 1):
        loss = model(x.to(args.device), y.to(args.device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if step % 50 == 0:
            print(f"fine-tuning step {step}  loss {losses[-1]:.3f}")

    lora.merge(model)  # the result is a plain Llama
    after = loss_on(model, code[cut:], args)
    start = mytorch.tensor([tokenizer.encode("    def ")]).to(args.device)
    written = model.eval().generate(start, args.context - 8, temperature=args.temperature)
    print(f"\n{tokenizer.decode(written[0].tolist())}\n")
    share = sum(p.numel() for p in trained) / whole
    print(f"validation loss on Python {after:.3f}, before {before:.3f}; {share:.1%} of the parameters were trained")
    if args.save:
        ends = [1, args.tune_steps]
        save_curves(
            args.save,
            {"fine-tuning": losses, "Python, before": (ends, [before] * 2), "Python, after": (ends, [after] * 2)},
            smooth=5,
        )


if __name__ == "__main__":
    run_script(main)
