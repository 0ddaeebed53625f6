"""Run the examples in the docstrings of PyTorch with PyTorch and with mytorch, and compare what they print.

    python benchmarks/docs_examples.py torch theirs.json [PART …]      # with PyTorch
    python benchmarks/docs_examples.py mytorch theirs.json [PART …]    # without: run the same examples in PyTorch mode, and compare

The first command extracts the examples and stores them with their results. Every name starts from the same seeds. A result is the value of
an expression, the variables that a statement assigns, and the output; numbers may differ by 2e-4. Examples that need a GPU, or that show
uninitialized memory, are left out. PART selects the names that contain it.
"""

import contextlib
import doctest
import importlib
import inspect
import io
import json
import os
import random
import re
import signal
import sys
import tempfile
import warnings
from pathlib import Path

MODULES = """torch torch.Tensor torch.nn torch.nn.functional torch.linalg torch.fft torch.special torch.distributions torch.optim
torch.optim.lr_scheduler torch.optim.swa_utils torch.utils.data torch.utils.checkpoint torch.autograd torch.autograd.functional
torch.autograd.forward_ad torch.autograd.graph torch.func torch.nn.utils torch.nn.utils.rnn torch.nn.utils.parametrize
torch.nn.utils.parametrizations torch.nn.utils.prune torch.nn.init torch.sparse torch.nested torch.amp torch.library torch.fx
torch.signal.windows torch.overrides torch.serialization torch.testing torch.nn.attention torch.quasirandom torch.distributions.transforms
""".split()
LEFT_OUT = ("cuda", "xpu", "empty", "quantize")  # words in the name or in the code
NAMES = re.compile(r"^\s*([A-Za-z_]\w*(?:\s*,\s*[A-Za-z_]\w*)*)\s*=[^=]", re.MULTILINE)
NUMBER = re.compile(r"-?(?:\d+\.?\d*(?:e[-+]?\d+)?|nan|inf)")
SECONDS = 10


def examples():
    """Returns {name: code of its examples} of the documented names of PyTorch."""
    found, seen = {}, set()
    for path in MODULES:
        home = importlib.import_module(path) if path != "torch.Tensor" else sys.modules["torch"].Tensor
        for name in sorted(n for n in dir(home) if not n.startswith("_")):
            value = getattr(home, name, None)
            own = inspect.isclass(value) and str(value.__module__).startswith("torch")
            parts = [
                (f"{path}.{name}", value),
                *(((f"{path}.{name}.{k}", v) for k, v in vars(value).items()) if own else ()),
            ]
            for label, part in parts:
                text = None if inspect.ismodule(part) or id(part) in seen else inspect.getdoc(part)
                seen.add(id(part))
                with contextlib.suppress(ValueError):  # a docstring that is not indented as doctest wants
                    code = [e.source for e in doctest.DocTestParser().get_examples(text or "")]
                    if code and not any(word in label + "".join(code) for word in LEFT_OUT):
                        found[label] = code
    return found


def outcome(source, scope, torch):
    """Runs one example. Returns its value, the variables that it assigns, and its output, or the class of its error."""
    text, output = "", io.StringIO()
    signal.alarm(SECONDS)
    try:
        with contextlib.redirect_stdout(output):
            try:
                text = repr(eval(compile(source, "<example>", "eval"), scope))
            except SyntaxError:
                exec(compile(source, "<example>", "exec"), scope)
        for name in (n.strip() for names in NAMES.findall(source) for n in names.split(",")):
            if isinstance(scope.get(name), (torch.Tensor, int, float, tuple, list, str)):
                text += f"\n{name}={scope[name]!r}"
    except BaseException as error:
        return f"raises {type(error).__name__.lstrip('_')}"
    finally:
        signal.alarm(0)
    return f"{text}\n{output.getvalue()}".strip()


def run(code_of, torch):
    """Returns {name: results of its examples}."""
    import numpy as np

    def late(*_):
        raise TimeoutError

    signal.signal(signal.SIGALRM, late)
    torch.set_num_threads(1)
    results = {}
    for name, code in code_of.items():
        scope = {"torch": torch, "nn": torch.nn, "F": torch.nn.functional, "optim": torch.optim, "np": np, "numpy": np}
        exec(
            "import functools, math, os, random\nfrom torch.autograd import Function\nfrom torch.utils.data import *",
            scope,
        )
        exec("import torch.autograd.forward_ad as fwAD\nfrom torch.func import *", scope)
        torch.manual_seed(0), random.seed(0), np.random.seed(0)
        torch.set_default_dtype(torch.float32), torch.set_default_device(None), torch.set_grad_enabled(True)
        torch.set_printoptions(profile="default")
        results[name] = [outcome(source, scope, torch) for source in code]
    return results


def equal(theirs, mine):
    """Returns True if two results have the same words, and numbers that differ by rounding."""
    theirs, mine = (re.sub(r"0x[0-9a-f]+", "0x", text).replace("mytorch.", "torch.") for text in (theirs, mine))
    if theirs == mine:
        return True
    ours, others = NUMBER.findall(mine), NUMBER.findall(theirs)
    if NUMBER.sub("#", theirs).split() != NUMBER.sub("#", mine).split() or len(ours) != len(others):
        return False
    return all(
        a == b or abs(float(a) - float(b)) <= 2e-4 * max(1, abs(float(b))) for a, b in zip(ours, others, strict=True)
    )


def main(library, path, *parts):
    """Stores PyTorch's results, or compares with them and prints the first difference of each name."""
    file = Path(path).resolve()
    if library == "mytorch":
        sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
        importlib.import_module("mytorch").install_as_torch()
    torch = importlib.import_module("torch")
    stored = {} if library == "torch" else json.loads(file.read_text())
    code = examples() if library == "torch" else {name: [a for a, _ in pairs] for name, pairs in stored.items()}
    code = {name: lines for name, lines in code.items() if not parts or any(part in name for part in parts)}
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        os.chdir(folder)  # some examples write files
        results = run(code, torch)
        os.chdir(file.parent)
    if library == "torch":
        file.write_text(json.dumps({name: list(zip(code[name], results[name], strict=True)) for name in code}))
        return print(f"{len(code)} names, {sum(map(len, code.values()))} examples")
    right = 0
    for name, pairs in ((name, stored[name]) for name in code):
        first = next((i for i, (_, want) in enumerate(pairs) if not equal(want, results[name][i])), None)
        right += first is None
        if first is not None:
            print(
                f"{name}: {pairs[first][0].strip()}\n  PyTorch: {pairs[first][1][:300]}\n  mytorch: {results[name][first][:300]}"
            )
    return print(f"{right} of {len(code)} names give PyTorch's results")


if __name__ == "__main__":
    main(*sys.argv[1:])
