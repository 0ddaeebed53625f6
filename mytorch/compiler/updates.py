"""Recorded updates of optimizers: their rules run on TracedArrays, with numbers that change from step to step.

A rule reads the learning rate and the number of steps as Python numbers. In a trace they are `Number` objects, which remember how they
were computed. A replay computes them again, with the current learning rate and step count, before it runs the steps.
A comparison of a Number is valid only while it has the same result, so it becomes a condition of the trace.
"""

import operator

from .._array import Array
from ..optim.optimizer import Optimizer
from ..optim.options import number
from .arrays import Untraceable, current_tape


class Number:
    """A number that each replay computes again.

    Attributes:
        value: the number now.
        compute: function without arguments that returns the number at the time of a replay.
    """

    __slots__ = ("compute", "key", "value")

    def __init__(self, compute, key, value=None):
        self.compute, self.key = compute, key
        self.value = compute() if value is None else value

    def __float__(self):
        raise Untraceable("a number of an optimizer is converted")

    __int__ = __index__ = __bool__ = __float__

    def _compare(self, other, function):
        result = function(self.value, other)
        conditions = current_tape().conditions
        if self.key not in conditions:
            conditions[self.key, function.__name__, other] = self.compute, function, other, result
        return result

    def __repr__(self):
        return f"number({self.value})"

    __hash__ = object.__hash__


def _operators():
    def binary(function):
        def forward(a, b):
            if isinstance(b, Number):
                x, y = a.compute, b.compute
                return Number(lambda: function(x(), y()), (function.__name__, a.key, b.key), function(a.value, b.value))
            if type(b) not in (int, float):
                return NotImplemented
            x = a.compute
            return Number(lambda: function(x(), b), (function.__name__, a.key, b), function(a.value, b))

        def backward(a, b):
            if type(b) not in (int, float):
                return NotImplemented
            x = a.compute
            return Number(lambda: function(b, x()), (function.__name__, b, a.key), function(b, a.value))

        return forward, backward

    for name in ("add", "sub", "mul", "truediv", "pow"):
        forward, backward = binary(getattr(operator, name))
        setattr(Number, f"__{name}__", forward)
        setattr(Number, f"__r{name}__", backward)
    Number.__neg__ = lambda a: 0.0 - a
    for name in ("eq", "ne", "lt", "le", "gt", "ge"):
        setattr(Number, f"__{name}__", lambda a, b, f=getattr(operator, name): a._compare(b, f))


_operators()


class _Group(dict):
    """A parameter group with a Number as learning rate."""


class _State(dict):
    """The state of a parameter, with its number of steps as a Number."""

    def count_step(self):
        """Returns the number of this step."""
        step = self["step"]
        if not isinstance(step, Array):
            raise Untraceable("the number of steps is not an array")
        tape = current_tape()
        raw = step._array
        value = int(raw) + 1
        if all(raw is not known for known in tape.counters):
            tape.counters.append(raw)
        # Parameters with the same number of steps share it.
        return tape.counts.setdefault(value, Number(lambda: int(raw.item()) + 1, ("step", value)))

    def __setitem__(self, name, value):
        raise Untraceable(f"the rule creates the state {name!r}")

    def setdefault(self, name, value=None):
        """Returns a value that exists."""
        if name not in self:
            self[name] = value
        return self[name]


def record(optimizer, group, tracer):
    """Runs the update of a group on TracedArrays.

    Raises:
        Untraceable: the rule cannot be recorded. It then runs as usual between the steps of a replay.
    """
    cls = type(optimizer)
    own = cls.step.__wrapped__ if hasattr(cls.step, "__wrapped__") else cls.step
    standard = Optimizer.step.__wrapped__
    if own is not standard or cls.update_group is not Optimizer.update_group or group.get("differentiable"):
        raise Untraceable("the optimizer defines its own step")
    if optimizer._found_inf is not None or optimizer._device_states:
        raise Untraceable("the gradients are scaled")
    tape = tracer.tape
    rate = group["lr"] if "lr" in group else None
    numbered = _Group(group)
    if rate is not None:
        numbered["lr"] = Number(lambda: float(number(group["lr"])), ("lr", id(group)))
    tape.states.append((optimizer.__dict__, "state", optimizer.state, {}))
    tape.groups.append((group, {k: v for k, v in group.items() if k not in ("lr", "params")}))
    for p in group["params"]:
        if p.grad is None:
            continue
        state = optimizer.state.get(p, {})
        for value in state.values():
            if isinstance(value, Array) and value._array.ndim:
                tracer.lift(value)
                tracer.existing.add(value._array.index)
        tape.states.append((optimizer.state, p, state, dict(state)))
        if p._data._array.dtype.kind == "c":
            raise Untraceable("a parameter is complex")
        tracer.lift(p)
        tracer.lift(p.grad)
        g = getattr(p.grad, "_data", p.grad)._array
        optimizer.update(p._data._array, -g if group.get("maximize") else g, _State(state), numbered)
