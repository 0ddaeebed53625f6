"""The layers of the library, the border between its core and its extensions, and their sizes, computed from the code.

    python tests/layers.py            # lines of the core and of each extension; upward imports and import cycles
    python tests/layers.py --write    # the table of layers in docs/architecture.md
    python tests/layers.py --dot      # the packages and their imports as a graph for Graphviz

`test_architecture.py` checks the rules.
"""

import argparse
import ast
import functools
import io
import re
import tokenize
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "mytorch"
FILES = sorted(PACKAGE.rglob("*.py"))
EXTENSIONS = next(
    ast.literal_eval(node.value)
    for node in ast.parse((PACKAGE / "_extensions.py").read_text()).body
    if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "EXTENSIONS"
)

# From the bottom up: a package may import from the layers below, and from other packages of the same layer. A package
# here is a folder or a file in mytorch/. A file or folder in it can have a layer of its own, such as "autograd.walk".
LAYERS = [
    (
        "arrays.arguments arrays.capturing arrays.config arrays.dtypes arrays.errors arrays.hooks arrays.overridable arrays.overriding "
        "version _extensions",
        "settings, dtypes and promotion, errors, CUDA graph capture, the list of extensions",
    ),
    (
        "arrays.blocks arrays.einsum arrays.philox arrays.rejection arrays.special",
        "array algorithms: special functions, random bits, blocked sums, einsum",
    ),
    ("arrays", "devices, the NumPy and CuPy namespaces, copies; the only importer of CuPy"),
    ("arrays.printing", "printing of arrays and tensors"),
    ("arrays.array utils._pytree", "Array: one NumPy or CuPy array with a version counter; nested containers"),
    (
        "autograd.mode autograd.node autograd.own_node autograd.saved autograd.walk kernels kernels.numba.sparse_products kernels.triton.generated",
        "the graph and backward; compiled kernels over raw arrays and their registry",
    ),
    ("arrays.tensor", "Tensor: an Array with an edge in the graph"),
    (
        "ops.dispatch autograd.backward_call",
        "definition and call of ops, in-place changes, and binding to names; `backward` and `grad`",
    ),
    ("ops", "definitions of operations with their gradients"),
    (
        "arrays.parameter autograd.batching autograd.forward_mode autograd.tensor_ns files.storage",
        "Parameter; gradient formulas over Tensors, forward mode, vmap; storages",
    ),
    ("autograd", "Function, checkpointing, gradcheck, hooks on the graph"),
    (
        "amp cuda cuda.amp cuda.comm cuda.nvtx fft files linalg random special random.quasirandom",
        "PyTorch's function modules; precision, devices, archives",
    ),
    ("files.serialization", "save and load"),
    ("distributed", "process groups, collectives, gradient buckets"),
    ("optim nn", "optimizers; layers, DistributedDataParallel"),
    (
        "func utils compiler utils.data.tokens utils.checkpoint_wrapper utils.selective_checkpoint utils.flop_counter distributions "
        "nn.attention.flex_attention profiler sparse tools vision files.audio files.sparse",
        "function transforms, data loading; compiled functions, distributions, sparse tensors, profiling, drawing, image data, WAV files",
    ),
    ("models", "language models and text generation"),
    ("accelerate accelerate.runs", "the training loop helper, parts of training scripts"),
    (
        "compat functional files.legacy files.legacy_storage files.trusted ops.library utils._python_dispatch",
        "PyTorch's other names and import paths, files of any objects",
    ),
    ("nested", "nested tensors"),
    (
        "distributed.comm_hooks distributed.device_mesh distributed.nn distributed.tensor distributed.fsdp distributed.checkpoint distributed.elastic "
        "distributed.join distributed.model_averaging distributed.stores",
        "sharded models, tensors and checkpoints; restarts",
    ),
    ("fx", "graphs of programs"),
    ("export", "exported programs"),
    ("onnx", "ONNX files"),
    ("__init__", "`import mytorch`"),
    (
        "cli __main__ cli.chat cli.local_server cli.torchrun playground",
        "`mytorchrun`, `python -m mytorch`, `python -m mytorch.playground`",
    ),
]
LAYER = {package: layer for layer, (packages, _) in enumerate(LAYERS) for package in packages.split()}


def name_of(path):
    """Returns the import name of a file, for example "mytorch.nn.linear", or the name of a package."""
    parts = ("mytorch", *path.relative_to(PACKAGE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in FILES}


def prefixes(path):
    """Yields the import name of a file without "mytorch.", and the names of the packages around it, from the inside out."""
    parts = (name_of(path).removeprefix("mytorch").strip(".") or "__init__").split(".")
    yield from (".".join(parts[:n]) for n in range(len(parts), 0, -1))


def package_of(path):
    """Returns the package in `LAYERS` or `EXTENSIONS` that a file belongs to; for other files the folder or file in mytorch/."""
    names = [*prefixes(path)]
    return next((name for name in names if name in LAYER or name in EXTENSIONS), names[-1])


def is_core(path):
    """Returns True for a file of the core, False for a file of an extension."""
    return EXTENSIONS.keys().isdisjoint(prefixes(path))


@functools.cache
def imports(path):
    """Returns (module, line) of each import in a file, including imports in functions, by a string, and by `lazy`.

    `from package import name` imports the submodule of that name if it exists, and otherwise the package. Imports for
    type checkers do not count.
    """
    return list(_imports(path))


def _imports(path):
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
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "_extensions.lazy":
            for inner in _lazy_modules(node, path):
                yield f"mytorch.{inner}", node.lineno
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and path.name != "_extensions.py":
            path_like = re.fullmatch(r"(mytorch(?:\.\w+)+)(?::\w+)?", node.value)
            if path_like and path_like[1] in MODULES:
                yield path_like[1], node.lineno


def _lazy_modules(call, path):
    """The modules, relative to mytorch/, in the tables of a call of `lazy` that are written as literals."""
    package = name_of(path).partition(".")[2]
    for argument in [*call.args[1:], *(keyword.value for keyword in call.keywords)]:
        if isinstance(argument, ast.Constant):
            yield from (f"{package}.{name}".strip(".") for name in argument.value.split())
        elif isinstance(argument, ast.Dict):
            yield from (key.value for key in argument.keys)


def _is_for_types(node):
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def arrows():
    """Returns {(file, imported file): [lines]}."""
    found = defaultdict(list)
    for path in FILES:
        for module, line in imports(path):
            target = MODULES.get(module)
            if target is not None and target != path:
                found[path, target].append(line)
    return found


def upward_imports(found=None):
    """Returns the imports from a lower layer of a higher one: (file, imported file, lines), relative to mytorch/."""
    found = arrows() if found is None else found
    return [
        (str(a.relative_to(PACKAGE)), str(b.relative_to(PACKAGE)), lines)
        for (a, b), lines in found.items()
        if LAYER[package_of(b)] > LAYER[package_of(a)]
    ]


def cycles(found=None):
    """Returns groups of files that import each other in a loop (Tarjan's strongly connected components)."""
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
    """Returns the table of layers in docs/architecture.md."""
    rows = ["| layer | packages (extensions in italics) | contents |", "|---|---|---|"]
    for layer, (packages, contents) in enumerate(LAYERS):
        names = ", ".join(f"*`{name}`*" if name in EXTENSIONS else f"`{name}`" for name in packages.split())
        rows.append(f"| {layer} | {names} | {contents} |")
    return "\n".join(rows)


def marked(text):
    """Splits a document at the marks around the table: (text up to it, the table, text after it)."""
    begin, end = "<!-- layers: generated by tests/layers.py -->\n", "\n<!-- end of layers -->"
    head, rest = text.split(begin)
    body, tail = rest.split(end)
    return head + begin, body, end + tail


SPACE = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING, tokenize.ENDMARKER
}  # fmt: skip


def lines():
    """Returns {package: lines of its .py files}."""
    sizes = defaultdict(int)
    for path in FILES:
        sizes[package_of(path)] += path.read_text().count("\n")
    return sizes


def code_lines(path):
    """Returns the lines of a file that hold code: neither blank, nor a comment, nor part of a docstring."""
    text = path.read_text()
    numbers = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in SPACE:
            numbers.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and ast.get_docstring(
            node
        ):
            numbers.difference_update(range(node.body[0].lineno, node.body[0].end_lineno + 1))
    return len(numbers)


def core_code_lines():
    """Returns the lines of code in the core."""
    return sum(code_lines(path) for path in FILES if is_core(path))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="write the table of layers into docs/architecture.md")
    parser.add_argument("--dot", action="store_true", help="print the packages and their imports for Graphviz")
    options = parser.parse_args()
    found = arrows()
    if options.write:
        page = ROOT / "docs" / "architecture.md"
        head, _, tail = marked(page.read_text())
        page.write_text(head + table() + tail)
    elif options.dot:
        pairs = sorted({(package_of(a), package_of(b)) for a, b in found if package_of(a) != package_of(b)})
        print("digraph mytorch {", *(f'  "{a}" -> "{b}";' for a, b in pairs), "}", sep="\n")
    else:
        sizes = lines()
        core = sum(count for package, count in sizes.items() if package not in EXTENSIONS)
        print(f"{'core':20}{core:7} lines, {core_code_lines()} of code")
        for packages, _ in reversed(LAYERS):
            core = [f"{name} {sizes[name]}" for name in packages.split() if name not in EXTENSIONS]
            print(f"    {'  '.join(core)}" if core else "", end="\n" if core else "")
        print(f"{'extensions':20}{sum(sizes[name] for name in EXTENSIONS):7} lines")
        for name, purpose in EXTENSIONS.items():
            print(f"    {name:16}{sizes[name]:7}  {purpose}")
        print(f"{sum(sizes.values())} lines, {len(FILES)} files, {len(found)} imports")
        for a, b, where in upward_imports(found):
            print(f"upward import: {a}:{where[0]} imports {b}")
        for group in cycles(found):
            print(f"cycle: {', '.join(group)}")


if __name__ == "__main__":
    main()
