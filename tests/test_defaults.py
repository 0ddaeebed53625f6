"""Compares the default of each argument of a public function, method and class with PyTorch's.

PyTorch's default is that of the Python signature, or that of the schema of the operator for functions without one.
"""

import importlib
import inspect

import pytest

import mytorch
from tests.loops import loop

torch = pytest.importorskip("torch")

PLACES = (
    "", "Tensor", "nn", "nn.Module", "nn.attention.flex_attention", "nn.functional", "nn.init", "nn.utils", "nn.utils.parametrizations",
    "nn.utils.parametrize", "nn.utils.prune", "nn.utils.rnn", "nn.utils.stateless", "optim", "optim.lr_scheduler", "optim.swa_utils",
    "autograd", "autograd.forward_ad", "autograd.functional", "autograd.graph", "fft", "func", "library", "linalg", "random", "special",
    "utils.checkpoint", "utils.data",
)  # fmt: skip
OTHER = {"library": {"opcheck(test_utils"}}  # the last of PyTorch's checks is one of its compiler


def resolved(lib, place):
    found = lib
    for part in filter(None, place.split(".")):
        found = getattr(found, part) if hasattr(found, part) else importlib.import_module(f"{found.__name__}.{part}")
    return found


def of_signature(function):
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return {}
    return {name: p.default for name, p in parameters.items() if p.default is not p.empty}


def of_schemas(name):
    """Returns the defaults that all overloads of an operator have in common."""
    found, without = {}, set()
    for schema in torch._C._jit_get_schemas_for_operator(f"aten::{name}"):
        for argument in schema.arguments:
            default = argument.default_value if argument.has_default_value() else without
            if found.setdefault(argument.name, default) != default or default is without:
                without.add(argument.name)
    return {name: default for name, default in found.items() if name not in without}


def agrees(ours, theirs):
    """None stands for a default that the function computes, and one number for a number in each dimension."""
    if ours is None or theirs is None:
        return True
    if isinstance(ours, (list, tuple)) and isinstance(theirs, (list, tuple)):
        return len(ours) == len(theirs) and all(map(agrees, ours, theirs))
    if isinstance(theirs, (list, tuple)):
        return all(agrees(ours, item) for item in theirs)
    if callable(theirs):
        return theirs.__name__ in (ours, getattr(ours, "__name__", None))
    if isinstance(ours, (bool, str)) or isinstance(theirs, (bool, str)):
        return type(ours) is type(theirs) and ours == theirs
    return ours == theirs


@loop
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.filterwarnings("ignore")
def test_defaults_are_pytorchs(place):
    ours, theirs = resolved(mytorch, place), resolved(torch, place)
    different, compared = [], 0
    for name in sorted(set(dir(ours)) & set(dir(theirs))):
        if name.startswith("__") or not (callable(getattr(ours, name)) and callable(getattr(theirs, name))):
            continue
        mine = of_signature(getattr(ours, name))
        signature = of_signature(getattr(theirs, name))
        want = signature or of_schemas(f"{place}_{name}" if place in ("fft", "linalg", "special") else name)
        if want and not signature:
            want = {"requires_grad": False, **want}  # which the schemas of factories lack
        for argument in mine.keys() & want.keys():
            compared += 1
            if not agrees(mine[argument], want[argument]):
                different.append(f"{name}({argument}={mine[argument]!r}), PyTorch's: {want[argument]!r}")
    assert compared, place
    assert not [text for text in different if text.partition("=")[0] not in OTHER.get(place, ())], different
