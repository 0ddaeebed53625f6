"""Train a small network on XOR.

python -m examples.xor
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for `python examples/…`

import mytorch
from examples.pictures import answers, draw_boundary, panels, save_figure
from mytorch import nn
from mytorch.cli.arguments import ArgumentParser, count, new_file, positive, run_script, usable_device


def main():
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=count, default=500, help="number of training steps")
    parser.add_argument("--lr", type=positive, default=0.05, help="learning rate")
    parser.add_argument("--device", type=usable_device, default="cpu", help="device to train on")
    parser.add_argument(
        "--save", type=new_file, metavar="FILE", help="image file for the decision boundary (needs matplotlib)"
    )
    args = parser.parse_args()

    mytorch.manual_seed(0)
    x = mytorch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]], device=args.device)
    y = mytorch.tensor([[0.0], [1.0], [1.0], [0.0]], device=args.device)
    # XOR is not linearly separable, so the network needs a hidden layer
    model = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1)).to(args.device)
    optimizer = mytorch.optim.Adam(model.parameters(), lr=args.lr)
    criterion = nn.BCEWithLogitsLoss()

    for step in range(1, args.steps + 1):
        loss = criterion(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            print(f"step {step}  loss {loss.item():.4f}")

    guesses = model(x).sigmoid()
    for point, guess in zip(x.tolist(), guesses[:, 0].tolist(), strict=True):
        print(f"{point[0]:.0f} xor {point[1]:.0f} = {guess:.3f}")
    if args.save:
        figure, (axis,) = panels(width=3.4)
        draw_boundary(axis, answers(model.cpu(), x.cpu(), 60).numpy(), x.cpu().numpy(), y[:, 0].tolist(), "x xor y")
        save_figure(figure, args.save)
    print(f"accuracy {((guesses > 0.5) == (y > 0.5)).float().mean().item():.2f}")


if __name__ == "__main__":
    run_script(main)
