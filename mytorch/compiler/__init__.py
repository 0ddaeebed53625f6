"""Compilation of functions, modules and training steps.

The Python code of a compiled function runs in each call (`compiled.py`). Backward passes and the updates of optimizers are regions
(`regions.py`): each is recorded once with arrays that record the operations on them (`arrays.py`, `updates.py`). `program.py` removes work
that the results do not need. `replay.py` runs the rest with prepared arguments and memory, and `native.py` translates it to machine
code. On a GPU, `gpu.py` runs the rest, and `groups.py` translates groups of steps to Triton kernels. Before each run, `matching.py` compares
everything that the program depends on. A region that has changed runs eagerly.

`explain` shows the regions of a compiled function, and the reasons for which some of them run eagerly.
"""

import functools
from collections.abc import Callable
from typing import Any

from .. import arrays as backend
from ..arrays.errors import warn
from ..cuda.graphs import CompiledStep, device_for
from ..nn.module import Module
from ..utils._pytree import tree_flatten
from .arrays import Untraceable
from .compiled import Compiled, _all, is_active
from .compiled import stance as _stance
from .program import listing

__all__ = [
    "Compiled",
    "OptimizedModule",
    "Untraceable",
    "compile",
    "compile_step",
    "disable",
    "explain",
    "is_compiling",
    "reset",
    "set_stance",
]

_BACKENDS = "inductor eager aot_eager cudagraphs openxla tvm eager_debug aot_ts ts".split()
_MODES = "default lite reduce-overhead max-autotune max-autotune-no-cudagraphs".split()


def compile(
    model=None, *, fullgraph=False, dynamic=None, backend="inductor", mode=None, options=None, name=None, disable=False,
    recompile_limit=None, isolate_recompiles=False, shapes_spec=None,
):  # fmt: skip
    """Compiles a function or a module, which then runs faster. Without a function, returns a decorator.

    The Python code of the function runs in each call, so it may do anything. Two parts of it become programs: the backward pass of
    its results, inside or after the call, and updates of optimizers inside the call. A program runs without the Python code
    between its array operations, in machine code if llvmlite is installed. On a GPU, groups of elementwise operations and of
    sums over rows of a backward pass become Triton kernels.

    Args:
        model: function or module. A module is wrapped in an `OptimizedModule`.
        fullgraph: has no effect: all functions are accepted.
        dynamic: has no effect: each shape is recorded separately.
        backend: name of one of PyTorch's backends. With "eager" or a callable, the function runs eagerly.
        mode: name of one of PyTorch's modes. All modes do the same.
        options: accepted only without `mode`; has no effect.
        name: has no effect.
        disable: if True, returns the function unchanged (default: False).
        recompile_limit: largest number of programs for backward passes that start with the same operation, and for updates of
            one optimizer class (default: 8). Further ones run eagerly.
        isolate_recompiles: has no effect.
        shapes_spec: has no effect.

    Returns:
        A `Compiled` function, or an `OptimizedModule`.

    Raises:
        RuntimeError: the backend or the mode does not exist, or both `mode` and `options` are given.

    Example:
        >>> model = mytorch.compile(nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 1)))
        >>> x, y = mytorch.ones(8, 2), mytorch.ones(8, 1)
        >>> for step in range(3):  # the first backward runs eagerly, the second is recorded, the third is compiled
        ...     loss = F.mse_loss(model(x), y)
        ...     loss.backward()
        >>> model(x).shape
        mytorch.Size([8, 1])
    """
    if mode is not None and options is not None:
        raise RuntimeError("Either mode or options can be specified, but both can't be specified at the same time.")
    if mode is not None and mode not in _MODES:
        raise RuntimeError(f"Unrecognized mode={mode}, should be one of: {', '.join(_MODES)}")
    if not callable(backend) and backend not in _BACKENDS:
        raise RuntimeError(f"Invalid backend: {backend!r}, expected one of: {', '.join(_BACKENDS)}, or a callable.")
    if model is None:
        return functools.partial(
            compile, backend=backend, mode=mode, options=options, disable=disable, recompile_limit=recompile_limit,
        )  # fmt: skip
    if disable or backend == "eager" or callable(backend):
        return model
    if isinstance(model, Module):
        return OptimizedModule(model, recompile_limit)
    return Compiled(model, recompile_limit)


class OptimizedModule(Module):
    """A compiled module. Attributes are read from and set on the original module, which is `_orig_mod`.

    Args:
        recompile_limit: see `compile`.

    Shape:
        As in the original module.
    """

    def __init__(self, module, recompile_limit=None):
        super().__init__()
        self.__dict__["_mt_compiled"] = Compiled(module.__call__, recompile_limit)
        self._modules["_orig_mod"] = module

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the compiled module."""
        return self._mt_compiled(*args, **kwargs)

    @property
    def training(self):
        """Tells whether the original module is in training mode."""
        return self._orig_mod.training

    @training.setter
    def training(self, value):
        if "_modules" in self.__dict__:
            self._orig_mod.training = value

    def _is_own(self, name):
        return name in self.__dict__ or hasattr(type(self), name)

    def __getattr__(self, name):
        return super().__getattr__(name) if name == "_orig_mod" else getattr(self._orig_mod, name)

    def __setattr__(self, name, value):
        if "_modules" not in self.__dict__ or name == "_orig_mod" or self._is_own(name):
            super().__setattr__(name, value)
        else:
            setattr(self._orig_mod, name, value)

    def __delattr__(self, name):
        if self._is_own(name):
            super().__delattr__(name)
        else:
            delattr(self._orig_mod, name)

    def __dir__(self):
        return sorted({*super().__dir__(), *dir(self._orig_mod)})

    def __len__(self):
        return len(self._orig_mod)

    def __bool__(self):
        return True

    def __reduce__(self):
        return OptimizedModule, (self._orig_mod,)


class _Step(Compiled):
    def __init__(self, function, warmup):
        super().__init__(function)
        self._mt_graphs = CompiledStep(function, warmup)
        self._mt_warned = False

    def __call__(self, *args, **kwargs):
        if not backend.cuda_available():
            return super().__call__(*args, **kwargs)
        if device_for(tree_flatten((args, kwargs))[0]) is not None:
            return self._mt_graphs(*args, **kwargs)
        results = super().__call__(*args, **kwargs)
        devices = {getattr(x, "device", None) for x in tree_flatten(results)[0]}
        if not self._mt_warned and any(d is not None and d.type == "cuda" for d in devices):
            self._mt_warned = True
            warn(
                "compile_step: a step is captured as a CUDA graph only if an argument is a tensor on the GPU. Pass the batch as "
                "arguments; this step runs without a graph."
            )
        return results

    def reset(self) -> None:
        """Deletes all programs and graphs."""
        super().reset()
        self._mt_graphs.reset()


def compile_step(function: Callable | None = None, *, warmup: int = 3) -> Callable:
    """Compiles a whole training step: forward, backward, clipping and the optimizer.

        @mytorch.compile_step
        def step(x, y):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            return loss

    On a CPU, this is the same as `compile`: the Python code runs in each call, and may do anything.

    On a GPU, the step becomes one CUDA graph: the first calls run the function normally, the next call captures it, and later
    calls replay the graph on new inputs, without any Python code of the function. So the function must be a fixed sequence of
    operations on the memory of its arguments and of the model: it must not wait for the GPU (`.item()`, `print(loss)`,
    `if loss > 3`) or read data from the CPU, and other Python code in it (counters, `model.train()`, hooks) runs only in the first
    calls. Another shape, dtype or value of an argument gets a separate graph. Learning rates may change between steps (call
    `scheduler.step()` outside). If hyperparameters, the memory of parameters or a loaded state dict change, the step is captured
    again. The results are copies, which later steps do not change.

    Pass the batch as arguments. One of them must be a tensor on the GPU, or the default device a GPU; the others may be on the
    CPU. Without such an argument the step runs as on a CPU, with a warning.

    Use it when you have a whole step in one function: on a GPU it is captured as one graph. `compile` is for a model or
    a function inside of a larger program.

    Args:
        function: function of tensors and hashable values. `compile_step(warmup=5)` is a decorator.
        warmup: number of calls before the capture on a GPU; at least 1 (default: 3).

    Raises:
        ValueError: if warmup is less than 1.
        CaptureError: when called on a GPU, if an operation cannot be captured.
    """
    if warmup < 1:
        raise ValueError(f"compile_step: expected warmup of at least 1, got {warmup}.")
    if function is None:
        return functools.partial(compile_step, warmup=warmup)
    return _Step(function, warmup)


def disable(fn=None, recursive=True, *, reason=None):
    """Returns a function unchanged.

    Args:
        fn: the function; None for a decorator.
        recursive: has no effect.
        reason: has no effect.
    """
    return fn if fn is not None else lambda f: f


def allow_in_graph(fn):
    """Returns a function unchanged, because compiled functions may call all functions."""
    return fn


assume_constant_result = allow_in_graph


def substitute_in_graph(original_fn, **options):
    """Returns a decorator without effect."""
    return allow_in_graph


def is_compiling():
    """Returns True while a compiled function runs."""
    return is_active()


is_dynamo_compiling = is_exporting = is_compiling


def list_backends(exclude_tags=()):
    """Returns the names of the compilers of `mytorch.compile`."""
    return ["inductor"]


def cudagraph_mark_step_begin():
    """Has no effect, because results are never overwritten by later calls."""


_STANCES = "default eager_on_recompile eager_then_compile aot_eager_then_compile fail_on_recompile force_eager".split()


class set_stance:
    """Sets how compiled functions run: as a function for the rest of the program, as a context, or as a decorator.

    Args:
        stance: "default", "eager_then_compile" or "aot_eager_then_compile": regions become programs. "force_eager": all functions
            run eagerly. "eager_on_recompile": regions of another form than the known ones run eagerly. "fail_on_recompile": they
            raise a RuntimeError.
        skip_guard_eval_unsafe: only False is supported: everything that a program depends on is always compared.
        force_backend: only None is supported.

    Raises:
        ValueError: the stance does not exist.
        NotImplementedError: `skip_guard_eval_unsafe` or `force_backend` is given.

    Example:
        >>> f = mytorch.compile(lambda x: x * 2)
        >>> with mytorch.compiler.set_stance("force_eager"):
        ...     f(mytorch.ones(2)).tolist()
        [2.0, 2.0]
    """

    def __init__(self, stance="default", *, skip_guard_eval_unsafe=False, force_backend=None):
        if stance not in _STANCES:
            raise ValueError(f"set_stance: expected stance in {_STANCES}, got {stance!r}. Pass one of these names.")
        if skip_guard_eval_unsafe or force_backend is not None:
            raise NotImplementedError(
                "set_stance: expected skip_guard_eval_unsafe=False and force_backend=None, got other values. Omit these arguments."
            )
        self.stance, self._before = stance, _stance[0]
        _stance[0] = stance

    def __enter__(self):
        _stance[0] = self.stance
        return self

    def __exit__(self, *error):
        _stance[0] = self._before

    def __call__(self, function):
        _stance[0] = self._before  # the decorator sets it only for calls of the function

        @functools.wraps(function)
        def run(*args, **kwargs):
            with set_stance(self.stance):
                return function(*args, **kwargs)

        return run


def reset():
    """Deletes the programs of all compiled functions."""
    for regions in list(_all):
        regions.reset()


def explain(function):
    """Returns a text about a compiled function: its programs, and the reasons for which parts of it run eagerly.

    Args:
        function: a `Compiled` function, an `OptimizedModule`, or the result of `compile_step`.

    Example:
        >>> w = mytorch.ones(3, requires_grad=True)
        >>> f = mytorch.compile(lambda x: (w * x).sum().backward())
        >>> for _ in range(2):
        ...     f(mytorch.ones(3))
        >>> print(mytorch.compiler.explain(f).splitlines()[0])
        backward: a program of 3 operations
    """
    known = regions_of(function)
    if not known.called:
        return "not called yet"
    regions = [region for found in known.known.values() for region in found]
    lines = [*map(str, regions), *[f"{what}: runs eagerly: {reason}" for reason, what in known.reasons.items()]]
    for region in known.programs:
        lines += [f"# {region.what}", listing(region.program)]
    return "\n".join(lines) if lines else "runs eagerly: it has no backward pass and no optimizer step"


def regions_of(function):
    """Returns the `Regions` of a compiled function, see `explain`."""
    function = getattr(function, "_mt_compiled", function)
    if not isinstance(function, Compiled):
        raise TypeError(f"explain: expected a compiled function, got {type(function).__name__}.")
    return function._mt_regions
