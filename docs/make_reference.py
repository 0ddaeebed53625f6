"""Write the API reference, a Markdown page for each module, from signatures and docstrings.

PYTHONPATH=. python docs/make_reference.py reference        # into the folder `reference`, with an index.md
"""

import argparse
import importlib
import inspect
import re
import textwrap
from pathlib import Path

MODULES = """mytorch nn nn.functional nn.init nn.utils nn.parallel optim optim.lr_scheduler autograd linalg fft special random func amp cuda
distributed distributions utils.data utils.checkpoint utils.graph utils.views utils.benchmark vision.datasets vision.transforms models
accelerate profiler serialization""".split()
# the names of `mytorch` itself are too many for one page: these have their own, by the files that define them
THEMES = {
    "Tensor": ("A tensor and its methods.", "mytorch"),
    "creation": ("Tensors from numbers, from other memory and at random.", "creation random"),
    "math": ("Functions of each element.", "elementwise special activation complex"),
    "reductions": ("Sums, extremes, sorting, statistics.", "reduction sorting"),
    "shapes": ("Views, joining and splitting, indexing, scattering.", "movement shapes indexing scatter"),
    "linalg": ("Matrix products and decompositions.", "linalg decompositions"),
    "layers": (
        "What layers and losses compute.",
        "composites conv embedding loss normalization pool resample weight_norm",
    ),
    "in_place": ("Functions that write their result into their input.", "inplace"),
}
LISTS = ("Args:", "Attributes:", "Raises:")  # sections whose lines are `name: what it is`
PATHS = re.compile(r"\b(?:mytorch|collections\.abc|typing)\.(?:\w+\.)*(?=[A-Za-z_])")


def escaped(text):
    """Prose as Markdown that shows it as it is; what stands in backticks is code."""
    pieces = re.split(r"(`[^`\n]+`)", text)
    words = [
        re.sub(r"([\\`*_\[\]>|#])", r"\\\1", p).replace("<", "&lt;") for p in pieces[::2]
    ]  # no backslash is taken before <
    pieces[::2] = words
    return "".join(pieces)


def items(lines):
    """The lines of a section as a list: an item begins at each line that is not indented further than the first."""
    found = []
    for line in textwrap.dedent("\n".join(lines)).splitlines():
        if line[:1].strip() or not found:
            found.append(line)
        else:
            found[-1] += " " + line.strip()
    named = re.compile(r"^([\w*, ]{1,80}): (.*)$", re.S)
    rows = []
    for item in found:
        match = named.match(item)
        rows.append(f"* `{match[1]}`: {escaped(match[2])}" if match else f"* {escaped(item)}")
    return "\n".join(rows)


def paragraph(text):
    """A paragraph of prose; an indented one is a formula, or code."""
    if text.startswith("    "):
        return f"```text\n{textwrap.dedent(text)}\n```"
    if re.match(r"[*-] ", text):
        return re.sub(r"^\\([*-]) ", r"\1 ", "\n".join(escaped(line) for line in text.splitlines()), flags=re.M)
    return escaped(text)


def markdown(doc):
    """A docstring as Markdown: its sections as lists, its examples as code, formulas as they stand."""
    sections = [["", []]]
    for line in doc.splitlines():
        match = re.match(r"(Args|Attributes|Raises|Returns|Yields|Examples?):\s*$", line)
        if match:
            sections.append([match[0].strip(), []])
        elif line[:1].strip() and sections[-1][0]:
            sections.append(["", [line]])
        else:
            sections[-1][1].append(line)
    parts = []
    for head, lines in sections:
        body = "\n".join(lines).strip("\n")
        if head in LISTS:
            parts.append(f"**{head[:-1]}**\n\n{items(lines)}")
        elif head.startswith("Example"):
            parts.append(f"```pycon\n{textwrap.dedent(body)}\n```")
        else:
            body = textwrap.dedent(body) if head else body
            text = "\n\n".join(paragraph(p) for p in re.split(r"\n\s*\n", body) if p.strip())
            parts.append(f"**{head[:-1]}:** {text}" if head else text)
    return "\n\n".join(parts)


def plain(signature):
    """A signature, or one of its parameters, with types by their last names and out of quotes."""
    return re.sub(r"(: |-> )'([^']*)'", r"\1\2", PATHS.sub("", str(signature)))


def signature(name, value):
    """`name(arguments)` as it would be written; broken into lines where it is long."""
    try:
        found = inspect.signature(value)
    except (TypeError, ValueError):
        return name
    line = f"{name}{plain(found)}"
    if len(line) <= 100:
        return line
    arguments = [plain(p) for p in found.parameters.values()]
    kinds = [p.kind for p in found.parameters.values()]
    if inspect.Parameter.KEYWORD_ONLY in kinds and inspect.Parameter.VAR_POSITIONAL not in kinds:
        arguments.insert(kinds.index(inspect.Parameter.KEYWORD_ONLY), "*")
    tail = line[line.rindex(") -> ") :] if ") -> " in line else ")"
    return "\n".join([f"{name}(", *(f"    {a}," for a in arguments), tail])


def entry(name, value, level=2):
    """A name's heading with its signature, and its docstring; for a class, its methods' as well."""
    doc = markdown(inspect.getdoc(value) or "")
    text = f"{'#' * level} `{name}`\n\n```python\n{signature(name, value)}\n```\n\n{doc}\n"
    if isinstance(value, type) and level == 2:
        text += "".join("\n" + entry(f"{name}.{method}", f, 3) for method, f in methods(value).items())
    return text


def methods(value):
    """{name: function} of a class's own public methods with docstrings; an Array's are Tensor's."""
    faces = [vars(c) for c in value.__mro__[::-1] if c.__name__ == value.__name__ != "Array"]
    found = sorted({name: f for face in faces for name, f in face.items()}.items())
    return {name: f for name, f in found if not name.startswith("_") and callable(f) and inspect.getdoc(f)}


def offered(path):
    """(module, what it offers by name that is documented, is no module, and is its own)."""
    module = importlib.import_module("mytorch" if path == "mytorch" else f"mytorch.{path}")
    names = getattr(module, "__all__", None) or [n for n in vars(module) if not n.startswith("_")]
    found = {n: getattr(module, n) for n in sorted(set(names), key=str.lower)}
    found = {n: v for n, v in found.items() if callable(v) and inspect.getdoc(v)}
    own = {n: v for n, v in found.items() if str(getattr(v, "__module__", "")).startswith(module.__name__)}
    if hasattr(module, "__all__") or not own:  # its names are defined elsewhere
        own = {n: v for n, v in found.items() if str(getattr(v, "__module__", "")).startswith("mytorch")}
    return module, own


def page(path):
    """(page, number of names) of a module."""
    module, own = offered(path)
    return _page(module.__name__, markdown(inspect.getdoc(module) or ""), own)


def _page(title, about, own):
    return "\n".join([f"# {title}\n\n{about}\n", *(entry(n, v) for n, v in own.items())]), len(own)


def titles():
    """{a page's file, without its ending: its title}."""
    themes = {f"mytorch.{theme}": f"mytorch: {theme.replace('_', ' ')}" for theme in THEMES}
    return {"mytorch": "mytorch", **themes, **{m: f"mytorch.{m}" for m in MODULES[1:]}}


def top():
    """{file: (page, number of names)} of the module `mytorch`: a page for each theme, and one of what is left."""
    module, own = offered("mytorch")
    theme_of = {last: theme for theme, (_, files) in THEMES.items() for last in files.split()}
    parts = {theme: {} for theme in ["", *THEMES]}
    for name, value in own.items():
        parts[theme_of.get(value.__module__.rpartition(".")[2], "")][name] = value
    links = "\n".join(
        f"* [{theme.replace('_', ' ')}](mytorch.{theme}.md): {about}" for theme, (about, _) in THEMES.items()
    )
    about = (
        f"{markdown(inspect.getdoc(module))}\n\nMost of its names have their own pages:\n\n{links}\n\nHere is the rest."
    )
    found = {f"mytorch.{t}": _page(titles()[f"mytorch.{t}"], text, parts[t]) for t, (text, _) in THEMES.items()}
    found["mytorch.Tensor"] = _tensor_page(parts)
    return {"mytorch": _page("mytorch", about, parts[""]), **found}


def _tensor_page(parts):
    """(page, number of methods) of Tensor; methods that are functions too are links to where those stand."""
    tensor, file_of = (
        parts["Tensor"]["Tensor"],
        {n: f"mytorch.{t}.md" if t else "mytorch.md" for t in parts for n in parts[t]},
    )
    every = methods(tensor)
    also = [
        n
        for n, f in every.items()
        if n in file_of and inspect.getdoc(f) == inspect.getdoc(getattr(importlib.import_module("mytorch"), n))
    ]
    links = ", ".join(f"[`{name}`]({file_of[name]}#{name.lower()})" for name in also)
    about = f"{THEMES['Tensor'][0]}\n\nMost methods are functions too: [links](#methods-that-are-functions) are below the others."
    text = f"# mytorch: Tensor\n\n{about}\n\n## `Tensor`\n\n{markdown(inspect.getdoc(tensor))}\n"
    text += "".join("\n" + entry(f"Tensor.{n}", f, 3) for n, f in every.items() if n not in also)
    about = "`x.name(…)` is `mytorch.name(x, …)`, explained with the function:"
    return f"{text}\n## Methods that are functions\n\n{about}\n\n{links}.\n", len(every)


def pages():
    """{file name: text} of all pages and their index.md."""
    found, index = {}, ["# Reference\n", "Made from signatures and docstrings, whose examples the tests run.\n"]
    index += ["| module | names | |", "|---|---|---|"]
    made = {**top(), **{path: page(path) for path in MODULES[1:]}}
    for path, (text, count) in made.items():
        found[f"{path}.md"] = text
        about = (
            "Settings, dtypes, devices, modes; other names."
            if path == "mytorch"
            else text.split("\n\n")[1].split("\n")[0]
        )
        index.append(f"| [{titles()[path]}]({path}.md) | {count} | {about} |")
    return {"index.md": "\n".join(index) + "\n", **found}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    found = pages()
    for name, text in found.items():
        (folder / name).write_text(text, encoding="utf-8")
    print(f"{len(found)} pages in {folder}")


if __name__ == "__main__":
    main()
