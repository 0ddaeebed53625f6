"""The house rules: who may import whom, what importing costs, that the documents' code runs."""

import ast
import re
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "mytorch"
FILES = sorted(PACKAGE.rglob("*.py"))

FLOORS = {  # a module may import from its own floor and those below
    "config": 0, "dtypes": 0, "errors": 0, "special": 0,
    "backend": 1, "capturing": 1, "philox": 1, "_array": 1, "autograd": 1, "kernels": 1,
    "tensor": 2, "printing": 2,
    "ops": 3, "random": 3,
    "nn": 4, "optim": 4, "utils": 4, "distributions": 4, "vision": 4, "linalg": 4, "fft": 4, "jit": 0,
    "amp": 5, "functional": 5, "func": 5, "serialization": 5, "zipformat": 5, "profiler": 5, "cuda": 5, "distributed": 5,
    "accelerate": 6, "models": 6,
    "compat": 7, "cli": 7,
}  # fmt: skip

# User-facing parts of autograd work on Tensors; they are imported when asked for, after the ops.
ABOVE_TENSOR = {
    f"autograd/{name}.py" for name in ("function", "gradcheck", "checkpoint", "functional", "graph", "variable")
}


def _floor(path):
    parts = path.relative_to(PACKAGE).parts
    if "/".join(parts) in ABOVE_TENSOR:
        return 3
    if parts == ("__init__.py",):
        return 9
    return FLOORS[parts[0].removesuffix(".py")]


def _imports(path, top_level_only):
    """(module, line) of each import, absolute ones by name, ours by their first part."""
    tree = ast.parse(path.read_text())
    nodes = tree.body if top_level_only else ast.walk(tree)
    package = ["mytorch", *path.relative_to(PACKAGE).parts[:-1]]
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            if node.level == 0:
                yield node.module, node.lineno
                continue
            base = package[: len(package) - node.level + 1]
            names = [node.module] if node.module else [alias.name for alias in node.names]
            for name in names:
                yield ".".join([*base, name]), node.lineno


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_nothing_imports_upward(path):
    mine = _floor(path)
    for module, line in _imports(path, top_level_only=True):
        parts = module.split(".")
        if parts[0] == "mytorch" and len(parts) > 1 and parts[1] in FLOORS:
            target = PACKAGE.joinpath(*parts[1:]).with_suffix(".py")
            floor = 3 if target.is_file() and str(target.relative_to(PACKAGE)) in ABOVE_TENSOR else FLOORS[parts[1]]
            assert floor <= mine, f"{path.name}:{line} (floor {mine}) imports {module} (floor {floor})"


def test_kernels_never_see_tensors_and_ops_never_see_nn():
    for path in FILES:
        parts = path.relative_to(PACKAGE).parts
        for module, line in _imports(path, top_level_only=False):
            if parts[0] == "kernels":
                assert not re.match(r"mytorch\.(tensor|ops|nn|autograd)", module), f"{path}:{line} imports {module}"
            if parts[0] == "ops":
                assert not module.startswith(("mytorch.nn", "mytorch.optim")), f"{path}:{line} imports {module}"


def test_foreign_packages_stay_where_they_belong():
    for path in FILES:
        inside = path.relative_to(PACKAGE).parts
        for module, line in _imports(path, top_level_only=False):
            top = module.split(".")[0]
            where = f"{path}:{line}"
            assert top != "torch", f"{where} imports torch"
            assert top != "cupy" or inside == ("backend.py",), f"{where} imports cupy"
            assert top not in ("numba", "triton") or inside[0] == "kernels", f"{where} imports {top}"


def test_the_library_does_not_print():
    allowed = {"accelerate", "cli", "distributed", "models"}  # those speak for scripts
    for path in FILES:
        if path.relative_to(PACKAGE).parts[0] in allowed:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id != "print", f"{path}:{node.lineno} prints"


def test_public_definitions_have_docstrings():
    missing = []
    for path in FILES:
        tree = ast.parse(path.read_text())
        if not ast.get_docstring(tree) and path.read_text().strip():
            missing.append(str(path))
        for node in tree.body:
            public = isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_")
            if public and not ast.get_docstring(node):
                missing.append(f"{path}:{node.lineno} {node.name}")
    assert not missing, "\n".join(missing)


def _python(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, timeout=60)


def test_import_needs_numpy_and_ml_dtypes_only():
    code = (
        "import sys; before = set(sys.modules); import numpy, ml_dtypes; base = set(sys.modules); import mytorch; "
        "new = {m.partition('.')[0] for m in set(sys.modules) - base} - set(sys.stdlib_module_names) - {'mytorch', 'numpy', 'cython_runtime'}; "
        "print(sorted(n for n in new if not n.startswith('_')))"
    )
    done = _python(code)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


def test_import_without_extras():
    """With every optional package made unimportable, importing and training still work."""
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


def test_import_is_quick(tmp_path, monkeypatch):
    """With bytecode cached, importing takes less than four times what NumPy and ml_dtypes take (median of five, CPU time)."""
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", str(tmp_path))
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    code = (
        "import time; t = time.process_time(); import numpy, ml_dtypes; u = time.process_time(); import mytorch;"
        "print((time.process_time() - u) / (u - t))"
    )
    _python(code)  # fills the cache
    assert statistics.median(float(_python(code).stdout) for _ in range(5)) < 4


BLOCKS = [
    (document, number, block)
    for document in ("README.md", *(str(p.relative_to(ROOT)) for p in sorted((ROOT / "docs").glob("*.md"))))
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", (ROOT / document).read_text(), re.S))
]


@pytest.mark.cpu_only
@pytest.mark.parametrize(("document", "number", "block"), BLOCKS, ids=lambda x: str(x)[:20])
def test_code_in_documents_runs(document, number, block, capsys):
    exec(compile(block, f"{document} block {number}", "exec"), {"__name__": "document"})
    if "accuracy" in block:
        assert float(capsys.readouterr().out.strip().split()[-1]) > 0.9


def test_commands_in_the_readme_exist():
    text = (ROOT / "README.md").read_text()
    for script in re.findall(r"(?:bash|python) ([\w/]+\.(?:sh|py))", text):
        assert (ROOT / script).is_file(), script
