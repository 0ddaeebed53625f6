"""Attention on a GPU by NVIDIA's cuDNN, through its frontend (`nvidia-cudnn-frontend`), with CuPy's arrays, stream and memory.

On Hopper, cuDNN's kernels need about two thirds of the time of Triton's kernels. They are used for the common cases of training:
float16 and bfloat16, no mask or a causal mask, grouped queries, no dropout. All other cases use triton/attention.py. So does
deterministic mode, since the order of summation of cuDNN's query gradient is unspecified.

* **Plans.** A graph of one operation, for arrays of given shapes and strides, is passed to cuDNN, which chooses a kernel and
  compiles it. This takes tenths of a second, so it is done once per key and stored in `_plans`. The plan uses the strides of
  the arrays, so nothing is copied. Without recording for backward, no plan is created, since prompts have many different lengths.
* **Statistics.** Forward saves the logarithm of each row's sum. cuDNN uses the natural logarithm, Triton base 2, so forward and
  backward must use the same backend. If cuDNN's backward fails, the values are converted for Triton's backward.
* **CUDA graphs.** A call enqueues kernels on the current stream, and its workspace comes from CuPy's pool like any array. No plan
  is created during a capture: a key that earlier runs have not used runs with Triton.

`MYTORCH_ATTENTION=cudnn|triton`, read once, selects one backend wherever it can run, for measurements.

Reference: NVIDIA, "cuDNN Frontend API", chapter "Attention".
"""

import importlib
import math
import os
import sys
import threading
import warnings
from functools import lru_cache

import numpy as np

from ..arrays import address, capturing, config, cupy_ns, hooks
from ..arrays.dtypes import bfloat16
from .heads import by_time, side_by_side

CHOICES = ("cudnn", "triton")
OLDEST = 91501  # before 9.15.1, backward copies padded lengths from the CPU at each call, and there are known bugs
FEW = 128  # with fewer queries, Triton's kernel is faster
LOG2E = 1.4426950408889634

QUERY, KEY, VALUE, OUT, STATS, G, G_QUERY, G_KEY, G_VALUE = range(1, 10)  # numbers of a graph's arrays

residuals = ("stats",)
_library = None
_handles = threading.local()  # cuDNN's must not be shared between threads
_plans = {}  # key -> _Plan, or None if cuDNN has no kernel
_MOST_PLANS = 512
_trouble, _said = [], []  # errors after which cuDNN is not used; warnings that were already shown


def why_not():
    """Returns the reason for not using cuDNN's attention, or None. Warns if cuDNN is installed but not usable.

    Raises:
        ValueError: MYTORCH_ATTENTION has an unknown value.
    """
    global _library
    if _choice() == "triton":
        return "MYTORCH_ATTENTION is triton"
    try:
        library = _import_without_torch()
    except Exception as error:  # not installed; or a required library is missing or has the wrong version
        return "nvidia-cudnn-frontend is not installed" if getattr(error, "name", None) == "cudnn" else _refused(error)
    _load_what_it_looks_for()
    try:
        version = library.backend_version()
    except Exception as error:  # the frontend without cuDNN
        return _refused(error)
    if version < OLDEST:
        return _refused(f"its version is {version}, and 9.15.1 or a newer one is needed.")
    _library = library
    return None


@lru_cache
def _choice():
    """Returns MYTORCH_ATTENTION, or None."""
    choice = os.environ.get("MYTORCH_ATTENTION") or None
    if choice not in (None, *CHOICES):
        raise ValueError(f"MYTORCH_ATTENTION is {choice!r}; it takes one of {', '.join(CHOICES)}.")
    return choice


def _import_without_torch():
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


def _refused(error):
    """Returns the reason for not using cuDNN, and warns once.

    Raises:
        RuntimeError: MYTORCH_ATTENTION is cudnn.
    """
    reason = f"cuDNN's attention can't be used: {error}"
    if _choice() == "cudnn":
        raise RuntimeError(reason)
    if not _said:
        _said.append(reason)
        warnings.warn(f"{reason.rstrip('.')}. Triton's kernel is used.", UserWarning, stacklevel=4)
    return reason


# -- graphs -----------------------------------------------------------------------------------------------------------


class _Plan:
    """A graph for which cuDNN has chosen and compiled a kernel, and its workspace size in bytes."""

    def __init__(self, graph):
        graph.validate()
        graph.build_operation_graph()
        graph.create_execution_plans([_library.heur_mode.A, _library.heur_mode.FALLBACK])
        graph.check_support()
        graph.build_plans()
        self.graph = graph
        self.workspace = graph.get_workspace_size()

    def run(self, xp, arrays):
        """Enqueues the graph on the current stream. `arrays`: number -> array. Returns False if cuDNN raised and did nothing."""
        workspace = xp.empty(max(self.workspace, 1), np.uint8)
        pointers = {number: address(x) for number, x in arrays.items()}
        try:
            self.graph.execute(pointers, address(workspace), handle=_handle())
        except Exception as error:  # errors of cuDNN, the frontend and the binding have no common class
            _trouble.append(_refused(error))
            return False
        if capturing.is_recording():
            capturing.current.kept.append(self)  # a replay runs this plan's kernels, so keep it alive
        return True


def _handle():
    """Returns this thread's handle for the current GPU, set to the current stream."""
    cuda = cupy_ns().cuda
    device = cuda.runtime.getDevice()
    handles = vars(_handles)
    if device not in handles:
        handles[device] = _library.create_handle()
    _library.set_stream(handle=handles[device], stream=cuda.get_current_stream().ptr)
    return handles[device]


def _place(x):
    """Returns (shape, strides in elements) of an array. Strides of axes of size 1 are made at least a row."""
    steps = zip(x.shape, x.strides, strict=True)
    return x.shape, tuple([step // x.itemsize if n > 1 else max(step // x.itemsize, x.shape[3]) for n, step in steps])


def _key(kind, arrays, causal, scale):
    """Returns the key of a plan."""
    layouts = [(x.shape, x.strides, x.dtype) for x in arrays]
    return (kind, cupy_ns().cuda.runtime.getDevice(), causal, scale, *layouts)


def _planned(key, layouts, dtype):
    """Returns the plan of a key for arrays {number: (shape, strides)}; None if cuDNN has no kernel, or during a capture."""
    kind, _, causal, scale = key[:4]
    if key not in _plans:
        if capturing.is_recording() or not (kind == "backward" or hooks.is_grad_enabled() or _choice()):
            return None
        if len(_plans) >= _MOST_PLANS:
            _plans.pop(next(iter(_plans)), None)
        try:
            _plans[key] = _Plan(_graph(kind, dtype, layouts, causal, scale))
        except Exception as error:  # as in `run`
            _plans[key] = None
            _refused(error)
    return _plans[key]


def _graph(kind, dtype, layouts, causal, scale):
    """Builds a graph of attention, "forward" or "backward"."""
    types = _library.data_type
    half = types.HALF if dtype == np.float16 else types.BFLOAT16
    graph = _library.pygraph(
        io_data_type=half, intermediate_data_type=types.FLOAT, compute_data_type=types.FLOAT, handle=_handle()
    )

    def tensor_of(number):
        shape, strides = layouts[number]
        dtype_of = types.FLOAT if number == STATS else half
        return graph.tensor(
            dim=list(shape), stride=list(strides), data_type=dtype_of, uid=number, name=f"array{number}"
        )

    options = {"name": kind, "attn_scale": scale}
    if causal:  # query i sees keys 0 … i
        # A band matrix whose right bound is the diagonal.
        options.update(diagonal_alignment=_library.diagonal_alignment.TOP_LEFT, diagonal_band_right_bound=0)
    q, k, v = (tensor_of(number) for number in (QUERY, KEY, VALUE))
    if kind == "forward":
        outputs = dict(zip((OUT, STATS), graph.sdpa(q=q, k=k, v=v, generate_stats=True, **options), strict=True))
    else:
        o, g, stats = (tensor_of(number) for number in (OUT, G, STATS))
        gradients = graph.sdpa_backward(q=q, k=k, v=v, o=o, dO=g, stats=stats, **options)
        outputs = dict(zip((G_QUERY, G_KEY, G_VALUE), gradients, strict=True))
    for number, tensor in outputs.items():
        shape, strides = layouts[number]
        tensor.set_output(True).set_uid(number).set_dim(list(shape)).set_stride(list(strides))
        tensor.set_data_type(types.FLOAT if number == STATS else half)
    return graph


# -- kernel of the op -------------------------------------------------------------------------------------------------


@lru_cache
def _generation(device):
    """Returns the major compute capability: 9 for Hopper, 10 for Blackwell."""
    return int(cupy_ns().cuda.Device(device).compute_capability) // 10


def _here():
    return _generation(cupy_ns().cuda.runtime.getDevice())


def _reads(x):
    """Returns True if cuDNN can read an array without a copy: contiguous last axis, 16-byte alignment, no broadcast axes."""
    steps = [step for n, step in zip(x.shape[:3], x.strides, strict=False) if n > 1]
    return x.strides[3] == x.itemsize and all(s > 0 and not s % 16 for s in steps) and not address(x) % 16


def accepts(query, key, value, mask=None, *, keep=None, causal=False, window=None, scale, softcap=None):
    """Accepts half precision (B, H, L, D) without dropout and without a mask, except a causal one.

    Returns True only if cuDNN has a kernel and is expected to be faster: on Hopper and Blackwell, for more than a few queries.
    """
    if _trouble or config.deterministic or any(x is not None for x in (mask, keep, window, softcap)):
        return False
    inputs = query, key, value
    plan_key = _key("forward", inputs, causal, scale)
    plan = _plans.get(plan_key)  # an existing plan means that all other conditions were checked before
    if plan is None and _takes(query, key, value, scale):
        batch, heads, length, _ = query.shape
        width = value.shape[3]
        layouts = {number: _place(x) for number, x in zip((QUERY, KEY, VALUE), inputs, strict=True)}
        layouts[OUT] = (batch, heads, length, width), (length * heads * width, width, heads * width, 1)  # `by_time`
        layouts[STATS] = (batch, heads, length, 1), (heads * length, length, 1, 1)
        plan = _planned(plan_key, layouts, query.dtype)
    return plan is not None and not (address(query) | address(key) | address(value)) % 16


def _takes(query, key, value, scale):
    """Checks all conditions of `accepts` except the plan."""
    dtype = query.dtype
    if dtype not in (np.float16, bfloat16.numpy) or not dtype == key.dtype == value.dtype or query.ndim != 4:
        return False
    if _choice() is None and (query.shape[2] < FEW or _here() not in (9, 10)):
        return False
    batch, heads, length, width = query.shape
    if key.shape[:3] != value.shape[:3] or key.ndim != 4 or key.shape[0] != batch or key.shape[3] != width:
        return False
    if not query.size or not value.size or heads % key.shape[1] or min(length, key.shape[2]) < 2 or not scale > 0:
        return False
    widest = 256 if _here() == 9 else 128
    return all(n <= widest and not n % 8 for n in (width, value.shape[3])) and all(map(_reads, (query, key, value)))


def forward(xp, query, key, value, mask=None, *, keep=None, causal=False, window=None, scale, softcap=None, flash):
    """softmax(query @ keyᵀ * scale) @ value, and the natural logarithm of each row's sum (B, H, L, 1).

    `flash` is kernels/triton/attention.py, which runs where cuDNN fails at the last moment.
    """
    out, stats = by_time(xp, query, value.shape[3]), xp.empty((*query.shape[:3], 1), np.float32)
    arrays = {QUERY: query, KEY: key, VALUE: value, OUT: out, STATS: stats}
    if not _plans[_key("forward", (query, key, value), causal, scale)].run(xp, arrays):
        out, lse = flash.run_forward(xp, query, key, value, causal=causal, scale=scale)
        # Convert Triton's base-2 log-sum-exp to the natural logarithm.
        stats = (lse * np.float32(math.log(2)))[..., None]
    return out, stats


def vjp(g, query, key, value, out, stats, causal, scale, needs, xp, flash):
    """The gradients of query, key and value; `flash` as in `forward`."""
    if g.dtype != query.dtype:
        g = g.astype(query.dtype)
    if not _reads(g):
        strided, g = g, by_time(xp, query, value.shape[3])
        g[...] = strided
    grads = None
    if not _trouble and not config.deterministic and all(map(_reads, (query, key, value, out))):
        grads = _gradients(xp, g, query, key, value, out, stats, causal, scale)
    if grads is None:
        lse = stats.reshape(stats.shape[:3]) * np.float32(LOG2E)
        options = {"causal": causal, "scale": scale, "needs": needs}
        return flash.run_backward(xp, g, query, key, value, out, lse, **options)
    return *[gx if needed else None for gx, needed in zip(grads, needs[:3], strict=True)], None


def _gradients(xp, g, query, key, value, out, stats, causal, scale):
    """Returns cuDNN's gradients of query, key and value; None if cuDNN has no kernel or fails."""
    grads = side_by_side(xp, query, key, value) or [by_time(xp, x, x.shape[3]) for x in (query, key, value)]
    arrays = dict(zip((QUERY, KEY, VALUE, OUT, STATS, G), (query, key, value, out, stats, g), strict=True))
    arrays.update(zip((G_QUERY, G_KEY, G_VALUE), grads, strict=True))
    layouts = {number: _place(x) for number, x in arrays.items()}
    plan = _planned(_key("backward", arrays.values(), causal, scale), layouts, query.dtype)
    return grads if plan is not None and plan.run(xp, arrays) else None
