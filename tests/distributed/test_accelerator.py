"""The Accelerator under the launcher: equal to one process, and resumed after a crash bit for bit."""

import re

import pytest

from tests.loops import loop

from .launching import PROGRAMS, checks_in, launch, results_of


@pytest.fixture(scope="module", params=[2, 3])
def results(request, tmp_path_factory):
    return results_of(
        request.param, "accelerating.py", tmp_path_factory.mktemp("accelerating") / "results.json", timeout=120
    )


@loop  # one process runs all checks once
@pytest.mark.parametrize("name", checks_in("accelerating.py"))
def test_accelerator(results, name):
    assert results[name] is None, results[name]


def losses_of(done):
    return dict(re.findall(r"LOSS (\d+) (\S+)", done.stdout))


def test_training_goes_on_after_a_crash_bit_for_bit(tmp_path):
    whole = launch(2, PROGRAMS / "train.py", tmp_path / "whole", 20)
    assert whole.returncode == 0, whole.stderr
    undisturbed = losses_of(whole)
    assert len(undisturbed) == 40
    killed = launch(2, PROGRAMS / "train.py", tmp_path / "killed", 20, 1, 27)  # between two micro-steps
    assert killed.returncode == 137
    assert sorted(p.name for p in (tmp_path / "killed").iterdir()) == ["checkpoint_10", "checkpoint_20"]
    resumed = launch(2, PROGRAMS / "train.py", tmp_path / "killed", 20)
    assert resumed.returncode == 0, resumed.stderr
    later = losses_of(resumed)
    assert list(later) == [str(i) for i in range(21, 41)]
    assert {**losses_of(killed), **later} == undisturbed


def test_training_goes_on_with_another_number_of_processes(tmp_path):
    first = launch(2, PROGRAMS / "train.py", tmp_path, 10)
    assert first.returncode == 0, first.stderr
    again = launch(1, PROGRAMS / "train.py", tmp_path, 20)
    assert again.returncode == 0, again.stderr
    assert "saved by 2 processes, and now there are 1" in again.stdout
    assert list(losses_of(again)) == [str(i) for i in range(21, 41)]
