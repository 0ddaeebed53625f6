"""Under MYTORCH_COMPILE_ONLY, launches only compile; this must happen before the kernel modules are imported."""

import os

import numpy as np
import pytest

if "MYTORCH_COMPILE_ONLY" in os.environ:
    from . import compile_only  # noqa: F401


@pytest.fixture(autouse=True)
def same_numbers():
    """Every check draws the same arrays, independent of the order of the checks."""
    from . import cases

    cases.rng = np.random.default_rng(0)
