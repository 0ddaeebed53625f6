"""Half precision: results and gradients are computed in float32 and rounded once, as in PyTorch.

NumPy would round float16 after each step, and Python numbers before the first step. `Op.run` asks `Record.half` of an op. If
the op does not compute half precision itself, its reference (`in_float32`) or its kernel (`kernel_in_float32`) runs in
float32. The gradient formulas of these implementations receive float32, too. So forward functions and formulas need no
test of the dtype.
"""

import copy
from functools import wraps

import numpy as np

from ...arrays import ON_NUMPY, dtypes, is_raw, ndarray, numpy_ns, xp_of
from ...arrays.blocks import LARGE
from .record import Implementation

FLOAT32 = np.dtype(np.float32)


def is_half(dtype):
    """Returns True if a NumPy dtype is float16 or bfloat16, which NumPy reports as void."""
    return dtype.itemsize == 2 and dtype.kind in "fV"


def half_of(raws):
    """Returns float16 or bfloat16 if one of the first arrays has this dtype, else None."""
    for raw in raws[:3]:
        dtype = getattr(raw, "dtype", None)
        if dtype is not None and is_half(dtype):
            return dtype
    return None


def stays_wide(raw, result):
    """Returns True if an array with one element is not rounded to the half precision of the other inputs."""
    return not raw.ndim and is_half(result.numpy) and xp_of(raw) in ON_NUMPY


def in_float32(record):
    """Returns the implementation of an op that computes its reference in float32 and rounds once."""
    found = record.implementations.get(FLOAT32)
    if found is None:
        reference = record.reference
        forward = _rounded(record, record.forward, reference.residuals)
        found = record.implementations[FLOAT32] = Implementation(
            record, forward, reference.formulas, reference.vjp, reference.residuals
        )
        found.rounds = True
        if record.half != "forward":
            _widen_formulas(found, reference)
    return found


def kernel_in_float32(record, raws, attrs, fused):
    """Returns the implementation that runs a CPU kernel of an op on inputs in float32, or None if no kernel is selected."""
    module = record.kernels.find("cpu", fused, [_wide(x) for x in raws], attrs)
    if module is None:
        return None
    found = record.implementations.get((FLOAT32, module))
    if found is None:
        # A copy of the implementation, because the same kernel also runs on float32 without rounding. Its plans hold the formulas, so
        # it cannot share them either.
        kernel = record.by_kernel(module)
        found = record.implementations[FLOAT32, module] = copy.copy(kernel)
        found.plans, found.rounds = {}, True
        found.forward = _rounded(record, kernel.forward, kernel.residuals)
        _widen_formulas(found, kernel)
    return found


def _widen_formulas(found, implementation):
    # A product of a gradient is rounded before the engine sums it over broadcast axes, as in PyTorch, and not if a kernel computes it.
    rounds = found.op.elementwise and not implementation.is_kernel
    found.formulas = {name: _widened(f, rounds) for name, f in implementation.formulas.items()}
    found.vjp = implementation.vjp and _widened(implementation.vjp, rounds)


def _rounded(record, compute, residuals):
    """Returns a forward function in float32. Its outputs are rounded, and not its last results, the residuals."""
    wide = _wide_numbers if record.elementwise else _wide

    def forward(xp, *inputs, **attrs):
        half = half_of(inputs)
        if record.elementwise and record.keeps_python_scalars_float32 is not True:
            # PyTorch rounds a Python number to the dtype of the tensor first, so 0.1 is 0.0999756 in float16 here, too.
            kept = 1 if record.keeps_python_scalars_float32 == "other" else None
            with np.errstate(over="ignore"):
                inputs = [
                    float(half.type(x)) if type(x) in (float, int) and i != kept else x for i, x in enumerate(inputs)
                ]
        result = compute(xp, *map(wide, inputs), **attrs)
        return result if attrs.get("dtype") is not None else rounded(record, result, inputs, half, residuals)

    def forward_of_one(xp, input, **attrs):
        result = compute(xp, wide(input), **attrs)
        return result if attrs.get("dtype") is not None else _narrow(result, input.dtype)

    one = len(record.inputs) == 1 and not (record.variadic or residuals or record.outputs)
    return forward_of_one if one else forward


def rounded(record, result, inputs, half, residuals=()):
    """Rounds the floating-point results of an op to the half precision of its inputs, except residuals."""
    for i in record.promoted or ((0,) if record.dtype == "same" else ()):
        if i < len(inputs) and getattr(inputs[i], "dtype", half) != half:
            return result  # other inputs, such as weights, do not decide
    if type(result) is not tuple:
        return _narrow(result, half)
    count = len(result) - len(residuals)
    return (*[_narrow(x, half) for x in result[:count]], *result[count:])


def _narrow(x, half):
    return _cast(x, half) if getattr(getattr(x, "dtype", None), "kind", "") == "f" and half is not None else x


def _cast(x, dtype):
    return numpy_ns.cast(x, dtype) if type(x) is ndarray and x.size >= LARGE else x.astype(dtype)


def _widened(formula, rounds):
    """Returns a gradient formula that computes in float32.

    Without `rounds`, the engine rounds its results, or passes them to the float32 weight from which the operand was cast.
    """

    def function(g, *values):
        result = formula.function(*map(_wide_numbers if rounds else _wide, (g, *values)))
        if not rounds:
            return result
        return tuple([_narrow(x, g.dtype) for x in result]) if type(result) is tuple else _narrow(result, g.dtype)

    return formula._replace(function=function)


def _wide(x):
    """Converts an array in half precision, or each array of a list or tuple, to float32."""
    if type(x) is ndarray or is_raw(x):
        return _cast(x, FLOAT32) if is_half(x.dtype) else x
    return type(x)(map(_wide, x)) if isinstance(x, (list, tuple)) else x


def _wide_numbers(x):
    """Converts an array of floats or integers to float32: NumPy would compute float32 with int64 in float64."""
    raw = type(x) is ndarray or is_raw(x)
    return _cast(x, FLOAT32) if raw and x.dtype.kind in "fViu" and x.dtype is not FLOAT32 else x


def once_rounded(function):
    """Decorates a function of several ops: half precision is computed in float32, and only the results are rounded."""

    @wraps(function)
    def rounding(input, *args, **kwargs):
        dtype = getattr(input, "dtype", None)
        if dtype is None or not is_half(dtype.numpy):
            return function(input, *args, **kwargs)
        floats = [
            t for t in (*args, *kwargs.values()) if hasattr(t, "requires_grad") and t.dtype.category >= dtypes.FLOAT
        ]
        # With mixed dtypes, the function itself decides between promotion and an error.
        if any(t.dtype is not dtype for t in floats):
            return function(input, *args, **kwargs)

        def wide(t):
            return t.float() if getattr(t, "dtype", None) is dtype else t

        result = function(wide(input), *map(wide, args), **{name: wide(t) for name, t in kwargs.items()})
        return tuple(t.to(dtype) for t in result) if isinstance(result, tuple) else result.to(dtype)

    return rounding


def once_rounded_on_cpu(function):
    """As `once_rounded`; on a GPU, the function receives half precision, for which it has kernels."""
    rounding = once_rounded(function)

    @wraps(function)
    def on_cpu(input, *args, **kwargs):
        return (rounding if input.device.type == "cpu" else function)(input, *args, **kwargs)

    return on_cpu
