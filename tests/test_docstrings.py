"""Runs every example in a docstring of the public API, and counts the required sections of docstrings."""

import ast
import doctest
import importlib
import inspect
from textwrap import dedent

import numpy as np
import pytest

import mytorch
from tests.loops import loop

MODULES = """nn nn.functional nn.init nn.utils nn.utils.rnn nn.utils.parametrize nn.attention optim optim.lr_scheduler optim.swa_utils linalg fft
    special random autograd autograd.forward_ad autograd.functional autograd.graph storage quasirandom amp func serialization utils utils.data utils.checkpoint distributions distributed models vision vision.transforms
    vision.datasets profiler accelerate cuda nn.residual cli.arguments models.run_files
    fx fx.node fx.experimental.optimization fx.passes.shape_prop export onnx""".split()  # fmt: skip
SCOPE = {
    "mytorch": mytorch, "np": np, "nn": mytorch.nn, "F": mytorch.nn.functional, "optim": mytorch.optim, "tensor": mytorch.tensor,
}  # fmt: skip


def _public():
    """Returns {name: object} for every public function, class and method with a docstring; each object once."""
    found, seen = {}, set()

    def add(name, value):
        value = value.__func__ if isinstance(value, (staticmethod, classmethod)) else value
        behind = inspect.unwrap(value) if callable(value) else value
        documented = callable(value) or isinstance(value, property)
        if not documented or not getattr(value, "__doc__", None) or id(behind) in seen:
            return
        if not (getattr(behind, "__module__", None) or "mytorch").startswith("mytorch"):
            return
        seen.add(id(behind))
        found[name] = value
        if inspect.isclass(value):
            for member, method in vars(value).items():
                if not member.startswith("_"):
                    add(f"{name}.{member}", method)

    spaces = {"mytorch": mytorch, **{f"mytorch.{m}": importlib.import_module(f"mytorch.{m}") for m in MODULES}}
    for path, module in spaces.items():
        offered = {n: getattr(module, n) for n in dir(module) if not n.startswith("_")}
        for name in sorted(
            offered, key=lambda n: (inspect.isclass(offered[n]), n)
        ):  # `mytorch.add` before `Tensor.add`
            add(f"{path}.{name}", offered[name])
    return found


PUBLIC = _public()
EXAMPLES = {
    name: test
    for name, value in PUBLIC.items()
    if ">>>" in value.__doc__
    and (test := doctest.DocTestParser().get_doctest(value.__doc__, SCOPE, name, None, 0)).examples
}


@loop
@pytest.mark.parametrize("name", EXAMPLES)
def test_example(name):
    mytorch.manual_seed(0)
    report = []
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    runner.run(EXAMPLES[name], out=report.append, clear_globs=False)
    assert not runner.failures, "".join(report)


def test_examples_are_many():
    assert len(EXAMPLES) >= 200, len(EXAMPLES)


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
