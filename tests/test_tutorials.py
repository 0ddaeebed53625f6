"""Run the code of each tutorial and of the pages on compilation from top to bottom, and compare the output with the page.

    python -m tests.test_tutorials docs/tutorials/data.md    # write the outputs into pages

A block with the title "Output" is the output of the Python block before it. Decimal fractions may differ a little, because
machines round differently. Blocks with the title "Example output" are not compared.
"""

import contextlib
import io
import os
import re
import sys
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = [page for page in sorted((ROOT / "docs" / "tutorials").glob("*.md")) if page.stem != "index"]
PAGES += [ROOT / "docs" / "compile.md", ROOT / "docs" / "compile_inside.md"]
BLOCK = re.compile(r'^```(python|text title="Output"|text title="Example output")\n(.*?)^```$', re.S | re.M)
NUMBER = re.compile(r"-?\d+\.\d+(?:e[+-]?\d+)?")
TOLERANCE = 0.05, 0.2  # absolute and relative


def outputs(page):
    """Run the Python blocks of a page; yield (match of a block with an output, printed text)."""
    names, printed = {"__name__": "__main__"}, ""
    for number, match in enumerate(BLOCK.finditer(page.read_text(encoding="utf-8"))):
        if match[1] == "python":
            stream = io.StringIO()
            with contextlib.redirect_stdout(stream):
                exec(compile(match[2], f"{page.name} block {number}", "exec"), names)
            printed = stream.getvalue()
        else:
            yield match, printed


def enter(folder):
    """Make a folder with the examples' data the current one."""
    (Path(folder) / "examples").symlink_to(ROOT / "examples")
    os.chdir(folder)


def differences(expected, printed):
    """Lines that differ by more than rounding."""
    lines = [text.rstrip().splitlines() for text in (expected, printed)]
    if len(lines[0]) != len(lines[1]):
        return [f"{len(lines[1])} lines instead of {len(lines[0])}:", *lines[1]]
    absolute, relative = TOLERANCE
    result = []
    for a, b in zip(*lines, strict=True):
        same = re.sub(r"\s+", " ", NUMBER.sub("#", a)).strip() == re.sub(r"\s+", " ", NUMBER.sub("#", b)).strip()
        pairs = [(float(x), float(y)) for x, y in zip(NUMBER.findall(a), NUMBER.findall(b), strict=False)]
        if not (same and all(abs(x - y) <= absolute + relative * abs(x) for x, y in pairs)):
            result.append(f"expected {a!r}, got {b!r}")
    return result


@pytest.mark.cpu_only
@pytest.mark.parametrize(
    "page", [pytest.param(p, id=p.stem, marks=[pytest.mark.slow] * (p.stem == "fine_tuning")) for p in PAGES]
)
def test_tutorial_prints_its_outputs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # restores the current folder at the end
    enter(tmp_path)
    problems = []
    for match, printed in outputs(page):
        if match[1].endswith('"Output"'):
            problems += differences(match[2], printed)
    assert not problems, "\n".join(problems)


def test_differences_ignore_rounding_only():
    assert differences("loss 1.234\n", "loss  1.241\n") == []
    assert differences("loss 1.234\n", "loss 2.5\n")
    assert differences("3 of 4\n", "2 of 4\n")
    assert differences("a\nb\n", "a\n")


def test_notebooks_become_pages(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    import make_notebooks

    files = make_notebooks.pages()
    assert {"notebooks/autograd.md", "notebooks/digits.md", "notebooks/tiny_gpt2.md"} <= set(files)
    for name, content in files.items():
        if name.endswith(".png"):
            assert content.startswith(b"\x89PNG")
        elif name.endswith(".svg"):
            assert content.startswith("<svg")
        else:
            assert content.startswith("# ")
            assert 'text title="Output"' in content
            images = [f"notebooks/{image}" for image in re.findall(r"!\[[^]]*\]\(([^)]*)\)", content)]
            assert images
            assert set(images) <= set(files)


def main():
    for path in map(Path, sys.argv[1:]):
        page, home = path.resolve(), os.getcwd()
        with tempfile.TemporaryDirectory() as folder:
            enter(folder)
            text, shift = page.read_text(encoding="utf-8"), 0
            for match, printed in outputs(page):
                start, end = match.start(2) + shift, match.end(2) + shift
                printed = "\n".join(line.rstrip() for line in printed.rstrip().splitlines()) + "\n"
                text = text[:start] + printed + text[end:]
                shift += len(printed) - (end - start)
            os.chdir(home)
        page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
