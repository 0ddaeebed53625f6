"""CUDA graphs: the launches of a part of a program, recorded once and then launched all together.

Launching costs the CPU 2 to 20 µs for each kernel, and a small model's kernels take less than that to run. A captured
training step of hundreds of launches is started by a single call. `compile_step` does it for a whole step;
`CUDAGraph` and `graph` are PyTorch's, and `make_graphed_callables` (nn/graphed.py).

A graph launches the same kernels on the same addresses with the same numbers, so what is captured must take what
changes from device memory (`base/capturing.py` says how optimizers, scalers and generators do), must not wait for the
GPU, and its inputs are copied into the arrays it was captured with. Its memory comes from a pool of its own, which
nobody else allocates from.
"""

import contextlib
import functools
import gc
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from .. import backend
from ..amp import Policy
from ..base import capturing
from ..base.capturing import Capture, Stale
from ..base.config import temporarily
from ..base.errors import CaptureError, warn
from ..base.pytree import tree_flatten, tree_map, tree_unflatten
from ..dispatch.unwrap import raw_of
from ..engine.mode import get_mode, in_mode
from ..ops.creation import is_tensor
from ..ops.random import generator_for
from . import streams
from .memory import empty_cache, graphs


def is_current_stream_capturing() -> bool:
    """Whether the current stream's work goes into a graph now; False without a GPU."""
    return backend.cuda_available() and bool(backend.cupy_ns().cuda.get_current_stream().is_capturing())


def graph_pool_handle() -> Any:
    """A memory pool that several graphs may share (if they are replayed in the order of their capture)."""
    return backend.cupy_ns().cuda.MemoryPool()


class CUDAGraph:
    """A captured part of a program: `capture_begin` … `capture_end` on a stream of its own, then `replay`.

    `with cuda.graph(g):` calls the first two. An optimizer step in it follows its learning rate, draws of random numbers
    differ from replay to replay.
    """

    def __init__(self, keep_graph: bool = False):
        self._graph: Any = None  # CuPy's, the pool that its arrays come from, and their GPU
        self._pool: Any = None
        self._device: Any = None
        self._capture: Any = None
        self._end: Callable[[], Any] | None = None

    def capture_begin(self, pool: Any = None, capture_error_mode: str = "relaxed") -> None:
        """Note from here on what the current stream is given, instead of running it.

        Args:
            pool: the memory pool of another graph (`pool()`, `graph_pool_handle()`); by default one of its own.
            capture_error_mode: "relaxed": this library allocates memory while it captures, which the other modes forbid.

        Raises:
            RuntimeError: the current stream is the default one, or a capture is under way.
            ValueError: another mode.
        """
        cuda = backend.cupy_ns().cuda
        stream = cuda.get_current_stream()
        if capture_error_mode != "relaxed":
            raise ValueError(
                f"capture_error_mode must be 'relaxed', got {capture_error_mode!r}: memory is allocated during the capture."
            )
        if stream.ptr == cuda.Stream.null.ptr:
            raise RuntimeError(
                "CUDA graphs must be captured on a non-default stream. (However, after capture, it's ok to replay them on the default stream.)"
            )
        if capturing.is_recording():
            raise RuntimeError("capture_begin: another graph is being captured.")
        self.reset()
        self._device = cuda.Device()
        self._pool = cuda.MemoryPool() if pool is None else pool
        allocator = cuda.using_allocator(backend.explaining(backend.cupy_ns(), self._pool.malloc))
        before = capturing.current
        capture = Capture(recording=True)
        capture.kept.append(stream)  # with which the workspace of its products would go
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
        """Stop noting; the graph can be replayed.

        Raises:
            RuntimeError: no capture was begun. CaptureError: something in it can't be captured.
        """
        if self._end is None:
            raise RuntimeError("capture_end: called without capture_begin.")
        for generator in capturing.current.generators - capturing.current.advanced:
            generator.advance()
        end, self._end = self._end, None
        try:
            self._capture, self._graph = end()
        except Exception as error:
            raise explained(error) from error
        self._capture.send_constants()

    def _abandon(self):
        """End a capture that failed."""
        if self._end is not None:
            end, self._end = self._end, None
            # the capture is invalid already; the error that made it so is on its way
            with contextlib.suppress(Exception):
                end()

    def replay(self) -> None:
        """Run what was captured, on the current stream, without waiting.

        Raises:
            RuntimeError: nothing was captured. capturing.Stale: the program has changed what was captured (memory of
                parameters, hyperparameters): capture again.
        """
        if self._graph is None:
            raise RuntimeError("CUDAGraph.replay: nothing has been captured.")
        with self._device:
            for update in self._capture.updates:
                update()
            self._graph.launch()

    def reset(self) -> None:
        """Forget what was captured."""
        self._graph = self._capture = self._pool = None

    def pool(self) -> Any:
        """The memory pool, for another graph."""
        return self._pool

    def debug_dump(self, debug_path: str) -> None:
        """Write the graph as a DOT file.

        Raises:
            RuntimeError: nothing was captured.
        """
        if self._graph is None:
            raise RuntimeError("CUDAGraph.debug_dump: nothing has been captured.")
        Path(debug_path).write_text(self._graph.debug_dot_str())


class graph:
    """Context in which work is captured into a `CUDAGraph`, on a stream of its own.

    Args:
        cuda_graph: what to capture into. pool: as for `CUDAGraph.capture_begin`.
        stream: where to capture; by default a stream that all captures on this GPU share.
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
        empty_cache()  # what preparing left in the pool, which the graph can't use
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
    """The stream of the current GPU that captures take by default."""
    return _capture_stream_of(backend.cupy_ns().cuda.runtime.getDevice())


@functools.cache
def _capture_stream_of(number):
    """A GPU's; what belongs to a stream, as cuBLASLt's workspace does, is then made once."""
    return streams.Stream(number)


def explained(error):
    """A CaptureError for CUDA's own words about a capture; any other error itself."""
    if isinstance(error, CaptureError) or "captur" not in str(error).lower():
        return error
    return CaptureError(
        "this can't be captured into a CUDA graph: something in it waits for the GPU or copies from the CPU "
        f"(.item(), bool(), printing, nonzero, masks as indices, tensors made of lists). CUDA says: {error}"
    )


# -- a whole step --------------------------------------------------------------------------------------------------------


MANY = 16  # forms of a step, before a warning


class _Recorded:
    """One form of a step (shapes, dtypes, other arguments): runs so far, then its graph with its inputs and outputs, and the
    inputs' buffers in page-locked memory."""

    def __init__(self):
        self.runs = 0
        self.graph = None
        self.inputs = self.outputs = self.buffers = None


class CompiledStep:
    """What `compile_step` returns; call it as the function."""

    def __init__(self, function: Callable, warmup: int):
        functools.update_wrapper(self, function)
        self.function = function
        self.warmup = warmup
        self._forms = {}
        self._generators = set()  # that the step draws from
        self._warned = False

    def __call__(self, *args, **kwargs):
        if not backend.cuda_available() or capturing.is_preparing():
            return self.function(*args, **kwargs)
        leaves, spec = tree_flatten((args, kwargs))
        where = _device_for(leaves)
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
        """Forget all graphs; the next calls prepare and capture again."""
        self._forms.clear()

    def _form(self, leaves, spec):
        mode = get_mode()
        key = [spec, mode.grad, None if mode.autocast is None else (mode.autocast.device_type, mode.autocast.dtype)]
        for leaf in leaves:
            if is_tensor(leaf):
                if getattr(leaf, "requires_grad", False):
                    raise CaptureError(
                        "compile_step: an argument requires grad; gradients are for what the step itself makes or holds."
                    )
                key.append((tuple(leaf.shape), leaf.dtype))
            else:
                key.append((type(leaf), leaf))
        try:
            form = self._forms.setdefault(tuple(key), _Recorded())
            if len(self._forms) > MANY and not self._warned:
                self._warned = True
                warn(
                    f"compile_step: {self.function.__name__} has been called in more than {MANY} forms, and each gets a graph with memory of "
                    "its own; numbers that change from step to step should be tensors, and shapes few."
                )
            return form
        except TypeError:
            raise CaptureError(
                "compile_step: arguments must be tensors, or hashable values that stay the same, in nested lists, tuples and dicts; "
                f"got {', '.join(sorted({type(x).__name__ for x in leaves if not is_tensor(x)}))}."
            ) from None

    def _run(self, leaves, spec, where):
        """The function on these leaves, with the count of draws restarted, and under a cache of casts of its own: a graph must cast its
        weights itself."""
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


def compile_step(function: Callable | None = None, *, warmup: int = 3) -> Callable:
    """A function that runs a whole training step (forward, backward, clipping, optimizer, scaler) as one CUDA graph.

        @mytorch.compile_step
        def step(x, y):
            optimizer.zero_grad()
            with mytorch.autocast("cuda", dtype=mytorch.bfloat16):
                loss = F.cross_entropy(model(x), y)
            loss.backward()
            clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            return loss

    The first calls run it as it is, the next one captures it, and further ones replay what was captured, on new inputs;
    each call is a real step. Another shape, dtype or other value of an argument gets a graph of its own. Learning rates may
    change from step to step (`scheduler.step()` belongs outside); when a hyperparameter, a parameter's memory or a
    loaded state dict is no longer what was captured, the step is captured again.

    The function may not wait for the GPU (`.item()`, `print(loss)`, `if loss > 3`) or read data from the CPU; whatever
    else Python does in it (counting, `model.train()`, hooks) happens only in the first calls. Take batches as arguments:
    they may lie on the CPU. What it returns are copies, which later steps leave alone.

    On a CPU there is nothing to capture, and it runs as it is.

    Args:
        function: of tensors and hashable values, in nested lists, tuples and dicts; also as a decorator with arguments.
        warmup: how many calls run before one is captured; at least 1.

    Raises:
        ValueError: warmup below 1. CaptureError, from a call: something that can't be captured; the message says what.
    """
    if warmup < 1:
        raise ValueError(f"compile_step: warmup must be at least 1, got {warmup}.")
    if function is None:
        return functools.partial(compile_step, warmup=warmup)
    return CompiledStep(function, warmup)


def _device_for(leaves):
    """The GPU that a step on these arguments runs on; None if they lie on the CPU, which is also the default device."""
    devices = {x.device for x in leaves if is_tensor(x) and x.device.type == "cuda"}
    if len(devices) > 1:
        raise CaptureError(f"compile_step: arguments lie on several devices: {', '.join(sorted(map(str, devices)))}.")
    if devices:
        return devices.pop()
    default = backend.as_device(None)
    return default if default.type == "cuda" else None


def _moved(x, where):
    return type(x)._wrap(backend.to_device(raw_of(x), where)) if is_tensor(x) else x


def _twin(x, where):
    """A tensor like x on the device, for a graph to read from."""
    if not is_tensor(x):
        return x
    raw = raw_of(x)
    return type(x)._wrap(backend.on(where)[0].empty(raw.shape, raw.dtype))


class _Buffers:
    """Two page-locked buffers in turn: while the GPU copies from one, the CPU puts the next batch into the other."""

    def __init__(self):
        self.used = deque()  # (buffer, event behind its last copy), the longer ago first

    def send(self, there, given):
        """Copy a CPU array into one on the current GPU, without waiting for what the GPU does now."""
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
    """Copy into a graph's input."""
    if there is given or there.size == 0:
        return
    if not isinstance(given, np.ndarray):
        there[...] = given
    elif backend.is_pinned(given):
        backend.fill_later(there, np.ascontiguousarray(given))
    elif buffers is None:
        there.set(np.ascontiguousarray(given))  # CUDA has taken its copy when this returns
    else:
        buffers.send(there, given)


def copy_all(there, given, buffers=None):
    """Copy the tensors among some values into a graph's own; `buffers`: `_Buffers` for each, for what lies on the CPU."""
    for to, x, own in zip(there, given, buffers or [None] * len(there), strict=False):
        if is_tensor(x):
            with backend.device_guard(raw_of(to)):
                _copy_into(raw_of(to), raw_of(x), own)


def on_capture_stream(call):
    """Run on the stream that captures take, in order with the current one: what belongs to a stream is made for that one."""
    side, here = capture_stream(), streams.current_stream()
    side.wait_stream(here)
    with side:
        result = call()
    here.wait_stream(side)
    return result
