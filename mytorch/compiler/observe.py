"""Observation of one eager call: finds out if a function only computes with tensors.

A trace does not contain side effects in Python: printing, reading the clock, drawing from Python's random numbers, changing
attributes, lists or dicts. So the first call of a compiled function runs eagerly under `sys.setprofile`. A function with side effects
keeps running eagerly.
"""

import contextvars
import sys
import types
from pathlib import Path

import numpy as np

from .guards import HERE

ROOT = str(Path(__file__).parents[1])
_LAUNCH = str(Path(ROOT, "kernels", "launch.py"))
# Built-in functions without side effects.
_PURE = frozenset(
    "abs all any bin bool bytes callable chr complex delattr dict divmod enumerate filter float format frozenset getattr hasattr hash hex "
    "id int isinstance issubclass iter len list map max min next object oct ord pow range repr reversed round set setattr "
    "slice sorted str sum super tuple type vars zip __build_class__".split()
)
_PURE_MODULES = frozenset(
    "math cmath operator _operator itertools functools _functools collections _collections _collections_abc typing _typing abc _abc "
    "enum copy copyreg contextlib _contextvars types inspect re _sre string dataclasses weakref _weakref numbers fractions".split()
)
# Packages with functions that change no state of the program.
_LIBRARIES = frozenset("contextlib enum typing dataclasses numpy warnings cupy cupyx cupy_backends triton".split())
_PURE_FUNCTIONS = frozenset(["sys.getrecursionlimit", "sys.intern", "sys.exc_info"])
_PURE_TYPES = (
    str,
    bytes,
    tuple,
    int,
    float,
    complex,
    list,
    dict,
    set,
    frozenset,
    type,
    types.MappingProxyType,
    range,
    slice,
    contextvars.ContextVar,  # its value has a guard
)


class Observer:
    """Watches a call for side effects.

    Attributes:
        problem: the first side effect, or None.
        called: True if the side effect is the call of a function.
        executed: the code objects that the call executed.
    """

    def __init__(self, guards):
        self.problem, self.called, self.executed = None, False, set()
        self.guards = guards

    def run(self, call):
        """Calls a function and returns its result."""
        before, numbers = sys.getprofile(), np.random.get_state()[1:3]
        sys.setprofile(self._event)
        try:
            return call()
        finally:
            sys.setprofile(before)
            if self.problem is None and not all(map(np.array_equal, numbers, np.random.get_state()[1:3])):
                self.problem = "it draws from NumPy's random generator"
            if self.problem is None:
                self.problem = self.guards.changed()

    def _event(self, frame, event, arg):
        if event == "call":
            self.executed.add(frame.f_code)
        if event != "c_call" or self.problem is not None or frame.f_code.co_filename.startswith(ROOT):
            return
        name, module = arg.__name__, getattr(arg, "__module__", None)
        owner = getattr(arg, "__self__", None)
        if module == "builtins" or module is None:
            if owner is None or isinstance(owner, types.ModuleType):
                pure = name in _PURE and not (name == "next" and self.guards.iterators)
            else:
                pure = owner in _PURE_TYPES if isinstance(owner, type) else isinstance(owner, _PURE_TYPES)
                pure = pure or name in (
                    "__init__",
                    "__new__",
                    "__init_subclass__",
                    "__enter__",
                    "__exit__",
                    "__setattr__",
                    "__getattribute__",
                    "__reduce_ex__",
                    "__get__",
                    "__set__",
                )
            if pure:
                return
        elif (
            f"{module}.{name}" in _PURE_FUNCTIONS
            or module.partition(".")[0] in _PURE_MODULES
            or module.partition(".")[0] == HERE
        ):
            return
        if frame.f_globals.get("__name__", "").partition(".")[0] in _LIBRARIES:
            return
        if name == "setprofile" or _in_launch(frame):
            return
        self.called = True
        self.problem = f"it calls {'' if module in (None, 'builtins') else module + '.'}{name} ({_position(frame)})"


def executed_by(call):
    """Calls a function. Returns its result, and the code objects that it executed."""
    before, executed = sys.getprofile(), set()

    def add(frame, event, arg):
        if event == "call":
            executed.add(frame.f_code)

    sys.setprofile(add)
    try:
        return call(), executed
    finally:
        sys.setprofile(before)


def _in_launch(frame):
    """Returns True for a frame of Triton's compiler, which a launch of a kernel calls."""
    while frame is not None and frame.f_code.co_filename != _LAUNCH:
        frame = frame.f_back
    return frame is not None


def _position(frame):
    return f"{frame.f_code.co_filename}, line {frame.f_lineno}, in {frame.f_code.co_name}"


def position_of(function):
    """Returns the file, the line and the name of a function or a module."""
    owner = getattr(function, "__self__", None)
    if hasattr(owner, "forward"):  # a module's `__call__`
        function = owner.forward
    function = getattr(function, "__func__", function)
    code = getattr(function, "__code__", None) or getattr(vars(type(function)).get("__call__"), "__code__", None)
    return f"{code.co_filename}, line {code.co_firstlineno}, in {code.co_name}" if code else repr(function)


def position_in(error, function):
    """Returns the innermost line of the user's program in the traceback of an error; the function if there is none."""
    found, entry = None, error.__traceback__
    while entry is not None:
        if not entry.tb_frame.f_code.co_filename.startswith(ROOT):
            found = entry
        entry = entry.tb_next
    if found is None:
        return position_of(function)
    code = found.tb_frame.f_code
    return f"{code.co_filename}, line {found.tb_lineno}, in {code.co_name}"


def user_line():
    """Returns (file, line, function) of the innermost frame outside of this library, or None."""
    frame = sys._getframe(1)
    while frame is not None:
        if not frame.f_code.co_filename.startswith(ROOT):
            return frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name
        frame = frame.f_back
    return None
