"""Random calls compared with PyTorch (tests/fuzzing.py): no silent difference, no raw NumPy error, no call that hangs.

`MYTORCH_FUZZ=20000 MYTORCH_FUZZ_SEED=7 python -m pytest tests/test_fuzz.py` runs more cases than the default,
and different cases. `python -m tests.fuzzing` survives hangs and crashes of PyTorch, and records the outcomes. The known
differences and their reasons are in docs/differences.md.
"""

import json
import os
import signal

import pytest

pytest.importorskip("torch")
pytest.importorskip("expecttest", reason="PyTorch's operator database needs it")

from tests import fuzzing
from tests.exceptions import is_of, known

SEED = int(os.environ.get("MYTORCH_FUZZ_SEED", "5"))
COUNT = int(os.environ.get("MYTORCH_FUZZ", "0"))
FAMILIES = {  # a pattern of names (None: ops, layers, indices, views and in-place changes), and how many cases: always the same ones
    "windows": ("conv|pool|unfold|fold|pixel|channel_shuffle", 60),
    "indices": (
        "^(index_|gather|scatter|where|masked_|take|cross|inner|addm|baddbmm|cdist|atan2|svd|linalg.svd|linalg.eigh)",
        80,
    ),
    "elementwise": (
        "^(a|ex|log|si|sq|ta|erf|float_|fmod|hypot|clamp|special|nn.functional.*(elu|shrink|sig|silu|soft))",
        50,
    ),
    "reductions": (
        "^(sum|prod|mean|amax|amin|arg|all|any|std|var|median|nan|quantile|logsumexp|norm|cum|mode|kth|count)",
        50,
    ),
    "linear algebra": (
        "^(linalg|cholesky|lu_factor|lu_solve|matmul|mm|bmm|einsum|tensordot|qr|pinverse|trace|tri)",
        60,
    ),
    "everything": (None, 80),
}


@pytest.mark.cpu_only
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("family", FAMILIES)
def test_random_calls_are_right_or_refused(family):
    allowed, failed = known(), []
    only, count = FAMILIES[family]
    for number in range(COUNT or count):
        case = fuzzing.case(SEED, number, only)
        kind, told = ("ok", "") if case is None else fuzzing.outcome(case)
        if kind not in ("different", "spread", "accepted", "words"):
            continue
        name = case.name.removeprefix("nn.functional.").removeprefix("nn.")
        if not any(is_of(name, start) and kind in kinds for start, kinds in allowed):
            failed.append(f"{number}: {kind}: {case}: {told}")
    assert not failed, f"{len(failed)} of {COUNT or count}\n" + "\n".join(failed[:20])


def test_a_case_that_ends_its_process_is_noted_with_the_signal(tmp_path, monkeypatch):
    """And the next one is made by another process."""

    def dies(found, started):
        started(False)
        if found.name == "1":
            os.kill(os.getpid(), signal.SIGABRT)
        return "ok", ""

    monkeypatch.setattr(fuzzing, "case", lambda seed, number, only: fuzzing.Case(str(number), None, None, [], {}))
    monkeypatch.setattr(fuzzing, "outcome", dies)
    fuzzing.run(0, 3, None, tmp_path / "found.jsonl")
    found = [json.loads(line) for line in (tmp_path / "found.jsonl").read_text().splitlines()]
    assert [(number, kind, told) for number, _, kind, told, _ in found] == [
        (0, "ok", ""), (1, "crash", "signal 6"), (2, "ok", "")
    ]  # fmt: skip
