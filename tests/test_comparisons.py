"""Generated programs compared with PyTorch (tests/comparisons.py): no silent difference and no raw error.

`MYTORCH_FUZZ=5000 MYTORCH_FUZZ_SEED=7 python -m pytest tests/test_comparisons.py` runs more programs. docs/differences.md lists the
differences by the name of the function. tests/exceptions.py lists the differences of one kind of program, with the reason.
"""

import pytest

import mytorch

pytest.importorskip("torch")
pytest.importorskip("expecttest", reason="PyTorch's operator database needs it")

from tests import comparisons
from tests.exceptions import is_listed
from tests.test_fuzz import COUNT, SEED

COUNTS = {"losses": 60, "inplace": 10, "keywords": 30, "copies": 40, "subclasses": 25, "empty": 30}


@pytest.mark.cpu_only
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("family", comparisons.FAMILIES)
def test_generated_programs(family):
    failed = []
    for number in range(COUNT or COUNTS[family]):
        program = comparisons.case(family, SEED, number)
        kind, told = ("ok", "") if program is None else comparisons.outcome(program)
        name = "" if program is None else program.name.removeprefix("nn.functional.")
        if kind in ("different", "spread", "accepted", "words") and not is_listed(
            family, name, kind, told, program.text
        ):
            failed.append(f"{number}: {kind}: {program}: {told}")
    assert not failed, f"{len(failed)}\n" + "\n".join(f[:600] for f in failed[:20])


TARGETS = {
    "whole": lambda y: y, "view": lambda y: y[..., 1:], "view of all": lambda y: y.view_as(y), "reshaped": lambda y: y.unsqueeze_(0),
    "transposed": lambda y: y.transpose_(0, 1), "view of reshaped": lambda y: y.unsqueeze_(0)[0],
}  # fmt: skip


@pytest.mark.cpu_only
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("early", [True, False])
def test_hooks_and_retained_gradients_of_changed_tensors(target, early):
    """A hook of a changed tensor acts on this tensor only, not on the tensor that was copied into it."""

    def run(L, change):
        x = L.tensor([[0.5, -1.0, 2.0], [3.0, 0.25, -0.5], [1.0, 1.5, -2.0]], dtype=L.float64, requires_grad=True)
        source, base = x * 3, x * 1.25
        t = TARGETS[target](base)
        source = source[..., : t.shape[-1]].reshape(t.shape)
        if not early:
            comparisons.CHANGE[change](L.nn.functional, t, source)
        t.grad_fn  # noqa: B018 - PyTorch ends the process if the graph of a changed view is not computed yet
        t.register_hook(lambda g: g * 0.5)
        if not early:
            t.retain_grad()
        source.retain_grad()
        if early:
            comparisons.CHANGE[change](L.nn.functional, t, source)
        (source.sum() * 2 + (t * t).sum() + base.sum()).backward()
        return [x.grad, source.grad, t.grad]

    failed = {}
    for change in comparisons.CHANGE:
        kind, told = comparisons.outcome(comparisons.Program(change, "", lambda L, change=change: run(L, change)))
        if kind in ("different", "spread", "accepted", "words"):
            failed[change] = kind, told
    assert not failed


@pytest.mark.cpu_only
@pytest.mark.parametrize("change", [lambda y: y.tril_(), lambda y: y.mul_(2), None])
@pytest.mark.parametrize("late", [True, False])
def test_views_of_a_detached_tensor(change, late):
    """A view keeps its graph if it was up to date when `detach_` was called. Otherwise its use raises an error."""
    x = mytorch.ones(2, 2, requires_grad=True)
    y = x * 1
    view = y[0]
    if change is not None and not late:
        change(y)
    y.detach_()
    if change is not None and late:
        change(y)
    if change is not None:
        with pytest.raises(mytorch.arrays.errors.InPlaceError, match="take the view again"):
            view.sum()
    else:
        y.requires_grad_()
        view.sum().backward()
        assert x.grad.tolist() == [[1, 1], [0, 0]]
        assert y.grad is None
