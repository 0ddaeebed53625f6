"""`inspect.getsource` and `help` of all public functions lead to the definition of the op, with its gradient."""

import inspect
import os

import mytorch
from mytorch.ops.dispatch import bind

ROOT = os.path.dirname(mytorch.__file__)
# Operators with exchanged operands have their own function, and these methods are defined in `dispatch`.
ELSEWHERE = {f"__r{name}__" for name in "add sub mul floordiv mod pow and or xor lshift rshift matmul truediv".split()} | {
    "backward", "retain_grad", "register_hook", "register_post_accumulate_grad_hook", "detach", "requires_grad_", "build_graph_enabled"
}  # fmt: skip


def test_the_source_of_every_function_is_its_definition():
    found = {**bind.METHODS, **bind.PUBLIC, **{name: getattr(mytorch.Tensor, name) for name in bind.METHODS}}
    shared = set()
    for name, function in found.items():
        if isinstance(function, property):
            continue
        source = inspect.getsource(function)
        inner = inspect.unwrap(function)
        file = inner.__code__.co_filename
        assert name in ELSEWHERE or not os.path.relpath(file, ROOT).startswith("ops/dispatch"), (name, file)
        op = getattr(function, "op", None)
        if op is not None:  # the definition has the name of the op, or the gradient formula in its row of a table
            formulas = [f.function for f in op.reference.formulas.values()]
            assert op.name.strip("_") in source or any(f is inner for f in formulas) or op.forward is inner, (
                name,
                source,
            )
            if inner is op.forward and "<locals>" in inner.__qualname__:
                shared |= {op.name} if op.is_differentiable else set()
    # Ops of one family without a gradient show the function that makes them; these have their gradients in that function, too.
    assert shared <= {"floor_divide", "igamma", "igammac", "xlogy"}


def test_the_row_of_an_op_shows_its_gradient():
    for name, gradient in {
        "exp": "g * out",
        "sin": "g * xp.cos(input)",
        "log": "g / input",
        "sqrt": "g / (out * 2)",
    }.items():
        for function in (getattr(mytorch, name), getattr(mytorch.Tensor, name), getattr(mytorch.Tensor, name + "_")):
            source = inspect.getsource(function)
            assert f'"{name}"' in source
            assert gradient in source


def test_help_names_the_file():
    for name, function in bind.PUBLIC.items():
        if not function.__doc__:
            continue
        last = inspect.getdoc(getattr(mytorch, name)).split("\n")[-1]
        file = os.path.relpath(inspect.unwrap(function).__code__.co_filename, os.path.dirname(ROOT)).replace(
            os.sep, "/"
        )
        assert last == f"Defined in `{file}`.", (name, last)
