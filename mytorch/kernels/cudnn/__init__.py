"""NVIDIA's cuDNN through its frontend (`nvidia-cudnn-frontend`), with CuPy's arrays, stream and memory.

A graph of one operation, for arrays of given shapes and strides, is passed to cuDNN, which chooses a kernel and compiles it. Since
this takes up to tenths of a second, it is done once per key, and the plan is stored (`Operations`).

A call enqueues kernels on the current stream, and its workspace comes from CuPy's pool like any array. During the capture of a CUDA
graph no plan is created: a key that earlier runs have not used runs with Triton. Triton also runs what cuDNN has no kernel for.

Reference: NVIDIA, "cuDNN Frontend API".
"""

import importlib
import sys
import threading
import warnings

import numpy as np

from ...arrays import address, capturing, cupy_ns
from ...arrays.dtypes import bfloat16
from ...arrays.errors import OutOfMemoryError

OLDEST = 91501  # before 9.15.1, attention's backward copies padded lengths from the CPU at each call, and there are known bugs
MOST_PLANS = 512
_handles = threading.local()  # cuDNN's must not be shared between threads
_state = {}  # "library": the frontend; "problem": why it can't be used, or None


def library():
    """Returns the frontend, after `why_not` returned None."""
    return _state["library"]


def why_not():
    """Returns the reason for not using cuDNN, or None. Warns, once, if it is installed but not usable."""
    if "problem" not in _state:
        _state["problem"] = _load()
    return _state["problem"]


def _load():
    try:
        found = import_without_torch()
        _load_what_it_looks_for()
        version = found.backend_version()
        if version < OLDEST:
            raise RuntimeError(f"its version is {version}, and 9.15.1 or a newer one is needed.")
    except Exception as error:  # not installed; a required library is missing; or the frontend without cuDNN
        if getattr(error, "name", None) == "cudnn":
            return "nvidia-cudnn-frontend is not installed"
        reason = f"cuDNN can't be used: {error}"
        warnings.warn(f"{reason.rstrip('.')}. Triton's kernels are used.", UserWarning, stacklevel=2)
        return reason
    _state["library"] = found
    return None


def import_without_torch():
    """Imports the frontend. PyTorch is hidden meanwhile, since some releases import it if it is installed, which takes seconds."""
    hidden = "torch" not in sys.modules
    if hidden:
        sys.modules["torch"] = None
    try:
        return importlib.import_module("cudnn")
    finally:
        if hidden:
            del sys.modules["torch"]


def _load_what_it_looks_for():
    """Loads the CUDA libraries that cuDNN opens by name, from the location that CuPy uses. Errors are ignored."""
    for name in ("cudart", "nvrtc"):
        try:
            importlib.import_module("cuda.pathfinder").load_nvidia_dynamic_lib(name)
        except Exception:
            continue


def handle():
    """Returns this thread's handle for the current GPU, set to the current stream."""
    cuda = cupy_ns().cuda
    device = cuda.runtime.getDevice()
    handles = vars(_handles)
    if device not in handles:
        handles[device] = library().create_handle()
    library().set_stream(handle=handles[device], stream=cuda.get_current_stream().ptr)
    return handles[device]


# -- graphs -----------------------------------------------------------------------------------------------------------


def new_graph(dtype):
    """Returns an empty graph of operations on arrays of a dtype, computed in float32."""
    float32 = library().data_type.FLOAT
    return library().pygraph(
        io_data_type=data_type(dtype), intermediate_data_type=float32, compute_data_type=float32, handle=handle()
    )


def data_type(dtype):
    """Returns cuDNN's type for float16, bfloat16 or float32."""
    types = library().data_type
    return {np.dtype(np.float16): types.HALF, bfloat16.numpy: types.BFLOAT16, np.dtype(np.float32): types.FLOAT}[dtype]


def add_input(graph, number, layout, dtype):
    """Adds an array to a graph. layout: its shape, and its strides in elements."""
    dim, stride = map(list, layout)
    return graph.tensor(dim=dim, stride=stride, data_type=data_type(dtype), uid=number, name=f"array{number}")


def add_output(tensor, number, layout, dtype):
    """Makes a result an output of its graph."""
    dim, stride = map(list, layout)
    tensor.set_output(True).set_uid(number).set_dim(dim).set_stride(stride).set_data_type(data_type(dtype))


class Plan:
    """A graph for which cuDNN has chosen and compiled a kernel, and its workspace size in bytes.

    Args:
        graph: the graph.
        avoided: numerical notes of kernels that must not be chosen.
    """

    def __init__(self, graph, avoided=()):
        modes = library().heur_mode
        graph.validate()
        graph.build_operation_graph()
        graph.create_execution_plans([modes.A, modes.FALLBACK])
        if avoided:
            graph.deselect_numeric_notes(list(avoided))
        graph.check_support()
        graph.build_plans()
        self.graph = graph
        self.workspace = graph.get_workspace_size()


class Operations:
    """The plans of one kind of operation, and the errors of its calls.

    Args:
        name: for warnings.
        is_required: returns True if errors must be raised, instead of using Triton.
    """

    def __init__(self, name, is_required=lambda: False):
        self.name, self.is_required = name, is_required
        self.plans = {}  # key -> Plan, or None if cuDNN has no kernel
        self.errors = []  # after an error in a call, cuDNN is not used any more
        self.warned = []

    def plan(self, key, build):
        """Returns the plan of a key, made by `build()`; None if cuDNN has no kernel, or during a capture."""
        if key not in self.plans:
            if capturing.is_recording():
                return None
            if len(self.plans) >= MOST_PLANS:
                self.plans.pop(next(iter(self.plans)), None)
            try:
                self.plans[key] = build()
            except Exception as error:  # errors of cuDNN, the frontend and the binding have no common class
                self.plans[key] = None
                self._refuse(error)
        return self.plans[key]

    def run(self, xp, plan, arrays):
        """Enqueues a plan on the current stream. `arrays`: number -> array. Returns False if nothing was done.

        The reason is an error of cuDNN, or too little memory for its workspace.
        """
        try:
            workspace = xp.empty(max(plan.workspace, 1), np.uint8)
        except (MemoryError, OutOfMemoryError):
            return False
        pointers = {number: address(x) for number, x in arrays.items()}
        try:
            plan.graph.execute(pointers, address(workspace), handle=handle())
        except Exception as error:  # as in `plan`
            self.errors.append(error)
            self._refuse(error)
            return False
        if capturing.is_recording():
            capturing.current.kept.append(plan)  # a replay runs this plan's kernels, so keep it alive
        return True

    def _refuse(self, error):
        """Warns once that Triton computes what cuDNN does not.

        Raises:
            RuntimeError: cuDNN is required.
        """
        reason = f"cuDNN does not compute this {self.name}: {error}"
        if self.is_required():
            raise RuntimeError(reason)
        if not self.warned:
            self.warned.append(reason)
            warnings.warn(f"{reason.rstrip('.')}. Triton's kernel is used.", UserWarning, stacklevel=4)
