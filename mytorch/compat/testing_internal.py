"""`torch.testing._internal.common_utils`: the test case of PyTorch's tests, for tests of packages."""

import unittest

from ..arrays.tensor import Tensor
from .testing import assert_close, make_tensor  # noqa: F401

__path__: list[str] = []
TEST_CUDA = TEST_WITH_ROCM = IS_WINDOWS = IS_MACOS = False


class TestCase(unittest.TestCase):
    """A test case whose `assertEqual` compares tensors, also in containers, with a tolerance."""

    def assertEqual(self, x, y, msg=None, *, atol=None, rtol=None, exact_dtype=True):
        """Checks that two values are equal or close.

        Args:
            x: the first value.
            y: the second value.
            msg: message of the error.
            atol: absolute tolerance (default: by dtype).
            rtol: relative tolerance (default: by dtype).
            exact_dtype: compare dtypes (default: True).
        """
        if isinstance(x, (Tensor, list, tuple, dict)) or isinstance(y, Tensor):
            rtol, atol = (rtol or 0.0, atol or 0.0) if (rtol, atol) != (None, None) else (None, None)
            assert_close(x, y, rtol=rtol, atol=atol, equal_nan=True, check_dtype=exact_dtype, msg=msg)
        elif atol is not None or rtol is not None:
            if abs(x - y) > (atol or 0.0) + (rtol or 0.0) * abs(y):
                self.fail(self._formatMessage(msg, f"{x!r} != {y!r}"))
        else:
            super().assertEqual(x, y, msg)  # noqa: PT009


def run_tests(argv=None):
    """Runs the tests of the program.

    Args:
        argv: command line.
    """
    unittest.main(argv=argv)
