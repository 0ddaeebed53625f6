"""Modes that change how ops run, such as `no_grad`, `autocast` and the profiler.

The current `Mode` is an immutable object in a ContextVar. Each thread, task and nested block has its own value. Ops read
it with one call without arguments, which is fast.
"""

import functools
import inspect
from contextvars import ContextVar

from ..arrays import hooks
from ..arrays.config import holding
from ..arrays.errors import warn

SAVED = "Inference tensors cannot be saved for backward. To work around you can make a clone to use it in autograd."
WRITTEN = "Inplace update to inference tensor outside InferenceMode is not allowed. You can make a clone to change it."


class _InferenceCounter:
    """The version counter of all inference tensors. It does not count.

    Outside of inference mode, reading item 0 raises the error for saved tensors, and item -1 the error for changed ones.
    """

    def __getitem__(self, i) -> int:
        if not get_mode().inference:
            raise RuntimeError(WRITTEN if i else SAVED)
        return 0

    def __setitem__(self, i, version) -> None:
        pass


inference_counter = _InferenceCounter()


class Mode:
    """The settings that an op reads when it runs.

    Attributes:
        grad: record operations on tensors that require gradients.
        inference: True inside `inference_mode`; `grad` is then False.
        counter: the version counter of new tensors: None, or `inference_counter` inside `inference_mode`.
        autocast: None, or the object of `mytorch.amp` that casts the inputs of each op.
        anomaly: False, or "errors" to keep the Python stack of each forward op and report it if its backward fails. "nan"
            also reports NaN gradients.
        profile: None, or the object that measures each op (profiler/autograd_profiler.py).
        interpreter: None, or the object that runs each op (ops/dispatch/interpreter.py), for `vmap` for example.
        saved_hooks: None, or functions (pack, unpack) for saved tensors.
        hooks_refused: None, or the error message for programs that register hooks.
        wrap: None, or the outermost function that runs ops while a mode is on: `wrap(op, inputs, fused, attributes)`. It
            removes its own mode and calls the op again.
        plain: True if only `grad` and `inference` are set, so that ops can use their fast path.
    """

    __slots__ = (
        "_other", "anomaly", "autocast", "counter", "grad", "grad_enabled", "hooks_refused", "inference", "interpreter", "plain",
        "profile", "saved_hooks", "wrap",
    )  # fmt: skip

    def __init__(
        self, grad=True, inference=False, autocast=None, anomaly=False, saved_hooks=None, hooks_refused=None,
        profile=None, interpreter=None,
    ):  # fmt: skip
        self.grad = grad and not inference
        self.grad_enabled = grad  # what `is_grad_enabled` returns; inference mode records nothing even so
        self.inference = inference
        self.counter = inference_counter if inference else None
        self.autocast = autocast
        self.anomaly = anomaly
        self.saved_hooks = saved_hooks
        self.hooks_refused = hooks_refused
        self.profile = profile
        self.interpreter = interpreter
        # From the outside in: an interpreter such as vmap sees the op first, because it may replace it by other ops, which are then
        # profiled and cast one by one.
        self.wrap = None
        if interpreter is not None:
            self.wrap = interpreter
        elif profile is not None:
            self.wrap = profile.run
        elif autocast is not None:
            self.wrap = autocast.run_op
        # Every call of an op tests this one flag instead of five settings.
        self.plain = autocast is saved_hooks is profile is interpreter is None and not anomaly
        self._other = None

    def recording(self, grad):
        """Returns this mode with or without recording. It is created once, since programs change it in every step."""
        if self.grad_enabled == grad:
            return self
        if self._other is None:
            self._other = self.replace(grad=grad)
        return self._other

    def no_grad(self):
        """Returns this mode without recording."""
        return self.recording(False)

    def replace(self, **changes):
        """Returns a copy of this mode with some fields changed."""
        fields = {
            "grad": self.grad_enabled, "inference": self.inference, "autocast": self.autocast, "anomaly": self.anomaly,
            "saved_hooks": self.saved_hooks, "hooks_refused": self.hooks_refused, "profile": self.profile,
            "interpreter": self.interpreter,
        }  # fmt: skip
        return Mode(**{**fields, **changes})


_mode = ContextVar("mytorch_mode", default=Mode())  # noqa: B039 - a Mode is never changed
get_mode = _mode.get


class ModeSwitch:
    """A change of the mode. It is a context manager that can be nested and used again, and a decorator."""

    def __init__(self):
        self._tokens = []  # a stack, since the same object may be entered again inside its block

    def _changes(self):
        """Returns the fields of Mode that change inside the block."""
        raise NotImplementedError(f"{type(self).__name__} must define _changes().")

    def clone(self):
        """Returns a new switch of the same kind, for one call of a decorated function."""
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
            with self.clone():  # calls in several threads must not share one stack of tokens
                return function(*args, **kwargs)

        return decorated

    def _wrap_generator(self, function):
        """Decorates a generator function. The mode is on while the generator runs, and off while it is suspended."""

        # A plain `with` around the loop would leave the mode on in the caller between two values.
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
    """A switch that decorates with and without parentheses: `@no_grad` and `@no_grad()`."""

    def __new__(cls, function=None):
        self = super().__new__(cls)
        if function is None:
            return self
        self.__init__()
        return self(function)

    def __init__(self, function=None):
        super().__init__()


class no_grad(_Bare):
    """Disables the recording of operations in a `with` block or a decorated function.

    Results of operations inside the block do not require gradients. Use it for evaluation, and for updates of parameters
    that must not be differentiated. It saves the memory that backward would need. The mode applies to the current thread.

    Args:
        function: the function to decorate, if the class is used as `@no_grad` without parentheses (default: None).

    Example:
        >>> w = mytorch.ones(2, requires_grad=True)
        >>> with mytorch.no_grad():
        ...     y = w * 2
        >>> y.requires_grad
        False
        >>> @mytorch.no_grad()
        ... def predict(x):
        ...     return x @ w
        >>> predict(mytorch.ones(2)).requires_grad
        False
    """

    def __enter__(self):
        self._tokens.append(_mode.set(get_mode().no_grad()))
        return self


class enable_grad(_Bare):
    """Enables the recording of operations in a `with` block or a decorated function inside `no_grad`.

    Args:
        function: the function to decorate, if the class is used as `@enable_grad` without parentheses (default: None).

    Example:
        >>> w = mytorch.ones(2, requires_grad=True)
        >>> with mytorch.no_grad(), mytorch.enable_grad():
        ...     y = w * 2
        >>> y.requires_grad
        True
    """

    def __enter__(self):
        self._tokens.append(_mode.set(get_mode().recording(True)))
        return self


class _Choice(ModeSwitch):
    """A switch with an argument `mode`."""

    def __init__(self, mode=True):
        super().__init__()
        self.mode = mode

    def clone(self):
        return type(self)(self.mode)


class inference_mode(_Choice):
    """Disables the recording of operations, as `no_grad` does, in a `with` block or a decorated function.

    New tensors of the block are inference tensors (`x.is_inference()`). Outside of the block they cannot be changed in
    place or saved for backward. Their clones are ordinary tensors.

    Use it for serving a model, whose results never take part in training; otherwise `no_grad` is the safe choice.

    Args:
        mode: True to enable inference mode, False to leave an outer inference mode and to record again (default: True).

    Example:
        >>> w = mytorch.ones(2, requires_grad=True)
        >>> with mytorch.inference_mode():
        ...     y = w * 2
        >>> y.requires_grad
        False
    """

    def __new__(cls, mode=True):
        if callable(mode):
            return cls()(mode)
        return super().__new__(cls)

    def _changes(self):
        return {"grad": not self.mode, "inference": self.mode}


class set_grad_enabled(_Choice):
    """Enables or disables the recording of operations.

    A plain call changes the mode immediately. In a `with` block the former mode returns at the end of the block.

    Use it when a variable decides, such as `set_grad_enabled(training)`; otherwise `no_grad` reads better.

    Args:
        mode: True to record operations, False to disable recording.

    Example:
        >>> w = mytorch.ones(2, requires_grad=True)
        >>> with mytorch.set_grad_enabled(False):
        ...     y = w * 2
        >>> y.requires_grad
        False
    """

    def __init__(self, mode):
        super().__init__(bool(mode))
        self._before = _mode.set(get_mode().recording(self.mode))

    def __enter__(self):
        self._tokens.append(self._before)
        return self

    def __call__(self, function):
        _mode.reset(self._before)  # as a decorator: switch when the function is called, not when it is decorated
        return super().__call__(function)


class set_anomaly(_Choice):
    """Enables or disables the detection of anomalies; see `detect_anomaly`."""

    def _changes(self):
        return {"anomaly": self.mode}


def is_grad_enabled():
    """Returns True if operations on tensors that require gradients are recorded.

    Example:
        >>> with mytorch.no_grad():
        ...     mytorch.is_grad_enabled()
        False
    """
    return get_mode().grad_enabled


hooks.is_grad_enabled = is_grad_enabled


def is_inference_mode_enabled():
    """Returns True inside `inference_mode`."""
    return get_mode().inference


def in_mode(mode):
    """Returns a context manager that makes `mode` the current mode."""
    return holding(_mode, mode)


def set_mode(mode):
    """Makes `mode` the current mode. Returns a token for `reset_mode`."""
    return _mode.set(mode)


def reset_mode(token):
    """Restores the mode that was current before the `set_mode` that returned `token`."""
    _mode.reset(token)
