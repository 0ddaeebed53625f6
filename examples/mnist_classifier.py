"""Train a multilayer perceptron on digits with the Accelerator.

python -m examples.mnist_classifier --epochs 5 --mixed_precision bf16
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for `python examples/…`

import mytorch
from examples.data import accuracy, add_data_flags, digit_sets
from examples.pictures import save_answers
from mytorch import nn
from mytorch.accelerate import Accelerator
from mytorch.cli.arguments import ArgumentParser, count, new_file, positive, run_script
from mytorch.utils.data import DataLoader
from mytorch.vision import transforms as T


def main():
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=count, default=10, help="number of epochs")
    parser.add_argument("--batch_size", type=count, default=64, help="number of examples per batch")
    parser.add_argument("--lr", type=positive, default=2e-3, help="learning rate")
    parser.add_argument(
        "--mixed_precision", default="no", choices=("no", "fp16", "bf16"), help="precision of the forward pass"
    )
    add_data_flags(parser)
    parser.add_argument("--save", type=new_file, metavar="FILE", help=".png file for test digits with predictions")
    args = parser.parse_args()

    mytorch.manual_seed(0)
    accelerator = Accelerator(mixed_precision=args.mixed_precision)
    train, test = digit_sets(args.data, T.Compose([T.ToTensor(), T.Normalize([0.13], [0.31])]), download=args.download)
    pixels = train[0][0].numel()
    model = nn.Sequential(
        nn.Flatten(),
        nn.Linear(pixels, 128),
        nn.ReLU(),
        nn.Dropout(0.2),
        nn.Linear(128, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )
    optimizer = mytorch.optim.Adam(model.parameters(), lr=args.lr)
    criterion = nn.CrossEntropyLoss()
    loader = DataLoader(train, args.batch_size, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

    for epoch in range(1, args.epochs + 1):
        total = 0.0
        for x, y in loader:
            loss = criterion(model(x), y)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(1.0)
            optimizer.step()
            optimizer.zero_grad()
            total += loss.item()
        accelerator.print(f"epoch {epoch}  loss {total / len(loader):.4f}")
    accelerator.print(f"accuracy {accuracy(model, test, accelerator.device):.4f}")
    if args.save and accelerator.is_main_process:
        save_answers(model, test, args.save)


if __name__ == "__main__":
    run_script(main)
