"""A small Llama on a text: RMS norms, rotary positions, grouped query attention, SwiGLU, a key-value cache.

    python -m examples.llama --text book.txt --steps 2000

The model is `mytorch/models/llama.py`. Source: Touvron et al., 2023.
"""

import math
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # to run as a script, too

import mytorch
from examples.data import default_device, read_text, text_batches
from examples.pictures import save_curves
from mytorch import nn
from mytorch.cli.arguments import ArgumentParser, count, new_file, positive, run_script, usable_device
from mytorch.models import Llama
from mytorch.models.tokenizer import CharTokenizer


def flags(description):
    """A parser with the flags of training on a text."""
    parser = ArgumentParser(description=description)
    parser.add_argument("--device", type=usable_device, default=default_device())
    parser.add_argument("--text", help="a file to read; by default Moby-Dick")
    parser.add_argument("--steps", type=count, default=300)
    parser.add_argument("--batch_size", type=count, default=16)
    parser.add_argument("--context", type=count, default=128)
    parser.add_argument("--width", type=count, default=128)
    parser.add_argument("--layers", type=count, default=4)
    parser.add_argument("--heads", type=count, default=4)
    parser.add_argument("--key_heads", type=count, default=2)
    parser.add_argument("--lr", type=positive, default=3e-3)
    parser.add_argument("--temperature", type=positive, default=0.7)
    parser.add_argument("--save", type=new_file, metavar="FILE", help="a picture of the losses (needs matplotlib)")
    return parser


def fit(args, **options):
    """Train a Llama on a text; print what it writes and its loss on the text's last tenth. Returns (model, tokenizer, curves of the loss).

    Args:
        **options: further fields of its config.
    """
    mytorch.manual_seed(0)
    text = read_text(args.text)
    tokenizer = CharTokenizer.from_text(text)
    tokens = mytorch.tensor(tokenizer.encode(text))
    cut = int(0.9 * len(tokens))
    model = Llama(
        vocab_size=tokenizer.vocab_size,
        context_length=args.context,
        embed_dim=args.width,
        num_layers=args.layers,
        num_heads=args.heads,
        num_kv_heads=args.key_heads,
        **options,
    ).to(args.device)
    print(f"{model.num_parameters()} parameters on {args.device}")
    optimizer = mytorch.optim.AdamW(model.parameters(), lr=args.lr, betas=(0.9, 0.95), weight_decay=0.1)
    schedule = mytorch.optim.lr_scheduler.OneCycleLR(optimizer, args.lr, total_steps=args.steps, pct_start=0.1)

    def loss_of(x, y):
        return model(x.to(args.device), y.to(args.device))

    trained, begin = [], time.perf_counter()
    for step, batch in enumerate(text_batches(tokens[:cut], args.batch_size, args.context, args.steps), 1):
        loss = loss_of(*batch)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        trained.append(loss.item())
        if step % 50 == 0:
            speed = step * args.batch_size * args.context / (time.perf_counter() - begin)
            print(f"step {step}  loss {trained[-1]:.3f}  {speed:.0f} tokens/s")

    model.eval()
    start = tokens[cut : cut + 16].unsqueeze(0).to(args.device)
    written = model.generate(start, max(0, args.context - 16), temperature=args.temperature)
    print(f"\n{tokenizer.decode(written[0].tolist())}\n")
    with mytorch.no_grad():
        losses = [loss_of(*batch).item() for batch in text_batches(tokens[cut:], args.batch_size, args.context, 10)]
    validation, blind = sum(losses) / len(losses), math.log(tokenizer.vocab_size)
    print(f"validation loss {validation:.3f} (guessing blindly: {blind:.3f})")
    return model, tokenizer, {"training": trained, "validation, at the end": ([1, args.steps], [validation] * 2)}


def main():
    args = flags(__doc__.splitlines()[0]).parse_args()
    _, _, curves = fit(args)
    if args.save:
        save_curves(args.save, curves, smooth=10)


if __name__ == "__main__":
    run_script(main)
