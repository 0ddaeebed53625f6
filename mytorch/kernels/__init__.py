"""Kernels: fast forms of some ops, each a module with `accepts`, `pays`, `forward` and perhaps `vjp`.

They see raw arrays only and import nothing above `backend`, so each can be read, tested and timed alone.
`dispatch/op.py` looks them up by the path that an op's `.fuse(...)` names.
"""

from . import arrays
