"""Random calls beside PyTorch (tests/fuzzing.py): no silent difference, no error in NumPy's words, no call that does not come back.

`MYTORCH_FUZZ=20000 python -m pytest tests/test_fuzz.py` runs more cases than the few hundred of every day; `python -m tests.fuzzing`
outlives hangs and writes down what it found. What is known to differ, with the reason, is listed in docs/compatibility.md.
"""

import os
import re
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("expecttest", reason="PyTorch's operator database needs it")

from tests import fuzzing

COUNT = int(os.environ.get("MYTORCH_FUZZ", "150"))
FAMILIES = {
    "windows": "conv|pool|unfold|fold|pixel|channel_shuffle",
    "indices": "^(index_|gather|where|masked_|cross|inner|addm|baddbmm|cdist|atan2|sigmoid|svd|linalg.svd|linalg.eigh)",
}


def known():
    """The beginnings of names in the table of docs/compatibility.md, each with the kinds of outcome that are known."""
    page = (Path(__file__).resolve().parent.parent / "docs" / "compatibility.md").read_text()
    rows = re.findall(r"^\| (`.+?`) \| ([\w, ]+) \|", page.partition("## Calls that differ")[2], re.M)
    return [(name, set(kinds.split(", "))) for names, kinds in rows for name in re.findall(r"`(.+?)`", names)]


@pytest.mark.cpu_only
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("family", FAMILIES)
def test_random_calls_are_right_or_refused(family):
    allowed, failed = known(), []
    for number in range(COUNT):
        case = fuzzing.case(5, number, FAMILIES[family])
        kind, told = ("ok", "") if case is None else fuzzing.outcome(case)
        if kind not in ("different", "accepted", "words"):
            continue
        name = case.name.removeprefix("nn.functional.")
        if not any(name.startswith(start) and kind in kinds for start, kinds in allowed):
            failed.append(f"{number}: {kind}: {case}: {told}")
    assert not failed, f"{len(failed)} of {COUNT}\n" + "\n".join(failed[:20])
