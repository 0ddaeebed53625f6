"""Define a function with a custom backward: the straight-through estimator of rounding.

The true gradient of rounding is 0. The custom gradient makes it possible to train a network with the weights -1, 0 and 1.
Source: Bengio et al., 2013.

python -m examples.custom_function --save ternary.png
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for `python examples/…`

import mytorch
from examples.pictures import answers, draw_boundary, panels, save_figure
from mytorch import nn
from mytorch.autograd import Function, gradcheck
from mytorch.cli.arguments import ArgumentParser, count, new_file, positive, run_script
from mytorch.nn import functional as F
from mytorch.vision.datasets import Toy2D


class StraightThroughRound(Function):
    """Rounds x; backward returns the gradient unchanged where |x| <= 1, and 0 elsewhere."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.round()

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return grad_output * (x.abs() <= 1)  # as if forward were the identity on [-1, 1]


class Cube(Function):
    """Computes x ** 3; the example checks its backward with gradcheck."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        return grad_output * 3 * x**2


class TernaryLinear(nn.Linear):
    """Applies a linear layer with weights rounded to -1, 0 or 1, and a constant scale."""

    def __init__(self, in_features, out_features):
        super().__init__(in_features, out_features)
        nn.init.uniform_(self.weight, -1, 1)

    def forward(self, x):
        # the parameter stays a real number; only its rounded value is used
        weight = StraightThroughRound.apply(self.weight.clamp(-1, 1))
        return F.linear(x, weight, self.bias) / self.in_features**0.5


def main():
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=count, default=1500, help="number of training steps")
    parser.add_argument("--hidden", type=count, default=64, help="number of hidden units per layer")
    parser.add_argument("--lr", type=positive, default=0.01, help="learning rate")
    parser.add_argument(
        "--save", type=new_file, metavar="FILE", help="image file for the decision boundary (needs matplotlib)"
    )
    args = parser.parse_args()

    mytorch.manual_seed(0)
    x = mytorch.randn(4, dtype=mytorch.float64, requires_grad=True)
    print(f"backward of Cube agrees with finite differences: {gradcheck(Cube.apply, (x,))}")
    data = Toy2D("circle", 300)
    points, targets = data.points * 2 - 1, data.targets.float()
    model = nn.Sequential(
        nn.Linear(2, args.hidden),
        nn.ReLU(),
        TernaryLinear(args.hidden, args.hidden),
        nn.ReLU(),
        nn.Linear(args.hidden, 1),
    )
    optimizer = mytorch.optim.Adam(model.parameters(), lr=args.lr)
    for step in range(1, args.steps + 1):
        loss = F.binary_cross_entropy_with_logits(model(points)[:, 0], targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % max(args.steps // 5, 1) == 0:
            print(f"step {step}  loss {loss.item():.4f}")

    weight = model[2].weight.detach().clamp(-1, 1).round()
    shares = " ".join(f"{value}: {(weight == value).float().mean().item():.2f}" for value in (-1, 0, 1))
    print(f"fractions of the weights: {shares}")
    if args.save:
        figure, (left, right) = panels(2, width=3.4)
        draw_boundary(
            left,
            answers(lambda x: model(x * 2 - 1), data.points, 80).numpy(),
            data.points.numpy(),
            targets.numpy(),
            "decision boundary",
        )
        right.imshow(weight.numpy(), cmap="coolwarm")
        right.set(title="weights: -1, 0 and 1", xticks=[], yticks=[])
        right.grid(False)
        save_figure(figure, args.save)
    print(f"accuracy {((model(points)[:, 0] > 0) == (targets > 0)).float().mean().item():.2f}")


if __name__ == "__main__":
    run_script(main)
