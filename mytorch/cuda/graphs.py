"""CUDA graphs: a recorded sequence of kernel launches that is launched as a whole.

The CPU needs 2 to 20 µs to launch a kernel, and the kernels of a small model are faster than that. A graph starts the
hundreds of kernels of a training step with a single call. `compile_step` captures a whole step. `CUDAGraph`, `graph` and
`make_graphed_callables` (nn/graphed.py) have PyTorch's API.

A graph launches the same kernels with the same addresses and numbers. Values that change must therefore be in device
memory (`arrays/capturing.py` describes optimizers, scalers and generators), and captured code must not wait for the GPU. New
inputs are copied to the captured arrays. A graph uses a separate memory pool.
"""

import contextlib
import functools
import gc
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import _extensions
from .. import arrays as backend
from ..amp import Policy
from ..arrays import capturing
from ..arrays.capturing import Capture, Stale
from ..arrays.config import temporarily
from ..arrays.errors import CaptureError, warn
from ..autograd.mode import get_mode, in_mode
from ..files.writing import atomic_write
from ..ops.creation import is_tensor
from ..ops.dispatch.unwrap import raw_of
from ..ops.random import generator_for
from ..utils._pytree import tree_flatten, tree_map, tree_unflatten
from . import streams
from .memory import empty_cache, graphs


def is_current_stream_capturing() -> bool:
    """Returns True if the work of the current stream is captured into a graph; False without a GPU."""
    return backend.cuda_available() and bool(backend.cupy_ns().cuda.get_current_stream().is_capturing())


def graph_pool_handle() -> Any:
    """Returns a memory pool for several graphs, which must be replayed in the order of their capture."""
    return backend.cupy_ns().cuda.MemoryPool()


class CUDAGraph:
    """A captured sequence of GPU work: `capture_begin` and `capture_end` on a separate stream, then `replay`.

    `with cuda.graph(g):` calls the first two. A captured optimizer step uses the current learning rate, and random numbers
    differ between replays.

    Args:
        keep_graph: accepted for compatibility.
    """

    def __init__(self, keep_graph: bool = False):
        self._graph: Any = None  # CuPy's graph; the pool of its arrays and their GPU are stored with it
        self._pool: Any = None
        self._device: Any = None
        self._capture: Any = None
        self._end: Callable[[], Any] | None = None

    def capture_begin(self, pool: Any = None, capture_error_mode: str = "relaxed") -> None:
        """Starts the capture: the work of the current stream is recorded instead of executed.

        Args:
            pool: memory pool of another graph (`pool()`, `graph_pool_handle()`) (default: a new pool).
            capture_error_mode: must be "relaxed", because memory is allocated during the capture.

        Raises:
            RuntimeError: if the current stream is the default stream, or another capture is running.
            ValueError: if capture_error_mode is not "relaxed".
        """
        cuda = backend.cupy_ns().cuda
        stream = cuda.get_current_stream()
        if capture_error_mode != "relaxed":
            raise ValueError(
                f"capture_begin: expected capture_error_mode 'relaxed', because memory is allocated during the capture, got "
                f"{capture_error_mode!r}."
            )
        if stream.ptr == cuda.Stream.null.ptr:
            raise RuntimeError(
                "CUDA graphs must be captured on a non-default stream. (However, after capture, it's ok to replay them on the default stream.)"
            )
        if capturing.current is not None and capturing.current.recording:  # also in another thread
            raise RuntimeError("capture_begin: another graph is being captured. Call its capture_end() first.")
        self.reset()
        self._device = cuda.Device()
        self._pool = cuda.MemoryPool() if pool is None else pool
        allocator = cuda.using_allocator(backend.explaining(backend.cupy_ns(), self._pool.malloc))
        before = capturing.current
        capture = Capture(recording=True)
        capture.kept.append(stream)  # cuBLAS workspaces belong to the stream
        stream.begin_capture()
        allocator.__enter__()
        capturing.current = capture

        def end():
            capturing.current = before
            try:
                return capture, stream.end_capture()
            finally:
                allocator.__exit__(None, None, None)

        self._end = end
        graphs.add(self)

    def capture_end(self) -> None:
        """Ends the capture.

        Raises:
            RuntimeError: if no capture is running.
            CaptureError: if the captured work contains an unsupported operation.
        """
        if self._end is None:
            raise RuntimeError("capture_end: no capture is running. Call capture_begin first.")
        for generator in capturing.current.generators - capturing.current.advanced:
            generator.advance()
        end, self._end = self._end, None
        try:
            self._capture, self._graph = end()
        except Exception as error:
            raise explained(error) from error
        self._capture.send_constants()

    def _abandon(self):
        """End a failed capture."""
        if self._end is not None:
            end, self._end = self._end, None
            # the capture is invalid; its error is raised elsewhere
            with contextlib.suppress(Exception):
                end()

    def replay(self) -> None:
        """Runs the captured work on the current stream, without waiting for it.

        Raises:
            RuntimeError: if the graph is empty.
            capturing.Stale: if captured parameters or hyperparameters have changed; capture the graph again.
        """
        if self._graph is None:
            raise RuntimeError("CUDAGraph.replay: the graph is empty. Capture it first.")
        with self._device:
            for update in self._capture.updates:
                update()
            self._graph.launch()

    def reset(self) -> None:
        """Deletes the captured work."""
        self._graph = self._capture = self._pool = None

    def pool(self) -> Any:
        """Returns the memory pool, for another graph."""
        return self._pool

    def debug_dump(self, debug_path: str) -> None:
        """Writes the graph to a DOT file.

        Args:
            debug_path: path of the file.

        Raises:
            RuntimeError: if the graph is empty.
        """
        if self._graph is None:
            raise RuntimeError("CUDAGraph.debug_dump: the graph is empty. Capture it first.")
        atomic_write(debug_path, self._graph.debug_dot_str().encode())


class graph:
    """Context manager that captures work into a `CUDAGraph` on a separate stream.

    Args:
        pool: memory pool; see `CUDAGraph.capture_begin`.
        stream: stream of the capture (default: a stream that all captures on this GPU share).
        capture_error_mode: see `CUDAGraph.capture_begin`.
    """

    def __init__(
        self,
        cuda_graph: CUDAGraph,
        pool: Any = None,
        stream: streams.Stream | None = None,
        capture_error_mode: str = "relaxed",
    ):
        self.cuda_graph = cuda_graph
        self.pool = pool
        self.mode = capture_error_mode
        self.capture_stream = capture_stream() if stream is None else stream

    def __enter__(self):
        backend.cupy_ns().cuda.Device().synchronize()
        gc.collect()
        empty_cache()  # frees memory of the default pool, which the graph cannot use
        self.capture_stream.__enter__()
        try:
            self.cuda_graph.capture_begin(self.pool, self.mode)
        except BaseException:
            self.capture_stream.__exit__()
            raise

    def __exit__(self, kind, error, trace):
        try:
            if error is None:
                self.cuda_graph.capture_end()
                return
            self.cuda_graph._abandon()
        finally:
            self.capture_stream.__exit__()
        explanation = explained(error)
        if explanation is not error:
            raise explanation from error


def capture_stream() -> streams.Stream:
    """Returns the default stream of captures on the current GPU."""
    return _capture_stream_of(backend.cupy_ns().cuda.runtime.getDevice())


@functools.cache
def _capture_stream_of(number):
    """Return the capture stream of a GPU. Resources of a stream, such as the workspace of cuBLASLt, are then created once."""
    return streams.Stream(number)


def explained(error):
    """Convert a CUDA error during a capture to a CaptureError; return other errors unchanged."""
    if isinstance(error, CaptureError) or "captur" not in str(error).lower():
        return error
    return CaptureError(
        "this can't be captured into a CUDA graph, because it waits for the GPU or copies from the CPU "
        f"(.item(), bool(), printing, nonzero, masks as indices, tensors from lists). CUDA error: {error}"
    )


# -- a whole step --------------------------------------------------------------------------------------------------------


MANY = 16  # number of graphs of a step before a warning


class _Recorded:
    """The state of one combination of shapes, dtypes and other arguments: number of runs, then the graph with its inputs,
    outputs and page-locked buffers."""

    def __init__(self):
        self.runs = 0
        self.graph = None
        self.inputs = self.outputs = self.buffers = None


class CompiledStep:
    """A step with CUDA graphs, returned by `compile_step`; call it like the function.

    Args:
        function: the step.
        warmup: number of calls before the capture.
    """

    def __init__(self, function: Callable, warmup: int):
        functools.update_wrapper(self, function)
        self.function = function
        self.warmup = warmup
        self._forms = {}
        self._generators = set()  # generators that the step uses
        self._warned = False

    def __call__(self, *args, **kwargs):
        if not backend.cuda_available() or capturing.is_preparing():
            return self.function(*args, **kwargs)
        leaves, spec = tree_flatten((args, kwargs))
        where = device_for(leaves)
        if where is None:
            return self.function(*args, **kwargs)
        with backend.on(where)[1]:
            form = self._form(leaves, spec)
            if form.graph is not None:
                try:
                    return self._replay(form, leaves)
                except Stale:
                    form.graph, form.runs = None, max(self.warmup - 1, 0)
            if form.runs < self.warmup:
                form.runs += 1
                return on_capture_stream(lambda: self._prepare([_moved(x, where) for x in leaves], spec, where))
            self._capture(form, leaves, spec, where)
            return self._replay(form, leaves)

    def reset(self) -> None:
        """Deletes all graphs; the next calls capture the step again."""
        self._forms.clear()

    def _form(self, leaves, spec):
        mode = get_mode()
        key = [spec, mode.grad, None if mode.autocast is None else (mode.autocast.device_type, mode.autocast.dtype)]
        for leaf in leaves:
            if is_tensor(leaf):
                if getattr(leaf, "requires_grad", False):
                    raise CaptureError(
                        "compile_step: expected arguments without requires_grad; create these tensors in the step."
                    )
                key.append((tuple(leaf.shape), leaf.dtype))
            else:
                key.append((type(leaf), leaf))
        try:
            form = self._forms.setdefault(tuple(key), _Recorded())
            if len(self._forms) > MANY and not self._warned:
                self._warned = True
                warn(
                    f"compile_step: {self.function.__name__} has more than {MANY} combinations of shapes, dtypes and other arguments, "
                    "and each needs a graph with separate memory. Pass changing numbers as tensors, and use few shapes."
                )
            return form
        except TypeError:
            raise CaptureError(
                "compile_step: expected tensors and hashable constants in nested lists, tuples and dicts, "
                f"got {', '.join(sorted({type(x).__name__ for x in leaves if not is_tensor(x)}))}."
            ) from None

    def _run(self, leaves, spec, where):
        """Call the function on these leaves, with a new counter of random numbers and a separate autocast cache: a graph must
        convert its weights."""
        generators = {generator_for(where), *self._generators}
        for generator in generators:
            generator.start_step()
        args, kwargs = tree_unflatten(leaves, spec)
        policy = get_mode().autocast
        if policy is not None:
            policy = Policy(policy.device_type, policy.dtype, None if policy.cache is None else {})
        try:
            with in_mode(get_mode().replace(autocast=policy)):
                return self.function(*args, **kwargs)
        finally:
            self._generators |= capturing.current.generators
            for generator in generators:
                capturing.current.before_replay(functools.partial(generator.set_subsequence, generator.philox_state[2]))

    def _prepare(self, leaves, spec, where):
        with temporarily(capturing, current=Capture(recording=False)):
            return self._run(leaves, spec, where)

    def _capture(self, form, leaves, spec, where):
        form.inputs, form.buffers = [_twin(x, where) for x in leaves], [_Buffers() for _ in leaves]
        copy_all(form.inputs, leaves, form.buffers)
        captured = CUDAGraph()
        with graph(captured):
            form.outputs = self._run(form.inputs, spec, where)
        form.graph = captured

    def _replay(self, form, leaves):
        copy_all(form.inputs, leaves, form.buffers)
        form.graph.replay()
        return tree_map(lambda x: type(x)._wrap(raw_of(x).copy()) if is_tensor(x) else x, form.outputs)


def device_for(leaves):
    """Return the GPU of a step with these arguments, or None if they and the default device are on the CPU."""
    devices = {x.device for x in leaves if is_tensor(x) and x.device.type == "cuda"}
    if len(devices) > 1:
        raise CaptureError(f"compile_step: expected one device, got {', '.join(sorted(map(str, devices)))}.")
    if devices:
        return devices.pop()
    default = backend.as_device(None)
    return default if default.type == "cuda" else None


def _moved(x, where):
    return type(x)._wrap(backend.to_device(raw_of(x), where)) if is_tensor(x) else x


def _twin(x, where):
    """Create a tensor like x on the device, as the input of a graph."""
    if not is_tensor(x):
        return x
    raw = raw_of(x)
    return type(x)._wrap(backend.on(where)[0].empty(raw.shape, raw.dtype))


class _Buffers:
    """Two alternating page-locked buffers: while the GPU copies from one, the CPU fills the other with the next batch."""

    def __init__(self):
        self.used = deque()  # (buffer, event after its last copy), oldest first

    def send(self, there, given):
        """Copy a CPU array to an array on the current GPU, without waiting for earlier work of the GPU."""
        xp = backend.cupy_ns()
        if len(self.used) < 2:
            buffer = xp.empty_pinned(given.shape, given.dtype)
        else:
            buffer, copied = self.used.popleft()
            if not copied.done:
                copied.synchronize()
        buffer[...] = given
        backend.fill_later(there, buffer)
        self.used.append((buffer, xp.cuda.get_current_stream().record()))


def _copy_into(there, given, buffers):
    """Copy a value to an input of a graph."""
    if there is given or there.size == 0:
        return
    if not isinstance(given, np.ndarray):
        there[...] = given
    elif backend.is_pinned(given):
        backend.fill_later(there, np.ascontiguousarray(given))
    elif buffers is None:
        there.set(np.ascontiguousarray(given))  # CUDA has copied the data when this returns
    else:
        buffers.send(there, given)


def copy_all(there, given, buffers=None):
    """Copy the tensors among the values to a graph's inputs; `buffers` contains `_Buffers` for CPU tensors."""
    for to, x, own in zip(there, given, buffers or [None] * len(there), strict=False):
        if is_tensor(x):
            with backend.device_guard(raw_of(to)):
                _copy_into(raw_of(to), raw_of(x), own)


def on_capture_stream(call):
    """Call a function on the capture stream, in order with the current stream, to create resources of that stream."""
    side, here = capture_stream(), streams.current_stream()
    side.wait_stream(here)
    with side:
        result = call()
    here.wait_stream(side)
    return result


__getattr__, __dir__ = _extensions.lazy(__name__)
