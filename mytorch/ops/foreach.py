"""The `_foreach_` functions that hand-written optimizers use: one operation over lists of tensors."""

import inspect
from typing import Any

from ..arrays.errors import kind
from ..arrays.tensor import Tensor
from ..autograd.mode import no_grad
from .dispatch.bind import METHODS, public_names
from .dispatch.record import RECORDS
from .reduction import vector_norm

FUNCTIONS: dict[str, Any] = {}


def _lists(name, *lists):
    """Checks that the lists have equal lengths.

    Raises:
        TypeError: an argument is not a list or tuple.
        RuntimeError: the lengths differ.
    """
    for values in lists:
        if not isinstance(values, (list, tuple)):
            raise TypeError(f"{name}(): expected a tuple of Tensors, got {kind(values)}")
        if len(values) != len(lists[0]):
            raise RuntimeError(
                f"Tensor lists must have the same number of tensors, got {len(lists[0])} and {len(values)}"
            )


def _each(name, value, count):
    """An argument for each of `count` tensors: a list's own items, or one value for all."""
    if isinstance(value, (list, tuple)):
        if len(value) != count:
            raise RuntimeError(
                f"{name}: Tensor list must have same number of elements as scalar list, got {count} and {len(value)}"
            )
        return value
    if isinstance(value, Tensor) and value.ndim:
        raise RuntimeError(f"{name}: scalar tensor expected to be 0 dim but it has {value.ndim} dimensions")
    return [value] * count


def _put(name, function, doc):
    function.__name__ = function.__qualname__ = f"_foreach_{name}"
    function.__doc__ = doc
    FUNCTIONS[f"_foreach_{name}"] = function


def _in_place(name, function):
    """Adds the in-place variant, which writes each result into its tensor and returns the list."""
    method = METHODS.get(name + "_")

    def twin(self, *args, **kwargs):
        _lists(f"_foreach_{name}_", self)
        if method is not None and not args:
            for x in self:
                method(x)
            return self
        for x, result in zip(self, function(self, *args, **kwargs), strict=True):
            x.copy_(result)
        return self

    _put(name + "_", twin, f"{name} of each tensor, in place.")


def _unary(name):
    op = METHODS[name]

    def foreach(self):
        _lists(f"_foreach_{name}", self)
        return tuple([op(x) for x in self])

    _put(name, foreach, f"{name} of each tensor, a tuple.")
    _in_place(name, foreach)


def _binary(name):
    op = METHODS[name]

    def foreach(self, other, **options):
        _lists(f"_foreach_{name}", self)
        if name in ("add", "sub") and set(options) <= {"alpha"}:
            others = _each(f"_foreach_{name}", other, len(self))
            alpha = options.get("alpha", 1)
            return tuple([op(x, y if alpha == 1 else y * alpha) for x, y in zip(self, others, strict=True)])
        if options:
            raise TypeError(f"_foreach_{name}() got an unexpected keyword argument {next(iter(options))!r}")
        others = _each(f"_foreach_{name}", other, len(self))
        return tuple([op(x, _like(x, y)) for x, y in zip(self, others, strict=True)])

    def _like(x, y):
        return x.new_tensor(y) if name in ("maximum", "minimum") and not isinstance(y, Tensor) else y

    _put(name, foreach, f"{name} of each tensor and a number, or the tensor or number at its place, a tuple.")
    _in_place(name, foreach)


for _name, _record in RECORDS.items():  # every differentiable op of one tensor, or of two, that has an in-place method
    if f"{_name}_" in METHODS and _record.is_differentiable and not (_record.view or _record.outputs):
        if _record.inputs == ("input",) and inspect.Parameter.empty not in _record.defaults.values():
            _unary(_name)
        elif _record.inputs == ("input", "other"):
            _binary(_name)
_unary("frac")
_put("clamp_min", lambda self, other: FUNCTIONS["_foreach_maximum"](self, other), "Each tensor, at least `other`.")
_put("clamp_max", lambda self, other: FUNCTIONS["_foreach_minimum"](self, other), "Each tensor, at most `other`.")
_in_place("clamp_min", FUNCTIONS["_foreach_clamp_min"])
_in_place("clamp_max", FUNCTIONS["_foreach_clamp_max"])


def _foreach_addcmul(self, tensor1, tensor2, value=1, *, scalars=None):
    """Each self + value * tensor1 * tensor2; `value` one number, or one for each (also as `scalars`)."""
    _lists("_foreach_addcmul", self, tensor1, tensor2)
    values = _values("_foreach_addcmul", value if scalars is None else scalars, len(self))
    return tuple([a + b * c * v for a, b, c, v in zip(self, tensor1, tensor2, values, strict=True)])


def _foreach_addcdiv(self, tensor1, tensor2, value=1, *, scalars=None):
    """Each self + value * tensor1 / tensor2; `value` one number, or one for each (also as `scalars`)."""
    _lists("_foreach_addcdiv", self, tensor1, tensor2)
    values = _values("_foreach_addcdiv", value if scalars is None else scalars, len(self))
    return tuple([a + b / c * v for a, b, c, v in zip(self, tensor1, tensor2, values, strict=True)])


def _values(name, value, count):
    """Numbers for each tensor; a 1-d tensor holds one for each."""
    return value.tolist() if isinstance(value, Tensor) and value.ndim == 1 else _each(name, value, count)


def _foreach_lerp(self, tensors1, weight):
    """Each self + weight * (tensor1 - self); `weight` a number, or a tensor or number for each."""
    _lists("_foreach_lerp", self, tensors1)
    weights = _each("_foreach_lerp", weight, len(self))
    return tuple([a + (b - a) * w for a, b, w in zip(self, tensors1, weights, strict=True)])


for _function in (_foreach_addcmul, _foreach_addcdiv, _foreach_lerp):
    FUNCTIONS[_function.__name__] = _function
    _in_place(_function.__name__.removeprefix("_foreach_"), _function)


def _foreach_norm(self, ord=2, dtype=None):
    """The vector norm of each tensor, 0-d tensors."""
    _lists("_foreach_norm", self)
    return tuple([vector_norm(x if dtype is None else x.to(dtype), ord=float(ord)) for x in self])


def _foreach_max(self):
    """The largest element of each tensor."""
    _lists("_foreach_max", self)
    return tuple([x.max() for x in self])


def _foreach_clone(self):
    """A copy of each tensor."""
    _lists("_foreach_clone", self)
    return tuple([x.clone() for x in self])


def _foreach_zero_(self):
    """Fill each tensor with zeros."""
    _lists("_foreach_zero_", self)
    with no_grad():
        for x in self:
            x.zero_()


def _foreach_copy_(self, src, non_blocking=False):
    """Copy each tensor of src into its counterpart."""
    _lists("_foreach_copy_", self, src)
    for x, y in zip(self, src, strict=True):
        x.copy_(y)


FUNCTIONS.update((f.__name__, f) for f in (_foreach_norm, _foreach_max, _foreach_clone, _foreach_zero_, _foreach_copy_))
TORCH_NAMES = {"mytorch": public_names(FUNCTIONS)}
