"""Section `correctness`: runs the checks of tests/kernels and tests/gpu without pytest."""

import importlib
import inspect
import itertools
import os
import subprocess
import sys
import types

from .sizes import CASES, LOST, STARTS

CHECKS = tuple(
    f"kernels.check_{name}"
    for name in (
        "norm",
        "cross_entropy",
        "elementwise",
        "attention",
        "matmul",
        "losses",
        "multi",
        "conv",
        "random",
        "ops",
    )
)
CHECKS = (*CHECKS, "gpu.check_products", "gpu.check_cudnn")


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

        def parametrize(names, values, ids=None):
            def mark(function):
                function.pytestmark = [
                    types.SimpleNamespace(args=(names, values)),
                    *getattr(function, "pytestmark", []),
                ]
                return function

            return mark

        module = types.ModuleType("pytest")
        module.mark = types.SimpleNamespace(parametrize=parametrize)
        module.raises = raises
        module.fixture = lambda **kwargs: lambda function: function
        sys.modules["pytest"] = module
        return module


def _cases(function):
    """Returns the dictionaries of arguments of a parametrized test."""
    axes = []
    for mark in getattr(function, "pytestmark", []):
        names, values = mark.args[:2]
        names = [n.strip() for n in names.split(",")] if isinstance(names, str) else list(names)
        axes.append([dict(zip(names, v if len(names) > 1 else (v,), strict=True)) for v in values])
    for parts in itertools.product(*axes):
        yield {k: v for part in parts for k, v in part.items()}


def correctness(report, interpret):
    """Compare every kernel with float64: odd sizes, each dtype, forward and backward. Several processes compile in parallel."""
    workers = max(1, min(os.cpu_count() or 1, 12))

    def start(i):
        return subprocess.Popen([*sys.orig_argv, "--part", f"{i}/{workers}"], stderr=subprocess.PIPE, text=True)

    for i, worker in enumerate([start(i) for i in range(workers)]):
        for _ in range(STARTS):
            _, errors = worker.communicate()
            if worker.returncode != LOST:
                break
            worker = start(i)
        if worker.returncode:
            report(f"worker {i}", error=f"exit {worker.returncode}: {errors[-800:]}")


def check_part(report, interpret, part, parts):
    """Run every `parts`-th check, starting at `part`."""
    _pytest_or_fallback()
    todo = []
    for home in CHECKS:
        name = home.partition(".check_")[2]
        if name in ("ops", "products") and interpret:
            continue  # these require fixtures: python -m pytest tests/kernels tests/gpu
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
                if missing == {"together"}:  # the only supported fixture
                    home = importlib.import_module("mytorch.optim.fused")
                    cases = [{**case, "together": home} for case in cases]
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
