"""Train a character-level LSTM and generate text. Source: Karpathy, 2015.

python -m examples.char_rnn --text book.txt --steps 2000
"""

import math
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for `python examples/…`

import mytorch
from examples.data import default_device, read_text, text_batches
from examples.pictures import save_curves
from mytorch import nn
from mytorch.cli.arguments import ArgumentParser, count, new_file, positive, run_script, usable_device
from mytorch.models.tokenizer import CharTokenizer
from mytorch.nn import functional as F


class CharRNN(nn.Module):
    """Maps characters (B, T) to logits of the next characters (B, T, V); also returns the state of the LSTM."""

    def __init__(self, vocab_size, width, num_layers):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, width)
        self.lstm = nn.LSTM(width, width, num_layers, batch_first=True)
        self.head = nn.Linear(width, vocab_size)

    def forward(self, tokens, state=None):
        x, state = self.lstm(self.embedding(tokens), state)  # (B, T, width)
        return self.head(x), state  # (B, T, V)


@mytorch.no_grad()
def write(model, tokens, count, temperature):
    """Generates `count` characters that follow `tokens` (1, T)."""
    written, state = [], None
    for _ in range(count):
        logits, state = model(tokens, state)  # the state contains all earlier characters
        tokens = mytorch.multinomial(F.softmax(logits[:, -1] / temperature, dim=-1), 1)  # (1, 1)
        written.append(tokens.item())
    return written


def main():
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", type=usable_device, default=default_device(), help="device to train on")
    parser.add_argument("--text", help="text file to train on (default: Moby-Dick)")
    parser.add_argument("--steps", type=count, default=500, help="number of training steps")
    parser.add_argument("--batch_size", type=count, default=32, help="number of examples per batch")
    parser.add_argument("--length", type=count, default=64, help="length of the training sequences, in characters")
    parser.add_argument("--width", type=count, default=128, help="size of the hidden layers")
    parser.add_argument("--num_layers", type=count, default=1, help="number of layers")
    parser.add_argument("--lr", type=positive, default=5e-3, help="learning rate")
    parser.add_argument(
        "--temperature", type=positive, default=0.7, help="sampling temperature; lower is more deterministic"
    )
    parser.add_argument(
        "--save", type=new_file, metavar="FILE", help="image file for the loss curves (needs matplotlib)"
    )
    args = parser.parse_args()

    mytorch.manual_seed(0)
    text = read_text(args.text)
    tokenizer = CharTokenizer.from_text(text)
    tokens = mytorch.tensor(tokenizer.encode(text))
    cut = int(0.9 * len(tokens))
    model = CharRNN(tokenizer.vocab_size, args.width, args.num_layers).to(args.device)
    optimizer = mytorch.optim.Adam(model.parameters(), lr=args.lr)

    def loss_of(x, y):
        logits, _ = model(x.to(args.device))
        return F.cross_entropy(logits.flatten(0, 1), y.to(args.device).flatten())

    trained = []
    for step, batch in enumerate(text_batches(tokens[:cut], args.batch_size, args.length, args.steps), 1):
        loss = loss_of(*batch)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        trained.append(loss.item())
        if step % 100 == 0:
            print(f"step {step}  loss {trained[-1]:.3f}")

    start = tokens[cut : cut + 20].unsqueeze(0).to(args.device)
    print(f"\n{tokenizer.decode(start[0].tolist() + write(model, start, 400, args.temperature))}\n")
    with mytorch.no_grad():
        losses = [loss_of(*batch).item() for batch in text_batches(tokens[cut:], args.batch_size, args.length, 10)]
    validation, uniform = sum(losses) / len(losses), math.log(tokenizer.vocab_size)
    print(f"validation loss {validation:.3f} (uniform guess: {uniform:.3f})")
    if args.save:
        ends = (1, len(trained))
        save_curves(
            args.save,
            {
                "training": trained,
                "validation, at the end": (ends, [validation] * 2),
                "uniform guess": (ends, [uniform] * 2),
            },
            smooth=10,
        )


if __name__ == "__main__":
    run_script(main)
