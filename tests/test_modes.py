"""Native mode (`import mytorch`) and PyTorch mode (`install_as_torch`, `python -m mytorch`)."""

import os
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import mytorch
from mytorch.arrays.array import Array
from mytorch.arrays.tensor import Tensor as CoreTensor
from tests.loops import loop

pytestmark = pytest.mark.cpu_only
ROOT = Path(__file__).parents[1]


def run_python(*args, cwd=None):
    env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"}
    return subprocess.run([sys.executable, *args], capture_output=True, text=True, env=env, cwd=cwd)


def as_torch(code):
    """Runs a program with mytorch as torch; returns its output."""
    done = run_python("-m", "mytorch", "-c", code)
    assert done.returncode == 0, done.stderr
    return done.stdout


# -- an Array is a tensor, for users ------------------------------------------------------------------------------


def gradient():
    x = mytorch.ones(2, 2, requires_grad=True)
    (x * 2).sum().backward()
    return x.grad


def test_gradient_is_an_array():
    grad = gradient()
    assert type(grad) is type(mytorch.ones(2).data) is Array
    assert type(grad.detach()) is mytorch.Tensor
    assert not isinstance(np.ones(2), mytorch.Tensor)
    assert not isinstance(grad, mytorch.nn.Parameter)


def test_users_class_of_tensors():
    x = mytorch.ones(2)
    assert type(x) is type(x + x) is type(x.detach()) is mytorch.Tensor is CoreTensor
    assert repr(mytorch.Tensor) == "<class 'mytorch.Tensor'>"
    assert isinstance(mytorch.nn.Parameter(x), mytorch.Tensor)
    assert issubclass(mytorch.nn.Parameter, mytorch.Tensor)
    assert pickle.loads(pickle.dumps(mytorch.Tensor)) is mytorch.Tensor
    assert type(pickle.loads(pickle.dumps(x))) is mytorch.Tensor

    class Mine(mytorch.Tensor):
        pass

    assert not isinstance(x, Mine)
    assert not isinstance(gradient(), Mine)
    assert type(Mine([1.0])) is Mine


def test_methods_set_on_the_users_class_reach_parameters():
    mytorch.Tensor.twice = lambda self: self + self
    try:
        assert mytorch.nn.Parameter(mytorch.ones(1)).twice().item() == 2
    finally:
        del mytorch.Tensor.twice
    assert not hasattr(mytorch.ones(1), "twice")


INNER = {"__array_wrap__", "__dict__", "_add_parents", "_as_tensor", "_copies_gradient", "_extra_state", "_make", "_of"}
ARGUMENTS = ((), (1,), (0, 1), ("cpu",), (mytorch.float64,), (1.0, 2.0), ((0,),), ((4,),))


def test_array_has_the_attributes_of_tensors():
    assert set(dir(mytorch.Tensor)) - set(dir(Array)) == INNER


@loop
@pytest.mark.parametrize("name", [n for n in dir(mytorch.Tensor) if n[0] != "_" and n not in INNER])
@pytest.mark.filterwarnings("ignore")
def test_array_methods_equal_tensor_methods(name):
    values = np.array([[0.5, 0.25], [0.125, 0.75]], "f4")

    def asked(x, args):
        if name == "set_" and args in (("cpu",), (mytorch.float64,)):
            raise TypeError
        value = getattr(x, name)
        return value(*args) if callable(value) else value

    def told(value):
        if isinstance(value, (mytorch.Tensor, Array)):
            return np.asarray(value.detach().to_dense()).tolist(), value.dtype, value.layout
        return [told(v) for v in value] if isinstance(value, (tuple, list)) else type(value)

    matrix, ints = mytorch.tensor(values), mytorch.tensor([[0, 1], [1, 0]])
    for args in (*ARGUMENTS, (matrix,), (ints,), (0, ints), (0, ints, matrix), (matrix, matrix)):
        mytorch.manual_seed(0)
        try:
            expected = asked(mytorch.tensor(values), args)
        except Exception:
            continue
        mytorch.manual_seed(0)
        got = asked(mytorch.tensor(values).data, args)
        if name not in ("data", "new", "new_empty", "empty_like", "data_ptr"):
            assert str(told(got)).replace("Array", "Tensor") == str(told(expected)), (name, args)


def test_array_takes_requires_grad_false():
    array = gradient()
    array.requires_grad = False
    with pytest.raises(RuntimeError, match="cannot record operations"):
        array.requires_grad = True


def test_own_layout_names_dtype_and_size():
    assert repr(mytorch.tensor([1.5], dtype=mytorch.float64)) == "tensor([1.50000], dtype=float64)"
    assert repr(mytorch.tensor([1], dtype=mytorch.int32)) == "tensor([1], dtype=int32)"
    assert repr(mytorch.tensor([1.5], dtype=mytorch.bfloat16)) == "tensor([1.50000], dtype=bfloat16)"
    assert repr(mytorch.tensor([1])) == "tensor([1])"
    assert repr(mytorch.tensor([True])) == "tensor([ True])"
    assert repr(mytorch.tensor([])) == "tensor([], size=(0,))"
    assert repr(mytorch.zeros(0, 3).data) == "Array([], size=(0, 3), dtype=float32)"
    x = mytorch.ones(1, dtype=mytorch.float64, requires_grad=True)
    assert repr(x) == "tensor([1.00000], dtype=float64, requires_grad=True)"


# -- PyTorch mode ----------------------------------------------------------------------------------------------------


PROGRAM = """
import sys
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.backends.cudnn as cudnn
from torch.types import Device
from torch.testing import assert_close
from torch.utils.hooks import RemovableHandle

cudnn.benchmark = True
torch.manual_seed(0)
x = torch.randn(4, 3)
print(sys.argv[1:], __name__, x, x.double(), x.shape, x.dtype, x.type())
print(torch.tensor([]), torch.zeros(0, 3), torch.arange(3), torch.arange(3, dtype=torch.int32))
layer = nn.Linear(3, 2)
layer.weight.data.fill_(0.5)
layer.bias.data.zero_()
loss = F.cross_entropy(layer(x), torch.tensor([0, 1, 0, 1]))
loss.backward()
p = layer.bias
print(loss.item(), x.exp(), loss.detach(), p, p.grad, p.data)
print(isinstance(p.grad, torch.Tensor), p.grad is p.grad, type(p.grad) is torch.Tensor, type(p.data) is type(x))
p.grad.zero_()
p.grad += 1
print(p.grad, p.grad.norm())
optimizer = torch.optim.SGD(layer.parameters(), lr=0.5)
optimizer.step()
print(p.data)
optimizer.zero_grad()
print(p.grad)
held = p.grad = torch.ones(2)
print(p.grad is held)
assert_close(p.data, p.data.clone())
print(isinstance(p.register_hook(lambda g: None), RemovableHandle))

d, f = torch.ones(2, 3, dtype=torch.float64), torch.ones(3, 4)
z = torch.zeros(2)
for refused in (
    lambda: d @ f,
    lambda: torch.mm(torch.ones(2, 3, dtype=torch.int64), f),
    lambda: layer(d),
    lambda: F.linear(d, torch.ones(4, 3)),
    lambda: torch.einsum("ij,jk->ik", d, f),
    lambda: F.conv2d(torch.ones(1, 1, 3, 3).double(), torch.ones(1, 1, 2, 2), torch.ones(1)),
    lambda: F.binary_cross_entropy_with_logits(z, torch.tensor([0, 1])),
    lambda: F.binary_cross_entropy(z + 0.5, torch.tensor([0, 1])),
    lambda: nn.BCELoss()(z + 0.5, torch.tensor([0.0, 1.0], dtype=torch.float64)),
    lambda: F.cross_entropy(torch.zeros(2, 3), torch.tensor([0.0, 1.0])),
    lambda: F.nll_loss(torch.zeros(2, 3), torch.tensor([0.0, 1.0])),
    lambda: F.cross_entropy(torch.zeros(2, 3), torch.tensor([0, 1], dtype=torch.int32)),
    lambda: assert_close(torch.tensor([1.0, 2.0]), torch.tensor([1.0, 2.5])),
    lambda: assert_close(torch.tensor([1, 2]), torch.tensor([1, 4])),
    lambda: assert_close(torch.tensor([1.0]), torch.tensor([1.0], dtype=torch.float64)),
    lambda: assert_close([torch.ones(2, 2)], [torch.zeros(2, 2)]),
    lambda: assert_close(1.0, 1.5),
):
    try:
        print(refused())
    except (RuntimeError, AssertionError) as error:
        print(type(error).__name__, error)
sys.exit(3)
"""


def test_program_prints_the_same_as_pytorch(tmp_path, torch):
    """One program, under `python -m mytorch` and under PyTorch."""
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    theirs, ours = run_python(str(path), "a", "-b"), run_python("-m", "mytorch", str(path), "a", "-b")
    assert theirs.returncode == ours.returncode == 3, ours.stderr
    assert ours.stdout == theirs.stdout


def test_mixed_dtypes_promote_in_native_mode():
    d, f = mytorch.ones(2, 3, dtype=mytorch.float64), mytorch.ones(3, 4)
    assert (d @ f).dtype is mytorch.float64
    F = mytorch.nn.functional
    assert F.cross_entropy(mytorch.zeros(2, 2), mytorch.tensor([0.0, 1.0])).item() == pytest.approx(np.log(2))


def test_gradients_are_freed_with_zero_grad():
    """The Tensor that shows a gradient does not keep it."""
    code = (
        "import torch, weakref\nx = torch.ones(2, requires_grad=True)\n(x * 2).sum().backward()\nx.grad\n"
        "w = weakref.ref(x._mt_edge.grad)\nx.grad = None\nprint(w() is None)"
    )
    assert as_torch(code) == "True\n"


def test_copies_of_shown_gradients():
    code = (
        "import torch, copy, pickle\nx = torch.ones(2, requires_grad=True)\n(x * 2).sum().backward()\ng = x.grad\n"
        "print(copy.deepcopy(x).grad, pickle.loads(pickle.dumps(x)))"
    )
    assert as_torch(code) == "tensor([2., 2.]) tensor([1., 1.], requires_grad=True)\n"


# -- python -m mytorch ---------------------------------------------------------------------------------------------


def test_module_runs_as_main(tmp_path):
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "__init__.py").touch()
    (tmp_path / "pack" / "tool.py").write_text(
        "import sys, torch\nfrom . import other\nprint(__name__, sys.argv[1:], torch.ones(1), other.SIZE)\n"
    )
    (tmp_path / "pack" / "other.py").write_text("SIZE = 5\n")
    done = run_python("-m", "mytorch", "-m", "pack.tool", "--n", "1", cwd=tmp_path)
    assert done.stdout == "__main__ ['--n', '1'] tensor([1.]) 5\n", done.stderr


def test_a_syntax_error_has_no_frames_of_the_library(tmp_path):
    (tmp_path / "broken.py").write_text("x = (\n")
    ours, pythons = run_python("-m", "mytorch", "broken.py", cwd=tmp_path), run_python("broken.py", cwd=tmp_path)
    assert ours.returncode == pythons.returncode == 1
    assert ours.stderr.splitlines()[1:] == pythons.stderr.splitlines()[1:]  # without the line of the path


def test_code_runs_as_main():
    done = run_python("-m", "mytorch", "-c", "import sys, torch; print(sys.argv, __name__, torch.__name__)", "a")
    assert done.stdout == "['-c', 'a'] __main__ torch\n"


def test_script_imports_files_next_to_it(tmp_path):
    (tmp_path / "neighbour.py").write_text("import torch\nvalue = torch.ones(1).item()\n")
    (tmp_path / "script.py").write_text("from neighbour import value\nimport sys\nprint(value, sys.argv[0])\n")
    done = run_python("-m", "mytorch", str(tmp_path / "script.py"), cwd="/")
    assert done.stdout == f"1.0 {tmp_path / 'script.py'}\n"


def test_traceback_is_the_programs_own(tmp_path):
    path = tmp_path / "fails.py"
    path.write_text("import torch\n\n\ndef f():\n    torch.ones(2) + torch.ones(3)\n\n\nf()\n")
    ours = run_python("-m", "mytorch", str(path))
    assert ours.returncode == 1
    lines = ours.stderr.rpartition("Traceback")[2].splitlines()  # the first part is NumPy's error, the cause
    assert lines[1].strip() == f'File "{path}", line 8, in <module>'
    assert "runpy" not in ours.stderr
    assert "__main__.py" not in ours.stderr


@pytest.mark.parametrize("end", ["sys.exit(7)", "sys.exit('sorry')", "raise KeyboardInterrupt", "pass"])
def test_exit_codes_are_pythons(end):
    code = f"import sys; {end}"
    assert run_python("-m", "mytorch", "-c", code).returncode == run_python("-c", code).returncode


def test_missing_script_and_missing_arguments():
    done = run_python("-m", "mytorch", "/nowhere/x.py")
    assert done.returncode == 2
    assert "can't open file '/nowhere/x.py'" in done.stderr
    assert run_python("-m", "mytorch").returncode == 2
    assert "script.py" in run_python("-m", "mytorch", "--help").stdout


# -- import paths ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    "backends.cudnn backends.cuda backends.mps types compiler hub testing multiprocessing __config__ utils.hooks".split(),
)
def test_import_path(path):
    code = f"import torch.{path} as by_path\nimport torch, mytorch\nprint(torch.{path} is by_path, mytorch.{path} is by_path)"
    assert as_torch(code) == "True True\n"


def test_compiler_changes_nothing():
    from mytorch import compiler

    @compiler.disable
    def f(x):
        return x

    assert f(1) == 1
    assert compiler.is_compiling() is False


def test_config_names_the_backends():
    assert f"NumPy {np.__version__}" in mytorch.__config__.show()
    assert str(mytorch.get_num_threads()) in mytorch.__config__.parallel_info()


def test_hub_loads_local_code_and_files(tmp_path):
    (tmp_path / "hubconf.py").write_text(
        "def entry(n, twice=False):\n    'An entry.'\n    return n * (2 if twice else 1)\n"
    )
    hub = mytorch.hub
    assert hub.load(str(tmp_path), "entry", 3, source="local", twice=True) == 6
    assert hub.list(str(tmp_path), source="local") == ["entry"]
    assert hub.help(str(tmp_path), "entry", source="local") == "An entry."
    with pytest.raises(NotImplementedError, match="source='local'"):
        hub.load("pytorch/vision", "resnet18")
    mytorch.save({"w": mytorch.ones(2)}, tmp_path / "w.pt")
    state = hub.load_state_dict_from_url((tmp_path / "w.pt").as_uri(), model_dir=str(tmp_path / "kept"))
    assert state["w"].tolist() == [1, 1]
    assert (tmp_path / "kept" / "w.pt").exists()
    with pytest.raises(RuntimeError, match="invalid hash"):
        hub.download_url_to_file((tmp_path / "w.pt").as_uri(), str(tmp_path / "new.pt"), "nothash")
    assert sorted(p.name for p in tmp_path.iterdir() if p.is_file()) == ["hubconf.py", "w.pt"]


SPAWN = """
import torch, torch.multiprocessing as mp

def work(i, queue):
    if i == 2:
        raise ValueError("this one")
    queue.put(torch.ones(2) * i)

if __name__ == "__main__":
    queue = mp.get_context("fork").SimpleQueue()
    mp.spawn(work, (queue,), nprocs=2)
    print(sorted(queue.get().sum().item() for _ in range(2)))
    try:
        mp.spawn(work, (queue,), nprocs=3)
    except mp.ProcessRaisedException as error:
        print(error.error_index, "ValueError: this one" in str(error))
"""


def test_multiprocessing_spawn(tmp_path):
    (tmp_path / "program.py").write_text(SPAWN)
    done = run_python("-m", "mytorch", str(tmp_path / "program.py"))
    assert done.stdout == "[0.0, 2.0]\n2 True\n", done.stderr


def test_norms_reject_mixed_dtypes_in_pytorch_mode():
    """Norms accept float32 parameters with 16-bit inputs."""
    code = """import torch
from torch import nn
for layer, shape in ((nn.LayerNorm(3), (2, 3)), (nn.BatchNorm1d(3), (2, 3)), (nn.GroupNorm(1, 3), (2, 3, 3))):
    print(layer(torch.ones(shape, dtype=torch.bfloat16)).dtype)
    try:
        layer(torch.ones(shape, dtype=torch.float64))
    except RuntimeError as error:
        print(error)
"""
    assert as_torch(code) == "torch.bfloat16\nmixed dtype (CPU): all inputs must share same datatype.\n" * 3


def test_lists_are_refused_by_name():
    F = mytorch.nn.functional
    calls = {
        "linear": lambda x: mytorch.nn.Linear(2, 2)(x),
        "layer_norm": lambda x: F.layer_norm(x, (2,)),
        "conv1d": lambda x: F.conv1d(x, mytorch.ones(1, 1, 1)),
        "batch_norm": lambda x: F.batch_norm(x, None, None, training=True),
        "group_norm": lambda x: F.group_norm(x, 1),
    }
    for name, call in calls.items():
        with pytest.raises(TypeError, match=rf"{name}\(\): argument 'input' \(position 1\) must be Tensor, not list"):
            call([1, 2])


def test_leaky_relu_in_place_with_a_negative_slope_has_no_derivative_in_pytorch_mode():
    code = """
import torch
for slope, expected in ((-2.0, None), (0.0, [0.0, 0.0, 1.0]), (0.5, [0.5, 0.5, 1.0])):
    a = torch.tensor([-2.0, 0.0, 2.0], requires_grad=True)
    out = torch.nn.functional.leaky_relu_(a.clone(), slope)
    try:
        out.sum().backward()
    except RuntimeError as error:
        assert expected is None and "out-of-place" in str(error)
    else:
        assert a.grad.tolist() == expected
print("done")
"""
    assert as_torch(code) == "done\n"
    a = mytorch.tensor([-2.0, 2.0], requires_grad=True)
    mytorch.nn.functional.leaky_relu(a.clone(), -2.0, inplace=True).sum().backward()
    assert a.grad.tolist() == [-2.0, 1.0]
