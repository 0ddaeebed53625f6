"""Compares the Triton kernels with the references for all memory layouts, with the tests of `test_layouts.py`.

Runs with a fake CuPy in Triton's interpreter (test_triton.py starts it with these options), or on a GPU.
"""

from tests.kernels.test_layouts import *  # noqa: F403
