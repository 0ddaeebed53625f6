"""The fast path of an op: a closure that replaces `Op.dispatch` in the common case.

The common case is Tensors of one dtype in NumPy arrays, without an active mode. `Op.dispatch` handles all other cases: an
Array, mixed dtypes, a GPU, autocast, `fused=True`, `out=`, and so on. `mytorch.exp` and `Tensor.exp` are closures of this
kind.

There is a kind of closure for each number of inputs: `_unary` for one input, `_binary` for two inputs without attributes,
`_ternary` for three inputs, and `_nary` for other ops. A closure reads the rules of the op once, when it is created. Kernels
and formulas are set later. `_unary` and `_binary` repeat the code of `_tensor`, because a call of `_tensor` would take 3 to
8 % of the time of a recorded call.
"""

from functools import partial
from types import MethodType

import numpy as np

from ...arrays import config, dtypes, is_raw, ndarray, numpy_ns
from ...arrays.array import Array
from ...arrays.blocks import LARGE
from ...arrays.memory_format import ROWS_FROM_ROWS, in_rows, iterator
from ...arrays.overriding import PLAIN, asking, asking_first
from ...arrays.tensor import Tensor
from ...autograd.mode import get_mode
from ...autograd.node import Node, keep_saved
from ...kernels.parts import broadcast_size
from ...kernels.registry import SMALL
from .checked import as_array
from .errors import translate_error
from .half import FLOAT32
from .operands import is_operand
from .refused import SECOND

_as_array, generic = np.asarray, np.generic
_MISSING = object()
_NEUTRAL = {}, {"fused": None}, {"fused": None, "auto": False}  # keyword arguments that change nothing
_new, _wrap = object.__new__, Tensor._wrap
_fused_policy = config.fused_policy.get
# Dtype characters: floats, everything but half precision, everything.
_FLOATS, _NOT_HALF, _ALL = "fdFD", "fdFD?bBhHiIlLqQ", "".join({t.char for t in dtypes._BY_NUMPY})
_HALF = dtypes.float16.numpy.char + dtypes.bfloat16.numpy.char


def fast_call(op, operator=False, public=False, overridden=False):
    """Returns the closure that users call for an op.

    Args:
        operator: create the method of a binary operator such as `+`. It returns NotImplemented if the second operand is
            neither a tensor nor a number.
        public: create the function that programs call, which checks that its inputs are tensors.
        overridden: classes and modes can override the function, also if it is neither an operator nor `public`.
    """
    few = op.inputs[0] == "input" and len(op.inputs) < 3 and not op.variadic
    few = few and (op.required == len(op.inputs) == 1 or not (op.attrs or op.residuals or op.outputs or op.view))
    dispatch = op.dispatch_checked if public and few else op.dispatch
    if public or operator or overridden:
        dispatch = asking_first(dispatch, operator)
    if op.variadic:
        call = _nary(op, dispatch)
    elif len(op.inputs) == 3 and not (op.integers or op.outputs or op.view):
        call = _ternary(op, dispatch)
    elif op.inputs[0] != "input":  # the name that the closures below give it
        call = _nary(op, dispatch)
    elif op.required == len(op.inputs) == 1:
        call = _unary(op, dispatch)
    elif len(op.inputs) == 2 and not (op.attrs or op.residuals or op.outputs or op.view):
        call = _binary(op, operator, dispatch, not public or op.name in SECOND)
    else:
        call = _nary(op, dispatch)
    if public or operator or overridden:
        call.dispatch, dispatch.public = dispatch, asking(call)
    call.__name__ = call.__qualname__ = op.name
    call.__doc__, call.__module__ = op.__doc__, op.__module__
    call.op = call.__wrapped__ = op  # inspect.signature follows __wrapped__
    return call


def _accepted(op):
    """Returns the dtype characters that the fast path accepts in the first promoted input."""
    refused = _refused(op)
    return "".join(char for char in _of_dtype(op) if char not in refused) if refused else _of_dtype(op)


def _refused(op):
    """Returns the dtype characters that the fast path passes on: those that the op refuses, and half precision without a rule."""
    return op.refused + (_HALF if op.dtype == "same" and op.half != "itself" else "")


def _layout_of(op):
    """Returns the rule for the memory order of results, whether it depends on the operands, and whether it changes row-major results."""
    layout = op.layout
    return layout, layout is not in_rows, layout is not None and layout not in ROWS_FROM_ROWS


def _of_dtype(op):
    if op.dtype == "same" or (op.promoted and 0 not in op.promoted):
        return _ALL
    if op.dtype == "float":
        return _FLOATS
    if op.attrs or len(op.inputs) > 2 or not op.xp_name:
        return _NOT_HALF  # half precision is computed in float32, see half.py
    return _ALL


def on_numpy(op):
    """Returns the forward of an op for NumPy arrays: the array function that it calls, or the forward itself."""
    return getattr(numpy_ns, op.array_function) if op.array_function else MethodType(op.forward, numpy_ns)


def _unary(op, dispatch):
    """Returns the closure for one input: elementwise functions, reductions, views, activations with options."""
    compute, execute, kernels, names = on_numpy(op), op.execute, op.kernels, op.attrs
    accepted, allowed, defaults, reference = _accepted(op), op.attr_names, op.defaults, op.reference
    several, view, residuals, total = op.outputs is not None, op.view, op.residuals, len(op.attrs)
    share_memory, on_cpu, any_dtype = op.share_memory, op.kernels.of, op.dtype == "same" and not _refused(op)
    divided_from = op.divided_from
    only, rounds = names[0] if names else None, op.half != "itself" and not op.refused
    layout, follows, always = _layout_of(op)
    ufunc = layout is iterator and isinstance(compute, np.ufunc)
    # Set at the first recorded call, since the formulas are given after the definition.
    plan = wanted = saves_input = saves_out = pick_arrays = pick = None
    basic = ("input", "out", "xp", "shape", *op.attrs)

    def forget():
        nonlocal plan
        plan = None

    reference.cached_by.append(forget)

    def call(input, *args, **attrs):
        nonlocal plan, wanted, saves_input, saves_out, pick_arrays, pick
        mode = get_mode()
        fused = None
        if attrs:
            fused, auto = attrs.pop("fused", None), attrs.pop("auto", False)
            if fused or auto or (args and attrs) or not attrs.keys() <= allowed:
                return dispatch(input, *args, fused=fused, auto=auto, **attrs)
        if not mode.plain or type(input) not in PLAIN:
            return dispatch(input, *args, fused=fused, **attrs)
        if args:
            count = len(args)
            if count == 1 and only:
                attrs = {only: args[0]}
            elif count <= total:
                attrs = dict(zip(names, args))  # noqa: B905 - the others keep their defaults
            else:
                return dispatch(input, *args)
        array = input._mt_data
        x = array._array
        if type(x) is not ndarray or not (any_dtype or x.dtype.char in accepted):
            if rounds and type(x) is ndarray and x.dtype.char in _HALF and not on_cpu:
                edge = input._mt_edge if input._mt_view is None else input.edge
                operands = (x,), (edge,), (array,), int(edge is not None), numpy_ns
                return op.execute(op.reference_for(numpy_ns, x.dtype), operands, attrs, mode, (input,))
            return dispatch(input, fused=fused, **attrs)
        module = None
        if "cpu" in on_cpu and fused is not False and (x.size >= SMALL or _fused_policy()):
            module = kernels.find("cpu", fused, (x,), attrs)
        if module is not None or several:
            edge = input._mt_edge if input._mt_view is None else input.edge
            operands = (x,), (edge,), (array,), int(edge is not None), numpy_ns
            return execute(op.by_kernel(module) if module else reference, operands, attrs, mode, (input,))
        try:
            if x.size < divided_from:
                out = compute(x, **attrs) if attrs else compute(x)
            else:
                out = op.in_parts(partial(compute, **attrs) if attrs else compute, x)
        except Exception as error:
            translate_error(op, (x,), attrs, error)
            raise
        extra = ()
        if residuals:
            out, *extra = out
        if type(out) is not ndarray and (isinstance(out, generic) or not is_raw(out)):
            out = _as_array(out) if isinstance(out, generic) else as_array(op, out)
        # For one input, a ufunc's order of axes differs from PyTorch's only if another array owns the memory (an expanded input).
        if (x.base is not None if ufunc else layout is not None) and (
            always or not (out.flags.c_contiguous and (not follows or x.flags.c_contiguous))
        ):
            out = layout(out, (x,), attrs)
        data = _new(Array)
        data._array = out
        data._version_counter = mode.counter
        result = _new(Tensor)
        result._mt_data = data
        result._mt_edge = None
        result._mt_view = None
        if view:
            base = out.base
            shares = base is x or out is x or (base is not None and base is x.base)
            if shares and input._mt_view is None:  # `share_memory`, in place
                counter = array._version_counter
                if counter is None:
                    counter = array._version_counter = [0]
                data._version_counter = counter
                result._mt_view = (input, input._mt_edge, ((op, attrs),))
            else:
                share_memory(result, out, x, input, ((op, attrs),))
        edge = (input._mt_edge if input._mt_view is None else input.edge) if mode.grad else None
        if edge is not None:
            if plan is None:
                plan = reference.plan(1)
                pick = plan.picker(basic) if set(plan.names) <= {*basic} else None
                wanted, saves_input, saves_out = plan.wanted, bool(plan.inputs), bool(plan.out)
                pick_arrays = plan.pick_arrays
            if wanted and out.dtype.kind in "fcV":
                if pick_arrays is not None:
                    saved = pick_arrays((x, out, numpy_ns))
                else:
                    middle = args if len(args) == total else {**defaults, **attrs}.values()
                    if pick is not None:
                        saved = pick((x, out, numpy_ns, x.shape, *middle))
                    else:
                        accum = op.cast_from_float32(plan, (edge,), x) if plan.needs_accum else plan.no_accum
                        values = x, out, *extra, *middle, numpy_ns, x.shape, (x.shape,), (x.dtype,), plan.needs, accum
                        saved = plan.pick(values)
                versions = ()
                if saves_input:
                    counter = array._version_counter
                    if counter is None:
                        counter = array._version_counter = [0]
                    versions = ((counter, counter[0]),)
                if saves_out:
                    counter = data._version_counter
                    if counter is None:
                        counter = data._version_counter = [0]
                    versions = (*versions, (counter, counter[0]))
                result._mt_edge = Node(op, plan, (edge,), saved, versions, out.shape, out.dtype)
        return result

    return call


def _binary(op, operator, dispatch, numbers):
    compute, accepted, promotes = on_numpy(op), _accepted(op), op.dtype != "same"
    float32 = "f" in accepted
    reference, plans, kernels = op.reference, op.reference.plans, op.kernels.of
    any_dtype, layout, divided_from = accepted is _ALL, op.layout, op.divided_from
    follows = layout is iterator
    ufunc = follows and isinstance(getattr(np, op.xp_name, None) if op.xp_name else compute, np.ufunc)

    def general(input, other, args=(), **options):
        if operator and not is_operand(other) and not hasattr(type(other), "__torch_function__"):
            return NotImplemented
        return dispatch(*((input,) if other is _MISSING else (input, other)), *args, **options)

    def call(input, other=_MISSING, *args, **kwargs):
        mode = get_mode()
        if args or (kwargs and kwargs not in _NEUTRAL) or not mode.plain or type(input) not in PLAIN:
            return general(input, other, args, **kwargs)
        array0 = input._mt_data
        x0 = array0._array
        if type(x0) is not ndarray:
            return general(input, other)
        dtype = x0.dtype
        if dtype is not FLOAT32 or not float32:
            # NumPy converts each number of a half-precision array; kernels convert large arrays much faster.
            if not (any_dtype or dtype.char in accepted) or (x0.size >= LARGE and dtype.char in _HALF):
                return general(input, other)
        if kernels and "cpu" in kernels and (x0.size >= SMALL or _fused_policy()):
            return general(input, other)
        if type(other) in PLAIN:
            array1 = other._mt_data
            x1 = array1._array
            if type(x1) is not ndarray or (promotes and x1.dtype is not dtype):
                return general(input, other)
            edge1 = other._mt_edge if other._mt_view is None else other.edge
        elif (
            promotes
            and (type(other) is float or type(other) is int)
            and _keeps_dtype(other, dtype)
            and (numbers or not config.pytorch_mode)
        ):
            x1 = other
            array1 = edge1 = None
        else:
            return general(input, other)
        try:
            large = x0.size >= divided_from
            if array1 is not None and not large and x0.size * x1.size >= divided_from and x0.shape != x1.shape:
                large = broadcast_size(x0.shape, x1.shape) >= divided_from
            out = op.in_parts(compute, x0, x1) if large else compute(x0, x1)
        except Exception as error:
            translate_error(op, (x0, x1), {}, error)
            raise
        if type(out) is not ndarray and (isinstance(out, generic) or not is_raw(out)):
            out = _as_array(out) if isinstance(out, generic) else as_array(op, out)
        if ufunc:  # NumPy's order of axes differs for expanded inputs, and if a first operand in another order competes with a second one
            if (not x0.flags.c_contiguous if array1 is not None or x0.base is not None else False) or (
                array1 is not None and x1.base is not None and not x1.flags.c_contiguous
            ):
                out = layout(out, (x0, x1), {})
        elif follows:
            if not (x0.flags.c_contiguous and (array1 is None or x1.flags.c_contiguous)):
                out = layout(out, (x0, x1), {})
        elif layout is not None and not (layout is in_rows and out.flags.c_contiguous):
            out = layout(out, (x0, x1), {})
        data = _new(Array)
        data._array = out
        data._version_counter = mode.counter
        result = _new(Tensor)
        result._mt_data = data
        result._mt_edge = None
        result._mt_view = None
        if mode.grad:
            edge0 = input._mt_edge if input._mt_view is None else input.edge
            mask = (edge0 is not None) + 2 * (edge1 is not None)
            if mask:
                plan = plans.get(mask) or reference.plan(mask)
                if plan.wanted and not (plan.floats_only and out.dtype.kind not in "fcV"):
                    edges = edge0, edge1
                    versions = saved_versions(plan, (array0, array1), data) if plan.watches else ()
                    if plan.pick_arrays is not None:
                        saved = plan.pick_arrays((x0, x1, out, numpy_ns))
                        result._mt_edge = Node(op, plan, edges, saved, versions, out.shape, out.dtype)
                        return result
                    accum = op.cast_from_float32(plan, edges, x0) if plan.needs_accum else plan.no_accum
                    shapes = saved_dtypes = None
                    if plan.needs_shapes or plan.needs_dtypes:
                        shapes = x0.shape, getattr(x1, "shape", ())
                        saved_dtypes = x0.dtype, getattr(x1, "dtype", None)
                    values = (x0, x1, out, numpy_ns, x0.shape, shapes, saved_dtypes, plan.needs, accum)
                    result._mt_edge = Node(op, plan, edges, plan.pick(values), versions, out.shape, out.dtype)
        return result

    return call


def _keeps_dtype(number, dtype):
    """Returns True if an operation with a Python number keeps a dtype, by the rules of both NumPy and PyTorch."""
    return dtype.char in "fd" or (type(number) is int and dtype.kind == "i" and 0 <= number < 128)


def _ternary(op, dispatch):
    """Returns the closure for three inputs and attributes: linear layers, norms, `where`. The last two inputs can be None."""
    run, names, allowed = op.run, op.attrs, op.attr_names
    forward, reference, plans, kernels = op.forward, op.reference, op.reference.plans, op.kernels
    residuals, total, required = op.residuals, 3 + len(op.attrs), op.required
    promoted = () if op.dtype == "same" else op.promoted or range(3)
    first, second, third = (i in promoted for i in range(3))
    divided_from = op.divided_from
    accepted = _accepted(op)
    layout, follows, always = _layout_of(op)

    def call(*args, fused=None, auto=False, **attrs):
        mode, count = get_mode(), len(args)
        if (
            auto
            or fused
            or not mode.plain
            or count < required
            or count > total
            or (attrs and not attrs.keys() <= allowed)
        ):
            return dispatch(*args, fused=fused, auto=auto, **attrs)
        given, named = args, attrs
        if count == 3:
            a, b, c = args
        elif count > 3:
            if attrs:
                return dispatch(*args, fused=fused, **attrs)
            a, b, c, *values = args
            args, attrs = args[:3], dict(zip(names, values))  # noqa: B905 - the others keep their defaults
        else:
            args = a, b, c = (*args, None, None)[:3]
        if type(a) not in PLAIN:
            return dispatch(*given, fused=fused, **named)
        array0, array1, array2 = a._mt_data, None, None
        x0 = array0._array
        if type(x0) is not ndarray or x0.dtype.char not in accepted:
            return run(args, fused, attrs, mode)
        dtype = x0.dtype if first else None
        if type(b) in PLAIN:
            array1 = b._mt_data
            x1 = array1._array
            if type(x1) is not ndarray:
                return run(args, fused, attrs, mode)
            if second:
                if dtype is None:
                    dtype = x1.dtype
                elif x1.dtype is not dtype:
                    return run(args, fused, attrs, mode)
        elif b is None or (
            second and dtype is not None and (type(b) is float or type(b) is int) and _keeps_dtype(b, dtype)
        ):
            x1 = b
        else:
            return dispatch(*given, fused=fused, **named)
        if type(c) in PLAIN:
            array2 = c._mt_data
            x2 = array2._array
            if type(x2) is not ndarray or (third and x2.dtype is not dtype):
                return run(args, fused, attrs, mode)
        elif c is None or (
            third and (type(c) is float or type(c) is int) and dtype is not None and _keeps_dtype(c, dtype)
        ):
            x2 = c
        else:
            return dispatch(*given, fused=fused, **named)
        edge0 = edge1 = edge2 = None
        mask = 0
        if mode.grad:
            edge0 = a._mt_edge if a._mt_view is None else a.edge
            if array1 is not None:
                edge1 = b._mt_edge if b._mt_view is None else b.edge
            if array2 is not None:
                edge2 = c._mt_edge if c._mt_view is None else c.edge
            mask = (edge0 is not None) + 2 * (edge1 is not None) + 4 * (edge2 is not None)
        if "cpu" in kernels.of and fused is not False and (x0.size >= SMALL or _fused_policy()):
            module = kernels.find("cpu", fused, (x0, x1, x2), attrs)
            if module is not None:
                operands = (x0, x1, x2), (edge0, edge1, edge2), (array0, array1, array2), mask, numpy_ns
                return op.execute(op.by_kernel(module), operands, attrs, mode, args)
        try:
            if x0.size < divided_from:
                out = forward(numpy_ns, x0, x1, x2, **attrs)
            else:
                out = op.in_parts(partial(forward, numpy_ns, **attrs), x0, x1, x2)
        except Exception as error:
            translate_error(op, (x0, x1, x2), attrs, error)
            raise
        extra = ()
        if residuals:
            out, *extra = out
        if layout is not None:
            if type(out) is not ndarray:
                out = _as_array(out) if isinstance(out, generic) else as_array(op, out)
            if always or not (
                out.flags.c_contiguous
                and (
                    not follows
                    or (
                        x0.flags.c_contiguous
                        and (array1 is None or x1.flags.c_contiguous)
                        and (array2 is None or x2.flags.c_contiguous)
                    )
                )
            ):
                out = layout(out, (x0, x1, x2), attrs)
        result = _tensor(op, out, mode)
        out = result._mt_data._array
        if mask:
            plan = plans.get(mask) or reference.plan(mask)
            if plan.wanted and out.dtype.kind in "fcV":
                edges = edge0, edge1, edge2
                arrays = array0, array1, array2
                _attach(op, plan, result, (x0, x1, x2), (x0, x1, x2), extra, attrs, edges, arrays)
        return result

    return call


def _nary(op, dispatch):
    """Returns the closure for any number of inputs and attributes, including integer inputs and variadic inputs."""
    variadic, required, last = op.variadic, op.required or 1, len(op.inputs) - 1
    count = len(op.inputs) + (64 if variadic else 0)  # NumPy arrays have at most 64 axes
    total = count + len(op.attrs)
    run, names, allowed = op.run, op.attrs, op.attr_names
    forward, reference, plans, kernels = op.forward, op.reference, op.reference.plans, op.kernels
    several, view, residuals = op.outputs is not None, op.view, op.residuals
    promoted = () if op.dtype == "same" else op.promoted or range(count)
    floats, integers, divided_from = op.floats, op.integers, op.divided_from
    promotes = tuple([i in promoted for i in range(min(count, floats))])  # which inputs must have one dtype
    accepted = _FLOATS if op.dtype == "float" else _NOT_HALF
    refused = _refused(op)
    layout, follows, always = _layout_of(op)

    def call(*args, fused=None, auto=False, **attrs):
        mode = get_mode()
        given, named = args, attrs
        if auto or fused or (attrs and not attrs.keys() <= allowed):
            return dispatch(*args, fused=fused, auto=auto, **attrs)
        if len(args) < required:
            return dispatch(*args, fused=fused, **attrs)
        if len(args) > count:
            if attrs or variadic or len(args) > total:
                return dispatch(*args, fused=fused, **attrs)
            attrs = dict(zip(names, args[count:]))  # noqa: B905 - the others keep their defaults
            args = args[:count]
        elif len(args) < count and not variadic:
            args = (*args, *[None] * (count - len(args)))
        if not mode.plain:
            return dispatch(*given, fused=fused, **named)
        raws, dtype, differentiable = [], None, False
        for tensor, promote in zip(args, promotes):  # noqa: B905 - optional inputs at the end may be left out
            if type(tensor) in PLAIN:
                raw = tensor._mt_data._array
                if type(raw) is not ndarray:
                    return run(args, fused, attrs, mode)
                if promote and raw.dtype is not dtype:
                    if dtype is not None or raw.dtype.char not in accepted:
                        return run(args, fused, attrs, mode)
                    dtype = raw.dtype
                if tensor._mt_edge is not None or tensor._mt_view is not None:
                    differentiable = True
            elif tensor is None:
                raw = None
            elif promote and dtype is not None and (type(tensor) is float or type(tensor) is int):
                if not _keeps_dtype(tensor, dtype):
                    return run(args, fused, attrs, mode)
                raw = tensor
            else:
                return dispatch(*given, fused=fused, **named)
            raws.append(raw)
        if integers:
            for index in args[floats:]:
                raw = index._mt_data._array if type(index) in PLAIN or type(index) is Array else index
                if type(raw) is not ndarray:
                    return dispatch(*given, fused=fused, **named)
                raws.append(raw)
        x = raws[0]
        if x is None or several or (refused and x.dtype.char in refused):
            return run(args, fused, attrs, mode)
        if "cpu" in kernels.of and fused is not False and (x.size >= SMALL or _fused_policy()):
            module = kernels.find("cpu", fused, raws, attrs)
            if module is not None:
                edges, arrays, mask = operands_of(args) if differentiable and mode.grad else ((), (), 0)
                return op.execute(op.by_kernel(module), (raws, edges, arrays, mask, numpy_ns), attrs, mode, args)
        try:
            if x.size < divided_from:
                out = forward(numpy_ns, *raws, **attrs)
            else:
                out = op.in_parts(partial(forward, numpy_ns, **attrs), *raws)
        except Exception as error:
            translate_error(op, raws, attrs, error)
            raise
        extra = ()
        if residuals:
            out, *extra = out
        if layout is not None:
            if type(out) is not ndarray:
                out = _as_array(out) if isinstance(out, generic) else as_array(op, out)
            if always or not out.flags.c_contiguous or (follows and not _all_in_rows(raws)):
                out = layout(out, raws, attrs)
        result = _tensor(op, out, mode)
        out = result._mt_data._array
        if view:
            op.share_memory(result, out, x, args[0], ((op, attrs),))
        if differentiable and mode.grad:
            edges, arrays, mask = operands_of(args)
            plan = (plans.get(mask) or reference.plan(mask)) if mask else None
            if plan is not None and plan.wanted and out.dtype.kind in "fcV":
                values = (*raws[:last], tuple(raws[last:])) if variadic else raws
                _attach(op, plan, result, raws, values, extra, attrs, tuple(edges[:floats]), arrays)
        return result

    return call


def _all_in_rows(raws):
    """Returns True if all arrays among the raw operands are in row-major order."""
    for raw in raws:
        if type(raw) is ndarray and not raw.flags.c_contiguous:
            return False
    return True


def _tensor(op, out, mode):
    """Returns a Tensor over the result of a forward: a NumPy array, or a NumPy scalar."""
    if type(out) is not ndarray and (isinstance(out, generic) or not is_raw(out)):
        out = _as_array(out) if isinstance(out, generic) else as_array(op, out)
    return _wrap(out, mode)


def _attach(op, plan, result, raws, values, extra, attrs, edges, arrays):
    """Makes a Tensor the output of a Node, with the values that the plan saves.

    Args:
        plan: the values to save.
        result: raw array of the result.
        raws: raw arrays and numbers of the inputs.
        values: a raw array, a number or a tuple for each name of an input.
        extra: residuals.
        attrs: attributes.
        edges: edges of the inputs that can have a gradient.
        arrays: Arrays of the inputs.
    """
    out, x = result._mt_data._array, raws[0]
    versions = saved_versions(plan, arrays, result._mt_data) if plan.watches else ()
    if plan.pick_arrays is not None:
        saved = plan.pick_arrays((*values, out, numpy_ns))
    else:
        middle = {**op.defaults, **attrs}.values() if op.attrs else ()
        accum = op.cast_from_float32(plan, edges, x) if plan.needs_accum else plan.no_accum
        shapes = tuple([getattr(r, "shape", ()) for r in raws]) if plan.needs_shapes else None
        saved_dtypes = tuple([getattr(r, "dtype", None) for r in raws]) if plan.needs_dtypes else None
        saved = plan.pick((*values, out, *extra, *middle, numpy_ns, x.shape, shapes, saved_dtypes, plan.needs, accum))
    result._mt_edge = Node(op, plan, edges, saved, versions, out.shape, out.dtype)
    if op.keeps_saved:
        keep_saved(result._mt_edge)


def operands_of(inputs):
    """Returns the edges and Arrays of the inputs of an op, with None for numbers, and a bit for each input that has an edge."""
    edges, arrays, mask, bit = [], [], 0, 1
    for x in inputs:
        edge = array = None
        if isinstance(x, Tensor):
            array = x._mt_data
            edge = x._mt_edge if x._mt_view is None else x.edge
            if edge is not None:
                mask += bit
        elif isinstance(x, Array):
            array = x
        bit += bit
        edges.append(edge)
        arrays.append(array)
    return edges, arrays, mask


def saved_versions(plan, arrays, *results):
    """Returns (version counter, version) of each array that a plan saves: of inputs, and of outputs."""
    inputs = plan.inputs
    if plan.op.variadic and inputs and inputs[-1] == len(plan.op.inputs) - 1:
        inputs = (*inputs[:-1], *range(inputs[-1], len(arrays)))
    versions = []
    for i in inputs:
        array = arrays[i] if i < len(arrays) else None
        if array is not None:
            counter = array._version_counter
            if counter is None:
                counter = array._version_counter = [0]
            versions.append((counter, counter[0]))
    for i in plan.out:
        counter = results[i]._version_counter
        if counter is None:
            counter = results[i]._version_counter = [0]
        versions.append((counter, counter[0]))
    return versions
