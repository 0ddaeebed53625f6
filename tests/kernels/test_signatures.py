"""Kernels take the inputs of their op, with the same optional ones; checked in their sources, because Triton may be missing."""

import ast
from pathlib import Path

import pytest

import mytorch
import mytorch.ops.everything
from mytorch.ops.dispatch.record import RECORDS
from tests.loops import loop

KERNELS = [(op, kernel.path) for op in RECORDS.values() for kernel in op.kernels.of.values()]


def forward_of(tree, name):
    """The definition of `forward` in a module, or in the class of the object `name`; None if a function returns the object."""
    body = tree.body
    if name:
        named = {node.targets[0].id: node.value for node in body if isinstance(node, ast.Assign) and len(node.targets) == 1
                 and isinstance(node.targets[0], ast.Name)}  # fmt: skip
        value = named.get(name)
        called = value.func.id if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) else name
        body = next((node.body for node in tree.body if isinstance(node, ast.ClassDef) and node.name == called), [])
    return next((node for node in body if isinstance(node, ast.FunctionDef) and node.name == "forward"), None)


@loop
@pytest.mark.parametrize(("op", "path"), KERNELS)
def test_optional_inputs_are_those_of_the_op(op, path):
    module, _, name = path.partition(":")
    file = Path(mytorch.__file__).parents[1].joinpath(*module.split(".")).with_suffix(".py")
    forward = forward_of(ast.parse(file.read_text()), name)
    if forward is None or forward.args.vararg:
        return
    names = [argument.arg for argument in forward.args.args if argument.arg not in ("self", "xp")]
    optional = names[len(names) - len(forward.args.defaults) :]
    assert tuple(names[: len(op.inputs)]) == tuple(op.inputs[: len(names)])
    assert [n for n in optional if n in op.inputs] == list(op.inputs[op.required :])
