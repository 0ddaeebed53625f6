"""One row for each op: its arguments and its name in PyTorch.

    case("softmax", shapes=[(3, 4)], dim=[-1, 0])

calls `softmax` with one tensor of shape (3, 4), with dim=-1 and with dim=0. `tests/test_ops.py` derives all its checks from the
rows. Fields:

* name: of the public function, or method where there is no function.
* shapes: a list of shapes, one for each tensor.
* also: a list of alternatives to `shapes`.
* torch: the dotted name of the function in PyTorch, if it is not `torch.<name>`. If PyTorch lacks the function, this is a function of
  the library and the arguments that computes the same result.
* domain: range (low, high) of the numbers; default (-2, 2).
* integer: the index tensors among the inputs, as {position: number of classes}.
* bools: positions of bool inputs.
* grad: False for an op without a gradient.
* half: False if PyTorch does not support 16-bit floats on the CPU.
* Any other field is an argument with a list of values.
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


_FIELDS = {"torch", "ours", "domain", "integer", "bools", "grad", "half", "also", "listed"}


def case(name, shapes, **options):
    """Add a row."""
    fields = {k: options.pop(k) for k in list(options) if k in _FIELDS}
    ROWS.append(Row(name, shapes, options, **fields))


from . import elementwise, indexing, layers, linalg, movement, reduction  # noqa: E402, F401
