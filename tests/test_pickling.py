"""Every public function and class can be pickled, copied and sent to a new process."""

import copy
import importlib
import inspect
import pickle
import subprocess
import sys

import pytest

import mytorch
from mytorch import nn

MODULES = """mytorch mytorch.nn mytorch.nn.functional mytorch.nn.init mytorch.nn.utils mytorch.optim mytorch.optim.lr_scheduler mytorch.linalg
mytorch.fft mytorch.special mytorch.func mytorch.autograd mytorch.amp mytorch.utils.data mytorch.distributions mytorch.distributed
mytorch.vision.transforms mytorch.models mytorch.serialization mytorch.accelerate""".split()
# Names that modules import for their own use, and registries of functions.
SKIPPED = {"get_mode", "to_dtype", "biject_to", "transform_to", "identity_transform", "FunctionType"}


def public(module):
    for name in sorted(dir(module)):
        value = getattr(module, name)
        absent = type(value).__module__ == "mytorch.compat.stubs"  # a function that raises NotImplementedError
        if callable(value) and not (absent or name.startswith("_") or inspect.ismodule(value) or name in SKIPPED):
            yield value


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("path", MODULES)
def test_functions_and_classes_are_pickled(path):
    for value in public(importlib.import_module(path)):
        assert pickle.loads(pickle.dumps(value)) is value
        assert copy.deepcopy(value) is value


def test_methods_are_pickled():
    for name in dir(mytorch.Tensor):
        method = getattr(mytorch.Tensor, name)
        if inspect.isfunction(method):
            assert pickle.loads(pickle.dumps(method)) is method
    x = mytorch.tensor([1.0, 4.0])
    assert pickle.loads(pickle.dumps(x.sqrt))().tolist() == [1, 2]


class Block(nn.Module):
    def __init__(self, activation):
        super().__init__()
        self.activation = activation

    def forward(self, x):
        return self.activation(x)


def test_modules_that_store_functions():
    x = mytorch.randn(3)
    for function in (mytorch.relu, mytorch.sin, mytorch.sigmoid, mytorch.nn.functional.gelu, mytorch.softmax):
        arguments = (0,) if function is mytorch.softmax else ()
        copied = pickle.loads(pickle.dumps(Block(function)))
        assert copied.activation(x, *arguments).tolist() == function(x, *arguments).tolist()


def test_functions_reach_a_new_process():
    names = "relu sin softmax add abs_ detach hann_window FloatTensor FloatStorage cummax".split()
    sent = pickle.dumps([getattr(mytorch, name) for name in names])
    program = f"import pickle; print(*[f.__name__ for f in pickle.loads({sent!r})])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=True)
    assert len(done.stdout.split()) == len(names)
