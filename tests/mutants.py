"""Changes the library in one place at a time, and reports which changes the tests find.

    python tests/mutants.py map --fast                    # which tests call which function; once, takes little longer than the tests
    python tests/mutants.py run --count 40 --seed 0       # 40 mutants, each against the tests that call the changed function
    python tests/mutants.py list --count 40 --seed 0

A mutant has another operator, comparison or constant, a negated condition, or lacks a statement. Mutant i of a seed is always the
same one for the same code, with equal numbers of each kind. `run` changes a copy of the tree. A mutant that all its tests accept
survives: add a test that fails with it, or list it in `EQUIVALENT` with the reason why it computes the same.
"""

import argparse
import ast
import compileall
import contextlib
import cProfile
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

# One thread, as in tests/conftest.py. The children get NumPy and PyTorch from this process, which reads the number when it loads them.
os.environ.setdefault("OMP_NUM_THREADS", "1")

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("ops", "autograd", "nn", "optim", "utils/data")
EQUIVALENT = {  # {(file, line of code, column in it, change): why no test can find it}
    (
        "mytorch/utils/data/_utils/worker.py",
        "while not self.connection.poll(MP_STATUS_CHECK_INTERVAL / 5):",
        31,
        "operator: MP_STATUS_CHECK_INTERVAL / 5 -> MP_STATUS_CHECK_INTERVAL * 5",
    ): "how often a worker looks for its parent, which changes no result",
    (
        "mytorch/ops/dispatch/fast_call.py",
        "if type(x0) is not ndarray or x0.dtype.char not in accepted:",
        3,
        "comparison: type(x0) is not ndarray -> type(x0) is ndarray",
    ): "the slow path computes the same; arrays of a GPU are not in the map of a machine without one",
    (
        "mytorch/optim/swa_utils.py",
        "update([a for a, _ in group], [p for _, p in group], self.n_averaged.to(group[0][0].device))",
        81,
        "constant: 0 -> 1",
    ): "update_parameters has moved the parameter to the device of its average",
    (
        "mytorch/ops/pool.py",
        "low = max(0, p - (o - 1) * s) if k > n else 0",
        33,
        "comparison: k > n -> k >= n",
    ): "positions in the padding for every window are left out of one more kernel, which changes no result",
    (
        "mytorch/ops/composites.py",
        'if input.device.type == "cpu" and fused is not True:',
        3,
        "comparison: input.device.type == 'cpu' -> input.device.type != 'cpu'",
    ): "the other branch computes the same with a kernel, which a machine without a GPU does not have",
    (
        "mytorch/autograd/forward_mode.py",
        "return tangent is other and tangent is not None",
        7,
        "condition: tangent is other and tangent is not None -> tangent is other or tangent is not None",
    ): "tangents that share no memory are copied, too",
    (
        "mytorch/ops/resample.py",
        "return x * 0",
        7,
        "operator: x * 0 -> x + 0",
    ): "the caller limits the positions to the only one",
}
COMPARED = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
COMPUTED = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
}  # fmt: skip


# -- mutants ---------------------------------------------------------------------------------------------------------


def changed(node):
    """Returns (kind, the source text of the changed node), or None."""
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in COMPARED:
        return "comparison", ast.Compare(node.left, [COMPARED[type(node.ops[0])]()], node.comparators)
    if isinstance(node, ast.BinOp) and type(node.op) in COMPUTED:
        return "operator", ast.BinOp(node.left, COMPUTED[type(node.op)](), node.right)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return "operator", node.operand
    if isinstance(node, ast.BoolOp):
        return "condition", ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)
    if isinstance(node, ast.IfExp):
        return "condition", ast.IfExp(node.test, node.orelse, node.body)
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        return "constant", ast.Constant(not node.value)
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return "constant", ast.Constant(node.value + 1)
    call = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    stored = isinstance(node, ast.Assign) and isinstance(node.targets[0], (ast.Attribute, ast.Subscript))
    if call or stored or isinstance(node, ast.AugAssign):
        return "deletion", ast.Pass()
    return None


def walk(node, function=None):
    """Yields (node, the first line of its function or None), without messages, annotations, decorators and docstrings."""
    if isinstance(node, (ast.Raise, ast.JoinedStr, ast.Import, ast.ImportFrom)):
        return
    yield node, function
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                continue
            if isinstance(child, (ast.FunctionDef, ast.Lambda)):
                lines = [child.lineno, *(d.lineno for d in getattr(child, "decorator_list", ()))]
                yield from walk(child, min(lines))
            elif isinstance(child, ast.AST):
                yield from walk(child, function)


def candidates():
    """Yields (kind, file, function, node, text) for every possible mutant."""
    for package in PACKAGES:
        for path in sorted((ROOT / "mytorch" / package).rglob("*.py")):
            for node, function in walk(ast.parse(path.read_text())):
                found = changed(node)
                if found is not None:
                    yield found[0], str(path.relative_to(ROOT)), function, node, found[1]
                if isinstance(node, ast.If):
                    yield (
                        "condition",
                        str(path.relative_to(ROOT)),
                        function,
                        node.test,
                        ast.UnaryOp(ast.Not(), node.test),
                    )


def mutants(count, seed):
    """Returns the mutants of a seed."""
    kinds = defaultdict(list)
    for mutant in candidates():
        kinds[mutant[0]].append(mutant)
    rng, names = random.Random(seed), sorted(kinds)
    return [kinds[kind].pop(rng.randrange(len(kinds[kind]))) for kind in (names * count)[:count]]


def told(mutant):
    """Returns the change of a mutant as text."""
    kind, path, _, node, new = mutant
    old, new = (" ".join(ast.unparse(ast.fix_missing_locations(n)).split()) for n in (node, new))
    return f"{path}:{node.lineno} {kind}: {old[:70]} -> {new[:70]}"


def place(mutant):
    """Returns the key of a mutant in EQUIVALENT, which does not change when lines are added above."""
    _, path, _, node, _ = mutant
    line = (ROOT / path).read_text().split("\n")[node.lineno - 1]
    start = len(line) - len(line.lstrip())
    return path, line.strip(), node.col_offset - start, told(mutant).partition(" ")[2]


def mutated(text, mutant):
    """Returns the text of a file with the change."""
    _, _, _, node, new = mutant
    lines = text.encode().splitlines(keepends=True)
    start, end = (
        sum(map(len, lines[: line - 1])) + column
        for line, column in ((node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset))
    )
    new = ast.unparse(ast.fix_missing_locations(new))
    source = text.encode()
    replaced = "pass" if new == "pass" else f"({new})"
    return (source[:start] + replaced.encode() + source[end:]).decode()


# -- which tests call which function ----------------------------------------------------------------------------------


class Calls:
    """A plugin of pytest that notes the functions of the library that each test calls, and its processor time."""

    def __init__(self):
        self.functions, self.seconds = defaultdict(set), defaultdict(float)

    def run(self, item, call):
        root, start, profiler = str(Path.cwd() / "mytorch"), time.process_time(), cProfile.Profile(builtins=False)
        try:
            profiler.runcall(call)
        finally:
            name = item.nodeid.partition("[")[0]
            self.seconds[name] += time.process_time() - start
            for code in (entry.code for entry in profiler.getstats()):
                if code.co_filename.startswith(root):
                    self.functions[f"{os.path.relpath(code.co_filename)}:{code.co_firstlineno}"].add(name)

    def pytest_pyfunc_call(self, pyfuncitem):
        arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
        self.run(pyfuncitem, lambda: pyfuncitem.obj(**arguments))
        return True


def make_map(tests, where):
    """Runs the tests and stores which functions they call."""
    import pytest

    calls = Calls()
    os.chdir(ROOT)
    sys.path.insert(0, str(ROOT))
    pytest.main(["-p", "no:cacheprovider", "--timeout", "0", *tests], plugins=[calls])
    stored = {"functions": {name: sorted(found) for name, found in calls.functions.items()}, "seconds": calls.seconds}
    where.write_text(json.dumps(stored))


def selected(mutant, calls, seconds):
    """Returns the tests of a mutant: those that call its function, else those that call a function of its file."""
    _, path, function, _, _ = mutant
    functions = calls["functions"]
    names = set(functions.get(f"{path}:{function}", ()))
    if not names:
        names = {test for key, tests in functions.items() if key.rpartition(":")[0] == path for test in tests}
    chosen, total = [], 0.0
    for name in sorted(names, key=lambda n: calls["seconds"].get(n, 0)):
        total += calls["seconds"].get(name, 0)
        if total > seconds:
            break
        chosen.append(name)
    return chosen, len(chosen) == len(names)


# -- runs ------------------------------------------------------------------------------------------------------------


def verdict(folder, tests, seconds):
    """Runs tests in a child process, which has PyTorch and pytest already; returns what they found."""
    note = folder / "verdict.txt"
    note.unlink(missing_ok=True)
    child = os.fork()
    if not child:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_CPU, (3 * seconds, 3 * seconds))
        output = os.open(folder / "output.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1), os.dup2(output, 2)
        os.chdir(folder)
        sys.path[:] = [str(folder), *(p for p in sys.path if Path(p or ".").resolve() not in (ROOT, ROOT / "tests"))]
        os.environ["PYTHONPATH"] = str(folder)
        code = 99
        with contextlib.suppress(BaseException):
            code = _run_pytest(tests, note)
        os._exit(code)
    last = time.monotonic() + 6 * seconds
    while (status := os.waitpid(child, os.WNOHANG)) == (0, 0):
        if time.monotonic() > last:  # it waits forever, and its processes too
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return f"killed by a wait of {6 * seconds} s"
        time.sleep(0.05)
    status = status[1]
    if os.WIFSIGNALED(status):
        return f"killed by signal {os.WTERMSIG(status)}"
    code = os.WEXITSTATUS(status)
    return (
        "survived" if code == 0 else f"killed by {note.read_text() if note.exists() else 'an error before the tests'}"
    )


def compile_tests(folder, tests):
    """Lets pytest rewrite and compile the files of the tests once, not once for each mutant. Returns the tests that exist.

    A map can be older than the tests. pytest runs nothing if one of the names is unknown, which would look like a found mutant.
    """
    note = folder / "collected.txt"

    class Collected:
        def pytest_collection_finish(self, session):
            note.write_text("\n".join({item.nodeid.partition("[")[0] for item in session.items}))

    child = os.fork()
    if not child:
        sys.stdout = sys.stderr = open(os.devnull, "w")
        os.chdir(folder)
        import pytest

        files = {name.partition("::")[0] for name in tests}
        files = [name for name in files if (folder / name).exists()]
        pytest.main(["--collect-only", "-q", "-p", "no:cacheprovider", *files], plugins=[Collected()])
        os._exit(0)
    os.waitpid(child, 0)
    return set(note.read_text().split("\n"))


def _run_pytest(tests, note):
    import pytest

    class First:
        def pytest_runtest_logreport(self, report):
            if report.failed and not note.exists():
                note.write_text(report.nodeid)

    sys.dont_write_bytecode = True
    return int(pytest.main(["-x", "-p", "no:cacheprovider", "--timeout", "0", *tests], plugins=[First()]))


def run(count, seed, where, first, most):
    """Runs the mutants of a seed and prints a line for each."""
    import numpy  # noqa: F401 - the children have it
    import pytest  # noqa: F401

    with contextlib.suppress(ImportError):
        import torch  # noqa: F401

    calls = json.loads(where.read_text())
    counts = defaultdict(int)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve() / "tree"
        shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(".git", "__pycache__", ".*_cache", "*.egg-info"))
        compileall.compile_dir(folder / "mytorch", quiet=2)
        exist = compile_tests(folder, {name for names in calls["functions"].values() for name in names})
        calls["functions"] = {key: exist.intersection(names) for key, names in calls["functions"].items()}
        for number, mutant in enumerate(mutants(count, seed)[first:], first):
            path = folder / mutant[1]
            if place(mutant) in EQUIVALENT:
                print(number, "equivalent", told(mutant), flush=True)
                continue
            tests, all_of_them = selected(mutant, calls, most)
            text, times = path.read_text(), path.stat()
            started = time.monotonic()
            path.write_text(mutated(text, mutant))
            found = verdict(folder, tests, most) if tests else "not called by a test"
            path.write_text(text)
            os.utime(path, (times.st_atime, times.st_mtime))
            counts[found.partition(" by ")[0]] += 1
            some = "" if all_of_them else ", a part of them"
            seconds = time.monotonic() - started
            print(f"{number} {told(mutant)} | {found} | {len(tests)} tests{some}, {seconds:.0f} s", flush=True)
    print(dict(counts))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=["list", "map", "run"])
    parser.add_argument("tests", nargs="*", help="files or tests, for map")
    parser.add_argument("--fast", action="store_true", help="map the tests of fast.txt")
    parser.add_argument("--count", type=int, default=40, help="number of mutants")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first mutant that runs")
    parser.add_argument("--seconds", type=int, default=150, help="processor time for the tests of one mutant")
    parser.add_argument("--map", type=Path, default=Path(tempfile.gettempdir()) / "mytorch_calls.json")
    options = parser.parse_intermixed_args()
    if options.command == "map":
        fast = (ROOT / "tests/fast.txt").read_text().split("\n") if options.fast else []
        make_map([*(line for line in fast if line and line[0] != "#"), *options.tests], options.map)
    elif options.command == "list":
        for number, mutant in enumerate(mutants(options.count, options.seed)):
            print(number, told(mutant))
    else:
        run(options.count, options.seed, options.map, options.first, options.seconds)


if __name__ == "__main__":
    main()
