"""Writes mytorch/compat/signatures.txt: the signatures of PyTorch's functions, by which PyTorch mode checks arguments.

Run it with PyTorch installed: `python docs/make_signatures.py`. A line has the name of a function and its overloads,
separated by `|`. An argument is `name:kinds`, followed by `=` if it has a default; `*` starts the arguments that are
passed by name only. `compat/signatures.py` explains the kinds.
"""

import ast
import inspect
import pathlib
import re

import torch

import mytorch

ROOT = pathlib.Path(__file__).parent.parent
STUBS = pathlib.Path(torch.__file__).parent / "_C"
KINDS = {
    "Tensor": "T", "Number": "n", "_complex": "n", "_int": "i", "int": "i", "SymInt": "i", "torch.SymInt": "i", "torch.SymFloat": "n",
    "_float": "f", "float": "f", "_bool": "b", "bool": "b", "Literal[True]": "b", "Literal[False]": "b", "_dtype": "d", "str": "s",
    "_size": "I", "Sequence[_int]": "I", "Sequence[int]": "I", "Sequence[_int | SymInt]": "I", "DeviceLikeType": "D", "_device": "D",
    "tuple[Tensor, ...]": "L", "list[Tensor]": "L", "tuple[Tensor | None, ...]": "O", "list[Tensor | None]": "O", "Generator": "G", "None": "?",
    "Sequence[_float]": "F", "Sequence[float]": "F", "Sequence[Number | _complex]": "N",
}  # fmt: skip
OF_SCHEMAS = {
    "Tensor": "T", "number": "n", "int": "i", "float": "f", "bool": "b", "str": "s", "List[int]": "I", "List[Tensor]": "L",
    "List[Optional[Tensor]]": "O", "Generator": "G", "Device": "D", "List[float]": "F", "Layout": "a", "List[number]": "N",
}  # fmt: skip
# Methods that take any object, or have a parser of their own.
ANY = set(
    "to type numpy size stride item tolist new new_tensor backward register_hook requires_grad_ set_ apply_ map_ map2_ storage data_ptr cuda "
    "cpu element_size dim ndimension detach is_contiguous contiguous as_subclass module_load record_stream get_device has_names align_to "
    "rename rename_ refine_names names".split()
)


# Python functions of PyTorch -> the operators that they pass their arguments to; the functions of two returns are dispatched by a value.
OPERATORS = {
    "cross_entropy": "cross_entropy_loss", "dropout1d": "feature_dropout", "dropout2d": "feature_dropout", "dropout3d": "feature_dropout",
    "grid_sample": "grid_sampler", "nll_loss": "nll_loss_nd",
}  # fmt: skip
ARGUMENTS = {"training": "train"}
BY_HAND = {
    "unique": ["input:T sorted:b= return_inverse:b= return_counts:b= dim:i?="],
    "unique_consecutive": ["input:T return_inverse:b= return_counts:b= dim:i?="],
}


def _kinds(annotation):
    """Returns the letters of a type of a stub; `.` for a type that is not checked."""
    text = annotation if isinstance(annotation, str) else ast.unparse(annotation)
    parts, depth, start = [], 0, 0
    for i, char in enumerate(text + "|"):
        depth += (char == "[") - (char == "]")
        if char == "|" and not depth:
            parts.append(text[start:i].strip())
            start = i + 1
    letters = [KINDS.get(part, ".") for part in parts]
    return "." if "." in letters else "".join(sorted(set(letters)))


def _overload(function, method):
    """Returns the text of one overload of a stub."""
    given, items = function.args, []
    positional = [*given.posonlyargs, *given.args]
    required = len(positional) - len(given.defaults)
    for i, arg in enumerate(positional):
        if method and not i:
            continue
        letters = _kinds(arg.annotation) if arg.annotation else "."
        if i >= required and ast.unparse(given.defaults[i - required]) == "()":  # None stands for an empty list
            letters += "?"
        items.append(f"{arg.arg}:{letters}{'=' * (i >= required)}")
    if given.vararg:
        items.append(f"*{given.vararg.arg}:{_kinds(given.vararg.annotation)}")
    if given.kwonlyargs:
        items += ["*"] * (not given.vararg)
        for arg, default in zip(given.kwonlyargs, given.kw_defaults, strict=True):
            items.append(f"{arg.arg}:{_kinds(arg.annotation)}{'=' * (default is not None)}")
    return " ".join(items)


def of_stubs(body, names, method=False):
    """Returns {name: overloads} of the definitions of a stub."""
    found = {}
    for item in body:
        if isinstance(item, ast.FunctionDef) and item.name in names and not (method and item.name in ANY):
            found.setdefault(item.name, []).append(_overload(item, method))
    return found


def _schema_kinds(arg):
    text = str(arg.type)
    optional = re.fullmatch(r"Optional\[(.*)\]", text)
    inner = optional[1] if optional else text
    letters = OF_SCHEMAS.get(inner, ".")
    if arg.name == "dtype":
        letters = "d"
    if letters == "I" and arg.N is not None:
        letters = "Ii"
    return letters + "?" * bool(optional and letters != ".")


def of_schemas(prefix, names):
    """Returns {name: overloads} of the operators whose names begin with a prefix."""
    found, schemas = {}, {}
    for schema in torch._C._jit_get_all_schemas():
        if schema.name.startswith("aten::" + prefix):
            schemas.setdefault(schema.name[6 + len(prefix) :], []).append(schema)
    for name in names & schemas.keys():
        out = any(a.is_out for s in schemas[name] for a in s.arguments)
        for schema in schemas[name]:
            if any(a.is_out for a in schema.arguments):
                continue
            items, keyword = [], False
            for arg in schema.arguments:
                if arg.kwarg_only and not keyword:
                    items.append("*")
                    keyword = True
                given = "input" if arg.name == "self" else arg.name
                letters = _schema_kinds(arg) + "?" * (arg.default_value == [])
                items.append(f"{given}:{letters}{'=' * arg.has_default_value()}")
            if out:
                items += ["*"] * (not keyword) + ["out:.="]
            found.setdefault(name, []).append(" ".join(items))
    return found


def _schemas():
    """Returns {operator: {argument: set of kinds}}."""
    schemas = {}
    for schema in torch._C._jit_get_all_schemas():
        if schema.name.startswith("aten::") and not any(a.is_out for a in schema.arguments):
            types = schemas.setdefault(schema.name[6:], {})
            for arg in schema.arguments:
                types.setdefault("input" if arg.name == "self" else arg.name, set()).add(_schema_kinds(arg))
    return schemas


def of_python(module, names, schemas):
    """Returns the signatures of PyTorch's Python functions, with the types of the operators that they call."""
    found = {}
    for name in sorted(names):
        function = getattr(module, name, None)
        types = schemas.get(OPERATORS.get(name, name), {})
        if inspect.isbuiltin(function):  # a binding of the operator itself
            found.update(of_schemas("", {name}))
        function = getattr(module, f"_{name}", function) if name.startswith("max_pool") else function
        if not inspect.isfunction(function) or name.endswith("_with_indices"):
            continue
        items = []
        for p in inspect.signature(function).parameters.values():
            if p.kind is p.VAR_KEYWORD:
                break
            if p.kind is p.KEYWORD_ONLY and not any(item[0] == "*" for item in items):
                items.append("*")
            own = types.get(ARGUMENTS.get(p.name, p.name), ())
            letters = next(iter(own)) if len(own) == 1 and p.name not in ("reduction", "inplace") else "."
            if p.kind is p.VAR_POSITIONAL or (
                isinstance(p.default, str) and "s" not in letters
            ):  # the operator receives others
                letters = "."
            if p.default is None and letters != ".":
                letters = letters.rstrip("?") + "?"
            items.append(f"{'*' * (p.kind is p.VAR_POSITIONAL)}{p.name}:{letters}{'=' * (p.default is not p.empty)}")
        else:
            found[name] = [" ".join(items)]
    return found


def main():
    stub = ast.parse((STUBS / "_VariableFunctions.pyi").read_text())
    classes = ast.parse((STUBS / "__init__.pyi").read_text())
    tensor = next(c for c in classes.body if isinstance(c, ast.ClassDef) and c.name == "TensorBase")
    own = {n for n in dir(torch) if n[0] != "_" and hasattr(mytorch, n) and inspect.isbuiltin(getattr(torch, n))}
    python = {n for n in torch.functional.__all__ if hasattr(mytorch, n) and inspect.isfunction(getattr(torch, n))} - {
        "split"
    }
    methods = {n for n in dir(torch.Tensor) if n[0] != "_" and inspect.ismethoddescriptor(getattr(torch.Tensor, n))}
    functional = {n for n in dir(torch.nn.functional) if n[0] != "_" and hasattr(mytorch.nn.functional, n)}
    schemas = _schemas()
    sections = {
        "": {**of_stubs(stub.body, own), **of_python(torch, python, schemas), **BY_HAND},
        "Tensor": of_stubs(tensor.body, methods, method=True),
        "nn.functional": of_python(torch.nn.functional, functional, schemas),
    }
    for module in ("linalg", "fft", "special"):
        names = {n for n in dir(getattr(torch, module)) if inspect.isbuiltin(getattr(getattr(torch, module), n))}
        sections[module] = of_schemas(module + "_", names)
    lines = []
    for section, found in sections.items():
        lines.append(f"[{section}]")
        lines += [f"{name} " + " | ".join(dict.fromkeys(found[name])) for name in sorted(found)]
    (ROOT / "mytorch/compat/signatures.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
