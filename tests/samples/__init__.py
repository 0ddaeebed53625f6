"""One row for each op: what to call it with, and its name in PyTorch.

    case("softmax", shapes=[(3, 4)], dim=[-1, 0])

says that `softmax` takes one tensor of shape (3, 4), and is to be tried with dim=-1 and with dim=0. From the row
`tests/test_ops.py` derives every property that it checks. Fields:

* name: of the public function, or method where there is no function.
* shapes: a list of shapes, one tensor each; several alternatives as a list of such lists in `also`.
* torch: the function's dotted name in PyTorch, if it is not `torch.<name>`; where PyTorch has none, a function of the library
  and the arguments that composes it.
* domain: (low, high) that the numbers are drawn from; default (-2, 2).
* integer: which inputs are index tensors, as {position: number of classes}.
* bools: positions of bool inputs.
* grad: False for an op without a gradient; grad2: False where the second derivative is not to be checked.
* half: False where 16-bit floats are not supported by PyTorch on the CPU.
* Everything else is an attribute with the values to try.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import product

ROWS = []


@dataclass
class Row:
    """See the module's docstring."""

    name: str
    shapes: list
    attrs: dict = field(default_factory=dict)
    torch: str | Callable = ""
    ours: str = ""
    domain: tuple = (-2.0, 2.0)
    integer: dict = field(default_factory=dict)
    bools: tuple = ()
    grad: bool = True
    grad2: bool = True
    half: bool = True
    also: tuple = ()
    listed: bool = False

    def settings(self):
        """Every combination of the attributes' values."""
        names = list(self.attrs)
        return [dict(zip(names, values, strict=True)) for values in product(*self.attrs.values())]

    def shape_lists(self):
        """Every list of shapes to try."""
        return [self.shapes, *self.also]


_FIELDS = {"torch", "ours", "domain", "integer", "bools", "grad", "grad2", "half", "also", "listed"}


def case(name, shapes, **options):
    """Add a row."""
    fields = {k: options.pop(k) for k in list(options) if k in _FIELDS}
    ROWS.append(Row(name, shapes, options, **fields))


from . import elementwise, indexing, layers, linalg, movement, reduction  # noqa: E402, F401
