"""The fast callers: each does what `Op.__call__` does, for float tensors of one dtype on the CPU; anything else goes there."""

import numpy as np

from ..backend import ndarray, numpy_ns
from ..graph.mode import get_mode
from ..graph.node import Node
from ..tensor import Tensor, refresh
from .operands import explained, is_operand

asarray = np.asarray
wrap_tensor = Tensor._wrap


def unary(op):
    """The caller of an op of one input without attributes."""
    forward = op.forward
    implementation = op.reference
    plan = None
    general = op.__call__
    accepts_ints = op.dtype != "float"

    def caller(input, *args, **kwargs):
        nonlocal plan
        if args or kwargs or not isinstance(input, Tensor):
            return general(input, *args, **kwargs)
        array = input._data
        x = array._array
        mode = get_mode()
        if type(x) is not ndarray or not mode.plain or op.fused_on or not (accepts_ints or x.dtype.kind == "f"):
            return general(input)
        try:
            out = forward(numpy_ns, x)
        except (TypeError, ValueError) as error:
            raise explained(op, (x,), error) from None
        if type(out) is not ndarray:
            out = asarray(out)
        result = wrap_tensor(out)
        view = input._view
        if view is not None and view[0]._edge is not view[1]:
            refresh(input)
        edge = input._edge
        if edge is not None and mode.grad:
            if plan is None:
                plan = implementation.plan(1)
            if not plan.wanted:
                return result
            cells = []
            if plan.inputs:
                cell = array._cell
                if cell is None:
                    cell = array._cell = [0]
                cells.append((cell, cell[0]))
            if plan.out:
                cells.append((result._data._shared_cell(), 0))
            saved = plan.pick((x, out, numpy_ns, x.shape, None, None, None))
            result._edge = Node(op, plan, (edge,), saved, cells, out.shape, out.dtype)
        return result

    return named(caller, op)


def binary(op, general=None):
    """The caller of an op of two inputs without attributes."""
    forward = op.forward
    implementation = op.reference
    plans = [None, None, None, None]
    general = general or op.__call__
    accepts_ints = op.dtype == "promote"

    def caller(input, other, *args, **kwargs):
        mode = get_mode()
        if args or kwargs or not mode.plain or not isinstance(input, Tensor) or op.fused_on:
            return general(input, other, *args, **kwargs)
        a = input._data
        x = a._array
        if type(x) is not ndarray:
            return general(input, other)
        if isinstance(other, Tensor):
            b = other._data
            y = b._array
            dtype = x.dtype
            if y.dtype is not dtype or type(y) is not ndarray or not (accepts_ints or dtype.kind == "f"):
                return general(input, other)
            view = other._view
            if view is not None and view[0]._edge is not view[1]:
                refresh(other)
            other_edge = other._edge
        elif (type(other) is float or type(other) is int) and x.dtype.kind == "f":
            b = other_edge = None
            y = other
        else:
            return general(input, other)
        try:
            out = forward(numpy_ns, x, y)
        except (TypeError, ValueError) as error:
            raise explained(op, (x, y), error) from None
        if type(out) is not ndarray:
            out = asarray(out)
        result = wrap_tensor(out)
        view = input._view
        if view is not None and view[0]._edge is not view[1]:
            refresh(input)
        edge = input._edge
        if (edge is not None or other_edge is not None) and mode.grad:
            mask = (edge is not None) + 2 * (other_edge is not None)
            plan = plans[mask]
            if plan is None:
                plan = plans[mask] = implementation.plan(mask)
            if not plan.wanted:
                return result
            if plan.names:
                cells = []
                for i in plan.inputs:
                    array = b if i else a
                    if array is not None:
                        cell = array._cell
                        if cell is None:
                            cell = array._cell = [0]
                        cells.append((cell, cell[0]))
                if plan.out:
                    cells.append((result._data._shared_cell(), 0))
                saved = plan.pick((x, y, out, numpy_ns, x.shape, None, None, plan.needs))
                result._edge = Node(op, plan, (edge, other_edge), saved, cells, out.shape, out.dtype)
            else:
                result._edge = Node(op, plan, (edge, other_edge), (), (), out.shape, out.dtype)
        return result

    return named(caller, op)


def binary_operator(op):
    """The method behind an operator such as `+`."""

    def general(input, other):
        return op(input, other) if is_operand(other) else NotImplemented

    return binary(op, general)


def named(caller, op):
    """The caller under its op's name, with its documentation."""
    caller.__name__ = caller.__qualname__ = op.name
    caller.__doc__ = op.__doc__
    caller.op = caller.__wrapped__ = op  # inspect.signature follows __wrapped__
    return caller
