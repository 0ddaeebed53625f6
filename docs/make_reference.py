"""Write the API reference, a Markdown page for each module, from signatures and docstrings.

PYTHONPATH=. python docs/make_reference.py reference        # into the folder `reference`, with an index.md
"""

import argparse
import importlib
import inspect
from pathlib import Path

MODULES = """mytorch nn nn.functional nn.init nn.utils nn.parallel optim optim.lr_scheduler autograd linalg fft special random func amp cuda
distributed distributions utils.data utils.checkpoint utils.graph utils.views utils.benchmark vision.datasets vision.transforms models
accelerate profiler serialization""".split()


def entry(name, value, level=2):
    """A name's heading with its signature, and its docstring; for a class, its methods' as well."""
    try:
        signature = str(inspect.signature(value))
    except (TypeError, ValueError):
        signature = ""
    doc = inspect.getdoc(value) or ""
    text = f"{'#' * level} `{name}`\n\n```python\n{name}{signature}\n```\n\n```text\n{doc}\n```\n"
    if isinstance(value, type) and level == 2:
        for method, function in sorted(vars(value).items()):
            if not method.startswith("_") and callable(function) and inspect.getdoc(function):
                text += "\n" + entry(f"{name}.{method}", function, 3)
    return text


def page(path):
    """(page, number of names) of a module: what it offers that is documented, and is no module."""
    module = importlib.import_module("mytorch" if path == "mytorch" else f"mytorch.{path}")
    names = getattr(module, "__all__", None) or [n for n in vars(module) if not n.startswith("_")]
    found = {n: getattr(module, n) for n in sorted(set(names), key=str.lower)}
    own = {n: v for n, v in found.items() if str(getattr(v, "__module__", "")).startswith("mytorch")}
    found = {n: v for n, v in own.items() if callable(v) and inspect.getdoc(v)}
    head = f"# {module.__name__}\n\n```text\n{inspect.getdoc(module) or ''}\n```\n"
    return "\n".join([head, *(entry(n, v) for n, v in found.items())]), len(found)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    index = ["# Reference\n"]
    for path in MODULES:
        text, count = page(path)
        (folder / f"{path}.md").write_text(text, encoding="utf-8")
        index.append(f"* [mytorch{'' if path == 'mytorch' else '.' + path}]({path}.md): {count} names")
    (folder / "index.md").write_text("\n".join(index) + "\n", encoding="utf-8")
    print(f"{len(MODULES)} pages in {folder}")


if __name__ == "__main__":
    main()
