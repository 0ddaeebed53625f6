"""Functions that a lower layer calls and a higher layer defines.

A lower layer cannot import a higher one, so the module that defines such a function assigns it here, once, on import.
Each name says who calls it and which module defines it.
"""

from collections.abc import Callable
from typing import Any

# Called by dispatch/composed.py: (record, inputs, fused, attrs) -> result of the op, computed as a composition of other
# ops. Defined in transforms/tensor_ns.py.
run_composed: Callable[..., Any] | None = None

# The arithmetic of a backward pass that is itself recorded (create_graph=True), used by dispatch/backward.py. Defined in
# transforms/tensor_ns.py.
recorded_arithmetic: Any = None

# Called by kernels/cudnn.py: whether operations may be recorded for backward. Defined in engine/mode.py.
is_grad_enabled: Callable[[], bool]

# Called by the threads of kernels/threads.py: wait for work without Python's lock. Defined in kernels/numba/waiting.py,
# and None until a Numba kernel is loaded.
watch: Callable[..., int] | None = None
rest: Callable[..., int] | None = None

# Called by backend/gpu.py when a GPU is first used: (the cupy module) -> {name: function} for CuPy's namespace. Modules of
# kernels/ append to this list.
cupy_functions: list[Callable[[Any], dict[str, Callable[..., Any]]]] = []
