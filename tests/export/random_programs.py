"""Random programs of shape changes, slices, writes and arithmetic on tensors with dynamic sizes."""

import random

import mytorch
from mytorch import nn


class Program(nn.Module):
    """A random program. Its values are tensors (B, …) with at least 2 dimensions, of which the first two are dynamic.

    Args:
        seed: seed of the program.
        length: number of steps.
        writes: include changes in place.
    """

    def __init__(self, seed, length=8, writes=True):
        super().__init__()
        choose = random.Random(seed)
        names = [n for n in dir(self) if n.startswith("step_") and (writes or not n.startswith("step_write"))]
        self.steps = [(choose.choice(names), choose.randrange(1 << 30)) for _ in range(length)]
        self.weight = nn.Parameter(mytorch.randn(4))

    def forward(self, x):
        """Runs the steps on x (B, T, 4). Returns the last two values."""
        values = [x * 1.0]
        for name, seed in self.steps:
            choose = random.Random(seed)
            values.append(getattr(self, name)(choose.choice(values[-2:]), choose))
        return values[-1], values[-2]

    @staticmethod
    def axis(x, choose):
        """A random dimension."""
        return choose.randrange(x.ndim)

    def step_add(self, x, choose):
        return x + choose.choice([2, 0.5, x.sum(0, keepdim=True), x.mean(-1, keepdim=True)])

    def step_activation(self, x, choose):
        return choose.choice([mytorch.tanh, mytorch.relu, mytorch.sigmoid, mytorch.abs, mytorch.floor, mytorch.neg])(x)

    def step_transpose(self, x, choose):
        return x.transpose(self.axis(x, choose), self.axis(x, choose))

    def step_flatten(self, x, choose):
        first = choose.randrange(x.ndim - 1) if x.ndim > 2 else 0
        return x.flatten(first, first + 1).unsqueeze(0) if x.ndim > 2 else x.reshape(-1, x.shape[0])

    def step_view(self, x, choose):
        return x.reshape(*x.shape[:-1], -1, 1).squeeze(-1) if choose.random() < 0.5 else x.reshape(x.shape[0], -1)

    def step_numbers(self, x, choose):
        d = self.axis(x, choose)
        shape = [1] * x.ndim
        shape[d] = -1
        return x + mytorch.arange(x.shape[d]).reshape(shape) * 0.1

    def step_slice(self, x, choose):
        d = self.axis(x, choose)
        start, stop = choose.choice([(None, -1), (1, None), (None, None)]) if x.shape[d] > 2 else (None, None)
        return x[(slice(None),) * d + (slice(start, stop, choose.choice([1, 1, 2])),)]

    def step_narrow(self, x, choose):
        d = self.axis(x, choose)
        return x.narrow(d, 0, (x.shape[d] + 1) // 2) if choose.random() < 0.5 else x.narrow(d, 0, x.size(d))

    def step_cat(self, x, choose):
        return mytorch.cat(
            [x, choose.choice([x, x.flip(0), mytorch.zeros_like(x), mytorch.ones(x.shape)])], self.axis(x, choose)
        )

    def step_softmax(self, x, choose):
        return x.softmax(self.axis(x, choose))

    def step_cumsum(self, x, choose):
        return x.cumsum(self.axis(x, choose)) / x.shape[choose.randrange(x.ndim)]

    def step_sort(self, x, choose):
        return x.sort(dim=self.axis(x, choose))[0]

    def step_max(self, x, choose):
        d = self.axis(x, choose)
        return x.max(dim=d, keepdim=True)[0].expand(x.shape)

    def step_where(self, x, choose):
        return mytorch.where(x > choose.choice([0, 0.5]), x, x.flip(-1))

    def step_index(self, x, choose):
        return x[mytorch.arange(x.shape[0]).flip(0)]

    def step_triangle(self, x, choose):
        return mytorch.tril(x, choose.choice([-1, 0, 1]))

    def step_repeat(self, x, choose):
        return x.repeat(*[choose.choice([1, 1, 2]) for _ in range(x.ndim)])

    def step_weight(self, x, choose):
        return x.unsqueeze(-1).mul(self.weight).sum(-1)

    def step_stack(self, x, choose):
        return mytorch.stack([x, x * 2], 0).transpose(0, 1) if x.ndim < 4 else x

    def step_write_add(self, x, choose):
        y = x.clone()
        view = y.transpose(0, 1) if choose.random() < 0.5 else y[:, :1]
        y.add_(1.0)
        view.mul_(2.0)
        return choose.choice([y, view + y.sum()])

    def step_write_slice(self, x, choose):
        y = x.clone()
        y[:, choose.choice([0, -1])] = choose.choice([0.0, 1.5])
        row = y[:1]
        y[:, ::2] = y[:, ::2] + 1
        return choose.choice([y, y + row])

    def step_write_mask(self, x, choose):
        y = x * 1.0
        y[y > 0.3] = 0.25
        return y.clamp_(min=-1.0)

    def step_write_view_of_view(self, x, choose):
        y = x.clone()
        inner = y[:, 1:] if y.shape[1] > 2 else y
        inner[:1].zero_()
        inner.copy_(inner.relu())
        return y if choose.random() < 0.5 else inner

    def step_write_fill(self, x, choose):
        y = mytorch.empty(x.shape)
        y.fill_(2.0)
        y[..., 0] = x[..., 0]
        return y - x
