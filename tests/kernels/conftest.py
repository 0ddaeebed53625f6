"""Under MYTORCH_COMPILE_ONLY, launches only compile; this must happen before the kernel modules are imported."""

import os

if "MYTORCH_COMPILE_ONLY" in os.environ:
    from . import compile_only  # noqa: F401
