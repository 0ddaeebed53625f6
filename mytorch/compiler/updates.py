"""Recorded updates of optimizers: their rules run on TracedArrays, with numbers that change from step to step.

A rule reads options, such as the learning rate, and the number of steps as Python numbers. In a trace they are `Number` objects,
which remember the expression that computed them. Each run evaluates the expressions again, with the current options and step counts. A
comparison of a Number is a condition of the program.
"""

import math
import operator

from .arrays import Untraceable, current_tape


class Number:
    """A number that each run computes again.

    Attributes:
        text: a Python expression of the options `o` and the step counts `s`.
        value: the number in the trace.
    """

    __slots__ = ("text", "value")

    def __init__(self, text, value):
        self.text, self.value = text, value

    def __float__(self):
        raise Untraceable("a number of an optimizer is converted")

    __int__ = __index__ = __float__

    def __bool__(self):
        return self._condition(f"bool({self.text})", bool(self.value))

    @staticmethod
    def _condition(text, result):
        current_tape().conditions[text] = result
        return result

    def __repr__(self):
        return f"number({self.value})"

    __hash__ = object.__hash__


def _text(x):
    """Returns the expression of a Number or of a constant; None for other objects."""
    if type(x) is Number:
        return x.text
    return f"({x!r})" if type(x) is int or (type(x) is float and math.isfinite(x)) else None


def _operators():
    def binary(sign, function, is_condition):
        def forward(a, b):
            text = _text(b)
            if text is None:
                return NotImplemented
            found, text = function(a.value, getattr(b, "value", b)), f"({a.text} {sign} {text})"
            return Number._condition(text, found) if is_condition else Number(text, found)

        def backward(a, b):
            text = _text(b)
            return NotImplemented if text is None else Number(f"({text} {sign} {a.text})", function(b, a.value))

        return forward, backward

    for name, sign in {"add": "+", "sub": "-", "mul": "*", "truediv": "/", "pow": "**"}.items():
        forward, backward = binary(sign, getattr(operator, name), False)
        setattr(Number, f"__{name}__", forward)
        setattr(Number, f"__r{name}__", backward)
    Number.__neg__ = lambda a: Number(f"(-{a.text})", -a.value)
    for name, sign in {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}.items():
        setattr(Number, f"__{name}__", binary(sign, getattr(operator, name), True)[0])


_operators()


def numbered(group):
    """Returns the options of a parameter group with Numbers instead of floats."""
    found = {}
    for name, value in group.items():
        if type(value) is float:
            value = Number(f"o[{name!r}]", value)
        elif type(value) is tuple:
            value = tuple(Number(f"o[{name!r}][{i}]", x) if type(x) is float else x for i, x in enumerate(value))
        found[name] = value
    return found


class State(dict):
    """The state of a parameter during a trace.

    Args:
        values: the values, with TracedArrays.
        step: the number of finished steps as a Number, or None.
    """

    def __init__(self, values, step):
        super().__init__(values)
        self.step = step

    def count_step(self):
        """Returns the number of this step."""
        if self.step is None:
            raise Untraceable("the rule creates the number of steps")
        return self.step + 1

    def __setitem__(self, name, value):
        raise Untraceable(f"the rule replaces the state {name!r}")

    def setdefault(self, name, value=None):
        """Returns a value that exists."""
        if name not in self:
            self[name] = value
        return self[name]


def functions_of(program):
    """Returns (numbers, condition): functions of the options and step counts, which evaluate the expressions of a program."""
    numbers = ", ".join(program.numbers)
    conditions = " and ".join(text if holds else f"not {text}" for text, holds in program.conditions.items())
    # The expressions consist of names of options, numbers and arithmetic operators, see `Number`.
    names = {"__builtins__": {}, "bool": bool}
    return eval(f"lambda o, s: ({numbers},)" if numbers else "lambda o, s: ()", names), eval(
        f"lambda o, s: {conditions or True}", names
    )
