"""Architecture rules: layers, the fence around the core, the cost of importing, and code in documents that runs."""

import ast
import importlib
import os
import re
import shutil
import statistics
import subprocess
import sys
import types

import pytest

from . import layers

ROOT, PACKAGE, FILES = layers.ROOT, layers.PACKAGE, layers.FILES


def test_no_upward_imports():
    """Imports in functions count."""
    assert not [f"{a}:{lines[0]} imports {b}" for a, b, lines in layers.upward_imports()]


def test_no_import_cycles():
    """Imports in functions count."""
    assert not layers.cycles()


def test_every_package_has_a_layer_and_the_document_lists_it():
    assert {layers.package_of(path) for path in FILES} == set(layers.LAYER)
    page = (ROOT / "docs" / "architecture.md").read_text()
    assert layers.marked(page)[1] == layers.table(), "python tests/layers.py --write rewrites the table"


# -- core and extensions ---------------------------------------------------------------------------------------------


def test_the_core_imports_no_extension():
    """Neither by a statement, nor by a path in a string, nor as an attribute of `mytorch`; `_extensions.py` is the registry."""
    surprises = []
    for path in filter(layers.is_core, FILES):
        uses = [(module, line) for module, line in layers.imports(path) if module.split(".")[0] == "mytorch"]
        if path.name != "_extensions.py":
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "mytorch":
                    uses.append((f"mytorch.{node.attr}", node.lineno))
                if isinstance(node, ast.Call) and ast.unparse(node.func) in ("load", "_extensions.load"):
                    uses += [(f"mytorch.{a.value}", node.lineno) for a in node.args if isinstance(a, ast.Constant)]
        for module, line in uses:
            home = layers.MODULES.get(module)
            aliased = home is None and any(module.startswith(f"mytorch.{name}") for name in layers.EXTENSIONS)
            if aliased or (home is not None and not layers.is_core(home)):
                surprises.append(f"{path.relative_to(PACKAGE)}:{line} uses {module}")
    assert not surprises, "\n".join(surprises)


def _python(code, cwd=ROOT):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=cwd, timeout=120)


LOADED = (
    "sorted(e for e in EXTENSIONS if any(m == f'mytorch.{e}' or m.startswith(f'mytorch.{e}.') for m in sys.modules))"
)

TRAINING = """
import os, sys
import mytorch
import mytorch.nn.functional as F
from mytorch import nn
from mytorch.accelerate import Accelerator
from mytorch.utils.data import DataLoader, TensorDataset

mytorch.manual_seed(0)
x = mytorch.randn(64, 8)
data = TensorDataset(x, x.argmax(1))
model = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.LayerNorm(32), nn.Dropout(0.1), nn.Linear(32, 8))
optimizer = mytorch.optim.AdamW(model.parameters(), lr=1e-2)
schedule = mytorch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=8)
accelerator = Accelerator(gradient_accumulation_steps=2)
model, optimizer, loader, schedule = accelerator.prepare(model, optimizer, DataLoader(data, batch_size=16, shuffle=True), schedule)
losses = []
for epoch in range(8):
    for inputs, targets in loader:
        with accelerator.accumulate(model), mytorch.autocast("cpu", enabled=False):
            loss = F.cross_entropy(model(inputs), targets)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        losses.append(loss.item())
mytorch.save({"model": model.state_dict(), "weight": nn.Parameter(mytorch.ones(2))}, PATH)
model.load_state_dict(mytorch.load(PATH)["model"])
assert losses[-1] < losses[0]
"""


def test_extensions_are_loaded_on_first_use(tmp_path):
    code = f"import sys, warnings; from mytorch._extensions import EXTENSIONS; import mytorch; print({LOADED})\n"
    code += f"PATH = {str(tmp_path / 'model.pt')!r}\n" + TRAINING + f"\nprint({LOADED})\n"
    code += f"mytorch.vision.transforms; print('vision' in {LOADED}, 'models' in {LOADED})\n"
    code += f"mytorch.eye(2).qr(); mytorch.hann_window(3); import mytorch.nn.modules.conv; print('compat' in {LOADED})"
    done = _python(code)
    assert done.stdout.split("\n")[:4] == ["[]", "[]", "True False", "True"], done.stdout + done.stderr


# Tests of the core that run without the extensions.
CORE_TESTS = (
    "autograd/test_engine.py autograd/test_function.py autograd/test_inplace.py data/test_loader.py nn/test_rnn.py optim/test_schedules.py "
    "tensors/test_indexing.py tensors/test_inplace.py tensors/test_products.py tensors/test_python.py test_composed.py"
).split()


@pytest.fixture(scope="module")
def core_alone(tmp_path_factory):
    """A folder with a copy of the package without its extensions, and some tests of the core.

    The copy keeps the times of the files and has Numba's cache files, so that no kernel is compiled a second time.
    """
    folder = tmp_path_factory.mktemp("core")
    removed = {str(PACKAGE / name.replace(".", "/")) + end for name in layers.EXTENSIONS for end in ("", ".py")}

    def ignored(directory, names):
        if os.path.basename(directory) == "__pycache__":  # other processes write here; these files stay
            return {n for n in names if not n.endswith((".nbi", ".nbc"))}
        return {n for n in names if os.path.join(directory, n) in removed}

    shutil.copytree(PACKAGE, folder / "mytorch", ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", folder)
    for name in (*CORE_TESTS, "conftest.py", "loops.py", "own_process.py"):
        (folder / "tests" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / "tests" / name, folder / "tests" / name)
    for package in {(folder / "tests" / name).parent for name in CORE_TESTS} | {folder / "tests"}:
        (package / "__init__.py").touch()
    return folder


def test_the_core_trains_without_its_extensions(core_alone):
    done = _python(f"PATH = 'model.pt'\n{TRAINING}\nprint(mytorch.__file__)", cwd=core_alone)
    assert done.stdout.strip() == str(core_alone / "mytorch" / "__init__.py"), done.stderr


def test_missing_extensions_are_named(core_alone):
    code = """
import mytorch
from mytorch import nn
uses = {
    "vision": lambda: mytorch.vision, "tools": lambda: mytorch.utils.summary, "functional": lambda: mytorch.ones(2, 2).svd(),
    "models": lambda: __import__("mytorch.models"), "random.quasirandom": lambda: mytorch.quasirandom,
}
for name, use in uses.items():
    try:
        use()
    except ModuleNotFoundError as error:
        print(name, error.name == f"mytorch.{name}", f"mytorch.{name}" in str(error))
print(hasattr(mytorch, "hann_window"), hasattr(nn, "modules"), "vision" in dir(mytorch))
"""
    done = _python(code, cwd=core_alone)
    names = ["vision", "tools", "functional", "models", "random.quasirandom"]
    assert done.stdout.splitlines() == [*(f"{n} True True" for n in names), "False False True"], (
        done.stdout + done.stderr
    )


@pytest.mark.cpu_only
def test_tests_of_the_core_pass_without_its_extensions(core_alone):
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", "-p", "no:cacheprovider"]
    command += [f"tests/{name}" for name in CORE_TESTS]
    environment = {**os.environ, "PYTHONPATH": str(core_alone), "DEVICE": "cpu"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=core_alone, timeout=500, env=environment)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]


# -- files -----------------------------------------------------------------------------------------------------------


def test_the_graph_and_the_kernels_never_see_tensors_and_ops_never_see_nn():
    graph = "mode|node|own_node|saved|walk"
    never = dict.fromkeys((f"autograd.{name}" for name in graph.split("|")), r"mytorch\.(arrays\.tensor|ops|nn)\b")
    never["kernels"] = r"mytorch\.(autograd|arrays\.tensor|ops|nn)\b"
    never["ops.dispatch"] = rf"mytorch\.(ops(?!\.dispatch)|autograd\.(?!{graph})\w+|nn|optim)\b"
    never["ops"] = rf"mytorch\.(autograd\.(?!{graph}|backward_call)\w+|nn|optim)\b"
    assert never.keys() <= layers.LAYER.keys()
    for path in FILES:
        for module, line in layers.imports(path):
            pattern = never.get(layers.package_of(path))
            assert pattern is None or not re.match(pattern, module), f"{path}:{line} imports {module}"


def test_no_name_hides_a_module():
    """If a package has a file name.py, `package.name` is that module, except where a function hides the module in PyTorch, too."""
    hidden = set()
    for path in FILES:
        names = ("mytorch", *path.relative_to(PACKAGE).with_suffix("").parts)
        package = importlib.import_module(".".join(names[:-1]))
        if isinstance(getattr(package, names[-1], None), types.FunctionType | type):
            hidden.add(".".join(names[1:]))
    functions = {"autograd.gradcheck", "nn.parallel.data_parallel", "nn.utils.spectral_norm", "nn.utils.weight_norm"}
    assert hidden == functions


def test_optional_packages_are_imported_in_one_place():
    for path in FILES:
        inside = path.relative_to(PACKAGE).parts
        for module, line in layers.imports(path):
            top = module.split(".")[0]
            where = f"{path}:{line}"
            assert top != "torch", f"{where} imports torch"
            assert top != "cupy" or inside == ("arrays", "gpu.py"), f"{where} imports cupy"
            assert top not in ("numba", "triton") or inside[0] == "kernels", f"{where} imports {top}"


def test_tests_do_without_pytorch():
    """Tests that use PyTorch call `pytest.importorskip` or use the fixture `torch`."""
    for path in (ROOT / "tests").rglob("test_*.py"):
        text = path.read_text()
        asked = text.find('importorskip("torch")')
        needed = re.search(r"^(import|from) torch\b", text, re.MULTILINE)
        assert needed is None or 0 <= asked < needed.start() or text.count('"""', 0, needed.start()) % 2, path


def test_the_library_does_not_print():
    allowed = {
        "accelerate",
        "cli",
        "distributed",
        "fx",
        "models",
        "onnx",
        "playground",
    }  # they write to the terminal of scripts
    for path in FILES:
        if path.relative_to(PACKAGE).parts[0] in allowed:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id != "print", f"{path}:{node.lineno} prints"


def test_import_needs_numpy_and_ml_dtypes_only():
    """Slow parts of the standard library are not imported either."""
    code = (
        "import sys; before = set(sys.modules); import numpy, ml_dtypes; base = set(sys.modules); import mytorch; "
        "new = {m.partition('.')[0] for m in set(sys.modules) - base} - set(sys.stdlib_module_names) - {'mytorch', 'numpy', 'cython_runtime'}; "
        "slow = {'asyncio', 'email', 'importlib.metadata', 'importlib.resources', 'urllib.request'} & (set(sys.modules) - base); "
        "print(sorted(n for n in new | slow if not n.startswith('_')))"
    )
    done = _python(code)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


def test_import_without_extras():
    """Importing and training work without the optional packages."""
    code = (
        "import sys\n"
        "for name in ('cupy', 'triton', 'numba', 'torch', 'tqdm', 'scipy', 'wandb', 'matplotlib'): sys.modules[name] = None\n"
        "import mytorch, mytorch.nn as nn\n"
        "m = nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 2))\n"
        "o = mytorch.optim.AdamW(m.parameters())\n"
        "nn.functional.cross_entropy(m(mytorch.randn(32, 64)), mytorch.randint(0, 2, (32,))).backward(); o.step()\n"
        "print('ok')"
    )
    done = _python(code)
    assert done.stdout.strip() == "ok", done.stderr


def test_the_wheel_takes_every_file():
    """Each folder is a package, and files other than Python files match package-data in pyproject.toml."""
    patterns = re.search(r"package-data\]\nmytorch = \[(.*?)\]", (ROOT / "pyproject.toml").read_text(), re.S)[1]
    taken = {path for pattern in re.findall(r'"(.+?)"', patterns) for path in PACKAGE.glob(pattern)}
    files = {p for p in PACKAGE.rglob("*") if p.is_file() and "__pycache__" not in p.parts}
    assert not {p for p in files - taken if p.suffix != ".py"}
    assert not {p.parent for p in files if not (p.parent / "__init__.py").exists()}


def test_import_is_fast(tmp_path, monkeypatch):
    """With cached bytecode, the import takes less than 4× the CPU time of importing NumPy and ml_dtypes (median of five)."""
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", str(tmp_path))
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    code = (
        "import time; t = time.process_time(); import numpy, ml_dtypes; u = time.process_time(); import mytorch;"
        "print((time.process_time() - u) / (u - t))"
    )
    _python(code)  # fills the cache
    assert statistics.median(float(_python(code).stdout) for _ in range(5)) < 4


def _blocks(document):
    """Returns the Python blocks of a page; one program if each block continues the block before."""
    text = (ROOT / document).read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.S)
    return ["\n".join(blocks)] if "<!-- The blocks form one program. -->" in text else blocks


BLOCKS = [
    (document, number, block)
    for document in ("README.md", *(str(p.relative_to(ROOT)) for p in sorted((ROOT / "docs").glob("*.md"))))
    for number, block in enumerate(_blocks(document))
]


@pytest.mark.cpu_only
@pytest.mark.parametrize(("document", "number", "block"), BLOCKS, ids=lambda x: str(x)[:20])
def test_code_in_documents_runs(document, number, block, capsys, monkeypatch):
    monkeypatch.syspath_prepend(
        str(ROOT / "tests")
    )  # for squareplus_kernel.py, which a reader saves next to the program
    exec(compile(block, f"{document} block {number}", "exec"), {"__name__": "document"})
    if "accuracy" in block:
        assert float(capsys.readouterr().out.strip().split()[-1]) > 0.9


def test_the_kernel_of_a_document_is_the_file_that_its_program_imports():
    assert any(block in (ROOT / "tests/squareplus_kernel.py").read_text() for block in _blocks("docs/change_an_op.md"))
