"""docs/reading.md lists the files that one small expression executes."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.cpu_only
ROOT = Path(__file__).parents[1]

EXECUTED = """
import sys
import mytorch

a, b = (mytorch.ones(3, requires_grad=True) for _ in range(2))

def run():
    ((a + b) * b).sum().backward()

run()  # the first call imports and caches
files = set()
sys.setprofile(lambda frame, event, arg: files.add(frame.f_code.co_filename))
run()
sys.setprofile(None)
root = mytorch.__path__[0]
print(*sorted("mytorch" + name.removeprefix(root).replace("\\\\", "/") for name in files if name.startswith(root)))
"""


def test_the_reading_list_contains_the_files_that_one_expression_executes():
    page = (ROOT / "docs" / "reading.md").read_text()
    table = page.partition("<!-- the expression")[2].partition("<!-- end of the expression")[0]
    listed = set(re.findall(r"^\| `(mytorch/[\w/]+\.py)`", table, re.MULTILINE))
    done = subprocess.run([sys.executable, "-c", EXECUTED], capture_output=True, text=True, cwd=ROOT, timeout=300)
    assert set(done.stdout.split()) == listed, done.stderr
