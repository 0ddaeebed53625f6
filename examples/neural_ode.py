"""Fit a neural ordinary differential equation to a spiral. Source: Chen et al., 2018.

Backward solves the adjoint equation backward in time, so it does not need the intermediate values of the forward pass.

python -m examples.neural_ode --save spiral.png
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # for `python examples/…`

import mytorch
from examples.pictures import panels, save_figure
from mytorch import nn
from mytorch.autograd import Function
from mytorch.cli.arguments import ArgumentParser, count, new_file, positive, run_script
from mytorch.nn import functional as F


def runge_kutta(f, x, dt):
    """Computes one step of the classical fourth-order Runge-Kutta method for dx/dt = f(x)."""
    a = f(x)
    b = f(x + dt / 2 * a)
    c = f(x + dt / 2 * b)
    d = f(x + dt * c)
    return x + dt / 6 * (a + 2 * b + 2 * c + d)


class Integral(Function):
    """Integrates dx/dt = f(x) over `steps` steps; backward integrates x and its adjoint in the opposite direction."""

    @staticmethod
    def forward(ctx, f, steps, dt, x, *parameters):
        ctx.f, ctx.steps, ctx.dt = f, steps, dt
        path = [x]
        for _ in range(steps):
            path.append(runge_kutta(f, path[-1], dt))
        path = mytorch.stack(path)
        ctx.save_for_backward(path[-1], *parameters)
        return path

    @staticmethod
    def backward(ctx, grad_path):
        x, *parameters = ctx.saved_tensors
        adjoint, totals = grad_path[-1], [mytorch.zeros_like(p) for p in parameters]
        for i in range(ctx.steps - 1, -1, -1):  # from the end of the path to its start
            with mytorch.no_grad():
                x = runge_kutta(ctx.f, x, -ctx.dt)  # the state before this step
            with mytorch.enable_grad():
                start = x.detach().requires_grad_()
                end = runge_kutta(ctx.f, start, ctx.dt)
                adjoint, *grads = mytorch.autograd.grad(end, [start, *parameters], adjoint)
            adjoint = adjoint + grad_path[i]  # the gradient of this point of the path
            totals = [total + grad for total, grad in zip(totals, grads, strict=True)]
        return None, None, None, adjoint, *totals


class NeuralODE(nn.Module):
    """Maps initial points (B, 2) to their paths (steps + 1, B, 2)."""

    def __init__(self, width=50):
        super().__init__()
        self.law = nn.Sequential(nn.Linear(2, width), nn.Tanh(), nn.Linear(width, 2))

    def forward(self, x, steps, dt):
        return Integral.apply(lambda x: self.law(x**3), steps, dt, x, *self.parameters())


def spiral(steps, dt):
    """Returns the true path (steps + 1, 1, 2) of dx/dt = x³ A."""
    law = mytorch.tensor([[-0.1, 2.0], [-2.0, -0.1]])
    path = [mytorch.tensor([[2.0, 0.0]])]
    for _ in range(steps):
        path.append(runge_kutta(lambda x: x**3 @ law, path[-1], dt))
    return mytorch.stack(path)


def main():
    parser = ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=count, default=400, help="number of training steps")
    parser.add_argument("--points", type=count, default=500, help="number of points of the path")
    parser.add_argument("--length", type=count, default=10, help="number of predicted points per training example")
    parser.add_argument("--batch_size", type=count, default=32, help="number of examples per batch")
    parser.add_argument("--lr", type=positive, default=1e-2, help="learning rate")
    parser.add_argument("--save", type=new_file, metavar="FILE", help="image file for the paths (needs matplotlib)")
    args = parser.parse_args()

    mytorch.manual_seed(0)
    dt = 10 / args.points
    truth = spiral(args.points, dt)
    model = NeuralODE()
    optimizer = mytorch.optim.Adam(model.parameters(), lr=args.lr)
    schedule = mytorch.optim.lr_scheduler.CosineAnnealingLR(optimizer, args.steps)
    for step in range(1, args.steps + 1):
        # random pieces of the path: from each start, predict the next `length` points
        starts = mytorch.randint(0, args.points - args.length, (args.batch_size,))
        targets = mytorch.stack([truth[starts + i, 0] for i in range(args.length + 1)])
        loss = F.l1_loss(model(targets[0], args.length, dt), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % max(args.steps // 5, 1) == 0:
            print(f"step {step}  loss {loss.item():.5f}")

    with mytorch.no_grad():
        path = model(truth[0], args.points, dt)
        error = (path - truth).abs().mean().item()
    if args.save:
        figure, (axis,) = panels(width=4.6, height=4.2)
        lines = mytorch.linspace(-2.2, 2.2, 18)
        x, y = mytorch.meshgrid(lines, lines, indexing="xy")
        with mytorch.no_grad():
            field = F.normalize(model.law(mytorch.stack([x, y], -1) ** 3), dim=-1)
        axis.quiver(x.numpy(), y.numpy(), field[..., 0].numpy(), field[..., 1].numpy(), color="silver", width=0.004)
        axis.plot(*truth[:, 0].numpy().T, label="truth", linewidth=3, alpha=0.5)
        axis.plot(*path[:, 0].numpy().T, label="predicted from the first point", linestyle="--", color="black")
        axis.legend(loc="upper center", ncols=2, bbox_to_anchor=(0.5, 1.1))
        save_figure(figure, args.save)
    print(f"mean error {error:.4f} along a path of {args.points} steps from its first point")


if __name__ == "__main__":
    run_script(main)
