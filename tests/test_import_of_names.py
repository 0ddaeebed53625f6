"""What a name imports: a name that does not exist imports no module, and a name of `compat` its own module only."""

import importlib.util
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
import sys
import mytorch
import mytorch.compat.paths  # reads the table
for home, names in {names}:
    loaded = set(sys.modules)
    mytorch.compat.paths.attribute("mytorch", names[0])
    first = set(sys.modules) - loaded
    for name in names:
        mytorch.compat.paths.attribute("mytorch", name)
    assert set(sys.modules) - loaded == first, (home, set(sys.modules) - loaded - first)  # the other names of a module need no further module
    others = first & {{f"mytorch.{{h}}" for h, _ in {names}}} - {{f"mytorch.{{home}}"}}
    assert not others, (home, others)
"""


def run(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_an_unknown_name_imports_nothing():
    run(UNKNOWN.format(packages=["nn", "optim", "cuda", "autograd", "sparse", "utils", "linalg"]))


def test_a_name_of_compat_imports_only_its_module():
    homes = {}
    for name, home in _extensions.torch_names()["mytorch"].items():
        if home not in ("compat.paths", "compat.stubs", "compat.torch_only"):
            homes.setdefault(home, []).append(name)
    run(KNOWN.format(names=sorted(homes.items())))


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
