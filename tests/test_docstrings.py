"""Runs every example in a docstring of the public API."""

import doctest
import importlib
import inspect

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
