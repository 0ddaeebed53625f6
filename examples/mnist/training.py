"""Options and training loop of both digit classifiers."""

import time

import mytorch
from examples.data import accuracy, add_data_flags, default_device, digit_tensors
from examples.pictures import save_answers
from mytorch.cli.arguments import ArgumentParser, count, new_file, positive, usable_device
from mytorch.nn import functional as F
from mytorch.utils.data import DataLoader


def flags(description):
    """Returns a parser with the options of the training."""
    parser = ArgumentParser(description=description)
    parser.add_argument("--device", type=usable_device, default=default_device(), help="device to train on")
    parser.add_argument("--epochs", type=count, default=20, help="number of epochs")
    parser.add_argument("--batch_size", type=count, default=32, help="batch size")
    parser.add_argument("--lr", type=positive, default=2e-3, help="maximum learning rate")
    parser.add_argument("--truncate_train", type=count, default=10000, help="maximum number of training images")
    parser.add_argument("--truncate_test", type=count, default=1000, help="maximum number of test images")
    add_data_flags(parser)
    parser.add_argument("--save", type=new_file, metavar="FILE", help=".png file for test digits with predictions")
    return parser


def fit(build, args):
    """Trains the model returned by `build(side of the images)` and prints the accuracy after each epoch."""
    mytorch.manual_seed(0)
    train, test = digit_tensors(args.data, args.truncate_train, args.truncate_test, download=args.download)
    model = build(train[0][0].shape[-1]).to(args.device)
    print(f"{sum(p.numel() for p in model.parameters())} parameters on {args.device}")
    loader = DataLoader(train, args.batch_size, shuffle=True)
    optimizer = mytorch.optim.AdamW(model.parameters(), lr=args.lr)
    schedule = mytorch.optim.lr_scheduler.OneCycleLR(optimizer, args.lr, total_steps=args.epochs * len(loader))
    for epoch in range(1, args.epochs + 1):
        start, total = time.perf_counter(), 0.0
        for x, y in loader:
            loss = F.cross_entropy(model(x.to(args.device)), y.to(args.device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            total += loss.item()
        score = accuracy(model, test, args.device)
        seconds = time.perf_counter() - start
        print(f"epoch {epoch}  loss {total / len(loader):.4f}  accuracy {score:.4f}  ({seconds:.1f} s)")
    if args.save:
        save_answers(model, test, args.save)
