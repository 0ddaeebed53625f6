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
LISTS = ("Args:", "Attributes:", "Raises:")  # sections whose lines are `name: what it is`
PATHS = re.compile(r"\b(?:mytorch|collections\.abc|typing)\.(?:\w+\.)*(?=[A-Za-z_])")


def escaped(text):
    """Prose as Markdown that shows it as it is; what stands in backticks is code."""
    pieces = re.split(r"(`[^`\n]+`)", text)
    return "".join(p if i % 2 else re.sub(r"([\\`*_\[\]<>|#~^$])", r"\\\1", p) for i, p in enumerate(pieces))


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
        for method, function in sorted(vars(value).items()):
            if not method.startswith("_") and callable(function) and inspect.getdoc(function):
                text += "\n" + entry(f"{name}.{method}", function, 3)
    return text


def page(path):
    """(page, number of names) of a module: what it offers that is documented, is no module, and is its own."""
    module = importlib.import_module("mytorch" if path == "mytorch" else f"mytorch.{path}")
    names = getattr(module, "__all__", None) or [n for n in vars(module) if not n.startswith("_")]
    found = {n: getattr(module, n) for n in sorted(set(names), key=str.lower)}
    found = {n: v for n, v in found.items() if callable(v) and inspect.getdoc(v)}
    own = {n: v for n, v in found.items() if str(getattr(v, "__module__", "")).startswith(module.__name__)}
    if hasattr(module, "__all__") or not own:  # its names are defined elsewhere
        own = {n: v for n, v in found.items() if str(getattr(v, "__module__", "")).startswith("mytorch")}
    head = f"# {module.__name__}\n\n{markdown(inspect.getdoc(module) or '')}\n"
    return "\n".join([head, *(entry(n, v) for n, v in own.items())]), len(own)


def pages():
    """{file name: text} of all pages and their index.md."""
    found, index = {}, ["# Reference\n", "Made from signatures and docstrings, whose examples the tests run.\n"]
    index += ["| module | names | |", "|---|---|---|"]
    for path in MODULES:
        text, count = page(path)
        found[f"{path}.md"] = text
        about = text.split("\n\n")[1].split("\n")[0] if path != "mytorch" else "Tensors, and functions of tensors."
        index.append(f"| [mytorch{'' if path == 'mytorch' else '.' + path}]({path}.md) | {count} | {about} |")
    return {"index.md": "\n".join(index) + "\n", **found}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (folder / name).write_text(text, encoding="utf-8")
    print(f"{len(MODULES)} pages in {folder}")


if __name__ == "__main__":
    main()
