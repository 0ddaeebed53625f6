"""Each region of a compiled function also runs eagerly in these tests, and its results are compared."""

import os

os.environ["MYTORCH_COMPILE_CHECK"] = "1"
