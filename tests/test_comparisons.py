"""Generated programs compared with PyTorch (tests/comparisons.py): no silent difference and no raw error.

`MYTORCH_FUZZ=5000 MYTORCH_FUZZ_SEED=7 python -m pytest tests/test_comparisons.py` runs more programs. docs/compatibility.md lists the
differences by the name of the function. `LISTED` contains the differences of one kind of program, with the reason.
"""

import pytest

pytest.importorskip("torch")
pytest.importorskip("expecttest", reason="PyTorch's operator database needs it")

from tests import comparisons
from tests.test_fuzz import COUNT, SEED, is_of, known

COUNTS = {"losses": 60, "inplace": 10, "keywords": 30, "copies": 40, "subclasses": 25, "empty": 30}
LISTED = {
    "losses": {
        # Distances that differ by less than the rounding of their largest number.
        "triplet_margin": {"different", "spread"}, "cosine_embedding_loss": {"different"},
        # Second derivatives at infinite logits, and below 1e-8 of the largest one.
        "binary_cross_entropy": {"different", "spread"}, "multilabel_soft_margin_loss": {"different", "spread"},
    },
    # Hooks of views, and views under no_grad, in programs that change them in place.
    "inplace": {"program": {"different", "spread"}},
    # An alias has the name of the function: ravel is flatten, true_divide is div. Numbers may be subclasses, which linspace reads.
    "subclasses": {
        "": {"accepted"},
        **dict.fromkeys(
            """unsafe_chunk unsafe_split adaptive_max_pool max_unpool linspace logspace glu softmin pad linalg.householder_product
            norm lu upsample_ conj_physical split alias_copy batch_norm linalg.inv grid_sampler unfold interpolate unravel_index
            logsigmoid stft ravel layer_norm max_pool trapz linalg.lstsq resize_as_ rms_norm true_divide special.""".split(),
            {"different", "words"},
        ),
    },
    # Uninitialized results of PyTorch, strides of results of LAPACK, and the dtype of the sum of no numbers.
    "empty": {
        **dict.fromkeys(
            """multilabel_margin_loss multi_margin_loss resize_as_ linalg.householder_product ormqr lu_solve triangular_solve trapz
            cumulative_trapezoid linalg.cond addmv""".split(),
            {"different", "spread"},
        ),
        **dict.fromkeys("interpolate grid_sampler view_as_real upsample_ batch_norm cov bilinear stft grid_sample channel_shuffle".split(), {"accepted"}),
        "instance_norm": {"accepted"}, "conv_transpose": {"accepted"}, "adaptive_avg_pool": {"accepted"},
    },
}  # fmt: skip


@pytest.mark.cpu_only
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("family", comparisons.FAMILIES)
def test_generated_programs(family):
    allowed, failed = [*known(), *LISTED.get(family, {}).items()], []
    for number in range(COUNT or COUNTS[family]):
        program = comparisons.case(family, SEED, number)
        kind, told = ("ok", "") if program is None else comparisons.outcome(program)
        name = "" if program is None else program.name.removeprefix("nn.functional.")
        if kind in ("different", "spread", "accepted", "words") and not any(
            (start == "" or is_of(name, start)) and kind in kinds for start, kinds in allowed
        ):
            failed.append(f"{number}: {kind}: {program}: {told}")
    assert not failed, f"{len(failed)}\n" + "\n".join(f[:600] for f in failed[:20])
