"""Compares all names of the library before and after a change, for example a move of files.

    python tests/compare_names.py list before.txt [--torch]     # with the old version of the library
    python tests/compare_names.py check before.txt [--torch]    # with the new version: names that it doesn't have

Each line of the list is a module and a name that it has: of all files, and of the import paths without a file. `--torch`
does this in PyTorch mode, where the paths begin with `torch`.
"""

import argparse
import importlib
import pkgutil
import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))


def paths():
    """Yields the names of all modules below `mytorch`, with and without a file."""
    import mytorch
    from mytorch.compat.paths import PATHS

    yield "mytorch"
    for info in pkgutil.walk_packages(mytorch.__path__, "mytorch.", onerror=lambda name: None):
        if not info.name.endswith("__main__"):
            yield info.name
    yield from (f"mytorch.{path}" for path in PATHS)


def module_of(path):
    """Returns a module, or None if it needs a package that is not installed here."""
    try:
        return importlib.import_module(path)
    except (ImportError, OSError):
        return None


def names():
    """Yields "module name" for each module and each of its names."""
    for path in sorted(set(paths())):
        module = module_of(path)
        if module is not None:
            yield from (f"{path} {name}" for name in sorted(dir(module)) if not name.startswith("__"))


def missing(lines):
    """Yields the lines whose name this version does not have."""
    for line in lines:
        path, name = line.split()
        module = module_of(path)
        # a module is an attribute of its package when it has been imported
        if module is None or not (hasattr(module, name) or module_of(f"{path}.{name}")):
            yield line


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("action", choices=("list", "check"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--torch", action="store_true", help="in PyTorch mode")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.torch:
        import mytorch

        mytorch.install_as_torch()
    if options.action == "list":
        lines = [*names()]
        if options.torch:
            lines = [line.replace("mytorch", "torch", 1) for line in lines]
        options.file.write_text("\n".join(lines) + "\n")
        print(len(lines), "names")
    else:
        lines = options.file.read_text().splitlines()
        absent = [*missing(lines)]
        print(*absent, f"{len(absent)} of {len(lines)} names are missing", sep="\n")
        sys.exit(bool(absent))


if __name__ == "__main__":
    main()
