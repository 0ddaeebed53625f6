"""The plan of the house: which room may import which, read off the code. `test_house.py` checks it.

python tests/house.py            # what runs up, what goes round, how large the rooms are
python tests/house.py --write    # the table of floors in docs/architecture.md
python tests/house.py --dot      # the rooms and their imports as a graph for Graphviz
"""

import argparse
import ast
import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "mytorch"
FILES = sorted(PACKAGE.rglob("*.py"))

# From the ground up: a room may import from those below, and from others of its own floor. A room is a folder or a file.
FLOORS = [
    ("base version", "settings, dtypes and promotion, errors, nested containers, CUDA graph capture"),
    ("numerics", "array algorithms: special functions, random bits, blocked sums, einsum"),
    ("backend", "devices, the NumPy and CuPy namespaces, copies; the only importer of CuPy"),
    ("_tensor_str", "printing of arrays and tensors"),
    ("_array", "Array: one NumPy or CuPy array with a version counter"),
    ("engine kernels", "the graph and backward; compiled kernels over raw arrays and their registry"),
    ("_tensor", "Tensor: an Array with an edge in the graph"),
    ("dispatch", "the op record, calls of ops, in-place changes, and binding to names"),
    ("ops", "definitions of operations with their gradients"),
    ("transforms", "gradient formulas over Tensors, forward mode, vmap"),
    ("autograd", "Function, checkpointing, gradcheck, hooks on the graph"),
    (
        "amp cuda fft files linalg quasirandom random special",
        "PyTorch's function modules; precision, devices, archives",
    ),
    ("serialization", "save and load"),
    ("distributed", "process groups, collectives, gradient buckets"),
    ("optim nn", "optimizers; layers, DistributedDataParallel"),
    (
        "func utils distributions vision profiler tools",
        "function transforms, data loading, distributions, vision, profiling, tools",
    ),
    ("models", "language models and text generation"),
    ("accelerate", "the training loop helper"),
    ("compat", "PyTorch's remaining names and import paths"),
    ("__init__", "`import mytorch`"),
    ("cli playground __main__", "`mytorchrun`, `python -m mytorch.playground`, `python -m mytorch`"),
]
FLOOR = {room: floor for floor, (rooms, _) in enumerate(FLOORS) for room in rooms.split()}

# Imports that run up all the same, each with its reason; at most six.
UP = {}


def name_of(path):
    """A file as what imports call it: "mytorch.nn.linear"; a package by its own name."""
    parts = ("mytorch", *path.relative_to(PACKAGE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in FILES}


def room_of(path):
    """The folder directly below mytorch/ that a file is in, or the file's own name."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(path):
    """(module, line) of each import in a file, those within functions and those by a string among them.

    `from package import name` is an import of the submodule if there is one of that name, else of the package. What is
    imported for type checkers alone does not count.
    """
    tree = ast.parse(path.read_text())
    package = ["mytorch", *path.relative_to(PACKAGE).parts[:-1]]
    skipped = {id(node) for block in ast.walk(tree) if _is_for_types(block) for node in ast.walk(block)}
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                full = f"{base}.{alias.name}"
                yield full if full in MODULES else base, node.lineno
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            path_like = re.fullmatch(r"(mytorch(?:\.\w+)+)(?::\w+)?", node.value)
            if path_like and path_like[1] in MODULES:
                yield path_like[1], node.lineno


def _is_for_types(node):
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def arrows():
    """{(file, imported file): [lines]}"""
    found = defaultdict(list)
    for path in FILES:
        for module, line in imports(path):
            target = MODULES.get(module)
            if target is not None and target != path:
                found[path, target].append(line)
    return found


def runs_up(found=None):
    """The arrows from a lower floor to a higher one: (file, imported file, lines), relative to mytorch/."""
    found = arrows() if found is None else found
    return [
        (str(a.relative_to(PACKAGE)), str(b.relative_to(PACKAGE)), lines)
        for (a, b), lines in found.items()
        if FLOOR[room_of(b)] > FLOOR[room_of(a)]
    ]


def circles(found=None):
    """Groups of files that import each other in a loop (Tarjan's strongly connected components)."""
    follows = defaultdict(list)
    for a, b in arrows() if found is None else found:
        follows[a].append(b)
    index, low, stack, groups = {}, {}, [], []

    def visit(v):
        index[v] = low[v] = len(index)
        stack.append(v)
        for w in follows[v]:
            if w not in index:
                visit(w)
                low[v] = min(low[v], low[w])
            elif w in stack:
                low[v] = min(low[v], index[w])
        if low[v] == index[v]:
            group = stack[stack.index(v) :]
            del stack[stack.index(v) :]
            if len(group) > 1:
                groups.append(sorted(str(p.relative_to(PACKAGE)) for p in group))

    for path in FILES:
        if path not in index:
            visit(path)
    return groups


def table():
    """The floors as they stand in docs/architecture.md."""
    rows = [
        f"| {floor} | {', '.join(f'`{r}`' for r in rooms.split())} | {what} |"
        for floor, (rooms, what) in enumerate(FLOORS)
    ]
    text = ["| floor | rooms | what they know |", "|---|---|---|", *rows, ""]
    text.append(f"Imports that run up: {len(UP)}.")
    text += [f"`{a}` → `{b}`: {reason}" for (a, b), reason in UP.items()]
    return "\n".join(text)


def marked(text):
    """The two marks in a document between which the table stands, and what stands there."""
    begin, end = "<!-- floors: made by tests/house.py -->\n", "\n<!-- end of floors -->"
    head, rest = text.split(begin)
    body, tail = rest.split(end)
    return head + begin, body, end + tail


def lines_of_rooms():
    """{room: lines of its .py files}"""
    sizes = defaultdict(int)
    for path in FILES:
        sizes[room_of(path)] += path.read_text().count("\n")
    return sizes


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="write the table of floors into docs/architecture.md")
    parser.add_argument("--dot", action="store_true", help="print the rooms and their imports for Graphviz")
    options = parser.parse_args()
    found = arrows()
    if options.write:
        page = ROOT / "docs" / "architecture.md"
        head, _, tail = marked(page.read_text())
        page.write_text(head + table() + tail)
    elif options.dot:
        rooms = sorted({(room_of(a), room_of(b)) for a, b in found if room_of(a) != room_of(b)})
        print("digraph house {", *(f'  "{a}" -> "{b}";' for a, b in rooms), "}", sep="\n")
    else:
        sizes = lines_of_rooms()
        for rooms, _ in reversed(FLOORS):
            print("   ".join(f"{room} {sizes[room]}" for room in rooms.split()))
        print(f"{sum(sizes.values())} lines, {len(FILES)} files, {len(found)} imports")
        for a, b, lines in runs_up(found):
            print(f"up: {a}:{lines[0]} imports {b}")
        for group in circles(found):
            print(f"circle: {', '.join(group)}")


if __name__ == "__main__":
    main()
