"""Functions that ask classes and modes before they run; see `overriding.py`."""

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from . import config
from .overriding import NOTHING, SIMPLE, asking, asks, overriding

_F = TypeVar("_F", bound=Callable[..., Any])  # editors see the signature of the function


def overridable(function: _F, operator: bool = False, check: Callable[..., None] | None = None) -> _F:
    """Returns a function that asks classes and modes before it calls `function`.

    Args:
        operator: it is the method of a binary operator, which returns NotImplemented for unknown operands.
        check: a function of the arguments that refuses wrong ones in PyTorch mode.
    """
    if asks(function):
        return function
    if operator:
        return _operator(function, check)

    @functools.wraps(function)
    def public(*args, **kwargs):
        # The loop is `can_override`, without the call, because every function that is composed of ops runs it.
        if overriding.on:
            for value in (*args, *kwargs.values()) if kwargs else args:
                if type(value) not in SIMPLE:
                    if (result := overriding.ask(public.public, args, kwargs)) is not NOTHING:
                        return result
                    break
        if check is not None and config.pytorch_mode:
            check(args, kwargs)
        try:
            return function(*args, **kwargs)
        except (TypeError, AttributeError):
            if (result := overriding.refused(public.public, args, kwargs)) is NOTHING:
                raise
            return result

    return asking(public)


def _operator(function, check):
    """Returns the method of a binary operator that asks first. It has two arguments, so it needs no loop over them."""

    @functools.wraps(function)
    def public(self, other):
        if overriding.on and not (type(self) in SIMPLE and type(other) in SIMPLE):
            if (result := overriding.ask(public.public, (self, other), {}, True)) is not NOTHING:
                return result
        if check is not None and config.pytorch_mode:
            check((self, other), {})
        try:
            return function(self, other)
        except (TypeError, AttributeError):
            if (result := overriding.refused(public.public, (self, other), {})) is NOTHING:
                raise
            return result

    return asking(public)
