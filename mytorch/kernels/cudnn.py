"""Attention on a GPU by NVIDIA's cuDNN, through its frontend (`nvidia-cudnn-frontend`), on CuPy's arrays, stream and memory.

On Hopper cuDNN's kernels take about two thirds of the time of any that Triton makes. They take what training is made of: float16
and bfloat16, no mask or a causal one, grouped queries, no dropout. The rest is Triton's (triton/attention.py), as is everything in
deterministic mode, since cuDNN's backward adds up the queries' gradient in the order that it happens.

* **Plans.** A graph of one operation, for arrays of given shapes and strides, is given to cuDNN, which chooses a kernel and
  compiles it. That takes tenths of a second, so it is done once for each key and kept in `_plans`; a later call looks it up. Strides
  are the arrays' own: nothing is copied. Where nothing is recorded for backward no plan is made, since prompts have all lengths.
* **Statistics.** Forward keeps the logarithm of each row's sum, as Triton's does, but the natural one, and that to the base 2: so whose
  forward ran, his backward runs. Where cuDNN's can't, Triton's is given them in its own units.
* **CUDA graphs.** A call enqueues kernels on the current stream, and its workspace comes from CuPy's pool as any array does. Under
  capture nothing is planned: a key that the runs before it have not seen is Triton's.

`MYTORCH_ATTENTION=cudnn|triton`, read once, takes one of them wherever it can run, for measuring.

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

from ..backend import address, cupy_ns
from ..base import capturing, config, hooks
from ..base.dtypes import bfloat16
from .heads import by_time, side_by_side

CHOICES = ("cudnn", "triton")
OLDEST = 91501  # before 9.15.1 backward pads lengths by copying from the CPU at each call, and there are known bugs
FEW = 128  # queries, below which a launch of Triton's is the quicker one
LOG2E = 1.4426950408889634

QUERY, KEY, VALUE, OUT, STATS, G, G_QUERY, G_KEY, G_VALUE = range(1, 10)  # by which a graph knows its arrays

residuals = ("stats",)
_library = None
_handles = threading.local()  # cuDNN's must not be shared between threads
_plans = {}  # key -> _Plan, or None where cuDNN has none
_MOST_PLANS = 512
_trouble, _said = [], []  # why cuDNN is used no more; what was said of that, or of a plan


def why_not():
    """Why cuDNN's attention can't be used here, or None if it can; warns where it is installed in vain.

    Raises:
        ValueError: MYTORCH_ATTENTION is another word.
    """
    global _library
    if _choice() == "triton":
        return "MYTORCH_ATTENTION is triton"
    try:
        library = _import_without_torch()
    except Exception as error:  # not installed; or a library that it needs is missing, or does not fit
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
    """MYTORCH_ATTENTION, or None."""
    choice = os.environ.get("MYTORCH_ATTENTION") or None
    if choice not in (None, *CHOICES):
        raise ValueError(f"MYTORCH_ATTENTION is {choice!r}; it takes one of {', '.join(CHOICES)}.")
    return choice


def _import_without_torch():
    """The frontend. Some releases import PyTorch wherever it is installed, which takes seconds, and do without where it is not."""
    hidden = "torch" not in sys.modules
    if hidden:
        sys.modules["torch"] = None
    try:
        return importlib.import_module("cudnn")
    finally:
        if hidden:
            del sys.modules["torch"]


def _load_what_it_looks_for():
    """Load CUDA's libraries that cuDNN asks for by name alone, from where CuPy finds its own; the system's do as well."""
    for name in ("cudart", "nvrtc"):
        try:
            importlib.import_module("cuda.pathfinder").load_nvidia_dynamic_lib(name)
        except Exception:
            continue


def _refused(error):
    """Why cuDNN is not used, as is said once.

    Raises:
        RuntimeError: MYTORCH_ATTENTION is cudnn.
    """
    reason = f"cuDNN's attention can't be used: {error}"
    if _choice() == "cudnn":
        raise RuntimeError(reason)
    if not _said:
        _said.append(reason)
        warnings.warn(f"{reason} Triton's is.", UserWarning, stacklevel=4)
    return reason


# -- graphs -----------------------------------------------------------------------------------------------------------


class _Plan:
    """A graph for which cuDNN has chosen and compiled a kernel, and the bytes of workspace that it wants."""

    def __init__(self, graph):
        graph.validate()
        graph.build_operation_graph()
        graph.create_execution_plans([_library.heur_mode.A, _library.heur_mode.FALLBACK])
        graph.check_support()
        graph.build_plans()
        self.graph = graph
        self.workspace = graph.get_workspace_size()

    def run(self, xp, arrays):
        """Enqueue it on the current stream; `arrays` by the graph's numbers. False if cuDNN refused, having done nothing."""
        workspace = xp.empty(max(self.workspace, 1), np.uint8)
        pointers = {number: address(x) for number, x in arrays.items()}
        try:
            self.graph.execute(pointers, address(workspace), handle=_handle())
        except Exception as error:  # cuDNN's own, the frontend's and the binding's have no common class
            _trouble.append(_refused(error))
            return False
        if capturing.is_recording():
            capturing.current.kept.append(self)  # a replay runs its kernels
        return True


def _handle():
    """This thread's handle for the current GPU, on the current stream."""
    cuda = cupy_ns().cuda
    device = cuda.runtime.getDevice()
    known = vars(_handles)
    if device not in known:
        known[device] = _library.create_handle()
    _library.set_stream(handle=known[device], stream=cuda.get_current_stream().ptr)
    return known[device]


def _place(x):
    """(shape, strides in elements) of an array."""
    steps = zip(x.shape, x.strides, strict=True)
    return x.shape, tuple([step // x.itemsize if n > 1 else max(step // x.itemsize, x.shape[3]) for n, step in steps])


def _key(kind, arrays, causal, scale):
    """What a plan is kept by."""
    looks = [(x.shape, x.strides, x.dtype) for x in arrays]
    return (kind, cupy_ns().cuda.runtime.getDevice(), causal, scale, *looks)


def _planned(key, places, dtype):
    """The plan of a key, for arrays at these places {number: (shape, strides)}; None where cuDNN has none, or can't look now."""
    kind, _, causal, scale = key[:4]
    if key not in _plans:
        if capturing.is_recording() or not (kind == "backward" or hooks.is_grad_enabled() or _choice()):
            return None
        if len(_plans) >= _MOST_PLANS:
            _plans.pop(next(iter(_plans)), None)
        try:
            _plans[key] = _Plan(_graph(kind, dtype, places, causal, scale))
        except Exception as error:  # as in `run`
            _plans[key] = None
            _refused(error)
    return _plans[key]


def _graph(kind, dtype, places, causal, scale):
    """A graph of attention, "forward" or "backward"."""
    types = _library.data_type
    half = types.HALF if dtype == np.float16 else types.BFLOAT16
    graph = _library.pygraph(
        io_data_type=half, intermediate_data_type=types.FLOAT, compute_data_type=types.FLOAT, handle=_handle()
    )

    def given(number):
        shape, strides = places[number]
        of = types.FLOAT if number == STATS else half
        return graph.tensor(dim=list(shape), stride=list(strides), data_type=of, uid=number, name=f"array{number}")

    options = {"name": kind, "attn_scale": scale}
    if causal:  # query i sees keys 0 … i
        options.update(diagonal_alignment=_library.diagonal_alignment.TOP_LEFT, diagonal_band_right_bound=0)
    q, k, v = (given(number) for number in (QUERY, KEY, VALUE))
    if kind == "forward":
        found = dict(zip((OUT, STATS), graph.sdpa(q=q, k=k, v=v, generate_stats=True, **options), strict=True))
    else:
        o, g, stats = (given(number) for number in (OUT, G, STATS))
        gradients = graph.sdpa_backward(q=q, k=k, v=v, o=o, dO=g, stats=stats, **options)
        found = dict(zip((G_QUERY, G_KEY, G_VALUE), gradients, strict=True))
    for number, tensor in found.items():
        shape, strides = places[number]
        tensor.set_output(True).set_uid(number).set_dim(list(shape)).set_stride(list(strides))
        tensor.set_data_type(types.FLOAT if number == STATS else half)
    return graph


# -- as a kernel of the op --------------------------------------------------------------------------------------------


@lru_cache
def _generation(device):
    """9 of Hopper, 10 of Blackwell."""
    return int(cupy_ns().cuda.Device(device).compute_capability) // 10


def _here():
    return _generation(cupy_ns().cuda.runtime.getDevice())


def _reads(x):
    """Whether cuDNN reads an array as it lies: 16 bytes at a time along the last axis, no element twice."""
    steps = [step for n, step in zip(x.shape[:3], x.strides, strict=False) if n > 1]
    return x.strides[3] == x.itemsize and all(s > 0 and not s % 16 for s in steps) and not address(x) % 16


def accepts(query, key, value, mask=None, *, keep=None, causal=False, window=None, scale, softcap=None):
    """Half precision (B, H, L, D), no mask but a causal one, no dropout, where cuDNN is the quicker one and has a kernel for it.

    It is on Hopper and Blackwell, for more than a few queries.
    """
    if _trouble or config.deterministic or any(x is not None for x in (mask, keep, window, softcap)):
        return False
    inputs = query, key, value
    name = _key("forward", inputs, causal, scale)
    plan = _plans.get(name)  # if it is there, all else was asked before
    if plan is None and _takes(query, key, value, scale):
        batch, heads, length, _ = query.shape
        width = value.shape[3]
        places = {number: _place(x) for number, x in zip((QUERY, KEY, VALUE), inputs, strict=True)}
        places[OUT] = (batch, heads, length, width), (length * heads * width, width, heads * width, 1)  # `by_time`
        places[STATS] = (batch, heads, length, 1), (heads * length, length, 1, 1)
        plan = _planned(name, places, query.dtype)
    return plan is not None and not (address(query) | address(key) | address(value)) % 16


def _takes(query, key, value, scale):
    """What `accepts` says, but for the plan."""
    kind = query.dtype
    if kind not in (np.float16, bfloat16.numpy) or not kind == key.dtype == value.dtype or query.ndim != 4:
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
        stats = (lse * np.float32(math.log(2)))[..., None]
    return out, stats


def vjp(g, query, key, value, out, stats, causal, scale, needs, xp, flash):
    """The gradients of query, key and value; `flash` as in `forward`."""
    if g.dtype != query.dtype:
        g = g.astype(query.dtype)
    if not _reads(g):
        given, g = g, by_time(xp, query, value.shape[3])
        g[...] = given
    found = None
    if not _trouble and not config.deterministic and all(map(_reads, (query, key, value, out))):
        found = _gradients(xp, g, query, key, value, out, stats, causal, scale)
    if found is None:
        lse = stats.reshape(stats.shape[:3]) * np.float32(LOG2E)
        options = {"causal": causal, "scale": scale, "needs": needs}
        return flash.run_backward(xp, g, query, key, value, out, lse, **options)
    return *[gx if wanted else None for gx, wanted in zip(found, needs[:3], strict=True)], None


def _gradients(xp, g, query, key, value, out, stats, causal, scale):
    """cuDNN's gradients of query, key and value; None where it can't."""
    found = side_by_side(xp, query, key, value) or [by_time(xp, x, x.shape[3]) for x in (query, key, value)]
    arrays = dict(zip((QUERY, KEY, VALUE, OUT, STATS, G), (query, key, value, out, stats, g), strict=True))
    arrays.update(zip((G_QUERY, G_KEY, G_VALUE), found, strict=True))
    places = {number: _place(x) for number, x in arrays.items()}
    plan = _planned(_key("backward", arrays.values(), causal, scale), places, query.dtype)
    return found if plan is not None and plan.run(xp, arrays) else None
