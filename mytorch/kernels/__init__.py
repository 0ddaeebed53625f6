"""Kernels: fast implementations of some ops, each a module with `accepts`, `is_faster`, `forward` and optionally `vjp`.

They work on raw arrays and import nothing above `arrays`, so each can be read, tested and timed alone.
`ops/dispatch/op.py` finds them by the path in an op's `.register_kernel(...)`.
"""

from . import arrays
