"""Check the project's texts against the rules of style in CONTRIBUTING.md.

    python tests/prose.py                        # print one line for each kind of text and rule, with counts
    python tests/prose.py docs/gpu.md mytorch/nn # print each place in files and folders, and reports on the rhythm of pages

Reads docs, docstrings, comments, messages, help texts, web pages and notebooks. Code in backticks, formulas and
doctests are skipped.
"""

import argparse
import ast
import collections
import io
import json
import re
import subprocess
import tokenize
from pathlib import Path

ROOT = Path(__file__).parent.parent
LONGEST = 40  # words in a sentence
LONGEST_SUMMARY = 25  # words in the first sentence of a docstring

WORDS = {
    "is in, is defined in, is next to": r"(?:lie|lies|lay|lying) (?:in|at|on|beside|there|behind|below|next|together)|"
    r"(?:stands?|stood|standing) (?:in|at|on|beside|there|behind|below|next|here|for itself|between|before|as)",
    "fix": r"mend(?:s|ed|ing)?|put(?:s|ting)? right",
    "again": r"anew",
    "compared with, next to": r"beside",
    "except": r"but for",
    "otherwise": r"or else|otherwise than|else than",
    "any user, any value, no object": r"whoever|whomever|nobody|somebody|whichever",
    "learned": r"learnt",
    "will, should": r"shall",
    "indefinitely": r"for ever",
    "passes, releases": r"hand(?:s|ed|ing)? (?:on|over|out|back)|(?:gives?|gave|giving) up",
    "truncated": r"cut short",
    "not a PyTorch file, malicious": r"foreign|means? harm",
    "message": r"in words|'s words|own words",
    "mode": r"faces? of|'s face|own face|both faces|two faces|each face|native face",
    "package, layer, architecture": r"(?:one|each|this|every|that|its|a|the) (?:room|house|floor)s?",
    "in-place variant": r"twins?",
    "fake, mock": r"stand-ins?",
    "integers": r"whole numbers?",
    "skipped": r"passed over",
    "is checked": r"(?:is|are) looked at",
    "available": r"to be had",
    "automatically": r"by (?:itself|themselves) (?:when|if|where|at|on)",
    "American spelling": r"(?:normal|initial|optim|real|parallel|serial|vector|random|synchron|general|special|quant|regular|minim|"
    r"maxim|summar|recogn|organ|emphas|categor|factor|material|visual|local|discret|standard|token|util|penal|symmetr|"
    r"diagonal|orthogonal|linear|custom|memor|capital|final)is(?:e|es|ed|ing|ation|ations|er|ers)|"
    r"colour\w*|behaviour\w*|licence|favour\w*|neighbour\w*|centre[ds]?|analyse[ds]?|modell\w+|labell\w+|cancell(?:ed|ing)|"
    r"towards|afterwards|whilst|grey|metres?",
}
RULES = {
    f"write: {advice}": re.compile(rf"(?<![\w'-])(?:{words})(?![\w-])", re.IGNORECASE)
    for advice, words in WORDS.items()
}
LONG_RULE = f"at most {LONGEST} words in a sentence"
SUMMARY_RULE = f"at most {LONGEST_SUMMARY} words in the summary of a docstring"
# Names that are exempt from a rule: PyTorch's own names and fixed terms.
TERMS = re.compile(
    r"in[- ]place|PyTorch's own|quick ?start|quickstart|foreign key|stands for|what if|What's new|patience:|so much as|"
    r"foreign function|foreign memory|if you (?:indeed |still )?want|"
    r"than that of the original Tensor|has no attribute|module .[\w.]+. has",
    re.IGNORECASE,
)


class Text(collections.namedtuple("Text", "kind path line text")):
    """A piece of text: its kind, its file, its line, and what it reads."""


SUFFIXES = (".py", ".md", ".html", ".ipynb", ".sh", ".toml", ".yml", ".pyi")


def tracked():
    """The project's text files, as git lists them; without git, those of its folders."""
    command = ["git", "ls-files", "-co", "--exclude-standard"]
    try:
        names = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    except (OSError, subprocess.CalledProcessError):
        folders = "mytorch tests docs benchmarks examples prepare_data".split()
        paths = [*ROOT.glob("*"), *(path for folder in folders for path in (ROOT / folder).rglob("*"))]
        names = [path.relative_to(ROOT).as_posix() for path in paths]
    return [n for n in names if (n.endswith(SUFFIXES) or n == ".ci/run") and (ROOT / n).is_file()]


def plain(text):
    """The prose of Markdown or a docstring: without code, doctests, links' targets and marks."""
    text = re.sub(r"```.*?```|\$\$.*?\$\$|<!--.*?-->", " ", text, flags=re.S)
    text = re.sub(r"``[^`]+``|`[^`\n]*`|\$[^$\n]+\$", "CODE", text)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r'<img\b[^>]*\balt="([^"]*)"[^>]*>', r"\1. ", text)
    text = re.sub(r"https?://\S+", "LINK", text)
    return TERMS.sub("TERM", text)


def markdown(path, text, kind="docs"):
    """Yield the paragraphs, list items and table rows of a page."""
    text = re.sub(r"^(```|~~~).*?^\1[^\n]*$", lambda m: "\n" * m[0].count("\n"), text, flags=re.S | re.M)
    block, start = [], 1
    for number, line in enumerate([*text.splitlines(), ""], 1):
        item = re.match(r"\s*(?:[*+-]|\d+\.) |\s*\||#|!!! |>", line)
        if block and (not line.strip() or item):
            yield Text(kind, path, start, " ".join(block))
            block = []
        if line.strip() and not re.match(r"    \S", line) or (block and line.strip()):
            if not block:
                start = number
            line = re.sub(r"^\s*(?:[*+-]|\d+\.) |^#+ |^>\s*|^!!! \w+\s*", "", line)
            block.append(line.strip())


def docstring(path, line, text):
    """Yield the paragraphs and the items of a docstring; skip doctests and indented formulas."""
    block, start, section = [], line, False
    lines = [*text.expandtabs().splitlines(), ""]
    margin = min((len(s) - len(s.lstrip()) for s in lines[1:] if s.strip()), default=0)
    doctest = False
    for offset, raw in enumerate(lines):
        indent = len(raw) - len(raw.lstrip()) - (margin if offset else 0)
        stripped = raw.strip()
        if not stripped:
            doctest = False
        doctest = doctest or stripped.startswith((">>>", "$ "))
        head = re.fullmatch(r"(Args|Attributes|Raises|Returns|Yields|Shape|Note|Examples?|Source|See also):", stripped)
        item = section and re.match(r"[\w*, .]{1,60}: ", stripped)
        if block and (not stripped or head or item or doctest or stripped.startswith(("* ", "- "))):
            yield Text("summaries" if start == line else "docstrings", path, start, " ".join(block))
            block = []
        if head:
            section = head[1] in ("Args", "Attributes", "Raises", "Returns", "Yields", "Shape", "Note")
        elif stripped and not doctest:
            if not section and indent >= 4 and not block:
                continue  # a formula or a program
            if indent <= 0 and section and not item:
                section = False
            if not block:
                start = line + offset
                stripped = re.sub(r"^[\w*, .]{1,60}: ", "", stripped) if section else re.sub(r"^[*-] ", "", stripped)
            block.append(stripped)


def messages(tree):
    """Yield (node, text) of the messages that raise and warn, and of help texts."""

    def literal(node):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return node.value
        if isinstance(node, ast.JoinedStr):
            return "".join(v.value if isinstance(v, ast.Constant) else "VALUE" for v in node.values)
        if isinstance(node, ast.BinOp):
            left, right = literal(node.left), literal(node.right)
            return None if left is None and right is None else (left or "VALUE") + (right or "VALUE")
        if isinstance(node, ast.IfExp):
            return " ".join(filter(None, [literal(node.body), literal(node.orelse)]))
        return None

    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            arguments = node.exc.args
        elif isinstance(node, ast.Call):
            name = ast.unparse(node.func).rpartition(".")[2]
            arguments = [k.value for k in node.keywords if k.arg in ("help", "description", "epilog", "metavar")]
            if name in ("warn", "warn_once", "refuse", "fail", "error", "exit", "print"):
                arguments += node.args
        else:
            continue
        for argument in arguments:
            text = literal(argument)
            if text and len(text.split()) > 1:
                yield argument, text


def python(path, source):
    """Yield the docstrings, messages and comments of a Python file."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            if ast.get_docstring(node, clean=False):
                first = node.body[0].value
                yield from docstring(path, first.lineno, first.value)
    for node, text in messages(tree):
        yield Text("messages", path, node.lineno, text)
    block, start, before = [], 0, -1
    for token in [*tokenize.generate_tokens(io.StringIO(source).readline), None]:
        if token is not None and token.type != tokenize.COMMENT:
            continue
        own = token is not None and not token.line[: token.start[1]].strip()
        if block and not (own and token.start[0] == before + 1):
            yield Text("comments", path, start, " ".join(block))
            block = []
        if token is None:
            break
        text = token.string.lstrip("#").strip()
        if re.match(r"(noqa|type:|fmt:|ruff:|mypy|!)", text):
            continue
        if not block:
            start = token.start[0]
        block.append(text)
        before = token.start[0] if own else -1


def texts(path):
    """Yield every text of a file."""
    source = (ROOT / path).read_text(encoding="utf-8")
    if path.endswith(".md"):
        yield from markdown(path, source)
    elif path.endswith((".py", ".pyi")):
        yield from python(path, source)
    elif path.endswith(".ipynb"):
        for cell in json.loads(source)["cells"]:
            if cell["cell_type"] == "markdown":
                yield from markdown(path, "".join(cell["source"]))
    elif path.endswith(".html"):
        body = re.sub(r"<(script|style)\b.*?</\1>", lambda m: "\n" * m[0].count("\n"), source, flags=re.S)
        for number, line in enumerate(body.splitlines(), 1):
            words = " ".join(re.findall(r'(?:title|placeholder|aria-label)="([^"]*)"', line))
            yield Text("docs", path, number, re.sub(r"<[^>]*>", " ", line) + " " + words)
    else:
        for number, line in enumerate(source.splitlines(), 1):
            comment = re.search(r"(?:^|\s)#(?!!)\s*(.*)", line)
            if comment:
                yield Text("comments", path, number, comment[1])
            for message in re.findall(r"(?:echo|fail) +\"([^\"]+)\"", line):
                yield Text("messages", path, number, message)


def problems(text):
    """Yield (rule, excerpt) for each place in a text that breaks a rule."""
    prose = plain(text.text)
    for rule, pattern in RULES.items():
        for match in pattern.finditer(prose):
            yield rule, prose[max(match.start() - 30, 0) : match.end() + 30]
    if prose.lstrip().startswith("|"):
        return
    for sentence in re.split(r"(?<=[.!?:])\s+", prose):
        words = [w for w in sentence.split() if re.search(r"\w", w)]
        if len(words) > (LONGEST_SUMMARY if text.kind == "summaries" else LONGEST):
            rule = SUMMARY_RULE if text.kind == "summaries" else LONG_RULE
            yield rule, f"{len(words)} words: {sentence[:70]}"


def rhythm(path):
    """Yield what makes a page sound monotone. It is a report for its author: no test fails because of it."""
    prose = [plain(text.text) for text in texts(path) if not text.text.lstrip().startswith(("|", "#"))]
    if not re.search(r"\byou", " ".join(prose), re.IGNORECASE):
        yield "the page does not address its reader as 'you'"
    for paragraph in prose:
        sentences = [s for s in re.split(r"(?<=[.!?])\s+", paragraph) if re.search(r"\w", s)]
        for first, *others in zip(sentences, sentences[1:], sentences[2:], strict=False):
            if all(len(s.split()) < 9 for s in (first, *others)):
                yield f"three short sentences: {first} {' '.join(others)}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("paths", nargs="*", help="files and folders to list; all of the project's by default")
    parser.add_argument("--kind", help="only docs, summaries, docstrings, comments or messages")
    arguments = parser.parse_args()
    counts = collections.Counter()
    wanted = [str(Path(p).resolve().relative_to(ROOT)) for p in arguments.paths]
    for path in tracked():
        if path == "tests/prose.py" or (wanted and not any(path == w or path.startswith(w + "/") for w in wanted)):
            continue
        for text in texts(path):
            if arguments.kind not in (None, text.kind):
                continue
            for rule, excerpt in problems(text):
                counts[text.kind, rule] += 1
                if wanted:
                    print(f"{path}:{text.line}: [{text.kind}] {rule} | {' '.join(excerpt.split())}")
    for (kind, rule), count in sorted(counts.items()):
        print(f"{count:6d} {kind:10s} {rule}")
    for path in tracked():
        if path.endswith(".md") and any(path == w or path.startswith(w + "/") for w in wanted):
            for line in rhythm(path):
                print(f"{path}: [report] {line}")
    print(f"{counts.total()} places")


if __name__ == "__main__":
    main()
