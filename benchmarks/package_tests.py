"""Run the test suites of packages written for PyTorch with PyTorch or with mytorch, and print the table of results.

    python benchmarks/package_tests.py torch results [package …]      # in an environment with PyTorch
    python benchmarks/package_tests.py mytorch results [package …]    # in an environment with the same packages, without PyTorch
    python benchmarks/package_tests.py table results

Each environment contains the packages, pytest and pytest-timeout. `results/sources/NAME` is a checkout of the repository of
each package (`REPOSITORIES`). Only the tests and their configuration are copied from it: the tests import the installed package (except `SOURCES`).

A large suite is sampled: files and tests are selected by a checksum of their names, so that both libraries run the same tests.
A test counts if it passes with PyTorch. The row of a package has the number of these tests, and the number of them that pass with mytorch.
A test may use 60 seconds of processor time in the process of pytest. Subprocesses do not count, and neither do pauses of a busy machine.
"""

import argparse
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zlib
from pathlib import Path

# Package -> (repository, folder or files of tests, one file of n, one test of n, other paths that the tests need).
SUITES = {
    "accelerate": ("accelerate", "tests", 1, 3, ""),
    "peft": ("peft", "tests", 1, 60, ""),
    "timm": ("pytorch-image-models", "tests", 1, 6, ""),
    "diffusers": (
        "diffusers",
        "tests/schedulers tests/models tests/others tests/lora tests/pipelines/ddpm tests/pipelines/ddim",
        4,
        5,
        "tests",
    ),
    "sentence-transformers": ("sentence-transformers", "tests", 1, 6, ""),
    "lightning": ("pytorch-lightning", "tests/tests_pytorch tests/tests_fabric", 6, 5, "tests"),
    "torchmetrics": ("torchmetrics", "tests/unittests", 4, 60, "tests"),
    "skorch": ("skorch", "skorch/tests", 1, 6, ""),
    "ignite": ("ignite", "tests/ignite", 2, 20, "tests"),
    "kornia": ("kornia", "tests", 2, 40, "testing conftest.py"),
    "captum": ("captum", "tests", 1, 4, ""),
    "gpytorch": ("gpytorch", "test", 1, 8, ""),
    "linear_operator": ("linear_operator", "test", 1, 16, ""),
    "pyro": ("pyro", "tests", 2, 80, ""),
    "botorch": ("botorch", "test", 2, 10, ""),
    "torchdiffeq": ("torchdiffeq", "tests/api_tests.py tests/event_tests.py tests/gradient_tests.py", 1, 1, "tests"),
    "torch_geometric": ("pytorch_geometric", "test", 3, 8, ""),
    "stable-baselines3": ("stable-baselines3", "tests", 1, 12, ""),
    "pytorch-metric-learning": ("pytorch-metric-learning", "tests", 1, 2, ""),
    "einops": ("einops", "einops/tests", 1, 1, ""),
    "safetensors": ("safetensors", "bindings/python/tests", 1, 1, ""),
    "monai": ("MONAI", "tests", 12, 8, ""),
    "open_clip": ("open_clip", "tests", 1, 5, "src/open_clip_train"),
    "fvcore": ("fvcore", "tests", 1, 1, ""),
    "thop": ("pytorch-OpCounter", "tests", 1, 1, ""),
    "ptflops": ("flops-counter.pytorch", "tests", 1, 1, ""),
    "e3nn": ("e3nn", "tests", 1, 3, ""),
    "lightly": ("lightly", "tests", 1, 8, ""),
    "piq": ("piq", "tests", 1, 12, ""),
    "segmentation-models-pytorch": ("segmentation_models.pytorch", "tests", 1, 8, ""),
    "transformers": (
        "transformers",
        " ".join(f"tests/models/{name}/test_modeling_{name}.py" for name in "bert gpt2 llama t5 vit".split()),
        1,
        3,
        "tests utils src",
    ),
    "ultralytics": ("ultralytics", "tests", 1, 1, ""),
}
# Package -> folder of its source in the checkout, if the tests need a version between two releases. The tests import this source.
SOURCES = dict.fromkeys(("diffusers", "lightning", "transformers"), "src")
CONFIGURATION = "pyproject.toml setup.cfg pytest.ini tox.ini conftest.py"
SITE = "import sys\nsys.path.append({root!r})\nimport mytorch\nmytorch.install_as_torch()\n"
PLUGIN = """
import json, os, signal, zlib, pytest
_out = open(os.environ["SUITE_OUT"], "a", buffering=1)
_every = int(os.environ["SUITE_EVERY"])

def _stop(number, frame):
    raise TimeoutError("The test used more than 60 seconds of processor time.")

signal.signal(signal.SIGPROF, _stop)

@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    signal.setitimer(signal.ITIMER_PROF, 60)
    try:
        return (yield)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)

def _say(**row):
    _out.write(json.dumps(row) + "\\n")

@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(session, config, items):
    chosen = [i for i in items if zlib.crc32(i.nodeid.split("[")[0].encode() + i.nodeid.encode()) % _every == 0]
    only = os.environ.get("SUITE_ONLY_FILE")
    if only:
        names = set(json.load(open(only)))
        chosen = [i for i in chosen if i.nodeid in names]
    items[:] = chosen

def pytest_collectreport(report):
    if report.failed:
        _say(collect=report.nodeid, text=str(report.longrepr)[-1500:])

def pytest_runtest_logreport(report):
    if report.when == "call" or (report.when == "setup" and report.outcome != "passed"):
        text = "" if report.passed else str(report.longrepr)[-2500:]
        _say(id=report.nodeid, outcome=report.outcome, text=text, seconds=report.duration)
"""


# Modules that the tests of a package import only to save time. The runner writes them if they are not installed.
MODULES = {"torchmetrics": {"cachier": "def cachier(**options):\n    return lambda function: function\n"}}


def prepare(name, results):
    """Copy the tests of a suite to a new folder. Returns (folder, test files)."""
    repository, tests, every, _, more = SUITES[name]
    source, target = results / "sources" / repository, results / "work" / name
    if not target.exists():
        paths = [*(tests.split() if not more.startswith("tests") else []), *more.split(), *CONFIGURATION.split()]
        for path in paths:
            if (source / path).is_dir():
                shutil.copytree(source / path, target / path, dirs_exist_ok=True)
            elif (source / path).is_file():
                (target / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source / path, target / path)
    files = []
    for path in tests.split():
        path = target / path
        if path.is_file():
            files.append(path)
        else:
            files += sorted({*path.rglob("test_*.py"), *path.rglob("*_test.py")})
    files = [str(f.relative_to(target)) for f in files]
    return target, [f for f in files if zlib.crc32(f.encode()) % every == 0]


def run(name, library, results, limit, only):
    folder, files = prepare(name, results)
    out = results / f"{name}.{library}.jsonl"
    out.unlink(missing_ok=True)
    out.touch()
    site = Path(tempfile.mkdtemp())
    (site / "suite_report.py").write_text(PLUGIN)
    for module, text in MODULES.get(name, {}).items():
        if importlib.util.find_spec(module) is None:
            (site / f"{module}.py").write_text(text)
    if library == "mytorch":
        (site / "sitecustomize.py").write_text(SITE.format(root=str(Path(__file__).resolve().parents[1])))
    paths = [str(site)]
    if name in SOURCES:
        paths.append(str(results / "sources" / SUITES[name][0] / SOURCES[name]))
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(paths),
        "SUITE_OUT": str(out.resolve()),
        "SUITE_EVERY": str(SUITES[name][3]),
        "HF_HUB_OFFLINE": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "MPLBACKEND": "Agg",
        "OMP_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "YOLO_OFFLINE": "true",
    }
    expected = results / f"{name}.torch.jsonl"
    if library == "mytorch" and expected.exists():
        good = passed(expected)
        chosen = site / "only.json"
        chosen.write_text(json.dumps(sorted(good)))
        environment["SUITE_ONLY_FILE"] = str(chosen)
        wanted = {i.split("::")[0] for i in good}
        files = [f for f in files if f in wanted]
    if only:
        files = [f for f in files if only in f]
    command = [
        sys.executable, "-m", "pytest", "-p", "suite_report", "-p", "no:cacheprovider", "-o", "addopts=", "-q", "--no-header", "--tb=short",
        "--continue-on-collection-errors", "--timeout=600", "-W", "ignore", *files,
    ]  # fmt: skip
    start = time.perf_counter()
    log = open(results / f"{name}.{library}.log", "w")
    process = subprocess.Popen(
        command, cwd=folder, env=environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
    )
    try:
        process.wait(limit)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, 9)
        print(f"{name}: stopped after {limit} s")
    shutil.rmtree(site, ignore_errors=True)
    print(f"{name}: {len(passed(out))} pass with {library}, {time.perf_counter() - start:.0f} s", flush=True)


def rows(path):
    return [json.loads(line) for line in path.read_text().splitlines() if line.strip()] if path.exists() else []


def passed(path):
    result = {}
    for row in rows(path):
        if "id" in row:
            result[row["id"]] = result.get(row["id"], True) and row["outcome"] == "passed"
    return {k for k, v in result.items() if v}


def table(results):
    total = [0, 0]
    good = suites = 0
    print("| package | pass with PyTorch | of these, pass with mytorch | share |\n|---|---|---|---|")
    for name in SUITES:
        theirs, ours = results / f"{name}.torch.jsonl", results / f"{name}.mytorch.jsonl"
        if not theirs.exists():
            continue
        expected = passed(theirs)
        both = expected & passed(ours)
        if not expected:
            print(f"| {name} | 0 | | |")
            continue
        suites += 1
        good += len(both) >= 0.9 * len(expected)
        total = [total[0] + len(expected), total[1] + len(both)]
        print(f"| {name} | {len(expected)} | {len(both)} | {100 * len(both) / len(expected):.0f} % |")
    print(f"| sum | {total[0]} | {total[1]} | {100 * total[1] / max(1, total[0]):.1f} % |")
    print(f"\n{good} of {suites} packages: at least 90 %.")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", choices=["torch", "mytorch", "table"])
    parser.add_argument("results", type=Path)
    parser.add_argument("packages", nargs="*", help="default: all")
    parser.add_argument("--limit", type=int, default=900, help="seconds for each package")
    parser.add_argument("--only", help="part of the names of the test files")
    options = parser.parse_args()
    options.results = options.results.resolve()
    if options.library == "table":
        table(options.results)
        return
    for name in options.packages or SUITES:
        run(name, options.library, options.results, options.limit, options.only)


if __name__ == "__main__":
    main()
