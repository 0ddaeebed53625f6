"""Kernels: fast implementations of some ops, each a module with `accepts`, `is_faster`, `forward` and optionally `vjp`.

They work on raw arrays and import nothing above `backend`, so each can be read, tested and timed alone.
`dispatch/op.py` finds them by the path in an op's `.register_kernel(...)`.
"""

from . import arrays
