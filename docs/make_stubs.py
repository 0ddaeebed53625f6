"""Generate the type stubs (`*.pyi`) of modules whose names are created at run time, from the imported library.

    python docs/make_stubs.py            # writes the stubs
    python docs/make_stubs.py --check    # prints the outdated stubs and exits with 1 if there are any

Many public names have no `def` statement that a type checker or an editor could read: methods of `Tensor`, functions of `mytorch`,
`nn.functional` and `linalg`, and layers created from tables. Their signatures come from the ops (`Op.__signature__`) and from
`inspect.signature`. An annotated argument keeps its annotation. Other arguments get the type that `stub_tables.py` lists for the name.
The stub of a package exports the imported names (`from .linear import Linear as Linear`), as PEP 484 requires.
"""

import ast
import enum
import functools
import importlib
import inspect
import keyword
import re
import sys
import textwrap
import types
import typing
from pathlib import Path

from stub_tables import (
    ARGUMENTS,
    CLASS_EXTRAS,
    DUNDERS,
    FIELDS,
    FIELDS_OF,
    HEADER,
    HELPERS,
    HOME,
    INTERNAL,
    MODULES,
    OPERATORS,
    OVERLOADS,
    PROPERTIES,
    RESULTS_OF,
    RETURNS,
    SPECIFIC,
    SURE,
    SURFACES,
    VARIADIC,
)

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))


def home_of(value, default=None):
    """Returns the name of the module that defines a value. The `__module__` of classes such as `Tensor` is `mytorch`."""
    home = getattr(value, "__module__", default)
    shown = {"Tensor": "mytorch.arrays.tensor", "device": "mytorch.arrays.devices", "dtype": "mytorch.arrays.dtypes"}
    return shown.get(getattr(value, "__name__", None), home) if home == "mytorch" else home


class Stub:
    """The stub of one module: imports, named tuples, and the body."""

    def __init__(self, module):
        self.module = module
        self.name = module.__name__
        self.exports = module.__file__.endswith("__init__.py") or self.name.removeprefix("mytorch.") in SURFACES
        self.own = (self.name + ".").removeprefix("mytorch.")  # "linalg."
        self.imports, self.tuples, self.body = set(), {}, []
        for name, value in sorted(self.names().items()):
            self.add(name, value)

    @property
    def path(self):
        return Path(self.module.__file__).with_suffix(".pyi")

    def names(self):
        """Returns the names for the stub: public names, and private names that the module defines or that other modules import."""
        required, listed = IMPORTED.get(self.name, set()), vars(self.module).get("__all__")
        result = {}
        for name in dir(self.module):
            home = home_of(getattr(self.module, name), self.name)
            public = name in listed if listed else not name.startswith("_") and (self.exports or home == self.name)
            value = getattr(self.module, name)
            base = isinstance(value, type) and home == self.name and value.__name__ == name
            base = base and not issubclass(value, types.ModuleType)
            public = public and (home == self.name or not (inspect.isfunction(value) and home.startswith(HELPERS)))
            if name in required or public or base or name == "__version__":
                result[name] = value
        return result

    def text(self):
        for name, home in HOME.items():
            if home != self.name and f"from {home} import {name} as {name}" not in self.imports:
                self.imports.add(f"from {home} import {name}")
        self.imports -= {line.rpartition(" as ")[0] for line in self.imports}
        tuples = "".join(
            f"\nclass {name}(NamedTuple):\n" + "".join(f"    {f}: Tensor\n" for f in fields.split())
            for fields, name in sorted(self.tuples.items())
        )
        text = HEADER.format(imports="\n".join(sorted(self.imports))) + tuples + "\n" + "\n".join(self.body) + "\n"
        return without_unused(text)

    def add(self, name, value):
        home = home_of(value)
        if isinstance(value, types.ModuleType):
            self.add_module(name, value)
        elif isinstance(value, type) and home == self.name and value.__name__ == name and not made_from_table(value):
            self.body += self.class_lines(name, value)
        elif isinstance(value, type):
            self.add_class(name, value, home)
        elif callable(value) and (inspect.isfunction(value) or hasattr(value, "op") or hasattr(value, "__signature__")):
            inner = getattr(value, "__wrapped__", None)
            plain = getattr(value, "asks", None) is value and not hasattr(value, "spellings")
            source = inner if plain and isinstance(inner, types.FunctionType) else value  # leads to the definition
            home = home_of(source)
            if home != self.name and is_typed(source) and exported_by(home, source.__name__) is source:
                self.imports.add(f"from {home} import {source.__name__} as {name}")
            else:
                self.body += self.function_lines(name, value, "mytorch")
        elif callable(value) and not isinstance(value, type(np_dtype())):
            self.body.append(f"{name}: Callable[..., Any]")
        else:
            self.body.append(f"{name}: {self.constant(value)}")

    def add_module(self, name, value):
        full = value.__name__
        place = ROOT.joinpath(*full.split("."))
        if full.startswith("mytorch.") and (place.with_suffix(".py").is_file() or (place / "__init__.py").is_file()):
            package, _, last = full.rpartition(".")
            self.imports.add(f"from {package} import {last} as {name}")

    def add_class(self, name, value, home):
        """Adds a class of another module: an import if the source has the class, otherwise the whole class."""
        if home and home.startswith("mytorch") and home != self.name and made_constructor(value):
            self.imports.add(f"from {home} import {value.__name__} as _{name}")
            parameters = self.parameters(inspect.signature(value), value.__name__)
            self.body += [f"class {name}(_{name}):", f"    def __init__(self, {parameters}) -> None: ..."]
        elif home and home.startswith("mytorch") and made_from_table(value):
            self.body += self.class_lines(name, value, only=("__init__", "forward"))
        elif home and home.startswith("mytorch") and home != self.name:
            self.imports.add(f"from {home} import {value.__name__} as {name}")
        elif home == self.name:
            self.body.append(f"{name} = {value.__name__}")
        elif home == "builtins":
            self.body.append(
                f"{name} = _{value.__name__}" if value in (bool, int, float, complex) else f"{name}: type[Any]"
            )

    def constant(self, value):
        kind = type(value)
        if kind in (bool, int, float, complex):
            return "_" + kind.__name__
        return {"str": "str", "NoneType": "None", "dtype": "_dtype", "device": "_device", "Generator": "Generator"}.get(
            kind.__name__, "Any"
        )

    # -- classes -------------------------------------------------------------------------------------------------

    def class_lines(self, name, cls, only=None):
        base, lines = CLASS_EXTRAS.get(name, (None, []))
        if base is None:
            bases = [self.annotation(b) for b in cls.__bases__ if b is not object]
            base = ", ".join(b for b in bases if b not in ("Any", name))
        lines = list(lines)
        if issubclass(cls, enum.Enum):
            return [f"class {name}({base}):", *(f"    {member.name} = {member.value!r}" for member in cls)]
        known = {re.sub(r"^def |[(:].*", "", line) for line in lines}
        for member, value in sorted(vars(cls).items()):
            private = member.startswith("_") and member not in DUNDERS and cls.__name__ not in CLASS_EXTRAS
            strange = member.startswith("__") and member not in DUNDERS
            inherited = name == "Array" and hasattr(exported_by("mytorch", "Tensor"), member)
            if (only and member not in only) or private or strange or inherited or member in known:
                continue
            lines += self.member_lines(member, value, name, cls)
            known.add(member)
        lines += [] if only else [f"{n}: Any" for n in sorted(attributes_set(cls) - known)]
        return [f"class {name}({base}):" if base else f"class {name}:", *(f"    {line}" for line in lines or ["..."])]

    def member_lines(self, name, value, owner, cls):
        if isinstance(value, property):
            declared = inspect.signature(value.fget).return_annotation
            kind = PROPERTIES.get(name, "Any") if declared is inspect.Signature.empty else self.annotation(declared)
            lines = ["@property", f"def {name}(self) -> {kind}: ..."]
            taken = "Any" if name in ("data", "grad") else kind
            return lines + ([f"@{name}.setter", f"def {name}(self, value: {taken}) -> None: ..."] if value.fset else [])
        if isinstance(value, (staticmethod, classmethod)):
            word = type(value).__name__
            return [
                f"@{word}",
                *self.function_lines(name, value.__func__, owner, first={"classmethod": "cls"}.get(word)),
            ]
        if name == "__init__" and "__signature__" in vars(cls):
            return [
                f"def __init__(self, {self.parameters(inspect.signature(cls), cls.__name__)}) -> None: ...".replace(
                    ", )", ")"
                )
            ]
        if inspect.isfunction(value) or hasattr(value, "op") or hasattr(value, "__signature__"):
            return self.function_lines(name, value, owner, first="self")
        if name == "__hash__":
            return ["def __hash__(self) -> _int: ..."]
        if name.startswith("__") or isinstance(value, types.MemberDescriptorType):
            return []
        return [f"{name}: {PROPERTIES.get(name) or self.constant(value)}"]

    # -- functions -----------------------------------------------------------------------------------------------

    def function_lines(self, name, function, owner, first=None):
        """Returns the lines of a function. A comment names its file if another file than the module of the stub defines it."""
        lines = self._function_lines(name, function, owner, first)
        code = getattr(inspect.unwrap(function), "__code__", None)
        if code is not None and code.co_filename not in (self.module.__file__, "<string>"):
            file = Path(code.co_filename)
            lines[-1] += f"  # {file.relative_to(ROOT).as_posix()}" if file.is_relative_to(ROOT) else ""
        return lines

    def _function_lines(self, name, function, owner, first=None):
        overloads = (
            OVERLOADS.get(f"{'Tensor' if owner == 'Array' else owner}.{name}", OVERLOADS.get(name))
            if self.library(function)
            else None
        )
        if overloads and (first is None or owner in ("Tensor", "Array")):
            lines = []
            lead = "" if f"{owner}.{name}" in OVERLOADS and first is None else f"{first or 'input: Tensor'}, "
            for overload in overloads:
                parameters, _, result = overload.rpartition(" -> ")
                fields = result.strip("{}")
                result = self.named_tuple(fields) if result.startswith("{") else result
                lines += ["@overload", f"def {name}({lead}{parameters}) -> {result}: ..."]
            return lines
        signature = inspect.signature(function)
        twin = name.endswith("_") and first == "self" and owner in ("Tensor", "Array")
        if twin and "args" in signature.parameters and hasattr(exported_by("mytorch", "Tensor"), name[:-1]):
            signature = inspect.signature(
                getattr(exported_by("mytorch", "Tensor"), name[:-1])
            )  # transpose_ as transpose
        end = f" -> {self.result(name, function, signature, first, owner)}: ..."
        end += "  # type: ignore[override]" if name in ("__eq__", "__ne__") else ""
        texts = [self.parameters(signature, name, function, first, without=("out",) if twin else (), owner=owner)]
        others = [w for w in getattr(function, "spellings", ()) if w != first and not keyword.iskeyword(w)]
        while others:  # other names of arguments, such as NumPy's `axis` for `dim`
            words = {function.spellings[w]: w for w in reversed(others)}
            others = [w for w in others if w not in words.values()]
            texts.append(self.parameters(signature, name, function, first, owner=owner, words=words))
        return [
            line for text in texts for line in (["@overload"] if len(texts) > 1 else []) + [f"def {name}({text}){end}"]
        ]

    def parameters(self, signature, name, function=None, first=None, without=(), owner=None, words=None):
        """Returns the arguments as text. `words` maps arguments to other names."""
        op = getattr(function, "op", None)
        out, starred = [], False
        layer = name == "forward" or function is None
        known = layer or (first == "self" and owner == "Tensor") or self.library(function)
        for i, p in enumerate(signature.parameters.values()):
            if p.name in without:
                continue
            if i == 0 and first:
                out.append(first)
                continue
            if p.kind is p.VAR_POSITIONAL:
                starred = True
                out.append(f"*{p.name}: {self.kind_of(p, name, VARIADIC.get(p.name, 'Any'))}")
                continue
            if p.kind is p.VAR_KEYWORD:
                out.append(f"**{p.name}: {self.kind_of(p, name, 'Any')}")
                continue
            if p.kind is p.KEYWORD_ONLY and not starred:
                out.append("*")
                starred = True
            kind = self.kind_of(p, name, None, op, known)
            default = "" if p.default is p.empty else f" = {default_text(p.default)}"
            out.append(f"{(words or {}).get(p.name, p.name)}: {kind}{default}")
        return ", ".join(out)

    def kind_of(self, p, name, fallback=None, op=None, known=True):
        """Returns the type of a parameter, from its annotation, the tables, or its default."""
        if p.annotation is not p.empty:
            kind = self.annotation(p.annotation)
            return f"{kind} | None" if p.default is None and not re.search(r"\b(Any|None)$", kind) else kind
        kind = (
            SPECIFIC.get(f"{name if name[:2] == '__' else name.rstrip('_')}.{p.name}")
            or fallback
            or (ARGUMENTS.get(p.name) if known or p.name in SURE else None)
        )
        if name in BINARY and p.name == "other":
            kind = "_Operand"
        if kind is None and op is not None and p.name in op.inputs:
            kind = "Tensor"
        if kind is None or (
            type(p.default) in (bool, str)
            and type(p.default).__name__ not in kind
            and kind not in ("Any", "_Device", "_DType")
        ):
            plain = {bool: "_bool", int: "_int", float: "_float", str: "str", tuple: "Sequence[Any]"}
            kind = plain.get(type(p.default), "Any")
        if type(p.default) is float and kind in ("_int", "_bool"):
            kind = "_Number"
        return (
            kind if p.default is not None or kind in ("Any", "_Device") or kind.endswith("None") else f"{kind} | None"
        )

    def result(self, name, function, signature, first, owner):
        declared = signature.return_annotation
        op = getattr(function, "op", None)
        if declared is not signature.empty and op is None:
            return self.annotation(declared)
        if name in RESULTS_OF.get(owner, {}):
            return RESULTS_OF[owner][name]
        if name in COMPARISONS or re.fullmatch(rf"__r?({'|'.join(OPERATORS)})__", name):
            return "Tensor"
        in_place = (name.endswith("_") and not name.startswith("_")) or (name[:3] == "__i" and name[3:-2] in OPERATORS)
        if first == "self" and in_place:
            return "Self"
        fields = FIELDS_OF.get(self.own + name) or (FIELDS.get(name) if name not in RETURNS else None)
        if fields:
            return self.named_tuple(fields)
        if self.own + name in RETURNS or name in RETURNS:
            return RETURNS.get(self.own + name, RETURNS.get(name)).strip()
        if op is not None and op.outputs is not None:
            return "tuple[Tensor, ...]" if op.outputs == "list" else f"tuple[{', '.join(['Tensor'] * len(op.outputs))}]"
        layer = name == "forward" and inspect.unwrap(function).__module__.startswith("mytorch.nn.")
        return "Tensor" if layer or self.library(function) or (owner == "Tensor" and name[0] != "_") else "Any"

    def library(self, function):
        """Returns True for an op, and for a function of a module that contains functions of tensors."""
        home = inspect.unwrap(function).__module__ or ""
        return home.startswith(
            tuple(
                f"mytorch.{w}"
                for w in "ops nn.functional linalg fft special functional compat.names compat.nn_functions".split()
            )
        )

    def named_tuple(self, fields):
        return self.tuples.setdefault(fields, "_" + "_".join(fields.split()))

    def annotation(self, kind):
        """Returns an annotation as text, and adds the imports of its names."""
        if isinstance(kind, str):
            return self.names_in(kind)
        if kind is None or kind is type(None):
            return "None"
        origin, arguments = typing.get_origin(kind), typing.get_args(kind)
        if isinstance(kind, types.UnionType) or origin is typing.Union:
            return " | ".join(self.annotation(a) for a in arguments)
        if origin is typing.Literal:
            return f"Literal[{', '.join(map(repr, arguments))}]"
        if origin is not None:
            inner = [
                "..."
                if a is ...
                else f"[{', '.join(map(self.annotation, a))}]"
                if isinstance(a, list)
                else self.annotation(a)
                for a in arguments
            ]
            return f"{self.annotation(origin)}[{', '.join(inner)}]" if inner else self.annotation(origin)
        if kind in (bool, int, float, complex):
            return "_" + kind.__name__
        if not isinstance(kind, type):
            return getattr(kind, "__name__", "Any") if kind is typing.Any else "Any"
        if kind.__module__ == "builtins":
            return kind.__name__
        home = "np" if kind.__module__ == "numpy" else home_of(kind)
        if home == "np":
            return f"np.{kind.__name__}"
        if made_from_table(kind) or "<" in kind.__qualname__:
            return "Any"
        if kind.__name__ in ("dtype", "device"):
            return f"_{kind.__name__}"
        if home not in (self.name, "typing", "collections.abc"):
            self.imports.add(f"from {home} import {kind.__name__}")
        return kind.__name__

    def names_in(self, text):
        """Returns a string annotation, resolved in the module if possible, otherwise Any."""
        for space in (vars(self.module), vars(importlib.import_module("mytorch.arrays.tensor")), vars(typing)):
            try:
                return self.annotation(eval(text, dict(space)))
            except Exception:
                continue
        return "Any"


def default_text(value):
    if value is None or type(value) in (bool, int, str):
        return repr(value)
    return repr(value) if type(value) is float and abs(value) < 1e300 else "..."


def np_dtype():
    from mytorch import float32

    return float32


def is_typed(function):
    return bool(getattr(inspect.unwrap(function), "__annotations__", None))


def exported_by(home, name):
    return getattr(importlib.import_module(home), name, None)


@functools.cache
def tree_of(module):
    return ast.parse(Path(module.__file__).read_text())


def made_from_table(cls):
    """Returns True if the source has no `class` statement with this name, because a function created the class."""
    module = sys.modules.get(home_of(cls))
    if not getattr(module, "__file__", None) or not cls.__module__.startswith("mytorch"):
        return False
    if module not in CLASSES:
        CLASSES[module] = {n.name for n in ast.walk(tree_of(module)) if isinstance(n, ast.ClassDef)}
    return cls.__name__ not in CLASSES[module]


def made_constructor(cls):
    """Returns True if the class statement declares the options of the constructor, without `def __init__`."""
    if made_from_table(cls) or "__init__" in methods_of(cls):
        return False
    return "__init__" in vars(cls) or isinstance(getattr(cls, "__signature__", None), inspect.Signature)


def methods_of(cls):
    tree = tree_of(sys.modules[home_of(cls)])
    result = [n for n in ast.walk(tree) if isinstance(n, ast.ClassDef) and n.name == cls.__name__]
    return {n.name for n in result[0].body if isinstance(n, ast.FunctionDef)} if result else set()


def attributes_set(cls):
    """Returns the public attributes that the methods of a class assign, read from the source."""
    for node in ast.walk(tree_of(sys.modules[home_of(cls)])):
        if isinstance(node, ast.ClassDef) and node.name == cls.__name__:
            return {
                n.attr for n in ast.walk(node)
                if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store) and ast.unparse(n.value) == "self" and n.attr[0] != "_"
            }  # fmt: skip
    return set()


def without_unused(text):
    """Returns a stub without unused imports and aliases. `import x as x` is an export and stays."""
    while True:
        tree = ast.parse(text)
        used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}
        lines, changed = text.split("\n"), False
        for node in tree.body:
            if isinstance(node, ast.ImportFrom):
                kept = [a for a in node.names if a.asname == a.name or (a.asname or a.name) in used]
                if len(kept) < len(node.names):
                    node.names, changed = kept, True
                    lines[node.lineno - 1] = ast.unparse(node) if kept else ""
            elif isinstance(node, ast.Assign) and node.targets[0].id.startswith("_") and node.targets[0].id not in used:
                lines[node.lineno - 1], changed = "", True
            elif isinstance(node, ast.Import) and node.names[0].asname == "np" and "np" not in used:
                lines[node.lineno - 1], changed = "", True
        text = re.sub(r"\n{3,}", "\n\n", "\n".join(lines))
        if not changed:
            return text


def imported_names():
    """Returns {module: the names that other modules of the library import from it}."""
    result = {}
    for path in (ROOT / "mytorch").rglob("*.py"):
        package = ["mytorch", *path.relative_to(ROOT / "mytorch").parts[:-1]]
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom):
                up = package[: len(package) - node.level + 1] if node.level else []
                home = ".".join([*up, *([node.module] if node.module else [])])
                result.setdefault(home, set()).update(a.name for a in node.names)
    return result


CLASSES = {}
IMPORTED = {}
BINARY, COMPARISONS = set(), {f"__{word}__" for word in "eq ne lt le gt ge neg pos abs invert getitem".split()}


def stubs():
    """Yields (path, text) of every stub."""
    mytorch = importlib.import_module("mytorch")
    for name in " ".join(mytorch._extensions.METHODS.values()).split():  # replaces the lazy placeholders by the methods
        getattr(mytorch.Tensor, name), getattr(mytorch.arrays.array.Array, name)
    modules = {"mytorch": mytorch}
    for path in sorted((ROOT / "mytorch").rglob("*.py")):
        short = ".".join(path.relative_to(ROOT / "mytorch").with_suffix("").parts).removesuffix(".__init__")
        if short not in ("__init__", "__main__") and (short in MODULES or not short.startswith(tuple(INTERNAL))):
            try:
                modules[f"mytorch.{short}"] = importlib.import_module(f"mytorch.{short}")
            except ImportError:  # it needs a package that is not installed
                continue
    IMPORTED.update(imported_names())
    from mytorch.ops.dispatch.record import RECORDS

    BINARY.update(r.name for r in RECORDS.values() if r.inputs[:2] == ("input", "other"))
    BINARY.update(f"__{side}{word}__" for side in ("", "r", "i") for word in OPERATORS)
    BINARY.update(f"__{word}__" for word in "eq ne lt le gt ge".split())
    BINARY.update("add sub subtract multiply div divide true_divide rsub".split())
    for name, module in sorted(modules.items()):
        short = name.removeprefix("mytorch.")
        package = module.__file__.endswith("__init__.py")
        internal = short.startswith(tuple(INTERNAL))
        if short in MODULES or (package and not internal and len(vars(module)) > 9):
            stub = Stub(module)
            yield stub.path, stub.text()


def torch_names():
    """Returns (path, text) of the table of PyTorch's names that `compat` has in packages of the core; see `_extensions.torch_names`."""
    from mytorch.compat import paths
    from mytorch.compat import stubs as absent

    lines, packages = [], {*paths.MORE_NAMES}
    for path in (ROOT / "mytorch").rglob("*.py"):
        if re.search(r"= (_extensions\.)?lazy\(\s*__name__", path.read_text()):
            packages.add(".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"))
    for package in sorted(packages):
        short = package[8:]
        found = {name: "compat.stubs" for name in absent.NAMES.get(short, "").split() if short in absent.NAMES}
        found.update(dict.fromkeys(() if short else absent.CONSTANTS, "compat.stubs"))
        known = (*paths.PATHS, *absent.MODULES)
        found.update({path.rpartition(".")[2]: "compat.paths" for path in known if path.rpartition(".")[0] == short})
        found.update(paths.more_names(package))
        if package == "mytorch.ops":  # operators that programs define
            found["*"] = "compat.paths"
        for home in sorted({*found.values()}):
            names = textwrap.wrap(" ".join(sorted(n for n in found if found[n] == home)), 130)
            lines += [f"{package} {home} {part}" for part in names]
    return ROOT / "mytorch" / "compat" / "torch_names.txt", "\n".join(lines) + "\n"


def main():
    check = "--check" in sys.argv
    path, table = torch_names()
    if not check:
        path.write_text(table)  # the stubs are made from modules that read it
        sys.modules["mytorch._extensions"].torch_names.cache_clear()
    required = {path: table, **dict(stubs())}
    stale = [path for path, text in required.items() if not path.is_file() or path.read_text() != text]
    orphans = [path for path in (ROOT / "mytorch").rglob("*.pyi") if path not in required]
    for path in stale if not check else ():
        path.write_text(required[path])
    for path in orphans if not check else ():
        path.unlink()
    stale = [str(path.relative_to(ROOT)) for path in (*stale, *orphans)]
    if check and stale:
        sys.exit(f"not up to date (run python docs/make_stubs.py): {', '.join(stale)}")
    print(f"{len(stale)} stubs written" if stale else "all stubs are up to date")


if __name__ == "__main__":
    main()
