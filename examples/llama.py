"""Train a small Llama on a text and generate text.

    python -m examples.llama --text book.txt --steps 2000

The model uses RMSNorm, rotary position embeddings, grouped-query attention, SwiGLU and a key-value cache. See
`mytorch/models/llama.py`. Source: Touvron et al., 2023.
"""

import math
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for `python examples/…`

import mytorch
from examples.data import default_device, read_text, text_batches
from examples.pictures import save_curves
from mytorch import nn
from mytorch.cli.arguments import ArgumentParser, count, new_file, positive, run_script, usable_device
from mytorch.models import Llama
from mytorch.models.tokenizer import CharTokenizer


def flags(description):
    """Returns a parser with the options of the training on a text."""
    parser = ArgumentParser(description=description)
    parser.add_argument("--device", type=usable_device, default=default_device(), help="device to train on")
    parser.add_argument("--text", help="text file to train on (default: Moby-Dick)")
    parser.add_argument("--steps", type=count, default=300, help="number of training steps")
    parser.add_argument("--batch_size", type=count, default=16, help="number of examples per batch")
    parser.add_argument("--context", type=count, default=128, help="length of the training sequences, in tokens")
    parser.add_argument("--width", type=count, default=128, help="size of the hidden layers")
    parser.add_argument("--layers", type=count, default=4, help="number of layers")
    parser.add_argument("--heads", type=count, default=4, help="number of attention heads")
    parser.add_argument("--key_heads", type=count, default=2, help="number of key and value heads")
    parser.add_argument("--lr", type=positive, default=3e-3, help="learning rate")
    parser.add_argument(
        "--temperature", type=positive, default=0.7, help="sampling temperature; lower is more deterministic"
    )
    parser.add_argument(
        "--save", type=new_file, metavar="FILE", help="image file for the loss curves (needs matplotlib)"
    )
    return parser


def fit(args, **options):
    """Trains a Llama on a text, prints generated text and the validation loss, and returns (model, tokenizer, loss curves).

    The last tenth of the text is the validation set.

    Args:
        args: parsed options of `flags`.
        **options: further fields of the model's config.
    """
    mytorch.manual_seed(0)
    text = read_text(args.text)
    tokenizer = CharTokenizer.from_text(text)
    tokens = mytorch.tensor(tokenizer.encode(text))
    cut = int(0.9 * len(tokens))  # 90 % for training, 10 % for validation
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
    # continue the first characters of the validation text
    start = tokens[cut : cut + 16].unsqueeze(0).to(args.device)
    written = model.generate(start, max(0, args.context - 16), temperature=args.temperature)
    print(f"\n{tokenizer.decode(written[0].tolist())}\n")
    with mytorch.no_grad():
        losses = [loss_of(*batch).item() for batch in text_batches(tokens[cut:], args.batch_size, args.context, 10)]
    validation, uniform = sum(losses) / len(losses), math.log(tokenizer.vocab_size)
    print(f"validation loss {validation:.3f} (uniform guess: {uniform:.3f})")
    return model, tokenizer, {"training": trained, "validation, at the end": ([1, args.steps], [validation] * 2)}


def main():
    args = flags(__doc__.splitlines()[0]).parse_args()
    _, _, curves = fit(args)
    if args.save:
        save_curves(args.save, curves, smooth=10)


if __name__ == "__main__":
    run_script(main)
