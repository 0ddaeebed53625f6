"""What a name imports: a name that does not exist imports no module, and a name of `compat` its own module only."""

import importlib.util
import os
import subprocess
import sys

import pytest

from mytorch import _extensions

UNKNOWN = """
import sys
import mytorch
before = set(sys.modules)
for module in (mytorch, mytorch.ops, *(getattr(mytorch, name) for name in {packages})):
    loaded = set(sys.modules)
    assert not hasattr(module, "hann_windowx") and not hasattr(module, "_hann_windowx")
    assert module is mytorch.ops or set(sys.modules) == loaded, (module, set(sys.modules) - loaded)
dir(mytorch)
"""
KNOWN = """
import os, sys
import mytorch
before = set(sys.modules)

def imported(action):
    reader, writer = os.pipe()
    if not os.fork():
        try:
            action()
            os.write(writer, " ".join(m for m in set(sys.modules) - before if m.startswith("mytorch")).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as file:
        found = set(file.read().split())
    os.wait()
    return found

for home, names in {names}:
    get = mytorch._extensions.torch_value
    own = imported(lambda: __import__(f"mytorch.{{home}}"))
    first = imported(lambda: get("mytorch", names[0]))
    every = imported(lambda: [get("mytorch", name) for name in names])
    assert f"mytorch.{{home}}" in first, (home, names[0])
    assert first == own == every, (home, first ^ own, first ^ every)  # the other names of a module need no further module
    assert "mytorch.compat.paths" not in own and ("mytorch.nn" not in own or home in {heavy}), (home, sorted(own))
    assert len(own) <= 12 or home in {heavy}, (home, sorted(own))
assert "mytorch.nn" not in imported(lambda: mytorch.conv1d), "conv1d"
"""
HEAVY = ["compat.recurrent", "compat.nn_functions"]  # the recurrent layers of nn; functions of ten files of ops


def run(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_an_unknown_name_imports_nothing():
    run(UNKNOWN.format(packages=["nn", "optim", "cuda", "autograd", "sparse", "utils", "linalg"]))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="each module is imported in a child of one process")
def test_a_name_imports_only_its_module():
    homes = {}
    for name, home in _extensions.torch_names()["mytorch"].items():
        if home not in ("compat.paths", "compat.stubs", *_extensions.TORCH_ONLY):
            homes.setdefault(home, []).append(name)
    run(KNOWN.format(names=sorted(homes.items()), heavy=HEAVY))


def test_the_table_has_all_names():
    """docs/make_stubs.py writes the table; `python docs/make_stubs.py --check` compares it with the modules."""
    paths = pytest.importorskip("mytorch.compat.paths")
    for package in paths.MORE_NAMES:
        table = _extensions.torch_names()[package]
        for name, home in paths.more_names(package).items():
            assert table[name] == home, (package, name)
    for path in (*paths.PATHS, *paths.stubs.MODULES):  # modules of PyTorch without a file
        package, _, name = f"mytorch.{path}".rpartition(".")
        if importlib.util.find_spec(package) and package not in paths.PATHS:
            get = getattr(importlib.import_module(package), "__getattr__", None)
            if get is not None and get.__module__ == "mytorch._extensions":
                assert name in _extensions.torch_names()[package], path


MODULES = """
import importlib, sys
import mytorch
mytorch.install_as_torch()
missing = []
for name in sys.stdin.read().split():
    value = mytorch
    try:
        for part in name.split(".")[1:]:
            value = getattr(value, part)
    except Exception:
        try:
            importlib.import_module(name)
        except Exception:  # it is no module of the library
            continue
        missing.append(name)
print(*missing)
"""


REACHED = """
import sys, torch
for name in sorted(name for name in sys.modules if name.startswith("torch.") and "._" not in name):
    value = torch
    for part in name.split(".")[1:]:
        value = getattr(value, part, None)
    if value is sys.modules[name]:
        print(name)
"""


def test_submodules_are_attributes():
    """`torch.nn.grad` needs no further import, as in PyTorch: each module that `import torch` makes an attribute is one here."""
    pytest.importorskip("torch")

    def output(text, words=""):
        command = [sys.executable, "-c", text]
        return subprocess.run(command, input=words, capture_output=True, text=True, check=True).stdout

    missing = output(MODULES, output(REACHED)).split()
    assert set(missing) <= {"torch.cuda.amp.autocast_mode", "torch.profiler.profiler"}  # other paths of a module
