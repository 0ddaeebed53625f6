"""The one point at which classes and modes intercept public functions (`__torch_function__`).

An op asks whether the type of each argument is in `PLAIN`: Tensor, and its subclasses without an override. Anything else
goes to the slow path, which calls `overriding.ask`. A function that is composed of ops, and a method of several tensors,
tests `overriding.on` first, in the wrapper that it has anyway, or in the wrapper of `arrays/overridable.py`. A property tests
`overriding.modes`; a subclass overrides it in its own dict.

No code is replaced later: `compat/overrides.py` only changes the sets and the flags below. While a mode is active, both sets are empty,
so that every call asks.
"""

import threading
from contextlib import contextmanager

NOTHING = object()  # the answer of `ask` if no class or mode overrides a call
PLAIN = set()  # classes of tensors without an override
SIMPLE = {int, float, bool, complex, str, type(None)}  # and other classes of arguments that cannot override

# Functions that no class can override: they create tensors, or they ask for the class or the identity of an object.
IGNORED = frozenset(
    "as_subclass _of _wrap _as_tensor _extra_state _make_subclass __init__ __new__ __hash__ __init_subclass__ __array_wrap__ "
    "__setattr__ __getattribute__ __dir__ __iter__ build_graph_enabled tensor as_tensor asarray from_numpy frombuffer "
    "from_dlpack to_dlpack zeros ones empty full arange eye rand randn randint randperm range empty_strided "
    "scalar_tensor is_tensor is_storage typename manual_seed seed initial_seed save load compile broadcast_shapes can_cast "
    "promote_types get_default_dtype set_default_dtype set_default_device get_default_device set_printoptions "
    "tril_indices triu_indices install_as_torch is_grad_enabled set_default_tensor_type use_deterministic_algorithms "
    "_add_parents _is_view edge".split()
)
FACTORIES = frozenset("zeros ones empty full arange eye rand randn randint randperm tensor".split())
# Dispatch modes receive the calls of these functions.
CREATIONS = FACTORIES | frozenset(
    "zeros_like ones_like empty_like full_like rand_like randn_like randint_like new_zeros new_ones new_empty new_full scalar_tensor "
    "linspace logspace tril_indices triu_indices empty_strided from_numpy as_tensor".split()
)
# Functions of `IGNORED` that ask a class that is no tensor, because it may stand for a size or a number.
ASKED_BY_SIZES = CREATIONS - {"tensor", "as_tensor", "from_numpy"}


def is_overridable(name):
    """Returns True for the name of a public function that classes or modes can override."""
    return name in CREATIONS or name not in IGNORED


def can_override(args, kwargs):
    """Returns True if the class of an argument may override the call, so that it has to be asked."""
    for value in (*args, *kwargs.values()) if kwargs else args:
        if type(value) not in SIMPLE:
            return True
    return False


class _State(threading.local):
    """The settings of one thread.

    Attributes:
        subclasses_off: `__torch_function__` of tensors is disabled.
        all_off: `__torch_function__` of modes is disabled as well.
        modes: the active modes, the innermost last.
        skipped: a public function whose next call does not ask, or None.
        inside: True in a public function, whose tensors dispatch modes do not receive.
    """

    subclasses_off = False
    all_off = False
    modes = ()
    skipped = None
    inside = False


state = _State()


@contextmanager
def in_state(**changes):
    """Changes the settings of this thread in a `with` block."""
    before = {name: getattr(state, name) for name in changes}
    state.__dict__.update(changes)
    try:
        yield
    finally:
        state.__dict__.update(before)


class Overriding:
    """The flags of the interception.

    Attributes:
        on: True if a class or a mode can override functions.
        modes: True while a mode is active in a thread.
        ask: function (public function, args, kwargs, operator) -> result, or NOTHING. `compat/overrides.py` replaces it.
        read: function (name of a property, tensor) -> value, or NOTHING, while a mode is active. It is defined there, too.
        load: function that imports `compat/overrides.py`. `_extensions.py` sets it.
    """

    __slots__ = ("_classes", "_lock", "_modes", "_plain", "_simple", "ask", "load", "modes", "on", "read")

    def __init__(self):
        self.on = self.modes = self._classes = False
        self._modes, self._lock = 0, threading.Lock()
        self._plain, self._simple = set(), set(SIMPLE)
        self.load = self.read = None
        self.ask = self._first

    def add_plain(self, *classes):
        """Adds classes of tensors without an override."""
        self._plain.update(classes)
        self.add_simple(*classes)
        if not self._modes:
            PLAIN.update(classes)

    def add_own(self, cls):
        """Adds a subclass of the library, if neither it nor a class that it inherits from has an override."""
        plain = all(base in self._plain for base in cls.__bases__ if hasattr(base, "_wrap"))
        if plain and "__torch_function__" not in vars(cls):
            self.add_plain(cls)

    def add_simple(self, *classes):
        """Adds classes of arguments that cannot override functions, and that contain no tensors."""
        self._simple.update(classes)
        if not self._modes:
            SIMPLE.update(classes)

    def add_class(self):
        """Notes that a class with an override exists."""
        self.on = self._classes = True

    def enter_mode(self):
        """Lets every call ask until `exit_mode`."""
        with self._lock:
            self._modes += 1
            self.on = self.modes = True
            PLAIN.clear()
            SIMPLE.clear()

    def exit_mode(self):
        """Ends the last `enter_mode`."""
        with self._lock:
            self._modes -= 1
            if not self._modes:
                PLAIN.update(self._plain)
                SIMPLE.update(self._simple)
                self.modes, self.on = False, self._classes

    def _first(self, public, args, kwargs=None, operator=False):
        """Looks for an argument whose class has a `__torch_function__`, as long as no subclass of Tensor has one."""
        for value in (*args, *(kwargs or {}).values()):
            for item in value if type(value) in (list, tuple) else (value,):
                kind = type(item)
                if kind in SIMPLE or kind is type:
                    continue
                if not hasattr(kind, "__torch_function__"):
                    if not issubclass(kind, (list, tuple, dict)):
                        self.add_simple(kind)
                else:
                    if self.load is not None and self.load() is not None:  # which replaces `ask`
                        self.add_class()
                        return self.ask(public, args, kwargs, operator)
        return NOTHING

    def refused(self, public, args, kwargs):
        """Asks after a function did not accept its arguments, if it has not asked before. The answer can be NOTHING."""
        return NOTHING if self.on else self._first(public, args, kwargs)


overriding = Overriding()


def asking_first(dispatch, operator):
    """Returns the slow path of a public function: classes and modes that override the function, then `dispatch`.

    Its attribute `public` is the function that `__torch_function__` receives.
    """

    def ask(*args, **options):
        if can_override(args, options):
            if (result := overriding.ask(ask.public.public, args, options, operator)) is not NOTHING:
                return result
        return dispatch(*args, **options)

    return ask


def asks(function):
    """Returns True for a public function that asks classes and modes."""
    return getattr(function, "asks", None) is function


def asking(function):
    """Marks a function that asks classes and modes. They receive its attribute `public`."""
    function.asks = function.public = function
    return function


def metadata(function):
    """Marks a method that only reads metadata and tests `overriding.modes` itself. Subclasses override it in their own dict."""
    function.reads = True
    return asking(function)


def is_constructed(tensor, new, arguments):
    """Returns True if the constructor of a subclass already has created the data of a tensor.

    Args:
        new: `Tensor.__new__`.
        arguments: False if `__init__` is called without arguments.
    """
    return hasattr(tensor, "_mt_data") and (type(tensor).__new__ is not new or not arguments)
