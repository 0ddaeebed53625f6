"""Train a digit classifier on several processes with DistributedDataParallel.

python -m mytorch.distributed.run --nproc_per_node 2 examples/ddp_mnist.py --epochs 5
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for `python examples/…`

import mytorch
from examples.data import add_data_flags, digit_tensors
from examples.pictures import save_curves
from mytorch import nn
from mytorch.cli.arguments import ArgumentParser, count, new_file, positive, run_script
from mytorch.nn import functional as F
from mytorch.utils.data import DataLoader, DistributedSampler


def main():
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=count, default=5, help="number of epochs")
    parser.add_argument("--batch_size", type=count, default=64, help="number of images per step, over all processes")
    parser.add_argument("--lr", type=positive, default=2e-3, help="learning rate")
    parser.add_argument("--truncate_train", type=count, help="number of training images (default: all)")
    add_data_flags(parser)
    parser.add_argument(
        "--save", type=new_file, metavar="FILE", help="image file for the loss of each process (needs matplotlib)"
    )
    args = parser.parse_args()

    import mytorch.distributed as dist
    from mytorch.nn.parallel import DistributedDataParallel

    dist.init_process_group()
    rank, world_size = dist.get_rank(), dist.get_world_size()
    device = mytorch.device("cuda", rank % mytorch.cuda.device_count()) if mytorch.cuda.is_available() else "cpu"
    log = print if rank == 0 else lambda *parts: None

    mytorch.manual_seed(0)
    train, test = digit_tensors(args.data, args.truncate_train, log=log, download=args.download)
    side = train.tensors[0].shape[-1]
    model = nn.Sequential(
        nn.Conv2d(1, 16, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * (side // 4) ** 2, 10),
    ).to(device)
    model = DistributedDataParallel(model)  # averages the gradients over the processes during backward
    optimizer = mytorch.optim.Adam(model.parameters(), lr=args.lr)
    sampler = DistributedSampler(train, world_size, rank)  # each process reads its own part of the data
    loader = DataLoader(train, args.batch_size // world_size, sampler=sampler)

    losses = []
    for epoch in range(1, args.epochs + 1):
        sampler.set_epoch(epoch)  # another order in each epoch
        total = mytorch.zeros(1, device=device)
        for x, y in loader:
            loss = F.cross_entropy(model(x.to(device)), y.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.detach()
        totals = [mytorch.zeros_like(total) for _ in range(world_size)]
        dist.all_gather(totals, total)  # each process receives the totals of all processes
        losses.append([t.item() / len(loader) for t in totals])
        log(f"epoch {epoch}  loss {sum(losses[-1]) / world_size:.4f}")

    correct = mytorch.zeros(1, device=device)
    with mytorch.no_grad():
        for x, y in DataLoader(test, 500, sampler=range(rank, len(test), world_size)):
            correct += (model(x.to(device)).argmax(-1) == y.to(device)).sum()
    dist.all_reduce(correct)
    log(f"accuracy {correct.item() / len(test):.4f} on {world_size} processes")
    if args.save and rank == 0:
        save_curves(
            args.save, {f"process {i}": list(values) for i, values in enumerate(zip(*losses, strict=True))}, "epoch"
        )
    dist.destroy_process_group()


if __name__ == "__main__":
    run_script(main)
