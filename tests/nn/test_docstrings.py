"""The docstrings of the public classes of `mytorch.nn`: summary, arguments with defaults, shapes, example."""

import importlib
import inspect
import re

import pytest

from mytorch import nn
from mytorch.nn.layer import Declared
from tests.loops import loop

# Classes whose forward does not have tensors as arguments, or that a subclass must define.
WITHOUT_SHAPE = {
    "Buffer", "Container", "LinearCrossEntropyOptions", "Module", "ModuleDict", "ModuleList", "Parameter", "ParameterDict",
    "ParameterList", "RNNBase", "RNNCellBase", "UninitializedBuffer", "UninitializedParameter",
}  # fmt: skip
WITHOUT_EXAMPLE = {"RNNBase", "RNNCellBase"}  # base classes, which users do not create


def _public():
    """{name: class} of the public classes of nn, each once."""
    classes = {}
    for name in sorted(dir(nn)):
        value = getattr(nn, name)
        if inspect.isclass(value) and not name.startswith("_") and value.__module__.startswith("mytorch"):
            classes.setdefault(value, value.__name__)
    return {name: cls for cls, name in classes.items()}


CLASSES = _public()


def _section(cls, head):
    """The lines of a section of a docstring: {name: text}."""
    match = re.search(rf"^{head}:\n((?:    .*\n?)+)", inspect.getdoc(cls), re.M)
    items = re.findall(r"^    (\w+): (.*(?:\n     .*)*)", match[1], re.M) if match else []
    return {name: " ".join(text.split()) for name, text in items}


def test_there_are_all_layers():
    assert len(CLASSES) >= 165


@loop
@pytest.mark.parametrize("name", CLASSES)
def test_summary_begins_with_a_verb(name):
    summary = inspect.getdoc(CLASSES[name]).split("\n")[0]
    assert re.match(r"([A-Z]\w+s |The base class of |Options of ).*\.$", summary), summary


@loop
@pytest.mark.parametrize("name", CLASSES)
def test_every_argument_has_a_line_with_its_default(name):
    cls, lines = CLASSES[name], _section(CLASSES[name], "Args")
    expected = inspect.signature(cls).parameters
    missing = [n for n in expected if n not in lines and not n.startswith("_")]
    assert not missing, missing
    assert not set(lines) - set(expected), "unknown arguments"
    for argument, parameter in expected.items():
        if argument.startswith("_"):
            continue
        stated = re.search(r"\(default: (.*?)\)\.?$", lines[argument])
        if parameter.default not in (parameter.empty, None):
            assert stated, f"{argument}: {lines[argument]}"
            assert eval(stated[1]) == parameter.default, argument
        else:
            assert not stated or (parameter.default is None and stated[1] == "None"), argument


@loop
@pytest.mark.parametrize("name", [n for n in CLASSES if n not in WITHOUT_SHAPE])
def test_shapes(name):
    shape = _section(CLASSES[name], "Shape")
    assert {"Output"} < set(shape), shape


@loop
@pytest.mark.parametrize("name", [n for n in CLASSES if n not in WITHOUT_EXAMPLE])
def test_example(name):
    """tests/test_docstrings.py runs the examples."""
    assert re.search(r"^Example:\n    >>> ", inspect.getdoc(CLASSES[name]), re.M)


@loop
@pytest.mark.parametrize("name", [n for n, c in CLASSES.items() if issubclass(c, Declared) and hasattr(c, "_function")])
def test_the_function_is_named(name):
    function = CLASSES[name]._function.__name__
    assert f"`nn.functional.{function}`" in inspect.getdoc(CLASSES[name])


def test_a_subclass_keeps_its_docstring():
    class Doubled(nn.Linear):
        """Doubles the result."""

    assert Doubled.__doc__ == "Doubles the result."


MODULES = "init utils utils.fusion utils.parametrizations utils.parametrize utils.prune utils.rnn utils.stateless attention".split()


def _functions():
    """{name: function} of the public functions of nn.init and nn.utils, and of the methods of Module."""
    found = {f"Module.{n}": f for n, f in vars(nn.Module).items() if n[0] != "_" and inspect.isfunction(f)}
    for path in MODULES:
        module = importlib.import_module(f"mytorch.nn.{path}")
        for name in getattr(module, "__all__", vars(module)):
            value = getattr(module, name)
            if inspect.isfunction(value) and name[0] != "_" and value.__module__.startswith("mytorch.nn"):
                found[f"{path}.{name}"] = value
    return {name: f for name, f in found.items() if not inspect.getdoc(f).startswith("Older name of")}


FUNCTIONS = _functions()


@loop
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_describe_their_arguments(name):
    expected = set(inspect.signature(FUNCTIONS[name]).parameters) - {"self", "input"}
    missing = expected - set(_section(FUNCTIONS[name], "Args"))
    assert not missing, missing
