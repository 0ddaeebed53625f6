"""Write the API reference as Markdown pages, from signatures and docstrings.

    PYTHONPATH=. python docs/make_reference.py reference     # into the folder `reference`, with an index.md

`reference_pages.py` lists the pages. Each public object has one full entry, on its home page. Other pages that show the
object, such as `mytorch.relu` for `nn.functional.relu`, link to that entry.
"""

import argparse
import functools
import importlib
import inspect
import re
import textwrap
from pathlib import Path

import formulas
from reference_pages import ABOUT, FUNCTION_OF_LAYER, GROUPS, INTERNAL, INTERNAL_ATTRIBUTES, SECTIONS, SELECTED, THEMES

ROOT = Path(__file__).resolve().parents[1]
PAGES = [page for pages in SECTIONS.values() for page in pages]
LISTS = ("Args", "Attributes", "Raises", "Shape", "See also")  # sections whose lines are items
HEADS = re.compile(r"(Args|Attributes|Raises|Shape|See also|Returns|Yields|Note|Warning|Source|Examples?):\s*$")
PATHS = re.compile(r"\b(?:mytorch|collections\.abc|typing|os)\.(?:\w+\.)*(?=[A-Za-z_])")
LONGEST_FORMULA = 90  # characters of a formula in a table
SPECIAL = re.compile(r"([\\`*_\[\]>|#])")


# -- pages and names ---------------------------------------------------------------------------------------------------


def title(page):
    """Returns the title of a page."""
    if page in THEMES:
        return f"mytorch: {THEMES[page][0]}"
    if page in GROUPS:
        return f"{page.split('.')[0] if page.count('.') == 1 else 'nn.functional'}: {GROUPS[page][0]}"
    return page if page.startswith("mytorch") else f"mytorch.{page}"


def navigation():
    """Returns the navigation of the reference: {section: [{title: page}]}."""
    short = {**{p: t[0] for p, t in THEMES.items()}, **{p: t[0] for p, t in GROUPS.items()}}
    return [
        {section: [{short.get(page, title(page)): f"reference/{page}.md"} for page in pages]}
        for section, pages in SECTIONS.items()
    ]


def module_of(page):
    """Returns the module of a page's names."""
    if page in GROUPS:
        page = "nn.functional" if page.startswith("nn.functional") else "nn"
    return importlib.import_module("mytorch" if page.startswith("mytorch") else f"mytorch.{page}")


@functools.cache
def public(path):
    """Returns {name: object} of the documented functions and classes that a module offers; "" stands for `mytorch`."""
    module = importlib.import_module("mytorch" if path in ("", "mytorch") else f"mytorch.{path}")
    names = getattr(module, "__all__", None) or [n for n in dir(module) if not n.startswith("_")]
    found = {n: getattr(module, n) for n in sorted(set(names), key=str.lower)}
    found = {n: v for n, v in found.items() if callable(v) and inspect.getdoc(v) and _home(v).startswith("mytorch")}
    own = {n: v for n, v in found.items() if _home(v).startswith(module.__name__)}
    found = own if own and not hasattr(module, "__all__") else found
    hidden = INTERNAL.get(path or "mytorch", "").split()
    return {n: v for n, v in found.items() if n not in hidden}


def _home(value):
    op = getattr(value, "op", None)
    return str(getattr(op or (inspect.unwrap(value) if callable(value) else value), "__module__", ""))


def behind(value):
    """Returns the op, function or class that a public object stands for, without the wrappers around it."""
    while True:
        inner = getattr(value, "op", None) or getattr(value, "__wrapped__", None)
        if inner is None or isinstance(value, type) or hasattr(value, "signature_extras"):
            return value
        value = inner


@functools.cache
def names_of(page):
    """Returns {name: object} of a page."""
    if page in SELECTED:
        module = module_of(page)
        return {n: getattr(module, n) for n in SELECTED[page][2].split() if hasattr(module, n)}
    if page in GROUPS:
        path = "nn.functional" if page.startswith("nn.functional") else "nn"
        return {n: v for n, v in public(path).items() if _group(path)[n] == page}
    if page == "mytorch.Tensor":
        return {"Tensor": module_of(page).Tensor}
    if page == "mytorch" or page in THEMES:
        return {n: v for n, v in public("mytorch").items() if _theme()[n] == page}
    if page == "nn" or page == "nn.functional":
        return {}
    return public(page)


@functools.cache
def _group(path):
    """Returns {name: page} of the names of `nn` or `nn.functional`."""
    pages = [p for p in GROUPS if p.startswith("nn.functional.") == (path == "nn.functional")]
    by_name = {n: p for p in pages for n in GROUPS[p][3].split()}
    by_module = {m: p for p in pages for m in GROUPS[p][2].split()}
    by_module |= {"nn.parallel.data_parallel": "nn.parallel", "nn.parallel.distributed": "nn.parallel"}
    return {
        n: by_name.get(n) or by_module.get(_home(v).removeprefix("mytorch."), pages[-1])
        for n, v in public(path).items()
    }


@functools.cache
def _theme():
    """Returns {name: page} of the names of `mytorch`."""
    by_name = {n: p for p in THEMES for n in THEMES[p][3].split()}
    by_module = {m: p for p in THEMES for m in THEMES[p][2].split()}
    found = {}
    for name, value in public("mytorch").items():
        home = _home(behind(value)).removeprefix("mytorch.")
        found[name] = by_name.get(name) or by_name.get(name.rstrip("_")) or by_module.get(home, "mytorch")
    return {**found, "Tensor": "mytorch.Tensor"}


def qualified(page, name):
    """Returns the full name of an entry, which is also its anchor."""
    if page.startswith("mytorch"):
        return f"mytorch.{name}"
    return f"mytorch.{page.split('.')[0] if page in GROUPS and page.count('.') == 1 else 'nn.functional' if page in GROUPS else page}.{name}"


@functools.cache
def homes():
    """Returns {id of the object behind a name: (page, name)}: where the full entry of each object is."""
    found = {}
    for page in PAGES:
        for name, value in names_of(page).items():
            if is_in_place(value):
                continue
            key, rank = id(behind(value)), _rank(page, name, value)
            if key not in found or rank < found[key][0]:
                found[key] = (rank, page, name)
    return {key: (page, name) for key, (_, page, name) in found.items()}


def _rank(page, name, value):
    """Returns a sort key for the pages that show an object; the smallest is its home."""
    inner = behind(value)
    renamed = getattr(inner, "__name__", name) != name
    home = _home(inner).removeprefix("mytorch.")
    distance = len(page) - len(page if home.startswith(page) else "") - (100 if home == page else 0)
    general = page == "mytorch" or (page not in THEMES and not page.startswith("nn.") and home.startswith("ops."))
    outside = not home.startswith(page) and home.split(".")[0] not in ("ops", "compat", "linalg", "functional")
    return (page == "cuda" and home != "cuda", renamed, general, outside and page.startswith("mytorch"), distance)


def is_in_place(value):
    """Returns True for in-place variants that are derived from another function."""
    return _home(value) == "mytorch.ops.dispatch.inplace"


@functools.cache
def index():
    """Returns {full name: (page, anchor)} of all entries, methods and attributes included."""
    found = {}
    for page in PAGES:
        for name, value in names_of(page).items():
            full = qualified(page, name)
            found.setdefault(full, (page, full))
            if isinstance(value, type) and homes().get(id(value)) == (page, name):
                for member in {**attributes(value), **methods(value)}:
                    found.setdefault(f"{full}.{member}", (page, f"{full}.{member}"))
    return found


SHORT = {"F": "nn.functional", "np": "numpy"}
ORDER = (
    "",
    "nn",
    "nn.functional",
    "Tensor",
    "autograd",
    "optim",
    "linalg",
    "special",
    "utils.data",
    "nn.utils",
    "nn.init",
    "func",
)


def find(name, page):
    """Returns (page, anchor) of the entry that a name in backticks refers to, or None.

    Args:
        name: a name such as `nn.Linear`, `F.relu`, `Tensor.view` or `view`.
        page: the page on which the name occurs. Its names come first.
    """
    name = re.sub(r"\(.*\)$", "", name)
    if not re.fullmatch(r"[A-Za-z_][\w.]*", name):
        return None
    name = name.removeprefix("mytorch.")
    first = name.partition(".")[0]
    if first in SHORT:
        name = SHORT[first] + name[len(first) :]
    own = module_of(page).__name__.removeprefix("mytorch").lstrip(".")
    for path in (own, *ORDER):
        target = index().get(".".join(filter(None, ("mytorch", path, name))))
        if target:
            return target
    return None


# -- links -------------------------------------------------------------------------------------------------------------


def link(text, target, page):
    """Returns a Markdown link to an entry."""
    there, anchor = target
    return f"[{text}]({'' if there == page else there + '.md'}#{anchor})"


def code(name, page, skip=()):
    """Returns a name in backticks, as a link if it is the name of an entry and not in `skip`."""
    target = None if name in skip or page is None else find(name, page)
    return link(f"`{name}`", target, page) if target else f"`{name}`"


@functools.cache
def _lines(path):
    return (ROOT / path).read_text(encoding="utf-8").splitlines()


def source(value, name):
    """Returns (path of the file, line) of the definition of an object, or None. An op's gradient follows its definition."""
    inner = behind(value.fget if isinstance(value, property) else value)
    inner = inner.func if isinstance(inner, functools.partial) else inner
    function = getattr(inner, "forward", inner) if not isinstance(inner, type) else inner
    path = line = None
    if isinstance(function, type):
        module = importlib.import_module(
            "mytorch.arrays.tensor" if function.__name__ == "Tensor" else function.__module__
        )
        path = Path(module.__file__)
    elif hasattr(function, "__code__"):
        path, line = Path(function.__code__.co_filename), function.__code__.co_firstlineno
    elif hasattr(function, "__func__"):
        return source(function.__func__, name)
    elif _home(function) and hasattr(importlib.import_module(_home(function)), "__file__"):
        path = Path(importlib.import_module(_home(function)).__file__)
    if path is None or not path.is_relative_to(ROOT / "mytorch"):
        return None
    path = path.relative_to(ROOT).as_posix()
    short = name.rpartition(".")[2]
    if line is None or getattr(function, "__name__", short) not in (short, short.rstrip("_")):
        line = _line_of(path, getattr(function, "__name__", short)) or line or _line_of(path, short) or 1
    return path, line


def _line_of(path, name):
    """Returns the line of a file that defines a name: by `class`, `def`, assignment, or an entry of a table."""
    for pattern in (rf"\s*(?:class|def) {name}\b", rf"(?:.*, )?{name}\b.* = ", rf".*[\"'\s,(]{name}\b"):
        for number, line in enumerate(_lines(path), 1):
            if re.match(pattern, line):
                return number
    return None


def source_link(place):
    """Returns a link to a line of a source page. HTML, since the anchors of lines are unknown to the check of links."""
    path, line = place
    return f'<a href="../source/{path}.html#__codelineno-0-{line}"><code>{path}:{line}</code></a>'


def sources():
    """Returns the paths of all files that entries link to."""
    found = set()
    for page in PAGES:
        for name, value in names_of(page).items():
            parts = {**attributes(value), **methods(value)} if isinstance(value, type) else {}
            found |= {place[0] for n, v in [(name, value), *parts.items()] if (place := source(v, n))}
    return sorted(found)


def related(name, value, page, listed=()):
    """Returns the links of an entry to related ones: in-place variant, method, function, layer, aliases; not those of `listed`."""
    found = []

    def add(label, full):
        if full in index() and index()[full] not in [target for _, target in found]:
            found.append((label, index()[full]))

    full = qualified(page, name)
    if isinstance(value, type):
        function = FUNCTION_OF_LAYER.get(name) or getattr(getattr(value, "_function", None), "__name__", name.lower())
        if page in GROUPS:
            add("function", f"mytorch.nn.functional.{function}")
    else:
        for layer, function in layers().items():
            if function == name and page.startswith("nn.functional"):
                add("layer", f"mytorch.nn.{layer}")
        add("in-place variant", full + "_")
        if page != "mytorch.Tensor":
            add("method", f"mytorch.Tensor.{name}")
            add("in-place method", f"mytorch.Tensor.{name}_")
    for other, targets in aliases().get(id(behind(value)), {}).items():
        if other != full and not is_in_place(value):
            add("alias", other)
        del targets
    found = [(label, t) for label, t in found if t[1] != full and link("", t, page)[3:-1] not in listed]
    return ", ".join(f"{link(f'`{_shown(t[1])}`', t, page)} ({label})" for label, t in found)


def _shown(full):
    return full.removeprefix("mytorch.") if full.startswith(("mytorch.Tensor.", "mytorch.nn")) else full


@functools.cache
def layers():
    """Returns {layer: function of `nn.functional`}."""
    found = {}
    for name, value in public("nn").items():
        if getattr(value, "__name__", name) == name:
            function = getattr(getattr(value, "_function", None), "__name__", None)
            found[name] = FUNCTION_OF_LAYER.get(name) or function or name.lower()
    return found


@functools.cache
def aliases():
    """Returns {id of an object: {full name: page}} of all names of each object."""
    found = {}
    for page in PAGES:
        for name, value in names_of(page).items():
            if not is_in_place(value):
                found.setdefault(id(behind(value)), {})[qualified(page, name)] = page
    return found


# -- docstrings as Markdown --------------------------------------------------------------------------------------------


def escaped(text, page=None, skip=()):
    """Returns prose as Markdown that shows it as it is. Names of entries in backticks become links."""
    pieces = re.split(r"(`[^`\n]+`)", text)
    pieces[::2] = [SPECIAL.sub(r"\\\1", p).replace("<", "&lt;") for p in pieces[::2]]  # `<` needs no backslash
    if page is not None:
        pieces[1::2] = [code(p[1:-1], page, skip) for p in pieces[1::2]]
    return re.sub(r"\\\*\\\*(?=\S)([^*\n]+[^\s*\\])\\\*\\\*", r"**\1**", "".join(pieces))  # bold


def items(lines, page=None, skip=()):
    """Returns the lines of a section as a list. A line with the first line's indentation begins an item."""
    found = []
    for line in textwrap.dedent("\n".join(lines)).splitlines():
        if line[:1].strip() or not found:
            found.append(re.sub(r"^[*-] ", "", line))
        else:
            found[-1] += " " + line.strip()
    named = re.compile(r"^([\w*, .()]{1,80}): (.*)$", re.S)
    rows = []
    for item in found:
        match = named.match(item)
        rows.append(f"* `{match[1]}`: {escaped(match[2], page, skip)}" if match else f"* {escaped(item, page, skip)}")
    return "\n".join(rows)


def paragraphs(text):
    """Returns the paragraphs of a text. Indented paragraphs that follow each other, as in a program, are one."""
    found = []
    for part in re.split(r"\n\s*\n", text):
        if part.startswith("    ") and found and found[-1].startswith("    "):
            found[-1] += "\n\n" + part
        elif part.strip():
            found.append(part)
    return found


def paragraph(text, page=None, skip=()):
    """Returns a paragraph of prose as Markdown; an indented one is a formula or code."""
    if text.startswith("    "):
        text = textwrap.dedent(text)
        formula = formulas.mathml(text)
        return f'<div class="formula">{formula}</div>' if formula else f"```text\n{text}\n```"
    if re.match(r"[*-] |\d+\. ", text):
        lines = re.sub(r"\n(?![*-] |\d+\. )\s*", " ", text).splitlines()
        return re.sub(r"^\\([*-]) ", r"\1 ", "\n".join(escaped(line, page, skip) for line in lines), flags=re.M)
    return escaped(text, page, skip)


def markdown(doc, page=None, skip=()):
    """Returns a docstring as Markdown: sections as lists, examples as code, formulas as MathML.

    Args:
        doc: the docstring, without indentation.
        page: the page that shows it, for links; without a page there are none.
        skip: names in backticks that do not become links, such as the names of arguments.
    """
    sections = [["", []]]
    for line in doc.splitlines():
        match = HEADS.match(line)
        if match:
            sections.append([match[1], []])
        elif line[:1].strip() and sections[-1][0]:
            sections.append(["", [line]])
        else:
            sections[-1][1].append(line)
    parts = []
    for head, lines in sections:
        body = "\n".join(lines).strip("\n")
        if head in LISTS:
            parts.append(f"**{head}**\n\n{items(lines, page, skip)}")
        elif head.startswith("Example"):
            parts.append(f"```pycon\n{textwrap.dedent(body)}\n```")
        else:
            body = textwrap.dedent(body) if head else body
            text = "\n\n".join(paragraph(p, page, skip) for p in paragraphs(body))
            parts.append(f"**{head}:** {text}" if head else text)
    return "\n\n".join(p for p in parts if p)


def summary(value, page=None):
    """Returns the first sentence of an object's docstring as Markdown for a table."""
    doc = inspect.getdoc(value) or ""
    first = re.split(r"\n\s*\n", doc)[0].replace("\n", " ")
    first = re.split(r"(?<=[^.][.])\s+(?=[A-Z`(])", first)[0]
    return escaped(first, page)


def formula(value):
    """Returns the first formula of a docstring that fits into one line as MathML, or an empty string."""
    for part in re.split(r"\n\s*\n", inspect.getdoc(value) or "")[1:]:
        if HEADS.match(part):
            break
        if part.startswith("    ") and len(part.strip().splitlines()) == 1 and len(part) <= LONGEST_FORMULA:
            return (formulas.inline(part) or "").replace("|", "&#124;")
    return ""


# -- entries -----------------------------------------------------------------------------------------------------------


def plain(signature):
    """Returns a signature, or one of its parameters, with short names of types and without quotes around them."""
    text = re.sub(r"(: |-> )'([^']*)'", r"\1\2", PATHS.sub("", str(signature)))
    text = re.sub(r"\b(device: )device \| str \| int \| None = None", "device=None", text)
    text = re.sub(r"\b(dtype: )dtype \| None = None", "dtype=None", text)
    text = re.sub(r"<(\w+\.\w+): [^>]*>", r"\1", text)  # members of an enum
    text = re.sub(r"<(?:function|class) '?(?:\w+\.)*(\w+)'?(?: at 0x\w+)?>", r"\1", text)
    return re.sub(r"Union\[([^\[\]]*(?:\[[^\[\]]*\][^\[\]]*)*)\]", lambda m: " | ".join(_alternatives(m[1])), text)


def _alternatives(text):
    """Returns the types of a Union, split at the commas outside of brackets."""
    return re.split(r", (?![^\[]*\])", text)


def signature(name, value):
    """Returns `name(arguments)` as a call; a long one has one line for each argument."""
    try:
        found = inspect.signature(value)
    except (TypeError, ValueError):
        return name
    if isinstance(value, type):
        found = found.replace(return_annotation=found.empty)
    line = f"{name}{plain(found)}"
    if len(line) <= 92:
        return line
    arguments = [plain(p) for p in found.parameters.values()]
    kinds = [p.kind for p in found.parameters.values()]
    if inspect.Parameter.KEYWORD_ONLY in kinds and inspect.Parameter.VAR_POSITIONAL not in kinds:
        arguments.insert(kinds.index(inspect.Parameter.KEYWORD_ONLY), "*")
    tail = line[line.rindex(") -> ") :] if ") -> " in line else ")"
    return "\n".join([f"{name}(", *(f"    {a}," for a in arguments), tail])


def parameters(value):
    """Returns the names of the parameters of a function or class."""
    try:
        return tuple(inspect.signature(value).parameters)
    except (TypeError, ValueError):
        return ()


def entry(page, name, value, level=2, owner=None):
    """Returns the entry of an object: heading, signature, docstring and links. A class is followed by its members."""
    full = qualified(page, name)
    skip = (*parameters(value), *(parameters(owner) if owner else ()), name, name.rpartition(".")[2])
    parts = [f"{'#' * level} `{name}` {{ #{full} }}"]
    if not isinstance(value, property):
        parts.append(f"``` {{.python .signature}}\n{signature(name, value)}\n```")
    doc = markdown(inspect.getdoc(value) or "", page, skip)
    parts.append(doc)
    place = source(value, name)
    links = [f"Source: {source_link(place)}"] if place else []
    # Without the links that the docstring has in its own "See also".
    listed = set(re.findall(r"\[`[^\]]*`\]\(([^)]*)\)", doc))
    near = related(name, value, page, listed) if level == 2 else related_method(name, page)
    links += [f"Related: {near}"] if near else []
    if links:
        parts.append(f'<p class="entry-links" markdown="span">{" · ".join(links)}</p>')
    text = "\n\n".join(parts) + "\n"
    if isinstance(value, type) and level == 2:
        for members in (attributes(value), methods(value)):
            for member, f in members.items():
                text += "\n" + entry(page, f"{name}.{member}", f, 3, value)
    return text


def related_method(name, page):
    """Returns the link of a method of Tensor to its in-place variant."""
    full = f"mytorch.{name}_"
    return f"{link(f'`{name}_`', index()[full], page)} (in-place variant)" if full in index() else ""


def methods(value):
    """Returns {name: function} of the documented public methods that a class defines itself."""
    if value.__name__ == "Array":  # has the methods of Tensor
        return {}
    if value.__name__ != "Tensor":
        found = {n: getattr(f, "__func__", f) for n, f in sorted(vars(value).items())}
        found = {n: f for n, f in found.items() if n[0] != "_" and _is_function(f) and f.__doc__}
        return {n: f for n, f in found.items() if source(f, n)}  # without the methods of a dict or an exception
    found = {n: getattr(value, n) for c in value.__mro__[:-1] for n in vars(c) if not n.startswith("_")}
    return {n: f for n, f in sorted(found.items()) if callable(f) and n not in INTERNAL["mytorch"].split()}


def _is_function(value):
    return callable(value) and not isinstance(value, type)


def attributes(value):
    """Returns {name: property} of the public properties that a class defines itself."""
    found = {n: p for n, p in sorted(vars(value).items()) if isinstance(p, property) and n[0] != "_"}
    if value.__name__ == "Array":
        return {}
    if value.__name__ == "Tensor":
        return {n: p for n, p in found.items() if n not in INTERNAL_ATTRIBUTES.split()}
    return {n: p for n, p in found.items() if p.__doc__ and source(p, n)}


def table(rows, page, formulas_too=False):
    """Returns a table with a row for each (name, object): the name as a link, the summary, and the formula."""
    shown = {name: formula(value) for name, value in rows} if formulas_too else {}
    lines = ["| Name | Summary and formula |" if any(shown.values()) else "| Name | Summary |", "|---|---|"]
    for name, value in rows:
        target = index().get(qualified(page, name)) or (page, qualified(page, name))
        text = summary(value) + (f"<br>{shown[name]}" if shown.get(name) else "")
        lines.append(f"| {link(f'`{name}`', target, page)} | {text} |")
    return "\n".join(lines)


# -- pages -------------------------------------------------------------------------------------------------------------


def page_of(page):
    """Returns (Markdown of a page, number of its names)."""
    if page == "mytorch.Tensor":
        return tensor_page()
    if page in ("nn", "nn.functional"):
        return overview(page)
    names = names_of(page)
    full, other = {}, {}
    for name, value in names.items():
        home = None if is_in_place(value) else homes()[id(behind(value))]
        (full if home == (page, name) else other)[name] = value
    parts = [f"# {title(page)}", about(page)]
    if page == "mytorch":
        links = "\n".join(f"* [{t[0]}]({p}.md): {escaped(t[1])}" for p, t in THEMES.items())
        parts.append(
            f"Other functions of `mytorch` have their own pages:\n\n{links}\n* [Tensor](mytorch.Tensor.md): attributes and methods."
        )
    if page == "mytorch.dtypes":
        parts.append(dtypes_and_devices())
    if len(full) > 1:
        parts.append(table(full.items(), page, page in GROUPS or page in THEMES))
    parts += [entry(page, n, v) for n, v in full.items()]
    if other:
        parts.append("## Aliases and in-place variants" if any(map(is_in_place, other.values())) else "## Aliases")
        parts.append("\n".join(alias(page, n, v) for n, v in other.items()))
    return "\n\n".join(p for p in parts if p) + "\n", len(names)


def alias(page, name, value):
    """Returns the line of a name whose full entry has another name or is on another page."""
    there, target = homes()[id(behind(value))] if id(behind(value)) in homes() else (page, name.rstrip("_"))
    full = qualified(page, name)
    shown = qualified(there, target) if there != page else target
    relation = "in-place variant of" if is_in_place(value) else "same as"
    anchor = (there, qualified(there, target))
    return f'* <span id="{full}"></span>`{name}`: {relation} {link(f"`{shown}`", anchor, page)}'


def about(page):
    """Returns the introduction of a page: of its theme or group, or of the docstring of its module."""
    for pages in (THEMES, GROUPS, SELECTED):
        if page in pages:
            text = escaped(pages[page][1], page)
            return text + ("\n\n" + rules() if page == "ops.dispatch.op" else "")
    return escaped(ABOUT[page], page)


def rules():
    """Returns the documentation of the arguments of an op's definition."""
    import mytorch.ops.dispatch.record as record

    return markdown("\n\n".join(re.split(r"\n\s*\n", inspect.getdoc(record))[1:]))


def overview(page):
    """Returns (the page that lists the groups of `nn` or `nn.functional`, number of names)."""
    groups = [p for p in SECTIONS[f"mytorch.{page}"] if p in GROUPS]
    parts = [f"# mytorch.{page}", about(page)]
    for group in groups:
        _, text, *_ = GROUPS[group]
        rows = [(n, v) for n, v in names_of(group).items() if homes().get(id(behind(v))) == (group, n)]
        parts += [f"## [{GROUPS[group][0]}]({group}.md)", escaped(text, page), _table_of(group, rows, page)]
    return "\n\n".join(parts) + "\n", sum(len(names_of(g)) for g in groups)


def _table_of(group, rows, page):
    return table(rows, page, formulas_too=True)


def tensor_page():
    """Returns (the page of Tensor, number of its attributes and methods)."""
    page = "mytorch.Tensor"
    tensor = names_of(page)["Tensor"]
    fields, every = attributes(tensor), methods(tensor)
    own, functions, in_place = {}, {}, {}
    for name, f in every.items():
        target = homes().get(id(behind(f)))
        base = every.get(name.rstrip("_"))
        if is_in_place(f) and base is not None:
            in_place[name] = f
        elif target and not is_in_place(f):
            functions[name] = target
        else:
            own[name] = f
    place = source(tensor, "Tensor")
    parts = [
        "# mytorch.Tensor",
        "## `Tensor` { #mytorch.Tensor }",
        f"``` {{.python .signature}}\n{signature('Tensor', tensor)}\n```",
        markdown(inspect.getdoc(tensor), page, parameters(tensor)),
        f'<p class="entry-links" markdown="span">Source: {source_link(place)}</p>',
        "## Attributes",
        _members("Tensor", fields, page),
        "## Methods",
        _members("Tensor", own, page),
        "## Methods that are also functions",
        "`x.name(…)` is equal to the function with `x` as its first argument.",
        "\n".join(
            ["| Method | Summary | Function |", "|---|---|---|"]
            + [_function_row(name, every[name], target, page) for name, target in functions.items()]
        ),
        "## In-place variants",
        "`x.name_(…)` writes the result of `x.name(…)` into `x` and returns `x`.",
        "\n".join(_in_place_line(name, functions, page) for name in in_place),
        "## Attributes in detail",
        *(entry(page, f"Tensor.{n}", f, 3, tensor) for n, f in fields.items()),
        "## Methods in detail",
        *(entry(page, f"Tensor.{n}", f, 3, tensor) for n, f in own.items()),
    ]
    return "\n\n".join(parts) + "\n", len(fields) + len(every)


def _members(owner, members, page):
    rows = [f"| {link(f'`{n}`', (page, f'mytorch.{owner}.{n}'), page)} | {summary(f)} |" for n, f in members.items()]
    return "\n".join(["| Name | Summary |", "|---|---|", *rows])


def _function_row(name, f, target, page):
    full = qualified(*target)
    cell = link(f"`{full}`", (target[0], full), page)
    return f'| <span id="mytorch.Tensor.{name}"></span>`{name}` | {summary(f)} | {cell} |'


def _in_place_line(name, functions, page):
    base = name.rstrip("_")
    anchor = (page, f"mytorch.Tensor.{base}")
    return f'* <span id="mytorch.Tensor.{name}"></span>`{name}`: in-place variant of {link(f"`{base}`", anchor, page)}'


def dtypes_and_devices():
    """Returns the tables of dtypes and devices."""
    import mytorch
    from mytorch.arrays import dtypes

    kinds = ("boolean", "integer", "floating point", "complex")
    names = {}
    for name in dir(mytorch):
        if isinstance(value := getattr(mytorch, name, None), mytorch.dtype):
            names.setdefault(value.name, []).append(name)
    rows = ["| Dtype | Aliases | Bytes per element | Kind | Range or precision |", "|---|---|---|---|---|"]
    for d in (*dtypes.ALL, *dtypes.FLOAT8):
        others = ", ".join(f"`mytorch.{n}`" for n in sorted(names.get(d.name, [])) if n != d.name)
        kind = ("signed " if d.is_signed else "unsigned ") * (d.category == dtypes.INT) + kinds[d.category]
        rows.append(f"| `mytorch.{d.name}` | {others} | {d.itemsize} | {kind} | {_range(d)} |")
    return "\n\n".join(["## Dtypes", "\n".join(rows), PROMOTION, "## Devices", DEVICES, "## Functions and classes"])


def _range(d):
    """Returns the range of a dtype; for floating point, the largest number and the relative precision."""
    import mytorch

    if d.category == mytorch.bool.category:
        return "`False`, `True`"
    if d.category != mytorch.int64.category:
        info = mytorch.finfo(d)
        return f"up to {info.max:.3g}, eps {info.eps:.3g}"
    info = mytorch.iinfo(d)
    if d.itemsize < 4:
        return f"{info.min} to {info.max}"
    power = f"2<sup>{info.bits - d.is_signed}</sup>"
    return f"{f'−{power}' if d.is_signed else '0'} to {power} − 1"


PROMOTION = """\
**Type promotion.** If the inputs of an operation have different dtypes, the result has the smallest dtype that can hold
both, by PyTorch's rules:

* The kinds are ordered: boolean, integer, floating point, complex. The higher kind decides the dtype of the result.
* Two integer dtypes give the wider one. `uint8` with a signed dtype gives the next wider signed dtype.
* `float16` with `bfloat16` gives `float32`.
* A tensor without dimensions, or a Python number, changes the dtype only if its kind is higher.
* Functions such as `mytorch.sqrt` convert integers to the default dtype, which is `float32`.
* The `float8` dtypes store values. Convert them to another dtype before you compute with them."""

DEVICES = """\
| Device | Memory | Requirements |
|---|---|---|
| `cpu` | main memory, NumPy arrays | none |
| `cuda`, `cuda:0`, `cuda:1`, … | memory of an NVIDIA GPU, CuPy arrays | CuPy and an NVIDIA GPU |
| `meta` | none: shape and dtype only | none |
| a registered name | arrays of another library | a call of `arrays.register_device` |

`device("mps")` and `device("xpu")` are accepted as names, but tensors cannot be created on them."""


def pages():
    """Returns {file name: Markdown} of all pages and their index.md."""
    lines = [
        "# Reference\n",
        "All public functions and classes. The pages are made from signatures and docstrings; the tests run\nevery example.\n",
        "Before you paste an example into a Python prompt, give these lines:\n",
        "```python\nimport numpy as np\n\nimport mytorch\nfrom mytorch import nn, optim, tensor\n"
        "from mytorch.nn import functional as F\n```\n",
    ]
    found = {}
    for section, listed in SECTIONS.items():
        lines += [f"\n## {section}\n", "| Page | Names | Content |", "|---|---|---|"]
        for page in listed:
            text, count = page_of(page)
            found[f"{page}.md"] = text
            lines.append(f"| [{title(page)}]({page}.md) | {count} | {_content(page)} |")
    return {"index.md": "\n".join(lines) + "\n", **found}


def _content(page):
    if page == "mytorch.Tensor":
        return "Attributes and methods of tensors."
    text = about(page).split("\n\n")[0].replace("\n", " ")
    return re.sub(r"\]\((?!\w+:)#", f"]({page}.md#", text).replace("|", "&#124;")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="output folder")
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    found = pages()
    for name, text in found.items():
        (folder / name).write_text(text, encoding="utf-8")
    print(f"{len(found)} pages in {folder}")


if __name__ == "__main__":
    main()
