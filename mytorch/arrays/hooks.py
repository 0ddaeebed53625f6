"""Functions that a lower layer calls and a higher layer defines.

A lower layer cannot import a higher one, so the module that defines such a function assigns it here, once, on import.
A comment at each function names its callers and the module that defines it.
"""

from collections.abc import Callable
from typing import Any

# Called by ops/dispatch/composed.py: (record, inputs, fused, attrs) -> result of the op, computed as a composition of other
# ops. Defined in autograd/tensor_ns.py.
run_composed: Callable[..., Any] | None = None

# The arithmetic of a backward pass that is itself recorded (create_graph=True), used by autograd/backward_call.py. Defined in
# autograd/tensor_ns.py.
recorded_arithmetic: Any = None

# Called by kernels/cudnn/attention.py: True if operations can be recorded for backward. Defined in autograd/mode.py.
is_grad_enabled: Callable[[], bool]

# Called by arrays/tensor.py: (class) prepares a subclass of Tensor that a program defines. Defined in _extensions.py.
define_subclass: Callable[[type], None] | None = None

# Called by arrays/tensor.py: (tensor, args, kwargs) creates the data of an instance of such a subclass. Defined in _extensions.py.
construct_subclass: Callable[..., None] = lambda tensor, args, kwargs: None  # noqa: E731

# Called by autograd/walk.py: (roots, keep_graph) -> True if a compiled program has run backward. Defined in
# compiler/compiled.py; None until a function is compiled.
run_backward: Callable[..., bool] | None = None

# Called by optim/optimizer.py: (optimizer, group) -> True if a compiled program has updated the group. Defined in
# compiler/compiled.py; None until a function is compiled.
update_group: Callable[..., bool] | None = None

# Called by ops/embedding.py: (weight, index, padding_idx, scale_grad_by_freq) -> rows, with a sparse gradient of the table.
# Defined in _extensions.py.
embed_sparsely: Callable[..., Any] | None = None

# Called by nn/utils/clip.py: (name of a function, tensors, further arguments) -> its result for DTensors, or NOTHING of
# arrays/overriding.py. Defined in distributed/tensor/rules.py; None until the first DTensor is created.
clip_sharded: Callable[..., Any] | None = None

# Called by amp/__init__.py: (scaler, optimizer) -> whether a gradient of any process is infinite or NaN, after unscaling them.
# Defined in distributed/tensor/rules.py; None until the first DTensor is created.
unscale_sharded: Callable[..., Any] | None = None

# Called by arrays/tensor.py: (tensor) detaches a tensor in place from the innermost function transform only, and returns False
# outside of transforms. Defined in func.py; None until it is imported.
detach_in_transform: Callable[[Any], bool] | None = None

# Called by autograd/node.py: (node) gives a node that a program reads the class with PyTorch's name. Defined in
# _extensions.py.
name_node: Callable[[Any], None] | None = None


def shown(array: Any) -> Any:
    """Returns the object that programs see for an Array: the Array, or in PyTorch mode a Tensor with its memory.

    Called by autograd/walk.py and optim/state.py. compat/paths.py replaces it.
    """
    return array


# Called by kernels/threads.py: threads wait for work without the GIL, and divide a kernel. Defined in kernels/numba/pool.py; None
# until a Numba kernel is loaded.
watch: Callable[..., int] | None = None
rest: Callable[..., int] | None = None
divide: Callable[..., bool | None] | None = None

# Called by arrays/gpu.py when a GPU is first used: (the cupy module) -> {name: function} for CuPy's namespace. Modules of
# kernels/ append to this list.
cupy_functions: list[Callable[[Any], dict[str, Callable[..., Any]]]] = []
