"""Whether operations are recorded, and in which precision: one immutable value per thread and context.

The current `Mode` lives in a ContextVar, so threads, tasks and nested blocks each see their own, and
reading it costs one call without arguments, which every operation can afford.
"""

import functools
import inspect
from contextvars import ContextVar

from ..base import hooks
from ..base.config import holding
from ..base.errors import warn


class Mode:
    """What an operation must know of its surroundings.

    Attributes:
        grad: record operations on tensors that require grad.
        inference: as `grad` off, and set by `inference_mode`.
        autocast: None, or the object of `mytorch.amp` that casts the inputs of each op.
        anomaly: keep the Python stack of each forward op, to name it when its backward fails.
        profile: None, or the object that measures each op (profiler/autograd_profiler.py).
        interpreter: None, or what runs each op in its own way (dispatch/interpreter.py).
        saved_hooks: None, or (pack, unpack) for what ops save; hooks_refused: None, or why there may be none.
        wrap: None, or the outermost function that runs ops while a mode is on: `wrap(op, inputs, fused, attributes)`. It calls the op
            again without the mode that it serves.
        plain: no mode but `grad` and `inference` is set, so that ops may take their fast path.
    """

    __slots__ = (
        "anomaly", "autocast", "grad", "hooks_refused", "inference", "interpreter", "plain", "profile", "saved_hooks",
        "wrap",
    )  # fmt: skip

    def __init__(
        self, grad=True, inference=False, autocast=None, anomaly=False, saved_hooks=None, hooks_refused=None,
        profile=None, interpreter=None,
    ):  # fmt: skip
        self.grad = grad
        self.inference = inference
        self.autocast = autocast
        self.anomaly = anomaly
        self.saved_hooks = saved_hooks
        self.hooks_refused = hooks_refused
        self.profile = profile
        self.interpreter = interpreter
        self.wrap = None
        if interpreter is not None:
            self.wrap = interpreter
        elif profile is not None:
            self.wrap = profile.run
        elif autocast is not None:
            self.wrap = autocast.run_op
        self.plain = autocast is saved_hooks is profile is interpreter is None and not anomaly

    def replace(self, **changes):
        fields = {
            "grad": self.grad, "inference": self.inference, "autocast": self.autocast, "anomaly": self.anomaly,
            "saved_hooks": self.saved_hooks, "hooks_refused": self.hooks_refused, "profile": self.profile,
            "interpreter": self.interpreter,
        }  # fmt: skip
        return Mode(**{**fields, **changes})


_mode = ContextVar("mytorch_mode", default=Mode())  # noqa: B039 - a Mode is never changed
get_mode = _mode.get


class ModeSwitch:
    """A change of mode that is a context manager, nestable and reusable, and a decorator."""

    def __init__(self):
        self._tokens = []

    def _changes(self):
        """The fields of Mode to change on entering."""
        raise NotImplementedError(f"{type(self).__name__} does not say what it changes.")

    def clone(self):
        """A fresh switch of the same kind, for one call of a decorated function."""
        return type(self)()

    def __enter__(self):
        self._tokens.append(_mode.set(get_mode().replace(**self._changes())))
        return self

    def __exit__(self, *exc):
        _mode.reset(self._tokens.pop())

    def __call__(self, function):
        if inspect.isclass(function):
            warn(
                "Decorating classes is deprecated and will be disabled in future versions. You should only decorate functions or "
                "methods. To preserve the current behavior of class decoration, you can directly decorate the `__init__` method "
                "and nothing else.",
                FutureWarning,
            )
            function.__init__ = self(function.__init__)
            return function
        if inspect.isgeneratorfunction(function):
            return self._wrap_generator(function)

        @functools.wraps(function)
        def decorated(*args, **kwargs):
            with self.clone():
                return function(*args, **kwargs)

        return decorated

    def _wrap_generator(self, function):
        """The mode holds while the generator runs, not while it is suspended."""

        @functools.wraps(function)
        def decorated(*args, **kwargs):
            generator = function(*args, **kwargs)
            resume = functools.partial(next, generator)
            try:
                while True:
                    try:
                        with self.clone():
                            value = resume()
                    except StopIteration as stop:
                        return stop.value
                    try:
                        sent = yield value
                    except GeneratorExit:
                        raise
                    except BaseException as error:
                        resume = functools.partial(generator.throw, error)
                    else:
                        resume = functools.partial(generator.send, sent)
            finally:
                with self.clone():
                    generator.close()

        return decorated


class _Bare(ModeSwitch):
    """A switch that also decorates without being called: `@no_grad` beside `@no_grad()`."""

    def __new__(cls, function=None):
        self = super().__new__(cls)
        if function is None:
            return self
        self.__init__()
        return self(function)

    def __init__(self, function=None):
        super().__init__()


class no_grad(_Bare):
    """Run a block, or a decorated function, without recording operations."""

    def _changes(self):
        return {"grad": False}


class enable_grad(_Bare):
    """Record operations again, inside `no_grad`."""

    def _changes(self):
        return {"grad": True, "inference": False}


class _Choice(ModeSwitch):
    """A switch to `mode`."""

    def __init__(self, mode=True):
        super().__init__()
        self.mode = mode

    def clone(self):
        return type(self)(self.mode)


class inference_mode(_Choice):
    """As `no_grad`; `inference_mode(False)` changes nothing but leaves an outer inference mode."""

    def __new__(cls, mode=True):
        if callable(mode):
            return cls()(mode)
        return super().__new__(cls)

    def _changes(self):
        return {"grad": not self.mode, "inference": self.mode}


class set_grad_enabled(_Choice):
    """Switch recording on or off: at once when called, and back at the end when used in `with`."""

    def __init__(self, mode):
        super().__init__(bool(mode))
        self._before = _mode.set(get_mode().replace(grad=self.mode))

    def _changes(self):
        return {"grad": self.mode}

    def __enter__(self):
        self._tokens.append(self._before)
        return self

    def __call__(self, function):
        _mode.reset(self._before)  # used as a decorator: the switch is for the function's calls only
        return super().__call__(function)


class set_anomaly(_Choice):
    """Whether backward names the forward op that a failing gradient came from; see `detect_anomaly`."""

    def _changes(self):
        return {"anomaly": self.mode}


def is_grad_enabled():
    """Returns True if operations on tensors that require grad are recorded."""
    return get_mode().grad


hooks.is_grad_enabled = is_grad_enabled


def is_inference_mode_enabled():
    """Whether this code runs under `inference_mode`."""
    return get_mode().inference


def in_mode(mode):
    """A block in which `mode` is current."""
    return holding(_mode, mode)


def set_mode(mode):
    """Make `mode` current; returns a token for `reset_mode`."""
    return _mode.set(mode)


def reset_mode(token):
    """Undo a `set_mode`."""
    _mode.reset(token)
