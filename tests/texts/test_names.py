"""Rules for texts: docstrings of public definitions, files that texts name, and commands.

`.ci/run` runs this folder in the linter step: `bash tests/run.sh tests/texts`.
"""

import ast
import io
import re
import tokenize

import pytest

from tests import layers
from tests.loops import loop

ROOT, PACKAGE, FILES = layers.ROOT, layers.PACKAGE, layers.FILES


def test_public_definitions_have_docstrings():
    missing = []
    for path in FILES:
        tree = ast.parse(path.read_text())
        if not ast.get_docstring(tree) and path.read_text().strip():
            missing.append(str(path))
        for node in tree.body:
            public = isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_")
            if public and not ast.get_docstring(node):
                missing.append(f"{path}:{node.lineno} {node.name}")
    assert not missing, "\n".join(missing)


DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")), ROOT / "tests/README.md", ROOT / "examples/README.md"]  # fmt: skip


@loop
@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_that_documents_name_exist(document):
    """A path in backticks is below the root, `mytorch/` or the document's folder; a bare name, also next to another that it names."""
    text = re.sub(r"```.*?```", "", document.read_text(), flags=re.S)
    named = re.findall(r"`(?:(?:python|bash) )?([\w./*-]+(?:\.(?:py|pyi|sh|md|c|ipynb|json)|/))(?:[ :][^`]*)?`", text)
    roots, missing = [ROOT, PACKAGE, document.parent], []
    found = {path for name in named for root in roots for path in root.glob(name.rstrip("/"))}
    folders = {path if path.is_dir() else path.parent for path in found}
    for name in named:
        near = folders if "/" not in name.rstrip("/") else ()
        if not any(any(root.glob(name.rstrip("/"))) for root in (*roots, *near)):
            missing.append(name)
    assert not missing, f"{document.relative_to(ROOT)} names {', '.join(missing)}"


PROGRAMS_OF_USERS = {"file.py", "graph.html", "hubconf.py", "memory.html", "script.py"}  # names in usage examples


def texts_of(path):
    """Yields (line, text) for the comments and docstrings of a module."""
    source = path.read_text()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield getattr(node, "lineno", 1), ast.get_docstring(node, clean=False) or ""


def missing_files(path, texts):
    """Returns "path:line name" for names of files that are not below the root, or next to the module or a package around it."""
    roots, missing = [folder for folder in path.parents if folder.is_relative_to(ROOT)], []
    for line, text in texts:
        for name in re.findall(r"(?<![\w./<*-])((?:[\w-]+/)*[\w-]+\.(?:pyi?|sh|md|npz|html))(?![\w/])", text):
            if name not in PROGRAMS_OF_USERS and not any((folder / name).is_file() for folder in roots):
                missing.append(f"{path.relative_to(ROOT)}:{line} {name}")
    return missing


def test_files_that_docstrings_and_comments_name_exist():
    missing = [name for path in sorted(PACKAGE.rglob("*.py")) for name in missing_files(path, texts_of(path))]
    assert not missing, "\n".join(missing)


def test_a_wrong_file_name_in_a_comment_is_found():
    path = PACKAGE / "ops" / "conv.py"
    texts = [(1, "see `pool.py`, ops/loss.py and arrays/gpu.py"), (7, "see kernels/nowhere.py and README.md.")]
    assert missing_files(path, texts) == ["mytorch/ops/conv.py:7 kernels/nowhere.py"]


def test_no_text_installs_the_package_from_an_index():
    """The package is not published, so any user could register its name: `pip install .` in the checkout is the way."""
    folders = [ROOT / name for name in ("docs", "examples", "mytorch", "prepare_data")]
    files = [*ROOT.glob("*"), *(path for folder in folders for path in folder.rglob("*"))]
    texts = [path for path in files if path.suffix in (".html", ".ipynb", ".md", ".py", ".sh")]
    pattern = re.compile(r"pip3? install [\"']?mytorch[\w-]*.*")
    found = [f"{path}: {m[0]}" for path in texts for m in pattern.finditer(path.read_text())]
    assert not found, "\n".join(found)


def test_commands_in_the_readme_exist():
    text = (ROOT / "README.md").read_text()
    for script in re.findall(r"(?:bash|python) ([\w/]+\.(?:sh|py))", text):
        assert (ROOT / script).is_file(), script
