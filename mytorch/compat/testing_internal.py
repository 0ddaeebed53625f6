"""`torch.testing._internal.common_utils`: the test case of PyTorch's tests, for tests of packages."""

import unittest
from collections.abc import Sequence

from ..arrays.tensor import Tensor
from ..ops.creation import as_tensor
from .testing import Checks, compared, difference, make_tensor, tolerances  # noqa: F401

__path__: list[str] = []
TEST_CUDA = TEST_WITH_ROCM = IS_WINDOWS = IS_MACOS = False


class TestCase(unittest.TestCase):
    """A test case whose `assertEqual` compares numbers and tensors, also in containers, with a tolerance."""

    def assertEqual(
        self, x, y, msg=None, *, atol=None, rtol=None, equal_nan=True, exact_dtype=True, exact_device=False, exact_layout=False,
        exact_stride=False,
    ):  # fmt: skip
        """Checks that two values are equal or close. A number may be compared with a tensor, and a list of numbers, too.

        Args:
            x: the first value.
            y: the second value.
            msg: message of the error.
            atol: absolute tolerance (default: by dtype).
            rtol: relative tolerance (default: by dtype).
            equal_nan: treat NaN as equal to NaN (default: True).
            exact_dtype: compare the dtypes of tensors (default: True).
            exact_device: compare devices.
            exact_layout: compare layouts.
            exact_stride: compare strides.

        Raises:
            ValueError: if only one of atol and rtol is given.
        """
        if isinstance(x, Tensor) and isinstance(y, Sequence):
            y = as_tensor(y, dtype=x.dtype, device=x.device)
        elif isinstance(y, Tensor) and isinstance(x, Sequence):
            x = as_tensor(x, dtype=y.dtype, device=y.device)
        attributes = compared(device=exact_device, dtype=exact_dtype, layout=exact_layout, stride=exact_stride)
        report = difference(x, y, Checks(tolerances(rtol, atol), equal_nan, True, attributes, relaxed=True))
        if report is not None:
            raise self.failureException(msg(report) if callable(msg) else self._formatMessage(msg, report))


def run_tests(argv=None):
    """Runs the tests of the program.

    Args:
        argv: command line.
    """
    unittest.main(argv=argv)
