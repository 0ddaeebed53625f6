"""The house rules: who may import whom, what importing costs, that the documents' code runs."""

import ast
import importlib
import re
import statistics
import subprocess
import sys
import types

import pytest

from . import house

ROOT, PACKAGE, FILES = house.ROOT, house.PACKAGE, house.FILES


def test_nothing_imports_upward():
    """Counting imports within functions. Those that do are listed, each with its reason, and are at most six."""
    found = {(a, b): lines for a, b, lines in house.runs_up()}
    surprises = [f"{a}:{lines[0]} imports {b}" for (a, b), lines in found.items() if (a, b) not in house.UP]
    assert not surprises, "\n".join(surprises)
    assert set(house.UP) <= set(found), "what no longer runs up is still listed"
    assert len(house.UP) <= 6


def test_no_circles():
    """No files import each other in a loop, counting imports within functions, but for those that run up."""
    up = {(a, b) for a, b, _ in house.runs_up()}
    relative = {(a, b): (str(a.relative_to(PACKAGE)), str(b.relative_to(PACKAGE))) for a, b in house.arrows()}
    assert not house.circles([arrow for arrow, names in relative.items() if names not in up])


def test_every_room_has_a_floor_and_the_document_says_so():
    assert {house.room_of(path) for path in FILES} == set(house.FLOOR)
    page = (ROOT / "docs" / "architecture.md").read_text()
    assert house.marked(page)[1] == house.table(), "python tests/house.py --write rewrites the table"


def test_the_core_is_a_weekends_reading():
    """The files that docs/reading.md names as the core are there, and have about 4,000 lines."""
    page = (ROOT / "docs" / "reading.md").read_text()
    table = page.partition("<!-- the core")[2].partition("<!-- end of the core")[0]
    files = [ROOT / name for name in re.findall(r"`(mytorch/[\w/]+\.py)`", table)]
    assert len(files) >= 15
    assert 3000 < sum(path.read_text().count("\n") for path in files) < 4200


def test_the_graph_and_the_kernels_never_see_tensors_and_ops_never_see_nn():
    never = {
        "engine": r"mytorch\.(_tensor|dispatch|ops|autograd|nn)\b",
        "kernels": r"mytorch\.(engine|_tensor|dispatch|ops|autograd|nn)\b",
    }
    never["dispatch"] = r"mytorch\.(ops|transforms|autograd|nn|optim)\b"
    never["ops"] = r"mytorch\.(transforms|autograd|nn|optim)\b"
    for path in FILES:
        for module, line in house.imports(path):
            pattern = never.get(house.room_of(path))
            assert pattern is None or not re.match(pattern, module), f"{path}:{line} imports {module}"


def test_no_name_hides_a_module():
    """`package.name` is the file name.py wherever there is one, but where PyTorch's own function hides its module too."""
    hidden = set()
    for path in FILES:
        names = ("mytorch", *path.relative_to(PACKAGE).with_suffix("").parts)
        package = importlib.import_module(".".join(names[:-1]))
        if isinstance(vars(package).get(names[-1]), types.FunctionType | type):
            hidden.add(".".join(names[1:]))
    assert hidden == {"autograd.gradcheck", "nn.utils.spectral_norm", "nn.utils.weight_norm"}


def test_foreign_packages_stay_where_they_belong():
    for path in FILES:
        inside = path.relative_to(PACKAGE).parts
        for module, line in house.imports(path):
            top = module.split(".")[0]
            where = f"{path}:{line}"
            assert top != "torch", f"{where} imports torch"
            assert top != "cupy" or inside == ("backend", "gpu.py"), f"{where} imports cupy"
            assert top not in ("numba", "triton") or inside[0] == "kernels", f"{where} imports {top}"


def test_tests_do_without_pytorch():
    """They ask for it by `pytest.importorskip`, or by the fixture of that name."""
    for path in (ROOT / "tests").rglob("test_*.py"):
        text = path.read_text()
        asked = text.find('importorskip("torch")')
        needed = re.search(r"^(import|from) torch\b", text, re.MULTILINE)
        assert needed is None or 0 <= asked < needed.start() or text.count('"""', 0, needed.start()) % 2, path


def test_the_library_does_not_print():
    allowed = {"accelerate", "cli", "distributed", "models", "playground"}  # those speak for scripts
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
    """And none of those parts of the standard library that take a tenth of the time."""
    code = (
        "import sys; before = set(sys.modules); import numpy, ml_dtypes; base = set(sys.modules); import mytorch; "
        "new = {m.partition('.')[0] for m in set(sys.modules) - base} - set(sys.stdlib_module_names) - {'mytorch', 'numpy', 'cython_runtime'}; "
        "slow = {'asyncio', 'email', 'importlib.metadata', 'importlib.resources', 'urllib.request'} & (set(sys.modules) - base); "
        "print(sorted(n for n in new | slow if not n.startswith('_')))"
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


def test_the_wheel_takes_every_file():
    """Each folder is a package, and what is no Python file is among pyproject.toml's package-data."""
    patterns = re.search(r"package-data\]\nmytorch = \[(.*?)\]", (ROOT / "pyproject.toml").read_text(), re.S)[1]
    taken = {path for pattern in re.findall(r'"(.+?)"', patterns) for path in PACKAGE.glob(pattern)}
    files = {p for p in PACKAGE.rglob("*") if p.is_file() and "__pycache__" not in p.parts}
    assert not {p for p in files - taken if p.suffix != ".py"}
    assert not {p.parent for p in files if not (p.parent / "__init__.py").exists()}


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


DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md")), ROOT / "tests/README.md", ROOT / "examples/README.md"]  # fmt: skip


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_that_documents_name_exist(document):
    """A path in backticks is below the root, `mytorch/` or the document's folder; a bare name, also next to another that it names."""
    text = re.sub(r"```.*?```", "", document.read_text(), flags=re.S)
    named = re.findall(r"`(?:(?:python|bash) )?([\w./*-]+(?:\.(?:py|pyi|sh|md|c|ipynb|json)|/))(?:[ :][^`]*)?`", text)
    roots, missing = [ROOT, PACKAGE, document.parent], []
    found = {path for name in named for root in roots for path in root.glob(name.rstrip("/"))}
    folders = {path if path.is_dir() else path.parent for path in found}
    for name in named:
        near = folders if "/" not in name.rstrip("/") else ()
        if not any(any(root.glob(name.rstrip("/"))) for root in (*roots, *near)):
            missing.append(name)
    assert not missing, f"{document.relative_to(ROOT)} names {', '.join(missing)}"


def test_commands_in_the_readme_exist():
    text = (ROOT / "README.md").read_text()
    for script in re.findall(r"(?:bash|python) ([\w/]+\.(?:sh|py))", text):
        assert (ROOT / script).is_file(), script
