"""Every public function and class can be pickled, copied and sent to a new process."""

import copy
import inspect
import pickle
import subprocess
import sys

import pytest

import mytorch
from mytorch import nn
from mytorch.arrays import config
from tests.public_names import callables

# Registries of functions, which PyTorch does not pickle either. Instances, which are copied. Operations without a public name.
REGISTRIES = {"biject_to", "transform_to"}
INSTANCES = {"identity_transform", "dependent"}
INTERNAL = {"to_dtype", "maximum", "minimum", "gru_layer", "lstm_layer", "rnn_layer", "quantized_linear", "lgamma"}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("mode", ["native", "pytorch"])
def test_functions_and_classes_are_pickled(mode, monkeypatch):
    monkeypatch.setattr(config, "pytorch_mode", mode == "pytorch")
    count, failed = 0, []
    for module, name, value in callables():
        if name in REGISTRIES | INSTANCES | INTERNAL:
            continue
        count += 1
        try:
            if pickle.loads(pickle.dumps(value)) is not value or copy.deepcopy(value) is not value:
                failed.append(f"{module}.{name}")
        except Exception as error:
            failed.append(f"{module}.{name}: {error}")
    assert not failed
    assert count > 1500


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
