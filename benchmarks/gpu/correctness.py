"""Sections `correctness` and `together`: the checks of tests/kernels and tests/gpu without pytest, and the tests marked gpu."""

import importlib
import importlib.util
import inspect
import itertools
import os
import re
import subprocess
import sys
import tempfile
import time
import types
from pathlib import Path

from .sizes import CASES, LOST, SIDE_BY_SIDE, STARTS, TESTS

ROOT = Path(__file__).resolve().parents[2]
CHECKS = (
    *sorted(f"kernels.{path.stem}" for path in (ROOT / "tests" / "kernels").glob("check_*.py")),
    "gpu.check_products",
    "gpu.check_cudnn_attention",
    "gpu.check_cudnn_convolution",
)


LONGEST = "[sync]", "[compile]", "every_op"  # tests that compile the most kernels, a minute or more; they start first


def _pytest_or_fallback():
    """Returns pytest, or a replacement with the functions that the checks use."""
    try:
        return importlib.import_module("pytest")
    except ImportError:
        from contextlib import contextmanager

        @contextmanager
        def raises(kind, match=None):
            try:
                yield
            except kind:
                return
            raise AssertionError(f"{kind.__name__} was not raised")

        def marker(name):
            def mark(*args, **kwargs):
                def marked(function):
                    own = types.SimpleNamespace(name=name, args=args)
                    function.pytestmark = [own, *getattr(function, "pytestmark", [])]
                    return function

                return marked

            return mark

        module = types.ModuleType("pytest")
        module.mark = types.SimpleNamespace(parametrize=marker("parametrize"), skipif=marker("skipif"))
        module.raises = raises
        module.fixture = lambda **kwargs: lambda function: function
        sys.modules["pytest"] = module
        return module


def _cases(function):
    """Returns the dictionaries of arguments of a parametrized test."""
    axes, marks = [], getattr(function, "pytestmark", [])
    if any(mark.name == "skipif" and mark.args[0] for mark in marks):
        return
    for mark in marks:
        if mark.name != "parametrize":
            continue
        names, values = mark.args[:2]
        names = [n.strip() for n in names.split(",")] if isinstance(names, str) else list(names)
        axes.append([dict(zip(names, v if len(names) > 1 else (v,), strict=True)) for v in values])
    for parts in itertools.product(*axes):
        yield {k: v for part in parts for k, v in part.items()}


def correctness(report, interpret):
    """Compare every kernel with float64: odd sizes, each dtype, forward and backward. Several processes compile in parallel."""
    if report.only is not None:  # a repetition of what failed
        check_part(report, interpret, 0, 1)
        tests = _Tests(report, [name for name in report.only if "::" in name])
        while tests.are_running():
            time.sleep(0.1)
        return None
    workers = _Workers(report, max(1, min(os.cpu_count() or 1, 12)))
    while workers.are_running():
        time.sleep(0.1)
    return None


class _Workers:
    """Processes that each run a share of the checks. A process that loses the GPU is started again."""

    def __init__(self, report, count):
        self.report, self.count = report, count
        self.running = {i: self._start(i) for i in range(count)}
        self.starts = dict.fromkeys(self.running, 1)

    def _start(self, i):
        log = report_file()
        command = [*sys.orig_argv, "--part", f"{i}/{self.count}"]
        return subprocess.Popen(command, stdout=log, stderr=log), log

    def are_running(self):
        """Returns False when all processes have ended, and reports those that failed."""
        for i, (process, log) in list(self.running.items()):
            if process.poll() is None:
                continue
            del self.running[i]
            if process.returncode == LOST and self.starts[i] < STARTS:
                self.starts[i] += 1
                self.running[i] = self._start(i)
            elif process.returncode:
                self.report(f"worker {i}", error=f"exit {process.returncode}: {end_of(log)}")
        return bool(self.running)


def report_file():
    """Returns a temporary file for the output of a process."""
    return tempfile.TemporaryFile("w+", errors="replace")


def end_of(log, characters=1000):
    """Returns the end of a process's output."""
    log.seek(0)
    return log.read()[-characters:].strip()


class _Tests:
    """Tests marked gpu, each in a pytest process with a time limit. A test that was skipped counts as not run."""

    def __init__(self, report, names=None, seconds=110):
        self.report, self.seconds, self.running = report, seconds, []
        self.run = [sys.executable, "-m", "pytest", "-c", os.devnull, "--rootdir", str(ROOT), "-p", "no:cacheprovider", "-q", "-W", "ignore", "--tb=short"]  # fmt: skip
        self.waiting, self.collecting = names or [], None
        if names is None:
            # test_graphs.py wants --device cuda; test_on_the_gpu runs the checks of `correctness` again; every_kernel_layouts.py
            # compiles each kernel for many layouts, which takes longer than the section
            files = [ROOT / "tests" / name for name in ("gpu", "kernels", "distributed/test_nccl.py")]
            skipped = [
                "-k",
                "not test_on_the_gpu and not every_kernel_layouts",
                "--ignore",
                ROOT / "tests/gpu/test_graphs.py",
            ]
            log = report_file()
            command = [*self.run, "--collect-only", "-m", "gpu", *skipped, *files]
            self.collecting = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log), log

    def _collect(self):
        """Reads the names of the tests when pytest has found them."""
        process, log = self.collecting
        if process.poll() is None:
            return
        self.collecting, text = None, end_of(log, 100000)
        found = [line.strip() for line in text.splitlines() if "::" in line]
        if not found:
            self.report("pytest", error=f"no test was collected: {text[-800:]}")
        found.sort(key=lambda name: not any(word in name for word in LONGEST))
        self.waiting = [name for name in found if name not in self.report.done][:TESTS]

    def are_running(self):
        """Starts and ends processes; returns False when none is left."""
        if self.collecting:
            self._collect()
        for item in list(self.running):
            name, process, log, until = item
            if process.poll() is None and time.perf_counter() < until:
                continue
            late = process.poll() is None
            if late:
                process.kill()
                process.wait()
            self.running.remove(item)
            text = end_of(log, 20000)
            with self.report.texts.open("a") as file:
                file.write(f"==== {name}\n{text}\n")
            last = (text.splitlines() or ["no output"])[-1]
            if late or process.returncode:
                error = f"stopped after {self.seconds} s" if late else f"exit {process.returncode}"
                self.report(name, error=f"{text[-1000:]}\n{error}: {last[:200]}")
            elif re.search(r"\d+ passed", last):
                self.report(name, value=last)
            else:
                self.report(name, skipped=last)
        while self.waiting and len(self.running) < SIDE_BY_SIDE:
            name, log = self.waiting.pop(0), report_file()
            process = subprocess.Popen([*self.run, name], cwd=ROOT, stdout=log, stderr=log)
            self.running.append((name, process, log, time.perf_counter() + self.seconds))
        return bool(self.collecting or self.running)


def together(report, interpret):
    """Run what needs no times side by side: all checks, the tests marked gpu, and a compiled step of PyTorch.

    The step fills the cache of PyTorch's compiler, so that a later section with a short time limit can measure it.
    """
    warm, log = None, report_file()
    if importlib.util.find_spec("torch") is not None and "one compiled step of PyTorch" not in report.done:
        argv = sys.orig_argv
        at = argv.index("--section")
        command = [*argv[:at], "--section", "torch-warm", "--into", report.section, *argv[at + 2 :]]
        warm = subprocess.Popen(command, stdout=log, stderr=log)
    several = (os.cpu_count() or 1) - SIDE_BY_SIDE - 1
    parts = [_Workers(report, max(1, several)), _Tests(report)]
    while True:
        running = [part.are_running() for part in parts]
        if not any(running):
            break
        time.sleep(0.1)
    if warm is not None and warm.wait():
        report("one compiled step of PyTorch", error=f"exit {warm.returncode}: {end_of(log)}")


def _patching(function, pytest):
    """Returns a check that needs no argument `monkeypatch`."""

    def check(**case):
        with pytest.MonkeyPatch.context() as patch:
            return function(**case, monkeypatch=patch)

    return check


def check_part(report, interpret, part, parts):
    """Run every `parts`-th check, starting at `part`."""
    pytest = _pytest_or_fallback()
    todo = []
    for home in CHECKS:
        name = home.partition(".check_")[2]
        if name in ("ops", "products") and os.environ.get("MYTORCH_KERNELS_ON") != "cuda":
            continue  # without a GPU, these require fixtures: python -m pytest tests/kernels tests/gpu
        try:
            module = importlib.import_module(f"tests.{home}")
        except Exception as error:
            report(name, error=f"{type(error).__name__}: {error}")
            continue
        for label, function in vars(module).items():
            if label.startswith("test_") and callable(function):
                cases = list(itertools.islice(_cases(function), 2 if interpret else CASES))
                if not cases:  # a library is not installed
                    continue
                missing = set(inspect.signature(function).parameters) - set(cases[0])
                if missing == {"together"}:  # the only supported fixtures are this one and monkeypatch
                    home = importlib.import_module("mytorch.optim.fused")
                    cases = [{**case, "together": home} for case in cases]
                if missing == {"monkeypatch"}:
                    if not hasattr(pytest, "MonkeyPatch"):
                        continue
                    function = _patching(function, pytest)
                todo += [
                    (
                        f"{name}: {label[5:]}[{','.join(str(v) for v in case.values() if not isinstance(v, types.ModuleType))}]",
                        function,
                        case,
                    )
                    for case in cases
                ]
    for label, function, case in todo[part::parts]:
        report.attempt(label, lambda f=function, c=case: f(**c) or {})
