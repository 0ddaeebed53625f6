"""`mytorchrun warmup`: compiled kernels and output."""

import importlib
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("numba")
pytestmark = pytest.mark.cpu_only

import mytorch.kernels.numba as kernels  # noqa: E402
from mytorch import cli  # noqa: E402
from mytorch.cli import warmup  # noqa: E402

ROOT = Path(__file__).resolve().parents[2]
PROCESSOR = ("bf16.", "fixed_point.")  # compiled where the processor has the instruction


def compiled_by_python():
    """The functions of `kernels/numba/` that Python calls, by "module.name"."""
    for found in pkgutil.iter_modules(kernels.__path__):
        module = importlib.import_module(f"{kernels.__name__}.{found.name}")
        for name, value in vars(module).items():
            own = getattr(value, "py_func", None) is not None and not value.targetoptions.get("no_cpython_wrapper")
            if own and not f"{found.name}.".startswith(PROCESSOR):
                yield f"{found.name}.{name}", value


def test_warmup_runs_every_kernel():
    code = """if 1:
        from mytorch.cli import warmup
        from tests.kernels.test_warmup import compiled_by_python
        for task in warmup.TASKS:
            warmup.perform(task)
        print([name for name, loop in compiled_by_python() if not loop.signatures])
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout == "[]\n"


def test_warmup_prints_a_report(capsys, monkeypatch):
    monkeypatch.setattr(
        warmup, "_run", lambda tasks, processes: ((task, ["relu.fwd"] * (task == "relu")) for task in tasks)
    )
    assert cli.main(["warmup", "--only", "gelu", "relu"]) == 0
    first, second, last = capsys.readouterr().out.splitlines()
    assert (first.rstrip(), second.rstrip()) == ("1/2 gelu: 0 compiled", "2/2 relu: 1 compiled")
    assert last.startswith("1 kernel compiled in ")


def test_warmup_in_a_separate_process(capsys):
    assert cli.main(["warmup", "--processes", "1", "--only", "relu"]) == 0
    assert capsys.readouterr().out.startswith("1/1 relu: ")


def test_small_tensors_do_without_numba():
    code = """if 1:
        import sys, mytorch
        from mytorch import nn
        from mytorch.nn import functional as F
        model = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.LayerNorm(4), nn.SiLU(), nn.GELU(), nn.Linear(4, 2))
        optimizer = mytorch.optim.Adam(model.parameters())
        out = model(mytorch.ones(2, 2))
        F.cross_entropy(out, mytorch.tensor([0, 1])).backward()
        optimizer.step()
        out.softmax(-1), out.log_softmax(-1)
        sys.exit("numba" in sys.modules)
    """
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0
