"""Generated programs compared with PyTorch (tests/comparisons.py): no silent difference and no raw error.

`MYTORCH_FUZZ=5000 MYTORCH_FUZZ_SEED=7 python -m pytest tests/test_comparisons.py` runs more programs. docs/differences.md lists the
differences by the name of the function. `LISTED` contains the differences of one kind of program, with the reason.
"""

import re

import pytest

import mytorch

pytest.importorskip("torch")
pytest.importorskip("expecttest", reason="PyTorch's operator database needs it")

from tests import comparisons
from tests.test_fuzz import COUNT, SEED, is_of, known

COUNTS = {"losses": 60, "inplace": 10, "keywords": 30, "copies": 40, "subclasses": 25, "empty": 30}
# Family: (name, outcomes, explanation, program): regular expressions, and above them the reason why the difference remains.
LISTED = {
    "losses": [
        # The distance of two points differs by less than the rounding of their largest number.
        ("triplet_margin.*|cosine_embedding_loss", "different|spread", r"values:", r""),
        # Second derivatives at infinite logits, and below 1e-8 of the largest one.
        ("binary_cross_entropy|multilabel_soft_margin_loss", "different|spread", r"values:", r""),
    ],
    "inplace": [
        # A value that backward needs is copied before it is overwritten.
        ("program", "accepted", r"modified by an inplace operation: ", r""),
        # A view that is created under no_grad gets the graph of its base after the base is changed in place.
        ("program", "accepted", r"A view was created in no_grad mode and (its base or another view|is being modified)",
         r"no_grad (view|compute (reshape|contiguous))"),
        # Results of split and unbind that are changed under no_grad keep their graph, as other views do.
        ("program", "accepted", r"Output \d of (Split|Unbind|Unsafe\w+)\w* is a view and its base or another view", r""),
        # PyTorch computes a gradient with the shape from before the change of shape, and refuses the gradient.
        ("program", "accepted", r"returned an invalid gradient at index", r"change (t_|unsqueeze_)"),
        # PyTorch reports that a view of a base that requires gradients requires them, also if it is created under no_grad.
        ("program", "different", r"'False True True (.*)' for 'True True True \1'", r"no_grad (view|compute (reshape|contiguous))"),
        # The gradient that retain_grad keeps has the shape of the tensor. In PyTorch, it has the shape from before the change.
        ("program", "different", r"shape \(.*\) for \(", r"retain_grad .*change (t_|unsqueeze_)"),
        # A tensor that is detached has no gradient. PyTorch sets the gradient of its former node if retain_grad was called.
        ("program", "different", r"None for tensor", r"retain_grad .*detach_"),
        # Second derivatives reach an intermediate tensor if a formula reads the result, and its source if it reads the input.
        ("program", "different", r"values: |None for|for None", r"(retain_grad|hook) .*double=True"),
    ],
    "subclasses": [
        # The database calls a method of an argument that is not a tensor. mytorch's function calls `__torch_function__`.
        (".*", "accepted", r"'Duck' object has no attribute|doesn't apply to a 'Duck' object", r"^duck"),
        # An alias is the function that it is an alias of, and has its name.
        ("unsafe_chunk|unsafe_split|true_divide|ravel|conj_physical|trapz|alias_copy", "different", r"\"\['(chunk|split|div|flatten|conj|trapezoid|clone)'\]\"", r""),
        ("linalg.(inv|householder_product)", "different", r"\"\['(inverse|orgqr)'\]\" for", r""),
        ("upsample_.*|logsigmoid|grid_sampler_.d", "different", r"\"\['(upsample_\w+|logsigmoid|grid_sampler)'\]\" for", r""),
        ("(adaptive_)?max_pool.d", "different", r"\"\['(\w+)'\]\" for \"\['\1_with_indices'\]\"", r""),
        # PyTorch's function is composed of calls of other functions, which a subclass sees.
        ("max_unpool1d|resize_as_", "different", r"\"\['(max_unpool1d|resize_as_)'\]\" for \"\[('\w+', )*'\w+'\]\"", r"^logged"),
    ],
    "keywords": [
        # The names of PyTorch's documentation are accepted together with the names of its parser.
        ("tensor_split|[dhv]split", "accepted", r"received an invalid combination of arguments", r"indices_or_sections="),
        ("one_hot", "accepted", r"missing 1 required", r"tensor="),
        ("lu_solve", "accepted", r"missing", r"b="),
        # `input` names the first argument of each function.
        ("linalg\\..*", "accepted", r"missing 1 required", r"input="),
        # `targets` is the documented name in native mode.
        ("cross_entropy", "accepted", r"unexpected keyword argument 'targets'", r"targets="),
        # `other` names the second tensor, as in `view_as` and `expand_as`.
        ("resize_as_", "accepted", r"missing 1 required", r"other="),
    ],
    "empty": [
        # PyTorch returns uninitialized elements.
        ("multilabel_margin_loss|multi_margin_loss|resize_as_", "different|spread", r"values", r""),
        # LAPACK returns matrices in column order.
        ("linalg.householder_product|ormqr|lu_solve|triangular_solve|linalg.(lstsq|solve|solve_triangular)", "different", r"strides", r""),
        # The result of no numbers is a constant without a graph in PyTorch, or the integral of integers has their dtype.
        ("trapz|trapezoid|linalg.cond|cumulative_trapezoid", "different", r"observations for|dtype", r""),
        # The input is broadcast. PyTorch returns it in its own shape if the matrix is empty.
        ("addmv", "different", r"shape", r""),
        # A convolution, and a shuffle of pixels, have the same shape with and without elements. PyTorch returns another shape.
        ("conv2d|pixel_(un)?shuffle", "different|accepted", r"shape|channel", r""),
        # PyTorch's gradient of the source has the shape of the index, and PyTorch refuses the gradient.
        ("scatter_reduce", "accepted", r"ScatterReduceBackward0 returned an invalid gradient", r""),
        # Images without channels, and batches without windows, have results without elements.
        ("interpolate|grid_sample(r_.d)?|upsample_.*|conv_transpose.d|adaptive_avg_pool.d|channel_shuffle", "accepted", r"", r""),
        # Statistics of no channels, and products with no features, are empty.
        ("batch_norm|instance_norm|bilinear|view_as_real|stft", "accepted", r"", r""),
    ],
}  # fmt: skip


def is_listed(family, name, kind, told, text):
    """Returns True if a difference has a reason in `LISTED` or, for calls of single functions, in docs/differences.md."""
    if family != "inplace" and any(is_of(name, start) and kind in kinds for start, kinds in known()):
        return True
    return any(
        re.fullmatch(names, name)
        and re.fullmatch(kinds, kind)
        and re.search(explanation, told)
        and re.search(program, text)
        for names, kinds, explanation, program in LISTED.get(family, ())
    )


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
        with pytest.raises(mytorch.base.errors.InPlaceError, match="take the view again"):
            view.sum()
    else:
        y.requires_grad_()
        view.sum().backward()
        assert x.grad.tolist() == [[1, 1], [0, 0]]
        assert y.grad is None
