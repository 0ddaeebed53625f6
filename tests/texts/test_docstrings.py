"""The sections of docstrings, and what they say of arguments, shapes, examples and update rules."""

import ast
import importlib
import inspect
import re
from textwrap import dedent

import pytest

from mytorch import nn
from mytorch.nn.layer import Declared
from tests.loops import loop
from tests.test_docstrings import PUBLIC

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
# Of a family such as Conv1d, Conv2d and Conv3d, one docstring describes all, and those of the others name it: {name: its name}.
TOLD_BY = {
    name: told[1]
    for name, cls in CLASSES.items()
    if (told := re.search(r"\b[Ss]ee `nn\.(\w+)`\.", inspect.getdoc(cls))) and told[1][:-2] == name[:-2]
}


def _section(cls, head):
    """The lines of a section of a docstring: {name: text}."""
    match = re.search(rf"^{head}:\n((?:    .*\n?)+)", inspect.getdoc(cls), re.M)
    items = re.findall(r"^    (\w+): (.*(?:\n     .*)*)", match[1], re.M) if match else []
    return {name: " ".join(text.split()) for name, text in items}


def test_there_are_all_layers():
    assert len(CLASSES) >= 165


def test_families_have_one_description():
    assert len(TOLD_BY) >= 30
    assert not set(TOLD_BY.values()) & set(TOLD_BY)


@loop
@pytest.mark.parametrize("name", CLASSES)
def test_summary_begins_with_a_verb(name):
    summary = inspect.getdoc(CLASSES[name]).split("\n")[0]
    assert re.match(r"([A-Z]\w+s |The base class of |Options of ).*\.$", summary), summary


@loop
@pytest.mark.parametrize("name", CLASSES)
def test_lines_of_arguments_are_true(name):
    """An argument needs no line. A line names an argument, and states its default if it states one."""
    cls, lines = CLASSES[name], _section(CLASSES[name], "Args")
    expected = inspect.signature(cls).parameters
    assert not set(lines) - set(expected), "unknown arguments"
    for argument, text in lines.items():
        stated = re.search(r"\(default: (.*?)\)\.?$", text)
        if stated:
            assert eval(stated[1]) == expected[argument].default, argument


@loop
@pytest.mark.parametrize(
    "name", [n for n in CLASSES if n not in WITHOUT_SHAPE and not (n in TOLD_BY and n.startswith("Lazy"))]
)
def test_shapes(name):
    shape = _section(CLASSES[name], "Shape")
    assert {"Output"} < set(shape), shape


@loop
@pytest.mark.parametrize("name", [n for n in CLASSES if n not in WITHOUT_EXAMPLE and n not in TOLD_BY])
def test_example(name):
    """tests/test_docstrings.py runs the examples."""
    assert re.search(r"^Example:\n    >>> ", inspect.getdoc(CLASSES[name]), re.M)


@loop
@pytest.mark.parametrize(
    "name", [n for n, c in CLASSES.items() if issubclass(c, Declared) and hasattr(c, "_function") and n not in TOLD_BY]
)
def test_the_function_is_named(name):
    function = CLASSES[name]._function.__name__
    assert f"`nn.functional.{function}`" in inspect.getdoc(CLASSES[name])


@pytest.mark.parametrize(
    "name",
    [
        n
        for n, c in CLASSES.items()
        if issubclass(c, Declared) and c.__init__ is Declared.__init__ and hasattr(c, "_function")
    ],
)
def test_options_of_a_layer_are_described_with_its_function(name):
    """The class has a line for each option that its function describes."""
    cls = CLASSES[name]
    options = {option for option in cls._options if not option.startswith("_")}
    assert _section(cls._function, "Args").keys() & options <= _section(cls, "Args").keys()


def test_a_subclass_keeps_its_docstring():
    class Doubled(nn.Linear):
        """Doubles the result."""

    assert Doubled.__doc__ == "Doubles the result."


MODULES = """nn.init nn.utils nn.utils.fusion nn.utils.parametrizations nn.utils.parametrize nn.utils.prune nn.utils.rnn
    nn.utils.stateless nn.attention nn.functional optim optim.lr_scheduler optim.swa_utils utils utils.data utils.checkpoint linalg
    fft special func autograd autograd.functional autograd.forward_ad autograd.graph amp random distributed fx export onnx""".split()


def _callables():
    """{name: function or class} of the public functions, classes and methods of `MODULES`."""
    found = {}
    for path in MODULES:
        module = importlib.import_module(f"mytorch.{path}")
        for name in getattr(module, "__all__", vars(module)):
            value = getattr(module, name, None)
            home = getattr(value, "__module__", None) or ""
            if (
                name.startswith("_")
                or not home.startswith("mytorch")
                or not (inspect.isfunction(value) or inspect.isclass(value))
            ):
                continue
            found[f"{path}.{name}"] = value
            if inspect.isclass(value):
                methods = ((m, f) for m, f in vars(value).items() if not m.startswith("_") and inspect.isfunction(f))
                found.update({f"{path}.{name}.{m}": f for m, f in methods})
    return found


CALLABLES = {name: value for name, value in _callables().items() if inspect.getdoc(value)}


@loop
@pytest.mark.parametrize("name", CALLABLES)
def test_lines_of_parameters_name_parameters(name):
    try:
        expected = inspect.signature(CALLABLES[name]).parameters
    except (TypeError, ValueError):  # an enumeration, or a class whose instances C code makes
        return
    if any(p.kind is p.VAR_KEYWORD for p in expected.values()):
        return
    unknown = set(_section(CALLABLES[name], "Args")) - set(expected)
    assert not unknown, unknown


OPTIMIZERS = [n for n, c in CALLABLES.items() if re.fullmatch(r"optim\.[A-Z]\w+", n) and n != "optim.Optimizer"]


@loop
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_have_an_update_rule_and_an_example(name):
    doc = inspect.getdoc(CALLABLES[name])
    rule = doc.split("Args:")[0]
    assert re.search(r"^    \S.* = ", rule, re.M), f"{name}: no update rule as an indented block before Args"
    assert ">>>" in doc, f"{name}: no example"


def _raises(function):
    """Returns True if the body of a function raises an error, other than the error of an abstract method."""
    body = inspect.unwrap(function)
    body = getattr(body, "forward", body)  # a record's
    if not inspect.isfunction(body):
        return False
    try:
        tree = ast.parse(dedent(inspect.getsource(body)))
    except (SyntaxError, OSError):  # a lambda in a table, or made of a string
        return False
    raised = [n.exc for n in ast.walk(tree) if isinstance(n, ast.Raise)]
    names = {e.func.id for e in raised if isinstance(e, ast.Call) and isinstance(e.func, ast.Name)}
    return bool(names - {"NotImplementedError", "AttributeError"})


def test_functions_that_raise_say_so():
    """At least half of the functions that raise errors have a section `Raises:`. This fraction must not decrease."""
    raising = [v for v in PUBLIC.values() if not inspect.isclass(v) and not isinstance(v, property) and _raises(v)]
    said = [v for v in raising if "Raises:" in v.__doc__]
    assert len(said) / len(raising) > 0.5, f"{len(said)} of {len(raising)} say what they raise"
