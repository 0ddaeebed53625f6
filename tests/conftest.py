"""What all tests share: seeds, and PyTorch where a test compares with it."""

import random

import numpy as np
import pytest

import mytorch


@pytest.fixture(autouse=True)
def seeded():
    """Every test starts from the same random state, whatever ran before."""
    random.seed(0)
    np.random.seed(0)
    mytorch.manual_seed(0)


@pytest.fixture
def torch():
    """PyTorch, the reference; tests that ask for it skip without it."""
    found = pytest.importorskip("torch")
    found.manual_seed(0)
    return found


@pytest.fixture
def rng():
    """A NumPy generator of the test's own."""
    return np.random.default_rng(0)
