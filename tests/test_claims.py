"""The statements of the documentation that a program can check: features, names, sizes, speeds and counts.

docs/compatibility.md is the home of what works and what is missing. Each row of its first two tables has a program here, and so has each row of
its table of modes. Other facts are compared wherever a page states them.
"""

import ast
import importlib.metadata
import json
import math
import re
import statistics
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from . import layers

pytestmark = pytest.mark.cpu_only
ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "compatibility.md").read_text(encoding="utf-8")
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES += [
    *sorted((ROOT / "benchmarks").glob("*.md")),
    ROOT / "tests" / "README.md",
    ROOT / "tests" / "findings.md",
    ROOT / "examples" / "README.md",
]
SPACE = "[ \u00a0]"  # between a number and its unit

# First cell of a row in the table of features -> a program that must run.
WORKS = {
    "gradients of any order, forward mode, `func`, `vmap`, custom functions": """
        x = torch.ones(2, requires_grad=True)
        g, = torch.autograd.grad((x ** 3).sum(), x, create_graph=True)
        assert torch.autograd.grad(g.sum(), x)[0].tolist() == [6, 6]
        assert torch.func.jvp(torch.sin, (torch.zeros(1),), (torch.ones(1),))[1].item() == 1
        assert torch.vmap(torch.sum)(torch.ones(2, 3)).tolist() == [3, 3]
        """,
    "`torch.compile`": """
        assert torch.compile(lambda x: x * 2)(torch.ones(2)).tolist() == [2, 2]
        """,
    "mixed precision, 8-bit floats for storage": """
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.bfloat16
        assert torch.ones(2).to(torch.float8_e4m3fn).float().tolist() == [1, 1]
        """,
    "sparse tensors: COO, CSR, CSC": """
        for convert in (torch.Tensor.to_sparse, torch.Tensor.to_sparse_csr, torch.Tensor.to_sparse_csc):
            assert (convert(torch.eye(3)) @ torch.ones(3, 2)).tolist() == [[1, 1]] * 3
        """,
    "nested tensors, flexible attention": """
        from torch.nn.attention.flex_attention import flex_attention
        items = torch.nested.nested_tensor([torch.ones(2, 4), torch.ones(3, 4)], layout=torch.jagged)
        assert (items * 2).unbind()[1].shape == (3, 4)
        x = torch.randn(1, 1, 4, 8)
        assert flex_attention(x, x, x).shape == x.shape
        """,
    "`torch.fx`, `torch.export`": """
        model = torch.nn.Linear(2, 3)
        assert torch.fx.symbolic_trace(model).graph.nodes
        assert torch.export.export(model.eval(), (torch.ones(1, 2),)).module()(torch.ones(1, 2)).shape == (1, 3)
        """,
    "ONNX export": """
        if importlib.util.find_spec("onnx"):
            torch.onnx.export(torch.nn.Linear(2, 3).eval(), (torch.ones(1, 2),), io.BytesIO())
        """,
    "files of `torch.save`, safetensors": """
        for name in ("x.pt", "x.safetensors"):
            path = folder / name
            torch.save({"a": torch.ones(2)}, path)
            assert torch.load(path)["a"].tolist() == [1, 1]
        """,
    "DistributedDataParallel": """
        torch.distributed.init_process_group()
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1))
        model(torch.ones(1, 2)).sum().backward()
        torch.distributed.destroy_process_group()
        """,
    "FSDP, DTensor, tensor parallelism, sharded checkpoints": """
        torch.distributed.init_process_group()
        model = torch.distributed.fsdp.fully_shard(torch.nn.Linear(2, 1))
        model(torch.ones(1, 2)).sum().backward()
        torch.distributed.checkpoint.save({"w": model.weight}, checkpoint_id=folder / "checkpoint")
        torch.distributed.destroy_process_group()
        """,
    "`__torch_function__`, `__torch_dispatch__` and their modes": """
        from torch.utils._python_dispatch import TorchDispatchMode
        calls = []
        class Log(TorchDispatchMode):
            def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                calls.append(str(func))
                return func(*args, **(kwargs or {}))
        with Log():
            x = torch.ones(2, 3)
            torch.nn.functional.linear(x, x, torch.zeros(2))
            made = len(calls)
            x[0] = 2
        assert calls[:made] == ["aten.ones.default", "aten.zeros.default", "aten.permute.default", "aten.addmm.default"], calls
        assert not any("copy_" in name or "fill_" in name for name in calls[made:])
        """,
    "profiler": """
        with torch.profiler.profile() as prof:
            torch.ones(2).exp()
        assert any("exp" in row.key for row in prof.key_averages())
        """,
}

# First cell of a row in the table of missing features -> an expression, or several, that must each raise an error that says so.
MISSING = {
    "quantized tensors and `torch.ao.quantization`": [
        "torch.quantize_per_tensor(torch.ones(2), 1.0, 0, torch.qint8)",
        "importlib.import_module('torch.ao.quantization').quantize_dynamic(torch.nn.Linear(1, 1))",
    ],
    "named tensors": ["torch.ones(1).rename('a')"],
    "sparse layouts of blocks (BSR, BSC)": [
        "torch.ones(2, 2).to_sparse_bsr((1, 1))",
        "torch.ones(2, 2).to_sparse_bsc((1, 1))",
    ],
    "semi-structured sparse tensors": ["torch.sparse.SparseSemiStructuredTensor()"],
    "TorchScript: `jit.script` and `jit.trace` return their argument and warn, `jit.save` raises": [
        "torch.jit.save(torch.jit.script(torch.nn.Linear(1, 1)), 'x')",
        "torch.jit.load('x')",
    ],
    "internals of PyTorch's compiler, such as `torch._dynamo.explain`": ["torch._dynamo.explain(lambda x: x)"],
    "fake tensors": ["importlib.import_module('torch._subclasses.fake_tensor').FakeTensorMode()"],
    "symbolic numbers (`SymInt`)": ["torch.SymInt(2)"],
    "C++ and CUDA extensions": ["importlib.import_module('torch.utils.cpp_extension').load('x', [])"],
    "masked tensors": ["importlib.import_module('torch.masked').masked_tensor(1, 1)"],
    "`complex32` tensors": ["torch.ones(2, dtype=torch.complex32)"],
    "attention for packed sequences (`varlen_attn`)": [
        "importlib.import_module('torch.nn.attention.varlen').varlen_attn()"
    ],
    "pipeline parallelism": ["importlib.import_module('torch.distributed.pipelining').pipeline()"],
    "remote procedure calls": ["importlib.import_module('torch.distributed.rpc').init_rpc('x')"],
    "`DataParallel` runs on one device and warns": ["must_warn(lambda: torch.nn.DataParallel(torch.nn.Linear(1, 1)))"],
    "data pipes": ["importlib.import_module('torch.utils.data.datapipes').iter.IterableWrapper([1])"],
    "`torch.package`, models for mobile devices": [
        "importlib.import_module('torch.package').PackageExporter('x')",
        "importlib.import_module('torch.utils.mobile_optimizer').optimize_for_mobile(1)",
    ],
    "`torch.hub` with code from GitHub": ["torch.hub.load('pytorch/vision', 'resnet18')"],
    "Apple and Intel GPUs (`mps`, `xpu`)": ["torch.ones(2, device='mps')", "torch.ones(2, device='xpu')"],
    "lazy conjugates and negatives (`_conj`, `_neg_view`)": ["torch.ones(2)._conj()", "torch.ones(2)._neg_view()"],
    "operators of `torch.ops.aten` without a function in mytorch": ["torch.ops.aten._fused_adam_(1)"],
}

# First cell of a row in the table of modes -> an expression. The page says what it gives in both modes.
MODES = {
    "`import torch`": None,  # the other rows show it
    "`print(mytorch.ones(2))`": "str(mytorch.ones(2))",
    "`print(x.grad)`": "str(grad())",
    "type of `x.data` and `x.grad`": "type(grad()).__name__ + type(mytorch.ones(1).data).__name__",
    "products, convolutions and attention of mixed dtypes": "[float32 @ float64, F.conv1d(float32[None], float64[None]),"
    " F.scaled_dot_product_attention(float32, float64, float64)] and 'accepted'",
    "cross-entropies with targets of another dtype": "F.cross_entropy(mytorch.ones(2, 3), mytorch.ones(2, dtype=mytorch.int32)) and 'accepted'",
    "`1 - mask` of a boolean mask": "(1 - mytorch.zeros(2, dtype=mytorch.bool)) is None or 'accepted'",
    "`x[0]` of a tensor without dimensions": "mytorch.ones(())[0] and 'accepted'",
    "`.numpy()` of a bfloat16 tensor": "mytorch.ones(2, dtype=mytorch.bfloat16).numpy().dtype.name",
    "NumPy arrays in a state dict": "nn.Linear(1, 1).load_state_dict({'weight': np.ones((1, 1)), 'bias': np.ones(1)}) and 'accepted'",
}
NAMES = """
import importlib, json, sys, warnings
import numpy as np
import mytorch
"""


def first_cells(text):
    """Returns the first cells of the rows of the first table in a text."""
    table = re.search(r"(?:^\|.*\n)+", text, re.M)[0]
    return [row.split(" | ")[0].strip("| ") for row in table.splitlines()[2:]]


FEATURES, _, REST = PAGE.partition("These parts are missing.")


def test_each_row_of_the_tables_has_a_program():
    assert first_cells(FEATURES) == list(WORKS)
    assert first_cells(REST) == list(MISSING)
    assert first_cells(PAGE.partition("## Modes")[2]) == list(MODES)


def run_in_pytorch_mode(code, *arguments):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "mytorch", "-c", code, *arguments], capture_output=True, text=True, cwd=ROOT, timeout=300
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_features_work(tmp_path):
    code = (
        NAMES
        + "import io, pathlib, torch, torch.distributed.fsdp, torch.distributed.checkpoint\nfolder, failed = pathlib.Path(sys.argv[1]), {}\n"
    )
    for name, program in WORKS.items():
        code += f"try:\n{textwrap.indent(textwrap.dedent(program), '    ')}\nexcept Exception as error:\n    failed[{name!r}] = repr(error)\n"
    assert run_in_pytorch_mode(code + "print(json.dumps(failed))", str(tmp_path)) == {}


def test_missing_features_raise():
    code = NAMES + (
        "import torch\n"
        "def must_warn(call):\n"
        "    with warnings.catch_warnings():\n"
        "        warnings.simplefilter('error')\n"
        "        call()\n"
        "results = {}\n"
    )
    for name, expressions in MISSING.items():
        for number, expression in enumerate(expressions):
            code += f"try:\n    {expression}\nexcept Exception as error:\n    results[{f'{name}: {number}'!r}] = type(error).__name__\n"
    results = run_in_pytorch_mode(code + "print(json.dumps(results))")
    assert set(results) == {f"{name}: {number}" for name, many in MISSING.items() for number in range(len(many))}
    assert set(results.values()) <= {
        "AbsentError",
        "NotImplementedError",
        "UserWarning",
        "DeviceError",
        "AttributeError",
        "RefusedError",
    }


MODE_NAMES = (
    NAMES
    + """
from mytorch import nn
from mytorch.nn import functional as F

float32, float64 = mytorch.ones(2, 2), mytorch.ones(2, 2, dtype=mytorch.float64)


def grad():
    x = mytorch.ones(2, requires_grad=True)
    (x * 3).sum().backward()
    return x.grad


def result(expression):
    try:
        return eval(expression)
    except (RuntimeError, IndexError, TypeError, ValueError):
        return "error"


results = {name: result(e) for name, e in json.loads(sys.argv[1]).items()}
print(json.dumps(results))
"""
)


def test_modes_differ_as_the_table_says():
    table = PAGE.partition("## Modes")[2]
    said = {row[0]: row[1:] for row in re.findall(r"^\| (.+?) \| (.+?) \| (.+?) \|$", table, re.M)}
    expressions = json.dumps({name: e for name, e in MODES.items() if e})
    native = subprocess.run(
        [sys.executable, "-c", MODE_NAMES, expressions], capture_output=True, text=True, cwd=ROOT, timeout=300
    )
    assert native.returncode == 0, native.stderr
    for mode, results in enumerate((json.loads(native.stdout), run_in_pytorch_mode(MODE_NAMES, expressions))):
        for name, result in results.items():
            claim = said[name][mode].replace("`", "")
            if name.startswith("type of"):
                assert result == claim.partition(":")[0] * 2
            elif result in ("accepted", "error"):
                assert (claim == "error") == (result == "error"), (name, claim, result)
            else:
                assert result in claim, (name, claim, result)


def test_the_table_of_names_is_current():
    """`python docs/make_compatibility.py` writes it."""
    pytest.importorskip("torch")
    # In a process of its own: a test that ran before may have switched to PyTorch mode, which adds names.
    code = "import sys; sys.path.insert(0, 'docs'); import make_compatibility as m; sys.stdout.write(m.page(sys.stdin.read()))"
    run = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, input=PAGE, capture_output=True, text=True, encoding="utf-8"
    )
    assert run.stdout == PAGE, run.stderr


# -- numbers ---------------------------------------------------------------------------------------------------------


def stated(pattern, pages=PAGES):
    """Yield (name of a page, number) for each place where a pattern, with one group for the number, occurs."""
    for page in pages:
        text = re.sub(
            r"\]\([^)]*\)", "]", re.sub(r"\s+", " ", page.read_text(encoding="utf-8"))
        )  # without the targets of links
        for match in re.finditer(pattern, text):
            yield page.relative_to(ROOT).as_posix(), float(match[1].replace(",", ""))


def megabytes(*packages):
    """Returns the size of installed packages on disk, in blocks of 4 KiB; None if one of them is not installed."""
    total = 0
    for name in packages:
        try:
            files = importlib.metadata.distribution(name).files
        except importlib.metadata.PackageNotFoundError:
            return None
        total += sum(math.ceil(f.locate().stat().st_size / 4096) * 4096 for f in files or () if f.locate().is_file())
    return total / 1e6


def own_megabytes():
    """Returns the size of mytorch after an installation: its files, and about as much again for their compiled form."""
    files = [p for p in (ROOT / "mytorch").rglob("*") if p.is_file() and "__pycache__" not in p.parts]
    python = [p for p in files if p.suffix == ".py"]
    return sum(math.ceil(p.stat().st_size / 4096) * 4096 for group in (files, python) for p in group) / 1e6


def test_sizes_of_the_installation():
    """A page that states a size says what is measured to 10 %; 100 and 300 MB are rounded from these numbers."""
    small = megabytes("numpy", "ml_dtypes", "safetensors", "tqdm")
    if small is None or int(importlib.metadata.version("numpy").split(".")[0]) < 2:
        pytest.skip("the pages state the sizes of current packages, which were installed with lists of their files")
    small += own_megabytes()
    numba = megabytes("numba", "llvmlite")
    places = list(stated(rf"(?:About|minute,|without `?\[numba\]`?) (\d+){SPACE}MB"))
    assert places
    for page, size in places:
        assert abs(size - small) <= 0.1 * small, (page, size, small)
    for page, size in [] if numba is None else stated(rf"Numba adds (\d+){SPACE}MB"):
        assert abs(size - numba) <= 0.1 * numba, (page, size, numba)
    for page, size in [] if numba is None else stated(rf"\[numba\]\"? # (\d+){SPACE}MB"):
        assert abs(size - small - numba) <= 0.1 * (small + numba), (page, size, small + numba)


def test_the_quickstart_lists_all_extras():
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    extras = re.findall(
        r"^([a-z]+\d*) = \[", text.partition("[project.optional-dependencies]")[2].partition("\n[")[0], re.M
    )
    table = (
        (ROOT / "docs" / "start.md")
        .read_text(encoding="utf-8")
        .partition("| Command | Contents |")[2]
        .partition("\n\n")[0]
    )
    assert len(extras) > 15
    assert set(extras) <= set(re.findall(r"[a-z]+\d*", table)), table


def test_benchmark_pages_are_the_stored_results():
    from benchmarks.report import pages

    changed = [path for path, text in pages().items() if (ROOT / path).read_text() != text]
    assert not changed, f"run `python benchmarks/report.py`; it changes {', '.join(changed)}"


def test_speed_compared_with_pytorch():
    rows = json.loads((ROOT / "benchmarks" / "results" / "cpu.json").read_text())["rows"]
    ratios = [row["ratio"] for row in rows if row["section"] == "steps"]
    mean = math.exp(statistics.fmean(map(math.log, ratios)))
    places = list(stated(r"(\d\.\d\d) × PyTorch's CPU time(?! per token)"))
    assert places
    assert {(page, value) for page, value in places if abs(value - mean) > 0.005} == set(), mean
    counts = list(stated(r"(\d+) programs[^.]{0,20}one thread"))
    assert {(page, value) for page, value in counts if value != len(ratios)} == set()


def test_packages_that_pass_their_tests():
    page = (ROOT / "docs" / "ecosystem.md").read_text()
    rows = re.findall(r"^\| [^|]+ \| (\d+) \| (\d+) \|$", page, re.M)
    there, here = (sum(map(int, column)) for column in zip(*rows, strict=True))
    assert {f"{n:,}" for n in (there, here)} <= set(re.findall(r"\d,\d\d\d", page)), (there, here)
    for where, count in stated(r"tests of (\d+) packages"):
        assert count == len(rows), where
    for where, count in stated(r"Of the (\d,\d\d\d) that pass"):
        assert count == there, where
    for where, percent in stated(rf"\[?(\d+){SPACE}%\]? also pass"):
        assert percent == round(100 * here / there), where


def test_files_and_lines_of_the_reading_list():
    page = (ROOT / "docs" / "reading.md").read_text()
    table = page.partition("<!-- the expression")[2].partition("<!-- end of the expression")[0]
    listed = re.findall(r"^\| `(mytorch/[\w/]+\.py)`", table, re.M)
    for where, count in stated(r"(?:(?:passes|runs) through|you read) (\d+) files"):
        assert count == len(listed), where
    lines = sum(layers.code_lines(ROOT / name) for name in listed)
    for where, count in stated(r"about (\d,\d\d0) lines"):
        assert abs(count - lines) <= 0.05 * lines, (where, lines)


def lines_of_code(path):
    """Returns about the lines of `layers.code_lines` in a fifth of the time: without blank lines, comments and docstrings."""
    text = path.read_text(encoding="utf-8")
    count = sum(line.strip()[:1] not in ("", "#") for line in text.splitlines())
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            count -= sum(bool(line.strip()) for line in (ast.get_docstring(node) or "").splitlines())
    return count


def test_lines_in_the_diagram_of_the_architecture():
    page = (ROOT / "docs" / "architecture.md").read_text()
    sizes = {True: 0, False: 0}
    for path in layers.FILES:
        sizes[layers.is_core(path)] += lines_of_code(path)
    for name, lines in (("extensions", sizes[False]), ("core", sizes[True])):
        count = int(re.search(rf"^ {name}, ([\d,]+) lines", page, re.M)[1].replace(",", ""))
        assert abs(count - lines) <= 0.1 * lines, (name, lines)


# -- form ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_rows_of_tables_have_the_columns_of_their_heads(page):
    text = re.sub(
        r"^```.*?^```", lambda m: "\n" * m[0].count("\n"), page.read_text(encoding="utf-8"), flags=re.S | re.M
    )
    wrong, columns = [], None
    for number, line in enumerate(text.splitlines(), 1):
        if not line.startswith("|"):
            columns = None
            continue
        count = len(re.findall(r"(?<!\\)\|", re.sub(r"`[^`]*`", "", line)))
        columns = columns or count
        if count != columns:
            wrong.append(f"{number}: {count - 1} columns instead of {columns - 1}")
    assert not wrong, wrong


def anchors(page):
    """Returns the names of the headings of a page in links, as the website and GitHub make them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.S | re.M)
    heads = [re.sub(r"\[([^]]*)\]\([^)]*\)|`", r"\1", head) for head in re.findall(r"^#+ (.+)$", text, re.M)]
    return {re.sub(r"\s+", "-", re.sub(r"[^\w\s-]", "", head).strip().lower()) for head in heads}


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_to_files_and_headings(page):
    """Links to pages that the website generates (reference, notebooks, changelog) are checked by `mkdocs build --strict`."""
    text = re.sub(r"^```.*?^```|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.S | re.M)
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        name, _, anchor = target.partition("#")
        made = re.match(r"(?:\.\./)*(?:reference|notebooks)/|(?:\.\./)*(?:changelog|contributing|gallery)\.md", name)
        if "://" in target or target.startswith("mailto:") or made:
            continue
        path = (page.parent / name).resolve() if name else page
        if not path.exists() or (anchor and path.suffix == ".md" and anchor not in anchors(path)):
            broken.append(target)
    assert not broken, broken


def test_the_changelog_has_one_list_of_each_kind_for_a_released_version():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    for version in re.split(r"^## ", text, flags=re.M)[1:]:
        if version.startswith("[Unreleased]"):
            continue
        kinds = re.findall(r"^### (.+)$", version, re.M)
        assert len(kinds) == len(set(kinds)), version.splitlines()[0]
