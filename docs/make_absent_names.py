"""Writes mytorch/compat/absent_names.txt: the names that programs can read in modules of PyTorch that this library does not have.

    python docs/make_absent_names.py            # writes the table; needs PyTorch
    python docs/make_absent_names.py --check    # exits with 1 if the table is not that of the installed PyTorch

Each line has a module of `MODULES` in `compat/stubs.py`, and names in it. Functions of the C++ core are left out: programs ask for them
with `hasattr`, and call them if they exist.
"""

import ast
import importlib.util
import inspect
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
from mytorch.compat import stubs  # noqa: E402


def _assigned(nodes):
    """Yields the names that statements of a module define, without imports from other packages."""
    for node in nodes:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (
                n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
            )
        elif isinstance(node, ast.ImportFrom) and (node.level or node.module.startswith("torch")):
            yield from (alias.asname or alias.name for alias in node.names)
        elif isinstance(node, (ast.If, ast.Try)):
            blocks = [node.body, node.orelse, *(handler.body for handler in getattr(node, "handlers", ()))]
            yield from (name for block in blocks for name in _assigned(block))


def names_of(path):
    """Returns the names of a module of PyTorch."""
    if path == "_C":
        import torch

        classes = {n for n, v in vars(torch._C).items() if inspect.isclass(v) and n.lstrip("_")[:1].isupper()}
        return classes | {n for n, v in vars(torch._C).items() if inspect.ismodule(v) and v.__name__ == f"torch._C.{n}"}
    torch = Path(importlib.util.find_spec("torch").submodule_search_locations[0])
    file = torch.joinpath(*path.split("."))
    names = {f.stem for f in file.glob("*.py")} | {f.parent.name for f in file.glob("*/__init__.py")}
    file = file / "__init__.py" if file.is_dir() else file.with_suffix(".py")
    return names.union(_assigned(ast.parse(file.read_text()).body)) if file.exists() else set()


def table():
    """Returns the text of the table."""
    lines = []
    for path in sorted(stubs.MODULES):
        names = sorted(name for name in names_of(path) if not name.startswith("__"))
        lines += [f"{path} {part}" for part in textwrap.wrap(" ".join(names), 140)]
    return "\n".join(lines) + "\n"


def main():
    file, text = ROOT / "mytorch" / "compat" / "absent_names.txt", table()
    if "--check" not in sys.argv:
        file.write_text(text)
        return
    parts = [[line for line in lines.splitlines() if not line.startswith("_C ")] for lines in (text, file.read_text())]
    if parts[0] != parts[1]:  # the classes of the C++ core depend on how PyTorch was built
        sys.exit("not up to date: run python docs/make_absent_names.py")


if __name__ == "__main__":
    main()
