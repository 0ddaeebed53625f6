"""In PyTorch mode, public classes have the names that they have in PyTorch, and pickle finds them there.

The file is also a script that prints the names of the library in PyTorch mode, for the names on its standard input.
"""

import importlib
import json
import pathlib
import pickle
import subprocess
import sys
import types
import warnings

import pytest

ROOT = pathlib.Path(__file__).parent.parent
MODULES = (
    "torch torch.nn torch.nn.utils.rnn torch.nn.utils.parametrize torch.nn.utils.prune torch.nn.parameter torch.nn.parallel torch.optim "
    "torch.optim.lr_scheduler torch.optim.swa_utils torch.utils.data torch.utils.data.distributed torch.utils.checkpoint "
    "torch.utils.hooks torch.utils.benchmark torch.utils.flop_counter torch.utils._pytree torch.autograd "
    "torch.autograd.function torch.autograd.graph torch.autograd.profiler torch.autograd.forward_ad torch.fx torch.amp torch.distributions "
    "torch.distributions.constraints torch.distributions.transforms torch.profiler torch.serialization torch.storage "
    "torch.overrides torch.library torch.multiprocessing torch.export torch.quasirandom torch.futures"
).split()
# Classes with another kind or another home: functions here, several classes of one name there.
OTHERS = {
    "Event", "Future", "Generator", "ProfilerActivity", "ScriptFunction", "ScriptModule", "Stream", "safe_globals",
    "set_default_mmap_options", "set_multithreading_enabled",
}  # fmt: skip


def _classes(package, names=None):
    """Yields (module, name, class) of the public classes of a package."""
    for path in MODULES:
        module = importlib.import_module(package + path.removeprefix("torch"))
        for name in names[path] if names else dir(module):
            value = None if name.startswith("_") else getattr(module, name, None)
            if isinstance(value, type) and value is not types.ModuleType and not hasattr(value, "_absent"):
                yield path, name, value


def _print_names():
    import mytorch

    mytorch.install_as_torch()
    found = []
    for path, name, kind in _classes("torch", json.load(sys.stdin)):
        found.append((path, name, kind.__module__, kind.__qualname__, pickle.loads(pickle.dumps(kind)) is kind))
    json.dump(found, sys.stdout)


def test_classes_have_the_names_of_pytorch():
    pytest.importorskip("torch")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = {(p, n): k for p, n, k in _classes("torch") if k.__module__.startswith("torch") and n not in OTHERS}
    names = {path: [n for p, n in theirs if p == path] for path in MODULES}
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.test_class_names"],
        input=json.dumps(names), cwd=ROOT, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    found, wrong = json.loads(run.stdout), []
    for path, name, module, qualname, is_pickled in found:
        kind = theirs[path, name]
        if (module, qualname, is_pickled) != (kind.__module__, kind.__qualname__, True):
            wrong.append(f"{path}.{name} is {module}.{qualname}, in PyTorch {kind.__module__}.{kind.__qualname__}")
    assert not wrong
    assert len(found) > 350


def test_native_names_stay():
    import mytorch

    assert mytorch.nn.Linear.__module__ == "mytorch.nn.linear" or sys.modules.get("torch") is mytorch


if __name__ == "__main__":
    _print_names()
