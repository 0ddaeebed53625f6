"""The table that drives tests/test_ops.py: what to call each op with, beside PyTorch.

    case("softmax", [(3, 4)], dim=[-1, 0])

says that `softmax` takes one tensor of shape (3, 4), and is to be tried with dim=-1 and with dim=0. From the row
the tests derive everything that they check: values, dtypes, first and second derivatives, method = function =
in-place twin, strided inputs, nothing modified, nothing recorded under no_grad, nothing kept after backward.

The first argument is the function's dotted name in both libraries ("linalg.inv", "nn.functional.gelu",
"Tensor.expand"); the second a list of shapes, one tensor each. Further fields:

* also: more lists of shapes. ELEMENTWISE and PAIRS below hold those that every elementwise op must take.
* torch: the dotted name in PyTorch, where it is another one.
* call: how to call it, if not `f(*tensors, **attributes)`: `lambda f, x, index, dim: f(x, dim, index)`.
* domain: (low, high) that the numbers are drawn from; default (-2, 2). distinct=True: no two alike.
* integer: which inputs are index tensors, as {position: number of classes}. bools, complexes: positions of such inputs.
* values: `lambda rng: [arrays]` where random numbers will not do (positive definite matrices, probabilities).
* listed: the op takes its tensors as one list.
* see: `lambda outputs: outputs` before they are compared, where the result is not unique (signs of eigenvectors).
* grad: False for an op without a gradient; a position or a tuple of them if only those inputs get one.
* grad2: False where the second derivative is not to be compared, with the reason in a comment.
* dtypes: the dtypes to try besides float64; default all. Those that PyTorch refuses are passed over.
* tol: a factor on the tolerances, with the reason in a comment. method: False where the method takes other arguments.
* Everything else is an attribute with the list of values to try.

A public function or an op's record without a row fails `test_every_op_has_a_row`, unless tests/samples/exempt.py
gives a reason.
"""

from dataclasses import dataclass, field
from itertools import product

ROWS = []
ELEMENTWISE = [[()], [(0, 3)], [(1,)], [(5, 2, 3)]]
PAIRS = [[(3, 4), (4,)], [(2, 1, 3), (4, 1)], [(), (3,)], [(0, 3), (3,)], [(1,), (1,)]]
FLOATS = ("float32", "float16", "bfloat16")
DTYPES = (*FLOATS, "int64", "int32", "uint8", "bool")


@dataclass
class Row:
    """See the module's docstring."""

    name: str
    shapes: list
    attrs: dict = field(default_factory=dict)
    torch: str = ""
    call: object = None
    domain: tuple = (-2.0, 2.0)
    distinct: bool = False
    integer: dict = field(default_factory=dict)
    bools: tuple = ()
    complexes: tuple = ()
    values: object = None
    see: object = None
    grad: object = True
    grad2: bool = True
    dtypes: tuple = DTYPES
    tol: float = 1.0
    method: bool = True
    also: tuple = ()
    listed: bool = False

    def settings(self):
        """Every combination of the attributes' values."""
        names = list(self.attrs)
        return [dict(zip(names, values, strict=True)) for values in product(*self.attrs.values())]

    def shape_lists(self):
        """Every list of shapes to try."""
        return [self.shapes, *self.also]

    @property
    def last_name(self):
        """The name without its modules."""
        return self.name.rpartition(".")[2]


_FIELDS = set(Row.__dataclass_fields__) - {"name", "shapes", "attrs"}


def case(name, shapes=((),), **options):
    """Add a row."""
    fields = {k: options.pop(k) for k in list(options) if k in _FIELDS}
    ROWS.append(Row(name, list(shapes), options, **fields))


from . import (  # noqa: E402
    activation,  # noqa: F401
    elementwise,  # noqa: F401
    indexing,  # noqa: F401
    linalg,  # noqa: F401
    loss,  # noqa: F401
    movement,  # noqa: F401
    nn,  # noqa: F401
    reduction,  # noqa: F401
)
