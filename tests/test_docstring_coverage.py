"""Every parameter of the functions, optimizers, schedulers and data classes has a line in its docstring."""

import enum
import importlib
import inspect
import re

import pytest

NAMES = """nn.functional optim optim.lr_scheduler optim.swa_utils utils utils.data utils.checkpoint linalg fft special func
    autograd autograd.functional autograd.forward_ad autograd.graph amp random distributed fx export onnx""".split()
MODULES = {name: importlib.import_module(f"mytorch.{name}") for name in NAMES}
OWN_NAMES = {"optim.lr_scheduler", "autograd.functional", "autograd.forward_ad"}  # without the names that they import
WITHOUT_ARGS = {"autograd.Function"}  # users call `apply` instead of the constructor
SECTIONS = r"Args|Attributes|Raises|Returns|Yields|Shape|Source|Examples?|Note|See also"


def _callables():
    """Yields (name, callable, docstring) for the public functions, classes and methods."""
    for space, module in MODULES.items():
        for name in sorted(set(getattr(module, "__all__", None) or vars(module))):
            value = getattr(module, name, None)
            home = getattr(value, "__module__", None) or ""
            if name.startswith("_") or not callable(value) or not home.startswith("mytorch"):
                continue
            if (space in OWN_NAMES and home != module.__name__) or f"{space}.{name}" in WITHOUT_ARGS:
                continue
            if inspect.ismodule(value) or (inspect.isclass(value) and issubclass(value, (BaseException, enum.Enum))):
                continue
            yield f"{space}.{name}", value, value.__doc__ or ""
            if inspect.isclass(value):
                for member, method in vars(value).items():
                    if not member.startswith("_") and inspect.isfunction(method) and method.__doc__:
                        yield f"{space}.{name}.{member}", method, method.__doc__


CALLABLES = {name: (value, inspect.cleandoc(doc)) for name, value, doc in _callables()}


def _parameters(value):
    return [n for n in inspect.signature(value).parameters if n not in ("self", "cls") and n[0] != "_"]


def _described(doc):
    """Returns the names with a separate line in the section `Args:`, or in `Attributes:` for named tuples."""
    sections = re.findall(rf"^(?:Args|Attributes):\n(.*?)(?=^(?:{SECTIONS}):|\Z)", doc, re.M | re.S)
    return {name for section in sections for name in re.findall(r"^    \*{0,2}(\w+): \S", section, re.M)}


@pytest.mark.parametrize("name", CALLABLES)
def test_every_parameter_has_a_line(name):
    value, doc = CALLABLES[name]
    missing = [p for p in _parameters(value) if p not in _described(doc)]
    assert not missing, f"{name}: no line under Args for {', '.join(missing)}"


OPTIMIZERS = [
    n for n in CALLABLES if n.startswith("optim.") and n.count(".") == 1 and n != "optim.Optimizer"
    and inspect.isclass(CALLABLES[n][0])
]  # fmt: skip


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_have_an_update_rule_and_an_example(name):
    doc = CALLABLES[name][1]
    rule = doc.split("Args:")[0]
    assert re.search(r"^    \S.* = ", rule, re.M), f"{name}: no update rule as an indented block before Args"
    assert ">>>" in doc, f"{name}: no example"
