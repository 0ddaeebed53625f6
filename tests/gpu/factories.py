"""Ways to make a tensor, by name: functions that pass keyword arguments on, for the checks of devices and of page-locked memory."""

import mytorch

ALL = {
    "tensor": lambda **k: mytorch.tensor([1.0, 2.0], **k),
    "zeros": lambda **k: mytorch.zeros(3, 2, **k),
    "empty": lambda **k: mytorch.empty(3, 2, **k),
    "full": lambda **k: mytorch.full((2,), 3.0, **k),
    "arange": lambda **k: mytorch.arange(5, **k),
    "linspace": lambda **k: mytorch.linspace(0, 1, 5, **k),
    "eye": lambda **k: mytorch.eye(3, **k),
    "rand": lambda **k: mytorch.rand(3, **k),
    "randn": lambda **k: mytorch.randn(3, **k),
    "randint": lambda **k: mytorch.randint(9, (3,), **k),
    "randperm": lambda **k: mytorch.randperm(9, **k),
}
